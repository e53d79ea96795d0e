//! Merging in a real repository.

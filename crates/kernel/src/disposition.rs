//! What a machine says to an event: accept it, ignore it, or deny it with a reason.
//!
//! Three outcomes, three variants. *Ignore* is for what is true but changes nothing (a second
//! report of the same exit); *deny* is a refusal that the sender is told about. A lost
//! compare-and-set is neither: it belongs to the shell, which looks again and decides again.

/// The answer of a pure machine to one event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disposition<T, D> {
    /// The event changes the state: commit this.
    Accept(T),
    /// The event changes nothing, and that is fine.
    Ignore,
    /// The event is refused.
    Deny(D),
}

impl<T, D> Disposition<T, D> {
    /// What to commit, if the event was accepted.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accept(transition) => Some(transition),
            Self::Ignore | Self::Deny(_) => None,
        }
    }

    /// The refusal, if the event was denied.
    pub fn denied(self) -> Option<D> {
        match self {
            Self::Deny(reason) => Some(reason),
            Self::Accept(_) | Self::Ignore => None,
        }
    }
}

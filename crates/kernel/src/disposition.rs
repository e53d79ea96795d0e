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

    /// What comes of another event after this one was accepted.
    #[must_use]
    pub fn and_then(self, next: impl FnOnce(T) -> Self) -> Self {
        match self {
            Self::Accept(transition) => next(transition),
            Self::Ignore | Self::Deny(_) => self,
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

#[cfg(test)]
mod tests {
    use super::Disposition::{self, Accept, Deny, Ignore};

    #[test]
    fn what_comes_next_is_asked_only_of_what_was_accepted() {
        let half = |n: u32| if n.is_multiple_of(2) { Accept(n / 2) } else { Deny("odd") };
        let twice = |n| half(n).and_then(half);
        assert_eq!([twice(8), twice(6), twice(5)], [Accept(2), Deny("odd"), Deny("odd")]);
        assert_eq!(Disposition::<u32, &str>::Ignore.and_then(half), Ignore);
    }
}

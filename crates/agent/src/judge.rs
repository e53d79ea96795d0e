//! How an attempt's agent ended: one total function of what it said and how its process ended.
//!
//! Success needs both: the agent's own success event, with no error in it, and an exit of 0 (or an
//! end by Belay, after the agent had said so and then lingered). Neither alone is enough. Agents
//! exit with 0 after a signal, after a broken stream and after an error result; and they print a
//! success and then crash.

use belay_kernel::Cause;
use serde::{Deserialize, Serialize};

use crate::notes::Turn;
use crate::observation::{Failure, TurnEnd};

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal that Belay did not send ended it.
    Signal(i32),
    /// Belay ended it.
    Ended,
    /// Nobody saw how it ended.
    Unseen,
}

/// How the agent's run is to be taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed(Failure),
}

/// Judges the run of an agent whose turn stands at `turn` and whose process ended with `exit`.
pub fn judge(turn: &Turn, exit: Exit) -> Judgement {
    let failed = |cause, text: String| Judgement::Failed(Failure::new(cause, &text));
    match (turn, exit) {
        (Turn::Ended(TurnEnd::Failed(failure)), _) => Judgement::Failed(failure.clone()),
        (Turn::Ended(TurnEnd::Succeeded), Exit::Code(0) | Exit::Ended) => Judgement::Succeeded,
        (Turn::Ended(TurnEnd::Succeeded), Exit::Code(code)) => {
            failed(Cause::Crash, format!("exited with {code} after it reported success"))
        }
        (Turn::Ended(TurnEnd::Succeeded), Exit::Signal(signal)) => {
            failed(Cause::Crash, format!("ended by signal {signal} after it reported success"))
        }
        (Turn::Ended(TurnEnd::Succeeded), Exit::Unseen) => {
            failed(Cause::Lost, "reported success, but nobody saw how it exited".into())
        }
        (Turn::Waiting | Turn::Open, Exit::Code(code)) => {
            failed(Cause::Crash, format!("exited with {code} and reported no result"))
        }
        (Turn::Waiting | Turn::Open, Exit::Signal(signal)) => {
            failed(Cause::Crash, format!("ended by signal {signal} and reported no result"))
        }
        (Turn::Waiting | Turn::Open, Exit::Ended) => {
            failed(Cause::Cancelled, "was ended before it reported a result".into())
        }
        (Turn::Waiting | Turn::Open, Exit::Unseen) => {
            failed(Cause::Lost, "is gone, and nobody saw how it ended".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(turn: &Turn, exit: Exit) -> &'static str {
        match judge(turn, exit) {
            Judgement::Succeeded => "succeeded",
            Judgement::Failed(failure) => failure.cause.code(),
        }
    }

    #[test]
    fn success_needs_the_event_and_the_exit() {
        let succeeded = Turn::Ended(TurnEnd::Succeeded);
        let failed = Turn::Ended(TurnEnd::Failed(Failure::new(Cause::Auth, "no")));
        let exits = [Exit::Code(0), Exit::Code(1), Exit::Signal(9), Exit::Ended, Exit::Unseen];
        let row = |turn: &Turn| exits.map(|exit| code(turn, exit));
        assert_eq!(row(&succeeded), ["succeeded", "crash", "crash", "succeeded", "lost"]);
        assert_eq!(row(&failed), ["auth"; 5]);
        for turn in [Turn::Waiting, Turn::Open] {
            assert_eq!(row(&turn), ["crash", "crash", "crash", "cancelled", "lost"]);
        }
    }
}

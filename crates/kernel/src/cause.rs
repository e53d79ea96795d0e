//! Why attempts and tasks end: the taxonomy of causes, and what may be tried again.
//!
//! Causes are typed. A handler that matched the text of an error message was once dead code, and
//! with it a whole clean-up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a cause allows without a person.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Retry {
    /// Another attempt may go better; counts as a try.
    Retryable,
    /// Another attempt would end the same way, or a person has decided.
    Permanent,
    /// Wait until the usage limit resets; uses no try.
    Park,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident $code:literal $retry:ident),* $(,)?) => {
        /// Why something ended.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum Cause { $($(#[$doc])* $name),* }

        impl Cause {
            /// Every cause.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The cause's stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// Whether the same thing may be tried again without a person.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry),* }
            }
        }
    };
}

causes! {
    /// The agent's process ended without success: non-zero exit, signal, or no result.
    Crash "crash" Retryable,
    /// Nobody who could see the agent reported any more, and its lease is over.
    Lost "lost" Retryable,
    /// The machine, the provider or Belay itself failed.
    Infrastructure "infrastructure" Retryable,
    /// The model could not be reached.
    Network "network" Retryable,
    /// No sign of life for the heartbeat timeout.
    HeartbeatTimeout "heartbeat_timeout" Retryable,
    /// No first sign of life within the start limit.
    NeverStarted "never_started" Retryable,
    /// Said `running`, did no work.
    StuckRunning "stuck_running" Retryable,
    /// The model asked for a pause of seconds or minutes.
    RateLimit "rate_limit" Retryable,
    /// The provider's own end of life for the sandbox.
    SandboxExpired "sandbox_expired" Retryable,
    /// The account's allowance is used up until a reset time.
    UsageLimit "usage_limit" Park,
    /// Credentials are missing, wrong or revoked.
    Auth "auth" Permanent,
    /// The task, the role or the agent is set up wrongly.
    Configuration "configuration" Permanent,
    /// The conversation no longer fits the model.
    ContextOverflow "context_overflow" Permanent,
    /// The model refused.
    Refusal "refusal" Permanent,
    /// The agent itself reported that it has failed.
    AgentFailed "agent_failed" Permanent,
    /// No work for the idle threshold.
    IdleTimeout "idle_timeout" Permanent,
    /// No output for the inactivity limit.
    Inactivity "inactivity" Permanent,
    /// The absolute limit passed.
    MaxDuration "max_duration" Permanent,
    /// Too many ends without any change.
    NoProgress "no_progress" Permanent,
    /// A dependency came to rest without completing.
    DependencyFailed "dependency_failed" Permanent,
    /// A subtask came to rest without completing.
    SubtaskFailed "subtask_failed" Permanent,
    /// The work was not published.
    PublishFailed "publish_failed" Permanent,
    /// No agent could be started, as often as allowed.
    StartFailed "start_failed" Permanent,
    /// Money or tokens are used up.
    Budget "budget" Permanent,
    /// A person stopped it.
    Cancelled "cancelled" Permanent,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(retry: Retry) -> String {
        let codes: Vec<_> =
            Cause::ALL.iter().filter(|cause| cause.retry() == retry).map(|c| c.code()).collect();
        codes.join(" ")
    }

    #[test]
    fn every_cause_is_retryable_permanent_or_parks() {
        assert_eq!(
            codes(Retry::Retryable),
            "crash lost infrastructure network heartbeat_timeout never_started stuck_running \
             rate_limit sandbox_expired"
        );
        assert_eq!(codes(Retry::Park), "usage_limit");
        assert_eq!(
            codes(Retry::Permanent),
            "auth configuration context_overflow refusal agent_failed idle_timeout inactivity \
             max_duration no_progress dependency_failed subtask_failed publish_failed start_failed \
             budget cancelled"
        );
    }

    #[test]
    fn the_code_is_the_name_on_the_wire() {
        for cause in Cause::ALL {
            let json = serde_json::to_string(cause).unwrap();
            assert_eq!(json, format!("\"{cause}\""));
        }
    }
}

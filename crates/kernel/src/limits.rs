//! The numbers: every limit and cap, with its default, as checked configuration.
//!
//! A [`Limit`] is a name that configuration, environment, flags and `why` share; [`Limits`] is the
//! full set of values. Values are set by name and then checked together, because most of what can
//! be wrong is a relation: a heartbeat timeout shorter than two beats condemns healthy agents.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Where a limit may be set, narrowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// Per task, per role and for the installation.
    Task,
    /// Per role and for the installation.
    Role,
    /// For the installation only.
    Installation,
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident $key:ident $scope:ident $default:expr;)*) => {
        /// The name of one limit.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Limit { $($(#[$doc])* $name),* }

        impl Limit {
            /// Every limit, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The limit's key in configuration.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => stringify!($key)),* }
            }

            /// The limit with this key.
            pub fn from_key(key: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|limit| limit.key() == key)
            }

            /// The narrowest place where it may be set.
            pub const fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope),* }
            }
        }

        /// All limits on time, with values.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits { $($(#[$doc])* pub $key: Span),* }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($key: $default),* }
            }
        }

        impl Limits {
            /// The value of one limit.
            pub const fn get(&self, limit: Limit) -> Span {
                match limit { $(Limit::$name => self.$key),* }
            }

            /// Sets one limit; [`Limits::check`] judges the whole afterwards.
            pub const fn set(&mut self, limit: Limit, value: Span) {
                match limit { $(Limit::$name => self.$key = value),* }
            }
        }
    };
}

limits! {
    /// No work, while the status is not `running`.
    Idle idle Task Span::from_mins(3);
    /// No sign of life.
    HeartbeatTimeout heartbeat_timeout Role Span::from_secs(90);
    /// No work, while the status is `running`.
    StuckRunning stuck_running Task Span::from_mins(10);
    /// After completion, or while a question is held.
    Linger linger Task Span::from_mins(5);
    /// No output and no open tool call.
    Inactivity inactivity Task Span::from_secs(60);
    /// The same, for adapters whose agent prints nothing while it thinks.
    InactivityQuiet inactivity_quiet Task Span::from_mins(10);
    /// One open tool call.
    ToolCall tool_call Task Span::from_mins(10);
    /// One attempt.
    Absolute absolute Task Span::from_mins(60);
    /// Created, but no sign of life.
    Start start Role Span::from_secs(120);
    /// Claimed, since the last preparation report.
    Claim claim Role Span::from_mins(2);
    /// Claimed, in all.
    ClaimTotal claim_total Role Span::from_mins(15);
    /// From the opening of the publish gate.
    Publish publish Role Span::from_secs(30);
    /// TERM to KILL.
    StopGrace stop_grace Task Span::from_secs(2);
    /// Fetching the end of the transcript.
    TranscriptTail transcript_tail Installation Span::from_secs(5);
    /// From the kill to its proof, for what a shim promises.
    KillBound kill_bound Installation Span::from_secs(1);
    /// How far apart two clocks may run during one lease.
    Drift drift Installation Span::from_secs(1);
    /// The success event was seen, but the process stays: quiet for this long, its group is ended.
    QuietExit quiet_exit Role Span::from_secs(10);
    /// Between two heartbeats.
    HeartbeatInterval heartbeat_interval Installation Span::from_secs(10);
    /// A worker.
    WorkerLease worker_lease Installation Span::from_secs(60);
    /// An attempt of the embedded runner.
    AttemptLeaseEmbedded attempt_lease_embedded Installation Span::from_mins(10);
    /// An attempt of a remote runner.
    AttemptLeaseRemote attempt_lease_remote Installation Span::from_secs(60);
    /// A failed renewal is tried again.
    RenewalRetry renewal_retry Installation Span::from_secs(2);
    /// A node.
    NodeLease node_lease Installation Span::from_secs(15);
    /// A node renews.
    NodeRenewal node_renewal Installation Span::from_secs(5);
    /// One probe of a sandbox.
    HealthProbe health_probe Installation Span::from_secs(5);
    /// Since a session's last activity.
    SessionGrace session_grace Role Span::from_secs(300);
    /// The same, for automation and chat clients.
    AutomationGrace automation_grace Role Span::from_secs(30);
    /// The lock around a snapshot, renewed.
    SnapshotLock snapshot_lock Installation Span::from_secs(300);
    /// A start command of a role.
    StartCommand start_command Installation Span::from_mins(2);
    /// Looking for what is due.
    DueSweep due_sweep Installation Span::from_secs(1);
    /// Looking for orphans.
    OrphanSweep orphan_sweep Installation Span::from_secs(60);
    /// Looking for stuck workflows.
    DiagnosticSweep diagnostic_sweep Installation Span::from_secs(60);
    /// Between two diagnostics of a workflow.
    DiagnosticCooldown diagnostic_cooldown Installation Span::from_secs(60);
    /// Since a workflow's last task ended.
    DiagnosticStuck diagnostic_stuck Installation Span::from_secs(60);
    /// In which unexpected exits of a role are counted.
    BreakerWindow breaker_window Role Span::from_mins(5);
    /// After the breaker opened; doubles.
    BreakerCooldown breaker_cooldown Role Span::from_secs(60);
    /// The first automatic retry; doubles.
    BackoffFirst backoff_first Role Span::from_secs(10);
    /// The longest wait between automatic retries.
    BackoffLongest backoff_longest Role Span::from_mins(5);
    /// Parking, where the usage limit does not say when it resets.
    Park park Role Span::from_mins(30);
    /// Waiting in the queue adds one to the priority per this.
    Ageing ageing Installation Span::from_mins(10);
    /// The next attempt waits this long for the runner that holds its tree.
    TreeAffinity tree_affinity Installation Span::from_mins(10);
    /// Before a provider's own end of life for a sandbox.
    ExpiryNotice expiry_notice Installation Span::from_mins(5);
    /// A webhook's receiver has to answer.
    WebhookAnswer webhook_answer Installation Span::from_secs(10);
    /// The first repetition of a delivery; doubles.
    WebhookFirst webhook_first Installation Span::from_secs(5);
    /// The longest wait between two tries of a delivery.
    WebhookLongest webhook_longest Installation Span::from_mins(60);
    /// A delivery is repeated for so long, then it is a dead letter.
    WebhookGiveUp webhook_give_up Installation Span::from_mins(60 * 24);
    /// Judging the alerts.
    AlertSweep alert_sweep Installation Span::from_secs(15);
    /// Over which rates are judged.
    AlertWindow alert_window Installation Span::from_mins(60);
    /// A stop or clean-up that is not proven within this has failed.
    StopProof stop_proof Installation Span::from_secs(60);
    /// A sandbox is in the database, but its runner does not have it.
    SandboxMissing sandbox_missing Installation Span::from_mins(60 * 24);
}

/// The counts that bound effort.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// Ends before `start`.
    pub starts: u32,
    /// Usage-limit parks.
    pub parks: u32,
    /// Ends without any change.
    pub no_progress: u32,
    /// Snapshot failures of a session.
    pub snapshot_failures: u32,
    /// Unexpected exits of a role within the breaker's window.
    pub breaker_exits: u32,
    /// Consecutive failed diagnostics of a workflow.
    pub diagnostic_failures: u32,
    /// Diagnostics of a workflow in all.
    pub diagnostics: u32,
    /// How deep subtasks may nest.
    pub subtask_depth: u32,
    /// Subtasks of one parent, finished ones included.
    pub subtasks: u32,
    /// How much waiting can add to a priority.
    pub ageing: i64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            starts: 3,
            parks: 10,
            no_progress: 3,
            snapshot_failures: 3,
            breaker_exits: 3,
            diagnostic_failures: 3,
            diagnostics: 3,
            subtask_depth: 3,
            subtasks: 50,
            ageing: 10,
        }
    }
}

/// What can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// Probing a sandbox before it is resumed.
    pub health_probe: bool,
    /// The inactivity limit.
    pub inactivity: bool,
    /// Diagnostic tasks for stuck workflows.
    pub diagnostics: bool,
    /// Snapshots of idle sessions.
    pub idle_snapshot: bool,
    /// Starting a role's worker when tasks wait.
    pub auto_restart: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            health_probe: true,
            inactivity: true,
            diagnostics: true,
            idle_snapshot: true,
            auto_restart: true,
        }
    }
}

/// Why a set of limits is refused: one sentence that names the values and the way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// A limit that must not be zero is.
    Zero(Limit),
    /// A limit is shorter than it has to be.
    TooShort {
        /// The limit.
        limit: Limit,
        /// Its value.
        value: Span,
        /// What it has to exceed or reach.
        least: Span,
        /// What asks for that.
        because: &'static str,
    },
    /// A cap that must not be zero is.
    ZeroCap(&'static str),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(limit) => {
                write!(f, "`{}` is zero; set it to a duration like `30s`", limit.key())
            }
            Self::TooShort { limit, value, least, because } => {
                write!(f, "`{}` is {value}, but {because}; set it to at least {least}", limit.key())
            }
            Self::ZeroCap(cap) => write!(f, "`{cap}` is zero; set it to at least 1"),
        }
    }
}

impl Limits {
    /// How long before the end of its lease a shim kills: grace, kill bound and drift.
    pub const fn fence_margin(&self) -> Span {
        self.stop_grace.plus(self.kill_bound).plus(self.drift)
    }

    /// Everything that is wrong with these limits together; nothing, if they can be used.
    pub fn check(&self) -> Vec<LimitError> {
        let instant = Span::from_millis(1);
        let two_beats = self.heartbeat_interval.times(2);
        let one_beat_more = self.fence_margin().plus(self.heartbeat_interval);
        let relations = [
            (Limit::HeartbeatTimeout, two_beats, "one lost beat must not condemn an agent"),
            (Limit::WorkerLease, two_beats, "one lost beat must not lose a worker"),
            (
                Limit::AttemptLeaseEmbedded,
                one_beat_more,
                "a beat must reach the shim before it kills",
            ),
            (
                Limit::AttemptLeaseRemote,
                one_beat_more,
                "a beat must reach the shim before it kills",
            ),
            (
                Limit::AttemptLeaseEmbedded,
                self.publish.plus(instant),
                "a publish must end within it",
            ),
            (Limit::AttemptLeaseRemote, self.publish.plus(instant), "a publish must end within it"),
            (Limit::NodeLease, self.node_renewal.times(2), "one late renewal must not lose a node"),
            (Limit::ClaimTotal, self.claim, "it covers every preparation report"),
            (Limit::Start, self.heartbeat_interval, "the first sign of life may be a beat"),
            (Limit::BackoffLongest, self.backoff_first, "it bounds the first backoff too"),
            (Limit::SnapshotLock, self.health_probe, "a probe happens inside the lock"),
            (Limit::WebhookLongest, self.webhook_first, "it bounds the first repetition too"),
            (Limit::StopProof, self.fence_margin(), "a kill may take as long as grace and bound"),
        ];
        let zero = Limit::ALL
            .iter()
            .filter(|limit| !matches!(limit, Limit::StopGrace | Limit::Drift))
            .filter(|limit| self.get(**limit).is_zero())
            .map(|limit| LimitError::Zero(*limit));
        let short = relations.into_iter().filter_map(|(limit, least, because)| {
            let value = self.get(limit);
            let wrong = value < least && !value.is_zero();
            wrong.then_some(LimitError::TooShort { limit, value, least, because })
        });
        zero.chain(short).collect()
    }
}

impl Caps {
    /// Everything that is wrong with these caps; nothing, if they can be used.
    pub fn check(&self) -> Vec<LimitError> {
        let counts = [
            ("starts", self.starts),
            ("no_progress", self.no_progress),
            ("snapshot_failures", self.snapshot_failures),
            ("breaker_exits", self.breaker_exits),
            ("diagnostic_failures", self.diagnostic_failures),
        ];
        counts
            .into_iter()
            .filter(|(_, count)| *count == 0)
            .map(|(name, _)| LimitError::ZeroCap(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences with which the defaults, changed at one limit, are refused.
    fn refusals(key: &str, value: &str) -> Vec<String> {
        let mut limits = Limits::default();
        limits.set(Limit::from_key(key).unwrap(), value.parse().unwrap());
        limits.check().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_defaults_are_as_specified_and_pass() {
        assert_eq!(Limits::default().check(), []);
        assert_eq!(Caps::default().check(), []);
        let limits = Limits::default();
        for (key, text) in [
            ("idle", "3m"),
            ("heartbeat_timeout", "1m30s"),
            ("stuck_running", "10m"),
            ("linger", "5m"),
            ("inactivity", "1m"),
            ("inactivity_quiet", "10m"),
            ("tool_call", "10m"),
            ("absolute", "1h"),
            ("publish", "30s"),
            ("session_grace", "5m"),
            ("automation_grace", "30s"),
            ("due_sweep", "1s"),
            ("orphan_sweep", "1m"),
            ("heartbeat_interval", "10s"),
            ("worker_lease", "1m"),
            ("claim", "2m"),
            ("claim_total", "15m"),
            ("attempt_lease_embedded", "10m"),
            ("attempt_lease_remote", "1m"),
            ("start", "2m"),
            ("stop_grace", "2s"),
            ("transcript_tail", "5s"),
            ("health_probe", "5s"),
            ("snapshot_lock", "5m"),
            ("node_lease", "15s"),
            ("node_renewal", "5s"),
            ("diagnostic_sweep", "1m"),
            ("diagnostic_cooldown", "1m"),
            ("diagnostic_stuck", "1m"),
            ("breaker_window", "5m"),
            ("breaker_cooldown", "1m"),
        ] {
            assert_eq!(limits.get(Limit::from_key(key).unwrap()).to_string(), text, "{key}");
        }
    }

    #[test]
    fn impossible_limits_are_refused_with_a_sentence() {
        for (key, value, sentence) in [
            (
                "heartbeat_timeout",
                "19.999s",
                "`heartbeat_timeout` is 19.999s, but one lost beat must not condemn an agent; \
                 set it to at least 20s",
            ),
            ("worker_lease", "0s", "`worker_lease` is zero; set it to a duration like `30s`"),
            (
                "attempt_lease_remote",
                "30s",
                "`attempt_lease_remote` is 30s, but a publish must end within it; \
                 set it to at least 30.001s",
            ),
            (
                "node_renewal",
                "8s",
                "`node_lease` is 15s, but one late renewal must not lose a node; \
                 set it to at least 16s",
            ),
            (
                "claim",
                "16m",
                "`claim_total` is 15m, but it covers every preparation report; \
                 set it to at least 16m",
            ),
            (
                "start",
                "9s",
                "`start` is 9s, but the first sign of life may be a beat; set it to at least 10s",
            ),
        ] {
            assert_eq!(refusals(key, value), [sentence]);
        }
        assert_eq!(refusals("stop_grace", "0s"), [""; 0], "killing at once is allowed");
        assert_eq!(refusals("heartbeat_timeout", "20s"), [""; 0], "the bound itself is allowed");
        let long_grace = refusals("stop_grace", "49s");
        assert_eq!(long_grace.len(), 1, "a grace that eats the lease: {long_grace:?}");
    }

    #[test]
    fn no_limit_but_grace_and_drift_may_be_zero() {
        for limit in Limit::ALL {
            let refused = refusals(limit.key(), "0s").iter().any(|s| s.contains("is zero"));
            let may_be_zero = matches!(limit, Limit::StopGrace | Limit::Drift);
            assert_eq!(refused, !may_be_zero, "{}", limit.key());
        }
        assert_eq!(Caps { starts: 0, ..Caps::default() }.check(), [LimitError::ZeroCap("starts")]);
    }

    #[test]
    fn limits_are_set_by_key_and_within_their_scope() {
        assert_eq!(Limit::from_key("absolute").map(Limit::scope), Some(Scope::Task));
        assert_eq!(Limit::from_key("node_lease").map(Limit::scope), Some(Scope::Installation));
        assert_eq!(Limit::from_key("nonsense"), None);
        let read: Limits = serde_json::from_str(r#"{"idle": 5000}"#).unwrap();
        assert_eq!(read, Limits { idle: Span::from_secs(5), ..Limits::default() });
        assert!(serde_json::from_str::<Limits>(r#"{"idel": 5000}"#).is_err());
    }
}

//! The kernel's enums without data, by the names they have in the tables.

use belay_kernel::Clock;
use belay_kernel::attempt::{Frozen, Outcome, Proof};
use belay_kernel::diagnostic::RunEnd;
use belay_kernel::sandbox::{Fall, Quiet};
use belay_kernel::session::{Attempt, PauseReason, StopReason, Tree};
use belay_kernel::task::{Plan, Review, Verb};
use belay_kernel::termination::{Step, Storage};
use belay_kernel::worker::Place;
use belay_kernel::workflow::OnValidated;

use crate::cell::codes;

codes! {
    Review { Manual "manual", Auto "auto" }
    Plan { Fresh "fresh", Same "same", Republish "republish" }
    Verb {
        Run "run", Cancel "cancel", Accept "accept", Reject "reject", Answer "answer",
        Retry "retry", Resume "resume", Continue "continue",
    }
    Clock {
        Start "start", Heartbeat "heartbeat", StuckRunning "stuck_running", Idle "idle",
        Linger "linger", Inactivity "inactivity", Absolute "absolute", ToolCall "tool_call",
        Claim "claim", ClaimTotal "claim_total", Publish "publish",
        AttemptLease "attempt_lease", WorkerLease "worker_lease", Grace "grace",
    }
    Outcome {
        Succeeded "succeeded", Question "question", Failed "failed", TimedOut "timed_out",
        Cancelled "cancelled", BudgetExceeded "budget_exceeded", Lost "lost",
    }
    Frozen { No "no", Before "before", Now "now" }
    Proof { Observed "observed", LeaseExpired "lease_expired", NotOurs "not_ours" }
    Storage { Outlives "outlives", DiesWithProcesses "dies_with_processes" }
    Step {
        Freeze "freeze", Kill "kill", SaveTranscript "save_transcript", SaveTree "save_tree",
        Destroy "destroy", Settle "settle", Tell "tell", Done "done",
    }
    PauseReason {
        Inactivity "inactivity", Orphaned "orphaned", Blocked "blocked", Ready "ready",
    }
    StopReason {
        Done "done", Cancelled "cancelled", Failed "failed", SnapshotFailed "snapshot_failed",
    }
    Tree { Unsaved "unsaved", Saved "saved" }
    Attempt { None "none", Live "live" }
    Quiet { Idle "idle", Stuck "stuck" }
    Fall {
        NeverStarted "never_started", HeartbeatTimeout "heartbeat_timeout",
        AgentFailed "agent_failed", Exited "exited",
    }
    Place { Embedded "embedded", Remote "remote" }
    OnValidated { StopAll "stop_all", Nothing "nothing" }
    RunEnd { Cured "cured", InVain "in_vain", Failed "failed" }
}

//! Sandboxes, and what their evidence means, as they are shown.

use belay_kernel::{
    AttemptNumber, Epoch, Reading, RunnerId, SandboxId, SessionId, TaskId, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which sandboxes are listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListSandboxes {
    /// Only those in these states, separated by commas; all, if it is empty.
    pub state: String,
    /// At most so many.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub after: Option<String>,
}

/// One page of sandboxes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxPage {
    /// The sandboxes, newest first.
    pub sandboxes: Vec<SandboxView>,
    /// Where to go on, if there may be more.
    pub after: Option<String>,
}

/// One incarnation of compute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxView {
    /// Its id.
    pub id: SandboxId,
    /// The session that owns it.
    pub session: SessionId,
    /// The task and the attempt that ran in it last.
    pub task: Option<TaskId>,
    /// The attempt's number.
    pub attempt: Option<AttemptNumber>,
    /// The name of its state, such as `RUNNING`.
    pub state: String,
    /// The fencing number that it was made with.
    pub epoch: Epoch,
    /// Who makes it.
    pub provider: String,
    /// Where it runs.
    pub runner: Option<RunnerId>,
    /// Whether it was killed or given up, whatever it does now.
    pub buried: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// The last sign of life.
    pub last_seen_at: Option<Timestamp>,
    /// When it last did work.
    pub last_work_at: Option<Timestamp>,
    /// When its agent said that it is done, if it did no work since.
    pub completed_at: Option<Timestamp>,
}

/// What the evidence of a sandbox means now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VerdictView {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// What it means, such as `working` or `dead`.
    pub ruling: String,
    /// The number of the rule that decided, 1 to 8.
    pub rule: u8,
    /// Every clock that is passed, the one that decided first.
    pub reasons: Vec<Reading>,
    /// Every clock that runs.
    pub clocks: Vec<Reading>,
    /// When it changes by the passing of time alone.
    pub recheck_at: Option<Timestamp>,
    /// When it was judged.
    pub judged_at: Timestamp,
}

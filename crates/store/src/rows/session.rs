//! Sessions, and the sandboxes that they own.

use belay_kernel::deadline::Stream;
use belay_kernel::evidence::Evidence;
use belay_kernel::lock::Lock;
use belay_kernel::sandbox::{Fall, Quiet, State as SandboxState};
use belay_kernel::session::{Attempt, Kept, PauseReason, Session, State, StopReason, Tree};
use belay_kernel::{
    Epoch, NodeId, Revision, RunnerId, SandboxId, SessionId, SnapshotId, Timestamp,
};

use crate::cell::{Cell, Cells, Column, Document, Field, Kind, Name, SHORT, Unreadable, column};
use crate::row::record;

record! {
    /// A session: the durable conversation and working tree behind tasks.
    pub struct SessionRow in "sessions" {
        id: SessionId, key: 1, rank: 3, newest: "created_at", timer: Due;
        /// Its id.
        id: SessionId,
        /// Its life. Its own revision counts its moves; the row's counts every change.
        session: Session,
        /// The runner that holds its tree.
        runner: Option<RunnerId>,
        /// The node that owns it, while that node's lease lives.
        owner: Option<NodeId>,
        /// The agent's own name for the conversation.
        conversation: Option<Name>,
        /// Whether it pauses instead of being terminated when it is idle.
        keep_alive: bool,
        /// When it was made.
        created_at: Timestamp,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
    }
}

record! {
    /// One incarnation of compute; stored before it is created.
    pub struct SandboxRow in "sandboxes" {
        id: SandboxId, key: 1, rank: 4, newest: "created_at", timer: Due;
        /// Its id.
        id: SandboxId,
        /// The session that owns it.
        session: SessionId,
        /// Its life.
        state: SandboxState,
        /// The fencing number that it was made with.
        epoch: Epoch,
        /// Who makes it.
        provider: Name,
        /// Where it runs.
        runner: Option<RunnerId>,
        /// The provider's own name for it, once it has one.
        reference: Option<Name>,
        /// Whether it was killed or given up, whatever it does now: it is not its session's any
        /// more.
        buried: bool,
        /// What was observed of it.
        evidence: Option<Document<Evidence>>,
        /// What was seen of its agent's output.
        stream: Option<Document<Stream>>,
        /// When it was made.
        created_at: Timestamp,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
        ; live: Option<SessionId> = |row| row.is_live().then_some(row.session),
    }
}

impl SandboxRow {
    /// Whether it counts as its session's sandbox.
    pub const fn is_live(&self) -> bool {
        let over = matches!(self.state, SandboxState::Dead { .. } | SandboxState::Terminated);
        !self.buried && !over
    }
}

impl Field for Session {
    fn columns(_: &str, out: &mut Vec<Column>) {
        for name in ["state", "sandbox", "reason", "kept", "kept_id", "leftover"] {
            column(name, Kind::Text(SHORT), out);
        }
        Revision::columns("moves", out);
        Epoch::columns("epoch", out);
        Epoch::columns("lock_number", out);
        NodeId::columns("lock_holder", out);
        Timestamp::columns("lock_until", out);
        u32::columns("snapshot_failures", out);
        Tree::columns("tree", out);
        Attempt::columns("attempt", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        put_state(&self.state, out);
        self.revision.put(out);
        self.epoch.put(out);
        self.lock.map(|lock| lock.number).put(out);
        self.lock.map(|lock| lock.holder).put(out);
        self.lock.map(|lock| lock.until).put(out);
        self.snapshot_failures.put(out);
        self.tree.put(out);
        self.attempt.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let state = get_state(cells)?;
        let (revision, epoch) = (Field::get(cells)?, Field::get(cells)?);
        let number = Option::<Epoch>::get(cells)?;
        let holder = Option::<NodeId>::get(cells)?;
        let until = Option::<Timestamp>::get(cells)?;
        let lock = number.zip(holder).zip(until);
        let lock = lock.map(|((number, holder), until)| Lock { number, holder, until });
        Ok(Self {
            state,
            revision,
            epoch,
            lock,
            snapshot_failures: Field::get(cells)?,
            tree: Field::get(cells)?,
            attempt: Field::get(cells)?,
        })
    }
}

fn put_state(state: &State, out: &mut Vec<Cell>) {
    let mut reason = Vec::new();
    let (name, sandbox, kept, leftover) = match *state {
        State::New => ("new", None, None, None),
        State::Running { sandbox } => ("running", Some(sandbox), None, None),
        State::Pausing { sandbox, reason: why, kept } => {
            why.put(&mut reason);
            ("pausing", Some(sandbox), Some(kept), None)
        }
        State::Paused { reason: why, kept, leftover } => {
            why.put(&mut reason);
            ("paused", None, Some(kept), leftover)
        }
        State::Stopped { reason: why, kept, leftover } => {
            why.put(&mut reason);
            ("stopped", None, Some(kept), leftover)
        }
    };
    out.push(Cell::Text(name.to_owned()));
    sandbox.put(out);
    out.push(reason.pop().unwrap_or(Cell::Null));
    let (kept, id) = match kept {
        None => (None, None),
        Some(Kept::Memory(id)) => (Some("memory"), Some(id.to_string())),
        Some(Kept::Files(id)) => (Some("files"), Some(id.to_string())),
        Some(Kept::Frozen(id)) => (Some("frozen"), Some(id.to_string())),
        Some(Kept::Disk(id)) => (Some("disk"), Some(id.to_string())),
        Some(Kept::Tree) => (Some("tree"), None),
    };
    out.push(kept.map_or(Cell::Null, |kept| Cell::Text(kept.to_owned())));
    out.push(id.map_or(Cell::Null, Cell::Text));
    leftover.put(out);
}

fn get_state(cells: &mut Cells<'_>) -> Result<State, Unreadable> {
    let name = cells.cell()?.as_text().unwrap_or_default();
    let sandbox = Option::<SandboxId>::get(cells)?;
    let reason = [cells.cell()?.clone()];
    let kept = cells.cell()?.as_text().unwrap_or_default();
    let id = cells.cell()?.as_text().unwrap_or_default();
    let leftover = Option::<SandboxId>::get(cells)?;
    let snapshot = || id.parse::<SnapshotId>().ok();
    let compute = || id.parse::<SandboxId>().ok();
    let kept = match kept {
        "memory" => snapshot().map(Kept::Memory),
        "files" => snapshot().map(Kept::Files),
        "frozen" => compute().map(Kept::Frozen),
        "disk" => compute().map(Kept::Disk),
        "tree" => Some(Kept::Tree),
        _ => None,
    };
    let paused = || PauseReason::get(&mut Cells::new(&reason)).ok();
    let stopped = || StopReason::get(&mut Cells::new(&reason)).ok();
    let state = match name {
        "new" => Some(State::New),
        "running" => sandbox.map(|sandbox| State::Running { sandbox }),
        "pausing" => sandbox
            .zip(paused())
            .zip(kept)
            .map(|((sandbox, reason), kept)| State::Pausing { sandbox, reason, kept }),
        "paused" => {
            paused().zip(kept).map(|(reason, kept)| State::Paused { reason, kept, leftover })
        }
        "stopped" => {
            stopped().zip(kept).map(|(reason, kept)| State::Stopped { reason, kept, leftover })
        }
        _ => None,
    };
    state.ok_or_else(|| cells.unreadable(name))
}

impl Field for SandboxState {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("state", Kind::Text(SHORT), out);
        column("completed_at", Kind::Int, out);
        column("fault", Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        out.push(Cell::Text(self.status().name().to_owned()));
        let completed = match self {
            Self::Completed { at } => Some(*at),
            _ => None,
        };
        completed.put(out);
        match self {
            Self::Idle { why } => why.put(out),
            Self::Dead { why } => why.put(out),
            Self::Created
            | Self::Running
            | Self::Completed { .. }
            | Self::Resumed
            | Self::Paused
            | Self::Terminated => out.push(Cell::Null),
        }
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let completed = Option::<Timestamp>::get(cells)?;
        let fault = [cells.cell()?.clone()];
        let state = match name {
            "CREATED" => Some(Self::Created),
            "RUNNING" => Some(Self::Running),
            "COMPLETED" => completed.map(|at| Self::Completed { at }),
            "RESUMED" => Some(Self::Resumed),
            "IDLE" => Quiet::get(&mut Cells::new(&fault)).ok().map(|why| Self::Idle { why }),
            "DEAD" => Fall::get(&mut Cells::new(&fault)).ok().map(|why| Self::Dead { why }),
            "PAUSED" => Some(Self::Paused),
            "TERMINATED" => Some(Self::Terminated),
            _ => None,
        };
        state.ok_or_else(|| cells.unreadable(name))
    }
}

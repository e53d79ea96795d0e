//! Roles, runners, workers, and the starts of workers.

use belay_kernel::breaker::Breaker;
use belay_kernel::restart::{End, Generation, Phase, Start};
use belay_kernel::role::{Desired, Role, RoleName, Stop};
use belay_kernel::worker::{Held, Kind as WorkerKind, Place, ProcessIdentity, State};
use belay_kernel::{
    AttemptNumber, Cause, CommandId, ConnectionId, RunnerId, TaskId, Timestamp, WorkerId,
};

use crate::cell::{
    Cell, Cells, Column, Document, Field, Kind, List, Name, SHORT, Unreadable, column,
};
use crate::lease::{Holder, LeaseAct, LeaseWrite};
use crate::row::record;

record! {
    /// A role: what a person wants of it, and its breaker.
    pub struct RoleRow in "roles" {
        id: RoleName, key: 1, rank: 0, newest: "name", timer: Due;
        /// What a person wants.
        role: Role,
        /// Whether it may be started again.
        breaker: Breaker,
        /// The number of its last start.
        generation: Generation,
        /// Its agent.
        agent: Option<Name>,
        /// Its model.
        model: Option<Name>,
        /// Its provider.
        provider: Option<Name>,
        /// `key=value` of the limits that are not the installation's.
        limits: List,
        /// The names of the variables that are passed on to its agents.
        environment: List,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
    }
}

impl Field for Role {
    fn columns(_: &str, out: &mut Vec<Column>) {
        RoleName::columns("name", out);
        column("desired", Kind::Text(SHORT), out);
        u32::columns("workers", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.name.put(out);
        let desired = match self.desired {
            Desired::Running => "running",
            Desired::Stopped(Stop::Drain) => "stopped_drain",
            Desired::Stopped(Stop::Now) => "stopped_now",
        };
        out.push(Cell::Text(desired.to_owned()));
        self.workers.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = Field::get(cells)?;
        let desired = match cells.cell()?.as_text() {
            Some("running") => Desired::Running,
            Some("stopped_drain") => Desired::Stopped(Stop::Drain),
            Some("stopped_now") => Desired::Stopped(Stop::Now),
            other => return Err(cells.unreadable(format!("{other:?}"))),
        };
        Ok(Self { name, desired, workers: Field::get(cells)? })
    }
}

impl Field for Breaker {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("breaker", Kind::Text(SHORT), out);
        Document::<Vec<Timestamp>>::columns("breaker_exits", out);
        u32::columns("breaker_openings", out);
        Timestamp::columns("breaker_until", out);
        Cause::columns("breaker_cause", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let (name, exits, openings, until, cause) = match self {
            Self::Closed { exits, openings } => {
                ("closed", Some(exits.clone()), Some(*openings), None, None)
            }
            Self::Cooling { until, openings } => {
                ("cooling", None, Some(*openings), Some(*until), None)
            }
            Self::Held { cause } => ("held", None, None, None, Some(*cause)),
        };
        out.push(Cell::Text(name.to_owned()));
        exits.map(Document).put(out);
        openings.put(out);
        until.put(out);
        cause.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let exits = Option::<Document<Vec<Timestamp>>>::get(cells)?.map(|exits| exits.0);
        let openings = Option::<u32>::get(cells)?;
        let until = Option::<Timestamp>::get(cells)?;
        let cause = Option::<Cause>::get(cells)?;
        let breaker = match name {
            "closed" => {
                exits.zip(openings).map(|(exits, openings)| Self::Closed { exits, openings })
            }
            "cooling" => {
                until.zip(openings).map(|(until, openings)| Self::Cooling { until, openings })
            }
            "held" => cause.map(|cause| Self::Held { cause }),
            _ => None,
        };
        breaker.ok_or_else(|| cells.unreadable(name))
    }
}

record! {
    /// A runner: the daemon on a machine. Whether it is present, its lease tells.
    pub struct RunnerRow in "runners" {
        id: RunnerId, key: 1, rank: 12, newest: "joined_at", timer: None;
        /// Its id.
        id: RunnerId,
        /// What people call it.
        name: Name,
        /// Whether it runs inside a node.
        place: Place,
        /// How many sandboxes it hosts at most.
        slots: u32,
        /// The roles that it can host.
        roles: List,
        /// The providers that it has.
        providers: List,
        /// What it runs.
        version: Name,
        /// When it first joined.
        joined_at: Timestamp,
    }
}

record! {
    /// A worker, with the lease that lives beside it.
    pub struct WorkerRow in "workers" {
        id: WorkerId, key: 1, rank: 13, newest: "joined_at", timer: Due,
        view: "workers_with_lease", lease: WorkerRow::lease_write;
        /// Its id.
        id: WorkerId,
        /// The role that it works for.
        role: RoleName,
        /// Its life. The lease's end is the committed one.
        state: State,
        /// When it joined.
        joined_at: Timestamp,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
    }
}

impl WorkerRow {
    fn lease_write(&self) -> LeaseWrite {
        let open = |connection: ConnectionId, mode, until| LeaseAct::Open {
            fence: connection.to_string(),
            mode,
            until,
        };
        let act = match self.state {
            State::Gone => LeaseAct::Drop,
            State::Waiting { connection, ready_until, .. } => {
                open(connection, "waiting", ready_until)
            }
            State::Active { connection, active_until, .. } => {
                open(connection, "active", active_until)
            }
        };
        LeaseWrite { holder: Holder::Worker(self.id), act }
    }
}

impl Field for WorkerKind {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("kind", Kind::Text(SHORT), out);
        RunnerId::columns("runner", out);
        Place::columns("place", out);
        i32::columns("pid", out);
        column("start_time", Kind::Text(SHORT), out);
        column("boot", Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let (name, runner, place, agent) = match *self {
            Self::Slot { runner, place } => ("slot", Some(runner), Some(place), None),
            Self::Pulling { agent } => ("pulling", None, None, Some(agent)),
            Self::External { agent } => ("external", None, None, Some(agent)),
        };
        out.push(Cell::Text(name.to_owned()));
        runner.put(out);
        place.put(out);
        agent.map(ProcessIdentity::pid).put(out);
        let text = |number: Option<String>| number.map_or(Cell::Null, Cell::Text);
        out.push(text(agent.map(|agent| agent.start_time().to_string())));
        out.push(text(agent.map(|agent| agent.boot().to_string())));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let runner = Option::<RunnerId>::get(cells)?;
        let place = Option::<Place>::get(cells)?;
        let pid = Option::<i32>::get(cells)?;
        let start_time = cells.cell()?.as_text().and_then(|text| text.parse().ok());
        let boot = cells.cell()?.as_text().and_then(|text| text.parse().ok());
        let agent = pid.zip(start_time).zip(boot);
        let agent = agent
            .and_then(|((pid, start_time), boot)| ProcessIdentity::new(pid, start_time, boot).ok());
        let kind = match name {
            "slot" => runner.zip(place).map(|(runner, place)| Self::Slot { runner, place }),
            "pulling" => agent.map(|agent| Self::Pulling { agent }),
            "external" => agent.map(|agent| Self::External { agent }),
            _ => None,
        };
        kind.ok_or_else(|| cells.unreadable(name))
    }
}

impl Field for State {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("state", Kind::Text(SHORT), out);
        ConnectionId::columns("connection", out);
        WorkerKind::columns("", out);
        Timestamp::columns("lease_end", out);
        TaskId::columns("held_task", out);
        AttemptNumber::columns("held_attempt", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let (name, connection, kind, until, held) = match *self {
            Self::Gone => ("gone", None, None, None, None),
            Self::Waiting { connection, kind, ready_until } => {
                ("waiting", Some(connection), Some(kind), Some(ready_until), None)
            }
            Self::Active { connection, kind, active_until, held } => {
                ("active", Some(connection), Some(kind), Some(active_until), Some(held))
            }
        };
        out.push(Cell::Text(name.to_owned()));
        connection.put(out);
        kind.put(out);
        until.put(out);
        held.map(|held| held.task).put(out);
        held.map(|held| held.attempt).put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let connection = Option::<ConnectionId>::get(cells)?;
        let kind = Option::<WorkerKind>::get(cells)?;
        let until = Option::<Timestamp>::get(cells)?;
        let task = Option::<TaskId>::get(cells)?;
        let attempt = Option::<AttemptNumber>::get(cells)?;
        let held = task.zip(attempt).map(|(task, attempt)| Held { task, attempt });
        let live = connection.zip(kind).zip(until);
        let state = match name {
            "gone" => Some(Self::Gone),
            "waiting" => live.map(|((connection, kind), ready_until)| Self::Waiting {
                connection,
                kind,
                ready_until,
            }),
            "active" => live.zip(held).map(|(((connection, kind), active_until), held)| {
                Self::Active { connection, kind, active_until, held }
            }),
            _ => None,
        };
        state.ok_or_else(|| cells.unreadable(name))
    }
}

record! {
    /// A start of a role's worker: one is pending at most.
    pub struct StartRow in "starts" {
        id: (RoleName, Generation), key: 2, rank: 14, newest: "deadline", timer: Due;
        /// Its life.
        start: Start,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
        ; pending: Option<RoleName> = |row| row.start.pending_key().cloned(),
    }
}

impl Field for Start {
    fn columns(_: &str, out: &mut Vec<Column>) {
        RoleName::columns("role", out);
        Generation::columns("generation", out);
        CommandId::columns("id", out);
        RunnerId::columns("runner", out);
        Timestamp::columns("deadline", out);
        column("phase", Kind::Text(SHORT), out);
        WorkerId::columns("joined_worker", out);
        Cause::columns("failed_cause", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.role.put(out);
        self.generation.put(out);
        self.id.put(out);
        self.runner.put(out);
        self.deadline.put(out);
        let (name, worker, cause) = match self.phase {
            Phase::Sent => ("sent", None, None),
            Phase::Started => ("started", None, None),
            Phase::Over(End::Joined(worker)) => ("joined", Some(worker), None),
            Phase::Over(End::Failed(cause)) => ("failed", None, Some(cause)),
            Phase::Over(End::Expired) => ("expired", None, None),
            Phase::Over(End::Withdrawn) => ("withdrawn", None, None),
        };
        out.push(Cell::Text(name.to_owned()));
        worker.put(out);
        cause.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let (role, generation) = (Field::get(cells)?, Field::get(cells)?);
        let (id, runner) = (Field::get(cells)?, Field::get(cells)?);
        let deadline = Field::get(cells)?;
        let name = cells.cell()?.as_text().unwrap_or_default();
        let worker = Option::<WorkerId>::get(cells)?;
        let cause = Option::<Cause>::get(cells)?;
        let phase = match name {
            "sent" => Some(Phase::Sent),
            "started" => Some(Phase::Started),
            "joined" => worker.map(|worker| Phase::Over(End::Joined(worker))),
            "failed" => cause.map(|cause| Phase::Over(End::Failed(cause))),
            "expired" => Some(Phase::Over(End::Expired)),
            "withdrawn" => Some(Phase::Over(End::Withdrawn)),
            _ => None,
        };
        let phase = phase.ok_or_else(|| cells.unreadable(name))?;
        Ok(Self { id, role, generation, runner, deadline, phase })
    }
}

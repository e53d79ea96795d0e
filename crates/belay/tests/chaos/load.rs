//! What there is to do meanwhile: agents that count, agents whose work is published, and agents
//! that are stopped.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::faults::Draw;
use crate::world::World;

/// What a task is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Prints so many lines.
    Counts(u32),
    /// Prints so many lines, and leaves work that is to be published.
    Publishes(u32),
    /// Goes on until it is stopped.
    IsStopped,
}

/// A task that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) kind: Kind,
}

/// Everything that was accepted.
pub(crate) struct Load<'a> {
    world: &'a World,
    remote: String,
    pub(crate) tasks: Vec<Task>,
    /// Those whose stop was acknowledged.
    pub(crate) stopped: RefCell<BTreeSet<String>>,
}

/// Enough for every fault to hit the same task.
const ATTEMPTS: [&str; 4] = ["--max-attempts", "1000", "--review", "auto"];

impl<'a> Load<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let (remote, stopped) = (world.remote(), RefCell::default());
        Self { world, remote, tasks: Vec::new(), stopped }
    }

    /// Some more.
    pub(crate) fn add(&mut self, draw: &mut Draw) {
        for _ in 0..=draw.below(2) {
            let lines = u32::try_from(10 + draw.below(150)).unwrap();
            let kind = match draw.below(4) {
                0 => Kind::IsStopped,
                1 => Kind::Counts(lines),
                _ => Kind::Publishes(lines),
            };
            self.make(kind);
        }
    }

    fn make(&mut self, kind: Kind) {
        let flags = [&["load"][..], &ATTEMPTS].concat();
        let count = |lines: u32| {
            format!(
                "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i of $BELAY_ATTEMPT; \
                 sleep 0.02; done"
            )
        };
        let (flags, script) = match kind {
            Kind::Counts(lines) => ([&flags[..], &["--publish", "none"]].concat(), count(lines)),
            Kind::Publishes(lines) => {
                let work = "echo $BELAY_ATTEMPT >> made.txt";
                let flags = [&flags[..], &["--repo", &self.remote]].concat();
                (flags, format!("{work}; {}; {work}", count(lines)))
            }
            Kind::IsStopped => {
                let flags = [&flags[..], &["--repo", &self.remote]].concat();
                (flags, format!("echo begun >> made.txt; {}", count(1_000_000)))
            }
        };
        let said = self
            .world
            .belay(&[&["run", "--detach"], &flags[..], &["--", "sh", "-c", &script]].concat());
        // One that was not accepted, because the server was not ready for it, was not accepted.
        if said.code == 0 {
            self.tasks.push(Task { id: said.id(), kind });
        }
    }

    /// Stops one of those that are there to be stopped, wherever it is.
    pub(crate) fn stop_one(&mut self, draw: &mut Draw) {
        let open: Vec<_> = self.to_stop();
        if open.is_empty() || draw.below(3) == 0 {
            return;
        }
        let index = usize::try_from(draw.below(open.len() as u64)).unwrap();
        self.stop(&open[index]);
    }

    /// Those whose stop was not acknowledged yet.
    pub(crate) fn to_stop(&self) -> Vec<String> {
        let stopped = self.stopped.borrow();
        let open = self.tasks.iter().filter(|task| task.kind == Kind::IsStopped);
        open.map(|task| task.id.clone()).filter(|id| !stopped.contains(id)).collect()
    }

    /// Stops a task; whether that was acknowledged.
    pub(crate) fn stop(&self, id: &str) -> bool {
        let done = self.world.belay(&["stop", id]).code == 0;
        if done {
            self.stopped.borrow_mut().insert(id.to_owned());
        }
        done
    }
}

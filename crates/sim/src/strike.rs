//! What strikes a world from outside: processes fall or stand still, machines are switched off or
//! lost, ways are cut, sandboxes vanish, clocks are set.

use std::sync::atomic::Ordering;

use crate::knobs::Strike;
use crate::net::Speaker;
use crate::sim::Part;
use crate::world::World;

/// How far the store's clock is set at most, in milliseconds.
const JUMP_MS: u64 = 900_000;
/// How wrong a machine's wall clock may be.
const WALL_MS: u64 = 90 * 86_400_000;

impl World {
    /// How long something that fell stays down.
    pub(crate) fn downtime(&self) -> u64 {
        let mut rng = self.sim.rng();
        match rng.below(10) {
            0 => rng.between(60_000, 700_000),
            1..4 => rng.between(3_000, 50_000),
            _ => rng.between(10, 2_000),
        }
    }

    fn any_node(&self) -> usize {
        usize::try_from(self.sim.rng().below(self.nodes.len() as u64)).unwrap_or(0)
    }

    fn any_runner(&self) -> usize {
        usize::try_from(self.sim.rng().below(self.runners.len() as u64)).unwrap_or(0)
    }

    /// Something goes wrong now, or at one of the next steps of some process.
    pub(crate) async fn strike(&mut self) {
        let Some(strike) = ({
            let mut rng = self.sim.rng();
            self.sim.knobs.strikes.next(&mut rng)
        }) else {
            return;
        };
        self.sim.count(format!("{strike:?}"));
        let (node, runner) = (self.any_node(), self.any_runner());
        let steps = self.sim.rng().below(60);
        match strike {
            Strike::NodeFalls => self.nodes[node].gate.light(steps),
            Strike::RunnerFalls => self.runners[runner].gate.light(steps),
            Strike::NodeStops => self.stop_node(node),
            Strike::RunnerStops => self.stop_runner(runner),
            Strike::Reboot => self.reboot(runner).await,
            Strike::Loss => self.lose(runner).await,
            Strike::Cut => self.cut(runner),
            Strike::StoreCut => {
                let until = self.sim.ms() + self.downtime();
                self.nodes[node].cut_until.fetch_max(until, Ordering::SeqCst);
                self.sim.note(format_args!("node {node} is cut from the store until {until}"));
            }
            Strike::Vanish => {
                let draw = self.sim.rng().next();
                self.runners[runner].machine.vanish(draw);
            }
            Strike::ClockJump => self.jump(),
            Strike::WallJump => {
                let by = self.sim.rng().below(2 * WALL_MS);
                let by = i64::try_from(by).unwrap_or(0) - i64::try_from(WALL_MS).unwrap_or(0);
                self.runners[runner].machine.set_wall(by);
                self.sim.note(format_args!("machine {runner} has its wall clock set by {by} ms"));
            }
            Strike::Outage => {
                let until = self.sim.ms() + self.downtime();
                self.remote.go_out(until);
                self.sim.note(format_args!("remote  answers nobody until {until}"));
            }
        }
    }

    /// A node stands still, where it is; another one may take its place meanwhile.
    fn stop_node(&mut self, number: usize) {
        let down = self.downtime();
        let until = self.sim.ms() + down;
        self.nodes[number].gate.pause_until(until);
        // It may stand still already, and for longer.
        let up_since = &mut self.nodes[number].up_since;
        *up_since = until.max(*up_since);
        self.oracle.node_stands(until);
        self.sim.note(format_args!("node {number} stands still for {down} ms"));
        if self.is_embedded(number) {
            return self.runners[number].gate.pause_until(until);
        }
        if self.sim.rng().permille(600)
            && let Some(node) = self.net.set(number, None)
        {
            self.zombies.push(node);
            let soon = self.sim.rng().between(10, 20_000);
            self.nodes[number].back_at = Some(self.sim.ms() + soon);
            self.sim.note(format_args!("another node takes its place in {soon} ms"));
        }
    }

    fn stop_runner(&mut self, number: usize) {
        if self.is_embedded(number) {
            return self.stop_node(number);
        }
        let down = self.downtime();
        self.runners[number].gate.pause_until(self.sim.ms() + down);
        self.sim.note(format_args!("runner {number} stands still for {down} ms"));
    }

    /// A machine is switched off, and on again later.
    async fn reboot(&mut self, number: usize) {
        let down = self.downtime();
        self.sim.note(format_args!("machine {number} is switched off"));
        self.fall(Part::Runner(number), down).await;
        self.runners[number].machine.reboot();
    }

    /// A machine is gone for good. One is always left, and the one with the store on it.
    async fn lose(&mut self, number: usize) {
        let left = self.runners.iter().filter(|place| !place.machine.is_lost()).count();
        if left < 2 || self.is_embedded(number) || self.runners[number].machine.is_lost() {
            return;
        }
        self.sim.note(format_args!("machine {number} is lost"));
        self.runners[number].machine.lose();
        self.remote.forget(number);
        self.fall(Part::Runner(number), 0).await;
    }

    /// A runner is cut off from one node, or from all.
    fn cut(&mut self, number: usize) {
        if self.is_embedded(number) {
            return;
        }
        let until = self.sim.ms() + self.downtime();
        let all = self.sim.rng().permille(500);
        let nodes = match all {
            true => 0..self.nodes.len(),
            false => {
                let node = self.any_node();
                node..node + 1
            }
        };
        self.sim.note(format_args!("runner {number} is cut from nodes {nodes:?} until {until}"));
        for node in nodes {
            self.net.cut(Speaker::Runner(number), node, until);
        }
    }

    /// The store's clock is set ahead. One that is set back goes on from where it was: that is the
    /// stores' own part.
    fn jump(&mut self) {
        let by = i64::try_from(self.sim.rng().between(100, JUMP_MS)).unwrap_or(0);
        self.oracle.before_jump();
        self.sim.set_clock(by);
        self.jumped_at = self.sim.ms();
        self.sim.note(format_args!("store   has its clock set by {by} ms"));
    }
}

//! How much goes wrong in a world, and who is in it: all of it numbers, and zero is none.

use crate::rng::Rng;

/// What strikes from outside, each as often as its weight says against the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strikes {
    /// A node falls at one of its next steps.
    pub(crate) node_falls: u64,
    /// A node stands still, and goes on later.
    pub(crate) node_stops: u64,
    /// A runner falls.
    pub(crate) runner_falls: u64,
    /// A runner stands still.
    pub(crate) runner_stops: u64,
    /// A machine is switched off and on again.
    pub(crate) reboots: u64,
    /// A machine is gone for good, with its disk. One is always left.
    pub(crate) losses: u64,
    /// A runner does not reach any node, or one of them.
    pub(crate) cuts: u64,
    /// A node does not reach the store.
    pub(crate) store_cuts: u64,
    /// A sandbox is gone, with its output, and nobody knows why.
    pub(crate) vanishes: u64,
    /// The store's clock is set.
    pub(crate) clock_jumps: u64,
    /// A machine's wall clock is set.
    pub(crate) wall_jumps: u64,
    /// The remote answers nobody for a while.
    pub(crate) outages: u64,
}

/// One thing that strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strike {
    NodeFalls,
    NodeStops,
    RunnerFalls,
    RunnerStops,
    Reboot,
    Loss,
    Cut,
    StoreCut,
    Vanish,
    ClockJump,
    WallJump,
    Outage,
}

impl Strikes {
    fn draw(rng: &mut Rng) -> Self {
        let mut weight = |choices: &[u64]| rng.pick(choices).copied().unwrap_or(0);
        Self {
            node_falls: weight(&[0, 4, 8]),
            node_stops: weight(&[0, 2, 4]),
            runner_falls: weight(&[0, 4, 8]),
            runner_stops: weight(&[0, 2, 4]),
            reboots: weight(&[0, 0, 1, 3]),
            losses: weight(&[0, 0, 0, 1]),
            cuts: weight(&[0, 0, 2, 6]),
            store_cuts: weight(&[0, 0, 2]),
            vanishes: weight(&[0, 0, 1, 3]),
            clock_jumps: weight(&[0, 0, 0, 2]),
            wall_jumps: weight(&[0, 1]),
            outages: weight(&[0, 0, 2]),
        }
    }

    /// Draws what strikes next; nothing, if nothing does.
    pub(crate) fn next(&self, rng: &mut Rng) -> Option<Strike> {
        let all = [
            (Strike::NodeFalls, self.node_falls),
            (Strike::NodeStops, self.node_stops),
            (Strike::RunnerFalls, self.runner_falls),
            (Strike::RunnerStops, self.runner_stops),
            (Strike::Reboot, self.reboots),
            (Strike::Loss, self.losses),
            (Strike::Cut, self.cuts),
            (Strike::StoreCut, self.store_cuts),
            (Strike::Vanish, self.vanishes),
            (Strike::ClockJump, self.clock_jumps),
            (Strike::WallJump, self.wall_jumps),
            (Strike::Outage, self.outages),
        ];
        let sum = all.iter().map(|(_, weight)| weight).sum();
        let mut draw = rng.below(sum);
        for (strike, weight) in all {
            if draw < weight {
                return Some(strike);
            }
            draw -= weight;
        }
        None
    }
}

/// How much goes wrong, out of a thousand where it is a chance.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    /// Whether the first node and the first runner are one process that falls as one. Then there
    /// is one node.
    pub(crate) embedded: bool,
    /// How many nodes share the store.
    pub(crate) nodes: u64,
    /// How many runners there are, each on a machine of its own.
    pub(crate) runners: u64,
    /// Whether a runner speaks to one node as long as it is up, and not to any of them.
    pub(crate) sticky: bool,
    /// The store fails before it does anything.
    pub(crate) store_fails: u64,
    /// The store does it, and its answer is lost.
    pub(crate) store_loses: u64,
    /// An operation of the store takes its time.
    pub(crate) store_slow: u64,
    /// A message between runner and node is lost.
    pub(crate) net_loses: u64,
    /// One arrives twice, the second time late.
    pub(crate) net_doubles: u64,
    /// The answer to one takes its time.
    pub(crate) net_slow: u64,
    /// An operation of the provider fails, before or after it is done.
    pub(crate) provider_fails: u64,
    /// One hangs for minutes.
    pub(crate) provider_hangs: u64,
    /// Something with the remote fails, is slow, or is not answered.
    pub(crate) remote_fails: u64,
    /// An agent meets the usage limit of its account.
    pub(crate) usage_limits: u64,
    /// Somebody does something, or falls, at a moment when it matters most.
    pub(crate) haste: u64,
    /// How far apart strikes are, on average, in milliseconds.
    pub(crate) crash_every_ms: u64,
    /// What strikes.
    pub(crate) strikes: Strikes,
    /// How long there is trouble.
    pub(crate) trouble_ms: u64,
    /// How many tasks people make.
    pub(crate) tasks: u64,
    /// How many attempts each runner has at a time.
    pub(crate) slots: u32,
    /// By how much the machines' clocks are too slow at most, in millionths.
    pub(crate) drift_ppm: u64,
    /// Somebody removes a task that has just come to rest, or any other.
    pub(crate) removes: u64,
    /// A task asks for its sandbox to be kept.
    pub(crate) keeps: u64,
}

impl Knobs {
    /// What came later is drawn from `late`: worlds without it are what they were before.
    pub(crate) fn draw(rng: &mut Rng, late: &mut Rng) -> Self {
        let mut often = |choices: &[u64]| rng.pick(choices).copied().unwrap_or(0);
        let (store_fails, store_loses) = (often(&[0, 0, 2, 20]), often(&[0, 0, 2, 20]));
        let (store_slow, net_loses) = (often(&[0, 20, 100, 300]), often(&[0, 10, 50, 150]));
        let (net_doubles, provider_fails) = (often(&[0, 20, 100]), often(&[0, 10, 80]));
        let (provider_hangs, remote_fails) = (often(&[0, 0, 0, 4]), often(&[0, 50, 250]));
        let usage_limits = often(&[0, 0, 0, 150]);
        let (net_slow, haste) = (often(&[0, 0, 20, 60]), often(&[0, 200, 400]));
        let crash_every_ms = often(&[10_000, 40_000, 120_000, 600_000]);
        let (nodes, runners) = (often(&[1, 1, 1, 2, 3]), often(&[1, 1, 2, 3]));
        let mut strikes = Strikes::draw(rng);
        let embedded = rng.permille(350);
        if embedded {
            // The embedded store does not believe a clock that jumps.
            strikes.clock_jumps = 0;
        }
        Self {
            embedded,
            nodes: if embedded { 1 } else { nodes },
            runners,
            sticky: rng.permille(500),
            store_fails,
            store_loses,
            store_slow,
            net_loses,
            net_doubles,
            net_slow,
            provider_fails,
            provider_hangs,
            remote_fails,
            usage_limits,
            haste,
            crash_every_ms,
            strikes,
            trouble_ms: rng.between(60_000, 900_000),
            tasks: rng.between(2, 9),
            slots: u32::try_from(rng.between(1, 4)).unwrap_or(1),
            drift_ppm: rng.below(1_500),
            removes: late.pick(&[0, 0, 100, 350]).copied().unwrap_or(0),
            keeps: late.pick(&[0, 0, 600]).copied().unwrap_or(0),
        }
    }
}

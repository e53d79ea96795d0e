//! The runner: joins, claims, hears its duties, beats, and has a driver for each attempt.
//!
//! ```text
//!          ┌─ claim ──────► drivers, one for each attempt ──► provider, workspace
//!  port ◄──┼─ duties ─────►    ▲ orders        │ places
//!          └─ beat ◄── board ◄─┼───────────────┘
//! ```
//!
//! One loop owns the drivers; everything else is a task that ends with an [`Event`] for it.
//! Whatever is dropped or forgotten here is told again by control, and found again on disk.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;

use belay_api::Chance;
use belay_api::port::{Assignment, ClaimRequest, Duty, Hello, Port, PortError, Who};
use belay_kernel::Span;
use belay_sandbox::Provider;
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::beat::beat;
use crate::board::Board;
use crate::config::RunnerConfig;
use crate::driver::{self, Order};
use crate::shared::{Backoff, Shared, duration, sleep};
use crate::workspace::Workspace;

/// How long one question for duties waits.
const DUTIES: Span = Span::from_secs(20);
/// How soon duties are asked for again when nothing new was told.
const DUTIES_PAUSE: Span = Span::from_millis(200);
/// How often is claimed without a hint.
const CLAIM: Span = Span::from_secs(5);
/// How many orders wait for a driver.
const ORDERS: usize = 16;

/// The machine's side: generic over control, providers and workspace, and without globals.
pub struct Runner<C, P, W> {
    shared: Arc<Shared<C, P, W>>,
}

/// What a driver does for its attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Attempt,
    Settling,
}

/// What happened.
enum Event {
    Joined(Vec<Assignment>),
    Duties(Result<Vec<Duty>, PortError>),
    Claimed(Result<Vec<Assignment>, PortError>),
    /// Control does not know this runner any more.
    Forgotten,
    Drove,
}

/// What a task is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Errand {
    Join,
    Hear,
    Claim,
    Beat,
    Drive(Who, Part),
}

impl<C: Port, P: Provider, W: Workspace> Runner<C, P, W> {
    /// A runner that speaks to control through `port`, with these providers by name.
    pub fn new(
        config: RunnerConfig,
        port: C,
        providers: BTreeMap<String, P>,
        workspace: W,
        chance: Arc<dyn Chance>,
    ) -> Self {
        let board = Arc::new(Board::default());
        Self { shared: Arc::new(Shared { port, providers, workspace, chance, config, board }) }
    }

    /// Runs until `stop`. Then it just leaves: agents live on in their shims, and the next runner
    /// with the same id and directory finds them again.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut desk = Desk {
            shared: self.shared,
            tasks: JoinSet::new(),
            errands: HashMap::new(),
            drivers: BTreeMap::new(),
            to_claim: VecDeque::new(),
        };
        desk.join();
        tokio::select! {
            biased;
            () = stop => {}
            () = desk.work() => {}
        }
        desk.tasks.shutdown().await;
    }
}

/// What the loop owns.
struct Desk<C, P, W> {
    shared: Arc<Shared<C, P, W>>,
    tasks: JoinSet<Event>,
    /// What each task is for; only ever looked up.
    errands: HashMap<task::Id, Errand>,
    drivers: BTreeMap<(Who, Part), mpsc::Sender<Order>>,
    /// Roles that are to be claimed for.
    to_claim: VecDeque<String>,
}

impl<C: Port, P: Provider, W: Workspace> Desk<C, P, W> {
    async fn work(&mut self) {
        let mut claim = tokio::time::interval(duration(CLAIM));
        claim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(done) = self.tasks.join_next_with_id() => {
                    let (id, event) = match done {
                        Ok((id, event)) => (id, Some(event)),
                        Err(error) => (error.id(), None),
                    };
                    if let Some(errand) = self.errands.remove(&id) {
                        self.handle(errand, event);
                    }
                }
                _ = claim.tick() => self.claim_all(),
            }
        }
    }

    /// Deals with a task that is over; without an event it fell, and is begun again.
    fn handle(&mut self, errand: Errand, event: Option<Event>) {
        if event.is_none() {
            tracing::error!(?errand, "a task fell");
        }
        if let Errand::Drive(who, part) = errand {
            self.drivers.remove(&(who, part));
            self.claim_all();
        }
        match event {
            Some(Event::Joined(assignments)) => {
                for assignment in assignments {
                    self.start(assignment);
                }
                self.hear(Span::ZERO);
                self.beat();
                self.claim_all();
            }
            Some(Event::Duties(Ok(duties))) => {
                let new = duties.into_iter().filter_map(|duty| self.obey(duty).then_some(()));
                let is_new = new.count() > 0;
                self.hear(if is_new { Span::ZERO } else { DUTIES_PAUSE });
            }
            Some(Event::Duties(Err(error))) => {
                tracing::warn!(%error, "duties could not be heard");
                self.hear(self.shared.config.limits.renewal_retry);
            }
            Some(Event::Claimed(Ok(assignments))) => {
                for assignment in assignments {
                    self.start(assignment);
                }
                self.claim_next();
            }
            Some(Event::Claimed(Err(error))) => {
                // The next round of claims comes by itself.
                self.to_claim.clear();
                tracing::warn!(%error, "a claim failed");
            }
            Some(Event::Forgotten) => self.join(),
            Some(Event::Drove) => {}
            None => match errand {
                Errand::Join => self.join(),
                Errand::Hear => self.hear(self.shared.config.limits.renewal_retry),
                Errand::Beat => self.beat(),
                // Claims come round again; control tells of an attempt without a driver.
                Errand::Claim | Errand::Drive(..) => {}
            },
        }
    }

    fn spawn(&mut self, errand: Errand, task: impl Future<Output = Event> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.errands.insert(id, errand);
    }

    fn is_out(&self, errand: Errand) -> bool {
        self.errands.values().any(|out| *out == errand)
    }

    fn join(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Join, async move {
            let config = &shared.config;
            let hello = Hello {
                runner: config.runner,
                name: config.name.clone(),
                slots: config.slots,
                roles: config.roles.clone(),
                providers: shared.providers.keys().cloned().collect(),
                version: config.version.clone(),
            };
            let mut backoff = Backoff::new(Span::from_secs(1), Span::from_secs(30));
            loop {
                match shared.port.join(hello.clone()).await {
                    Ok(assignments) => return Event::Joined(assignments),
                    Err(error) => tracing::warn!(%error, "control cannot be joined"),
                }
                backoff.wait().await;
            }
        });
    }

    fn hear(&mut self, after: Span) {
        if self.is_out(Errand::Hear) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Hear, async move {
            sleep(after).await;
            Event::Duties(shared.port.duties(shared.config.runner, DUTIES).await)
        });
    }

    fn beat(&mut self) {
        if self.is_out(Errand::Beat) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Beat, async move {
            beat(shared).await;
            Event::Forgotten
        });
    }

    /// Begins a round of claims for every role.
    fn claim_all(&mut self) {
        for role in self.shared.config.roles.clone() {
            self.claim(role);
        }
    }

    fn claim(&mut self, role: String) {
        if !self.to_claim.contains(&role) {
            self.to_claim.push_back(role);
        }
        self.claim_next();
    }

    /// Claims for the next role, if a slot is free. One claim at a time: the next one must know
    /// what the last one brought.
    fn claim_next(&mut self) {
        // Nothing is claimed before it is known what this runner has already.
        if self.is_out(Errand::Claim) || self.is_out(Errand::Join) {
            return;
        }
        let used = self.drivers.keys().filter(|(_, part)| *part == Part::Attempt).count();
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        let slots = self.shared.config.slots.saturating_sub(used);
        if slots == 0 {
            self.to_claim.clear();
            return;
        }
        let Some(role) = self.to_claim.pop_front() else { return };
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Claim, async move {
            let ask = ClaimRequest { runner: shared.config.runner, role, slots };
            Event::Claimed(shared.port.claim(ask).await)
        });
    }

    /// Does what control wants, or passes it on; says whether it was anything new.
    fn obey(&mut self, duty: Duty) -> bool {
        match duty {
            Duty::Run(assignment) => self.start(*assignment),
            Duty::End(assignment) => {
                let key = (assignment.who, Part::Attempt);
                match self.drivers.get(&key) {
                    // One that terminates already does not listen any more.
                    Some(orders) => {
                        let is_acting = self.shared.board.has(assignment.who);
                        orders.try_send(Order::End(assignment)).is_ok() && is_acting
                    }
                    None => self.start(*assignment),
                }
            }
            Duty::Settle(assignment) => self.settle(*assignment),
            Duty::Answer { who, question, text } => {
                let orders = self.drivers.get(&(who, Part::Attempt));
                let order = Order::Answer { question, text };
                orders.is_some_and(|orders| orders.try_send(order).is_ok())
            }
            Duty::Claim { role } => {
                if self.shared.config.roles.contains(&role) {
                    self.claim(role);
                }
                false
            }
        }
    }

    /// Starts a driver for an attempt that has none.
    fn start(&mut self, assignment: Assignment) -> bool {
        let key = (assignment.who, Part::Attempt);
        if self.drivers.contains_key(&key) {
            return false;
        }
        let (orders, told) = mpsc::channel(ORDERS);
        self.drivers.insert(key, orders);
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Drive(key.0, key.1), async move {
            driver::drive(shared, assignment, told).await;
            Event::Drove
        });
        true
    }

    /// Settles a push that nobody settles: whoever acts for the attempt does so itself.
    fn settle(&mut self, assignment: Assignment) -> bool {
        let key = (assignment.who, Part::Settling);
        if self.drivers.contains_key(&key) || self.shared.board.has(assignment.who) {
            return false;
        }
        let (orders, _) = mpsc::channel(1);
        self.drivers.insert(key, orders);
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Drive(key.0, key.1), async move {
            driver::settle(shared, assignment).await;
            Event::Drove
        });
        true
    }
}

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
use belay_kernel::{SessionId, Span};
use belay_sandbox::{Moment, Provider};
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use crate::beat::beat;
use crate::board::Board;
use crate::config::RunnerConfig;
use crate::driver::{self, Order};
use crate::shared::{Backoff, Moments, Shared, duration};
use crate::sweep::{forget, sweep};
use crate::workspace::Workspace;

/// How long one question for duties waits.
const DUTIES: Span = Span::from_secs(20);
/// How far apart two questions for duties begin at least, so that a control that answers at once is
/// not asked without a pause. A stop may wait for it, so it is short.
const DUTIES_APART: Span = Span::from_millis(5);
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
    Duties {
        duties: Result<Vec<Duty>, PortError>,
        began: Instant,
    },
    Claimed {
        claimed: Result<Vec<Assignment>, PortError>,
        /// Each provider's clock, read before the claim was sent: the leases of what it brought
        /// are counted from there.
        asked: Moments,
    },
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
    Sweep,
    Forget(SessionId),
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

/// A driver: how it is told something, and whose worker it is.
struct Driver {
    orders: mpsc::Sender<Order>,
    role: String,
}

/// What the loop owns.
struct Desk<C, P, W> {
    shared: Arc<Shared<C, P, W>>,
    tasks: JoinSet<Event>,
    /// What each task is for; only ever looked up.
    errands: HashMap<task::Id, Errand>,
    drivers: BTreeMap<(Who, Part), Driver>,
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
                self.hear(Instant::now());
                self.beat();
                self.sweep();
                self.claim_all();
            }
            Some(Event::Duties { duties: Ok(duties), began }) => {
                for duty in duties {
                    self.obey(duty);
                }
                self.hear(began + duration(DUTIES_APART));
            }
            Some(Event::Duties { duties: Err(error), .. }) => {
                tracing::warn!(%error, "duties could not be heard");
                self.hear_later();
            }
            Some(Event::Claimed { claimed: Ok(assignments), asked }) => {
                for assignment in assignments {
                    let moment = asked.get(&assignment.work.provider);
                    let until = moment.map(|moment| moment.after(assignment.lease));
                    self.start_until(assignment, until);
                }
                self.claim_next();
            }
            Some(Event::Claimed { claimed: Err(error), .. }) => {
                // The next round of claims comes by itself.
                self.to_claim.clear();
                tracing::warn!(%error, "a claim failed");
            }
            Some(Event::Forgotten) => self.join(),
            Some(Event::Drove) => {}
            None => match errand {
                Errand::Join => self.join(),
                Errand::Hear => self.hear_later(),
                Errand::Beat => self.beat(),
                Errand::Sweep => self.sweep(),
                // Claims come round again; control tells of an attempt without a driver.
                Errand::Claim | Errand::Forget(_) | Errand::Drive(..) => {}
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
                slots: config.workers.values().fold(0, |sum, count| sum.saturating_add(*count)),
                roles: config.workers.keys().cloned().collect(),
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

    fn hear_later(&mut self) {
        self.hear(Instant::now() + duration(self.shared.config.limits.renewal_retry));
    }

    fn hear(&mut self, at: Instant) {
        if self.is_out(Errand::Hear) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Hear, async move {
            sleep_until(at).await;
            let began = Instant::now();
            let duties = shared.port.duties(shared.config.runner, DUTIES).await;
            Event::Duties { duties, began }
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

    fn sweep(&mut self) {
        if self.is_out(Errand::Sweep) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Sweep, async move {
            sweep(shared).await;
            Event::Drove
        });
    }

    /// Begins a round of claims for every role.
    fn claim_all(&mut self) {
        let roles: Vec<String> = self.shared.config.workers.keys().cloned().collect();
        for role in roles {
            self.claim(role);
        }
    }

    fn claim(&mut self, role: String) {
        if !self.to_claim.contains(&role) {
            self.to_claim.push_back(role);
        }
        self.claim_next();
    }

    /// Claims for the next role that has a free worker. One claim at a time: the next one must know
    /// what the last one brought.
    fn claim_next(&mut self) {
        // Nothing is claimed before it is known what this runner has already.
        if self.is_out(Errand::Claim) || self.is_out(Errand::Join) {
            return;
        }
        let next = loop {
            let Some(role) = self.to_claim.pop_front() else { return };
            match self.free(&role) {
                0 => {}
                slots => break (role, slots),
            }
        };
        let (role, slots) = next;
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Claim, async move {
            let ask = ClaimRequest { runner: shared.config.runner, role, slots };
            let asked = shared.moments();
            Event::Claimed { claimed: shared.port.claim(ask).await, asked }
        });
    }

    /// How many workers of a role have nothing to do.
    fn free(&self, role: &str) -> u32 {
        let drivers = self.drivers.iter();
        let busy =
            drivers.filter(|((_, part), driver)| *part == Part::Attempt && driver.role == role);
        let busy = u32::try_from(busy.count()).unwrap_or(u32::MAX);
        self.shared.config.workers.get(role).map_or(0, |count| count.saturating_sub(busy))
    }

    /// Does what control wants, or passes it on. What finds no room is told again.
    fn obey(&mut self, duty: Duty) {
        match duty {
            Duty::Run(assignment) => self.start(*assignment),
            Duty::End(assignment) => {
                let key = (assignment.who, Part::Attempt);
                match self.drivers.get(&key) {
                    Some(driver) => drop(driver.orders.try_send(Order::End(assignment))),
                    None => {
                        let role = assignment.role.clone();
                        self.drive(key, role, |shared, _| driver::end(shared, *assignment));
                    }
                }
            }
            // Whoever acts for the attempt settles its push itself.
            Duty::Settle(assignment) if self.shared.board.has(assignment.who) => {}
            Duty::Settle(assignment) => {
                let (key, role) = ((assignment.who, Part::Settling), assignment.role.clone());
                self.drive(key, role, |shared, _| driver::settle(shared, *assignment));
            }
            Duty::Answer { who, question, text } => {
                if let Some(driver) = self.drivers.get(&(who, Part::Attempt)) {
                    drop(driver.orders.try_send(Order::Answer { question, text }));
                }
            }
            Duty::Forget { session } => self.forget(session),
            Duty::Claim { role } => {
                if self.shared.config.workers.contains_key(&role) {
                    self.claim(role);
                }
            }
        }
    }

    /// Removes what is left of a session here, and says so. What fails is told again.
    fn forget(&mut self, session: SessionId) {
        if self.is_out(Errand::Forget(session)) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.spawn(Errand::Forget(session), async move {
            if let Err(why) = forget(&shared, session).await {
                tracing::warn!(%session, why, "a session is not forgotten yet");
            }
            Event::Drove
        });
    }

    fn start(&mut self, assignment: Assignment) {
        self.start_until(assignment, None);
    }

    /// Starts a driver for an attempt whose lease lasts until then, if that is known.
    fn start_until(&mut self, assignment: Assignment, until: Option<Moment>) {
        let (key, role) = ((assignment.who, Part::Attempt), assignment.role.clone());
        self.drive(key, role, |shared, orders| driver::drive(shared, assignment, orders, until));
    }

    /// Starts a driver, unless there is one.
    fn drive<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        key: (Who, Part),
        role: String,
        driver: impl FnOnce(Arc<Shared<C, P, W>>, mpsc::Receiver<Order>) -> F,
    ) {
        if self.drivers.contains_key(&key) {
            return;
        }
        let (orders, told) = mpsc::channel(ORDERS);
        self.drivers.insert(key, Driver { orders, role });
        let driving = driver(Arc::clone(&self.shared), told);
        self.spawn(Errand::Drive(key.0, key.1), async move {
            driving.await;
            Event::Drove
        });
    }
}

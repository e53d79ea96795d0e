//! `why`: a task's state, the rule that put it there, what it waits for, and what comes next, from
//! what is stored.

use belay_api::{Problem, WhyView};
use belay_kernel::claim::Blocker;
use belay_kernel::deadline;
use belay_kernel::graph::DependencyState;
use belay_kernel::receipt::{Pending, Standing};
use belay_kernel::task::State;
use belay_kernel::verdict;
use belay_kernel::why::{Facts, LivePath, WaitsFor, Why, explain};
use belay_kernel::{Reading, RunnerId, Span, TaskId, Timestamp};
use belay_store::rows::RunnerRow;
use belay_store::{MAX_BATCH, Query, Store};

use crate::Control;
use crate::claim::Read;
use crate::look::{Look, Others};
use crate::refuse::Outcome;

/// How long an end may take to be announced before its absence is a fault.
const ANNOUNCED: Span = Span::from_secs(60);

/// A runner that works for a task's role.
struct Serving {
    row: RunnerRow,
    is_there: bool,
}

impl<S: Store> Control<S> {
    /// Explains a task.
    pub async fn why(&self, id: TaskId) -> Result<WhyView, Problem> {
        Ok(self.why_view(id).await?)
    }

    async fn why_view(&self, id: TaskId) -> Outcome<WhyView> {
        let look = self.look(id).await?;
        let subtasks = self.subtasks(id).await?;
        let serving = self.serving(&look).await?;
        let why = self.explain(&look, &subtasks, awaited(&look, &serving));
        let blockers = why.waits_for.iter().filter_map(|waits| match waits {
            WaitsFor::Blocker(blocker) => Some(*blocker),
            _ => None,
        });
        let blockers: Vec<_> = blockers.collect();
        let clocks = self.clocks(&look);
        let verdict = self.verdict(&look);
        let mut sentences = sentences(&look, &why, &serving, &clocks, verdict.as_deref());
        if let Standing::Stopping(pending) = self.standing(&look).await? {
            for one in pending {
                sentences.insert(
                    1,
                    match one {
                        Pending::Proof { .. } => {
                            "The stop waits for the proof that its processes are gone.".to_owned()
                        }
                        Pending::Publish => {
                            "The stop waits for what became of its push.".to_owned()
                        }
                    },
                );
            }
        }
        let may_be_taken = |waits: &WaitsFor| {
            matches!(waits, WaitsFor::Worker | WaitsFor::Blocker(Blocker::TreeElsewhere(_)))
        };
        if why.waits_for.iter().any(may_be_taken)
            && let Some(sentence) = unserved(&look, &serving)
        {
            sentences.insert(1, sentence);
        }
        for other in self.dependencies(id).await?.rows {
            let (other, state) = (other.row.task.id, other.row.task.state);
            if DependencyState::of(&state) == DependencyState::Waiting {
                let name = state.name();
                sentences.insert(1, format!("Waits for task {other} to complete; it is {name}."));
            }
        }
        Ok(WhyView { task: id, why, sentences, blockers, verdict, clocks })
    }

    /// The runners that work for the role of a queued task, with whether they are there.
    async fn serving(&self, look: &Look) -> Outcome<Vec<Serving>> {
        if !matches!(look.task.row.task.state, State::Queued { .. }) {
            return Ok(Vec::new());
        }
        let role = look.task.row.role.as_str();
        let present = self.present_runners(look).await?;
        let runners = self.all(Query::<RunnerRow>::first(MAX_BATCH)).await?;
        let serves = |row: &RunnerRow| row.roles.0.iter().any(|served| served == role);
        let serving = runners.into_iter().map(|stored| stored.row).filter(serves);
        Ok(serving.map(|row| Serving { is_there: present.contains(&row.id), row }).collect())
    }

    /// The structure behind `why`.
    pub(crate) fn explain(&self, look: &Look, subtasks: &Others, awaited: Option<RunnerId>) -> Why {
        let attempt = look.attempt.as_ref();
        let facts = Facts {
            attempt: attempt.map(|row| &row.row.attempt),
            stream: look.stream(),
            claim: read(look).facts(look.standing(), awaited, &look.policy.limits),
            children: subtasks.children(),
            fired: attempt.and_then(|row| row.row.fired.as_ref().map(|fired| fired.0)),
        };
        let switches = &self.settings().switches;
        let task = &look.task.row.task;
        let mut why = explain(task, &facts, look.now, &look.policy.limits, switches);
        // What a subtask's end does to its parent is performed after its commit: until then the
        // parent waits for that, which no row of its own shows.
        let rested = subtasks.rows.iter().map(|row| row.row.task.since).max();
        if why.path == LivePath::None && rested.is_some_and(|at| look.now.since(at) < ANNOUNCED) {
            why.path = LivePath::Named;
        }
        why
    }

    /// The clocks that run against the acting attempt.
    fn clocks(&self, look: &Look) -> Vec<Reading> {
        let Some(attempt) = look.attempt.as_ref().filter(|row| row.row.attempt.may_act()) else {
            return Vec::new();
        };
        let (limits, switches) = (&look.policy.limits, &self.settings().switches);
        let running = deadline::clocks(&attempt.row.attempt, &look.stream(), limits, switches);
        let mut clocks: Vec<_> = running
            .map(|clock| Reading::since(clock.clock, clock.from, look.now, clock.allowed))
            .collect();
        let evidence = look.sandbox.as_ref().and_then(|row| row.row.evidence.as_ref());
        if let Some(evidence) = evidence {
            let judged = verdict::clocks(&evidence.0, limits, look.now);
            clocks.extend_from_slice(judged.as_slice());
        }
        clocks
    }

    fn verdict(&self, look: &Look) -> Option<String> {
        look.attempt.as_ref().filter(|row| row.row.attempt.may_act())?;
        let evidence = look.sandbox.as_ref()?.row.evidence.as_ref()?;
        let verdict = verdict::judge(&evidence.0, &look.policy.limits, look.now);
        let rule = verdict.ruling.rule();
        Some(format!("{:?} (rule {rule})", verdict.ruling).to_lowercase())
    }
}

/// What a claim would read.
fn read(look: &Look) -> Read<'_> {
    let task = &look.task.row;
    let own = look.session.as_ref().filter(|row| task.session == Some(row.row.id));
    Read {
        task,
        kept: own.map(|stored| &stored.row).filter(|_| task.task.state.goes_on()),
        role: look.role.as_ref().map(|stored| &stored.row),
        account: look.account.as_ref().map(|stored| &stored.row),
    }
}

/// The runner that the task waits for because it holds its tree, unless it is the only one there.
fn awaited(look: &Look, serving: &[Serving]) -> Option<RunnerId> {
    let mut there = serving.iter().filter(|runner| runner.is_there).map(|runner| runner.row.id);
    let holder = read(look).holder()?;
    (there.next() != Some(holder) || there.next().is_some()).then_some(holder)
}

/// Why nobody takes a task that can be taken, if nobody is there who could.
fn unserved(look: &Look, serving: &[Serving]) -> Option<String> {
    let role = look.task.row.role.as_str();
    let Some(first) = serving.first() else {
        return Some(format!(
            "No runner works for the role `{role}`: give it workers in [roles.{role}], and start \
             the server again."
        ));
    };
    let name = &*first.row.name;
    serving.iter().all(|runner| !runner.is_there).then(|| {
        format!("No runner that works for the role `{role}` is there: start `{name}` again.")
    })
}

/// The same in sentences: state, rule, what it waits for, what comes next.
fn sentences(
    look: &Look,
    why: &Why,
    serving: &[Serving],
    clocks: &[Reading],
    verdict: Option<&str>,
) -> Vec<String> {
    let now = look.now;
    let mut lines = vec![format!(
        "{} since {} ({} ago): {why}",
        why.state.name(),
        clock_time(why.since),
        now.since(why.since)
    )];
    let last = look.attempt.as_ref().map(|row| &row.row);
    if let Some(message) = last.and_then(|row| row.message.as_deref()) {
        lines.push(format!("It was said: {message}"));
    }
    let named = |waits: &&WaitsFor| {
        // The tasks themselves are named instead.
        !matches!(waits, WaitsFor::Blocker(Blocker::Dependencies(_)))
    };
    for waits in why.waits_for.iter().filter(named) {
        lines.push(format!("Waits for {}.", waited(*waits, serving)));
    }
    if let Some(verdict) = verdict {
        lines.push(format!("The evidence says: {verdict}."));
    }
    for reading in clocks {
        lines.push(format!("Clock {reading}."));
    }
    if let Some(next) = why.next.first() {
        let left = next.at.since(now);
        lines.push(format!("Next, if nothing happens: {} in {left}.", next.clock.name()));
    }
    if let Some(kept) = last.and_then(|row| row.kept_ref.as_deref()) {
        lines.push(format!("The work of its last attempt is kept at {kept}."));
    }
    if why.path == LivePath::None {
        lines.push("Nothing will move it on: this is a fault of Belay's; please report it.".into());
    }
    if !why.verbs.is_empty() {
        let verbs: Vec<_> = why.verbs.iter().map(|verb| verb.name()).collect();
        lines.push(format!("You can: {}.", verbs.join(", ")));
    }
    lines
}

fn waited(waits: WaitsFor, serving: &[Serving]) -> String {
    match waits {
        WaitsFor::Person => "a person".into(),
        WaitsFor::Answer(question) => format!("an answer to question {question}"),
        WaitsFor::Review(attempt) => format!("a review of attempt {attempt}"),
        WaitsFor::Worker => "a free worker of its role".into(),
        WaitsFor::Subtasks(count) => format!("{count} subtasks"),
        WaitsFor::Agent(attempt) => format!("the agent of attempt {attempt}"),
        WaitsFor::Publish(attempt) => format!("the push of attempt {attempt}"),
        WaitsFor::Task(task) => format!("task {task} to be queued again"),
        WaitsFor::Blocker(blocker) => match blocker {
            Blocker::NotBefore(at) => format!("its time, {}", clock_time(at)),
            Blocker::Dependencies(count) => format!("other tasks to complete: {count}"),
            Blocker::SessionBusy(attempt) => {
                format!("attempt {attempt} of its session to be proven over")
            }
            Blocker::RoleStopped => "its role, which a person stopped".into(),
            Blocker::BudgetUsedUp => "nothing: its budget is used up".into(),
            Blocker::AccountProbed(task) => {
                format!("task {task}, which tries the account first after its usage limit")
            }
            Blocker::TreeElsewhere(holder) => {
                let known = serving.iter().find(|runner| runner.row.id == holder.runner);
                let id = holder.runner.to_string();
                let name = known.map_or(id.as_str(), |runner| &*runner.row.name);
                let until = clock_time(holder.until);
                format!(
                    "the runner `{name}`, which holds its tree; from {until} on any other takes it"
                )
            }
        },
    }
}

/// `HH:MM:SS` of a moment, in UTC.
fn clock_time(at: Timestamp) -> String {
    let seconds = at.as_millis().div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

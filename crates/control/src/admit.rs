//! Admission: what a new task must be, checked before anything of it exists.

use std::collections::{BTreeMap, BTreeSet};

use belay_agent::{Agent, Counts};
use belay_api::port::Who;
use belay_api::{Ask, Code, Dirty, NewTask, Problem, Publishing, TaskView};
use belay_kernel::budget::{Budget, Countable, Keeping, Ledger, Uncounted};
use belay_kernel::fence::Intent;
use belay_kernel::graph::{self, DependencyState, SubtaskDenial};
use belay_kernel::planted::{self, Bug};
use belay_kernel::retry::Effort;
use belay_kernel::role::RoleName;
use belay_kernel::task::{Plan, Reason, State, Task};
use belay_kernel::{AttemptNumber, Money, SessionId, TaskId, Timestamp};
use belay_store::rows::{self, DependencyRow, LedgerRow, SessionRow, SpecRow, TaskRow};
use belay_store::{Commit, List, NewEvent, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::commit::{Draft, Put};
use crate::look::{Look, Others, TRIES};
use crate::refuse::{Outcome, Refused};
use crate::report::admitted;
use crate::trace;
use crate::verb::Asked;

/// The longest prompt, in bytes.
const MAX_PROMPT: usize = 1_000_000;
/// The most attempts that a task may be given: effort is bounded.
const MAX_ATTEMPTS: u32 = 10_000;
/// The longest title, in letters.
const MAX_TITLE: usize = 80;

/// What a task is made of, besides what it waits for.
pub(crate) struct Birth {
    pub(crate) id: TaskId,
    pub(crate) spec: SpecRow,
    pub(crate) role: RoleName,
    pub(crate) session: Option<SessionId>,
    pub(crate) plan: Plan,
    pub(crate) hold: bool,
    pub(crate) review: belay_kernel::task::Review,
    pub(crate) max_attempts: u32,
    pub(crate) priority: i64,
}

/// The task that a new one is a subtask of, and the agent that asks for it, if one does.
#[derive(Clone, Copy)]
pub(crate) struct Parent {
    pub(crate) task: TaskId,
    pub(crate) speaker: Option<Who>,
}

fn bad(detail: impl Into<String>) -> Refused {
    Refused::new(Code::BadRequest, detail)
}

impl<S: Store> Control<S> {
    /// Makes a task.
    pub async fn create(&self, ask: impl Into<Ask>, new: NewTask) -> Result<TaskView, Problem> {
        let body = serde_json::to_string(&new).unwrap_or_default();
        let asked = self.asked(ask.into(), &format!("create {body}"));
        let id = self.admit(&asked, new, None).await?;
        self.show(id).await
    }

    /// Makes a task; one that an agent asks for is fenced by the agent's attempt.
    pub(crate) async fn admit(
        &self,
        asked: &Asked,
        new: NewTask,
        speaker: Option<Who>,
    ) -> Outcome<TaskId> {
        if let Some(before) = self.replayed(asked).await? {
            return Ok(before);
        }
        if speaker.is_some() && new.repository.is_some() {
            // It would be read with the runner's rights, whatever the agent itself may see.
            let detail = "an agent's subtask works on its parent's repository; name no other";
            return Err(Refused::new(Code::Forbidden, detail));
        }
        let birth = self.conceive(asked.by(), &new)?;
        let mut environment = match new.parent {
            Some(parent) => self.inner.vault.get(parent)?,
            None => BTreeMap::new(),
        };
        environment.extend(new.environment.clone());
        self.inner.vault.put(birth.id, &environment)?;
        let parent = new.parent.map(|task| Parent { task, speaker });
        let made = self.bear(asked, &birth, parent, &new.after).await;
        if made.as_ref().ok() != Some(&birth.id) {
            self.inner.vault.forget(birth.id)?;
        }
        made
    }

    /// Checks everything that can be checked without looking at other tasks.
    fn conceive(&self, by: &str, new: &NewTask) -> Outcome<Birth> {
        let id = TaskId::from_bits(self.inner.chance.draw());
        let role = new.role.as_deref().unwrap_or("default");
        let role: RoleName = role.parse().map_err(|error| bad(format!("{error}")))?;
        let given = self.settings().role(role.as_str());
        let agent = self.agent_of(new, given.agent.as_deref())?;
        let prompt = prompt_of(new)?;
        if let Some(most) = new.max_attempts.filter(|most| !(1..=MAX_ATTEMPTS).contains(most)) {
            return Err(bad(format!("max_attempts is {most}; it takes 1 to {MAX_ATTEMPTS}")));
        }
        let branch = new.branch.clone().unwrap_or_else(|| format!("belay/{id}"));
        if let Some(name) = new.environment.keys().find(|name| !is_variable(name)) {
            return Err(bad(format!("`{name}` cannot be the name of a variable")));
        }
        let spec = SpecRow {
            task: id,
            title: title(new.title.as_deref(), &prompt).into(),
            prompt: prompt.into(),
            repository: new.repository.as_deref().map(Into::into),
            base: new.base.as_deref().map(Into::into),
            branch: Some(branch.into()),
            agent: Some(agent.name().into()),
            model: new.model.as_deref().map(Into::into),
            provider: new.provider.as_deref().map(Into::into),
            continues: None,
            limits: List(self.settings().task_limits(&new.limits).map_err(bad)?),
            environment: List(new.environment.keys().cloned().collect()),
            created_by: by.into(),
            budget: budget(new)?,
            uncounted: if new.allow_uncounted { Uncounted::Allow } else { Uncounted::Refuse },
            command: List(new.command.clone()),
            publishing: match new.publish {
                Publishing::None => rows::Publishing::None,
                Publishing::Branch => rows::Publishing::Branch,
            },
            uncommitted: match new.dirty {
                Dirty::Refuse => rows::Uncommitted::Refuse,
                Dirty::Include => rows::Uncommitted::Include,
            },
            image: new.image.as_deref().or(given.image.as_deref()).map(Into::into),
            keep_alive: new.keep_alive,
            trace: trace::current().map(|context| context.to_string().into()),
        };
        Ok(Birth {
            id,
            spec,
            role,
            session: None,
            plan: Plan::Fresh,
            hold: new.hold,
            review: new.review,
            max_attempts: new.max_attempts.unwrap_or(1),
            priority: new.priority,
        })
    }

    /// The agent that a task names, or its role, or the installation.
    fn agent_of(&self, new: &NewTask, role: Option<&str>) -> Outcome<Agent> {
        let agent = match (&new.agent, new.command.is_empty()) {
            (None, false) => Agent::Command.name(),
            (Some(agent), _) => agent.as_str(),
            (None, true) => role.unwrap_or(&self.settings().agent),
        };
        let agent: Agent = agent.parse().map_err(|error| bad(format!("{error}")))?;
        if agent == Agent::Command && new.command.is_empty() {
            return Err(bad("a plain command is named after `--`, such as `-- make test`"));
        }
        let counts = agent.facts().counts;
        let countable =
            Countable { cost: counts == Counts::TokensAndMoney, tokens: counts != Counts::Nothing };
        let uncounted = if new.allow_uncounted { Uncounted::Allow } else { Uncounted::Refuse };
        match budget(new)?.keeping(countable, uncounted) {
            Keeping::Counted | Keeping::TokensOnly | Keeping::Uncounted => Ok(agent),
            Keeping::Refused => Err(Refused::new(
                Code::Refused,
                format!(
                    "{agent} does not say what it uses, so its budget cannot be kept; leave the \
                     budget out, or allow what is not counted"
                ),
            )),
        }
    }

    /// Commits a new task with everything that its admission read.
    pub(crate) async fn bear(
        &self,
        asked: &Asked,
        birth: &Birth,
        parent: Option<Parent>,
        after: &[TaskId],
    ) -> Outcome<TaskId> {
        let after: BTreeSet<TaskId> = after.iter().copied().collect();
        for _ in 0..TRIES {
            let now = self.now().await?;
            let parent = match parent {
                Some(parent) => Some(self.adopt(parent).await?),
                None => None,
            };
            let waits = self.waits(&after).await?;
            if let Some((parent, _)) = &parent {
                self.refuse_ring(birth.id, parent.task.row.task.id, &after).await?;
            }
            let request = asked.request(birth.id, now);
            let draft = born(birth, parent.as_ref(), &waits, now);
            let draft = self.goes_on(birth, draft).await?;
            let put = self.try_put(draft.with(|commit| commit.request(request))).await?;
            if put == Put::Done || self.row::<TaskRow>(birth.id).await?.is_some() {
                return Ok(birth.id);
            }
            if let Some(before) = self.replayed(asked).await? {
                return Ok(before);
            }
        }
        Err(Refused::busy())
    }

    /// The task that a new one follows is still there. Their session is written, as it is: a
    /// removal that was decided when nobody else had it is overtaken, and decided again.
    async fn goes_on(&self, birth: &Birth, draft: Draft) -> Outcome<Draft> {
        let Some(before) = birth.spec.continues else { return Ok(draft) };
        let look = self.look(before).await?;
        let session = self.row_if::<SessionRow>(birth.session).await?;
        let draft = draft.with(|commit| commit.read(&look.task));
        Ok(match &session {
            Some(stored) => draft.with(|commit| commit.update(stored.revision, &stored.row)),
            None => draft,
        })
    }

    /// A parent that may get one more subtask, with those that it has.
    async fn adopt(&self, Parent { task: parent, speaker }: Parent) -> Outcome<(Look, Others)> {
        let look = self.look(parent).await?;
        if let Some(speaker) = speaker {
            admitted(&look, speaker, Intent::Act)?;
        }
        let subtasks = self.subtasks(parent).await?;
        let mut depth = 0;
        let mut above = look.task.row.task.parent;
        while let Some(id) = above {
            depth += 1;
            above = self.row::<TaskRow>(id).await?.and_then(|row| row.row.task.parent);
        }
        let count = u32::try_from(subtasks.rows.len()).unwrap_or(u32::MAX);
        let caps = &self.settings().caps;
        let allowed = graph::may_add_subtask(&look.task.row.task.state, depth, count, caps);
        if look.standing().is_used_up() {
            return Err(Refused::new(Code::Refused, "the parent's budget is used up"));
        }
        match allowed {
            Ok(()) => Ok((look, subtasks)),
            Err(SubtaskDenial::ParentDone(state)) => Err(Refused::new(
                Code::IllegalMove,
                format!("task {parent} is {} and takes no more subtasks", state.name()),
            )),
            Err(SubtaskDenial::TooDeep { depth, allowed }) => Err(Refused::new(
                Code::Refused,
                format!("the subtask would be {depth} levels deep; at most {allowed} are allowed"),
            )),
            Err(SubtaskDenial::TooMany { count, allowed }) => Err(Refused::new(
                Code::Refused,
                format!("task {parent} has {count} subtasks; at most {allowed} are allowed"),
            )),
        }
    }

    /// The tasks that a new one is to wait for.
    async fn waits(&self, after: &BTreeSet<TaskId>) -> Outcome<Others> {
        let ids: Vec<_> = after.iter().copied().collect();
        let found = self.store().load::<TaskRow>(&ids).await?;
        let mut rows = Vec::new();
        for (id, row) in ids.iter().zip(found) {
            let Some(row) = row else {
                return Err(Refused::new(Code::NotFound, format!("there is no task {id}")));
            };
            rows.push(row);
        }
        let others = Others { rows };
        match others.failed() {
            None => Ok(others),
            Some(by) => Err(Refused::new(
                Code::Refused,
                format!("task {by} did not complete; retry it first, or do not wait for it"),
            )),
        }
    }

    /// A subtask that waits for something that waits for its own parent would wait for ever.
    async fn refuse_ring(
        &self,
        task: TaskId,
        parent: TaskId,
        after: &BTreeSet<TaskId>,
    ) -> Outcome<()> {
        let mut edges: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        let mut open: Vec<TaskId> = after.iter().copied().collect();
        while let Some(id) = open.pop() {
            if edges.contains_key(&id) {
                continue;
            }
            let (below, before) = (self.subtasks(id).await?, self.dependencies(id).await?);
            let both = below.rows.iter().chain(&before.rows);
            let mut next: Vec<_> = both.map(|row| row.row.task.id).collect();
            if id == parent {
                next.push(task);
            }
            open.extend(next.iter().copied().filter(|id| *id != task));
            edges.insert(id, next);
        }
        let waits_for = |id: TaskId| edges.get(&id).cloned().unwrap_or_default();
        match graph::find_cycle(task, after.iter().copied(), waits_for) {
            None => Ok(()),
            Some(cycle) => {
                let names: Vec<_> = cycle.0.iter().map(ToString::to_string).collect();
                let detail = format!("the task would wait for itself: {}", names.join(" → "));
                Err(Refused::Problem(Problem::new(Code::Refused, detail).choices(cycle.0)))
            }
        }
    }
}

/// The commit of a new task.
fn born(birth: &Birth, parent: Option<&(Look, Others)>, waits: &Others, now: Timestamp) -> Draft {
    let met =
        |row: &&Stored<TaskRow>| DependencyState::of(&row.row.task.state) == DependencyState::Met;
    let unfinished = waits.rows.len() - waits.rows.iter().filter(met).count();
    let state = match birth.hold {
        true => State::Pending { plan: birth.plan },
        false => State::Queued { plan: birth.plan, not_before: None },
    };
    let task = Task {
        id: birth.id,
        parent: parent.map(|(look, _)| look.task.row.task.id),
        review: birth.review,
        max_attempts: birth.max_attempts,
        state,
        reason: Reason::Created,
        since: now,
        attempts: AttemptNumber(0),
        effort: Effort::default(),
    };
    let agent = birth.spec.agent.as_deref().unwrap_or_default();
    let row = TaskRow {
        task,
        root: parent.map_or(birth.id, |(look, _)| look.task.row.root),
        role: birth.role.clone(),
        session: birth.session,
        workflow: parent.and_then(|(look, _)| look.task.row.workflow),
        account: (agent != Agent::Command.name()).then(|| agent.into()),
        priority: birth.priority,
        unfinished: u32::try_from(unfinished).unwrap_or(u32::MAX),
        disregarded: false,
        created_at: now,
        due_at: None,
    };
    let spec = match parent {
        Some((look, _)) => subtask_spec(birth, look),
        None => birth.spec.clone(),
    };
    // What it waits for cannot be removed meanwhile: it would wait for ever.
    let mut commit = waits.touch(Commit::new().insert(&row).insert(&spec));
    match parent {
        Some((look, subtasks)) => {
            // The parent's row is written, as it is: a success that was decided when it had one
            // subtask less is overtaken, and decided again.
            commit = match planted::is(Bug::SubtaskUnseen) {
                true => subtasks.read(commit.read(&look.task)),
                false => subtasks.read(commit.update(look.task.revision, &look.task.row)),
            };
            if let Some(attempt) = &look.attempt {
                commit = commit.read(attempt);
            }
        }
        None => {
            let ledger = LedgerRow { root: birth.id, ledger: Ledger::default() };
            commit = commit.insert(&ledger);
        }
    }
    for waited in &waits.rows {
        let edge = DependencyRow { task: birth.id, depends_on: waited.row.task.id };
        commit = commit.insert(&edge);
    }
    let body =
        json!({ "state": state.name(), "title": &*birth.spec.title, "role": birth.role.as_str() });
    let event = NewEvent::task(birth.id, "task.created", body.to_string(), now);
    let offer = (!birth.hold).then(|| birth.role.as_str().to_owned());
    Draft { commit: commit.event(event), offer, effects: false }
}

/// A subtask works on its parent's repository, unless it names another, and begins with its
/// parent's last commit: with what the parent's last attempt left, or, while that still runs, with
/// what is committed in its tree when the subtask begins.
fn subtask_spec(birth: &Birth, parent: &Look) -> SpecRow {
    let asked = &birth.spec;
    let repository = asked.repository.clone().or(parent.spec.repository.clone());
    let kept = parent.attempt.as_ref().and_then(|row| row.row.kept_commit);
    let kept = kept.filter(|_| repository == parent.spec.repository);
    let base = asked.base.clone().or(kept.map(|commit| commit.to_string().into()));
    let trace = parent.spec.trace.clone().or(asked.trace.clone());
    SpecRow { repository, base, trace, ..asked.clone() }
}

fn prompt_of(new: &NewTask) -> Outcome<String> {
    let prompt = match (new.prompt.trim().is_empty(), new.command.is_empty()) {
        (false, _) => new.prompt.clone(),
        (true, false) => new.command.join(" "),
        (true, true) => return Err(bad("the prompt is empty; say what is to be done")),
    };
    if prompt.len() > MAX_PROMPT {
        let detail =
            format!("the prompt is {} bytes long; at most {MAX_PROMPT} are taken", prompt.len());
        return Err(Refused::new(Code::TooLarge, detail));
    }
    Ok(prompt)
}

fn budget(new: &NewTask) -> Outcome<Budget> {
    let max_cost = match new.budget_usd {
        None => None,
        Some(usd) => Some(
            Money::from_usd(usd)
                .filter(|money| *money > Money::ZERO)
                .ok_or_else(|| bad(format!("a budget of {usd} US dollars cannot be kept")))?,
        ),
    };
    if new.max_tokens == Some(0) {
        return Err(bad("max_tokens is 0, and nothing could run; say more, or leave it out"));
    }
    Ok(Budget { max_cost, max_tokens: new.max_tokens })
}

/// What is shown in lists: the title, or the prompt's first line.
fn title(given: Option<&str>, prompt: &str) -> String {
    let text = given.unwrap_or(prompt);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("untitled");
    match line.char_indices().nth(MAX_TITLE) {
        None => line.to_owned(),
        Some((cut, _)) => format!("{}…", &line[..cut]),
    }
}

fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

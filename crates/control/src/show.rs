//! What people and programs are shown of tasks.

use belay_api::{
    AttemptView, ChildView, Code, ListTasks, Problem, QuestionView, ReceiptView, TaskPage,
    TaskSummary, TaskView,
};
use belay_kernel::attempt::Phase;
use belay_kernel::planted::{self, Bug};
use belay_kernel::receipt::{self, Pending, Receipt, TranscriptSeal};
use belay_kernel::role::RoleName;
use belay_kernel::sandbox::State as SandboxState;
use belay_kernel::task::State;
use belay_kernel::termination::Step;
use belay_kernel::{TaskId, Timestamp};
use belay_store::rows::{
    AttemptRow, DependencyRow, LedgerRow, QuestionRow, RemarkRow, SandboxRow, Speaker, SpecRow,
    TaskRow,
};
use belay_store::{After, Gather, MAX_BATCH, Name, Query, Store, Stored};

use crate::Control;
use crate::look::{Look, Others};
use crate::refuse::{Outcome, Refused};
use crate::tell::progress_view;

/// The most tasks on one page, and how many are shown if nobody says.
const MAX_PAGE: usize = 1_000;
const PAGE: usize = 100;

impl<S: Store> Control<S> {
    /// The task that an id, or the first letters of one, stands for.
    pub async fn find(&self, letters: &str) -> Result<TaskId, Problem> {
        if let Ok(id) = letters.parse::<TaskId>() {
            return match self.row::<TaskRow>(id).await.map_err(Refused::from)? {
                Some(_) => Ok(id),
                None => {
                    let detail = format!("there is no task {id}: it was removed, or never made");
                    Err(Problem::new(Code::NotFound, detail))
                }
            };
        }
        let letters = letters.trim().to_lowercase();
        let usable = !letters.is_empty() && letters.chars().all(|c| c.is_ascii_alphanumeric());
        if !usable {
            let detail = format!(
                "`{letters}` is not the id of a task, nor the start of one; the list of tasks \
                 shows their ids"
            );
            return Err(Problem::new(Code::BadRequest, detail));
        }
        let query = Query::<TaskRow>::first(20).id_begins(&letters);
        let page = self.store().list(query).await.map_err(Refused::from)?;
        let ids: Vec<_> = page.rows.iter().map(|row| row.row.task.id).collect();
        match ids.as_slice() {
            [] => {
                let detail = format!(
                    "no task's id begins with `{letters}`; the list of all tasks shows their ids"
                );
                Err(Problem::new(Code::NotFound, detail))
            }
            [id] => Ok(*id),
            several => {
                let detail = format!("`{letters}` stands for several tasks; type more letters");
                Err(Problem::new(Code::Ambiguous, detail).choices(several))
            }
        }
    }

    /// Lists tasks, newest first.
    pub async fn list(&self, which: ListTasks) -> Result<TaskPage, Problem> {
        Ok(self.page(which).await?)
    }

    async fn page(&self, which: ListTasks) -> Outcome<TaskPage> {
        let bad = |detail: String| Refused::new(Code::BadRequest, detail);
        let mut query = Query::<TaskRow>::first(which.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE));
        if !which.state.is_empty() {
            let names = which.state.split(',').map(|name| name.trim().to_uppercase());
            let names: Vec<Name> = names.map(Name::from).collect();
            query = query.state(&names);
        }
        if let Some(role) = which.role {
            query = query.role(&[role.parse::<RoleName>().map_err(|e| bad(e.to_string()))?]);
        }
        if let Some(parent) = which.parent {
            query = query.parent(&[parent]);
        }
        if let Some(letters) = &which.id {
            query = query.id_begins(&letters.to_lowercase());
        }
        if let Some(after) = which.after {
            let after: After = after.parse().map_err(belay_store::Failure::Refused)?;
            query = query.after(Some(after));
        }
        let page = self.store().list(query).await?;
        let tasks = self.summaries(&page.rows).await?;
        Ok(TaskPage { tasks, after: page.after.map(|after| after.to_string()) })
    }

    async fn summaries(&self, rows: &[Stored<TaskRow>]) -> Outcome<Vec<TaskSummary>> {
        let ids: Vec<_> = rows.iter().map(|row| row.row.task.id).collect();
        let roots: Vec<_> = rows.iter().map(|row| row.row.root).collect();
        let specs = self.store().load::<SpecRow>(&ids).await?;
        let ledgers = self.store().load::<LedgerRow>(&roots).await?;
        let both = specs.into_iter().zip(ledgers);
        let with = rows.iter().zip(both).filter_map(|(row, (spec, ledger))| {
            Some(summary(&row.row, &spec?.row, ledger.as_ref().map(|ledger| &ledger.row)))
        });
        Ok(with.collect())
    }

    /// Shows a task.
    pub async fn show(&self, id: TaskId) -> Result<TaskView, Problem> {
        Ok(self.view(id).await?)
    }

    async fn view(&self, id: TaskId) -> Outcome<TaskView> {
        let mut first = Gather::new();
        let subtasks = first.list(Query::<TaskRow>::first(MAX_BATCH).parent(&[id]))?;
        let edges = first.list(Query::<DependencyRow>::first(MAX_BATCH).task(&[id]))?;
        let attempts = first.list(Query::<AttemptRow>::first(MAX_BATCH).task(&[id]))?;
        let questions = first.list(Query::<QuestionRow>::first(MAX_BATCH).task(&[id]))?;
        let remarks = first.list(Query::<RemarkRow>::first(50).task(&[id]))?;
        let (look, found) = self.look_and(id, first).await?;
        let subtasks = Others { rows: found.rows(&subtasks)? };
        let edges = found.rows(&edges)?;
        let waits = self.others(edges.iter().map(|edge| edge.row.depends_on)).await?;
        let (attempts, questions) = (found.rows(&attempts)?, found.rows(&questions)?);
        let remarks = found.rows(&remarks)?;
        let sentence = self.explain(&look, &subtasks, None).to_string();
        let said = |row: &&Stored<RemarkRow>| row.row.speaker == Speaker::Agent;
        let (task, spec) = (&look.task.row, &look.spec);
        let text = |name: &Option<Name>| name.as_deref().map(str::to_owned);
        Ok(TaskView {
            summary: summary(task, spec, look.ledger.as_ref().map(|ledger| &ledger.row)),
            detail: task.task.state,
            failure: match task.task.state {
                State::Failed(failure) => Some(failure),
                _ => None,
            },
            sentence,
            verbs: task.task.state.verbs().to_vec(),
            prompt: spec.prompt.to_string(),
            review: task.task.review,
            session: task.session,
            repository: text(&spec.repository),
            base: text(&spec.base),
            branch: text(&spec.branch),
            command: spec.command.0.clone(),
            model: text(&spec.model),
            provider: text(&spec.provider),
            continues: spec.continues,
            max_cost: spec.budget.max_cost,
            max_tokens: spec.budget.max_tokens,
            attempt_list: attempts.iter().map(|row| attempt_view(&row.row)).collect(),
            subtasks: self.children(&subtasks).await?,
            after: self.children(&waits).await?,
            questions: questions.iter().rev().map(|row| question_view(&row.row)).collect(),
            summary_text: remarks.iter().find(said).map(|row| row.row.text.to_string()),
            progress: remarks.iter().find_map(|row| progress_view(&row.row)),
            revision: look.task.revision.0,
        })
    }

    async fn children(&self, others: &Others) -> Outcome<Vec<ChildView>> {
        let ids: Vec<_> = others.rows.iter().map(|row| row.row.task.id).collect();
        let specs = self.store().load::<SpecRow>(&ids).await?;
        let both = others.rows.iter().zip(specs);
        let views = both.map(|(row, spec)| ChildView {
            id: row.row.task.id,
            title: spec.map(|spec| spec.row.title.to_string()).unwrap_or_default(),
            state: row.row.task.state.name().to_owned(),
            disregarded: row.row.disregarded,
        });
        Ok(views.collect())
    }

    /// The receipt of a stop that is acknowledged.
    pub async fn receipt(&self, id: TaskId) -> Result<ReceiptView, Problem> {
        let look = self.look(id).await?;
        match self.standing(&look).await? {
            receipt::Standing::Stopped => Ok(self.receipt_of(&look)),
            receipt::Standing::Stopping(_) => {
                let detail = "the stop is not acknowledged yet; ask again";
                Err(Problem::new(Code::Unavailable, detail))
            }
            receipt::Standing::NotStopped => {
                let name = look.task.row.task.state.name();
                let detail = format!("the task is {name}; only a stopped task has a stop receipt");
                Err(Problem::new(Code::IllegalMove, detail))
            }
        }
    }

    /// How a stop of a task stands.
    pub(crate) async fn standing(&self, look: &Look) -> Outcome<receipt::Standing> {
        let of_task = Query::<AttemptRow>::first(MAX_BATCH).task(&[look.task.row.task.id]);
        let attempts = self.all(of_task).await?;
        let state = &look.task.row.task.state;
        let standing = receipt::standing(state, attempts.iter().map(|row| &row.row.attempt));
        // These were read after the look, and may be newer. A receipt tells of one moment, so what
        // has moved since is looked at again before anything is acknowledged.
        let moved = |last: &Stored<AttemptRow>| {
            let number = last.row.attempt.number;
            let now = attempts.iter().find(|row| row.row.attempt.number == number);
            now.is_none_or(|now| now.revision != last.revision)
        };
        let frozen = self.is_any_frozen(&attempts).await?;
        Ok(match (standing, &look.attempt) {
            (receipt::Standing::Stopped, Some(attempt)) if moved(attempt) => {
                receipt::Standing::Stopping(Vec::new())
            }
            // What is frozen can do nothing, but it is not gone.
            (receipt::Standing::Stopped, Some(attempt)) if frozen => {
                let lease_end = attempt.row.attempt.lease_end;
                receipt::Standing::Stopping(vec![Pending::Proof { lease_end }])
            }
            (standing, _) => standing,
        })
    }

    /// Whether any of these attempts has a frozen sandbox: one that was begun anew left its session
    /// behind, and what is frozen there is ended a little later.
    async fn is_any_frozen(&self, attempts: &[Stored<AttemptRow>]) -> Outcome<bool> {
        let ids: Vec<_> = attempts.iter().filter_map(|row| row.row.sandbox).collect();
        for ids in ids.chunks(MAX_BATCH) {
            let sandboxes = self.store().load::<SandboxRow>(ids).await?;
            if sandboxes.iter().flatten().any(|row| row.row.state == SandboxState::Paused) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the end of the transcript is still being fetched, or the tree being saved, within
    /// the limit for that: the receipt that is given first is the one that is given ever after.
    pub(crate) fn is_being_saved(&self, look: &Look) -> bool {
        let Some(row) = look.attempt.as_ref().map(|stored| &stored.row) else { return false };
        let tail = look.policy.limits.transcript_tail;
        let waited = row.proven_at.is_some_and(|at| look.now.since(at) > tail);
        if planted::is(Bug::ReceiptWithoutProof) {
            return false;
        }
        let saved = row.termination.is_some_and(|saga| saga.step > Step::SaveTree);
        row.ending_at.is_some() && !saved && !waited
    }

    pub(crate) fn receipt_of(&self, look: &Look) -> ReceiptView {
        let task = &look.task.row.task;
        let row = look.attempt.as_ref().map(|stored| &stored.row);
        let since = |at: Option<Timestamp>| at.is_some_and(|at| at >= task.since);
        let stopped = row.filter(|row| since(row.ending_at) || since(row.proven_at));
        let proof = row.and_then(|row| match row.attempt.phase {
            Phase::Ended(_, proof) => Some(proof),
            _ => None,
        });
        let receipt = Receipt {
            attempt: stopped.map(|row| row.attempt.number),
            stopped_at: task.since,
            proven_at: stopped.and_then(|row| row.proven_at).unwrap_or(task.since),
            last_effect: row.map(last_effect),
            pushed: row.and_then(|row| receipt::pushed(&row.attempt)),
            processes: row.map_or(0, |row| row.processes),
            proof,
            transcript: row.and_then(seal),
        };
        ReceiptView {
            task: task.id,
            receipt,
            publish: row.map_or(belay_kernel::publish::Publish::None, |row| row.attempt.publish),
            proof_kind: proof,
            kept_ref: row.and_then(|row| row.kept_ref.as_deref().map(str::to_owned)),
            kept_commit: row.and_then(|row| row.kept_commit),
        }
    }
}

/// The last thing that was accepted of an attempt before it was ended.
fn last_effect(row: &AttemptRow) -> String {
    use belay_kernel::publish::Publish;
    match (row.attempt.publish, row.attempt.started_at) {
        (Publish::Pushed(push), _) => format!("pushed {}", push.commit),
        (Publish::NotPushed(_), _) => "a push that did not land".to_owned(),
        (Publish::Open(_), _) => "a push whose outcome is not known yet".to_owned(),
        (Publish::None, Some(_)) => format!("{} bytes of output", row.transcript_length),
        (Publish::None, None) => "claimed; the agent was never started".to_owned(),
    }
}

fn seal(row: &AttemptRow) -> Option<TranscriptSeal> {
    let hash = row.transcript_hash.as_deref()?;
    let range = |text: &String| {
        let (from, to) = text.split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    let missing = row.transcript_missing.0.iter().filter_map(range).collect();
    Some(TranscriptSeal { length: row.transcript_length, hash: hash.to_owned(), missing })
}

fn summary(task: &TaskRow, spec: &SpecRow, ledger: Option<&LedgerRow>) -> TaskSummary {
    let state = &task.task.state;
    let ledger = ledger.map(|row| row.ledger).unwrap_or_default();
    TaskSummary {
        id: task.task.id,
        title: spec.title.to_string(),
        state: state.name().to_owned(),
        group: state.group(),
        reason: task.task.reason.code().to_owned(),
        since: task.task.since,
        created_at: task.created_at,
        role: task.role.as_str().to_owned(),
        agent: spec.agent.as_deref().unwrap_or_default().to_owned(),
        parent: task.task.parent,
        attempts: task.task.attempts,
        priority: task.priority,
        waits_for: task.unfinished,
        cost: ledger.cost,
        tokens: ledger.tokens,
    }
}

fn attempt_view(row: &AttemptRow) -> AttemptView {
    AttemptView {
        attempt: row.attempt,
        sandbox: row.sandbox,
        cause: row.cause,
        message: row.message.as_deref().map(str::to_owned),
        fired: row.fired.as_ref().map(|fired| fired.0),
        usage: row.usage,
        transcript_length: row.transcript_length,
        kept_ref: row.kept_ref.as_deref().map(str::to_owned),
        kept_commit: row.kept_commit,
        ending_at: row.ending_at,
        proven_at: row.proven_at,
    }
}

fn question_view(row: &QuestionRow) -> QuestionView {
    QuestionView {
        id: row.id,
        attempt: row.attempt,
        text: row.text.to_string(),
        options: row.options.0.clone(),
        asked_at: row.asked_at,
        answer: row.answer.as_deref().map(str::to_owned),
        answered_at: row.answered_at,
    }
}

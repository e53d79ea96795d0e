//! The termination sequence, as far as it is control's: each step that a runner reports is stored,
//! and when everything is safe the sandbox, the session and the world are told.

use belay_api::port::{Found, Stepped, Who};
use belay_kernel::Disposition;
use belay_kernel::attempt::{Event as AttemptEvent, Proof};
use belay_kernel::fence::Intent;
use belay_kernel::receipt::UNKNOWN_END;
use belay_kernel::sandbox;
use belay_kernel::session::{self, Kept, Rest, Tree};
use belay_kernel::task::State;
use belay_kernel::termination::{Step, Termination, Went};
use belay_store::blob::{self, BlobError, BlobKey, Seal};
use belay_store::rows::{AttemptRow, SandboxRow, SessionRow};
use belay_store::{Commit, List, NewEvent, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::commit::{Draft, Put};
use crate::look::{Look, TRIES};
use crate::refuse::{Outcome, Refused};
use crate::report::admitted;

impl<S: Store> Control<S> {
    /// Stores how a step went; answered with the saga as it is now.
    pub(crate) async fn take_step(&self, who: Who, stepped: Stepped) -> Outcome<Termination> {
        for _ in 0..TRIES {
            let mut look = self.look_at(who.task, Some(who.attempt)).await?;
            let row = admitted(&look, who, Intent::Append)?.clone();
            let Some(saga) = row.row.termination else { return Err(not_ending()) };
            let said_again = saga.step != stepped.step;
            if said_again || stepped.went == Went::Failed || !saga.step.is_runners() {
                return Ok(saga);
            }
            let mut changed = row.row.clone();
            changed.termination = Some(after(&look, saga, &stepped));
            self.keep_found(who, &mut look, &stepped, &mut changed).await?;
            let draft = self.ended(&look, &row, changed.clone(), Commit::new());
            if self.try_put(draft).await? == Put::Done {
                let stored = self.row::<AttemptRow>((who.task, who.attempt)).await?;
                let saga = stored.and_then(|row| row.row.termination);
                return saga.ok_or_else(not_ending);
            }
        }
        Err(Refused::busy())
    }

    /// What a step found out goes into the row; what is long becomes a blob first.
    pub(crate) async fn keep_found(
        &self,
        who: Who,
        look: &mut Look,
        stepped: &Stepped,
        row: &mut AttemptRow,
    ) -> Outcome<()> {
        match (stepped.step, &stepped.found) {
            (Step::Freeze, _) if stepped.went == Went::Done => {
                prove(look, row);
                move_sandbox(look, sandbox::Event::Paused);
            }
            (Step::Kill, found) => {
                if let Found::Dead { processes } = found {
                    row.processes = *processes;
                }
                prove(look, row);
                if look.is_frozen() {
                    row.proven_at = Some(look.now);
                    move_sandbox(look, sandbox::Event::Terminated);
                }
            }
            (Step::SaveTranscript, found) => {
                let seal = self.seal(BlobKey::Transcript(who.task, who.attempt)).await?;
                row.transcript_length = seal.length;
                row.transcript_hash = Some(seal.hash.to_string().into());
                let said = match found {
                    Found::Transcript(said) => said.missing.as_slice(),
                    _ => &[],
                };
                // Where a sandbox is gone nobody knows how much it had: all that is not here.
                let clipped = |m: &(u64, u64)| match m.1 {
                    UNKNOWN_END => (m.0.max(seal.length), UNKNOWN_END),
                    _ => *m,
                };
                let of_blob = seal.missing.iter().map(|m| (m.start, m.end));
                let named = said.iter().map(clipped).chain(of_blob);
                row.transcript_missing = List(named.map(|m| format!("{}-{}", m.0, m.1)).collect());
            }
            (Step::SaveTree, Found::Tree { reference, commit, diff }) => {
                row.kept_ref = Some(reference.as_str().into());
                row.kept_commit = Some(*commit);
                if !diff.is_empty() {
                    let key = BlobKey::Diff(who.task, who.attempt);
                    self.inner.blobs.append(key, 0, diff.clone()).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Seals a transcript as it is. What a machine could not give of it is named beside it.
    async fn seal(&self, key: BlobKey) -> Outcome<Seal> {
        let blobs = &self.inner.blobs;
        let (length, missing) = match blobs.status(key).await {
            Ok(stored) => (stored.length, stored.missing),
            Err(BlobError::Refused(blob::Refusal::Unknown { .. })) => (0, Vec::new()),
            Err(error) => return Err(error.into()),
        };
        Ok(blobs.seal_with_missing(key, length, &missing).await?)
    }

    /// The commit of an attempt that is ending: when its files are safe and its push is settled,
    /// its sandbox is terminated and its session free.
    pub(crate) fn ended(
        &self,
        look: &Look,
        stored: &Stored<AttemptRow>,
        mut row: AttemptRow,
        commit: Commit,
    ) -> Draft {
        let free = row.attempt.leaves_session_free();
        let settles = free && row.termination.is_some_and(|saga| saga.step == Step::Settle);
        if settles {
            let told = |saga: Termination| saga.after(Went::Done).after(Went::Done);
            row.termination = row.termination.map(told);
        }
        row.due_at = match row.attempt.phase {
            belay_kernel::attempt::Phase::Ended(..) => None,
            _ => row.due_at,
        };
        self.forget_heard(&row);
        let mut commit = commit.update(stored.revision, &row);
        if let Some(sandbox) = look.sandbox.as_ref().filter(|_| settles || look.sandbox_changed) {
            let row = match settles && !look.is_frozen() {
                true => terminated(look, &sandbox.row),
                false => sandbox.row.clone(),
            };
            commit = commit.update(sandbox.revision, &row);
        }
        if !settles {
            return commit.into();
        }
        if let Some(session) = &look.session {
            let rested = rest(look, &session.row, &row);
            commit = commit.read(&look.task).update(session.revision, &rested);
        }
        commit = commit.event(terminated_event(look, &row));
        let offer = matches!(look.task.row.task.state, State::Queued { .. })
            .then(|| look.task.row.role.as_str().to_owned());
        Draft { commit, offer, effects: false }
    }
}

/// The saga after a step. A sandbox that is frozen stays, unless its task is over by now in a way
/// that nothing follows.
fn after(look: &Look, saga: Termination, stepped: &Stepped) -> Termination {
    let next = saga.after(stepped.went);
    let saved = stepped.step == Step::SaveTree && next.step == Step::Destroy;
    match Rest::of_frozen(&look.task.row.task.state) {
        _ if !saved || !look.is_frozen() => next,
        Rest::Pause(_) => next.stays(),
        Rest::Stop(_) => next.ends(),
    }
}

/// The attempt's processes can do nothing any more.
fn prove(look: &Look, row: &mut AttemptRow) {
    let proven = AttemptEvent::Proven(Proof::Observed);
    if let Disposition::Accept(next) = row.attempt.step(proven, look.now, &look.policy.limits) {
        row.attempt = next;
        row.proven_at = Some(look.now);
    }
}

fn move_sandbox(look: &mut Look, event: sandbox::Event) {
    let (now, limits) = (look.now, look.policy.limits);
    let Some(stored) = &mut look.sandbox else { return };
    if let Disposition::Accept(moved) = sandbox::step(&stored.row.state, event, now, &limits) {
        stored.row.state = moved.next;
        stored.row.due_at = None;
        look.sandbox_changed = true;
    }
}

fn not_ending() -> Refused {
    Refused::new(belay_api::Code::IllegalMove, "the attempt is not ending")
}

fn terminated(look: &Look, row: &SandboxRow) -> SandboxRow {
    let event = sandbox::Event::Terminated;
    let moved = sandbox::step(&row.state, event, look.now, &look.policy.limits);
    let state = moved.accepted().map_or(row.state, |moved| moved.next);
    SandboxRow { state, due_at: None, ..row.clone() }
}

/// The session without its attempt: it waits for the task's next one, or is over with the task. An
/// attempt whose sandbox stayed for a while may be settled a second time, when that is gone.
fn rest(look: &Look, row: &SessionRow, attempt: &AttemptRow) -> SessionRow {
    let mut session = row.session;
    if session.epoch == attempt.attempt.epoch {
        session =
            session::Session { attempt: session::Attempt::None, tree: Tree::Saved, ..session };
    }
    let Some(sandbox) = attempt.sandbox else { return SessionRow { session, ..row.clone() } };
    let state = &look.task.row.task.state;
    let stays = session.state.sandbox() == Some(sandbox) && look.is_frozen();
    let first = match (Rest::of(state), Rest::of_frozen(state)) {
        _ if session.state.sandbox() != Some(sandbox) => None,
        (_, Rest::Pause(reason)) if stays => {
            Some(session::Event::Snapshotted { sandbox, reason, kept: Kept::Frozen(sandbox) })
        }
        (Rest::Pause(reason), _) => {
            Some(session::Event::Snapshotted { sandbox, reason, kept: Kept::Tree })
        }
        (Rest::Stop(reason), _) => Some(session::Event::Stopped { reason }),
    };
    let gone = session::Event::Terminated { sandbox, how: session::Termination::Done };
    for event in first.into_iter().chain((!stays).then_some(gone)) {
        if let Disposition::Accept(moved) = session::step(&session, event) {
            session = session.after(&moved);
        }
    }
    SessionRow { session, keep_alive: look.spec.keep_alive, ..row.clone() }
}

fn terminated_event(look: &Look, row: &AttemptRow) -> NewEvent {
    let body = json!({
        "sandbox": row.sandbox,
        "phase": row.attempt.phase,
        "cause": row.cause,
        "processes": row.processes,
        "proven_after_ms": row.proven_after().as_millis(),
        "duration_ms": look.now.since(row.attempt.claimed_at).as_millis(),
        "transcript": {
            "length": row.transcript_length,
            "hash": row.transcript_hash.as_deref(),
            "missing": row.transcript_missing.0,
        },
        "kept": row.kept_ref.as_deref(),
        "publish": row.attempt.publish,
    });
    NewEvent {
        attempt: Some(row.attempt.number),
        session: Some(row.session),
        workflow: look.task.row.workflow,
        ..NewEvent::task(row.task, "sandbox.terminated", body.to_string(), look.now)
    }
}

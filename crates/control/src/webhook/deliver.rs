//! Making letters of events, and sending them, for the hooks that this node owns.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belay_kernel::webhook::{self, Failed, MOST_WAITING, Next, Pattern};
use belay_kernel::{Revision, TaskId, Timestamp};
use belay_store::rows::{LetterRow, LetterState, SpecRow, WebhookRow};
use belay_store::{
    Commit, Committed, Cursor, Event, EventFilter, Failure, Holder, LeaseKind, MAX_BATCH, Query,
    Refusal, Store, Stored,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::courier::{Courier, Undelivered};
use super::desk::{Desk, Sent};
use super::shape::{envelope, parcel};
use crate::Control;
use crate::commit::short;
use crate::refuse::Outcome;

/// How many events are looked at in one commit.
const EVENTS: usize = 500;
/// A hook that wants nothing of so many events writes its cursor down.
const WRITE_DOWN: u64 = 5_000;
/// How often the rows are looked at, and how soon again when something happened.
const LOOK: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);

/// The kind of the event that tries one hook out.
pub(super) const TRIED: &str = "webhook.test";

impl<S: Store> Control<S> {
    /// Sends for the hooks of this node, for ever.
    pub(crate) async fn deliver_forever(&self) {
        let Some(courier) = self.inner.courier.clone() else { return };
        let mut desk = Desk::default();
        let mut flying: FuturesUnordered<Flight<'_>> = FuturesUnordered::new();
        let mut latest = self.oldest_cursor();
        let (mut looked, mut look_at) = (Instant::now(), Instant::now());
        loop {
            if Instant::now() >= look_at {
                match self.look_at_hooks(&mut desk).await {
                    Ok(cursor) => latest = cursor,
                    Err(refused) => tracing::warn!(?refused, "webhooks were not looked at"),
                }
                looked = Instant::now();
                look_at = looked + LOOK;
            }
            let (leaving, next) = self.leave(&mut desk).await;
            for one in leaving {
                flying.push(Box::pin(self.carry(courier.clone(), one)));
            }
            let until = next.map_or(look_at, |wait| look_at.min(Instant::now() + wait));
            let soon = look_at <= Instant::now() + SOON;
            tokio::select! {
                Some((sent, went)) = flying.next(), if !flying.is_empty() => {
                    if let Err(refused) = self.settle_letter(&mut desk, &sent, &went).await {
                        tracing::warn!(?refused, "a delivery was not recorded");
                        flying.push(Box::pin(record_again(sent, went)));
                    }
                }
                () = tokio::time::sleep_until(until) => {}
                () = self.changed(&desk, latest), if !soon => look_at = looked + SOON,
            }
        }
    }

    /// Waits until hooks, letters or events may have changed.
    async fn changed(&self, desk: &Desk, latest: Cursor) {
        tokio::select! {
            () = self.inner.letters.notified() => {}
            () = self.store().await_events(latest, LOOK), if !desk.hooks.is_empty() => {}
        }
    }

    fn oldest_cursor(&self) -> Cursor {
        Cursor { epoch: self.store().installation().epoch, number: 0 }
    }

    /// Reads hooks and letters, takes hooks over whose node is gone, and makes letters of events.
    async fn look_at_hooks(&self, desk: &mut Desk) -> Outcome<Cursor> {
        let latest = self.store().latest().await?;
        let hooks = self.all(Query::<WebhookRow>::first(MAX_BATCH)).await?;
        let mut hooks = self.owned(hooks).await?;
        // What is paused keeps its letters and its place among the events.
        hooks.retain(|hook| hook.row.paused_at.is_none());
        let ids: Vec<_> = hooks.iter().map(|hook| hook.row.id).collect();
        let query = Query::<LetterRow>::first(MAX_BATCH).webhook(&ids);
        let letters = match ids.is_empty() {
            true => Vec::new(),
            false => self.all(query.state(&[LetterState::Waiting])).await?,
        };
        desk.reread(hooks, letters);
        let mut made = false;
        for hook in desk.hooks.values().cloned().collect::<Vec<_>>() {
            made |= self.make_letters(desk, &hook).await?;
        }
        if made {
            // What was made is read with its revision, and hooks with theirs.
            self.inner.letters.notify_one();
        }
        Ok(latest)
    }

    /// The hooks that this node sends for; those of nodes that are gone are taken over.
    async fn owned(&self, hooks: Vec<Stored<WebhookRow>>) -> Outcome<Vec<Stored<WebhookRow>>> {
        if hooks.is_empty() {
            return Ok(hooks);
        }
        let now = self.now().await?;
        let leases = self.store().leases(LeaseKind::Node).await?;
        let live: BTreeSet<_> = leases
            .iter()
            .filter(|lease| lease.until >= now)
            .filter_map(|lease| match lease.holder {
                Holder::Node(node) => Some(node),
                _ => None,
            })
            .collect();
        let own = self.inner.node;
        let mut owned = Vec::new();
        for hook in hooks {
            match hook.row.owner {
                Some(owner) if owner == own => owned.push(hook),
                Some(owner) if live.contains(&owner) => {}
                Some(_) | None if !live.contains(&own) => {}
                Some(_) | None => {
                    let row = WebhookRow { owner: Some(own), ..hook.row };
                    let commit = Commit::new().update(hook.revision, &row);
                    if self.store().commit(commit).await?.is_done() {
                        owned.push(Stored { revision: hook.revision.next(), row });
                    }
                }
            }
        }
        Ok(owned)
    }

    /// Makes letters of the next events that a hook wants; tells whether there were any.
    async fn make_letters(&self, desk: &mut Desk, hook: &Stored<WebhookRow>) -> Outcome<bool> {
        if desk.waiting(hook.row.id) >= MOST_WAITING {
            return Ok(false);
        }
        let epoch = self.store().installation().epoch;
        let cursor = Cursor { epoch, number: desk.seen(&hook.row) };
        let read = match self.store().events(cursor, EventFilter::default(), EVENTS).await {
            Ok(read) => read,
            Err(failure) => return self.reseat_hook(desk, hook, failure).await,
        };
        let patterns: Vec<Pattern> =
            hook.row.kinds.0.iter().filter_map(|kind| kind.parse().ok()).collect();
        let wanted: Vec<_> =
            read.events.iter().filter(|event| wants(&hook.row, &patterns, event)).collect();
        let far = read.cursor.number.saturating_sub(hook.row.seen) >= WRITE_DOWN;
        if wanted.is_empty() && !far {
            desk.pass(hook.row.id, read.cursor.number);
            return Ok(!read.events.is_empty());
        }
        let titles = self.titles(&wanted).await?;
        let now = self.now().await?;
        let row = WebhookRow { seen: read.cursor.number, ..hook.row.clone() };
        let mut commit = Commit::new().update(hook.revision, &row);
        for event in &wanted {
            let title = event.event.task.and_then(|task| titles.get(&task)).map(String::as_str);
            commit = commit.insert(&letter(&hook.row, event, epoch, title, now));
        }
        match self.store().commit(commit).await? {
            Committed::Done | Committed::Replayed(_) => Ok(true),
            // Somebody changed the hook: it is read again.
            Committed::Overtaken(_) => Ok(true),
            Committed::Refused(refusal) => Err(Failure::Refused(refusal).into()),
        }
    }

    /// A cursor that the events do not have any more, or not yet: after 90 days, or a restore.
    async fn reseat_hook(
        &self,
        desk: &mut Desk,
        hook: &Stored<WebhookRow>,
        failure: Failure,
    ) -> Outcome<bool> {
        let name = &*hook.row.name;
        let seen = match failure.refusal() {
            Some(Refusal::Pruned { oldest }) => {
                tracing::error!(name, oldest, "a webhook was so far behind that events are gone");
                oldest.saturating_sub(1)
            }
            Some(Refusal::FutureCursor) => self.store().latest().await?.number,
            _ => return Err(failure.into()),
        };
        desk.pass(hook.row.id, seen);
        let row = WebhookRow { seen, ..hook.row.clone() };
        self.store().commit(Commit::new().update(hook.revision, &row)).await?;
        Ok(true)
    }

    async fn titles(&self, events: &[&Event]) -> Outcome<BTreeMap<TaskId, String>> {
        let tasks: BTreeSet<_> = events.iter().filter_map(|event| event.event.task).collect();
        let tasks: Vec<_> = tasks.into_iter().collect();
        let specs = self.store().load::<SpecRow>(&tasks).await?;
        let titled = specs.into_iter().flatten().map(|spec| (spec.row.task, spec.row.title.0));
        Ok(titled.collect())
    }

    /// The letters that leave now, as requests; and how long until the next is due.
    async fn leave(&self, desk: &mut Desk) -> (Vec<Leaving>, Option<Duration>) {
        if desk.hooks.is_empty() {
            return (Vec::new(), None);
        }
        let Ok(now) = self.now().await else { return (Vec::new(), None) };
        let limit = Duration::from_millis(self.settings().limits.webhook_answer.as_millis());
        let (sent, next) = desk.take(now);
        let leaving = sent.into_iter().filter_map(|sent| {
            let hook = desk.hooks.get(&sent.hook)?;
            let parcel = parcel(&hook.row, &sent.letter.row, now, limit);
            Some(Leaving { sent, parcel })
        });
        let wait = next.map(|at| Duration::from_millis(at.since(now).as_millis()));
        let leaving: Vec<_> = leaving.collect();
        (leaving, wait.map(|wait| wait.max(Duration::from_millis(1))))
    }

    async fn carry(
        &self,
        courier: Arc<dyn Courier>,
        leaving: Leaving,
    ) -> (Sent, Result<(), Undelivered>) {
        let began = Instant::now();
        let went = courier.send(leaving.parcel).await;
        self.inner.gauges.delivered(went.is_ok(), began.elapsed());
        (leaving.sent, went)
    }

    /// Records how a delivery went. Until that is done the letter is under way.
    async fn settle_letter(
        &self,
        desk: &mut Desk,
        sent: &Sent,
        went: &Result<(), Undelivered>,
    ) -> Outcome<()> {
        let Stored { revision, row } = &sent.letter;
        let (commit, left) = match went {
            Ok(()) => (Commit::new().delete(&sent.letter), None),
            Err(undelivered) => {
                let now = self.now().await?;
                let row = self.after_failure(row, undelivered, now);
                let left = (row.state == LetterState::Waiting)
                    .then(|| Stored { revision: Revision(revision.0 + 1), row: row.clone() });
                (Commit::new().update(*revision, &row), left)
            }
        };
        match self.store().commit(commit).await? {
            Committed::Done | Committed::Replayed(_) => desk.put_back(sent, left),
            // It was replayed or removed meanwhile: the rows say what is so.
            Committed::Overtaken(_) | Committed::Refused(_) => {
                desk.put_back(sent, None);
                self.inner.letters.notify_one();
            }
        }
        Ok(())
    }

    fn after_failure(&self, row: &LetterRow, went: &Undelivered, now: Timestamp) -> LetterRow {
        let tries = row.tries.saturating_add(1);
        let (since, retry_after) = (row.since, went.retry_after);
        let failed = Failed { tries, since, retry_after, jitter: self.jitter() };
        let next = webhook::after_failure(&failed, now, &self.settings().limits);
        let (state, send_at) = match next {
            Next::Again(at) => (LetterState::Waiting, at),
            Next::Dead => {
                tracing::error!(delivery = &*row.delivery, why = went.failure, "a dead letter");
                (LetterState::Dead, row.send_at)
            }
        };
        let failure = Some(short(&went.failure));
        LetterRow { tries, state, send_at, failure, failed_at: Some(now), ..row.clone() }
    }
}

/// A delivery under way: the letter, and how it went.
type Flight<'a> = Pin<Box<dyn Future<Output = (Sent, Result<(), Undelivered>)> + Send + 'a>>;

/// How a delivery went that could not be recorded, again after a while. It is not sent again for
/// that: whoever cannot write should not flood receivers.
async fn record_again(
    sent: Sent,
    went: Result<(), Undelivered>,
) -> (Sent, Result<(), Undelivered>) {
    tokio::time::sleep(LOOK).await;
    (sent, went)
}

/// A letter with the request that delivers it.
struct Leaving {
    sent: Sent,
    parcel: super::Parcel,
}

/// Whether a hook is told of an event. A test is for the hook that it names, whatever it wants.
fn wants(hook: &WebhookRow, patterns: &[Pattern], event: &Event) -> bool {
    match event.event.kind.as_str() {
        TRIED => event.event.body.contains(&hook.id.to_string()),
        kind => webhook::wants(patterns, kind),
    }
}

fn letter(
    hook: &WebhookRow,
    event: &Event,
    epoch: u64,
    title: Option<&str>,
    now: Timestamp,
) -> LetterRow {
    // The same after every restart; another one after a restore, whose numbers name other events.
    let delivery = format!("{}.{}", hook.id, Cursor { epoch, number: event.number });
    let envelope = envelope(&delivery, &hook.name, event, title).to_string();
    LetterRow {
        webhook: hook.id,
        number: event.number,
        task: event.event.task,
        delivery: delivery.into(),
        kind: event.event.kind.as_str().into(),
        envelope: envelope.into(),
        state: LetterState::Waiting,
        tries: 0,
        since: now,
        send_at: now,
        failure: None,
        failed_at: None,
        made_at: now,
    }
}

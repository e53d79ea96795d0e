//! Counting events: each once, in the commit that moves the counter's own cursor.

use belay_kernel::attempt::{Outcome as End, Phase, Proof};
use belay_kernel::meter::{Ended, Seen, Totals};
use belay_kernel::{Cause, Clock, RunnerId, Span};
use belay_store::rows::MeterRow;
use belay_store::{
    Commit, Committed, Cursor, Document, Event, EventFilter, Failure, Refusal, Store, Stored,
};
use serde_json::Value;

use crate::Control;
use crate::refuse::Outcome;

/// How many events are counted in one commit.
const EVENTS: usize = 2_000;
/// The name of the row.
const NAME: &str = "totals";

impl<S: Store> Control<S> {
    /// Counts what has happened since it was last counted, and tells what was counted in all.
    pub(crate) async fn count(&self) -> Outcome<Totals> {
        loop {
            let stored = self.row::<MeterRow>(NAME.into()).await?;
            let row = stored.as_ref().map(|stored| stored.row.clone()).unwrap_or(MeterRow {
                name: NAME.into(),
                seen: 0,
                totals: Document(Totals::default()),
            });
            let epoch = self.store().installation().epoch;
            let cursor = Cursor { epoch, number: row.seen };
            let read = match self.store().events(cursor, EventFilter::default(), EVENTS).await {
                Ok(read) => read,
                Err(failure) => {
                    self.reseat_meter(stored.as_ref(), row, failure).await?;
                    continue;
                }
            };
            if read.cursor.number == row.seen {
                return Ok(row.totals.0);
            }
            let mut totals = row.totals.0;
            for event in &read.events {
                for seen in seen(event) {
                    totals.note(&seen, event.event.at, &self.settings().limits);
                }
            }
            let whole = read.events.len() < EVENTS;
            let row = MeterRow { seen: read.cursor.number, totals: Document(totals), ..row };
            let done = self.put_meter(stored.as_ref(), &row).await?;
            if done && whole {
                return Ok(row.totals.0);
            }
        }
    }

    /// Whether it was written; else another node has counted meanwhile.
    async fn put_meter(&self, before: Option<&Stored<MeterRow>>, row: &MeterRow) -> Outcome<bool> {
        let commit = match before {
            Some(before) => Commit::new().update(before.revision, row),
            None => Commit::new().insert(row),
        };
        match self.store().commit(commit).await? {
            Committed::Done | Committed::Replayed(_) => Ok(true),
            Committed::Overtaken(_) => Ok(false),
            Committed::Refused(refusal) => Err(Failure::Refused(refusal).into()),
        }
    }

    /// A cursor that the events do not have any more, or not yet: after 90 days, or a restore.
    async fn reseat_meter(
        &self,
        before: Option<&Stored<MeterRow>>,
        row: MeterRow,
        failure: Failure,
    ) -> Outcome<()> {
        let seen = match failure.refusal() {
            Some(Refusal::Pruned { oldest }) => oldest.saturating_sub(1),
            Some(Refusal::FutureCursor) => self.store().latest().await?.number,
            _ => return Err(failure.into()),
        };
        self.put_meter(before, &MeterRow { seen, ..row }).await.map(drop)
    }
}

/// What an event counts as.
fn seen(event: &Event) -> Vec<Seen> {
    let kind = event.event.kind.as_str();
    let interesting =
        ["task.", "sandbox.terminated", "attempt.proven", "runner.joined", "sandbox.probed"];
    if !interesting.iter().any(|begin| kind.starts_with(begin)) {
        return Vec::new();
    }
    let body: Value = serde_json::from_str(&event.event.body).unwrap_or_default();
    match kind {
        "task.created" => vec![Seen::Created],
        "sandbox.terminated" | "attempt.proven" => ended(kind, &body).into_iter().collect(),
        "sandbox.probed" => {
            let healthy = body["healthy"].as_bool();
            healthy.map(|healthy| Seen::Probed { healthy }).into_iter().collect()
        }
        "runner.joined" => {
            let runner = body["runner"].as_str().and_then(|id| id.parse::<RunnerId>().ok());
            runner.map(Seen::Joined).into_iter().collect()
        }
        _ => {
            let state = body["state"].as_str().map(|state| Seen::Moved(state.to_owned()));
            let clock = serde_json::from_value::<Clock>(body["fired"]["clock"].clone()).ok();
            let clock = clock.filter(|_| kind == "task.timed_out").map(Seen::TimedOut);
            state.into_iter().chain(clock).collect()
        }
    }
}

/// An end counts when its processes are proven gone: by the lease, or when everything is safe.
fn ended(kind: &str, body: &Value) -> Option<Seen> {
    let phase = serde_json::from_value::<Phase>(body["phase"].clone()).ok()?;
    let (outcome, proof): (End, Proof) = match phase {
        Phase::Ended(outcome, proof) => (outcome, proof),
        Phase::Claimed | Phase::Running | Phase::Publishing { .. } | Phase::Ending(_) => {
            return None;
        }
    };
    if (proof == Proof::LeaseExpired) != (kind == "attempt.proven") {
        return None;
    }
    let missing = body["transcript"]["missing"].as_array();
    Some(Seen::Ended(Ended {
        outcome,
        cause: serde_json::from_value::<Cause>(body["cause"].clone()).ok(),
        proof,
        proven_after: Span::from_millis(body["proven_after_ms"].as_u64().unwrap_or(0)),
        whole: missing.is_none_or(Vec::is_empty),
    }))
}

//! Sending spans: those of requests as they come, those of attempts from the events.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belay_kernel::meter::Totals;
use belay_kernel::{AttemptNumber, TaskId, Timestamp};
use belay_store::rows::{AttemptRow, MeterRow, SpecRow, TaskRow};
use belay_store::{Commit, Cursor, Document, Event, EventFilter, Refusal, Store, Stored};
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};

use super::context::Context;
use super::otlp;
use super::spans::{TraceSpan, of_attempt};
use crate::Control;
use crate::refuse::Outcome;

/// The name of the row that holds the cursor.
const NAME: &str = "traces";
/// How many events are read at a time, and how often.
const EVENTS: usize = 500;
const LOOK: Duration = Duration::from_secs(1);
/// How many spans of requests wait at most; further ones are dropped.
const WAITING: usize = 4_096;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Sends traces somewhere. Clones are the same one.
#[derive(Clone)]
pub struct Tracer {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    url: Url,
    version: String,
    waiting: mpsc::Sender<TraceSpan>,
    taken: Mutex<mpsc::Receiver<TraceSpan>>,
    draw: Box<dyn Fn() -> u128 + Send + Sync>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tracer(…)")
    }
}

/// Why there can be no tracer: one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoTracer(pub String);

impl Tracer {
    /// A tracer to an OTLP receiver at `url`, such as `http://127.0.0.1:4318/v1/traces`.
    pub fn new(
        url: &str,
        version: &str,
        draw: impl Fn() -> u128 + Send + Sync + 'static,
    ) -> Result<Self, NoTracer> {
        let wrong = |why: &str| NoTracer(format!("traces cannot be sent: {why}"));
        let url: Url = url.parse().map_err(|_| wrong("the address is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("the address has to begin with http:// or https://"));
        }
        // The HTTP library asks for it also where nothing is encrypted; the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(ANSWER_LIMIT).build();
        let client = client.map_err(|_| wrong("there is no HTTP client"))?;
        let (waiting, taken) = mpsc::channel(WAITING);
        let inner = Inner {
            client,
            url,
            version: version.to_owned(),
            waiting,
            taken: Mutex::new(taken),
            draw: Box::new(draw),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context of something that begins now: within `parent`, if there is one.
    pub fn begin(&self, parent: Option<Context>) -> Context {
        let bits = (self.inner.draw)();
        let trace = parent.map_or(bits, |parent| parent.trace).max(1);
        Context { trace, span: ((bits >> 64) as u64 ^ bits as u64).max(1) }
    }

    /// Sends a span some time. When too many wait, it is dropped: tracing holds up nothing.
    pub fn record(&self, span: TraceSpan) {
        let _ = self.inner.waiting.try_send(span);
    }

    async fn send(&self, spans: &[TraceSpan]) -> Result<(), String> {
        if spans.is_empty() {
            return Ok(());
        }
        let body = otlp::body(spans, &self.inner.version).to_string();
        let request = self.inner.client.post(self.inner.url.clone()).body(body);
        let request = request.header("content-type", "application/json");
        let response = request.send().await.map_err(|error| error.without_url().to_string())?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {}", status.as_u16())),
        }
    }

    /// Sends what waits.
    async fn send_waiting(&self) -> Result<(), String> {
        let mut spans = Vec::new();
        let mut taken = self.inner.taken.lock().await;
        while spans.len() < WAITING
            && let Ok(span) = taken.try_recv()
        {
            spans.push(span);
        }
        self.send(&spans).await
    }
}

impl<S: Store> Control<S> {
    /// Sends traces, for ever.
    pub(crate) async fn trace_forever(&self) {
        let Some(tracer) = self.tracer() else { return };
        loop {
            if let Err(why) = tracer.send_waiting().await {
                tracing::warn!(why, "spans of requests were not taken");
            }
            loop {
                match self.trace_attempts(&tracer).await {
                    Ok(EVENTS) => {}
                    Ok(_) => break,
                    Err(refused) => {
                        tracing::warn!(?refused, "spans of attempts were not made");
                        break;
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Who traces, if anybody does.
    pub fn tracer(&self) -> Option<Tracer> {
        self.settings().tracer.clone()
    }

    /// Sends the spans of the attempts that the next events say are over; tells how many events
    /// were read. The cursor moves only when they were taken.
    async fn trace_attempts(&self, tracer: &Tracer) -> Outcome<usize> {
        let stored = self.row::<MeterRow>(NAME.into()).await?;
        let epoch = self.store().installation().epoch;
        let number = match &stored {
            Some(stored) => stored.row.seen,
            // What happened before anybody traced is not traced.
            None => self.store().latest().await?.number,
        };
        let cursor = Cursor { epoch, number };
        let read = match self.store().events(cursor, EventFilter::default(), EVENTS).await {
            Ok(read) => read,
            Err(failure) => match failure.refusal() {
                Some(Refusal::Pruned { .. } | Refusal::FutureCursor) => {
                    let latest = self.store().latest().await?.number;
                    self.put_trace_cursor(stored.as_ref(), latest).await?;
                    return Ok(0);
                }
                _ => return Err(failure.into()),
            },
        };
        let mut spans = Vec::new();
        for event in &read.events {
            if event.event.kind == "sandbox.terminated" {
                spans.extend(self.spans_of(event).await?);
            }
        }
        if let Err(why) = tracer.send(&spans).await {
            tracing::warn!(why, "spans of attempts were not taken");
            return Ok(0);
        }
        if stored.is_none() || read.cursor.number != number {
            self.put_trace_cursor(stored.as_ref(), read.cursor.number).await?;
        }
        Ok(read.events.len())
    }

    async fn put_trace_cursor(&self, before: Option<&Stored<MeterRow>>, seen: u64) -> Outcome<()> {
        let row = MeterRow { name: NAME.into(), seen, totals: Document(Totals::default()) };
        let commit = match before {
            Some(before) => Commit::new().update(before.revision, &row),
            None => Commit::new().insert(&row),
        };
        // If another node was first, it has sent the same spans.
        self.store().commit(commit).await?;
        Ok(())
    }

    async fn spans_of(&self, event: &Event) -> Outcome<Vec<TraceSpan>> {
        let (Some(task), Some(number)) = (event.event.task, event.event.attempt) else {
            return Ok(Vec::new());
        };
        let spec = self.row::<SpecRow>(task).await?;
        let row = self.row::<AttemptRow>((task, number)).await?;
        let owner = self.row::<TaskRow>(task).await?;
        let (Some(spec), Some(row), Some(owner)) = (spec, row, owner) else {
            return Ok(Vec::new()); // deleted meanwhile
        };
        if spec.row.trace.is_none() {
            return Ok(Vec::new());
        }
        let published = self.published(task, number, event.number).await?;
        let role = owner.row.role.as_str();
        Ok(of_attempt(&spec.row, role, &row.row, published, event.event.at))
    }

    /// From when until when an attempt was publishing, if it ever was.
    async fn published(
        &self,
        task: TaskId,
        number: AttemptNumber,
        before: u64,
    ) -> Outcome<Option<(Timestamp, Timestamp)>> {
        let filter = EventFilter { task: Some(task), ..EventFilter::default() };
        let mut cursor = self.store().oldest().await?;
        let (mut from, mut until) = (None, None);
        loop {
            let read = self.store().events(cursor, filter, EVENTS).await?;
            for event in read.events.iter().filter(|event| event.event.attempt == Some(number)) {
                let body: Value = serde_json::from_str(&event.event.body).unwrap_or_default();
                if body["phase"]["publishing"].is_object() {
                    from = from.or(Some(event.event.at));
                }
                if event.event.kind == "publish.settled" {
                    until = Some(event.event.at);
                }
            }
            let done = read.cursor == cursor || read.cursor.number >= before;
            cursor = read.cursor;
            if done {
                return Ok(from.zip(until));
            }
        }
    }
}

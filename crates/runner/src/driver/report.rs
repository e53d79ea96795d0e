//! Making output durable: what was read is gathered for a moment, reported, and let go of when
//! control says that it is durable.
//!
//! Reading goes on while control cannot answer, up to a bound; then the sandbox's own log waits.

use std::collections::VecDeque;

use belay_api::port::{Asked, Port, Report, Seen};
use belay_kernel::{QuestionId, Span};
use belay_sandbox::Provider;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::attempt::{Attempt, Halt};
use crate::shared::{duration, sleep};

/// How long output is gathered before it is reported.
const GATHER: Span = Span::from_millis(200);
/// How much is reported at a time.
const MOST: usize = 1 << 20;

/// What a reader hands to the reporter, in order.
#[derive(Debug)]
pub(super) enum Item {
    /// Output that is masked, and what was seen in it, each with where its bytes end.
    Output {
        /// The bytes, which follow on those before.
        bytes: Vec<u8>,
        /// What was seen.
        seen: Vec<(u64, Seen)>,
    },
    /// The agent holds a question open.
    Ask(Asked),
    /// An answer was handed to the agent.
    Delivered(QuestionId),
    /// Everything that was printed while nobody listened has been read.
    CaughtUp,
}

/// Reports what comes, until nothing more does. `from` is how much is durable.
pub(super) async fn report<C: Port, P: Provider, W: Sync>(
    attempt: &Attempt<'_, C, P, W>,
    from: u64,
    mut items: mpsc::Receiver<Item>,
) -> Result<(), Halt> {
    let mut pending = Pending { from, bytes: VecDeque::new(), seen: VecDeque::new() };
    let (port, who) = (&attempt.shared.port, attempt.assignment.who);
    while let Some(first) = items.recv().await {
        let mut next = Some(first);
        let deadline = Instant::now() + duration(GATHER);
        let said = loop {
            match next {
                Some(Item::Output { bytes, seen }) => pending.add(bytes, seen),
                Some(said @ (Item::Ask(_) | Item::Delivered(_) | Item::CaughtUp)) => {
                    break Some(said);
                }
                None => break None,
            }
            if pending.bytes.len() >= MOST {
                break None;
            }
            next = timeout_at(deadline, items.recv()).await.unwrap_or(None);
        };
        pending.flush(attempt).await?;
        match said {
            Some(Item::Ask(asked)) => attempt.say(|| port.ask(who, asked.clone())).await?,
            Some(Item::Delivered(question)) => {
                attempt.say(|| port.delivered(who, question)).await?;
            }
            Some(Item::CaughtUp) => {
                // Nothing new, but control may judge silence from here on.
                let nothing = Report { from: pending.from, ..Report::default() };
                attempt.say(|| port.report(who, nothing.clone())).await?;
            }
            Some(Item::Output { .. }) | None => {}
        }
    }
    pending.flush(attempt).await
}

/// What is not durable yet.
struct Pending {
    from: u64,
    bytes: VecDeque<u8>,
    seen: VecDeque<(u64, Seen)>,
}

impl Pending {
    fn add(&mut self, bytes: Vec<u8>, seen: Vec<(u64, Seen)>) {
        self.bytes.extend(bytes);
        self.seen.extend(seen);
    }

    /// Reports everything whose bytes are here.
    async fn flush<C: Port, P: Provider, W: Sync>(
        &mut self,
        attempt: &Attempt<'_, C, P, W>,
    ) -> Result<(), Halt> {
        loop {
            let report = self.next();
            if report.bytes.is_empty() && report.seen.is_empty() {
                return Ok(());
            }
            let end = report.from + report.bytes.len() as u64;
            let (port, who) = (&attempt.shared.port, attempt.assignment.who);
            let answer = attempt.say(|| port.report(who, report.clone())).await?;
            // More than was ever sent is durable where a report of an earlier runner came late.
            if answer.next < self.from || answer.next > end {
                return Err(Halt::Realign(answer.next));
            }
            if answer.next == self.from && end > self.from {
                sleep(GATHER).await;
                continue;
            }
            self.let_go(answer.next);
        }
    }

    /// The next report: so many bytes, and what was seen in them.
    fn next(&self) -> Report {
        let bytes: Vec<u8> = self.bytes.iter().take(MOST).copied().collect();
        let end = self.from + bytes.len() as u64;
        let mut seen = Vec::new();
        let mut drift = 0;
        for (_, one) in self.seen.iter().take_while(|(at, _)| *at <= end) {
            match one {
                Seen::Drift(count) => drift += count,
                other => seen.push(other.clone()),
            }
        }
        if drift > 0 {
            seen.push(Seen::Drift(drift));
        }
        Report { from: self.from, bytes, seen }
    }

    /// Lets go of what is durable up to `next`.
    fn let_go(&mut self, next: u64) {
        let count = usize::try_from(next - self.from).unwrap_or(usize::MAX);
        self.bytes.drain(..count.min(self.bytes.len()));
        while self.seen.front().is_some_and(|(at, _)| *at <= next) {
            self.seen.pop_front();
        }
        self.from = next;
    }
}

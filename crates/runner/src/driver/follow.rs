//! Following an agent's output: reading it, writing what the agent is to be told, and reporting it.
//!
//! ```text
//!  sandbox ─attach─► reading ─items─► report ─► control
//!     ▲ write          │ journal
//!     └────────────────┘◄── answers
//! ```

use std::collections::BTreeSet;

use belay_agent::{Agent, AnswerRefusal, Exit, Judgement, Launch, Stdin, Turn, TurnEnd};
use belay_api::Secrets;
use belay_api::port::{Asked, Port};
use belay_kernel::planted::{self, Bug};
use belay_kernel::{Cause, QuestionId, Span, Timestamp};
use belay_sandbox::{End, EndReason, Error, Fence, More, Output, Provider, Refusal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::act::Answers;
use super::attempt::{Attempt, Halt, chain};
use super::reading::{Place, Reading};
use super::report::{Item, report};
use crate::board::Ticket;
use crate::journal::{Journal, What};
use crate::shared::{duration, sleep};
use crate::workspace::Workspace;

/// How much is read at a time.
const READ: usize = 256 << 10;
/// How many pieces wait to be reported: what is read ahead while control does not answer.
const AHEAD: usize = 64;
/// How long one look at the output waits.
const LOOK: Span = Span::from_secs(5);
/// How long a look at the output of a frozen sandbox waits.
const FROZEN: Span = Span::from_millis(100);
/// How soon standard input that the agent did not take is tried again.
const STDIN_RETRY: Span = Span::from_millis(100);
/// How much standard input is written at a time.
const STDIN_MOST: usize = 128 << 10;
/// How often a failing provider is asked again before the attempt is given up.
const LOOKS: u32 = 30;

/// What is being run.
pub(super) struct Run<'a> {
    pub(super) agent: Agent,
    pub(super) launch: &'a Launch,
    pub(super) secrets: &'a Secrets,
}

/// How it ended.
pub(super) struct Ended {
    pub(super) judgement: Judgement,
    /// How the sandbox ended; nothing if it is frozen.
    pub(super) end: Option<End>,
    /// How much the attempt printed.
    pub(super) printed: u64,
    /// What the sandbox lost of its output.
    pub(super) missing: Vec<(u64, u64)>,
}

/// Where the attempt's output is in that of its sandbox, from `durable` on.
fn place<C: Port, P: Provider, W>(attempt: &Attempt<'_, C, P, W>, durable: u64) -> Place {
    let before = attempt.assignment.thaw.as_ref().map_or(0, |thaw| thaw.printed);
    Place { before, durable }
}

/// Follows an agent to its end, and speaks with it.
pub(super) async fn live<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    run: &Run<'_>,
    stdin: &Stdin,
    ticket: &Ticket,
    mut answers: Answers,
) -> Result<Ended, Halt> {
    let mut from = attempt.assignment.acknowledged;
    loop {
        let journal = Journal::open(&attempt.files.journal()).map_err(|e| Halt::file(&e))?;
        let place = place(attempt, from);
        let reading = Reading::new(run.agent, run.launch, run.secrets, place, journal.told());
        let (items, reported) = mpsc::channel(AHEAD);
        let provider = attempt.provider()?;
        let work = &attempt.assignment.work;
        let stays = work.keep_alive && run.agent.takes_turns() && provider.capabilities().pause;
        let follow = Follow {
            attempt,
            provider,
            reading,
            items,
            talk: Some(Talk::new(journal, stdin, ticket, stays)?),
            frozen: false,
            errors: 0,
        };
        let both = async {
            tokio::try_join!(
                biased;
                follow.run(Some(&mut answers)),
                report(attempt, from, reported, Some(ticket)),
            )
        };
        match both.await {
            Ok((ended, ())) => return Ok(ended),
            Err(Halt::Realign(next)) => from = next,
            Err(halt) => return Err(halt),
        }
    }
}

/// Reads the output of a sandbox that ended or is frozen, and reports what is not durable yet.
pub(super) async fn drain<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    run: &Run<'_>,
    frozen: bool,
) -> Result<Ended, Halt> {
    let mut from = attempt.assignment.acknowledged;
    loop {
        let journal = Journal::open(&attempt.files.journal()).map_err(|e| Halt::file(&e))?;
        let place = place(attempt, from);
        let reading = Reading::new(run.agent, run.launch, run.secrets, place, journal.told());
        let (items, reported) = mpsc::channel(AHEAD);
        let provider = attempt.provider()?;
        let follow = Follow { attempt, provider, reading, items, talk: None, frozen, errors: 0 };
        let both = async {
            tokio::try_join!(biased; follow.run(None), report(attempt, from, reported, None))
        };
        match both.await {
            Ok((ended, ())) => return Ok(ended),
            Err(Halt::Realign(next)) => from = next,
            Err(halt) => return Err(halt),
        }
    }
}

/// What is said to a living agent.
struct Talk<'a> {
    journal: Journal,
    ticket: &'a Ticket,
    /// Whether standard input is closed after what is in the journal.
    whole: bool,
    written: usize,
    closed: bool,
    quiet_since: Instant,
    stopped: bool,
    /// Whether the agent is frozen when its turn has ended well, instead of being ended.
    stays: bool,
    asked: BTreeSet<QuestionId>,
    waiting: Vec<(QuestionId, String)>,
}

impl<'a> Talk<'a> {
    fn new(
        mut journal: Journal,
        stdin: &Stdin,
        ticket: &'a Ticket,
        stays: bool,
    ) -> Result<Self, Halt> {
        let (bytes, whole) = match stdin {
            Stdin::Whole(bytes) => (bytes, true),
            Stdin::Open(bytes) => (bytes, false),
        };
        if !journal.has(&What::Initial) {
            journal.add(What::Initial, 0, bytes).map_err(|error| Halt::file(&error))?;
        }
        Ok(Self {
            journal,
            ticket,
            whole,
            written: 0,
            closed: false,
            quiet_since: Instant::now(),
            stopped: false,
            stays,
            asked: BTreeSet::new(),
            waiting: Vec::new(),
        })
    }
}

/// One way through an agent's output.
struct Follow<'a, 'b, C, P, W> {
    attempt: &'a Attempt<'b, C, P, W>,
    provider: &'a P,
    reading: Reading,
    items: mpsc::Sender<Item>,
    /// Nothing if the sandbox has ended and is only read.
    talk: Option<Talk<'a>>,
    /// Whether the sandbox is frozen: it prints nothing more, and does not end.
    frozen: bool,
    errors: u32,
}

impl<C: Port, P: Provider, W: Workspace> Follow<'_, '_, C, P, W> {
    async fn run(mut self, mut answers: Option<&mut Answers>) -> Result<Ended, Halt> {
        loop {
            let wait = match self.tend().await? {
                // What was printed before the freeze is there in a moment.
                _ if self.frozen => FROZEN,
                wait => wait,
            };
            let sandbox = self.attempt.fence.sandbox;
            let look = self.provider.attach(sandbox, self.reading.taken, READ, wait);
            tokio::select! {
                biased;
                Some(answer) = next_answer(answers.as_deref_mut()) => {
                    if let Some(talk) = &mut self.talk {
                        talk.waiting.push(answer);
                    }
                }
                output = look => if let Some(ended) = self.take(output).await? {
                    return Ok(ended);
                },
            }
        }
    }

    /// Takes what a look showed; the end, if it is one.
    async fn take(&mut self, output: belay_sandbox::Result<Output>) -> Result<Option<Ended>, Halt> {
        let output = match output {
            Ok(output) => output,
            Err(Error::Refused(Refusal::NotFound { .. })) => {
                return Err(Halt::failed(Cause::Lost, "the sandbox is not on this machine"));
            }
            Err(error) if self.errors < LOOKS => {
                tracing::warn!(who = ?self.attempt.assignment.who, error = chain(&error), "look");
                self.errors += 1;
                sleep(self.attempt.shared.config.limits.renewal_retry).await;
                return Ok(None);
            }
            Err(error) => return Err(Halt::failed(Cause::Infrastructure, chain(&error))),
        };
        self.errors = 0;
        let read: usize = output.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let abreast = read < READ / 2;
        let items: Vec<_> =
            output.chunks.iter().flat_map(|chunk| self.reading.take(chunk)).collect();
        if let Some(talk) = &self.talk {
            // What is handed on is durable when the reporter says so. What was durable before, and
            // is only read again after a restart, is handed on to nobody.
            if !items.is_empty() {
                talk.ticket.durable(false);
            }
            talk.ticket.abreast(abreast);
        }
        if !output.chunks.is_empty()
            && let Some(talk) = &mut self.talk
        {
            talk.quiet_since = Instant::now();
        }
        for item in items {
            hand(&self.items, item).await?;
        }
        let (at, exit, printed) = match &output.end {
            Some(end) => (end.at, exit_of(end), end.output_bytes),
            None if self.frozen && output.chunks.is_empty() => {
                (Timestamp::EPOCH, Exit::Ended, self.reading.taken)
            }
            None => return Ok(None),
        };
        let (judgement, items) = self.reading.finish(at, exit, printed);
        for item in items {
            hand(&self.items, item).await?;
        }
        let before = place(self.attempt, 0).before;
        let (printed, missing) = (printed.saturating_sub(before), self.reading.missing());
        Ok(Some(Ended { judgement, end: output.end, printed, missing }))
    }

    /// Does what is to be done between two looks, and says how long the next one may wait.
    async fn tend(&mut self) -> Result<Span, Halt> {
        let writes = std::mem::take(&mut self.reading.writes);
        let Some(talk) = &mut self.talk else { return Ok(LOOK) };
        for write in writes {
            let what = What::Write(write.number);
            if !talk.journal.has(&what) {
                let at = self.reading.reader.taken();
                let added = talk.journal.add(what, at, &write.bytes);
                added.map_err(|error| Halt::file(&error))?;
            }
        }
        talk.ticket.status(self.reading.status());
        let mut items = Vec::new();
        if self.reading.is_caught_up() {
            go_on(self.attempt, &mut self.reading, talk)?;
            hand_answers(self.attempt, &mut self.reading, talk, &mut items)?;
            ask_held(self.attempt, &self.reading, talk, &mut items);
        }
        for item in items {
            hand(&self.items, item).await?;
        }
        let left = self.write_stdin().await;
        let quiet = self.end_when_quiet().await?;
        Ok(left.min(quiet))
    }

    /// Writes what the journal has and the agent has not; says when to try again.
    async fn write_stdin(&mut self) -> Span {
        let Some(talk) = &mut self.talk else { return LOOK };
        let rest = &talk.journal.stdin()[talk.written..];
        let ends = talk.whole
            || match self.reading.reader.turn() {
                Turn::Ended(TurnEnd::Succeeded) => !talk.stays,
                Turn::Ended(TurnEnd::Failed(_)) => true,
                Turn::Waiting | Turn::Open => false,
            };
        if talk.closed || (rest.is_empty() && !ends) {
            return LOOK;
        }
        let part = &rest[..rest.len().min(STDIN_MOST)];
        let is_last = ends && part.len() == rest.len();
        let more = if is_last { More::Ends } else { More::Follows };
        let offset = match planted::is(Bug::AnsweredTwice) {
            true => after_all(self.provider, &self.attempt.fence).await,
            false => talk.written as u64,
        };
        match self.provider.write(&self.attempt.fence, offset, part, more).await {
            Ok(next) => {
                let end = talk.written + part.len();
                talk.written = usize::try_from(next).unwrap_or(usize::MAX).min(end);
                talk.closed = is_last && talk.written == end;
                let is_done = talk.written == talk.journal.stdin().len();
                if is_done && (talk.closed || !ends) { LOOK } else { STDIN_RETRY }
            }
            Err(Error::Refused(_)) => {
                // Closed, or ended: nothing can be written any more.
                talk.closed = true;
                LOOK
            }
            Err(_) => STDIN_RETRY,
        }
    }

    /// Ends an agent that said how its turn ended and stays, once it is quiet; says how long it may
    /// still be.
    async fn end_when_quiet(&mut self) -> Result<Span, Halt> {
        let Some(talk) = &mut self.talk else { return Ok(LOOK) };
        let Turn::Ended(end) = self.reading.reader.turn() else { return Ok(LOOK) };
        if talk.stopped || self.frozen {
            return Ok(LOOK);
        }
        let limits = &self.attempt.assignment.limits;
        let allowed = duration(limits.quiet_exit);
        let left = allowed.saturating_sub(talk.quiet_since.elapsed());
        if !left.is_zero() {
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            return Ok(LOOK.min(Span::from_millis(ms.max(1))));
        }
        if talk.stays && *end == TurnEnd::Succeeded {
            let attempt = self.attempt;
            attempt.say(|| attempt.shared.port.freezing(attempt.assignment.who)).await?;
            match self.provider.pause(&attempt.fence).await {
                Ok(()) => {
                    self.frozen = true;
                    return Ok(LOOK);
                }
                Err(error) => {
                    let who = self.attempt.assignment.who;
                    tracing::warn!(?who, error = chain(&error), "it cannot stay");
                    talk.stays = false;
                }
            }
        }
        match self.provider.stop(&self.attempt.fence, limits.stop_grace).await {
            Ok(_) => talk.stopped = true,
            Err(error) => {
                tracing::warn!(who = ?self.attempt.assignment.who, error = chain(&error), "stop");
            }
        }
        Ok(LOOK)
    }
}

/// Where standard input ends, for whoever does not go by what it has written itself.
async fn after_all<P: Provider>(provider: &P, fence: &Fence) -> u64 {
    provider.write(fence, 0, &[], More::Follows).await.unwrap_or(0)
}

/// Hands something to the reporter.
async fn hand(items: &mpsc::Sender<Item>, item: Item) -> Result<(), Halt> {
    // The reporter lets go of its end only with an error, which is then what both end with.
    items.send(item).await.map_err(|_| Halt::Refused("reports ended".into()))
}

/// The next answer; never one if there can be none.
async fn next_answer(answers: Option<&mut Answers>) -> Option<(QuestionId, String)> {
    match answers {
        Some(answers) => match answers.recv().await {
            Some(answer) => Some(answer),
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Goes on in a sandbox that was frozen, once: what the agent still asks is answered, and otherwise
/// another turn begins.
fn go_on<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
    reading: &mut Reading,
    talk: &mut Talk<'_>,
) -> Result<(), Halt> {
    let (assignment, who) = (attempt.assignment, attempt.assignment.who);
    let Some(thaw) = assignment.thaw.as_ref().filter(|_| !talk.journal.has_turn_of(who)) else {
        return Ok(());
    };
    let is_held = |id: &QuestionId| {
        reading.reader.questions().any(|question| {
            let round = talk.journal.refused(&question.key);
            attempt.question_id(&question.key.to_string(), round) == *id
        })
    };
    let answers: Vec<_> = thaw.answers.iter().filter(|(id, _)| is_held(id)).cloned().collect();
    let at = reading.reader.taken();
    if !answers.is_empty() {
        talk.waiting.extend(answers);
        let turn = What::Turn { who, prompt: None };
        // It is recorded after the answers are: without it they are given again.
        hand_answers(attempt, reading, talk, &mut Vec::new())?;
        return talk.journal.add(turn, at, &[]).map_err(|error| Halt::file(&error));
    }
    let prompt = assignment.prompt.next.clone();
    let Some(bytes) = reading.reader.next_turn(&prompt) else {
        let why = "the agent that was kept takes no further turn";
        return Err(Halt::failed(Cause::Infrastructure, why));
    };
    let turn = What::Turn { who, prompt: Some(prompt) };
    talk.quiet_since = Instant::now();
    talk.journal.add(turn, at, &bytes).map_err(|error| Halt::file(&error))
}

/// Hands the answers that came to the reader, and to the journal for the agent. An answer that the
/// agent could not understand becomes a question again.
fn hand_answers<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
    reading: &mut Reading,
    talk: &mut Talk<'_>,
    items: &mut Vec<Item>,
) -> Result<(), Halt> {
    for (id, text) in std::mem::take(&mut talk.waiting) {
        let named = |question: &&belay_agent::Question| {
            let round = talk.journal.refused(&question.key);
            attempt.question_id(&question.key.to_string(), round) == id
        };
        let held = reading.reader.questions().find(named).map(|question| question.key.clone());
        if let Some(key) = held {
            let at = reading.reader.taken();
            let added = match reading.reader.answer(&key, &text) {
                Ok(bytes) => talk.journal.add(What::Answer { key, text }, at, &bytes),
                Err(AnswerRefusal::NotAnOption) => talk.journal.add(What::Refused { key }, at, &[]),
                Err(AnswerRefusal::NotHeld) => Ok(()),
            };
            added.map_err(|error| Halt::file(&error))?;
        }
        // What is not held any more was answered before, or needs no answer.
        items.push(Item::Delivered(id));
    }
    Ok(())
}

/// Asks what the agent holds open and was not asked yet.
fn ask_held<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
    reading: &Reading,
    talk: &mut Talk<'_>,
    items: &mut Vec<Item>,
) {
    for question in reading.reader.questions() {
        let round = talk.journal.refused(&question.key);
        let id = attempt.question_id(&question.key.to_string(), round);
        if talk.asked.insert(id) {
            let text = match round {
                0 => question.text.to_string(),
                _ => format!("Please answer with one of the options. {}", question.text),
            };
            let secrets = &reading.secrets;
            let options = question.options.iter().map(|option| secrets.text(option)).collect();
            let asked = Asked { question: id, text: secrets.text(&text), options, held: true };
            items.push(Item::Ask(asked));
        }
    }
}

/// How the agent's process ended, in the words of its adapter.
const fn exit_of(end: &End) -> Exit {
    match (end.reason, end.exit) {
        (EndReason::Stopped, _) => Exit::Ended,
        (EndReason::Exited | EndReason::StartFailed, belay_sandbox::Exit::Code(code)) => {
            Exit::Code(code)
        }
        (EndReason::Exited | EndReason::StartFailed, belay_sandbox::Exit::Signal(signal)) => {
            Exit::Signal(signal)
        }
        (
            EndReason::Exited | EndReason::StartFailed | EndReason::LeaseOver | EndReason::ShimLost,
            _,
        ) => Exit::Unseen,
    }
}

//! What an agent asks a person through the server, and how it gets its answer.
//!
//! ```text
//!  ask ──► the same words as a question whose answer is not handed over? ──► that question
//!   │                                                     else ──► a new one, in its turn
//!   ▼
//!  held ──answer──► answered ──the agent has it──► handed over
//! ```
//!
//! Connections break and agents ask again, so a question is known by its words: as long as its
//! answer was not handed over, whoever asks the same in the same attempt is given the same
//! question. Once it was, the same words are a new question: nobody's yes is used twice.

use std::time::Duration;

use belay_api::port::{Asked, Who};
use belay_api::{Asking, Code, NewQuestion, Principal, Problem};
use belay_kernel::fence::{self, Intent};
use belay_kernel::{QuestionId, question};
use belay_store::blob::BlobHash;
use belay_store::rows::{AttemptRow, QuestionRow};
use belay_store::{Commit, NewEvent, Request, Store};
use serde_json::json;
use tokio::time::Instant;

use crate::Control;
use crate::refuse::{Outcome, Refused};

/// How often the rows are looked at where no event says that they changed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often the same words are taken for a new question in one attempt.
const ROUNDS: u32 = 1_000;

/// Where a question of these words stands.
enum Known {
    /// It is to be put, or put again, under this id.
    Open(QuestionId),
    /// It is answered, and the agent does not have the answer yet.
    Answered(QuestionId, String),
}

impl<S: Store> Control<S> {
    /// Puts a question of the agent that speaks, in its turn, and says how it stands.
    pub async fn ask_person(&self, speaker: Who, question: NewQuestion) -> Result<Asking, Problem> {
        Ok(self.put_question(speaker, question).await?)
    }

    async fn put_question(&self, speaker: Who, ask: NewQuestion) -> Outcome<Asking> {
        if let Err(denial) = question::check(&ask.text, &ask.options) {
            return Err(Refused::new(Code::BadRequest, denial.to_string()));
        }
        self.still_acts(speaker).await?;
        let ask = self.masked_question(speaker, ask).await?;
        let id = match self.known_by_words(speaker, &ask).await? {
            Known::Answered(id, answer) => {
                return Ok(Asking { question: Some(id), answer: Some(answer) });
            }
            Known::Open(id) => id,
        };
        let NewQuestion { text, options } = ask;
        match self.take_question(speaker, Asked { question: id, text, options, held: true }).await {
            Ok(()) => Ok(Asking { question: Some(id), answer: None }),
            // Another question of the same attempt is open: this one is put when that is answered.
            Err(Refused::Problem(problem)) if problem.code == Code::Refused => {
                Ok(Asking { question: None, answer: None })
            }
            Err(refused) => Err(refused),
        }
    }

    /// How a question of the attempt that speaks stands: at once if it is answered, else after at
    /// most `wait`.
    pub async fn await_answer(
        &self,
        speaker: Who,
        question: QuestionId,
        wait: Duration,
    ) -> Result<Asking, Problem> {
        Ok(self.answer_of(speaker, question, Instant::now() + wait).await?)
    }

    async fn answer_of(&self, speaker: Who, id: QuestionId, until: Instant) -> Outcome<Asking> {
        loop {
            let cursor = self.store().latest().await?;
            // First the fence: an attempt that was stopped is told nothing more.
            self.still_acts(speaker).await?;
            let row = self.own_question(speaker, id).await?;
            let answer = row.answer.map(|answer| answer.to_string());
            if answer.is_some() || !self.wait_for_events(cursor, until).await {
                return Ok(Asking { question: Some(id), answer });
            }
        }
    }

    /// The agent has the answer: the same words are a new question from now on.
    pub async fn handed_over(&self, speaker: Who, question: QuestionId) -> Result<(), Problem> {
        Ok(self.note_handed_over(speaker, question).await?)
    }

    async fn note_handed_over(&self, speaker: Who, id: QuestionId) -> Outcome<()> {
        self.still_acts(speaker).await?;
        if self.own_question(speaker, id).await?.answer.is_none() {
            return Err(Refused::new(Code::IllegalMove, "the question is not answered yet"));
        }
        let now = self.now().await?;
        let request = Request {
            principal: principal(speaker),
            key: handed(id),
            body_hash: BlobHash::of(b"handed over").to_string(),
            answer: String::new(),
            at: now,
        };
        let body = json!({ "question": id }).to_string();
        let event = NewEvent {
            attempt: Some(speaker.attempt),
            ..NewEvent::task(speaker.task, "task.answer_handed_over", body, now)
        };
        self.put(Commit::new().event(event).request(request).into()).await?;
        self.inner.mailboxes.note_delivered(speaker, id);
        Ok(())
    }

    /// The question that these words stand for now.
    async fn known_by_words(&self, speaker: Who, ask: &NewQuestion) -> Outcome<Known> {
        for round in 0..ROUNDS {
            let id = id_of(speaker, ask, round);
            let row = self.row::<QuestionRow>(id).await?;
            let Some(answer) = row.and_then(|row| row.row.answer) else {
                return Ok(Known::Open(id));
            };
            if self.store().answered(&principal(speaker), &handed(id)).await?.is_none() {
                return Ok(Known::Answered(id, answer.to_string()));
            }
        }
        let detail = format!("the same question was asked {ROUNDS} times in this attempt");
        Err(Refused::new(Code::Refused, detail))
    }

    async fn own_question(&self, speaker: Who, id: QuestionId) -> Outcome<QuestionRow> {
        let own = |row: &QuestionRow| (row.task, row.attempt) == (speaker.task, speaker.attempt);
        let row = self.row::<QuestionRow>(id).await?.map(|stored| stored.row).filter(own);
        row.ok_or_else(|| {
            Refused::new(Code::NotFound, format!("this attempt asked no question {id}"))
        })
    }

    /// Refuses an attempt that may not act any more.
    pub(crate) async fn still_acts(&self, speaker: Who) -> Outcome<()> {
        let row = self.row::<AttemptRow>((speaker.task, speaker.attempt)).await?;
        let row = row.ok_or(Refused::Fenced)?;
        Ok(fence::admit(&row.row.attempt, speaker.attempt, speaker.epoch, Intent::Act)?)
    }

    /// Waits until something happened or a moment passed; false once `until` is over.
    async fn wait_for_events(&self, cursor: belay_store::Cursor, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let patience = left.min(LOOK_AGAIN);
        let awaited = self.store().await_events(cursor, patience);
        let _ = tokio::time::timeout(patience, awaited).await;
        true
    }

    async fn masked_question(&self, speaker: Who, ask: NewQuestion) -> Outcome<NewQuestion> {
        let mask = self.mask_of(speaker).await?;
        let options = ask.options.iter().map(|option| mask.text(option)).collect();
        Ok(NewQuestion { text: mask.text(&ask.text), options })
    }
}

/// The name under which an attempt's requests are known again.
pub(crate) fn principal(speaker: Who) -> String {
    Principal::attempt(speaker).name().to_owned()
}

fn handed(id: QuestionId) -> String {
    format!("handed over {id}")
}

/// The id of a question: the same for the same words, until they are a new question.
fn id_of(speaker: Who, ask: &NewQuestion, round: u32) -> QuestionId {
    let said = json!([speaker.task, speaker.attempt, "said", round, ask.text, ask.options]);
    let digits = BlobHash::of(said.to_string().as_bytes()).to_string();
    let bits = digits.get(..32).and_then(|digits| u128::from_str_radix(digits, 16).ok());
    QuestionId::from_bits(bits.unwrap_or_default())
}

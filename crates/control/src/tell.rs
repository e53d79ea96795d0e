//! What an agent tells through the server: how far it is, and what came of its work. Both are
//! evidence of work; neither can be told by an attempt that may not act any more.

use belay_agent::{Clip, Detail};
use belay_api::port::{Report, Seen, Who};
use belay_api::{
    Ask, Code, PROGRESS_LIMIT, Problem, Progress, ProgressView, RESULT_LIMIT, Submission,
};
use belay_kernel::EventKind;
use belay_kernel::fence::Intent;
use belay_store::rows::{RemarkRow, Speaker};
use belay_store::{MAX_BATCH, Query, Store, Stored};

use crate::Control;
use crate::ask::principal;
use crate::commit::Put;
use crate::look::TRIES;
use crate::refuse::{Outcome, Refused};
use crate::report::admitted;

impl<S: Store> Control<S> {
    /// The agent that speaks tells how far it is.
    pub async fn report_progress(&self, speaker: Who, said: Progress) -> Result<(), Problem> {
        let text = checked(&said.text, PROGRESS_LIMIT, "a report of progress")?;
        let text = match said.percent {
            Some(percent) if percent > 100 => {
                let detail = format!("{percent} is no part of 100");
                return Err(Problem::new(Code::BadRequest, detail));
            }
            Some(percent) => format!("{percent} %: {text}"),
            None => text.to_owned(),
        };
        Ok(self.note(speaker, "agent.progress", Speaker::Belay, &text).await?)
    }

    /// The agent that speaks tells what came of its work. What it told last counts.
    pub async fn submit_result(&self, speaker: Who, result: Submission) -> Result<(), Problem> {
        let text = checked(&result.text, RESULT_LIMIT, "a result")?;
        Ok(self.note(speaker, "agent.result", Speaker::Agent, text).await?)
    }

    /// Keeps one remark of the attempt that speaks, in place of the one before, with its event.
    async fn note(&self, speaker: Who, kind: &str, by: Speaker, text: &str) -> Outcome<()> {
        let text = self.mask_of(speaker).await?.text(text);
        let detail = serde_json::to_value(Detail::Text(Clip::of(&text))).unwrap_or_default();
        // A key of our own: the same words may be told again later, and count again.
        let asked = self.asked(Ask::by(principal(speaker)), &text);
        for _ in 0..TRIES {
            let look = self.look_at(speaker.task, Some(speaker.attempt)).await?;
            let from = admitted(&look, speaker, Intent::Act)?.row.transcript_length;
            let before = self.remark(speaker, by).await?;
            let number = match &before {
                Some(before) => before.row.number,
                None => self.next_remark(speaker.task).await?,
            };
            let row = RemarkRow {
                task: speaker.task,
                number,
                attempt: Some(speaker.attempt),
                speaker: by,
                text: text.as_str().into(),
                said_at: look.now,
            };
            let seen = Seen::Event { kind: EventKind::from_name(kind), detail: detail.clone() };
            let report = Report { from, bytes: Vec::new(), seen: vec![seen] };
            let draft = self.observed(&look, speaker, &report, from);
            let draft = draft.with(|commit| match &before {
                Some(before) => commit.update(before.revision, &row),
                None => commit.insert(&row),
            });
            let request = asked.request(speaker.task, look.now);
            let draft = draft.with(|commit| commit.request(request));
            if self.try_put(draft).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// The result that an attempt has submitted, if it has.
    pub(crate) async fn told_result(&self, who: Who) -> Outcome<Option<Stored<RemarkRow>>> {
        self.remark(who, Speaker::Agent).await
    }

    async fn remark(&self, who: Who, by: Speaker) -> Outcome<Option<Stored<RemarkRow>>> {
        let remarks = self.all(Query::<RemarkRow>::first(MAX_BATCH).task(&[who.task])).await?;
        let wanted = |row: &RemarkRow| row.attempt == Some(who.attempt) && row.speaker == by;
        Ok(remarks.into_iter().find(|stored| wanted(&stored.row)))
    }
}

/// What a remark says of progress, if it does: it is Belay's own note of an attempt.
pub(crate) fn progress_view(row: &RemarkRow) -> Option<ProgressView> {
    let attempt = row.attempt.filter(|_| row.speaker == Speaker::Belay)?;
    Some(ProgressView { attempt, text: row.text.to_string(), at: row.said_at })
}

fn checked<'a>(text: &'a str, limit: usize, what: &str) -> Result<&'a str, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Problem::new(Code::BadRequest, format!("{what} says something; it is empty")));
    }
    if text.len() > limit {
        let detail = format!("{what} has at most {limit} bytes; this one has {}", text.len());
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Ok(text)
}

//! What an agent tells through the server: how far it is, and what came of its work. Both are
//! evidence of work; neither can be told by an attempt that may not act any more.

use belay_agent::{Agent, Clip, Detail};
use belay_api::port::{Report, Seen, Who};
use belay_api::{
    ATTEMPT_TOKEN, Ask, Code, PROGRESS_LIMIT, Problem, Progress, ProgressView, RESULT_LIMIT,
    Submission,
};
use belay_kernel::EventKind;
use belay_kernel::fence::Intent;
use belay_store::rows::{RemarkRow, Speaker};
use belay_store::{MAX_BATCH, Query, Store, Stored};
use serde_json::Value;

use crate::Control;
use crate::ask::principal;
use crate::commit::Put;
use crate::look::{Look, TRIES};
use crate::refuse::{Outcome, Refused};
use crate::report::admitted;

/// What is shorter is no secret, and masking it would hide ordinary words.
const SHORTEST_SECRET: usize = 8;

/// The values that are masked in what an attempt's agent says.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// A JSON document without them. One with escapes is read first: a secret may be spelt in
    /// several ways.
    pub(crate) fn masked_json(&self, json: &str) -> String {
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) if json.contains('\\') => {
                self.mask_value(&mut value);
                value.to_string()
            }
            Ok(_) | Err(_) => self.masked(json),
        }
    }

    fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.masked(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_value(value)),
            Value::Object(fields) => {
                for (name, mut value) in std::mem::take(fields) {
                    self.mask_value(&mut value);
                    fields.insert(self.masked(&name), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The text without them, and without anything that looks like an attempt's token.
    pub(crate) fn masked(&self, text: &str) -> String {
        let mut text = text.replace('\0', " ");
        for secret in &self.0 {
            text = text.replace(secret, &"*".repeat(secret.len()));
        }
        let mut masked = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(ATTEMPT_TOKEN) {
            masked.push_str(&rest[..at]);
            let part_of_token = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = rest[at..].find(|c| !part_of_token(c)).map_or(rest.len(), |end| at + end);
            masked.push_str(&"*".repeat(end - at));
            rest = &rest[end..];
        }
        masked + rest
    }
}

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
        let text = self.secrets_of(speaker).await?.masked(text);
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
            match self.put(draft).await {
                Ok(Put::Done) => return Ok(()),
                Ok(Put::Overtaken) | Err(Refused::Failed(belay_store::Failure::Unknown)) => {}
                Err(refused) => return Err(refused),
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

    /// The values that are masked in what this attempt's agent says.
    pub(crate) async fn secrets_of(&self, who: Who) -> Outcome<Secrets> {
        let look = self.look_at(who.task, Some(who.attempt)).await?;
        self.secrets_in(&look)
    }

    /// The same, of an attempt that was looked at.
    pub(crate) fn secrets_in(&self, look: &Look) -> Outcome<Secrets> {
        let name = look.spec.agent.as_deref().unwrap_or(&self.settings().agent);
        let agent = name.parse::<Agent>().unwrap_or(Agent::Command);
        let role = self.settings().role(look.task.row.role.as_str());
        let variables = self.environment(look, name, &role.environment)?;
        let secret = variables.into_iter().filter(|(name, _)| agent.is_secret(name));
        let values = secret.map(|(_, value)| value.trim().to_owned());
        Ok(Secrets(values.filter(|value| value.len() >= SHORTEST_SECRET).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_tokens_are_masked() {
        let secrets = Secrets(vec!["sk-secret-1".into()]);
        let token = format!("{ATTEMPT_TOKEN}abc_1_00ff");
        let text = format!("key sk-secret-1, token {token}, and {ATTEMPT_TOKEN}");
        let masked = secrets.masked(&text);
        assert!(!masked.contains("secret") && !masked.contains("belay_attempt"), "{masked}");
        assert!(masked.starts_with("key ***********, token *"), "{masked}");
        assert_eq!(masked.len(), text.len());
        assert_eq!(secrets.masked("nothing to hide"), "nothing to hide");
    }

    #[test]
    fn secrets_are_masked_however_json_spells_them() {
        let secrets = Secrets(vec!["say \"open\" now".into(), "sk-secret-1".into()]);
        let json = r#"{"sk-secret-1":"x \u0073k-secret-1","a":["say \"open\" now",1]}"#;
        assert_eq!(
            secrets.masked_json(json),
            r#"{"***********":"x ***********","a":["**************",1]}"#
        );
        assert_eq!(secrets.masked_json(r#"{"b":"sk-secret-1"}"#), r#"{"b":"***********"}"#);
        assert_eq!(secrets.masked_json("sk-secret-1 is no JSON"), "*********** is no JSON");
    }
}

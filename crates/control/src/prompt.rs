//! What an agent is told: the prompt, and the thread so far.
//!
//! Two texts are made of the same thread. A conversation that goes on is told only what is new
//! since the agent spoke last; a new conversation is told everything, because the agent that reads
//! it knows nothing.

use std::fmt::Write as _;

use belay_api::port::Prompt;
use belay_kernel::{AttemptNumber, Timestamp};
use belay_store::rows::{QuestionRow, RemarkRow, Speaker};

/// What a thread is made of.
pub(crate) struct Thread<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) questions: &'a [QuestionRow],
    pub(crate) remarks: &'a [RemarkRow],
    /// The attempt that is to run.
    pub(crate) attempt: AttemptNumber,
    /// When the last attempt before it was claimed; nothing, if it is the first.
    pub(crate) last_claimed: Option<Timestamp>,
}

/// One thing that was said.
struct Said {
    at: Timestamp,
    text: String,
    agent: bool,
}

impl Thread<'_> {
    /// Both texts.
    pub(crate) fn compose(&self) -> Prompt {
        let mut said: Vec<Said> = Vec::new();
        for question in self.questions {
            said.push(line(question.asked_at, format!("You asked: {}", &*question.text), true));
            if let (Some(answer), Some(at)) = (&question.answer, question.answered_at) {
                said.push(line(at, format!("The answer: {}", &**answer), false));
            }
        }
        for remark in self.remarks {
            let (agent, who) = match (remark.speaker, remark.attempt) {
                (Speaker::Person, _) => (false, "The reviewer says"),
                (Speaker::Agent, _) => (true, "You reported"),
                // Belay's note of how far the agent said it was.
                (Speaker::Belay, Some(_)) => (true, "Your last report of progress"),
                (Speaker::Belay, None) => (false, "Belay says"),
            };
            said.push(line(remark.said_at, format!("{who}: {}", &*remark.text), agent));
        }
        said.sort_by_key(|one| one.at);
        let new = |one: &&Said| !one.agent && self.last_claimed.is_none_or(|at| one.at >= at);
        let next: Vec<_> = said.iter().filter(new).map(|one| one.text.as_str()).collect();
        let next = match next.is_empty() {
            true => "Go on with the task where you were.".to_owned(),
            false => next.join("\n\n"),
        };
        Prompt { whole: self.whole(&said), next }
    }

    fn whole(&self, said: &[Said]) -> String {
        let mut whole = self.prompt.to_owned();
        if self.last_claimed.is_none() && said.is_empty() {
            return whole;
        }
        whole.push_str("\n\n---\n");
        if self.last_claimed.is_some() {
            let text = "The working tree is as the last one left it.";
            let _ = writeln!(whole, "This is attempt {}. {text}", self.attempt);
        }
        for one in said {
            let _ = write!(whole, "\n{}\n", one.text);
        }
        whole
    }
}

const fn line(at: Timestamp, text: String, agent: bool) -> Said {
    Said { at, text, agent }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_kernel::{QuestionId, TaskId};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn question(answer: Option<&str>) -> QuestionRow {
        QuestionRow {
            id: QuestionId::from_bits(1),
            task: TaskId::from_bits(2),
            attempt: AttemptNumber(1),
            text: "Tabs or spaces?".into(),
            options: Default::default(),
            asked_at: at(20),
            answer: answer.map(Into::into),
            answered_by: None,
            answered_at: answer.map(|_| at(30)),
        }
    }

    #[test]
    fn a_first_attempt_is_told_the_prompt_and_nothing_else() {
        let thread = Thread {
            prompt: "Mend it.",
            questions: &[],
            remarks: &[],
            attempt: AttemptNumber(1),
            last_claimed: None,
        };
        assert_eq!(thread.compose().whole, "Mend it.");
    }

    #[test]
    fn a_conversation_that_goes_on_is_told_only_the_answer() {
        let thread = Thread {
            prompt: "Mend it.",
            questions: &[question(Some("spaces"))],
            remarks: &[],
            attempt: AttemptNumber(2),
            last_claimed: Some(at(10)),
        };
        let prompt = thread.compose();
        assert_eq!(prompt.next, "The answer: spaces");
        assert!(prompt.whole.starts_with("Mend it."));
        assert!(prompt.whole.contains("You asked: Tabs or spaces?\n\nThe answer: spaces"));
    }

    #[test]
    fn what_was_answered_before_the_last_attempt_is_not_said_again() {
        let thread = Thread {
            prompt: "Mend it.",
            questions: &[question(Some("spaces"))],
            remarks: &[],
            attempt: AttemptNumber(3),
            last_claimed: Some(at(40)),
        };
        assert_eq!(thread.compose().next, "Go on with the task where you were.");
    }
}

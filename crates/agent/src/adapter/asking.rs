//! Several questions at once, as Claude Code and Codex ask them, as one question of Belay; and one
//! answer of a person as the answers to all of them.

use serde::Deserialize;

use crate::field::Str;
use crate::observation::{Question, QuestionKey};
use crate::reader::option_named;

/// What the agent asks at once.
#[derive(Deserialize, Default)]
pub(crate) struct Asked<'a> {
    #[serde(borrow, default)]
    pub(crate) questions: Vec<OneQuestion<'a>>,
}

/// One of the questions.
#[derive(Deserialize)]
pub(crate) struct OneQuestion<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Str<'a>,
    #[serde(borrow, default)]
    pub(crate) question: Str<'a>,
    #[serde(borrow, default)]
    options: Option<Vec<AskedOption<'a>>>,
}

#[derive(Deserialize)]
struct AskedOption<'a> {
    #[serde(borrow, default)]
    label: Str<'a>,
}

impl OneQuestion<'_> {
    fn labels(&self) -> Vec<Box<str>> {
        let options = self.options.iter().flatten();
        options.filter_map(|option| option.label.get().map(Into::into)).collect()
    }
}

impl Asked<'_> {
    /// One question for all of them. Several are numbered, and the lines of the answer answer them
    /// in order.
    pub(crate) fn as_one(&self, key: QuestionKey) -> Question {
        let (text, options) = match &self.questions[..] {
            [only] => (only.question.or_empty().to_owned(), only.labels()),
            several => {
                let numbered = several.iter().enumerate().map(|(index, asked)| {
                    let options = asked.labels().join(" / ");
                    format!("{}. {} ({options})", index + 1, asked.question.or_empty())
                });
                (numbered.collect::<Vec<_>>().join("\n"), Vec::new())
            }
        };
        Question { key, text: text.into(), options, closed: false }
    }
}

/// The answer to each of `count` questions that were put as one.
pub(crate) fn split_answer(question: &Question, answer: &str, count: usize) -> Vec<String> {
    if let Some(index) = option_named(question, answer) {
        return vec![question.options[index].to_string(); count];
    }
    let lines: Vec<&str> = answer.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() == count {
        lines.into_iter().map(|line| line.trim().to_owned()).collect()
    } else {
        vec![answer.to_owned(); count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(json: &str) -> Question {
        let asked: Asked<'_> = serde_json::from_str(json).unwrap();
        asked.as_one(QuestionKey("k".into()))
    }

    #[test]
    fn one_question_keeps_its_options() {
        let question = asked(
            r#"{"questions":[{"question":"Which?","options":[{"label":"Blue"},{"label":"Red"}]}]}"#,
        );
        assert_eq!(&*question.text, "Which?");
        assert_eq!(split_answer(&question, "blue", 1), ["Blue"], "by its name");
        assert_eq!(split_answer(&question, "2", 1), ["Red"], "by its number");
        assert_eq!(split_answer(&question, "neither", 1), ["neither"], "in own words");
    }

    #[test]
    fn several_questions_are_numbered_and_answered_line_by_line() {
        let question = asked(
            r#"{"questions":[{"question":"A?","options":[{"label":"x"}]},{"question":"B?"}]}"#,
        );
        assert_eq!(&*question.text, "1. A? (x)\n2. B? ()");
        assert_eq!(split_answer(&question, "yes\n no \n", 2), ["yes", "no"]);
        assert_eq!(split_answer(&question, "as you like", 2), ["as you like", "as you like"]);
    }
}

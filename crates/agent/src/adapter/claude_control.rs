//! Claude Code's control protocol: requests that it makes of us beside its stream, and the one that
//! we make of it. `AskUserQuestion` is held open here until a person answers; other tools are
//! allowed, or become questions, as the launch said.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::adapter::asking::{Asked, split_answer};
use crate::field::{Part, Str, raw, read};
use crate::notes::Notes;
use crate::observation::{Clip, Question, QuestionKey};
use crate::reader::option_named;

/// How many requests are held open at once; more are refused.
const HELD_LIMIT: usize = 64;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    subtype: Str<'a>,
    #[serde(borrow, default)]
    tool_name: Str<'a>,
    #[serde(borrow, default)]
    input: Part<'a>,
    #[serde(borrow, default)]
    tool_use_id: Str<'a>,
}

struct Held {
    tool_use_id: Box<str>,
    input: Value,
    /// The texts of the questions, for `AskUserQuestion`; nothing for a permission.
    asked: Option<Vec<String>>,
}

pub(crate) struct Control {
    allows_all: bool,
    held: BTreeMap<QuestionKey, Held>,
    interrupts: u32,
}

impl Control {
    pub(crate) const fn new(allows_all: bool) -> Self {
        Self { allows_all, held: BTreeMap::new(), interrupts: 0 }
    }

    /// Claude Code asks something of us.
    pub(crate) fn request(&mut self, id: &str, request: Part<'_>, notes: &mut Notes<'_>) {
        let request: Option<Request<'_>> = read(request);
        let Some(request) = request.filter(|request| request.subtype.get() == Some("can_use_tool"))
        else {
            // Hooks and in-process MCP servers are not registered, so nothing else is expected.
            notes.unknown("control_request");
            let refusal = json!({"subtype": "error", "request_id": id, "error": "not supported"});
            return notes.write(line(&json!({"type": "control_response", "response": refusal})));
        };
        let input: Value = read(request.input).unwrap_or(Value::Null);
        let tool = request.tool_name.or_empty();
        let asks = tool == "AskUserQuestion";
        if self.held.len() >= HELD_LIMIT {
            return notes.write(deny(id, "too many questions are open"));
        }
        if self.allows_all && !asks {
            return notes.write(allow(id, &input));
        }
        let key = QuestionKey(id.into());
        let (question, asked) = if asks {
            let asked: Asked<'_> = read(request.input).unwrap_or_default();
            let texts = asked.questions.iter().map(|one| one.question.or_empty().to_owned());
            (asked.as_one(key.clone()), Some(texts.collect()))
        } else {
            (permission(&key, tool, raw(request.input)), None)
        };
        let tool_use_id = request.tool_use_id.or_empty().into();
        self.held.insert(key, Held { tool_use_id, input, asked });
        notes.question(question);
    }

    /// Claude Code takes a request back.
    pub(crate) fn cancel(&mut self, id: &str, notes: &mut Notes<'_>) {
        let key = QuestionKey(id.into());
        self.held.remove(&key);
        notes.question_closed(&key);
    }

    /// The tool call that a request was about is over, so the request is too.
    pub(crate) fn tool_over(&mut self, tool_use_id: &str, notes: &mut Notes<'_>) {
        let of_tool = self.held.iter().find(|(_, held)| &*held.tool_use_id == tool_use_id);
        if let Some(key) = of_tool.map(|(key, _)| key.clone()) {
            self.held.remove(&key);
            notes.question_closed(&key);
        }
    }

    pub(crate) fn answer(&mut self, question: &Question, answer: &str) -> Option<Vec<u8>> {
        let mut held = self.held.remove(&question.key)?;
        let id = &*question.key.0;
        let chosen = option_named(question, answer);
        match held.asked {
            Some(texts) if held.input.is_object() => {
                let answers = split_answer(question, answer, texts.len());
                let by_text: Map<String, Value> =
                    texts.into_iter().zip(answers.into_iter().map(Value::from)).collect();
                held.input["answers"] = by_text.into();
                Some(allow(id, &held.input))
            }
            Some(_) => Some(deny(id, answer)),
            None if chosen == Some(0) => Some(allow(id, &held.input)),
            None => Some(deny(id, answer)),
        }
    }

    pub(crate) fn interrupt(&mut self) -> Vec<u8> {
        self.interrupts += 1;
        line(&json!({
            "type": "control_request",
            "request_id": format!("belay-interrupt-{}", self.interrupts),
            "request": {"subtype": "interrupt"},
        }))
    }
}

fn permission(key: &QuestionKey, tool: &str, input: &str) -> Question {
    let clip = Clip::of(input).text;
    let text = format!("May the agent use {tool} with {clip}?").into();
    Question { key: key.clone(), text, options: vec!["Allow".into(), "Deny".into()], closed: false }
}

fn allow(id: &str, input: &Value) -> Vec<u8> {
    respond(id, &json!({"behavior": "allow", "updatedInput": input}))
}

fn deny(id: &str, message: &str) -> Vec<u8> {
    respond(id, &json!({"behavior": "deny", "message": message}))
}

fn respond(id: &str, response: &Value) -> Vec<u8> {
    let response = json!({"subtype": "success", "request_id": id, "response": response});
    line(&json!({"type": "control_response", "response": response}))
}

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

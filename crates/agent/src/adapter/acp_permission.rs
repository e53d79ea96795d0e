//! Permissions that an ACP agent asks for: given at once, or held as questions.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::adapter::rpc;
use crate::field::{Part, Str, read};
use crate::launch::Permissions;
use crate::notes::Notes;
use crate::observation::{Clip, Question, QuestionKey};
use crate::reader::option_named;

/// How many requests are held open at once; more are refused.
const HELD_LIMIT: usize = 64;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(rename = "toolCall", borrow, default)]
    tool_call: Part<'a>,
    #[serde(borrow, default)]
    options: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(rename = "optionId", borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    name: Str<'a>,
    #[serde(borrow, default)]
    kind: Str<'a>,
}

#[derive(Deserialize, Default)]
struct ToolCall<'a> {
    #[serde(rename = "toolCallId", borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    title: Str<'a>,
}

struct Held {
    tool: Box<str>,
    /// The ids of the options, in the order of the question's.
    ids: Vec<String>,
}

pub(crate) struct Permission {
    permissions: Permissions,
    held: BTreeMap<QuestionKey, Held>,
}

impl Permission {
    pub(crate) const fn new(permissions: Permissions) -> Self {
        Self { permissions, held: BTreeMap::new() }
    }

    pub(crate) fn request(&mut self, id: &str, params: Part<'_>, notes: &mut Notes<'_>) {
        let request: Option<Request<'_>> = read(params);
        let Some(request) = request.filter(|_| self.held.len() < HELD_LIMIT) else {
            return notes.write(cancelled(id));
        };
        if self.permissions == Permissions::All {
            // A lasting permission first: it saves the next question.
            let allows = ["allow_always", "allow_once"];
            let best = allows.iter().find_map(|kind| {
                request.options.iter().find(|option| option.kind.get() == Some(kind))
            });
            let answer =
                best.map_or_else(|| cancelled(id), |option| selected(id, option.id.or_empty()));
            return notes.write(answer);
        }
        let tool: ToolCall<'_> = read(request.tool_call).unwrap_or_default();
        let ids = request.options.iter().map(|option| option.id.or_empty().to_owned()).collect();
        let key = QuestionKey(id.into());
        self.held.insert(key.clone(), Held { tool: tool.id.or_empty().into(), ids });
        let title = Clip::of(tool.title.get().unwrap_or("a tool")).text;
        notes.question(Question {
            key,
            text: format!("May the agent do this: {title}?").into(),
            options: request.options.iter().map(|option| option.name.or_empty().into()).collect(),
            closed: true,
        });
    }

    /// The tool that a permission was asked for goes on without our answer.
    pub(crate) fn tool_moved(&mut self, tool: &str, notes: &mut Notes<'_>) {
        let of_tool = self.held.iter().find(|(_, held)| &*held.tool == tool);
        if let Some(key) = of_tool.map(|(key, _)| key.clone()) {
            self.held.remove(&key);
            notes.question_closed(&key);
        }
    }

    pub(crate) fn answer(&mut self, question: &Question, answer: &str) -> Option<Vec<u8>> {
        let held = self.held.remove(&question.key)?;
        let id = held.ids.get(option_named(question, answer)?)?;
        Some(selected(&question.key.0, id))
    }
}

fn selected(id: &str, option: &str) -> Vec<u8> {
    outcome(id, &json!({"outcome": "selected", "optionId": option}))
}

fn cancelled(id: &str) -> Vec<u8> {
    outcome(id, &json!({"outcome": "cancelled"}))
}

fn outcome(id: &str, outcome: &Value) -> Vec<u8> {
    rpc::response(id, &json!({"outcome": outcome}))
}

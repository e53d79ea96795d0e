//! What Codex asks of us: questions of its own, and approvals. They are held open until answered.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::adapter::asking::{Asked, split_answer};
use crate::adapter::rpc;
use crate::field::{Part, Str, raw, read};
use crate::launch::Permissions;
use crate::notes::Notes;
use crate::observation::{Clip, Question, QuestionKey};
use crate::reader::option_named;

/// How many requests are held open at once; more are refused.
const HELD_LIMIT: usize = 64;

enum Held {
    /// The ids of the questions.
    Questions(Vec<String>),
    /// A command or a change to be approved.
    Approval,
}

pub(crate) struct Ask {
    permissions: Permissions,
    held: BTreeMap<QuestionKey, Held>,
}

impl Ask {
    pub(crate) const fn new(permissions: Permissions) -> Self {
        Self { permissions, held: BTreeMap::new() }
    }

    pub(crate) fn request(
        &mut self,
        id: &str,
        method: &str,
        params: Part<'_>,
        notes: &mut Notes<'_>,
    ) {
        let key = QuestionKey(id.into());
        if self.held.len() >= HELD_LIMIT {
            return notes.write(rpc::refusal(id, method));
        }
        match method {
            "item/tool/requestUserInput" => {
                let asked: Asked<'_> = read(params).unwrap_or_default();
                let ids = asked.questions.iter().map(|q| q.id.or_empty().to_owned()).collect();
                self.held.insert(key.clone(), Held::Questions(ids));
                notes.question(asked.as_one(key));
            }
            "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
                match self.permissions {
                    Permissions::All => {
                        notes.write(rpc::response(id, &json!({"decision": "accept"})));
                    }
                    Permissions::Ask => {
                        self.held.insert(key.clone(), Held::Approval);
                        notes.question(approval(key, params));
                    }
                }
            }
            "mcpServer/elicitation/request" => {
                // A server's form is nothing that one answer could fill.
                let decline = json!({"action": "decline", "content": null, "_meta": null});
                notes.write(rpc::response(id, &decline));
            }
            unknown => {
                notes.unknown(unknown);
                notes.write(rpc::refusal(id, unknown));
            }
        }
    }

    /// Codex needs no answer any more, or has it.
    pub(crate) fn resolved(&mut self, id: &str, notes: &mut Notes<'_>) {
        let key = QuestionKey(id.into());
        self.held.remove(&key);
        notes.question_closed(&key);
    }

    pub(crate) fn answer(&mut self, question: &Question, answer: &str) -> Option<Vec<u8>> {
        let chosen = option_named(question, answer);
        let result = match self.held.remove(&question.key)? {
            Held::Approval if chosen == Some(0) => json!({"decision": "accept"}),
            Held::Approval => json!({"decision": "decline"}),
            Held::Questions(ids) => {
                let answers = split_answer(question, answer, ids.len());
                let answers = ids
                    .into_iter()
                    .zip(answers.into_iter().map(|answer| json!({"answers": [answer]})));
                json!({"answers": answers.collect::<serde_json::Map<String, Value>>()})
            }
        };
        Some(rpc::response(&question.key.0, &result))
    }
}

fn approval(key: QuestionKey, params: Part<'_>) -> Question {
    #[derive(Deserialize)]
    struct Wanted<'a> {
        #[serde(borrow, default)]
        command: Str<'a>,
        #[serde(borrow, default)]
        reason: Str<'a>,
    }
    let wanted: Option<Wanted<'_>> = read(params);
    let what = wanted.as_ref().and_then(|w| w.command.get().or(w.reason.get()));
    let what = Clip::of(what.unwrap_or_else(|| raw(params))).text;
    Question {
        key,
        text: format!("May the agent do this: {what}?").into(),
        options: vec!["Allow".into(), "Deny".into()],
        closed: false,
    }
}

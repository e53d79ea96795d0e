//! Held questions: what is written when a person answers, what is refused, and what happens to a
//! question that the agent takes back.

use belay_agent::{Agent, AnswerRefusal, Exit, QuestionKey, Reader};
use serde_json::{Value, json};

use crate::common::{self, NOW, Setting};

fn reader(agent: Agent, asks: bool) -> Reader {
    let setting = Setting { agent, resumed: None, asks, exit: Exit::Code(0) };
    agent.reader(&common::launch(&setting))
}

fn push(reader: &mut Reader, lines: &[Value]) {
    for line in lines {
        reader.push(NOW, format!("{line}\n").as_bytes(), &mut Vec::new());
    }
}

fn held(reader: &Reader) -> QuestionKey {
    reader.questions().next().expect("a question is held").key.clone()
}

fn answer(reader: &mut Reader, answer: &str) -> Value {
    let key = held(reader);
    let bytes = reader.answer(&key, answer).expect("the answer is taken");
    assert_eq!(reader.answer(&key, answer), Err(AnswerRefusal::NotHeld), "once is enough");
    serde_json::from_slice(&bytes).unwrap()
}

fn claude_asks(tool: &str, input: Value) -> Value {
    json!({"type": "control_request", "request_id": "r1",
        "request": {"subtype": "can_use_tool", "tool_name": tool, "tool_use_id": "t1",
            "input": input}})
}

#[test]
fn claudes_questions_are_answered_by_their_text() {
    let input = json!({"questions": [
        {"question": "Which?", "options": [{"label": "Blue"}, {"label": "Red"}]},
    ]});
    for (said, expected) in [("red", "Red"), ("1", "Blue"), ("neither", "neither")] {
        let mut reader = reader(Agent::Claude, false);
        push(&mut reader, &[claude_asks("AskUserQuestion", input.clone())]);
        let written = answer(&mut reader, said);
        assert_eq!(written["response"]["request_id"], "r1");
        let response = &written["response"]["response"];
        assert_eq!(response["behavior"], "allow");
        assert_eq!(response["updatedInput"]["answers"]["Which?"], expected);
        assert_eq!(response["updatedInput"]["questions"], input["questions"]);
    }
}

#[test]
fn claudes_permissions_are_given_or_denied_in_words() {
    for (said, behavior) in [("Allow", "allow"), ("deny", "deny"), ("use git mv instead", "deny")] {
        let mut reader = reader(Agent::Claude, true);
        push(&mut reader, &[claude_asks("Bash", json!({"command": "mv a b"}))]);
        let response = answer(&mut reader, said)["response"]["response"].clone();
        assert_eq!(response["behavior"], behavior, "{said}");
        if behavior == "deny" {
            assert_eq!(response["message"], said);
        }
    }
}

#[test]
fn a_question_that_is_taken_back_cannot_be_answered() {
    let mut reader = reader(Agent::Claude, false);
    push(&mut reader, &[claude_asks("AskUserQuestion", json!({"questions": []}))]);
    let key = held(&reader);
    push(&mut reader, &[json!({"type": "control_cancel_request", "request_id": "r1"})]);
    assert_eq!(reader.answer(&key, "yes"), Err(AnswerRefusal::NotHeld));
    assert_eq!(AnswerRefusal::NotHeld.code(), "question_not_held");
}

#[test]
fn codexs_questions_are_answered_by_their_ids() {
    let mut reader = reader(Agent::Codex, false);
    let questions = json!([
        {"id": "one", "question": "A?", "options": [{"label": "x"}]},
        {"id": "two", "question": "B?", "options": null},
    ]);
    let params = json!({"threadId": "t", "questions": questions});
    push(
        &mut reader,
        &[json!({"method": "item/tool/requestUserInput", "id": 5, "params": params})],
    );
    let written = answer(&mut reader, "first\nsecond");
    assert_eq!(written["id"], 5);
    assert_eq!(written["result"]["answers"]["one"]["answers"], json!(["first"]));
    assert_eq!(written["result"]["answers"]["two"]["answers"], json!(["second"]));
}

#[test]
fn an_acp_permission_has_only_its_options() {
    let mut reader = reader(Agent::Acp, true);
    let options = json!([
        {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ]);
    let params = json!({"sessionId": "s", "options": options,
        "toolCall": {"toolCallId": "c1", "title": "touch x"}});
    let request = json!({"id": "p9", "method": "session/request_permission", "params": params});
    push(&mut reader, &[request]);
    assert_eq!(reader.open_tools().collect::<Vec<_>>(), [("c1", "touch x")]);
    let key = held(&reader);
    assert_eq!(reader.answer(&key, "perhaps"), Err(AnswerRefusal::NotAnOption));
    assert_eq!(AnswerRefusal::NotAnOption.code(), "not_an_option");
    let written = answer(&mut reader, "reject");
    assert_eq!(written["id"], "p9");
    assert_eq!(written["result"]["outcome"], json!({"outcome": "selected", "optionId": "no"}));
}

#[test]
fn only_agents_that_listen_are_interrupted_by_message() {
    for agent in Agent::ALL {
        let mut reader = reader(agent, false);
        let by_message = matches!(agent, Agent::Claude);
        assert_eq!(reader.interrupt().is_some(), by_message, "{agent}, before its turn");
    }
}

//! The tools over streamable HTTP, with a real MCP client: who is offered which, what each asks of
//! the service, and what is refused.

#[path = "support/fake.rs"]
mod fake;
#[path = "support/running.rs"]
mod running;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belay_api::{Code, Problem};
use belay_kernel::task::Review;
use belay_kernel::{AttemptNumber, TaskId};
use fake::{ASKING, ATTEMPT, Fake, QUESTION, RUNNING, TASK};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, NumberOrString, ProgressNotificationParam,
    ProgressToken, RequestMetaObject,
};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ServiceError, ServiceExt};
use running::{Running, start};
use serde_json::{Value, json};

/// A client that remembers how often it was told of progress.
#[derive(Clone, Default)]
struct Ears(Arc<Mutex<u32>>);

impl ClientHandler for Ears {
    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        *self.0.lock().unwrap() += 1;
    }
}

type Session = RunningService<RoleClient, Ears>;

/// How a test connects.
trait Connects {
    async fn connect(&self, token: &str, query: &str) -> Session;
    async fn try_connect(
        &self,
        token: &str,
        query: &str,
        ears: &Ears,
    ) -> Result<Session, Box<dyn std::error::Error>>;
}

impl Connects for Running {
    async fn connect(&self, token: &str, query: &str) -> Session {
        self.try_connect(token, query, &Ears::default()).await.unwrap()
    }

    async fn try_connect(
        &self,
        token: &str,
        query: &str,
        ears: &Ears,
    ) -> Result<Session, Box<dyn std::error::Error>> {
        let url = format!("http://{}/mcp{query}", self.address);
        // Our own client sets up what the HTTP library needs, also where nothing is encrypted.
        let _ = self.client();
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        Ok(ears.clone().serve(StreamableHttpClientTransport::from_config(config)).await?)
    }
}

fn call(tool: &'static str, arguments: &Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone())
}

/// Calls a tool that is to do something, and gives what it says.
async fn done(client: &Session, tool: &'static str, arguments: Value) -> CallToolResult {
    let result = client.call_tool(call(tool, &arguments)).await.unwrap();
    assert_ne!(result.is_error, Some(true), "{tool}: {result:?}");
    result
}

/// Calls a tool that refuses, and gives the code of the refusal.
async fn refused(client: &Session, tool: &'static str, arguments: Value) -> String {
    let result = client.call_tool(call(tool, &arguments)).await.unwrap();
    assert_eq!(result.is_error, Some(true), "{tool}: {result:?}");
    result.structured_content.unwrap()["code"].as_str().unwrap().to_owned()
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

async fn names(client: &Session) -> Vec<String> {
    let tools = client.list_all_tools().await.unwrap();
    for tool in &tools {
        let schema = Value::Object((*tool.input_schema).clone());
        assert_eq!(schema["type"], "object", "{}", tool.name);
        assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
        assert!(tool.description.as_ref().unwrap().len() > 20, "{}", tool.name);
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{} {name}", tool.name);
        }
    }
    tools.into_iter().map(|tool| tool.name.into_owned()).collect()
}

const PEOPLE: [&str; 8] = [
    "create_task",
    "list_tasks",
    "get_task",
    "continue_task",
    "stop_task",
    "answer_question",
    "accept_task",
    "reject_task",
];
const AGENT: [&str; 4] = ["ask_user", "report_progress", "submit_result", "add_subtask"];

#[tokio::test]
async fn the_token_decides_which_tools_are_offered() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let person = server.connect("secret", "").await;
    let info = person.peer_info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "belay");
    assert_eq!(names(&person).await, PEOPLE);
    let agent = server.connect(ATTEMPT, "").await;
    assert_eq!(names(&agent).await, AGENT);
    let gemini = server.connect(ATTEMPT, "?ask=ask_person").await;
    assert_eq!(names(&gemini).await[0], "ask_person");
    let viewer = server.connect("viewer", "").await;
    assert_eq!(names(&viewer).await, ["list_tasks", "get_task"]);
    assert!(server.try_connect("wrong", "", &Ears::default()).await.is_err());
}

#[tokio::test]
async fn what_is_for_others_is_refused() {
    let fake = Fake::new(&[RUNNING]);
    let server = start(&fake).await;
    let person = server.connect("secret", "").await;
    let agent = server.connect(ATTEMPT, "").await;
    let arguments = json!({"task": TASK, "question": "?"});
    for (client, others) in [(&person, &AGENT[..]), (&agent, &PEOPLE[..])] {
        for tool in others {
            let answer = client.call_tool(call(tool, &arguments)).await;
            let Err(ServiceError::McpError(error)) = answer else { panic!("{tool}: {answer:?}") };
            assert!(error.message.contains("token"), "{tool}: {error}");
        }
        let unknown = client.call_tool(call("wait_for_task", &arguments)).await;
        assert!(matches!(unknown, Err(ServiceError::McpError(_))), "{unknown:?}");
    }
    assert_eq!(fake.calls(), [""; 0]);
}

#[tokio::test]
async fn an_assistant_gives_tasks_and_tends_them() {
    let fake = Fake::new(&[ASKING]);
    let server = start(&fake).await;
    let client = server.connect("secret", "").await;
    let arguments = json!({
        "prompt": "Mend it.", "title": "Mending", "agent": "codex", "model": "m",
        "repository": "/r", "base": "main", "branch": "b", "review": "auto", "budget_usd": 1.5,
        "max_tokens": 9, "timeout": "30m", "max_attempts": 2, "after": [TASK], "priority": -1,
    });
    let made = done(&client, "create_task", arguments).await.structured_content.unwrap();
    assert_eq!((&made["id"], &made["state"]), (&json!(TASK), &json!("BLOCKED")));
    assert_eq!(made["questions"][0]["text"], "Which one?");
    let new = fake.made().unwrap();
    assert_eq!((new.prompt.as_str(), new.agent.as_deref()), ("Mend it.", Some("codex")));
    assert_eq!((new.limits["absolute"].as_str(), new.review), ("30m", Review::Auto));
    let after: Vec<TaskId> = vec![TASK];
    assert_eq!((new.after, new.priority, new.budget_usd), (after, -1, Some(1.5)));
    let id = &TASK.to_string()[..4];
    done(&client, "list_tasks", json!({"states": ["RUNNING", "READY"], "limit": 3})).await;
    let shown = done(&client, "get_task", json!({"task": id})).await;
    assert_eq!(serde_json::from_str::<Value>(text(&shown)).unwrap()["id"], json!(TASK));
    done(&client, "continue_task", json!({"task": id, "message": "More."})).await;
    let receipt = done(&client, "stop_task", json!({"task": id})).await;
    assert_eq!(receipt.structured_content.unwrap()["standing"], "stopped");
    let answer = json!({"task": id, "answer": "left", "question": QUESTION});
    done(&client, "answer_question", answer).await;
    done(&client, "accept_task", json!({"task": id, "attempt": 2})).await;
    done(&client, "reject_task", json!({"task": id, "comment": "No.", "run": true})).await;
    assert_eq!(
        fake.calls(),
        [
            "create by admin with ",
            "list RUNNING,READY Some(3)",
            "continue More.",
            "stop 30000",
            &format!("answer {QUESTION} left"),
            &format!("accept {:?}", Some(AttemptNumber(2))),
            "reject Some(\"No.\") true",
        ]
    );
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_a_reason() {
    let fake = Fake::new(&[RUNNING]);
    let server = start(&fake).await;
    let person = server.connect("secret", "").await;
    for (tool, arguments) in [
        ("create_task", json!({})),
        ("create_task", json!({"prompt": "x", "surprise": 1})),
        ("create_task", json!({"prompt": 7})),
        ("create_task", json!({"prompt": "x", "after": ["no id"]})),
        ("get_task", json!({"id": "x"})),
        ("answer_question", json!({"task": "0", "answer": "a", "question": "no id"})),
        ("accept_task", json!({"task": "0", "attempt": -1})),
    ] {
        assert_eq!(refused(&person, tool, arguments.clone()).await, "bad_request", "{arguments}");
    }
    assert_eq!(refused(&person, "get_task", json!({"task": "zz"})).await, "not_found");
    assert_eq!(fake.calls(), [""; 0]);
    let agent = server.connect(ATTEMPT, "").await;
    assert_eq!(refused(&agent, "ask_user", json!({"options": []})).await, "bad_request");
    let illegal = Problem::new(Code::IllegalMove, "it is RUNNING").choices(["cancel"]);
    let server = start(&Fake::new(&[RUNNING]).refusing(illegal)).await;
    let person = server.connect("secret", "").await;
    let result = person.call_tool(call("accept_task", &json!({"task": "0"}))).await.unwrap();
    assert_eq!(text(&result), "illegal_move: it is RUNNING (instead: cancel)");
}

#[tokio::test]
async fn an_agent_asks_and_waits_for_the_answer() {
    let fake = Fake::new(&[RUNNING]);
    let server = start(&fake).await;
    let ears = Ears::default();
    let client = server.try_connect(ATTEMPT, "", &ears).await.unwrap();
    let mut ask = call("ask_user", &json!({"question": "Which?", "options": ["left", "right"]}));
    let mut meta = RequestMetaObject::default();
    meta.set_progress_token(ProgressToken(NumberOrString::Number(1)));
    ask.meta = Some(meta);
    let asking = tokio::spawn(async move { client.call_tool(ask).await });
    let until = Instant::now() + Duration::from_secs(20);
    while *ears.0.lock().unwrap() < 3 {
        assert!(Instant::now() < until, "a client that waits is told so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!asking.is_finished());
    fake.answers("5");
    let result = asking.await.unwrap().unwrap();
    // Never the bare answer: there are clients that take a text that is JSON for more than it is.
    assert_eq!(text(&result), "The person answers: 5");
    let calls = fake.calls();
    assert_eq!(calls[0], "ask Which? [\"left\", \"right\"]");
    assert_eq!(calls.last().unwrap(), &format!("handed over {QUESTION}"));
    assert_eq!(calls.iter().filter(|call| call.starts_with("ask")).count(), 1);
}

#[tokio::test]
async fn an_agent_tells_and_makes_subtasks() {
    let fake = Fake::new(&[RUNNING]);
    let server = start(&fake).await;
    let client = server.connect(ATTEMPT, "").await;
    done(&client, "report_progress", json!({"message": "Half.", "percent": 50})).await;
    done(&client, "submit_result", json!({"result": "# Done"})).await;
    let made = done(&client, "add_subtask", json!({"prompt": "The other half."})).await;
    assert!(text(&made).contains(&TASK.to_string()), "{made:?}");
    assert_eq!(
        fake.calls(),
        ["progress Half. Some(50)", "result # Done", "create by attempt with "]
    );
}

#[tokio::test]
async fn an_attempt_that_is_over_is_told_to_do_nothing_more() {
    for code in [Code::Fenced, Code::Gone] {
        let over = Problem::new(code, "it is over");
        let server = start(&Fake::new(&[RUNNING]).refusing(over)).await;
        let client = server.connect(ATTEMPT, "").await;
        for (tool, arguments) in [
            ("ask_user", json!({"question": "Which?"})),
            ("report_progress", json!({"message": "Half."})),
            ("submit_result", json!({"result": "x"})),
            ("add_subtask", json!({"prompt": "x"})),
        ] {
            let result = client.call_tool(call(tool, &arguments)).await.unwrap();
            assert_eq!(result.is_error, Some(true), "{tool}");
            assert!(text(&result).contains("do nothing more"), "{tool}: {result:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_stops_keeps_nobody_in_a_call() {
    let fake = Fake::new(&[RUNNING]);
    let mut server = start(&fake).await;
    let client = server.connect(ATTEMPT, "").await;
    let asking =
        tokio::spawn(
            async move { client.call_tool(call("ask_user", &json!({"question": "?"}))).await },
        );
    let until = Instant::now() + Duration::from_secs(20);
    while !fake.calls().iter().any(|call| call.starts_with("await")) {
        assert!(Instant::now() < until, "the call never waited");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop.take().unwrap().send(()).unwrap();
    let limit = Duration::from_secs(5);
    tokio::time::timeout(limit, server.served).await.unwrap().unwrap().unwrap();
    let told = asking.await.unwrap().unwrap();
    assert_eq!(told.is_error, Some(true));
    assert!(text(&told).contains("call again with the same words"), "{told:?}");
}

#[tokio::test]
async fn pages_of_other_origins_get_nothing() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let client = belay_api::Client::new(&format!("http://{}", server.address), "secret");
    assert!(client.health().await.is_ok());
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\
         Connection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n",
        body.len(),
    );
    for (origin, status) in [("", "200"), ("Origin: https://evil.example\r\n", "403")] {
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let request = format!("{head}{origin}\r\n{body}");
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

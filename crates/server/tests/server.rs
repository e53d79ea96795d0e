//! The server through a real socket: who gets in, what is refused and how, what is passed on.

#[path = "support/fake.rs"]
mod fake;

use std::net::SocketAddr;
use std::time::Duration;

use belay_api::{
    Answer, Client, ClientError, Code, Comment, Continue, ListTasks, NewTask, Problem, Resume,
    Stopping,
};
use belay_kernel::task::State;
use belay_server::{Access, BODY_LIMIT, Token, serve};
use fake::{ATTEMPT, Fake, QUESTION, RUNNING, TASK};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

async fn start(fake: &Fake) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let access = Access::new(Token::new("secret"), address).known_as("belay.test");
    let stopped = async {
        let _ = stopped.await;
    };
    let served = tokio::spawn(serve(listener, fake.clone(), access, stopped));
    Running { address, stop: Some(stop), served }
}

impl Running {
    fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), "secret")
    }

    /// Sends a request as it is and reads the whole answer: status, headers, body.
    async fn raw(&self, head: &str, body: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses early may close before everything is sent.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    async fn with_token(&self, line: &str, body: &[u8]) -> (u16, String, String) {
        let head = format!("{line}\r\nHost: localhost\r\nAuthorization: Bearer secret");
        self.raw(&head, body).await
    }
}

/// What a problem document says: its status, in both places, and its code.
fn problem(answer: &(u16, String, String)) -> (u16, Code) {
    let (status, head, body) = answer;
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["status"], *status);
    assert!(document["type"].as_str().unwrap().starts_with("urn:belay:problem:"), "{body}");
    assert!(document["title"].is_string() && document["detail"].is_string(), "{body}");
    let problem: Problem = serde_json::from_str(body).unwrap();
    (*status, problem.code)
}

#[tokio::test]
async fn only_the_token_opens_and_health_says_little_without_it() {
    let server = start(&Fake::new(&[RUNNING])).await;
    for authorization in ["", "\r\nAuthorization: Bearer wrong", "\r\nAuthorization: Basic secret"]
    {
        let head = format!("GET /api/v1/tasks HTTP/1.1\r\nHost: localhost{authorization}");
        let answer = server.raw(&head, b"").await;
        assert_eq!(problem(&answer), (401, Code::Unauthorized), "{authorization}");
        assert!(answer.1.contains("www-authenticate: bearer"));
    }
    let health = server.raw("GET /api/v1/health HTTP/1.1\r\nHost: localhost", b"").await;
    assert_eq!((health.0, health.2.as_str()), (200, "{\"status\":\"ok\"}"));
    let wrong = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x";
    assert_eq!(problem(&server.raw(wrong, b"").await).0, 401);
    assert_eq!(server.client().health().await.unwrap().version, "1.2.3");
}

#[tokio::test]
async fn an_attempts_token_makes_subtasks_and_reads_its_own_task_and_nothing_else() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let ask = async |line: &str| {
        let head = format!("{line}\r\nHost: localhost\r\nAuthorization: Bearer {ATTEMPT}");
        server.raw(&head, b"{\"prompt\":\"x\"}").await
    };
    assert_eq!(ask("POST /api/v1/tasks HTTP/1.1").await.0, 201);
    for path in ["", "/why", "/events", "/transcript"] {
        let line = format!("GET /api/v1/tasks/{TASK}{path} HTTP/1.1");
        assert_eq!(ask(&line).await.0, 200, "{path}");
    }
    let others = "0000000000000009";
    let mut forbidden = vec![
        "GET /api/v1/tasks HTTP/1.1".to_owned(),
        "GET /api/v1/events HTTP/1.1".to_owned(),
        "POST /api/v1/backup HTTP/1.1".to_owned(),
        format!("DELETE /api/v1/tasks/{TASK} HTTP/1.1"),
        format!("GET /api/v1/tasks/{others} HTTP/1.1"),
    ];
    for verb in ["run", "stop", "cancel", "answer", "accept", "reject", "retry", "resume"] {
        forbidden.push(format!("POST /api/v1/tasks/{TASK}/{verb} HTTP/1.1"));
    }
    for line in forbidden {
        assert_eq!(problem(&ask(&line).await), (403, Code::Forbidden), "{line}");
    }
}

#[tokio::test]
async fn a_name_that_is_not_ours_gets_nothing_and_no_origin_is_let_in() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let ask = async |host: &str| {
        let head = format!(
            "GET /api/v1/tasks HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\n\
             Authorization: Bearer secret"
        );
        server.raw(&head, b"").await
    };
    for host in ["evil.example", "evil.example:7425", "localhost.evil.example", ""] {
        assert_eq!(problem(&ask(host).await), (403, Code::Forbidden), "{host}");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:7425", "[::1]:80", "belay.test"] {
        let answer = ask(host).await;
        assert_eq!(answer.0, 200, "{host}");
        assert!(!answer.1.contains("access-control"), "{}", answer.1);
    }
}

#[tokio::test]
async fn whatever_is_wrong_is_told_as_a_problem() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let tasks = "POST /api/v1/tasks HTTP/1.1";
    let large = vec![b' '; BODY_LIMIT + 1];
    for (line, body, expected) in [
        ("GET /nowhere HTTP/1.1", &b""[..], (404, Code::NotFound)),
        ("GET /api/v1/tasks/abcd HTTP/1.1", b"", (404, Code::NotFound)),
        ("PUT /api/v1/tasks HTTP/1.1", b"", (405, Code::BadRequest)),
        ("PUT /api/v1/tasks/0 HTTP/1.1", b"", (405, Code::BadRequest)),
        (tasks, b"{", (400, Code::BadRequest)),
        (tasks, b"{\"prompt\": 7}", (400, Code::BadRequest)),
        (tasks, b"{\"unknown\": 7}", (400, Code::BadRequest)),
        (tasks, &large, (413, Code::TooLarge)),
        ("GET /api/v1/tasks?limit=many HTTP/1.1", b"", (400, Code::BadRequest)),
        ("GET /api/v1/tasks?colour=red HTTP/1.1", b"", (400, Code::BadRequest)),
        ("POST /api/v1/backup HTTP/1.1", b"{\"path\":\"x\"}", (400, Code::BadRequest)),
    ] {
        let answer = server.with_token(line, body).await;
        assert_eq!(problem(&answer), expected, "{line}: {}", answer.2);
    }
    let long = format!("{tasks}\r\nIdempotency-Key: {}", "k".repeat(201));
    assert_eq!(problem(&server.with_token(&long, b"{}").await), (400, Code::BadRequest));
}

#[tokio::test]
async fn every_call_of_the_client_reaches_the_service() {
    let fake = Fake::new(&[RUNNING]).printing(b"hello\n");
    let server = start(&fake).await;
    let client = server.client();
    let id = &TASK.to_string()[..4];
    let key = Some("key-1");
    let task = NewTask { prompt: "p".into(), ..NewTask::default() };
    assert_eq!(client.create(&task, key).await.unwrap().summary.id, TASK);
    assert_eq!(fake.made().unwrap(), task);
    client.run(id, None).await.unwrap();
    client.cancel(id, None).await.unwrap();
    let stopped = client.stop(id, Duration::from_secs(9), None).await.unwrap();
    assert!(matches!(stopped, Stopping::Stopped { .. }));
    let answer = Answer { question: Some(QUESTION), text: "left".into() };
    client.answer(id, &answer, None).await.unwrap();
    client.accept(id, &Default::default(), None).await.unwrap();
    let comment = Comment { comment: Some("no".into()), run: true };
    client.reject(id, &comment, None).await.unwrap();
    client.retry(id, None).await.unwrap();
    client.resume(id, &Resume { message: Some("go".into()) }, None).await.unwrap();
    client.follow(id, &Continue { message: "more".into() }, None).await.unwrap();
    client.delete(id).await.unwrap();
    let which = ListTasks { state: "READY".into(), limit: Some(3), ..ListTasks::default() };
    assert_eq!(client.list(&which).await.unwrap().tasks.len(), 1);
    assert_eq!(client.events(Some(TASK), Some("c"), Duration::ZERO).await.unwrap().cursor, "7");
    assert_eq!(
        fake.calls(),
        [
            "create by admin with key-1".to_owned(),
            "run by admin with None".into(),
            "stop 0".into(),
            "stop 9000".into(),
            format!("answer {QUESTION} left"),
            "accept None".into(),
            "reject Some(\"no\") true".into(),
            "retry".into(),
            "resume Some(\"go\")".into(),
            "continue more".into(),
            "delete".into(),
            "list READY Some(3)".into(),
            format!("events Some(TaskId({TASK})) Some(\"c\")"),
        ]
    );
    assert_eq!(client.show(id).await.unwrap().detail, RUNNING);
    assert_eq!(client.why(id).await.unwrap().sentences.len(), 2);
    assert_eq!(client.receipt(id).await.unwrap().task, TASK);
    let piece = client.transcript(id, Some(3), 2, Duration::ZERO).await.unwrap();
    assert_eq!((piece.attempt.0, piece.from, piece.ended), (3, 2, true));
    assert_eq!(piece.bytes, b"llo\n");
    assert_eq!(client.backup("/b").await.unwrap().bytes, 42);
    assert_eq!(client.diff(id, None).await.unwrap(), b"--- a\n+++ b\n");
    let diff = server.with_token(&format!("GET /api/v1/tasks/{id}/diff HTTP/1.1"), b"").await;
    assert!(diff.1.contains("content-type: text/x-diff"), "{}", diff.1);
}

#[tokio::test]
async fn a_refusal_arrives_with_its_code_and_choices() {
    let refusal = Problem::new(Code::IllegalMove, "it is over").choices(["continue"]);
    let server = start(&Fake::new(&[State::Completed]).refusing(refusal.clone())).await;
    let answer = server.client().retry(&TASK.to_string(), None).await;
    let Err(ClientError::Problem(problem)) = answer else { panic!("{answer:?}") };
    assert_eq!(problem, refusal);
}

#[tokio::test]
async fn a_fault_of_one_request_is_not_the_end_of_the_server() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let answer = server.client().diff(&TASK.to_string(), Some(13)).await;
    let Err(ClientError::Problem(problem)) = answer else { panic!("{answer:?}") };
    assert_eq!(problem.code, Code::Internal);
    assert_eq!(server.client().health().await.unwrap().status, "ok");
}

#[tokio::test]
async fn a_server_that_is_stopped_lets_nobody_wait() {
    let fake = Fake::new(&[RUNNING]);
    let mut server = start(&fake).await;
    let client = server.client();
    let waits =
        tokio::spawn(async move { client.events(None, None, Duration::from_secs(50)).await });
    while fake.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    server.stop.take().unwrap().send(()).unwrap();
    let limit = Duration::from_secs(5);
    let served = tokio::time::timeout(limit, &mut server.served).await.unwrap().unwrap();
    served.unwrap();
    let Err(ClientError::Problem(problem)) = waits.await.unwrap() else { panic!() };
    assert_eq!(problem.code, Code::Unavailable);
    let later = server.client().health().await;
    let Err(ClientError::Unanswered(unanswered)) = later else { panic!("{later:?}") };
    assert!(unanswered.nobody_listens());
}

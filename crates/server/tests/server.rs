//! The server through a real socket: who gets in, what is refused and how, what is passed on.

#[path = "support/fake.rs"]
mod fake;
#[path = "support/running.rs"]
mod running;

use std::time::Duration;

use belay_api::{
    Answer, Client, ClientError, Code, Comment, Continue, ListTasks, NewTask, Problem, Resume,
    Stopping,
};
use belay_kernel::Cause;
use belay_kernel::task::{Failure, State};
use belay_server::{BODY_LIMIT, Tls};
use fake::{Fake, QUESTION, RUNNING, TASK};
use running::{problem, start, start_with};

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
        ("PUT /api/v1/tasks HTTP/1.1", b"", (405, Code::MethodNotAllowed)),
        ("PUT /api/v1/tasks/0 HTTP/1.1", b"", (405, Code::MethodNotAllowed)),
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
    assert!(problem.request_id.is_some());
    assert_eq!(Problem { request_id: None, ..problem }, refusal);
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

/// What programs rely on is written down: a change of it is seen, and meant.
#[tokio::test]
async fn the_server_describes_itself() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let answer = server.raw("GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost", b"").await;
    assert_eq!(answer.0, 200);
    let document: serde_json::Value = serde_json::from_str(&answer.2).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let text = serde_json::to_string_pretty(&document).unwrap();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not described");
    }
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn the_reference_is_a_page_that_loads_nothing_from_elsewhere() {
    let server = start(&Fake::new(&[RUNNING])).await;
    for (path, kind) in [("reference", "text/html"), ("reference.js", "text/javascript")] {
        let line = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost");
        let answer = server.raw(&line, b"").await;
        assert_eq!(answer.0, 200);
        assert!(answer.1.contains(&format!("content-type: {kind}")), "{}", answer.1);
        assert!(!answer.2.contains("http://") && !answer.2.contains("https://"), "{path}");
        let strict = answer.1.contains("content-security-policy: default-src 'none'");
        assert_eq!(strict, path == "reference", "{}", answer.1);
    }
}

#[tokio::test]
async fn a_request_has_a_name_that_its_answer_and_its_problem_carry() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let ask = async |name: &str| {
        let line = format!("GET /api/v1/tasks/abcd HTTP/1.1\r\nX-Request-Id: {name}");
        let (_, head, body) = server.with_token(&line, b"").await;
        let header = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        let problem: Problem = serde_json::from_str(&body).unwrap();
        assert_eq!(problem.request_id.as_deref().map(str::to_lowercase).as_deref(), header);
        header.unwrap().to_owned()
    };
    assert_eq!(ask("mine-7").await, "mine-7");
    for unusable in ["", "two words", "<b>", &"x".repeat(129)] {
        let given = ask(unusable).await;
        assert_ne!(given, unusable);
        assert_ne!(ask(unusable).await, given, "another request has another name");
    }
}

#[tokio::test]
async fn a_tag_is_told_and_expected_back() {
    let fake = Fake::new(&[RUNNING]);
    let server = start(&fake).await;
    let shown = server.with_token(&format!("GET /api/v1/tasks/{TASK} HTTP/1.1"), b"").await;
    assert!(shown.1.contains("etag: \"1\""), "{}", shown.1);
    let run = format!("POST /api/v1/tasks/{TASK}/run HTTP/1.1\r\nIf-Match: \"1\"");
    assert_eq!(server.with_token(&run, b"").await.0, 200);
    assert_eq!(fake.calls(), ["run by admin with Some([Revision(1)])"]);
    let made = server.with_token("POST /api/v1/tasks HTTP/1.1", b"{\"prompt\":\"x\"}").await;
    assert!(made.1.contains(&format!("location: /api/v1/tasks/{TASK}")), "{}", made.1);
}

#[tokio::test]
async fn the_short_paths_do_what_the_verbs_do() {
    let fake = Fake::new(&[RUNNING]);
    let server = start(&fake).await;
    let ask = async |line: &str, body: &str| {
        let line = format!("{line} HTTP/1.1").replace("ID", &TASK.to_string());
        server.with_token(&line, body.as_bytes()).await.0
    };
    for (line, body) in [
        ("POST /api/tasks/ID/run", ""),
        ("POST /api/tasks/ID/cancel", ""),
        ("POST /api/tasks/ID/accept", ""),
        ("POST /api/tasks/ID/reject", "{\"comment\":\"no\"}"),
        ("POST /api/tasks/ID/answer", "{\"text\":\"left\"}"),
        ("POST /api/tasks/ID/resume", ""),
        ("POST /api/tasks/ID/continue", "{\"message\":\"more\"}"),
        ("PATCH /api/tasks/ID", "{\"action\":\"stop\"}"),
    ] {
        assert_eq!(ask(line, body).await, 200, "{line}");
    }
    for body in ["", "{}", "{\"action\":\"start\"}"] {
        assert_eq!(ask("PATCH /api/tasks/ID", body).await, 400, "{body}");
    }
    assert_eq!(ask("DELETE /api/tasks/ID", "").await, 204);
    let calls = fake.calls();
    let verbs: Vec<_> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    let expected = "run stop accept reject answer resume continue stop delete";
    assert_eq!(verbs.join(" "), expected);
    let failed = Fake::new(&[State::Failed(Failure::Cause(Cause::Crash))]);
    let server = start(&failed).await;
    let line = format!("POST /api/tasks/{TASK}/run HTTP/1.1");
    assert_eq!(server.with_token(&line, b"").await.0, 200);
    assert_eq!(failed.calls(), ["retry"], "a failed task begins again");
}

#[tokio::test]
async fn an_encrypted_server_is_reached_by_whoever_trusts_its_authority() {
    let file = |name: &str| {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
        std::fs::read(format!("{directory}/{name}")).unwrap()
    };
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    assert!(Tls::from_pem(b"nothing", &key).is_err() && Tls::from_pem(&certificate, b"").is_err());
    let tls = Tls::from_pem(&certificate, &key).unwrap();
    let server = start_with(&Fake::new(&[RUNNING]), |access| access.encrypted(tls)).await;
    let url = format!("https://{}", server.address);
    let trusting = Client::trusting(&url, "secret", &file("authority.pem")).unwrap();
    assert_eq!(trusting.health().await.unwrap().version, "1.2.3");
    let others = Client::new(&url, "secret").health().await;
    assert!(matches!(others, Err(ClientError::Unanswered(_))), "{others:?}");
    assert!(Client::trusting(&url, "secret", b"nothing").is_err());
}

//! Who may call what: every route with every kind of token, from the table that makes the routes.

#[path = "support/fake.rs"]
mod fake;
#[path = "support/running.rs"]
mod running;

use std::fmt::Write as _;

use belay_api::{Code, Scope};
use belay_server::{AGENT_SOCKET, Access, Entry, Listener, Reach, entries, serve};
use fake::{ATTEMPT, Fake, RUNNING, TASK};
use running::{Running, problem, start};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// A task that is not the attempt's.
const OTHERS: &str = "0000000000000009";

async fn ask(server: &Running, entry: &Entry, task: &str, token: Option<&str>) -> u16 {
    let stream = TcpStream::connect(server.address).await.unwrap();
    ask_over(stream, entry, task, token).await
}

/// Asks, and reads no more of the answer than its status: some answers have no end.
async fn ask_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    entry: &Entry,
    task: &str,
    token: Option<&str>,
) -> u16 {
    let parts = entry.path.split('/').map(|part| match part {
        "{id}" => task,
        part if part.starts_with('{') => "1",
        part => part,
    });
    let path = parts.collect::<Vec<_>>().join("/");
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let mut head = format!("{} {path} HTTP/1.1\r\nHost: localhost\r\n", entry.method);
    head += &token.unwrap_or_default();
    head += "Connection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    std::str::from_utf8(&status[9..]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn every_route_is_for_those_that_its_rule_names_and_nobody_else() {
    let own = TASK.to_string();
    for entry in entries::<Fake>() {
        let server = start(&Fake::new(&[RUNNING])).await;
        let line = format!("{} {}", entry.method, entry.path);
        let without = ask(&server, &entry, &own, None).await;
        assert_eq!(without != 401, entry.rule.is_open(), "{line} without a token: {without}");
        for dead in ["revoked", "belay_token_0000000000000001_x", ""] {
            let refused = ask(&server, &entry, &own, Some(dead)).await;
            assert_eq!(refused, 401, "{line} with a token that opens nothing");
        }
        for scope in [Scope::Viewer, Scope::Operator, Scope::Admin, Scope::Runner] {
            let status = ask(&server, &entry, &own, Some(scope.name())).await;
            assert_ne!(status, 401, "{line} as {scope}");
            assert_eq!(status != 403, entry.rule.allows(scope), "{line} as {scope}: {status}");
        }
        let (of_own, of_others) = (
            ask(&server, &entry, &own, Some(ATTEMPT)).await,
            ask(&server, &entry, OTHERS, Some(ATTEMPT)).await,
        );
        match entry.rule.reach() {
            Reach::Nothing => assert_eq!((of_own, of_others), (403, 403), "{line}"),
            Reach::Family => assert_eq!((of_own != 403, of_others), (true, 403), "{line}"),
            Reach::Handled => assert_ne!(of_own, 401, "{line}"),
        }
    }
}

#[tokio::test]
async fn at_the_socket_for_agents_nothing_but_an_attempts_token_opens_anything() {
    let own = TASK.to_string();
    for entry in entries::<Fake>() {
        let line = format!("{} {}", entry.method, entry.path);
        let (directory, fake) = (tempfile::tempdir().unwrap(), Fake::new(&[RUNNING]));
        let listener = Listener::for_agents(directory.path()).unwrap();
        let access = Access::for_agents();
        let served = tokio::spawn(serve(listener, fake, access, std::future::pending()));
        let ask = async |task: &str, token: Option<&str>| {
            let stream = UnixStream::connect(directory.path().join(AGENT_SOCKET)).await.unwrap();
            ask_over(stream, &entry, task, token).await
        };
        assert_eq!(ask(&own, None).await, 401, "{line} without a token");
        for dead in ["secret", "revoked", "belay_token_0000000000000001_x", ""] {
            assert_eq!(ask(&own, Some(dead)).await, 401, "{line} with a token that opens nothing");
        }
        for scope in [Scope::Viewer, Scope::Operator, Scope::Admin, Scope::Runner] {
            assert_eq!(ask(&own, Some(scope.name())).await, 403, "{line} as {scope}");
        }
        let elsewhere = start(&Fake::new(&[RUNNING])).await;
        for task in [own.as_str(), OTHERS] {
            let there = self::ask(&elsewhere, &entry, task, Some(ATTEMPT)).await;
            assert_eq!(ask(task, Some(ATTEMPT)).await, there, "{line} of {task}");
        }
        served.abort();
    }
}

/// What is allowed is written down twice: here, where a change of a rule is seen.
#[test]
fn the_rules_are_these() {
    let mut table = String::new();
    for Entry { method, path, rule } in entries::<Fake>() {
        let scopes: Vec<_> = rule.scopes().map(Scope::name).collect();
        let open = if rule.is_open() { "open " } else { "" };
        let reach = match rule.reach() {
            Reach::Nothing => "",
            Reach::Family => " (its own task and subtasks)",
            Reach::Handled => " (what the handler lets it have)",
        };
        let scopes = scopes.join(" ");
        writeln!(table, "{method:<6} {path:<32} {open}{scopes}{reach}").unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn no_route_is_written_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for entry in entries::<Fake>() {
        assert!(seen.insert((entry.path, entry.method.to_string())), "{entry:?}");
    }
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
    let mut forbidden = vec![
        "GET /api/v1/tasks HTTP/1.1".to_owned(),
        "GET /api/v1/events HTTP/1.1".to_owned(),
        "POST /api/v1/backup HTTP/1.1".to_owned(),
        format!("DELETE /api/v1/tasks/{TASK} HTTP/1.1"),
        format!("GET /api/v1/tasks/{OTHERS} HTTP/1.1"),
    ];
    for verb in ["run", "stop", "cancel", "answer", "accept", "reject", "retry", "resume"] {
        forbidden.push(format!("POST /api/v1/tasks/{TASK}/{verb} HTTP/1.1"));
    }
    for line in forbidden {
        assert_eq!(problem(&ask(&line).await), (403, Code::Forbidden), "{line}");
    }
}

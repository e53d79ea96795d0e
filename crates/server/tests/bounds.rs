//! How much is taken of a client: what is too large, too slow, too many or too long is refused as
//! it is documented, and nobody else pays for it.

#[path = "support/fake.rs"]
mod fake;
#[path = "support/running.rs"]
mod running;

use std::time::Duration;

use belay_api::Code;
use belay_server::{BODY_LIMIT, Bounds};
use fake::{Fake, RUNNING, SLOW, TASK};
use running::{Running, problem, start, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);
const HEALTH: &str = "GET /api/v1/health HTTP/1.1\r\nHost: localhost";

async fn bounded(bounds: Bounds) -> Running {
    start_with(&Fake::new(&[RUNNING]), |access| access.within(bounds)).await
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_431() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let with = |size: usize| format!("{HEALTH}\r\nX-Padding: {}", "x".repeat(size));
    assert_eq!(soon(server.raw(&with(60 << 10), b"")).await.0, 200);
    // What is read at once may be a little more than the bound; twice as much never is.
    assert_eq!(soon(server.raw(&with(128 << 10), b"")).await.0, 431);
    assert_eq!(soon(server.raw(HEALTH, b"")).await.0, 200, "others are served");
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_its_connection() {
    let server = bounded(Bounds { head: SHORT, ..Bounds::USUAL }).await;
    for sent in ["", "GET /api/v1/health HT", "GET /api/v1/health HTTP/1.1\r\nHost: local"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // However it ends, it ends; and nothing was taken for a request.
        let _ = soon(stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_413_also_if_it_does_not_say_how_large_it_is() {
    let server = start(&Fake::new(&[RUNNING])).await;
    let line = "POST /api/v1/tasks HTTP/1.1";
    // Just as large as it may be, and no JSON.
    let largest = server.with_token(line, &vec![b'x'; BODY_LIMIT]).await;
    assert_eq!(problem(&largest), (400, Code::BadRequest));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "{line}\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let sends = tokio::spawn(async move {
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
        for _ in 0..=(BODY_LIMIT >> 16) {
            if write.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
        write
    });
    let mut answer = Vec::new();
    // A server that refuses early may close before everything is sent.
    let _ = soon(read.read_to_end(&mut answer)).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("\"code\":\"too_large\""), "{answer}");
    drop(sends.await.unwrap());
}

#[tokio::test]
async fn who_comes_when_all_connections_are_taken_waits_until_one_is_free() {
    let server = bounded(Bounds { connections: 2, ..Bounds::USUAL }).await;
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(format!("{HEALTH}\r\n\r\n").as_bytes()).await.unwrap();
        let mut first = [0; 12];
        soon(stream.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        taken.push(stream);
    }
    let mut waits = std::pin::pin!(server.raw(HEALTH, b""));
    let early = tokio::time::timeout(SHORT, &mut waits).await;
    assert!(early.is_err(), "it is not served beside the two: {early:?}");
    drop(taken.pop());
    assert_eq!(soon(waits).await.0, 200);
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_503_and_says_that_it_may_have_been_done() {
    let server = bounded(Bounds { request: SHORT, ..Bounds::USUAL }).await;
    let line = format!("GET /api/v1/tasks/{TASK}/diff?attempt={SLOW} HTTP/1.1");
    let answer = soon(server.with_token(&line, b"")).await;
    assert_eq!(problem(&answer), (503, Code::Unavailable));
    assert!(answer.1.contains("retry-after: 1"), "{}", answer.1);
    assert!(answer.2.contains("it may have been done"), "{}", answer.2);
}

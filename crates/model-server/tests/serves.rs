//! The server, judged through its socket: every API streams and answers whole, fails, hangs, breaks
//! off, and keeps what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use belay_model_server::{Api, ModelServer};
use serde_json::{Value, json};

const PATHS: [(&str, Api); 4] = [
    ("/v1/messages?beta=true", Api::Messages),
    ("/v1/responses", Api::Responses),
    ("/v1/chat/completions", Api::Chat),
    ("/v1beta/models/m:streamGenerateContent?alt=sse", Api::Gemini),
];

fn start(script: &str) -> ModelServer {
    ModelServer::start(script.parse().unwrap()).unwrap()
}

fn open(server: &ModelServer, path: &str, body: &Value) -> TcpStream {
    let address = server.url();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

/// The whole reply, until the server closes.
fn ask(server: &ModelServer, path: &str, body: &Value) -> String {
    let mut text = Vec::new();
    open(server, path, body).read_to_end(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn conversation(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "tools": [{"name": "t"}]})
}

#[test]
fn every_api_streams_text_calls_and_usage() {
    for (path, api) in PATHS {
        let server = start("usage input=77 output=33\nsay Hello you.\ncall t {\"key\":\"value\"}");
        let said = ask(&server, path, &conversation(true));
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{api:?}: {said}");
        assert!(said.contains("text/event-stream"), "{api:?}");
        assert!(said.contains("Hello yo") && said.contains("77") && said.contains("33"), "{said}");
        assert!(said.ends_with("0\r\n\r\n"), "{api:?} ends in order");
        let called = ask(&server, path, &conversation(true));
        assert!(called.contains("call_1") && called.contains("value"), "{api:?}: {called}");
        assert_eq!(server.steps_left(), 0);
        assert!(server.requests().iter().all(|request| request.api == Some(api)));
        assert_eq!(server.requests()[0].authorization.as_deref(), Some("Bearer k"));
    }
}

#[test]
fn every_api_answers_whole_to_those_that_do_not_stream() {
    for (path, api) in PATHS {
        let server = start("say Hello you.");
        let path = path.replace(":streamGenerateContent?alt=sse", ":generateContent");
        let said = ask(&server, &path, &conversation(false));
        let (_, body) = said.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert!(body.to_string().contains("Hello you."), "{api:?}: {body}");
    }
}

#[test]
fn failures_stay_and_say_when_to_come_again() {
    for (path, api) in PATHS {
        let server = start("fail 429 retry-after=7 times=2\nfail 529");
        for _ in 0..2 {
            let failed = ask(&server, path, &conversation(true));
            assert!(failed.starts_with("HTTP/1.1 429 "), "{api:?}: {failed}");
            assert!(failed.contains("retry-after: 7\r\n"), "{api:?}: {failed}");
        }
        for _ in 0..3 {
            let failed = ask(&server, path, &conversation(true));
            assert!(failed.starts_with("HTTP/1.1 529 "), "{api:?}: {failed}");
        }
    }
    let server = start("fail 429 reset=1999999999");
    let failed = ask(&server, "/v1/messages", &conversation(true));
    assert!(failed.contains("anthropic-ratelimit-unified-reset: 1999999999"), "{failed}");
}

#[test]
fn a_broken_stream_has_a_beginning_and_no_end() {
    for (path, api) in PATHS {
        let server = start("drop after=I was about to");
        let broken = ask(&server, path, &conversation(true));
        assert!(broken.contains("I was ab"), "{api:?}: {broken}");
        assert!(!broken.ends_with("0\r\n\r\n"), "{api:?}: {broken}");
        let server = start("drop");
        assert_eq!(ask(&server, path, &conversation(true)), "", "{api:?} is dropped at once");
    }
}

#[test]
fn a_hang_lasts_until_the_server_ends() {
    let server = start("hang after=I was about to");
    let mut stream = open(&server, "/v1/messages", &conversation(true));
    let mut beginning = [0; 16];
    stream.read_exact(&mut beginning).unwrap();
    assert!(beginning.starts_with(b"HTTP/1.1 200 OK"));
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it neither says more nor ends");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let before = Instant::now();
    drop(server);
    assert!(before.elapsed() < Duration::from_secs(5), "the server ends at once");
    stream.read_to_end(&mut rest).expect("the connection is closed");
}

#[test]
fn titles_and_summaries_use_up_no_step() {
    let server = start("say Hello you.");
    let title = ask(&server, "/v1/chat/completions", &json!({"model": "m", "stream": false}));
    assert!(title.contains("Scripted."), "{title}");
    assert_eq!(server.steps_left(), 1);
    assert!(server.wait_for(Duration::from_secs(1), |request| !request.scripted));
    assert!(!server.wait_for(Duration::from_millis(50), |request| request.scripted));
}

#[test]
fn huge_output_arrives_whole() {
    let server = start("huge 10000000");
    let said = ask(&server, "/v1/messages", &conversation(true));
    assert!(said.len() > 10_000_000, "{} bytes", said.len());
    assert!(said.ends_with("0\r\n\r\n"));
}

#[test]
fn mcp_lists_and_answers() {
    let server = start("");
    let call = |method: &str| json!({"jsonrpc": "2.0", "id": 3, "method": method, "params": {}});
    assert!(ask(&server, "/mcp", &call("tools/list")).contains("ask_user"));
    assert!(ask(&server, "/mcp", &call("tools/call")).contains("The person says: blue."));
    assert!(ask(&server, "/mcp", &call("nonsense")).contains("-32601"));
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert!(ask(&server, "/mcp", &told).starts_with("HTTP/1.1 202 "));
}

/// OpenCode may never ask which tools a server has that closes after each answer.
#[test]
fn mcp_takes_one_request_after_the_other() {
    let server = start("");
    let address = server.url();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..3 {
        stream.write_all(b"GET /mcp HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        assert!(first.starts_with("HTTP/1.1 405 "), "{first}");
        let mut line = first;
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "the head ends");
        }
        reader.read_exact(&mut [0; 2]).unwrap();
    }
}

#[test]
fn what_is_not_a_conversation_is_answered_too() {
    let server = start("");
    assert!(ask(&server, "/v1/models", &json!({})).starts_with("HTTP/1.1 200 "));
    assert!(ask(&server, "/nowhere", &json!({})).starts_with("HTTP/1.1 404 "));
}

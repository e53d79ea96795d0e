//! Being watched: webhooks over a kill of the server, figures, the log, and traces, as receivers
//! outside of Belay see them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::{QUICK, World, wait_for};

/// A request that a receiver got.
#[derive(Clone, Debug)]
struct Got {
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> String {
        let name = format!("{name}: ");
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&name));
        line.map(|line| line[name.len()..].trim().to_owned()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A receiver on the loopback address that answers with these words, once it is told to.
#[derive(Clone)]
struct Receiver {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    answers: Arc<Mutex<bool>>,
}

fn read(stream: &TcpStream) -> Option<Got> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.trim().parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Got { head, body })
}

impl Receiver {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            got: Arc::default(),
            answers: Arc::new(Mutex::new(true)),
        };
        let shared = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        receiver
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some(got) = read(&stream) {
            self.got.lock().unwrap().push(got);
            if *self.answers.lock().unwrap() {
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&self, yes: bool) {
        *self.answers.lock().unwrap() = yes;
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

#[test]
fn a_delivery_that_was_not_recorded_is_repeated_under_the_same_name_after_kill_9() {
    let receiver = Receiver::new();
    receiver.answer(false);
    let address = receiver.address;
    let settings = format!(
        "{QUICK}node_lease = '2s'\nnode_renewal = '500ms'\n\
         [watch]\nwebhook_allow = ['127.0.0.1']\n\
         [webhooks.farm]\nurl = 'http://{address}/in'\nsecret = 'sesame-sesame-sesame'\n\
         kinds = ['task.created', 'task.ready']\n"
    );
    let world = World::new(&settings);
    wait_for("the hook is made", || {
        !world.rows("SELECT id FROM webhooks WHERE owner IS NOT NULL").is_empty()
    });
    let task = world.script(&["--publish", "none"], "echo done");
    wait_for("the first delivery arrives", || !receiver.got().is_empty());
    // It has arrived; its answer never does, and nobody records it.
    world.crash();
    receiver.answer(true);
    world.up();
    world.reaches(&task, "READY");
    wait_for("everything is delivered", || {
        world.cell("SELECT count(*) FROM letters") == "0" && receiver.got().len() >= 3
    });
    let got = receiver.got();
    let names: Vec<_> = got.iter().map(|one| one.header("belay-delivery")).collect();
    assert_eq!(names[0], names[1], "the same delivery again");
    assert_eq!(got[0].body, got[1].body, "and the same words");
    assert_ne!(names[1], names[2]);
    let kinds: Vec<_> = got.iter().map(|one| one.header("belay-event")).collect();
    assert_eq!(kinds, ["task.created", "task.created", "task.ready"]);
    assert!(got.iter().all(|one| one.json()["task"] == task.as_str()));
    assert!(got[2].header("belay-signature").starts_with("t="), "{}", got[2].head);
    assert!(!world.log().contains("sesame"), "{}", world.log());
    assert!(!world.belay(&["config"]).done().out.contains("sesame"));
    let shown = world.belay(&["webhook", "ls", "--json"]).done().out;
    assert!(shown.contains("farm") && !shown.contains("sesame"), "{shown}");
    let refused = world.belay(&["webhook", "add", "evil", "http://169.254.169.254/latest"]);
    refused.refused(2, "link-local");
}

#[test]
fn a_webhook_is_changed_and_paused_and_told_later_what_happened_meanwhile() {
    let receiver = Receiver::new();
    let world = World::new(&format!("{QUICK}[watch]\nwebhook_allow = ['127.0.0.1']\n"));
    let url = format!("http://{}/in", receiver.address);
    world.belay(&["webhook", "add", "farm", &url, "--kinds", "task.failed"]).done();
    world.belay(&["webhook", "edit", "farm"]).refused(2, "--url");
    world.belay(&["webhook", "edit", "farm", "--kinds", "task.created"]).done();
    let paused = world.belay(&["webhook", "pause", "farm"]).done();
    assert!(paused.out.contains("told      task.created; paused"), "{paused:?}");
    assert!(world.belay(&["webhook", "ls"]).done().out.contains("belay, paused"));
    let task = world.script(&["--publish", "none"], "echo done");
    world.reaches(&task, "READY");
    assert!(receiver.got().is_empty(), "it is paused");
    assert_eq!(world.cell("SELECT count(*) FROM letters"), "0");
    world.belay(&["webhook", "resume", "farm"]).done();
    wait_for("it is told", || !receiver.got().is_empty());
    let got = receiver.got();
    assert_eq!(
        (got[0].header("belay-event").as_str(), &got[0].json()["task"]),
        ("task.created", &json!(task))
    );
}

/// The spans of every export, by name.
fn spans(receiver: &Receiver) -> Vec<Value> {
    let exports = receiver.got();
    let spans = exports.iter().flat_map(|got| {
        let export = got.json();
        export["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    spans.collect()
}

#[test]
fn one_trace_goes_from_the_request_to_the_exit_over_a_kill_of_the_server() {
    let receiver = Receiver::new();
    let address = receiver.address;
    let settings = format!(
        "{QUICK}node_lease = '2s'\nnode_renewal = '500ms'\n\
         [watch]\ntraces = 'http://{address}/v1/traces'\nlog = 'json'\nlog_level = 'debug'\n"
    );
    let world = World::new(&settings);
    let task = world.script(&["--publish", "none"], "reach up; await go; echo done");
    world.reached(&task, "up");
    let named = |name: &str| {
        let of_task = |span: &Value| span.to_string().contains(&task) || name.starts_with("POST");
        spans(&receiver).into_iter().find(|span| span["name"] == name && of_task(span))
    };
    wait_for("the request is told", || named("POST /api/v1/tasks").is_some());
    world.crash();
    world.up();
    world.let_go(&task, "go");
    world.reaches(&task, "READY");
    wait_for("the attempt is told", || named("terminate").is_some());
    let request = named("POST /api/v1/tasks").unwrap();
    let attempt = named("attempt 1").unwrap();
    assert_eq!(attempt["parentSpanId"], request["spanId"]);
    for name in ["prepare", "agent", "terminate"] {
        let span = named(name).unwrap();
        assert_eq!(span["traceId"], request["traceId"], "{name}");
        assert_eq!(span["parentSpanId"], attempt["spanId"], "{name}");
        let time = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
    }
    no_token_is_logged(&world);
    figures_are_told(&world);
}

/// The log of the whole run is JSON, and holds no token of any kind.
fn no_token_is_logged(world: &World) {
    let token = std::fs::read_to_string(world.data().join("token")).unwrap();
    let log = world.log();
    assert!(!log.contains(token.trim()), "the server's token is in its log");
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with('{')).collect();
    assert!(lines.len() > 5, "{log}");
    for line in &lines {
        let told: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(told["level"].is_string(), "{line}");
    }
    let requests = lines.iter().filter(|line| line.contains("\"id\":"));
    assert!(requests.count() > 0, "requests are named: {log}");
    for beginning in ["belay_attempt_", "Bearer "] {
        for at in log.match_indices(beginning).map(|(at, _)| at) {
            let rest = &log[at + beginning.len()..];
            assert!(rest.starts_with("***"), "a token: {}", &rest[..rest.len().min(60)]);
        }
    }
}

/// What is answered to a request over this connection.
fn asked(mut stream: impl Read + Write, path: &str, token: &str) -> String {
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What Prometheus would read.
fn figures_are_told(world: &World) {
    let file: Value =
        serde_json::from_slice(&std::fs::read(world.data().join("server.json")).unwrap()).unwrap();
    let address = file["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let ask = |token: &str| asked(TcpStream::connect(address).unwrap(), "/metrics", token);
    assert!(ask("wrong").starts_with("HTTP/1.1 401"));
    let agents = UnixStream::connect(world.data().join("agents/belay.sock")).unwrap();
    assert!(asked(agents, "/api/v1/version", "wrong").starts_with("HTTP/1.1 401"));
    let token = std::fs::read_to_string(world.data().join("token")).unwrap();
    let page = ask(token.trim());
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for line in [
        "belay_tasks{state=\"READY\"} 1",
        "belay_tasks_created_total 1",
        "belay_attempts_ended_total{outcome=\"succeeded\"} 1",
        "belay_alerts{kind=\"no_live_path\"} 0",
        "# TYPE belay_http_requests_total counter",
        "belay_http_requests_total{method=\"GET\",route=\"/metrics\",status=\"4xx\"} 1",
        // Whoever asks at the agents' socket is counted where people ask.
        "belay_http_requests_total{method=\"GET\",route=\"/api/v1/version\",status=\"4xx\"} 1",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    // What is seen for a moment only, such as a sandbox that has just ended, is pending.
    let alerts = world.api("GET", "/alerts", &json!({}));
    let mut states = alerts["alerts"].as_array().unwrap().iter().map(|alert| &alert["state"]);
    assert!(states.all(|state| state == "pending"), "{alerts}");
}

//! Live streams through real sockets, over a real log: nothing missed, nothing twice, nobody
//! buffered without bound.

#[path = "support/node.rs"]
mod node;
#[path = "support/sse.rs"]
mod sse;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use belay_api::port::{Asked, Port};
use belay_api::{AgentEvent, NewTask};
use belay_kernel::{EventKind, InstallationId, QuestionId, Timestamp};
use belay_store::{Memory, Store};
use futures_util::StreamExt;
use node::{Agent, Node, TOKEN, ask, ask_once, ask_without_token};
use serde_json::{Value, json};
use sse::{Message, Sse};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message as Ws};

const PATIENCE: Duration = Duration::from_secs(60);

/// Within the limit of every wait here.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

fn event(kind: &str, data: &str) -> AgentEvent {
    let kind = EventKind::from_name(kind);
    AgentEvent { seq: None, kind, call: None, data: data.to_owned() }
}

impl Agent {
    async fn tell(&self, node: &Node, events: Vec<AgentEvent>) {
        node.control.take_events(self.who, None, events, None).await.unwrap();
    }
}

/// The next message that carries data.
async fn next(stream: &mut Sse) -> Message {
    loop {
        let message = soon(stream.next()).await.unwrap().expect("the stream goes on");
        if message.data.is_some() {
            return message;
        }
    }
}

/// Reads events until this many distinct ones have come, being cut off now and then. Returns the
/// cursors in the order in which they came.
async fn read_over_sse(address: SocketAddr, cut_every: usize, until: u64) -> Vec<String> {
    let (mut seen, mut last) = (Vec::new(), None::<String>);
    loop {
        let query = if last.is_none() { "?after=oldest" } else { "" };
        let stream = Sse::open(address, TOKEN, query, last.as_deref()).await;
        let mut stream = stream.unwrap();
        assert_eq!(stream.status, 200);
        for _ in 0..cut_every {
            let message = soon(stream.next()).await.unwrap().expect("the stream goes on");
            last = message.id.clone().or(last);
            if message.data.is_some() {
                seen.push(message.id.unwrap());
            }
            if number(last.as_deref().unwrap()) >= until {
                return seen;
            }
        }
    }
}

fn number(cursor: &str) -> u64 {
    cursor.split_once('-').unwrap().1.parse().unwrap()
}

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn open_ws(
    address: SocketAddr,
    token: &str,
    query: &str,
) -> Result<Socket, tungstenite::Error> {
    let url = format!("ws://{address}/api/v1/events/ws{query}");
    let mut request = url.into_client_request()?;
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    Ok(tokio_tungstenite::connect_async(request).await?.0)
}

async fn next_ws(socket: &mut Socket) -> Option<Value> {
    loop {
        match soon(socket.next()).await?.unwrap() {
            Ws::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
            Ws::Close(_) => return None,
            _ => {}
        }
    }
}

async fn read_over_ws(address: SocketAddr, cut_every: usize, until: u64) -> Vec<String> {
    let (mut seen, mut last) = (Vec::new(), "oldest".to_owned());
    loop {
        let mut socket = open_ws(address, TOKEN, &format!("?after={last}")).await.unwrap();
        for _ in 0..cut_every {
            let message = next_ws(&mut socket).await.expect("the stream goes on");
            last = message["cursor"].as_str().unwrap().to_owned();
            if !message["kind"].as_str().unwrap().starts_with("stream.") {
                seen.push(last.clone());
            }
            if number(&last) >= until {
                return seen;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_back_with_the_cursor_misses_nothing_and_sees_nothing_twice() {
    const WRITERS: u64 = 16;
    const BATCHES: u64 = 25;
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let mut agents = Vec::new();
    for _ in 0..WRITERS {
        agents.push(node.agent().await);
    }
    let before = node.log(None).await.len() as u64;
    let until = before + WRITERS * BATCHES * 3;
    let mut readers = Vec::new();
    for cut_every in [7, 40, 1_000_000] {
        let address = node.address;
        readers.push(tokio::spawn(read_over_sse(address, cut_every, until)));
        readers.push(tokio::spawn(read_over_ws(address, cut_every, until)));
    }
    let writers = agents.iter().map(|agent| async {
        for batch in 0..BATCHES {
            let told =
                |part| event("agent.tool_use", &json!({ "of": batch, "part": part }).to_string());
            agent.tell(&node, vec![told(1), told(2), told(3)]).await;
        }
    });
    soon(futures_util::future::join_all(writers)).await;
    let log = node.log(None).await;
    assert_eq!(log.len() as u64, until);
    for reader in readers {
        let seen = soon(reader).await.unwrap();
        let distinct: BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "nothing comes twice");
        assert_eq!(seen, log, "nothing is missed, and all is in order");
    }
    soon(node.stop()).await;
}

#[tokio::test]
async fn streams_are_filtered_and_what_matters_has_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let (one, other) = (node.agent().await, node.agent().await);
    let of_task = format!("?task={}", one.who.task);
    let mut mine = Sse::open(node.address, TOKEN, &of_task, None).await.unwrap();
    let named = "?kind=task_completed,task_question,agent.to*";
    let mut named = Sse::open(node.address, TOKEN, named, None).await.unwrap();
    // The first message says where the streams begin: from there on nothing is missed.
    assert!(soon(mine.next()).await.unwrap().unwrap().id.is_some());
    assert!(soon(named.next()).await.unwrap().unwrap().id.is_some());
    other.tell(&node, vec![event("agent.thinking", "{}"), event("agent.told", "[1]")]).await;
    one.tell(&node, vec![event("agent.thinking", "{}")]).await;
    let asked = Asked {
        question: QuestionId::from_bits(9),
        text: "Wood or wire?".into(),
        options: vec![],
        held: true,
    };
    node.control.ask(one.who, asked).await.unwrap();
    node.control.stop("ada", other.who.task, Duration::ZERO).await.unwrap();

    assert_eq!(next(&mut mine).await.json()["kind"], "agent.thinking");
    let told = next(&mut named).await;
    assert_eq!((told.event.as_deref(), &told.json()["body"]), (None, &json!([1])));
    let question = next(&mut named).await;
    assert_eq!(question.event.as_deref(), Some("task_question"));
    assert_eq!(question.json()["body"]["text"], "Wood or wire?");
    let ended = next(&mut named).await;
    assert_eq!(ended.event.as_deref(), Some("task_completed"));
    assert_eq!(ended.json()["announces"], "task_completed");
    assert_eq!(ended.json()["task"], json!(other.who.task));
    soon(node.stop()).await;
}

#[tokio::test]
async fn an_agent_listens_to_its_own_task_only() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let (one, other) = (node.agent().await, node.agent().await);
    let foreign = format!("?task={}", other.who.task);
    let refused = Sse::open(node.address, &one.token, &foreign, None).await.unwrap();
    assert_eq!(refused.status, 403);
    assert!(open_ws(node.address, &one.token, &foreign).await.is_err());
    let mut own = Sse::open(node.address, &one.token, "", None).await.unwrap();
    assert!(soon(own.next()).await.unwrap().unwrap().id.is_some());
    other.tell(&node, vec![event("agent.secret", "{}")]).await;
    one.tell(&node, vec![event("agent.mine", "{}")]).await;
    assert_eq!(next(&mut own).await.json()["kind"], "agent.mine");
    soon(node.stop()).await;
}

/// A ticket of whoever has this token.
async fn ticket<S: Store>(node: &Node<S>, token: &str) -> String {
    let (status, made) = ask(node.address, "POST /api/v1/tickets", token, b"").await.unwrap();
    assert_eq!(status, 201, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["lasts_ms"], 30_000);
    made["ticket"].as_str().unwrap().to_owned()
}

/// Opens a stream as a page does, which can say no header; the status, if it is refused.
async fn open_as_page<S: Store>(node: &Node<S>, query: &str) -> Result<Socket, u16> {
    let url = format!("ws://{}/api/v1/events/ws{query}", node.address);
    match tokio_tungstenite::connect_async(url).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_page_opens_one_stream_with_one_ticket() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let (one, other) = (node.agent().await, node.agent().await);
    let query = format!("?kind=agent.*&ticket={}", ticket(&node, TOKEN).await);
    let mut socket = open_as_page(&node, &query).await.unwrap();
    assert_eq!(next_ws(&mut socket).await.unwrap()["kind"], "stream.heartbeat");
    other.tell(&node, vec![event("agent.seen", "{}")]).await;
    assert_eq!(next_ws(&mut socket).await.unwrap()["kind"], "agent.seen");
    assert_eq!(open_as_page(&node, &query).await.unwrap_err(), 401, "it was used");
    assert_eq!(open_as_page(&node, "?ticket=belay_ticket_x").await.unwrap_err(), 401);
    assert_eq!(open_as_page(&node, "").await.unwrap_err(), 401);

    // Over server-sent events too, and nowhere else.
    let mut page = Sse::open_as_page(node.address, &ticket(&node, TOKEN).await).await.unwrap();
    assert_eq!(page.status, 200);
    assert!(soon(page.next()).await.unwrap().unwrap().id.is_some());
    let unused = ticket(&node, TOKEN).await;
    let line = format!("GET /api/v1/events?ticket={unused}");
    let refused = soon(ask_without_token(node.address, &line)).await;
    assert_eq!(refused, 401, "a ticket opens streams and nothing else");
    assert!(open_as_page(&node, &format!("?ticket={unused}")).await.is_ok(), "it is unused");

    // It opens what the token that asked for it opens.
    let own = format!("?task={}&ticket={}", other.who.task, ticket(&node, &one.token).await);
    assert_eq!(open_as_page(&node, &own).await.unwrap_err(), 403);
    soon(node.stop()).await;
}

#[tokio::test]
async fn a_cursor_that_is_not_known_is_refused_before_the_stream_begins() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    for after in ["what", "0-1", "1-99999999", "-"] {
        let query = format!("?after={after}");
        let refused = Sse::open(node.address, TOKEN, &query, None).await.unwrap();
        assert_eq!(refused.status, 400, "{after}");
    }
    let plain = ask(node.address, "GET /api/v1/events/ws", TOKEN, b"").await.unwrap();
    assert_eq!(plain.0, 400, "{}", plain.1);
    soon(node.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_is_told_where_to_resume_and_closed() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let agent = node.agent().await;
    let mut slow = Sse::open(node.address, TOKEN, "?kind=agent.*", None).await.unwrap();
    let mut last = soon(slow.next()).await.unwrap().unwrap().id;
    let begin = node.log(None).await.len();
    // More than its queue and every buffer of its connection hold.
    let data = format!("\"{}\"", "x".repeat(20_000));
    for _ in 0..1_000 {
        agent.tell(&node, vec![event("agent.assistant_message", &data); 2]).await;
    }
    let (mut seen, mut told) = (Vec::new(), None);
    while let Some(message) = soon(slow.next()).await.unwrap() {
        last = message.id.clone().or(last);
        match message.event.as_deref() {
            Some("stream.resume") => told = Some(message),
            _ if message.data.is_some() => seen.push(message.id.unwrap()),
            _ => {}
        }
    }
    let told = told.expect("it is told").json();
    assert_eq!(
        (&told["body"]["reason"], told["cursor"].as_str()),
        (&json!("slow"), last.as_deref())
    );
    let log = node.log(None).await;
    assert!(seen.len() < log.len() - begin, "it was slow: {}", seen.len());
    let mut again = Sse::open(node.address, TOKEN, "?kind=agent.*", last.as_deref()).await.unwrap();
    while seen.len() < log.len() - begin {
        seen.push(next(&mut again).await.id.unwrap());
    }
    assert_eq!(seen, log[begin..], "where it resumes nothing is missed and nothing comes twice");
    soon(node.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_ends_a_thousand_streams_and_says_where_to_resume() {
    const STREAMS: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::on(directory.path()).await;
    let agent = node.agent().await;
    let (mut streams, mut sockets) = (Vec::new(), Vec::new());
    for index in 0..STREAMS {
        if index % 10 == 0 {
            sockets.push(open_ws(node.address, TOKEN, "").await.unwrap());
        } else {
            streams.push(Sse::open(node.address, TOKEN, "", None).await.unwrap());
        }
    }
    agent.tell(&node, vec![event("agent.last", "{}")]).await;
    let last = node.log(None).await.pop().unwrap();
    // Everybody has it before the server is told.
    for stream in &mut streams {
        assert_eq!(next(stream).await.id.as_ref(), Some(&last));
    }
    node.tell_to_stop();
    for mut stream in streams {
        let resume = next(&mut stream).await;
        assert_eq!(resume.event.as_deref(), Some("stream.resume"));
        assert_eq!(resume.json()["body"]["reason"], "stopping");
        assert_eq!(resume.id.as_ref(), Some(&last));
        assert_eq!(soon(stream.next()).await.unwrap(), None, "ended as it should be");
    }
    for mut socket in sockets {
        let mut kinds = Vec::new();
        while let Some(message) = next_ws(&mut socket).await {
            kinds.push(message["kind"].as_str().unwrap().to_owned());
        }
        assert_eq!(kinds, ["stream.heartbeat", "agent.last", "stream.resume"]);
    }
    soon(node.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_which_nothing_happens_says_so_and_moves_on() {
    let store = Memory::new(InstallationId::from_bits(1), 1);
    store.set_now(Timestamp::from_millis(1_000_000));
    let node = Node::with(store).await;
    let agent = node.agent().await;
    let of = "?kind=task_question";
    let mut stream = Sse::open(node.address, TOKEN, of, None).await.unwrap();
    let begin = stream.next().await.unwrap().unwrap().id.unwrap();
    // What it does not want moves its cursor all the same, so that it never grows too old.
    let events = vec![event("agent.x", "{}"); 3];
    node.control.take_events(agent.who, None, events, None).await.unwrap();
    let beat = stream.next().await.unwrap().unwrap();
    assert_eq!((beat.comment.as_deref(), beat.data), (Some("heartbeat"), None));
    assert_eq!(number(&beat.id.unwrap()), number(&begin) + 3);
    let mut socket = open_ws(node.address, TOKEN, of).await.unwrap();
    for _ in 0..2 {
        let beat = next_ws(&mut socket).await.unwrap();
        assert_eq!(beat["kind"], "stream.heartbeat");
    }
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_an_agent_dies_with_its_attempt() {
    let store = Memory::new(InstallationId::from_bits(1), 1);
    store.set_now(Timestamp::from_millis(1_000_000));
    let node = Node::with(store).await;
    let agent = node.agent().await;
    let mut stream = Sse::open(node.address, &agent.token, "", None).await.unwrap();
    node.control.stop("ada", agent.who.task, Duration::ZERO).await.unwrap();
    let mut reasons = Vec::new();
    while let Some(message) = stream.next().await.unwrap() {
        if message.event.as_deref() == Some("stream.resume") {
            reasons.push(message.json()["body"]["reason"].clone());
        }
    }
    assert_eq!(reasons, ["forbidden"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_a_ticket_opened_dies_with_the_token_that_asked_for_it() {
    let store = Memory::new(InstallationId::from_bits(1), 1);
    store.set_now(Timestamp::from_millis(1_000_000));
    let node = Node::with(store).await;
    let agent = node.agent().await;
    let query = format!("?ticket={}", ticket(&node, &agent.token).await);
    node.control.stop("ada", agent.who.task, Duration::ZERO).await.unwrap();
    let mut socket = open_as_page(&node, &query).await.unwrap();
    let mut last = Value::Null;
    while let Some(message) = next_ws(&mut socket).await {
        last = message;
    }
    let expected = (&json!("stream.resume"), &json!("forbidden"));
    assert_eq!((&last["kind"], &last["body"]["reason"]), expected);
}

#[tokio::test]
async fn what_an_agent_tells_of_itself_goes_in_by_its_own_token_and_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let (one, other) = (node.agent().await, node.agent().await);
    let post = async |agent: &Agent, sandbox: &Agent, what: &str, body: &str| {
        let line = format!("POST /api/v1/sandboxes/{}/{what}", sandbox.sandbox);
        let answer = ask(node.address, &line, &agent.token, body.as_bytes()).await.unwrap();
        (answer.0, serde_json::from_str::<Value>(&answer.1).unwrap())
    };
    let two = r#"[{"kind":"started","seq":1},{"kind":"agent.tool_use","seq":2}]"#;
    let taken = json!({ "taken": 2, "known": 0, "next": 3 });
    assert_eq!(post(&one, &one, "events", two).await, (200, taken));
    let again = json!({ "taken": 0, "known": 2, "next": 3 });
    assert_eq!(post(&one, &one, "events", two).await, (200, again));
    let late = post(&one, &one, "events", r#"{"kind":"x","seq":9}"#).await;
    assert_eq!(
        (late.0, &late.1["code"], &late.1["choices"]),
        (409, &json!("out_of_order"), &json!(["3"]))
    );
    let beat = post(&one, &one, "heartbeat", r#"{"status":"running"}"#).await;
    assert_eq!(
        (beat.0, &beat.1["state"], &beat.1["verdict"]),
        (200, &json!("RUNNING"), &json!("working"))
    );
    let bad = post(&one, &one, "heartbeat", r#"{"status":"merry"}"#).await;
    assert_eq!((bad.0, &bad.1["code"]), (400, &json!("bad_request")));
    let bad = post(&one, &one, "events", r#"[{"kind":"x"},{"kind":1}]"#).await;
    assert!(bad.1["detail"].as_str().unwrap().starts_with("events[1]: "), "{bad:?}");
    assert_eq!(post(&one, &other, "events", two).await.0, 403);
    let line = format!("POST /api/v1/sandboxes/{}/events", one.sandbox);
    assert_eq!(ask(node.address, &line, TOKEN, two.as_bytes()).await.unwrap().0, 403);
    assert_eq!(ask(node.address, &line, "wrong", two.as_bytes()).await.unwrap().0, 401);
    node.control.stop("ada", one.who.task, Duration::ZERO).await.unwrap();
    for what in ["events", "heartbeat"] {
        let body = if what == "events" { two } else { r#"{"status":"idle"}"# };
        let fenced = post(&one, &one, what, body).await;
        assert_eq!((fenced.0, &fenced.1["code"]), (409, &json!("fenced")));
    }
    soon(node.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_loses_no_request() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::on(directory.path()).await;
    let address = node.address;
    let before = node.log(None).await.len();
    let mut clients = Vec::new();
    for client in 0..16 {
        clients.push(tokio::spawn(async move {
            let (mut made, mut unanswered) = (Vec::new(), 0);
            for round in 0.. {
                let key = format!("{client}-{round}");
                let task = NewTask { prompt: key.clone(), ..NewTask::default() };
                let body = serde_json::to_vec(&task).unwrap();
                match ask_once(address, "POST /api/v1/tasks", TOKEN, Some(&key), &body).await {
                    Ok((201, body)) => made.push(body),
                    Ok((status, body)) => panic!("{status} {body}"),
                    // Nobody listens any more: nothing was asked.
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => break,
                    Err(_) => unanswered += 1,
                }
            }
            (made, unanswered)
        }));
    }
    while node.log(None).await.len() < 200 {
        tokio::task::yield_now().await;
    }
    node.tell_to_stop();
    let (mut made, mut unanswered) = (Vec::new(), 0);
    for client in clients {
        let (some, lost) = soon(client).await.unwrap();
        made.extend(some);
        unanswered += lost;
    }
    let ids: BTreeSet<_> = made
        .iter()
        .map(|body| serde_json::from_str::<Value>(body).unwrap()["id"].to_string())
        .collect();
    let done = node.log(None).await.len() - before;
    assert_eq!(done, ids.len(), "what was done was answered, and nothing twice");
    assert!(unanswered <= 16, "{unanswered} connections were in nobody's hands yet");
    soon(node.stop()).await;
}

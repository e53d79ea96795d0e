//! Live streams of the real server: a stop in the middle of a thousand of them, and agents that
//! speak for themselves.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{PATIENCE, QUICK, World, wait_for};

/// Opens a stream; its answer has begun when this returns.
fn open(world: &World, query: &str) -> TcpStream {
    let (address, token) = world.server();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "GET /api/v1/events/stream{query} HTTP/1.1\r\nhost: {address}\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 17]).unwrap();
    stream
}

/// This side needs a file for each stream too.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn a_stop_signal_during_a_thousand_streams_ends_each_with_a_place_to_resume() {
    raise_file_limit();
    let world = World::new(QUICK);
    let streams: Vec<TcpStream> = (0..1_000).map(|_| open(&world, "")).collect();
    let task = world.api("POST", "/tasks", &serde_json::json!({ "prompt": "x", "hold": true }));
    let began = Instant::now();
    assert_eq!(world.terminate(), Some(0), "{}", world.log());
    assert!(began.elapsed() < Duration::from_secs(10), "it waits for nobody");
    // Where each is told to resume, and whether it was told of the task before.
    let id = task["id"].as_str().unwrap();
    let mut places = BTreeMap::new();
    for mut stream in streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("0\r\n\r\n"), "the answer is whole: {text}");
        let (before, told) = text.split_once("event: stream.resume\ndata: ").expect("it is told");
        let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        assert_eq!(told["body"]["reason"], "stopping");
        let place = told["cursor"].as_str().unwrap().to_owned();
        let seen = before.contains(id);
        assert_eq!(*places.entry(place).or_insert(seen), seen, "{text}");
    }
    world.up();
    let next = world.api("POST", "/tasks", &serde_json::json!({ "prompt": "y", "hold": true }));
    for (place, seen) in places {
        let mut again = open(&world, &format!("?after={place}"));
        let (mut text, mut buffer) = (String::new(), [0; 4_096]);
        while !text.contains(next["id"].as_str().unwrap()) {
            let count = again.read(&mut buffer).unwrap();
            assert!(count > 0, "{text}");
            text += std::str::from_utf8(&buffer[..count]).unwrap();
        }
        assert_eq!(text.contains(id), !seen, "nothing is missed, and nothing comes twice: {text}");
    }
}

#[test]
fn an_agent_tells_of_itself_and_is_fenced_when_it_is_stopped() {
    let world = World::new(QUICK);
    // Without curl it speaks through a socket of its shell; the answers' first lines are printed.
    let script = r#"
        host=${BELAY_URL#http://}
        say() {
            exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
            {
                printf 'POST /api/v1/sandboxes/self/%s HTTP/1.1\r\nhost: %s\r\n' "$1" "$host"
                printf 'authorization: Bearer %s\r\nconnection: close\r\n' "$BELAY_TOKEN"
                printf 'content-length: %s\r\n\r\n%s' "${#2}" "$2"
            } >&3
            head -1 <&3 | cut -d' ' -f2
            exec 3>&-
        }
        say events '[{"kind":"agent.telepathy","seq":1},{"kind":"agent.completed","seq":2}]'
        say events '[{"kind":"agent.telepathy","seq":1},{"kind":"agent.completed","seq":2}]'
        say heartbeat '{"status":"running"}'
        trap '' TERM
        : > .git/told
        while :; do sleep 0.05; done
    "#;
    let task = world.start(&["--", "bash", "-c", script]);
    world.reached(&task, "told");
    let query = format!(
        "SELECT group_concat(kind) FROM (SELECT kind FROM events WHERE task = '{task}'
         AND kind LIKE 'agent.%' ORDER BY number)"
    );
    assert_eq!(world.cell(&query), "agent.telepathy,agent.completed");
    wait_for("what it was answered is printed", || world.transcript(&task, 1) == "200\n200\n200\n");
    let state = "SELECT state FROM sandboxes";
    assert_eq!(world.cell(state), "COMPLETED");
    world.belay(&["stop", &task]).done();
    world.nothing_runs();
}

//! How fast an agent's output is read, against what cannot be saved: cutting the same bytes into
//! lines with `memchr`, and parsing the same lines into JSON values. `cargo bench -p belay-agent`.
//!
//! The stream is Claude Code's: partial messages, a tool call, its result of some kilobytes, now
//! and then a big one. Each figure is the best of several rounds, so that other work on the machine
//! counts as little as it can.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use belay_agent::{Agent, Exit, Launch, Seen};
use belay_kernel::Timestamp;

#[path = "../tests/conformance/common.rs"]
#[allow(dead_code)]
mod common;

const ROUNDS: usize = 7;
const CHUNK: usize = 64 << 10;

fn main() {
    let stream = claude_stream(64 << 20);
    let setting =
        common::Setting { agent: Agent::Claude, resumed: None, asks: false, exit: Exit::Code(0) };
    let launch = common::launch(&setting);
    let mut out = std::io::stdout();
    let mut say = |name: &str, took: Duration| {
        let rate = stream.len() as f64 / 1e6 / took.as_secs_f64();
        writeln!(out, "{name:<44} {rate:>8.0} MB/s").unwrap();
        rate
    };
    say("baseline: lines by memchr alone", best(|| cut_only(&stream)));
    say("baseline: every line a serde_json::Value", best(|| parse_all(&stream)));
    let rate = say("belay-agent: Claude Code's stream", best(|| read_all(&launch, &stream)));
    let turn = small_turn();
    let each = best(|| {
        for _ in 0..100 {
            read_all(&launch, &turn);
        }
    }) / 100;
    writeln!(out, "plan and reader of one turn of {} bytes   {each:>12.2?}", turn.len()).unwrap();
    let planning = best(|| {
        for _ in 0..100 {
            black_box(Agent::Claude.plan(&launch)).ok();
        }
    }) / 100;
    writeln!(out, "plan of one launch                        {planning:>15.2?}").unwrap();
    assert!(rate >= 200.0, "reading is slower than 200 MB/s: {rate:.0}");
    assert!(each < Duration::from_millis(5), "a turn costs more than 5 ms: {each:?}");
}

fn best(mut act: impl FnMut()) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let before = Instant::now();
        act();
        before.elapsed()
    });
    rounds.min().expect("there are rounds")
}

fn cut_only(stream: &[u8]) {
    let mut rest = stream;
    let mut count = 0;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        count += 1;
        rest = &rest[end + 1..];
    }
    black_box(count);
}

fn parse_all(stream: &[u8]) {
    for line in stream.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value: serde_json::Value = serde_json::from_slice(line).expect("a line is JSON");
        black_box(&value);
    }
}

fn read_all(launch: &Launch, stream: &[u8]) {
    let mut reader = Agent::Claude.reader(launch);
    let mut seen: Vec<Seen> = Vec::new();
    for chunk in stream.chunks(CHUNK) {
        reader.push(Timestamp::EPOCH, chunk, &mut seen);
        black_box(&seen);
        seen.clear();
    }
    black_box(reader.finish(Timestamp::EPOCH, Exit::Code(0), &mut seen));
}

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// A turn of Claude Code as it prints it, with a tool result of `size` bytes.
fn step(number: usize, size: usize, into: &mut Vec<u8>) {
    let tail = format!(
        "\"session_id\":\"{SESSION}\",\"parent_tool_use_id\":null,\
         \"uuid\":\"a256713c-8a1f-4f62-819d-d8ea2170a5de\""
    );
    let mut line = |text: String| {
        into.extend_from_slice(text.as_bytes());
        into.push(b'\n');
    };
    let usage = "{\"input_tokens\":1000,\"output_tokens\":1,\"cache_read_input_tokens\":200}";
    line(format!(
        "{{\"type\":\"stream_event\",\"event\":{{\"message\":{{\"content\":[],\"usage\":{usage}}},\
         \"type\":\"message_start\"}},{tail}}}"
    ));
    for word in 0..40 {
        line(format!(
            "{{\"type\":\"stream_event\",\"event\":{{\"delta\":{{\"text\":\" word {word} of many, \
             with \\\"quotes\\\"\",\"type\":\"text_delta\"}},\"index\":0,\
             \"type\":\"content_block_delta\"}},{tail}}}"
        ));
    }
    line(format!(
        "{{\"type\":\"stream_event\",\"event\":{{\"delta\":{{\"stop_reason\":\"tool_use\"}},\
         \"type\":\"message_delta\",\"usage\":{{\"output_tokens\":40}}}},{tail}}}"
    ));
    line(format!(
        "{{\"type\":\"assistant\",\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\"I will \
         look.\"}},{{\"id\":\"call_{number}\",\"input\":{{\"command\":\"cat file\"}},\
         \"name\":\"Bash\",\"type\":\"tool_use\"}}]}},{tail}}}"
    ));
    let text = "    let value = compute(\\\"input\\\");\\n".repeat(size / 40);
    line(format!(
        "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":[{{\"tool_use_id\":\
         \"call_{number}\",\"type\":\"tool_result\",\"content\":\"{text}\",\"is_error\":false}}]}},\
         {tail},\"tool_use_result\":{{\"stdout\":\"{text}\"}}}}"
    ));
}

fn opening() -> Vec<u8> {
    format!("{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"{SESSION}\"}}\n").into()
}

fn closing(into: &mut Vec<u8>) {
    into.extend_from_slice(
        format!(
            "{{\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"{SESSION}\",\
             \"type\":\"result\"}}\n"
        )
        .as_bytes(),
    );
}

fn claude_stream(bytes: usize) -> Vec<u8> {
    let mut stream = opening();
    let mut number = 0;
    while stream.len() < bytes {
        number += 1;
        let size = if number % 200 == 0 { 1 << 20 } else { 4 << 10 };
        step(number, size, &mut stream);
    }
    closing(&mut stream);
    stream
}

fn small_turn() -> Vec<u8> {
    let mut stream = opening();
    for number in 0..5 {
        step(number, 4 << 10, &mut stream);
    }
    closing(&mut stream);
    stream
}

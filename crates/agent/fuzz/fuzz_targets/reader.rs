//! Any bytes, in any pieces, to any reader: it never panics, accounts for every byte, and holds a
//! bounded memory. The first byte picks the agent and the permissions, the second the size of the
//! pieces, the third the exit.
//!
//! Run with `cargo +nightly fuzz run reader -- -max_len=65536`, from `crates/agent`. A corpus is
//! made from the kept streams by `fuzz/seed.sh`.

#![no_main]

use std::collections::BTreeMap;

use belay_agent::{
    Agent, BelayEnvironment, Conversation, ConversationId, Exit, Launch, McpServer, Permissions,
};
use belay_kernel::{AttemptNumber, TaskId, Timestamp};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 16 << 10;

fuzz_target!(|data: &[u8]| {
    let [pick, size, exit, stream @ ..] = data else { return };
    let agent = Agent::ALL[usize::from(pick & 7)];
    let launch = launch(pick & 8 != 0, pick & 16 != 0);
    let mut reader = agent.reader(&launch);
    let mut seen = Vec::new();
    for piece in stream.chunks(1 + usize::from(*size) * 7) {
        reader.push(Timestamp::EPOCH, piece, &mut seen);
        assert!(reader.held() <= 2 * LIMIT + (64 << 10));
        let held = reader.questions().next().map(|question| question.key.clone());
        if let Some(key) = held {
            let _ = reader.answer(&key, "1");
        }
        let _ = reader.interrupt();
    }
    let exit = match exit % 5 {
        0 => Exit::Code(0),
        1 => Exit::Code(i32::from(*exit)),
        2 => Exit::Signal(9),
        3 => Exit::Ended,
        _ => Exit::Unseen,
    };
    reader.finish(Timestamp::EPOCH, exit, &mut seen);
    assert_eq!(reader.taken(), stream.len() as u64);
    assert!(seen.iter().all(|seen| seen.at.end <= stream.len() as u64));
});

fn launch(asks: bool, resumed: bool) -> Launch {
    let id = ConversationId::chosen(7);
    let conversation =
        if resumed { Conversation::Resumed(id) } else { Conversation::Fresh(id) };
    Launch {
        program: vec!["agent".into()],
        prompt: "Please.".into(),
        conversation,
        model: None,
        permissions: if asks { Permissions::Ask } else { Permissions::All },
        mcp: vec![McpServer::belay("http://127.0.0.1:1")],
        work_dir: "/tree".into(),
        state_dir: "/state".into(),
        belay: BelayEnvironment {
            url: "http://127.0.0.1:1".into(),
            token: "token".into(),
            task: TaskId::from_bits(7),
            attempt: AttemptNumber(1),
            prompt_file: "/prompt".into(),
            question_file: "/question".into(),
            summary_file: "/summary".into(),
        },
        environment: BTreeMap::new(),
        settings: serde_json::Map::new(),
        max_turns: None,
        max_budget: None,
        line_limit: LIMIT,
    }
}

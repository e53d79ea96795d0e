//! Streams kept with this crate, and how they are read again: hand-made ones of the documented
//! shapes (`tests/streams`) and recordings of real agents (`tests/fixtures`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use belay_agent::{
    Agent, BelayEnvironment, Conversation, ConversationId, Exit, Judgement, LINE_LIMIT, Launch,
    McpServer, Permissions, Reader, Seen,
};
use belay_kernel::{AttemptNumber, TaskId, Timestamp};
use serde::Deserialize;

/// What a reader must be told beside the stream.
#[derive(Deserialize, Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) agent: Agent,
    pub(crate) resumed: Option<String>,
    pub(crate) asks: bool,
    pub(crate) exit: Exit,
}

/// A kept stream.
pub(crate) struct Kept {
    pub(crate) path: PathBuf,
    pub(crate) setting: Setting,
    pub(crate) stream: Vec<u8>,
}

/// Every kept stream, in order.
pub(crate) fn kept() -> Vec<Kept> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = Vec::new();
    for folder in ["streams", "fixtures"] {
        for agent in sorted(&tests.join(folder)) {
            let files = sorted(&agent);
            let streams =
                files.iter().filter(|path| path.extension().is_some_and(|e| e == "stream"));
            for path in streams {
                let setting = fs::read(path.with_extension("json")).unwrap();
                found.push(Kept {
                    path: path.clone(),
                    setting: serde_json::from_slice(&setting).unwrap(),
                    stream: fs::read(path).unwrap(),
                });
            }
        }
    }
    found
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// A launch that agrees with a setting.
pub(crate) fn launch(setting: &Setting) -> Launch {
    let chosen = ConversationId::chosen(7);
    let conversation = match &setting.resumed {
        Some(id) => Conversation::Resumed(ConversationId::new(id).unwrap()),
        None => Conversation::Fresh(chosen),
    };
    Launch {
        program: vec!["/programs/agent".into()],
        prompt: "Please.".into(),
        conversation,
        model: None,
        permissions: if setting.asks { Permissions::Ask } else { Permissions::All },
        mcp: vec![McpServer::belay("http://127.0.0.1:4000")],
        work_dir: "/sandbox/tree".into(),
        state_dir: "/sandbox/state".into(),
        belay: BelayEnvironment {
            url: "http://127.0.0.1:4000".into(),
            token: "attempt-token-7f3a".into(),
            task: TaskId::from_bits(7),
            attempt: AttemptNumber(1),
            prompt_file: "/sandbox/prompt".into(),
            question_file: "/sandbox/question".into(),
            summary_file: "/sandbox/summary".into(),
        },
        environment: BTreeMap::new(),
        settings: serde_json::Map::new(),
        max_turns: None,
        max_budget: None,
        line_limit: LINE_LIMIT,
    }
}

/// What a reader made of a stream.
pub(crate) struct Reading {
    pub(crate) seen: Vec<Seen>,
    pub(crate) judgement: Judgement,
    pub(crate) reader: Reader,
}

/// The receiver's clock stands still, so that readings can be compared.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_794_734_000_000);

/// Reads a stream in pieces, then ends it.
pub(crate) fn read<'a>(
    setting: &Setting,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    exit: Exit,
) -> Reading {
    let mut reader = setting.agent.reader(&launch(setting));
    let (mut seen, mut total) = (Vec::new(), 0);
    for piece in pieces {
        reader.push(NOW, piece, &mut seen);
        total += piece.len() as u64;
        assert_eq!(reader.taken(), total, "every byte is accounted for as it comes");
    }
    let judgement = reader.finish(NOW, exit, &mut seen);
    assert_eq!(reader.taken(), total, "every byte is accounted for at the end");
    for pair in seen.windows(2) {
        assert!(pair[0].at.start <= pair[1].at.start, "observations are in the stream's order");
    }
    assert!(seen.iter().all(|seen| seen.at.end <= total), "observations are in the stream");
    Reading { seen, judgement, reader }
}

//! `belay demo`, judged from outside: by its exit code, its table, /proc and what is left on disk.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What the ten tasks must end as, in the order of the table.
const EXPECTED: [(&str, &str); 10] = [
    ("success", "COMPLETED"),
    ("question", "COMPLETED"),
    ("subtasks", "COMPLETED"),
    ("chain", "COMPLETED"),
    ("crash", "COMPLETED"),
    ("hang", "TIMED_OUT"),
    ("idle", "FAILED"),
    ("stuck", "FAILED"),
    ("stop", "CANCELLED"),
    ("budget", "BUDGET_EXCEEDED"),
];
/// The clocks that must have fired.
const FIRED: [(&str, &str); 3] =
    [("hang", "inactivity"), ("idle", "idle_timeout"), ("stuck", "stuck_running")];
/// How long the demo may take, on a slow machine with others on it.
const LIMIT: Duration = Duration::from_secs(120);

/// The demo, with `directory` as the place of temporary files: its name is in the command line or
/// the environment of every process that the demo starts, however indirectly.
fn start(directory: &Path, arguments: &[&str]) -> Child {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_belay"));
    demo.arg("demo").args(arguments).env("TMPDIR", directory).env("HOME", directory);
    demo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The processes that carry the directory's name, besides `but`.
fn marked(directory: &Path, but: u32) -> Vec<(u32, String)> {
    let mark = directory.file_name().unwrap().to_str().unwrap().as_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        let has = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
        if pid != but && (has(&line) || has(&environment)) {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Waits until something is so.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn all_ten_tasks_end_as_they_should_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let demo = start(directory.path(), &["--json"]);
    let pid = demo.id();
    let output = demo.wait_with_output().unwrap();
    assert_eq!(marked(directory.path(), pid), [], "every process is gone when the demo is");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{told:#}");
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    let rows = told["rows"].as_array().unwrap();
    let ended: Vec<_> = rows
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["state"].as_str().unwrap()))
        .collect();
    assert_eq!(ended, EXPECTED);
    for row in rows {
        assert_eq!(row["as_expected"], true, "{row:#}");
        assert!(row["transcript_bytes"].as_u64().unwrap() > 0, "{row:#}");
        assert!(row["kept_ref"].as_str().unwrap().starts_with("refs/belay/kept/"), "{row:#}");
        assert!(row["noticed_ms"].is_u64(), "{row:#}");
    }
    for (name, rule) in FIRED {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        assert_eq!(row["rule"], rule);
        assert!(row["measured"].is_string() && row["allowed"].is_string(), "{row:#}");
    }
    assert_eq!(entries(directory.path()), [""; 0], "every file is gone");
}

#[test]
fn an_interrupt_ends_everything_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = start(directory.path(), &[]);
    let pid = demo.id();
    wait_until("an agent runs", || {
        demo.try_wait().unwrap().is_some()
            || marked(directory.path(), pid)
                .iter()
                .any(|(_, line)| line.contains("demo-agent stop"))
    });
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    let status = demo.wait().unwrap();
    assert_eq!(marked(directory.path(), pid), []);
    assert_eq!(status.code(), Some(130));
    assert_eq!(entries(directory.path()), [""; 0]);
}

#[test]
fn what_is_kept_can_be_looked_at_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let output = start(directory.path(), &["--json", "--keep"]).wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let root = Path::new(told["kept"].as_str().unwrap());
    assert!(root.join("data/belay.db").exists(), "{:?}", entries(&root.join("data")));
    let branch = told["rows"][0]["branch"].as_str();
    let listed = Command::new("git")
        .args(["for-each-ref", "--format=%(refname:short)", "refs/heads/belay"])
        .current_dir(root.join("repository"))
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).trim().to_owned();
    // Without isolation nothing is published, and the table says so.
    assert_eq!(listed, branch.unwrap_or_default());
}

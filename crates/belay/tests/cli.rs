//! The command line as a program: real arguments, a real socket, exit codes and output.

#[path = "../../server/tests/support/fake.rs"]
mod fake;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use belay_api::{Code, Problem};
use belay_kernel::task::{Failure, State};
use belay_kernel::{AttemptNumber, Cause, Clock};
use belay_server::{Access, Token, serve};
use fake::{ASKING, Fake, QUESTION, RUNNING, TASK};
use tokio::net::TcpListener;

const READY: State = State::Ready { attempt: AttemptNumber(1) };
const FAILED: State = State::Failed(Failure::Cause(Cause::Crash));
const TIMED_OUT: State = State::TimedOut { clock: Clock::Absolute };

/// A server with a scripted service, and a home without anything.
struct World {
    fake: Fake,
    url: String,
    home: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(fake: Fake) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let access = Access::new(Token::new("secret"), address);
        runtime.spawn(serve(listener, fake.clone(), access, std::future::pending()));
        let (url, home) = (format!("http://{address}"), tempfile::tempdir().unwrap());
        Self { fake, url, home, _runtime: runtime }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = belay(self.home.path(), arguments);
        command.env("BELAY_URL", &self.url).env("BELAY_TOKEN", "secret");
        command
    }

    fn belay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// The program in an environment of its own.
fn belay(home: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
    command.args(arguments).env_clear().env("HOME", home).current_dir(home);
    command.env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

#[test]
fn run_ends_with_the_code_of_the_outcome() {
    for (state, expected) in [
        (State::Completed, 0),
        (READY, 0),
        (FAILED, 1),
        (ASKING, 5),
        (TIMED_OUT, 6),
        (State::Cancelled, 7),
        (State::BudgetExceeded, 8),
    ] {
        let world = World::new(Fake::new(&[RUNNING, RUNNING, state]).printing(b"one\ntwo\n"));
        let ended = world.belay(&["run", "--", "true"]);
        assert_eq!(code(&ended), expected, "{state:?}: {ended:?}");
        let text = out(&ended);
        assert!(text.starts_with("one\ntwo\n"), "what the command printed: {text}");
        assert!(text.contains(&format!("{}  {TASK}", state.name())), "{text}");
        assert!(!text.contains('\x1b') && !err(&ended).contains('\x1b'), "no colours in a pipe");
    }
}

#[test]
fn run_goes_on_when_the_server_is_restarted() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let home = tempfile::tempdir().unwrap();
    let access = |address| Access::new(Token::new("secret"), address);
    let before = Fake::new(&[RUNNING]).printing(b"one\n");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let first = runtime.spawn(serve(listener, before.clone(), access(address), async {
        let _ = stopped.await;
    }));
    let mut command = belay(home.path(), &["run", "--", "true"]);
    command.env("BELAY_URL", format!("http://{address}")).env("BELAY_TOKEN", "secret");
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !before.calls().iter().any(|call| call.starts_with("events")) {
        assert!(Instant::now() < until, "nobody follows: {:?}", before.calls());
        std::thread::sleep(Duration::from_millis(5));
    }
    stop.send(()).unwrap();
    runtime.block_on(first).unwrap().unwrap();

    let after = Fake::new(&[RUNNING, State::Completed]).printing(b"one\n");
    let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
    runtime.spawn(serve(listener, after.clone(), access(address), std::future::pending()));
    let ended = run.wait_with_output().unwrap();
    assert_eq!(code(&ended), 0, "{ended:?}");
    assert!(out(&ended).starts_with("one\nCOMPLETED"), "nothing is told twice: {ended:?}");
    let cursor = after.calls().iter().any(|call| call.ends_with("Some(\"7\")"));
    assert!(cursor, "it goes on where it was: {:?}", after.calls());
}

#[test]
fn run_as_json_prints_the_task_and_nothing_else() {
    let world = World::new(Fake::new(&[RUNNING, RUNNING, READY]).printing(b"one\n"));
    let ended = world.belay(&["run", "--json", "--", "true"]);
    let task: serde_json::Value = serde_json::from_str(&out(&ended)).unwrap();
    assert_eq!((task["state"].as_str(), code(&ended)), (Some("READY"), 0));
    assert_eq!(err(&ended), "");
}

#[test]
fn detached_run_prints_the_id_and_sends_what_was_said() {
    let world = World::new(Fake::new(&[RUNNING]));
    let mut command = world.command(&[
        "run",
        "do it",
        "--detach",
        "--env",
        "MINE",
        "--idempotency-key",
        "k",
        "--after",
        &TASK.to_string()[..5],
        "--",
        "make",
    ]);
    let ended = command.env("MINE", "yes").output().unwrap();
    assert_eq!((code(&ended), out(&ended)), (0, format!("{TASK}\n")));
    let made = world.fake.made().unwrap();
    assert_eq!(
        (made.prompt.as_str(), made.command.as_slice()),
        ("do it", &["make".to_owned()][..])
    );
    assert_eq!(made.after, [TASK]);
    assert_eq!(made.environment.get("MINE").map(String::as_str), Some("yes"));
    assert_eq!(made.repository, None, "not in a repository");
    assert_eq!(world.fake.calls(), ["create by admin with k"]);
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_made() {
    let world = World::new(Fake::new(&[RUNNING]));
    for (arguments, expected, text) in [
        (vec!["run", "x", "--agent", "cluade"], 2, "did you mean `claude`?"),
        (vec!["run", "x", "--env", "NOT_SET", "--", "true"], 2, "--env NOT_SET: there is no such"),
        (vec!["run", "x", "--agent", "cursor"], 3, "cursor is not installed"),
        (vec!["run"], 2, "Usage"),
        (vec!["ls", "--state", "nowhere"], 2, "there is no such state"),
        (vec!["show", "zzzz"], 3, "there is no task `zzzz`"),
    ] {
        let mut command = world.command(&arguments);
        let ended = command.env("PATH", "/nowhere").output().unwrap();
        assert_eq!(code(&ended), expected, "{arguments:?}: {ended:?}");
        assert!(err(&ended).contains(text), "{arguments:?}: {}", err(&ended));
        assert_eq!(out(&ended), "");
    }
    assert_eq!(world.fake.calls(), Vec::<String>::new());
}

#[test]
fn without_a_server_and_without_data_nothing_is_started() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [vec!["ls"], vec!["show", "x"], vec!["stop", "x"]] {
        let ended = belay(home.path(), &arguments).output().unwrap();
        assert_eq!(code(&ended), 4, "{ended:?}");
        assert!(err(&ended).contains("`belay up` starts one"));
    }
    let ended = belay(home.path(), &["down"]).output().unwrap();
    assert_eq!(code(&ended), 0);
    assert!(out(&ended).starts_with("no server is up for"));
    assert!(!home.path().join(".local").exists(), "nothing was made");
    let mut nobody = belay(home.path(), &["ls"]);
    let ended = nobody.env("BELAY_URL", "http://127.0.0.1:1").env("BELAY_TOKEN", "t").output();
    assert_eq!(code(&ended.unwrap()), 4);
}

#[test]
fn verbs_reach_the_server_and_refusals_say_what_is_possible() {
    let world = World::new(Fake::new(&[ASKING]));
    let id = &TASK.to_string()[..6];
    assert_eq!(code(&world.belay(&["answer", id, "left"])), 0);
    assert_eq!(code(&world.belay(&["answer", id])), 2, "nobody can be asked");
    assert_eq!(code(&world.belay(&["reject", id, "no", "--run"])), 0);
    assert_eq!(code(&world.belay(&["continue", id, "more"])), 0);
    assert_eq!(code(&world.belay(&["cancel", id])), 0);
    assert_eq!(code(&world.belay(&["rm", id])), 0);
    let stopped = world.belay(&["stop", id, "--wait", "3s"]);
    assert!(out(&stopped).contains("not pushed"), "{stopped:?}");
    let expected = [
        format!("answer {QUESTION} left"),
        "reject Some(\"no\") true".into(),
        "continue more".into(),
        "stop 0".into(),
        "delete".into(),
    ];
    assert_eq!(world.fake.calls()[..5], expected);

    let refusal = Problem::new(Code::IllegalMove, "it is over").choices(["continue"]);
    let world = World::new(Fake::new(&[State::Completed]).refusing(refusal));
    let ended = world.belay(&["retry", id]);
    assert_eq!(code(&ended), 3);
    assert_eq!(err(&ended), "belay: it is over\n");
    let ended = world.belay(&["answer", id, "x"]);
    assert!(err(&ended).contains("asks nothing: it is COMPLETED. Possible now: continue"));
}

#[test]
fn what_is_asked_for_as_json_is_the_apis() {
    let world = World::new(Fake::new(&[READY]));
    let id = &TASK.to_string();
    for (arguments, pointer, value) in [
        (vec!["show", id, "--json"], "/state", "READY"),
        (vec!["why", id, "--json"], "/sentences/0", "It is so."),
        (vec!["ls", "--json"], "/tasks/0/state", "READY"),
        (vec!["show", id, "--receipt", "--json"], "/task", id),
        (vec!["stop", id, "--json"], "/standing", "stopped"),
        (vec!["backup", "/b", "--json"], "/path", "/b"),
        (vec!["version", "--json"], "/server", "1.2.3"),
    ] {
        let ended = world.belay(&arguments);
        let json: serde_json::Value = serde_json::from_str(&out(&ended)).unwrap();
        assert_eq!(json.pointer(pointer).and_then(|v| v.as_str()), Some(value), "{arguments:?}");
    }
    assert_eq!(out(&world.belay(&["why", id])), "It is so.\nIt waits.\n");
    let listed = out(&world.belay(&["ls"]));
    assert!(listed.starts_with("ID "), "{listed}");
    assert!(listed.contains(&format!("{}  READY", &id[..4])), "{listed}");
    assert_eq!(out(&world.belay(&["diff", id])), "--- a\n+++ b\n");
}

#[test]
fn logs_are_the_bytes_of_a_plain_command() {
    let world = World::new(Fake::new(&[RUNNING, RUNNING, State::Completed]).printing(b"a\xff\0b"));
    let id = &TASK.to_string();
    for arguments in [vec!["logs", id], vec!["logs", "-f", id], vec!["logs", "--raw", id]] {
        assert_eq!(world.belay(&arguments).stdout, b"a\xff\0b", "{arguments:?}");
    }
}

#[test]
fn what_is_wrong_with_settings_names_file_line_and_key() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".config/belay");
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("belay.toml");
    std::fs::write(&file, "[limits]\nidel = \"3m\"\n").unwrap();
    let ended = belay(home.path(), &["config"]).output().unwrap();
    assert_eq!(code(&ended), 2);
    assert!(err(&ended).contains(&format!("{}:2: `idel`:", file.display())), "{}", err(&ended));
    std::fs::write(&file, "[limits]\nidle = \"4m\"\n").unwrap();
    let text = out(&belay(home.path(), &["config"]).output().unwrap());
    let line = text.lines().find(|line| line.starts_with("limits.idle ")).unwrap();
    assert!(line.contains("4m") && line.contains("belay.toml"), "{line}");
}

#[test]
fn the_rest_needs_no_server() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, text) in [
        (vec!["completions", "bash"], "belay"),
        (vec!["version"], "belay 0."),
        (vec!["doctor"], "isolate"),
        (vec!["--help"], "Exit codes:"),
    ] {
        let ended = belay(home.path(), &arguments).output().unwrap();
        assert_eq!(code(&ended), 0, "{ended:?}");
        assert!(out(&ended).contains(text), "{arguments:?}");
    }
    let mut shim = belay(home.path(), &["shim", "nothing"]);
    assert_eq!(code(&shim.output().unwrap()), 64, "the shim answers for itself");
}

mod merging {
    //! `accept --merge`, in a real repository.

    use super::*;
    use std::path::Path;

    fn git(top: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.arg("-C").arg(top).args(arguments).env("HOME", "/nowhere");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "A").env(format!("GIT_{who}_EMAIL"), "a@b");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A repository on `trunk` with a branch `work` that changes `file` to `text`.
    fn repository(text: &str) -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        git(top.path(), &["init", "-q", "-b", "trunk"]);
        git(top.path(), &["config", "user.name", "A"]);
        git(top.path(), &["config", "user.email", "a@b"]);
        commit(top.path(), "file", "first\n");
        git(top.path(), &["checkout", "-q", "-b", "work"]);
        commit(top.path(), "file", text);
        git(top.path(), &["checkout", "-q", "trunk"]);
        top
    }

    fn commit(top: &Path, file: &str, text: &str) {
        std::fs::write(top.join(file), text).unwrap();
        git(top, &["add", "."]);
        git(top, &["commit", "-q", "-m", "change"]);
    }

    fn world(states: &[State], top: &Path) -> World {
        World::new(Fake::new(states).on(top.to_str().unwrap(), "trunk", "work"))
    }

    /// What `accept --merge` says, and whether the branch stayed where it was.
    fn refused(world: &World, top: &Path) -> String {
        let before = (git(top, &["rev-parse", "HEAD"]), git(top, &["status", "--porcelain"]));
        let ended = world.belay(&["accept", "--merge", &TASK.to_string()]);
        assert_eq!(code(&ended), 3, "{ended:?}");
        let after = (git(top, &["rev-parse", "HEAD"]), git(top, &["status", "--porcelain"]));
        assert_eq!(before, after, "nothing is changed");
        err(&ended)
    }

    #[test]
    fn the_work_is_merged_and_then_accepted() {
        let top = repository("second\n");
        let before = git(top.path(), &["rev-parse", "HEAD"]);
        let world = world(&[READY, READY, State::Completed], top.path());
        let ended = world.belay(&["accept", "--merge", &TASK.to_string()]);
        assert_eq!(code(&ended), 0, "{ended:?}");
        assert_eq!(std::fs::read_to_string(top.path().join("file")).unwrap(), "second\n");
        assert_eq!(
            git(top.path(), &["rev-parse", "HEAD^1"]),
            before,
            "a merge, not a fast-forward"
        );
        assert_eq!(
            git(top.path(), &["rev-parse", "HEAD^2"]),
            git(top.path(), &["rev-parse", "work"])
        );
        assert_eq!(world.fake.calls(), ["accept Some(AttemptNumber(1))"]);
    }

    #[test]
    fn a_conflict_is_undone_and_nothing_is_accepted() {
        let top = repository("second\n");
        commit(top.path(), "file", "third\n");
        let world = world(&[READY], top.path());
        let said = refused(&world, top.path());
        assert!(said.contains("cannot be merged into `trunk`"), "{said}");
        assert!(said.contains("nothing was changed"), "{said}");
        assert_eq!(world.fake.calls(), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_clean_or_not_the_base_is_refused() {
        let top = repository("second\n");
        std::fs::write(top.path().join("file"), "dirty\n").unwrap();
        let ready = world(&[READY], top.path());
        assert!(refused(&ready, top.path()).contains("changes that are not committed"));
        git(top.path(), &["checkout", "-q", "--", "."]);
        git(top.path(), &["checkout", "-q", "-b", "other"]);
        assert!(refused(&ready, top.path()).contains("the base `trunk` is not checked out"));
        git(top.path(), &["checkout", "-q", "--detach"]);
        assert!(refused(&ready, top.path()).contains("no base branch is checked out"));
        git(top.path(), &["checkout", "-q", "trunk"]);
        git(top.path(), &["branch", "-q", "-D", "work"]);
        assert!(refused(&ready, top.path()).contains("has no branch `work`"));
        assert_eq!(ready.fake.calls(), Vec::<String>::new());
        let running = world(&[RUNNING], top.path());
        assert!(refused(&running, top.path()).contains("is RUNNING, not READY"));
    }

    #[test]
    fn a_merge_whose_accept_is_refused_is_put_back() {
        let top = repository("second\n");
        let refusal = Problem::new(Code::IllegalMove, "it was rejected meanwhile");
        let fake = Fake::new(&[READY]).refusing(refusal);
        let world = World::new(fake.on(top.path().to_str().unwrap(), "trunk", "work"));
        assert!(refused(&world, top.path()).contains("it was rejected meanwhile"));
        assert_eq!(world.fake.calls().len(), 1);
        assert_eq!(std::fs::read_to_string(top.path().join("file")).unwrap(), "first\n");
    }
}

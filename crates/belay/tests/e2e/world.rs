//! A world of its own for one test: a home, a repository, a data directory, a server.
//!
//! Everything is judged from outside: the database is read with another library, processes are
//! looked for in `/proc` by the marker that every sandbox carries, branches are asked of git.
//! Whatever a test leaves behind is ended when its world is dropped, also when it panicked.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::processes::{self, Seen};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Limits that suit tests: clocks that have to pass pass soon, and none passes by accident.
pub(crate) const QUICK: &str = "
[limits]
heartbeat_interval = '500ms'
due_sweep = '100ms'
stop_grace = '300ms'
backoff_first = '100ms'
backoff_longest = '200ms'
quiet_exit = '1s'
";

/// States that nothing but a person, or nobody, ends.
const RESTING: [&str; 5] = ["COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED", "BUDGET_EXCEEDED"];

/// What a command said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// Its exit code.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) out: String,
    /// What it complained about.
    pub(crate) err: String,
}

impl Said {
    /// It ended well.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It was not done: with this exit code, and this in its one sentence.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, sentence: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(sentence), "`{sentence}` is missing: {self:?}");
        self
    }

    /// The first word of what it printed, which is the task's id after `run --detach`.
    #[track_caller]
    pub(crate) fn id(self) -> String {
        self.done().out.split_whitespace().next().expect("an id is printed").to_owned()
    }

    /// What it printed, as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let done = self.done();
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

/// Looks until it holds; panics with a story when it does not in time.
#[track_caller]
pub(crate) fn wait_for(what: &str, holds: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, holds);
}

/// The same, with a limit.
#[track_caller]
pub(crate) fn wait_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < until, "waited {limit:?} in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A world.
pub(crate) struct World {
    root: tempfile::TempDir,
    server: Mutex<Option<Child>>,
    variables: Vec<(String, String)>,
}

impl World {
    /// A world with these settings, whose server is up.
    pub(crate) fn new(settings: &str) -> Self {
        let world = Self::quiet(settings);
        world.up();
        world
    }

    /// A world whose server is not up yet.
    pub(crate) fn quiet(settings: &str) -> Self {
        Self::with(settings, &[])
    }

    /// The same, with variables that every command has.
    pub(crate) fn with(settings: &str, variables: &[(&str, &str)]) -> Self {
        let root = tempfile::Builder::new().prefix("belay-e2e-").tempdir().unwrap();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(owned).collect();
        let world = Self { root, server: Mutex::new(None), variables };
        for directory in ["home", "config/belay", "repo"] {
            fs::create_dir_all(world.path(directory)).unwrap();
        }
        fs::write(world.path("config/belay/belay.toml"), settings).unwrap();
        let identity =
            "[user]\nname = Ann\nemail = ann@example.org\n[init]\ndefaultBranch = main\n";
        fs::write(world.path("home/.gitconfig"), identity).unwrap();
        world.git("repo", &["init", "-q"]);
        fs::write(world.path("repo/README"), "hello\n").unwrap();
        world.git("repo", &["add", "."]);
        world.git("repo", &["commit", "-qm", "one"]);
        world
    }

    /// A path below the world.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("BELAY_DATA_DIR", self.data())
            .env("BELAY_SERVER_PORT", "0")
            .env("LC_ALL", "C.UTF-8")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path("repo"))
            .stdin(Stdio::null());
        command
    }

    /// The command `belay`, before it is run.
    pub(crate) fn cli(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_belay"));
        command.args(words);
        command
    }

    /// Runs `belay`.
    pub(crate) fn belay(&self, words: &[&str]) -> Said {
        run(&mut self.cli(words))
    }

    /// Runs git in a directory of the world.
    #[track_caller]
    pub(crate) fn git(&self, directory: &str, words: &[&str]) -> String {
        let said = run(self.command("git").current_dir(self.path(directory)).args(words));
        said.done().out.trim().to_owned()
    }

    /// Runs git, and says whether it succeeded.
    pub(crate) fn git_holds(&self, directory: &str, words: &[&str]) -> bool {
        run(self.command("git").current_dir(self.path(directory)).args(words)).code == 0
    }

    /// Every ref of a repository with its commit.
    pub(crate) fn refs(&self, directory: &str) -> String {
        self.git(directory, &["for-each-ref", "--format=%(refname) %(objectname)"])
    }

    /// A bare repository beside the other, that tasks can be pushed to; its URL.
    pub(crate) fn remote(&self) -> String {
        self.git(".", &["clone", "-q", "--bare", "repo", "remote.git"]);
        format!("file://{}", self.path("remote.git").display())
    }

    /// Makes the remote run this before it takes a push. It may wait for files of the world.
    pub(crate) fn hook(&self, script: &str) {
        let path = self.path("remote.git/hooks/pre-receive");
        let text = format!("#!/bin/sh\ncd '{}' || exit 1\n{script}\n", self.root.path().display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a program below the world.
    pub(crate) fn program(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Asks the server's own interface; the answer's body, also of a refusal.
    #[track_caller]
    pub(crate) fn api(&self, method: &str, path: &str, body: &Value) -> Value {
        let (address, token) = self.server();
        let body = body.to_string();
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nhost: {address}\r\n\
             authorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Starts the server, and waits until it answers.
    #[track_caller]
    pub(crate) fn up(&self) {
        self.up_with(&[]);
    }

    /// The same, with variables that only the server has.
    #[track_caller]
    pub(crate) fn up_with(&self, variables: &[(&str, &str)]) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(server.is_none(), "the server is up already");
        let log = File::options().create(true).append(true).open(self.path("server.log")).unwrap();
        let mut command = self.cli(&["up"]);
        command.envs(variables.iter().copied());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        wait_for("the server is up", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the server ended with {status}: {}", self.log());
            }
            let file = fs::read(self.data().join("server.json")).unwrap_or_default();
            let file: Value = serde_json::from_slice(&file).unwrap_or_default();
            file["pid"] == pid || file["process"]["pid"] == pid
        });
        *server = Some(child);
    }

    /// What the server logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    /// Ends the server with `kill -9`.
    pub(crate) fn crash(&self) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = server.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Where the server is, and the token that opens it.
    pub(crate) fn server(&self) -> (String, String) {
        let file = fs::read(self.data().join("server.json")).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        let address = file["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        let token = fs::read_to_string(self.data().join("token")).unwrap();
        (address, token.trim().to_owned())
    }

    /// Tells the server to stop, as a service manager does; its exit code.
    pub(crate) fn terminate(&self) -> Option<i32> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = server.take().expect("the server is up");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap().code()
    }

    /// Makes a task out of `run` with these words, and does not follow it; its id.
    #[track_caller]
    pub(crate) fn start(&self, words: &[&str]) -> String {
        self.belay(&[&["run", "--detach"], words].concat()).id()
    }

    /// Makes a task of a shell script; its id. The script knows `reach MARK` and `await MARK`.
    #[track_caller]
    pub(crate) fn script(&self, flags: &[&str], script: &str) -> String {
        let script = format!("{PROLOGUE}\n{script}");
        self.start(&[flags, &["--", "sh", "-c", &script]].concat())
    }

    /// A fresh connection to the database that only reads.
    fn database(&self) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.data().join("belay.db"), flags).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    /// The rows of a query, each as its columns' texts.
    pub(crate) fn rows(&self, query: &str) -> Vec<Vec<String>> {
        let connection = self.database();
        let mut statement = connection.prepare(query).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let text = |at| {
                Ok(match row.get_ref(at)? {
                    rusqlite::types::ValueRef::Null => String::new(),
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    other => other.as_str().unwrap_or_default().to_owned(),
                })
            };
            (0..columns).map(text).collect::<rusqlite::Result<Vec<String>>>()
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// The first column of the first row of a query; nothing if there is none.
    pub(crate) fn cell(&self, query: &str) -> String {
        self.rows(query).into_iter().flatten().next().unwrap_or_default()
    }

    /// A task's state.
    pub(crate) fn state(&self, task: &str) -> String {
        self.cell(&format!("SELECT state FROM tasks WHERE id = '{task}'"))
    }

    /// How a task came to rest: its variant's cause, its clock, or its reason.
    pub(crate) fn why(&self, task: &str) -> String {
        self.cell(&format!(
            "SELECT coalesce(cause, clock, variant, reason_detail, reason) FROM tasks \
             WHERE id = '{task}'"
        ))
    }

    /// The attempts of a task: number, phase, outcome, publish, session, sandbox.
    pub(crate) fn attempts(&self, task: &str) -> Vec<Vec<String>> {
        self.rows(&format!(
            "SELECT number, phase, coalesce(outcome, ''), publish, session, coalesce(sandbox, '') \
             FROM attempts WHERE task = '{task}' ORDER BY number"
        ))
    }

    /// Waits until a task is in this state.
    #[track_caller]
    pub(crate) fn reaches(&self, task: &str, state: &str) {
        self.comes_to(task, state, |now| now == state);
    }

    /// Waits until it holds for a task; a task at rest for which it does not is waited for no
    /// longer.
    #[track_caller]
    fn comes_to(&self, task: &str, what: &str, holds: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = self.state(task);
            if holds(&now) {
                return;
            }
            if RESTING.contains(&now.as_str()) || Instant::now() > until {
                let show = self.belay(&["show", task]).out;
                let why = self.belay(&["why", task]).out;
                panic!("{task} is {now} and does not come to {what}:\n{show}\n{why}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until no attempt of a task has anything left to do.
    #[track_caller]
    pub(crate) fn settles(&self, task: &str) {
        wait_for("every attempt is over", || {
            self.attempts(task).iter().all(|attempt| attempt[1] == "ENDED" && attempt[3] != "open")
        });
    }

    /// The tree of a task's session.
    pub(crate) fn tree(&self, task: &str) -> PathBuf {
        let session = self.cell(&format!("SELECT session FROM tasks WHERE id = '{task}'"));
        self.data().join("work/trees").join(session)
    }

    /// Waits until the agent of a task has reached a mark.
    #[track_caller]
    pub(crate) fn reached(&self, task: &str, mark: &str) {
        self.comes_to(task, mark, |_| self.tree(task).join(".git").join(mark).exists());
    }

    /// Lets the agent of a task go on that awaits a mark.
    pub(crate) fn let_go(&self, task: &str, mark: &str) {
        fs::write(self.tree(task).join(".git").join(mark), "").unwrap();
    }

    /// Every process of a sandbox of this world, shims included.
    pub(crate) fn sandboxed(&self) -> Vec<Seen> {
        processes::of_world(&self.data())
    }

    /// The agent's own process of a task: the first below the shim.
    #[track_caller]
    pub(crate) fn agent(&self, task: &str) -> Seen {
        let of_task = |seen: &Seen| seen.task == task && !seen.words.contains(" shim init ");
        let mut found: Vec<Seen> = self.sandboxed().into_iter().filter(of_task).collect();
        found.retain(|seen| seen.marked && !seen.words.contains("bwrap"));
        found.sort_by_key(|seen| (seen.started, seen.pid));
        found.into_iter().next().expect("the agent runs")
    }

    /// Nothing of any sandbox is left.
    #[track_caller]
    pub(crate) fn nothing_runs(&self) {
        let left = processes::agents_of_world(&self.data());
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    /// What an attempt printed, as Belay kept it.
    #[track_caller]
    pub(crate) fn transcript(&self, task: &str, attempt: u32) -> String {
        self.belay(&["logs", "--raw", task, "--attempt", &attempt.to_string()]).done().out
    }
}

/// What every script begins with. Marks lie in `.git`, where they are no part of the work.
const PROLOGUE: &str = "reach() { : > .git/$1; }
await() { while [ ! -e .git/$1 ]; do sleep 0.02; done; }";

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let greeting = ["Belay is", "data ", "isolate", "kill ", "containers", "Ctrl-C"];
            let told = |line: &&str| !greeting.iter().any(|word| line.starts_with(word));
            let tail: Vec<&str> = log.lines().filter(told).collect();
            #[expect(clippy::print_stderr, reason = "a failing test tells what the server said")]
            {
                eprintln!("the server said:\n{}", tail.join("\n"));
            }
        }
        self.crash();
        // Agents outlive the server by design; here nobody will take them up again.
        processes::end(&self.data());
    }
}

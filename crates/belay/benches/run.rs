//! How much Belay costs around an agent: the real binary, real processes, beside a bare start of
//! the same program in the same run.
//!
//! `cargo xtask bench run`. Figures are of one machine, whose load is printed beside them.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use belay_api::{Client, NewTask, Publishing, Stopping, TaskView};
use belay_kernel::attempt::Phase;
use belay_kernel::status::Group;
use belay_kernel::task::Review;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

/// How many tasks are run one after another.
const RUNS: usize = 60;
/// How many agents run at once.
const AGENTS: usize = 100;
/// How long an idle server is watched.
const IDLE: Duration = Duration::from_secs(30);
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Its only output is the time, in nanoseconds since 1970.
const STAMP: [&str; 2] = ["date", "+%s%N"];
/// What each agent of the fleet is sent, and prints.
const WORD: &str = "heard\n";

#[allow(clippy::print_stdout)]
fn say(text: &str) {
    println!("{text}");
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().cast_signed()
}

fn ms(ns: i128) -> f64 {
    ns as f64 / 1e6
}

/// Figures of one kind, in milliseconds.
#[derive(Default)]
struct Figures(Vec<f64>);

impl Figures {
    fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let index = ((sorted.len() - 1) as f64 * share).round() as usize;
        sorted[index]
    }

    fn spread(&self) -> String {
        let [min, half, most, nearly, max] = [0.0, 0.5, 0.9, 0.99, 1.0].map(|at| self.at(at));
        let runs = self.0.len();
        format!(
            "min {min:.1}, p50 {half:.1}, p90 {most:.1}, p99 {nearly:.1}, max {max:.1} ms \
             ({runs} runs)"
        )
    }
}

/// A server with a directory of its own.
struct Server {
    root: PathBuf,
    child: Child,
    client: Client,
}

impl Server {
    async fn start(root: &Path) -> Self {
        let mut up = Command::new(env!("CARGO_BIN_EXE_belay"));
        up.args(["up", "--port", "0", "--with-parent", "--data-dir"]).arg(root.join("data"));
        let ours = |name: &str| name.starts_with("BELAY_") || name.starts_with("AGENT_");
        for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
            up.env_remove(name);
        }
        let log = fs::File::options().create(true).append(true).open(root.join("log")).unwrap();
        up.env("XDG_CONFIG_HOME", root.join("config")).stdin(Stdio::null());
        let child = up.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let client = answering(root, child.id()).await;
        Self { root: root.to_owned(), child, client }
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }

    fn rss_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    /// The processor time that it has used.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// The share of a processor that it uses while nothing is asked of it, in percent.
    async fn idle_cpu(&self) -> f64 {
        let before = self.cpu();
        tokio::time::sleep(IDLE).await;
        (self.cpu() - before).as_secs_f64() / IDLE.as_secs_f64() * 100.0
    }

    /// Waits until a task is over, and everything of it is saved.
    async fn settled(&self, id: &str) -> TaskView {
        let until = Instant::now() + LIMIT;
        loop {
            let task = self.client.show(id).await.unwrap();
            let rests = matches!(task.summary.group, Group::Resting | Group::Final);
            let over = |phase: Phase| matches!(phase, Phase::Ended(..));
            let last = task.attempt_list.first();
            if rests && last.is_some_and(|row| over(row.attempt.phase) && row.kept_ref.is_some()) {
                assert_eq!(task.summary.state, "COMPLETED", "{}", task.sentence);
                return task;
            }
            assert!(Instant::now() < until, "{id}: {}", task.sentence);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until the server with this process id answers.
async fn answering(root: &Path, pid: u32) -> Client {
    let until = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < until, "the server did not come up");
        if let Some(client) = find(root, pid)
            && client.health().await.is_ok()
        {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The server that wrote itself down, if it is the one with this process id.
fn find(root: &Path, pid: u32) -> Option<Client> {
    let text = fs::read_to_string(root.join("data/server.json")).ok()?;
    let server: serde_json::Value = serde_json::from_str(&text).ok()?;
    let token = fs::read_to_string(root.join("data/token")).ok()?;
    (server["pid"] == pid).then(|| Client::new(server["url"].as_str().unwrap(), token.trim()))
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn make_root() -> PathBuf {
    let root = std::env::temp_dir().join(format!("belay-bench-{:x}", now_ns()));
    fs::DirBuilder::new().mode(0o700).create(&root).unwrap();
    let settings = root.join("config/belay");
    fs::create_dir_all(&settings).unwrap();
    let text = format!("[roles.default]\nworkers = {}\n", AGENTS + 10);
    fs::write(settings.join("belay.toml"), text).unwrap();
    let repository = root.join("repository");
    fs::create_dir(&repository).unwrap();
    fs::write(repository.join("README.md"), "# Measured\n").unwrap();
    let person = ["-c", "user.name=Bench", "-c", "user.email=bench@localhost"];
    for words in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "One"]] {
        let mut git = Command::new("git");
        git.args(person).args(words).current_dir(&repository);
        assert!(git.status().unwrap().success());
    }
    root
}

fn task(command: &[&str]) -> NewTask {
    let limits = [("stop_grace", "0s"), ("inactivity", "1h"), ("inactivity_quiet", "1h")];
    NewTask {
        prompt: "Measure.".to_owned(),
        command: command.iter().map(ToString::to_string).collect(),
        publish: Publishing::None,
        review: Review::Auto,
        limits: limits.map(|(limit, span)| (limit.to_owned(), span.to_owned())).into(),
        ..NewTask::default()
    }
}

/// The program started bare: from before the start to what it printed.
fn bare() -> f64 {
    let began = now_ns();
    let output = Command::new(STAMP[0]).arg(STAMP[1]).stdin(Stdio::null()).output().unwrap();
    ms(stamp(&output.stdout) - began)
}

fn stamp(bytes: &[u8]) -> i128 {
    String::from_utf8_lossy(bytes).trim().parse().unwrap()
}

/// What runs of a short task cost.
#[derive(Default)]
struct Overhead {
    first_byte: Figures,
    claim: Figures,
    prepare: Figures,
    execute: Figures,
    settle: Figures,
}

impl Overhead {
    /// Runs the program again and again, alternating with bare starts.
    async fn measure(server: &Server, repository: Option<&Path>, bares: &mut Figures) -> Self {
        let mut found = Self::default();
        let repository = repository.map(|path| path.display().to_string());
        let task = NewTask { repository, ..task(&STAMP) };
        let at = |at: belay_kernel::Timestamp| i128::from(at.as_millis()) * 1_000_000;
        for _ in 0..RUNS {
            bares.0.push(bare());
            let began = now_ns();
            let made = server.client.create(&task, None).await.unwrap();
            let id = made.summary.id.to_string();
            let ended = server.settled(&id).await;
            let piece = server.client.transcript(&id, None, 0, Duration::ZERO).await.unwrap();
            let printed = stamp(&piece.bytes);
            let row = ended.attempt_list.first().unwrap();
            let claimed = at(row.attempt.claimed_at);
            let started = at(row.attempt.started_at.unwrap());
            found.first_byte.0.push(ms(printed - began));
            found.claim.0.push(ms(claimed - began));
            found.prepare.0.push(ms(started - claimed));
            found.execute.0.push(ms(printed - started));
            found.settle.0.push(ms(at(row.ending_at.unwrap()) - printed));
        }
        found
    }

    fn tell(&self, name: &str) {
        say(name);
        say(&format!("  run → first byte     {}", self.first_byte.spread()));
        say(&format!("    run → claimed      {}", self.claim.spread()));
        say(&format!("    claimed → started  {}", self.prepare.spread()));
        say(&format!("    started → byte     {}", self.execute.spread()));
        say(&format!("  byte → settled       {}", self.settle.spread()));
    }
}

/// Agents that print what they are sent.
struct Fleet {
    ids: Vec<String>,
    lines: Vec<TcpStream>,
}

impl Fleet {
    async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; while read -r -u 3 line; do echo \"$line\"; done"
        );
        let task = task(&["bash", "-c", &script]);
        let mut ids = Vec::new();
        for _ in 0..AGENTS {
            let made = server.client.create(&task, None).await.unwrap();
            ids.push(made.summary.id.to_string());
        }
        let accept = tokio::task::spawn_blocking(move || {
            (0..AGENTS).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>()
        });
        let lines = tokio::time::timeout(LIMIT, accept).await.expect("all agents run").unwrap();
        Self { ids, lines }
    }

    /// How many bytes of all transcripts are durable.
    async fn lengths(&self, server: &Server) -> u64 {
        let mut asking = JoinSet::new();
        for id in self.ids.clone() {
            let client = server.client.clone();
            asking.spawn(async move {
                let task = client.show(&id).await.unwrap();
                task.attempt_list.first().unwrap().transcript_length
            });
        }
        asking.join_all().await.into_iter().sum()
    }

    /// Sends a line to every agent, and waits until all are in the transcripts.
    async fn heard(&mut self, server: &Server) {
        let before = self.lengths(server).await;
        for line in &mut self.lines {
            line.write_all(WORD.as_bytes()).unwrap();
        }
        let all = before + (AGENTS * WORD.len()) as u64;
        let until = Instant::now() + LIMIT;
        while self.lengths(server).await < all {
            assert!(Instant::now() < until, "not every agent was heard");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops them one after another: from the request to the proof.
    async fn stop(self, server: &Server) -> Figures {
        let mut stops = Figures::default();
        for id in &self.ids {
            let began = Instant::now();
            let stopped = server.client.stop(id, Duration::from_secs(30), None).await.unwrap();
            stops.0.push(began.elapsed().as_secs_f64() * 1000.0);
            assert!(matches!(stopped, Stopping::Stopped { .. }), "{stopped:?}");
        }
        stops
    }
}

/// One line of the table: what, measured, aim, unit.
type Line = (&'static str, f64, f64, &'static str);

fn tell_table(lines: &[Line]) {
    for (what, measured, aim, unit) in lines {
        let met = if measured <= aim { "met" } else { "MISSED" };
        let ratio = measured / aim;
        say(&format!(
            "{what:<48} {measured:>8.2} {unit:<3}  aim {aim:>6} {unit:<3}  ×{ratio:<5.2} {met}"
        ));
    }
}

#[tokio::main]
async fn main() {
    let root = make_root();
    say(&format!("load before {}", load()));
    let server = Server::start(&root).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle_rss = server.rss_mib();
    let idle_cpu = server.idle_cpu().await;
    let mut bares = Figures::default();
    let plain = Overhead::measure(&server, None, &mut bares).await;
    let repository = root.join("repository");
    let cloned = Overhead::measure(&server, Some(&repository), &mut bares).await;
    let rss_before = server.rss_mib();
    let mut fleet = Fleet::start(&server).await;
    fleet.heard(&server).await;
    let per_agent = (server.rss_mib() - rss_before) / AGENTS as f64;
    server.end();
    let began = Instant::now();
    let server = Server::start(&root).await;
    let up = began.elapsed().as_secs_f64() * 1000.0;
    fleet.heard(&server).await;
    let attached = began.elapsed().as_secs_f64() * 1000.0;
    let stops = fleet.stop(&server).await;
    say(&format!("load after {}\n", load()));

    say(&format!("bare start → first byte {}", bares.spread()));
    plain.tell("without a repository");
    cloned.tell("with a small repository");
    say(&format!("stop → proof, no grace   {}", stops.spread()));
    say(&format!("restart → answers        {up:.0} ms\n"));
    let bare = bares.at(0.5);
    tell_table(&[
        ("run → byte over bare, p50, no repository", plain.first_byte.at(0.5) - bare, 60.0, "ms"),
        ("run → byte over bare, p50, repository", cloned.first_byte.at(0.5) - bare, 60.0, "ms"),
        ("exit → settled, p99, no repository", plain.settle.at(0.99), 100.0, "ms"),
        ("exit → settled, p99, repository", cloned.settle.at(0.99), 100.0, "ms"),
        ("stop → proof, p99", stops.at(0.99), 150.0, "ms"),
        ("restart → 100 agents heard again", attached, 2000.0, "ms"),
        ("idle memory", idle_rss, 40.0, "MiB"),
        ("idle processor", idle_cpu, 0.5, "%"),
        ("memory per running agent", per_agent, 1.0, "MiB"),
    ]);
    let root = server.root.clone();
    server.end();
    fs::remove_dir_all(root).unwrap();
}

//! The conformance suite on the process provider, in every configuration of this machine, and what
//! only process sandboxes have: a shim that can be killed, cgroups, PIDs.

mod suite;

use std::future::Future;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belay_kernel::{SandboxId, SnapshotId, Span};
use belay_sandbox::{
    EndReason, Exit, Fence, Installation, Plan, Probe, ProcessConfig, ProcessProvider, Provider,
    ShimProgram, Stdout, Use,
};
use rustix::process::Signal;
use suite::world::{LONG, Scratch, Subject, World, eventually, installation, marked};

fn config(root: &Path, installation: Installation) -> ProcessConfig {
    let shim = std::env::var_os("BELAY_TEST_SHIM").map(PathBuf::from);
    let path = shim.unwrap_or_else(|| env!("CARGO_BIN_EXE_belay-shim").into());
    ProcessConfig {
        root: root.to_owned(),
        installation,
        shim: ShimProgram { path, leading: vec![] },
        hidden: root.parent().map(Path::to_owned).into_iter().collect(),
        bubblewrap: Use::WherePossible,
        cgroups: Use::WherePossible,
    }
}

fn provider_at(root: &Path, installation: Installation) -> ProcessProvider {
    ProcessProvider::open(config(root, installation)).unwrap()
}

/// The process provider with a choice of what it may use.
pub(crate) struct ProcessWorld {
    scratch: Scratch,
    installation: Installation,
    bubblewrap: Use,
    cgroups: Use,
}

impl ProcessWorld {
    fn new(bubblewrap: Use, cgroups: Use) -> Self {
        Self { scratch: Scratch::new(), installation: installation(), bubblewrap, cgroups }
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("belay")
    }
}

impl World for ProcessWorld {
    type Provider = ProcessProvider;

    fn open(&self) -> ProcessProvider {
        ProcessProvider::open(ProcessConfig {
            bubblewrap: self.bubblewrap,
            cgroups: self.cgroups,
            ..config(&self.root(), self.installation)
        })
        .unwrap()
    }

    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn busybox(&self) -> &str {
        assert!(
            Path::new("/usr/bin/busybox").exists(),
            "the tests need busybox: apt-get install busybox-static"
        );
        "/usr/bin/busybox"
    }

    fn complete(&self, _plan: &mut Plan) {}

    fn truncate(&self, snapshot: SnapshotId) {
        let path = self.root().join(format!("snapshots/{snapshot}.tar.zst"));
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }

    fn assert_nothing_left(&self, sandbox: SandboxId) {
        let name = sandbox.to_string();
        for hierarchy in ["", "unified", "pids", "memory", "cpu"] {
            let directory = Path::new("/sys/fs/cgroup").join(hierarchy);
            assert_no_directory(&directory, &name, 4);
        }
    }
}

/// No directory below this one has the name in its own.
fn assert_no_directory(directory: &Path, name: &str, depth: usize) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if depth > 0 && path.is_dir() {
            assert!(!path.to_string_lossy().contains(name), "left behind: {}", path.display());
            assert_no_directory(&path, name, depth - 1);
        }
    }
}

#[test]
fn with_everything_that_the_machine_offers() {
    suite::run_all("everything", ProcessWorld::new(Use::WherePossible, Use::WherePossible));
}

#[test]
fn without_bubblewrap() {
    suite::run_all("no bubblewrap", ProcessWorld::new(Use::Never, Use::WherePossible));
}

#[test]
fn without_cgroups() {
    suite::run_all("no cgroups", ProcessWorld::new(Use::WherePossible, Use::Never));
}

#[test]
fn with_neither() {
    suite::run_all("neither", ProcessWorld::new(Use::Never, Use::Never));
}

/// A runner may have been started by a script with `&`, and ignore SIGINT; its agents must not.
#[test]
fn agents_do_not_inherit_ignored_signals() {
    let again = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' INT CHLD; exec \"$0\" --exact with_signals_ignored --nocapture"]);
    let output = command.arg(again).env("BELAY_SIGNALS_IGNORED", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// The part of the test above that runs with signals ignored; by itself it has nothing to show.
#[test]
fn with_signals_ignored() {
    if std::env::var_os("BELAY_SIGNALS_IGNORED").is_none() {
        return suite::say("run by agents_do_not_inherit_ignored_signals");
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    runtime.block_on(suite::basics::signals_reach_the_agent(&world));
}

/// Runs this test again as an ordinary user, with the whole suite in both configurations.
#[test]
fn as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return suite::say("the other tests run as an ordinary user already");
    }
    let scratch = Scratch::new();
    std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let copy = |path: &Path| {
        let place = scratch.path().join(path.file_name().unwrap());
        std::fs::copy(path, &place).unwrap();
        place
    };
    // Build directories need not be open to everybody.
    let program = copy(&std::env::current_exe().unwrap());
    let shim = copy(Path::new(env!("CARGO_BIN_EXE_belay-shim")));
    let output = std::process::Command::new(program)
        .args(["--nocapture", "--test-threads=1"])
        .args(["with_everything", "with_neither", "shim_", "runner_"])
        .env("TMPDIR", scratch.path())
        .env("BELAY_TEST_SHIM", shim)
        .env("HOME", "/nonexistent")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    suite::say(&said.replace("everything:", "user:").replace("neither:", "user, neither:"));
    suite::say(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the suite failed as an ordinary user");
    assert!(said.contains("an_agent_runs_and_its_output_and_exit_are_known … ok"));
}

const NOBODY: u32 = 65_534;

/// Runs something asynchronous.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Every configuration of this machine.
fn worlds() -> [ProcessWorld; 4] {
    let each = [Use::WherePossible, Use::Never];
    let pairs = [(each[0], each[0]), (each[0], each[1]), (each[1], each[0]), (each[1], each[1])];
    pairs.map(|(bubblewrap, cgroups)| ProcessWorld::new(bubblewrap, cgroups))
}

/// The number of the sandbox's shim, as its directory says.
fn shim_of(world: &ProcessWorld, sandbox: SandboxId) -> i32 {
    let path = world.root().join(format!("sandboxes/{sandbox}/held.json"));
    let held: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    held["shim"]["pid"].as_i64().unwrap().try_into().unwrap()
}

fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

const DAEMONS: &str = "trap '' TERM HUP; i=0; while [ $i -lt 5 ]; do i=$((i+1)); \
     ($B setsid $B sh -c 'trap \"\" TERM; while :; do $B sleep 1; done' &); done; \
     echo up; while :; do $B sleep 1; done";

#[test]
fn shim_killed_means_agent_killed_and_seen_at_once() {
    for world in worlds() {
        block_on(async {
            let subject = Subject::new(&world, DAEMONS);
            subject.start().await;
            subject.see("up").await;
            let sandbox = subject.fence.sandbox;
            eventually("daemons are there", || marked(sandbox).len() > 5).await;
            let provider = world.open();
            let waiting = tokio::spawn(async move {
                let output = provider.attach(sandbox, 3, 1, Span::from_secs(30)).await.unwrap();
                (Instant::now(), output.end.unwrap())
            });
            tokio::time::sleep(Duration::from_millis(50)).await;
            let killed = Instant::now();
            signal(shim_of(&world, sandbox), Signal::KILL);
            let (seen, end) = waiting.await.unwrap();
            assert!(seen - killed < Duration::from_secs(1), "seen after {:?}", seen - killed);
            assert_eq!((end.reason, end.exit), (EndReason::ShimLost, Exit::Unknown));
            subject.assert_gone();
            assert_eq!(subject.provider.probe(sandbox, Span::from_secs(1)).await, Probe::Gone);
            subject.destroy().await;
        });
    }
}

#[test]
fn shim_killed_with_no_runner_left_still_ends_the_agent() {
    for world in worlds() {
        block_on(async {
            let subject = Subject::new(&world, DAEMONS);
            subject.start().await;
            subject.see("up").await;
            let sandbox = subject.fence.sandbox;
            eventually("daemons are there", || marked(sandbox).len() > 5).await;
            signal(shim_of(&world, sandbox), Signal::KILL);
            // Nobody asks the provider anything here.
            eventually("everything is dead", || marked(sandbox).is_empty()).await;
            subject.stop(Span::ZERO).await;
            subject.destroy().await;
        });
    }
}

#[test]
fn shim_that_hangs_is_replaced_by_the_provider() {
    let world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    block_on(async {
        let subject = Subject::new(&world, DAEMONS);
        subject.start().await;
        subject.see("up").await;
        let sandbox = subject.fence.sandbox;
        signal(shim_of(&world, sandbox), Signal::STOP);
        let probe = subject.provider.probe(sandbox, Span::from_millis(200)).await;
        assert!(matches!(probe, Probe::Unknown { .. }), "{probe:?}");
        subject.stop(Span::ZERO).await;
        subject.destroy().await;
    });
}

#[test]
fn shim_that_was_asleep_past_its_lease_kills_when_it_wakes() {
    let world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    block_on(async {
        let subject = Subject::new(&world, DAEMONS);
        let until = subject.until(Span::from_secs(4));
        subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap();
        subject.provider.start(&subject.fence, until).await.unwrap();
        subject.see("up").await;
        let shim = shim_of(&world, subject.fence.sandbox);
        // The only timer is on the clock that counts suspend: number 7, CLOCK_BOOTTIME.
        let timers = std::fs::read_dir(format!("/proc/{shim}/fdinfo")).unwrap().flatten();
        let timers: Vec<String> = timers
            .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
            .filter(|info| info.contains("clockid"))
            .collect();
        assert!(timers.len() == 1 && timers[0].contains("clockid: 7"), "{timers:?}");
        signal(shim, Signal::STOP);
        eventually("the lease is over", || subject.provider.moment() > until).await;
        signal(shim, Signal::CONT);
        let woken = Instant::now();
        let (_, end) = subject.finish().await;
        assert_eq!(end.reason, EndReason::LeaseOver);
        assert!(woken.elapsed() < Duration::from_secs(2));
        subject.assert_gone();
        subject.destroy().await;
    });
}

#[test]
fn shim_is_small() {
    let world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    block_on(async {
        let script = "$B seq 1 450000; echo up; $B sleep 1000";
        let mut subject = Subject::new(&world, script);
        subject.plan.stdout = Stdout::File;
        subject.start().await;
        subject.see("up").await;
        let shim = shim_of(&world, subject.fence.sandbox);
        let status = std::fs::read_to_string(format!("/proc/{shim}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(number("Threads:"), 1);
        // Three megabytes went through it. The rest of its memory is the program, which is shared.
        assert!(number("RssAnon:") < 1_024, "{} kB", number("RssAnon:"));
        subject.stop(Span::ZERO).await;
        subject.destroy().await;
    });
}

/// A runner in a process of its own, to be killed with -9: this test binary again.
#[test]
fn runner_killed_and_started_again_loses_and_doubles_nothing() {
    if let Ok(root) = std::env::var("BELAY_TEST_RUNNER") {
        return run_as_runner(Path::new(&root));
    }
    for stdout in [Stdout::Pipe, Stdout::File] {
        kill_the_runner(stdout);
    }
}

fn kill_the_runner(stdout: Stdout) {
    let scratch = Scratch::new();
    let script =
        "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; $B sleep 0.005; done; exit 6";
    let mut world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    world.scratch = scratch;
    let mut subject = Subject::new(&world, script);
    subject.plan.stdout = stdout;
    let job = (subject.fence, subject.plan.clone(), world.installation);
    std::fs::write(world.scratch.path().join("job"), serde_json::to_vec(&job).unwrap()).unwrap();
    let mut runner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runner_killed_and_started_again_loses_and_doubles_nothing"])
        .env("BELAY_TEST_RUNNER", world.scratch.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let log = world.root().join(format!("sandboxes/{}/output.log", subject.fence.sandbox));
    block_on(async {
        let some = || std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 400);
        eventually("the agent prints", some).await;
        runner.kill().unwrap();
        runner.wait().unwrap();
        let expected: String = (1..=300).map(|number| format!("line {number}\n")).collect();
        let (bytes, end) = Subject { provider: world.open(), ..subject }.finish().await;
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        assert_eq!((end.exit, end.reason), (Exit::Code(6), EndReason::Exited));
    });
}

fn run_as_runner(scratch: &Path) {
    let job = std::fs::read(scratch.join("job")).unwrap();
    let (fence, plan, installation): (Fence, Plan, Installation) =
        serde_json::from_slice(&job).unwrap();
    let provider = provider_at(&scratch.join("belay"), installation);
    block_on(async {
        let until = provider.moment().after(Span::from_secs(60));
        provider.prepare(&fence, &plan, until).await.unwrap();
        provider.start(&fence, until).await.unwrap();
        let mut offset = 0;
        loop {
            let wait = Span::from_secs(10);
            offset = provider.attach(fence.sandbox, offset, 1_000, wait).await.unwrap().next;
        }
    });
}

/// The shim sleeps while the agent writes and ends: what there is to copy is there at once, and is
/// more than the shim copies in one turn.
#[test]
fn shim_copies_the_rest_of_a_file_after_the_agent_has_ended() {
    for world in worlds() {
        block_on(async {
            let script = "echo up; while [ ! -e go ]; do $B sleep 0.01; done; \
                          $B seq 1 700000; echo x > done; exit 8";
            let mut subject = Subject::new(&world, script);
            subject.plan.stdout = Stdout::File;
            subject.start().await;
            subject.see("up\n").await;
            let shim = shim_of(&world, subject.fence.sandbox);
            signal(shim, Signal::STOP);
            std::fs::write(subject.plan.tree.join("go"), "").unwrap();
            eventually("all is written", || subject.plan.tree.join("done").exists()).await;
            let agent = || marked(subject.fence.sandbox).iter().any(|stat| stat.contains("busyb"));
            eventually("the agent has ended", || !agent()).await;
            signal(shim, Signal::CONT);
            let (bytes, end) = subject.finish().await;
            let numbers: String = (1..=700_000).map(|line| format!("{line}\n")).collect();
            assert_eq!(bytes.len(), "up\n".len() + numbers.len());
            assert!(bytes.ends_with(numbers.as_bytes()));
            assert_eq!((end.exit, end.reason), (Exit::Code(8), EndReason::Exited));
            assert_eq!(end.output_bytes, bytes.len() as u64);
            // The copy is enough.
            let directory = world.root().join(format!("sandboxes/{}", subject.fence.sandbox));
            assert!(!directory.join("stdout").exists() && directory.join("output.log").exists());
            subject.destroy().await;
        });
    }
}

/// A user has few of the objects by which the kernel tells that a file has grown. In a user
/// namespace of its own that allows none, this test runs the same cases again.
#[test]
fn shim_follows_a_file_where_the_kernel_does_not_tell() {
    let again = std::env::current_exe().unwrap();
    let script = "echo 0 > /proc/sys/user/max_inotify_instances || exit 77; \
                  exec \"$0\" --exact with_nobody_to_tell --nocapture";
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(again);
    let output = command.env("BELAY_NOBODY_TELLS", "1").output().unwrap();
    if output.status.code() == Some(77) || !can_unshare() {
        return suite::say("skipped: no user namespace can be made here");
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

fn can_unshare() -> bool {
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "true"]).status().is_ok_and(|s| s.success())
}

/// The part of the test above that runs in the namespace; by itself it has nothing to show.
#[test]
fn with_nobody_to_tell() {
    if std::env::var_os("BELAY_NOBODY_TELLS").is_none() {
        return suite::say("run by shim_follows_a_file_where_the_kernel_does_not_tell");
    }
    let none = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC);
    assert!(none.is_err(), "the kernel does tell here");
    let world = ProcessWorld::new(Use::Never, Use::Never);
    block_on(async {
        suite::stdout::a_file_arrives_whole_and_in_order(&world).await;
        suite::stdout::a_file_that_grows_is_read_while_it_grows(&world).await;
    });
}

#[test]
fn many_stops_and_starts_at_once_leave_nothing() {
    let world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    block_on(async {
        let mut tasks = Vec::new();
        let subjects: Vec<_> = (0..20).map(|_| Subject::new(&world, "$B sleep 1000")).collect();
        for subject in &subjects {
            let (fence, plan) = (subject.fence, subject.plan.clone());
            let (first, second) = (subject.provider.clone(), world.open());
            tasks.push(tokio::spawn(async move {
                let until = first.moment().after(LONG);
                if first.prepare(&fence, &plan, until).await.is_ok() {
                    let _ = first.start(&fence, until).await;
                }
            }));
            tasks.push(tokio::spawn(async move {
                second.stop(&fence, Span::ZERO).await.unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        for subject in subjects {
            // Whichever came first, the stop holds.
            subject.assert_gone();
            let started = subject.provider.start(&subject.fence, subject.until(LONG)).await;
            assert_eq!(started.unwrap_err().code(), "tombstoned");
            subject.destroy().await;
        }
    });
}

#[test]
fn a_full_disk_makes_the_agent_wait_and_loses_nothing() {
    if !rustix::process::geteuid().is_root() {
        return suite::say("skipped: only root can mount a small file system");
    }
    let world = ProcessWorld::new(Use::WherePossible, Use::WherePossible);
    std::fs::create_dir(world.root()).unwrap();
    let mounted = Mounted::tmpfs(&world.root(), "size=2m");
    block_on(async {
        let script = "$B head -c 3000000 /dev/zero | $B tr '\\0' y; echo; echo end";
        let subject = Subject::new(&world, script);
        subject.start().await;
        subject.read_until(|bytes| bytes.len() > 1_000_000).await;
        mounted.resize("size=16m");
        let (bytes, end) = subject.finish().await;
        assert_eq!(bytes.len(), 3_000_005);
        assert!(bytes.ends_with(b"y\nend\n"));
        assert_eq!(end.exit, Exit::Code(0));
        subject.destroy().await;
    });
}

/// A file system that is unmounted when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(place: &Path, options: &str) -> Self {
        let mounted = Self(place.to_owned());
        mounted.mount(&["-t", "tmpfs", "-o", options, "tmpfs"]);
        mounted
    }

    fn resize(&self, options: &str) {
        self.mount(&["-o", &format!("remount,{options}")]);
    }

    fn mount(&self, args: &[&str]) {
        let done = std::process::Command::new("mount").args(args).arg(&self.0).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

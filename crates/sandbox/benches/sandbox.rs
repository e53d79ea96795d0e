//! How fast process sandboxes are made, seen and ended, beside a bare fork and exec in the same
//! run.
//!
//! `cargo bench -p belay-sandbox`. Figures are wall-clock times of one machine; what bounds each is
//! said beside it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belay_kernel::{AttemptNumber, Epoch, InstallationId, SandboxId, SessionId, Span, TaskId};
use belay_sandbox::{
    Fence, Installation, Plan, ProcessConfig, ProcessProvider, Provider, ShimProgram, Use,
};

const LONG: Span = Span::from_secs(300);

#[allow(clippy::print_stdout)]
fn say(text: &str) {
    println!("{text}");
}

struct Bench {
    root: PathBuf,
    provider: ProcessProvider,
    next: u128,
}

struct Made {
    fence: Fence,
    plan: Plan,
}

impl Bench {
    fn new() -> Self {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let next = nanos.as_nanos() << 20;
        let root = std::env::temp_dir().join(format!("belay-bench-{next:x}"));
        fs::create_dir(&root).unwrap();
        let provider = ProcessProvider::open(ProcessConfig {
            root: root.join("belay"),
            installation: Installation { id: InstallationId::from_bits(next), epoch: 1 },
            shim: ShimProgram { path: env!("CARGO_BIN_EXE_belay-shim").into(), leading: vec![] },
            hidden: vec![],
            bubblewrap: Use::WherePossible,
            cgroups: Use::WherePossible,
        });
        Self { provider: provider.unwrap(), root, next }
    }

    fn make(&mut self, script: &str) -> Made {
        self.next += 1;
        let number = self.next;
        let tree = self.root.join(format!("tree-{number:x}"));
        fs::create_dir(&tree).unwrap();
        let argv = ["/bin/sh", "-c", script].map(String::from);
        let mut plan = Plan::new(TaskId::from_bits(number), AttemptNumber(1), tree, argv);
        plan.env.insert("PATH".into(), "/usr/bin:/bin".into());
        let fence = Fence {
            session: SessionId::from_bits(number),
            sandbox: SandboxId::from_bits(number),
            epoch: Epoch(1),
        };
        Made { fence, plan }
    }

    async fn start(&self, made: &Made) {
        let until = self.provider.moment().after(LONG);
        self.provider.prepare(&made.fence, &made.plan, until).await.unwrap();
        self.provider.start(&made.fence, until).await.unwrap();
    }

    /// Waits until so many bytes were printed.
    async fn see(&self, made: &Made, bytes: u64) {
        let mut offset = 0;
        while offset < bytes {
            let wait = Span::from_secs(30);
            let output = self.provider.attach(made.fence.sandbox, offset, 1 << 20, wait).await;
            offset = output.unwrap().next;
        }
    }

    async fn first_byte(&mut self, rounds: usize) -> Vec<Duration> {
        let mut times = Vec::new();
        for _ in 0..rounds {
            let made = self.make("echo up; exec sleep 1000");
            let began = Instant::now();
            self.start(&made).await;
            self.see(&made, 3).await;
            times.push(began.elapsed());
            self.provider.destroy(&made.fence).await.unwrap();
        }
        times
    }

    async fn exit_seen(&mut self, rounds: usize) -> Vec<Duration> {
        let mut times = Vec::new();
        for _ in 0..rounds {
            let made = self.make("read line; exec date +%s%N");
            self.start(&made).await;
            let go = belay_sandbox::More::Ends;
            self.provider.write(&made.fence, 0, b"\n", go).await.unwrap();
            let (mut offset, mut printed) = (0, Vec::new());
            loop {
                let wait = Span::from_secs(30);
                let output = self.provider.attach(made.fence.sandbox, offset, 1_000, wait).await;
                let output = output.unwrap();
                offset = output.next;
                printed.extend(output.chunks.into_iter().flat_map(|chunk| chunk.bytes));
                if output.end.is_some() {
                    break;
                }
            }
            // The agent prints the time as the last thing it does.
            let exited: u64 = String::from_utf8(printed).unwrap().trim().parse().unwrap();
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            let seen = u64::try_from(now.as_nanos()).unwrap();
            times.push(Duration::from_nanos(seen.saturating_sub(exited)));
            self.provider.destroy(&made.fence).await.unwrap();
        }
        times
    }

    async fn stop_daemons(&mut self, rounds: usize, daemons: usize) -> Vec<Duration> {
        let script = format!(
            "trap '' TERM HUP; i=0; while [ $i -lt {daemons} ]; do i=$((i+1)); \
             (setsid sleep 1000 </dev/null >/dev/null 2>&1 &); done; echo up; exec sleep 1000"
        );
        let grace = Span::from_millis(100);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let made = self.make(&script);
            self.start(&made).await;
            self.see(&made, 3).await;
            let began = Instant::now();
            let receipt = self.provider.stop(&made.fence, grace).await.unwrap();
            let took = began.elapsed();
            assert!(receipt.killed_count >= daemons as u64, "{receipt:?}");
            times.push(took.saturating_sub(Duration::from_millis(grace.as_millis())));
            self.provider.destroy(&made.fence).await.unwrap();
        }
        times
    }

    async fn many(&mut self, count: usize) -> (Duration, Duration, u64, u64) {
        let made: Vec<Made> = (0..count).map(|_| self.make("echo up; exec sleep 1000")).collect();
        let began = Instant::now();
        futures_util::future::join_all(made.iter().map(|made| async {
            self.start(made).await;
            self.see(made, 3).await;
        }))
        .await;
        let up = began.elapsed();
        let sizes: Vec<u64> = made.iter().map(|made| self.shim_memory(made)).collect();
        let began = Instant::now();
        futures_util::future::join_all(made.iter().map(|made| async {
            self.provider.stop(&made.fence, Span::ZERO).await.unwrap();
        }))
        .await;
        let down = began.elapsed();
        for made in &made {
            self.provider.destroy(&made.fence).await.unwrap();
        }
        let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
        (up, down, mean, sizes.into_iter().max().unwrap_or(0))
    }

    /// Resident memory of a shim, in KiB.
    fn shim_memory(&self, made: &Made) -> u64 {
        let path = self.root.join(format!("belay/sandboxes/{}/held.json", made.fence.sandbox));
        let held: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", held["shim"]["pid"])).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn fork_exec(rounds: usize) -> Vec<Duration> {
    let run = || {
        let began = Instant::now();
        let mut child =
            Command::new("/bin/sh").args(["-c", "echo up"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let took = began.elapsed();
        child.wait().unwrap();
        took
    };
    (0..rounds).map(|_| run()).collect()
}

fn line(name: &str, mut times: Vec<Duration>, target: &str, bound: &str) {
    times.sort();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (p50, p99) = (ms(at(50)), ms(at(99)));
    say(&format!("{name:<44} p50 {p50:>7.2} ms   p99 {p99:>7.2} ms   {target:<18} {bound}"));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut bench = Bench::new();
    let capabilities = bench.provider.capabilities();
    say(&format!("isolation {}, cgroup kill {}", capabilities.isolation, capabilities.pause));
    line("bare fork + exec of sh, to its first byte", fork_exec(200), "baseline", "");
    let times = runtime.block_on(bench.first_byte(200));
    line("create → first byte", times, "(p50 ≤ 15 ms)", "bound by mounts and three execs");
    let times = runtime.block_on(bench.exit_seen(200));
    line(
        "agent's last act → end seen",
        times,
        "(p99 ≤ 50 ms)",
        "bound by two wake-ups and a file's rename",
    );
    let times = runtime.block_on(bench.stop_daemons(50, 200));
    line("stop → proof, 200 daemons, after grace", times, "(p99 ≤ 50 ms)", "bound by the kernel");
    let (up, down, mean, max) = runtime.block_on(bench.many(200));
    let (up, down) = (up.as_secs_f64(), down.as_secs_f64());
    say(&format!(
        "200 sandboxes at once: all up in {up:.2} s, all stopped and proven in {down:.2} s"
    ));
    say(&format!("memory of a shim: mean {mean} KiB, largest {max} KiB   (≤ 3072 KiB)"));
}

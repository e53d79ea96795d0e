//! What a case knows of the world: a provider, trees, ids, and `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belay_kernel::{
    AttemptNumber, Epoch, InstallationId, SandboxId, SessionId, SnapshotId, Span, TaskId,
};
use belay_sandbox::{
    Chunk, End, Fence, Installation, MARKER, Margins, Moment, Plan, Provider, Receipt,
};

/// A place in which the suite runs.
pub(crate) trait World: Send + Sync + 'static {
    /// The provider under test.
    type Provider: Provider;

    /// The provider; every call opens it anew on the same state.
    fn open(&self) -> Self::Provider;
    /// Where trees are made.
    fn scratch(&self) -> &Path;
    /// The busybox that agents run, as the sandbox sees it.
    fn busybox(&self) -> &str;
    /// Completes a plan with what this provider needs.
    fn complete(&self, plan: &mut Plan);
    /// Cuts the stored snapshot short.
    fn truncate(&self, snapshot: SnapshotId);
    /// Asserts that nothing but processes is left of a sandbox: no cgroup, no container.
    fn assert_nothing_left(&self, sandbox: SandboxId);
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other process on this machine draws meanwhile.
pub(crate) fn unique() -> u128 {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let count = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    (nanos.as_nanos() << 24) ^ (u128::from(std::process::id()) << 8) ^ count
}

/// An installation of its own for every world.
pub(crate) fn installation() -> Installation {
    Installation { id: InstallationId::from_bits(unique()), epoch: 1 }
}

/// One sandbox of a case.
pub(crate) struct Subject<'w, W: World> {
    pub(crate) world: &'w W,
    pub(crate) provider: W::Provider,
    pub(crate) fence: Fence,
    pub(crate) plan: Plan,
}

/// Longer than any case takes.
pub(crate) const LONG: Span = Span::from_secs(120);

impl<'w, W: World> Subject<'w, W> {
    /// A sandbox whose agent runs this script with busybox' shell; `$B` is busybox.
    pub(crate) fn new(world: &'w W, script: &str) -> Self {
        let number = unique();
        let tree = world.scratch().join(format!("tree-{number:x}"));
        fs::create_dir(&tree).unwrap();
        let busybox = world.busybox().to_owned();
        let argv = [busybox.as_str(), "sh", "-c", script];
        let mut plan =
            Plan::new(TaskId::from_bits(number), AttemptNumber(1), tree, argv.map(String::from));
        plan.env.insert("B".into(), busybox);
        plan.env.insert("PATH".into(), "/usr/bin:/bin".into());
        plan.margins = Margins {
            grace: Span::from_millis(200),
            kill_bound: Span::from_secs(2),
            drift: Span::from_millis(50),
        };
        world.complete(&mut plan);
        let fence = Fence {
            session: SessionId::from_bits(number),
            sandbox: SandboxId::from_bits(number),
            epoch: Epoch(1),
        };
        Self { world, provider: world.open(), fence, plan }
    }

    pub(crate) fn until(&self, span: Span) -> Moment {
        self.provider.moment().after(span)
    }

    pub(crate) async fn prepare(&self) {
        self.provider.prepare(&self.fence, &self.plan, self.until(LONG)).await.unwrap();
    }

    pub(crate) async fn start(&self) {
        self.prepare().await;
        self.provider.start(&self.fence, self.until(LONG)).await.unwrap();
    }

    /// All output until `enough` says so, or the end.
    pub(crate) async fn read_until(
        &self,
        enough: impl Fn(&[u8]) -> bool,
    ) -> (Vec<u8>, Option<End>) {
        let (chunks, end) = self.chunks_until(enough).await;
        (chunks.into_iter().flat_map(|chunk| chunk.bytes).collect(), end)
    }

    pub(crate) async fn chunks_until(
        &self,
        enough: impl Fn(&[u8]) -> bool,
    ) -> (Vec<Chunk>, Option<End>) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut chunks, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let offset = bytes.len() as u64;
            let output = self
                .provider
                .attach(self.fence.sandbox, offset, 1 << 20, Span::from_secs(1))
                .await
                .unwrap();
            for chunk in output.chunks {
                assert_eq!(chunk.offset, bytes.len() as u64, "a byte was lost or doubled");
                bytes.extend_from_slice(&chunk.bytes);
                chunks.push(chunk);
            }
            assert_eq!(output.next, bytes.len() as u64);
            if output.end.is_some() || enough(&bytes) {
                return (chunks, output.end);
            }
            let seen = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]);
            assert!(Instant::now() < deadline, "waited too long; output so far: {seen}");
        }
    }

    /// Waits for a text in the output.
    pub(crate) async fn see(&self, text: &str) -> Vec<u8> {
        let (bytes, end) = self.read_until(|bytes| contains(bytes, text)).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
        assert!(contains(&bytes, text), "ended without `{text}`: {end:?}, output {shown}");
        bytes
    }

    /// Waits for the end.
    pub(crate) async fn finish(&self) -> (Vec<u8>, End) {
        let (bytes, end) = self.read_until(|_| false).await;
        (bytes, end.unwrap())
    }

    /// Stops it and checks from outside that it is gone.
    pub(crate) async fn stop(&self, grace: Span) -> Receipt {
        let receipt = self.provider.stop(&self.fence, grace).await.unwrap();
        self.assert_gone();
        receipt
    }

    /// No process carries its marker, and nothing else is left.
    pub(crate) fn assert_gone(&self) {
        let left = marked(self.fence.sandbox);
        assert!(left.is_empty(), "left behind: {left:?}");
        self.world.assert_nothing_left(self.fence.sandbox);
    }

    /// Removes everything.
    pub(crate) async fn destroy(self) {
        self.provider.destroy(&self.fence).await.unwrap();
        let _ = fs::remove_dir_all(&self.plan.tree);
    }
}

pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Every process but zombies that carries the sandbox's marker, as `/proc` shows it.
pub(crate) fn marked(sandbox: SandboxId) -> Vec<String> {
    let wanted = format!("{MARKER}={sandbox}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let Ok(environment) = fs::read(path.join("environ")) else { continue };
        if environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
            if !stat.is_empty() && !stat.contains(") Z ") && !stat.contains(") X ") {
                found.push(stat);
            }
        }
    }
    found
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A directory of its own that goes when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("belay-sandbox-{:x}", unique()));
        fs::create_dir(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

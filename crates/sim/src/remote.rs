//! Trees and the remote: a repository without git, whose branches are moved by compare-and-set.
//!
//! A push is done by the remote itself: it may land long after whoever pushed has fallen. A tree is
//! on one machine, and a machine has the commits that were made there or fetched from the remote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use belay_kernel::publish::{CommitId, Push, Remote as Shows};
use belay_kernel::{AttemptNumber, SessionId, Span, TaskId};
use belay_runner::{Import, Kept, Said, Tree, TreeError, TreeRequest, Workspace};

use crate::Planted;
use crate::oracle::Oracle;
use crate::rng::mix;
use crate::sim::{Gate, Sim};

/// A tree on a machine.
struct Kind {
    tree: Tree,
    /// What it was made from.
    start: CommitId,
    edits: u64,
}

#[derive(Default)]
struct Inside {
    trees: BTreeMap<(usize, SessionId), Kind>,
    branches: BTreeMap<String, CommitId>,
    parents: BTreeMap<CommitId, CommitId>,
    fences: BTreeSet<CommitId>,
    /// Which machine has which commits.
    objects: BTreeSet<(usize, CommitId)>,
    /// Which of them were kept of its own trees.
    kept: BTreeSet<(usize, CommitId)>,
}

/// The remote, and the machines' trees.
pub(crate) struct Remote {
    sim: Arc<Sim>,
    /// Until when it answers nobody.
    out_until: AtomicU64,
    inside: Mutex<Inside>,
    /// Set once, when the world is put together. It watches the machines, which hold this: so this
    /// does not hold it.
    pub(crate) oracle: OnceLock<Weak<Oracle>>,
}

fn commit(of: u64, number: u64) -> CommitId {
    let mut sha1 = [0; 20];
    for (index, chunk) in sha1.chunks_mut(8).enumerate() {
        let bits = mix(of ^ mix(number.wrapping_add(index as u64 * 0x51))).to_be_bytes();
        chunk.copy_from_slice(&bits[..chunk.len()]);
    }
    CommitId::from_sha1(sha1)
}

impl Inside {
    /// The commit that holds everything in a machine's tree.
    fn save(&mut self, machine: usize, tree: &Tree) -> CommitId {
        let Some(kind) = self.trees.get(&(machine, tree.session)) else { return tree.base };
        let (mut made, edits) = (kind.start, kind.edits);
        let bits = tree.session.as_bits();
        let start = made.to_string().bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        let of = (bits as u64) ^ ((bits >> 64) as u64) ^ start ^ machine as u64;
        for number in 1..=edits {
            let next = commit(of, number);
            self.parents.insert(next, made);
            made = next;
        }
        self.objects.insert((machine, made));
        made
    }

    /// What a machine's new tree begins with; nothing, if the machine cannot have that.
    fn start(&mut self, machine: usize, want: &TreeRequest) -> Option<CommitId> {
        let Some(kept) = want.kept else { return Some(commit(0, 0)) };
        let published = self.branches.get(&want.branch).copied().filter(|_| want.base.is_some());
        let fetched = published.is_some_and(|tip| self.contains(tip, kept));
        (fetched || self.objects.contains(&(machine, kept))).then(|| {
            self.objects.insert((machine, kept));
            kept
        })
    }

    fn contains(&self, tip: CommitId, wanted: CommitId) -> bool {
        let mut at = Some(tip);
        while let Some(commit) = at {
            if commit == wanted {
                return true;
            }
            at = self.parents.get(&commit).copied();
        }
        false
    }
}

impl Remote {
    pub(crate) fn new(sim: Arc<Sim>) -> Self {
        let (inside, oracle) = (Mutex::default(), OnceLock::new());
        Self { sim, out_until: AtomicU64::new(0), inside, oracle }
    }

    fn oracle(&self) -> Option<Arc<Oracle>> {
        self.oracle.get().and_then(Weak::upgrade)
    }

    /// It answers nobody for a while.
    pub(crate) fn go_out(&self, until_ms: u64) {
        self.out_until.store(until_ms, Ordering::SeqCst);
    }

    fn is_out(&self) -> bool {
        self.sim.ms() < self.out_until.load(Ordering::SeqCst) && !self.sim.is_calm()
    }

    /// A machine is gone, and its trees with it.
    pub(crate) fn forget(&self, machine: usize) {
        let mut inside = self.inside();
        inside.trees.retain(|(on, _), _| *on != machine);
        inside.objects.retain(|(on, _)| *on != machine);
        inside.kept.retain(|(on, _)| *on != machine);
    }

    /// Whether a commit is, or comes after, another one.
    pub(crate) fn holds(&self, tip: CommitId, wanted: CommitId) -> bool {
        self.inside().contains(tip, wanted)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commit that holds everything in a session's tree on a machine, and how often it was
    /// edited.
    pub(crate) fn tip(&self, machine: usize, session: SessionId) -> Option<(CommitId, u64)> {
        let mut inside = self.inside();
        let kind = inside.trees.get(&(machine, session))?;
        let (tree, edits) = (kind.tree.clone(), kind.edits);
        Some((inside.save(machine, &tree), edits))
    }

    /// The agent of this session changes its tree.
    pub(crate) fn edit(&self, machine: usize, session: SessionId) {
        if let Some(tree) = self.inside().trees.get_mut(&(machine, session)) {
            tree.edits += 1;
        }
    }

    /// Moves a branch from `expected` to `next`, if it is there.
    fn land(&self, branch: &str, next: CommitId, expected: Option<CommitId>) -> Said {
        let mut inside = self.inside();
        let now = inside.branches.get(branch).copied();
        let careless = self.sim.planted == Some(Planted::PushWithoutLease);
        if now != expected && !careless {
            return if now == Some(next) { Said::Landed } else { Said::Refused };
        }
        if now == Some(next) {
            return Said::Landed;
        }
        inside.branches.insert(branch.to_owned(), next);
        let is_fence = inside.fences.contains(&next);
        drop(inside);
        let short = &next.to_string()[..8];
        self.sim.note(format_args!(
            "remote  {branch} is {short}{}",
            if is_fence { " (fence)" } else { "" }
        ));
        if let Some(oracle) = self.oracle().filter(|_| !is_fence) {
            oracle.landed(branch, Push { commit: next, expected });
        }
        Said::Landed
    }

    /// Sends a push to the remote, which does it whenever it does.
    async fn send(self: &Arc<Self>, branch: &str, push: Push, within: Duration) -> Said {
        let wrong = self.sim.knobs.remote_fails;
        if self.is_out() || self.sim.goes_wrong(wrong / 2) {
            self.sim.wait(10, 3_000).await;
            return Said::Nothing;
        }
        let slow = self.sim.goes_wrong(wrong);
        let most = if slow { 90_000 } else { 800 };
        let ms = self.sim.rng().between(20, most);
        let (this, branch) = (Arc::clone(self), branch.to_owned());
        let landing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            this.land(&branch, push.commit, push.expected)
        });
        match tokio::time::timeout(within, landing).await {
            Ok(Ok(said)) if !self.sim.goes_wrong(wrong / 2) => said,
            Ok(_) | Err(_) => Said::Nothing,
        }
    }

    fn unreachable(&self) -> Result<(), TreeError> {
        match self.is_out() || self.sim.goes_wrong(self.sim.knobs.remote_fails) {
            true => Err(TreeError::Unreachable("sim://repo".into())),
            false => Ok(()),
        }
    }

    /// Where a session's work comes from and goes to.
    fn place(want: &TreeRequest) -> Tree {
        let session = want.session;
        Tree {
            session,
            path: PathBuf::from("/sim/trees").join(session.to_string()),
            mirror: PathBuf::from("/sim/mirror"),
            base: commit(0, 0),
            branch: want.branch.clone(),
            remote: want.base.as_ref().map(belay_runner::Base::location),
        }
    }

    fn make(&self, machine: usize, want: &TreeRequest) -> Result<Tree, TreeError> {
        let mut inside = self.inside();
        if let Some(found) = inside.trees.get(&(machine, want.session)) {
            let leads = |kept| kept == found.start || inside.kept.contains(&(machine, kept));
            if want.kept.is_none_or(leads) {
                return Ok(found.tree.clone());
            }
            self.sim.note(format_args!("machine {machine} sets an old tree aside"));
        }
        let Some(start) = inside.start(machine, want) else {
            return Err(want.kept.map_or(TreeError::NoRemote, TreeError::NotHere));
        };
        let tree = Self::place(want);
        let made = Kind { tree: tree.clone(), start, edits: 0 };
        inside.trees.insert((machine, want.session), made);
        Ok(tree)
    }
}

/// The workspace, as one runner has it.
#[derive(Clone)]
pub(crate) struct SimWorkspace {
    pub(crate) remote: Arc<Remote>,
    pub(crate) machine: usize,
    pub(crate) gate: Arc<Gate>,
}

impl SimWorkspace {
    async fn begin(&self) {
        let sim = &self.remote.sim;
        self.gate.step().await;
        if sim.goes_wrong(sim.knobs.remote_fails) {
            sim.wait(1, 6_000).await;
        }
    }
}

impl Workspace for SimWorkspace {
    async fn prepare(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        self.begin().await;
        self.remote.unreachable()?;
        if self.remote.sim.goes_wrong(60) {
            self.remote.sim.wait(1_000, 60_000).await;
        }
        let tree = self.remote.make(self.machine, want)?;
        if let Some(oracle) = self.remote.oracle() {
            let tip = self.remote.inside().save(self.machine, &tree);
            oracle.prepared(&self.remote, tree.session, tip);
        }
        self.gate.step().await;
        Ok(tree)
    }

    async fn find(&self, session: SessionId) -> Result<Option<Tree>, TreeError> {
        self.begin().await;
        let inside = self.remote.inside();
        Ok(inside.trees.get(&(self.machine, session)).map(|kind| kind.tree.clone()))
    }

    async fn locate(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        self.begin().await;
        self.remote.unreachable()?;
        Ok(Remote::place(want))
    }

    async fn keep(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
        since: Option<CommitId>,
    ) -> Result<Kept, TreeError> {
        self.begin().await;
        self.remote.unreachable()?;
        if let Some(oracle) = self.remote.oracle() {
            oracle.kept(self.machine, tree.session, task, attempt);
        }
        let made = {
            let mut inside = self.remote.inside();
            let made = inside.save(self.machine, tree);
            inside.kept.insert((self.machine, made));
            made
        };
        self.gate.step().await;
        let moved = since.unwrap_or(tree.base) != made;
        Ok(Kept {
            commit: made,
            reference: format!("refs/belay/kept/{task}/{attempt}"),
            changed: made != tree.base,
            moved,
            import: Import::Taken,
        })
    }

    async fn diff(&self, _: &Tree, commit: CommitId) -> Result<Vec<u8>, TreeError> {
        self.begin().await;
        Ok(format!("+++ {commit}\n").into_bytes())
    }

    async fn look(&self, tree: &Tree) -> Result<Option<CommitId>, TreeError> {
        self.begin().await;
        self.remote.unreachable()?;
        Ok(self.remote.inside().branches.get(&tree.branch).copied())
    }

    async fn push(&self, tree: &Tree, push: Push, within: Span) -> Result<Said, TreeError> {
        self.begin().await;
        if let Some(oracle) = self.remote.oracle() {
            oracle.pushing(push);
        }
        let said =
            self.remote.send(&tree.branch, push, Duration::from_millis(within.as_millis())).await;
        self.gate.step().await;
        Ok(said)
    }

    async fn remote_of(&self, tree: &Tree, push: Push) -> Shows {
        self.begin().await;
        if self.remote.unreachable().is_err() {
            return Shows::Unreachable;
        }
        let inside = self.remote.inside();
        match inside.branches.get(&tree.branch).copied() {
            Some(now) if now == push.commit => Shows::HasCommit,
            now if now == push.expected => Shows::AsExpected,
            Some(now) if inside.contains(now, push.commit) => Shows::HasCommit,
            Some(_) | None => Shows::MovedOn,
        }
    }

    async fn fence(&self, tree: &Tree, push: Push) -> Result<Said, TreeError> {
        self.begin().await;
        let fence = {
            let number = self.remote.sim.rng().next();
            let mut inside = self.remote.inside();
            let fence = commit(number, 7);
            inside.parents.insert(fence, push.expected.unwrap_or(tree.base));
            inside.fences.insert(fence);
            fence
        };
        let push = Push { commit: fence, expected: push.expected };
        Ok(self.remote.send(&tree.branch, push, Duration::from_secs(30)).await)
    }

    async fn remove(&self, session: SessionId) -> Result<(), TreeError> {
        if let Some(oracle) = self.remote.oracle() {
            oracle.forgetting(session);
        }
        self.remote.inside().trees.remove(&(self.machine, session));
        Ok(())
    }
}

//! Trees and the remote: a repository without git, whose branches are moved by compare-and-set.
//!
//! A push is done by the remote itself: it may land long after whoever pushed has fallen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use belay_kernel::publish::{CommitId, Push, Remote as Shows};
use belay_kernel::{AttemptNumber, SessionId, Span, TaskId};
use belay_runner::{Import, Kept, Said, Tree, TreeError, TreeRequest, Workspace};

use crate::Planted;
use crate::oracle::Oracle;
use crate::rng::mix;
use crate::sim::{Gate, Sim};

struct Kind {
    tree: Tree,
    edits: u64,
}

#[derive(Default)]
struct Inside {
    trees: BTreeMap<SessionId, Kind>,
    branches: BTreeMap<String, CommitId>,
    parents: BTreeMap<CommitId, CommitId>,
    fences: BTreeSet<CommitId>,
}

/// The remote, and the machine's trees.
pub(crate) struct Remote {
    sim: Arc<Sim>,
    inside: Mutex<Inside>,
    /// Set once, when the world is put together.
    pub(crate) oracle: OnceLock<Arc<Oracle>>,
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
    /// The commit that holds everything in a tree, and how often it was edited.
    fn save(&mut self, tree: &Tree) -> (CommitId, u64) {
        let edits = self.trees.get(&tree.session).map_or(0, |kind| kind.edits);
        let bits = tree.session.as_bits();
        let of = (bits as u64) ^ ((bits >> 64) as u64);
        let mut made = tree.base;
        for number in 1..=edits {
            let next = commit(of, number);
            self.parents.insert(next, made);
            made = next;
        }
        (made, edits)
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
        Self { sim, inside: Mutex::default(), oracle: OnceLock::new() }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commit that holds everything in a session's tree, and how often it was edited.
    pub(crate) fn tip(&self, session: SessionId) -> Option<(CommitId, u64)> {
        let mut inside = self.inside();
        let tree = inside.trees.get(&session)?.tree.clone();
        Some(inside.save(&tree))
    }

    /// The agent of this session changes its tree.
    pub(crate) fn edit(&self, session: SessionId) {
        if let Some(tree) = self.inside().trees.get_mut(&session) {
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
        if let Some(oracle) = self.oracle.get().filter(|_| !is_fence) {
            oracle.landed(branch, Push { commit: next, expected });
        }
        Said::Landed
    }

    /// Sends a push to the remote, which does it whenever it does.
    async fn send(self: &Arc<Self>, branch: &str, push: Push, within: Duration) -> Said {
        let wrong = self.sim.knobs.remote_fails;
        if self.sim.goes_wrong(wrong / 2) {
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
        match self.sim.goes_wrong(self.sim.knobs.remote_fails) {
            true => Err(TreeError::Unreachable("sim://repo".into())),
            false => Ok(()),
        }
    }

    fn make(&self, want: &TreeRequest) -> Tree {
        let session = want.session;
        let tree = Tree {
            session,
            path: PathBuf::from("/sim/trees").join(session.to_string()),
            mirror: PathBuf::from("/sim/mirror"),
            base: commit(0, 0),
            branch: want.branch.clone(),
            remote: want.base.as_ref().map(belay_runner::Base::location),
        };
        let made = Kind { tree, edits: 0 };
        self.inside().trees.entry(session).or_insert(made).tree.clone()
    }
}

/// The workspace, as one runner has it.
#[derive(Clone)]
pub(crate) struct SimWorkspace(pub(crate) Arc<Remote>, pub(crate) Arc<Gate>);

impl SimWorkspace {
    async fn begin(&self) {
        let sim = &self.0.sim;
        self.1.step().await;
        if sim.goes_wrong(sim.knobs.remote_fails) {
            sim.wait(1, 6_000).await;
        }
    }
}

impl Workspace for SimWorkspace {
    async fn prepare(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        self.begin().await;
        self.0.unreachable()?;
        if self.0.sim.goes_wrong(60) {
            self.0.sim.wait(1_000, 60_000).await;
        }
        let tree = self.0.make(want);
        self.1.step().await;
        Ok(tree)
    }

    async fn find(&self, session: SessionId) -> Result<Option<Tree>, TreeError> {
        self.begin().await;
        Ok(self.0.inside().trees.get(&session).map(|kind| kind.tree.clone()))
    }

    async fn locate(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        self.begin().await;
        self.0.unreachable()?;
        Ok(self.0.make(want))
    }

    async fn keep(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
        since: Option<CommitId>,
    ) -> Result<Kept, TreeError> {
        self.begin().await;
        self.0.unreachable()?;
        if let Some(oracle) = self.0.oracle.get() {
            oracle.kept(tree.session, task, attempt);
        }
        let (made, edits) = self.0.inside().save(tree);
        self.1.step().await;
        let moved = match since {
            Some(since) => since != made,
            None => edits > 0,
        };
        Ok(Kept {
            commit: made,
            reference: format!("refs/belay/kept/{task}/{attempt}"),
            changed: edits > 0,
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
        self.0.unreachable()?;
        Ok(self.0.inside().branches.get(&tree.branch).copied())
    }

    async fn push(&self, tree: &Tree, push: Push, within: Span) -> Result<Said, TreeError> {
        self.begin().await;
        if let Some(oracle) = self.0.oracle.get() {
            oracle.pushing(push);
        }
        let said = self.0.send(&tree.branch, push, Duration::from_millis(within.as_millis())).await;
        self.1.step().await;
        Ok(said)
    }

    async fn remote_of(&self, tree: &Tree, push: Push) -> Shows {
        self.begin().await;
        if self.0.unreachable().is_err() {
            return Shows::Unreachable;
        }
        let inside = self.0.inside();
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
            let number = self.0.sim.rng().next();
            let mut inside = self.0.inside();
            let fence = commit(number, 7);
            inside.parents.insert(fence, push.expected.unwrap_or(tree.base));
            inside.fences.insert(fence);
            fence
        };
        let push = Push { commit: fence, expected: push.expected };
        Ok(self.0.send(&tree.branch, push, Duration::from_secs(30)).await)
    }

    async fn remove(&self, session: SessionId) -> Result<(), TreeError> {
        self.0.inside().trees.remove(&session);
        Ok(())
    }
}

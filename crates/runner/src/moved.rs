//! Sessions whose work went on elsewhere, and came back: a tree that was left here is not theirs any
//! more. What they begin with is what was kept last; the old tree is set aside and never deleted,
//! since nobody may have saved it.

use belay_kernel::publish::CommitId;

use crate::tree::{Trees, at};
use crate::workspace::{Tree, TreeError};

impl Trees {
    /// Whether a kept commit was made of this machine's tree, or the tree of it. A commit that was
    /// only fetched shows in no ref of ours.
    pub(crate) async fn leads_to(&self, tree: &Tree, kept: CommitId) -> Result<bool, TreeError> {
        let points = format!("--points-at={kept}");
        let from = format!("refs/belay/from/{}", tree.session);
        let listed = ["for-each-ref", "--format=%(refname)", &points, "refs/belay/kept", &from];
        // A commit that is not here at all is an error to git, and an answer to us.
        let refs = self.git.ours(&tree.mirror).args(listed).text().await;
        Ok(refs.is_ok_and(|refs| !refs.is_empty()))
    }

    /// The commit that a new tree is made of, which is remembered before the tree is there.
    pub(crate) async fn begin_from(
        &self,
        tree: &Tree,
        kept: CommitId,
    ) -> Result<CommitId, TreeError> {
        let kept = self.have(tree, kept).await?;
        let from = format!("refs/belay/from/{}", tree.session);
        self.git.ours(&tree.mirror).args(["update-ref", &from, &kept.to_string()]).text().await?;
        Ok(kept)
    }

    /// Sets a tree aside that the session does not go on with.
    pub(crate) fn set_aside(&self, tree: &Tree, kept: CommitId) -> Result<(), TreeError> {
        let kept = kept.to_string();
        let place = |number: u32| {
            let name = format!(".left-{}-{}-{number}", tree.session, &kept[..12]);
            self.root.join("trees").join(name)
        };
        let free = (1..).map(place).find(|path| !path.exists());
        let aside = free.unwrap_or_else(|| place(0));
        std::fs::rename(&tree.path, &aside).map_err(at(&aside))?;
        tracing::warn!(session = %tree.session, aside = %aside.display(), "an old tree was left");
        Ok(())
    }
}

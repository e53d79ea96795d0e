//! What a session's work begins with: the base's commit, and what is not committed there.
//!
//! The base may be something that an agent wrote, so nothing of its configuration is used: files
//! are compared through an index of ours. Only what it is to *ignore* is asked of the person's
//! settings and of the base's own `info/exclude`, because those are lists and run nothing.

use std::path::{Path, PathBuf};

use belay_kernel::publish::CommitId;

use super::index::{Begin, files_as_tree};
use super::{Trees, at, without_secret};
use crate::git::GitError;
use crate::inspect::inspect;
use crate::workspace::{Base, Dirty, TreeError, TreeRequest};

/// A commit, and the tree that it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Point {
    pub(super) commit: CommitId,
    pub(super) tree: String,
}

/// Where a base with files has its things.
struct Places {
    top: PathBuf,
    index: PathBuf,
    exclude: PathBuf,
}

impl Trees {
    /// Brings what the session starts from into the mirror, under the session's pin.
    pub(super) async fn fetch(
        &self,
        mirror: &Path,
        base: &Base,
        want: &TreeRequest,
    ) -> Result<Point, TreeError> {
        let pin = pin(want);
        let known = want.from.as_deref().and_then(|name| name.parse::<CommitId>().ok());
        if let Some(commit) = known
            && self.has(mirror, commit).await?
        {
            // What another task kept is here, and perhaps nowhere else.
            self.git.ours(mirror).args(["update-ref", &pin, &commit.to_string()]).text().await?;
            return self.point(mirror, &pin).await;
        }
        if let Some(point) = self.beside(mirror, want).await? {
            return Ok(point);
        }
        let wanted = match &want.from {
            None => "HEAD".to_owned(),
            Some(name) => {
                let refs = self.refs(mirror, base).await?;
                wanted_ref(&refs, name, &base.location())?
            }
        };
        let into = format!("+{wanted}:{pin}");
        let location = base.location();
        let fetch =
            ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", &location, &into];
        if let Err(error) = self.git.persons(mirror).args(fetch).text().await {
            // What is wrong with it is asked only now: usually nothing is.
            let refs = self.refs(mirror, base).await?;
            if wanted == "HEAD" && !refs.lines().any(|line| line.ends_with("\tHEAD")) {
                return Err(TreeError::Empty(without_secret(&location)));
            }
            return Err(error.into());
        }
        self.point(mirror, &pin).await
    }

    /// What was committed last in the tree of another session of the same base, as far as that is a
    /// repository of ours still: an agent that gives a part of its work away gives what it has
    /// committed along.
    async fn beside(&self, mirror: &Path, want: &TreeRequest) -> Result<Option<Point>, TreeError> {
        let Some(other) = want.beside else { return Ok(None) };
        let Some(tree) = self.find(other)?.filter(|tree| tree.mirror == mirror) else {
            return Ok(None);
        };
        if inspect(&tree.path, mirror).is_err() {
            return Ok(None);
        }
        let (pin, words) = (pin(want), ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"]);
        let fetch = self.git.ours(mirror).args(words).args(["--no-auto-gc", "--"]);
        let fetched = fetch.arg(&tree.path).arg(format!("+HEAD:{pin}")).output().await?;
        match fetched.status.success() {
            true => Ok(Some(self.point(mirror, &pin).await?)),
            false => Ok(None),
        }
    }

    /// The refs that a base has.
    async fn refs(&self, mirror: &Path, base: &Base) -> Result<String, TreeError> {
        let location = base.location();
        let listed = self.git.persons(mirror).args(["ls-remote", "--quiet", "--", &location]);
        match (listed.text().await, base) {
            (Ok(refs), _) => Ok(refs),
            (Err(_), Base::Path(_)) => Err(TreeError::NotARepository(location)),
            (Err(_), Base::Url(url)) => Err(TreeError::Unreachable(without_secret(url))),
        }
    }

    async fn point(&self, mirror: &Path, name: &str) -> Result<Point, TreeError> {
        let (commit, tree) = (format!("{name}^{{commit}}"), format!("{name}^{{tree}}"));
        let printed = self.git.ours(mirror).args(["rev-parse", &commit, &tree]).text().await?;
        let point = printed.split_once('\n').and_then(|(commit, tree)| {
            Some(Point { commit: commit.parse().ok()?, tree: tree.to_owned() })
        });
        let unexpected = || GitError::Unexpected { command: "rev-parse".into(), printed };
        Ok(point.ok_or_else(unexpected)?)
    }

    /// The commit that a session starts from whose base is on this machine: its HEAD, or, if files
    /// differ from that and may be taken along, a commit of ours on top of it.
    pub(super) async fn with_uncommitted(
        &self,
        mirror: &Path,
        want: &TreeRequest,
        head: &Point,
    ) -> Result<CommitId, TreeError> {
        let takes_files = want.from.is_none() && want.beside.is_none();
        let Some(Base::Path(base)) = want.base.as_ref().filter(|_| takes_files) else {
            return Ok(head.commit);
        };
        let Some(places) = self.places(base).await? else { return Ok(head.commit) };
        let begin = Begin::Index(&places.index, head.commit.to_string());
        let mut files = files_as_tree(&self.git, mirror, &places.top, &begin, None).await?;
        if files != head.tree
            && let Some(excludes) = self.excludes(base, &places).await?
        {
            let list = mirror.join(format!("excludes-{}", want.session));
            std::fs::write(&list, excludes).map_err(at(&list))?;
            files = files_as_tree(&self.git, mirror, &places.top, &begin, Some(&list)).await?;
            std::fs::remove_file(&list).map_err(at(&list))?;
        }
        match want.dirty {
            _ if files == head.tree => Ok(head.commit),
            Dirty::Include => {
                let message = "Uncommitted changes";
                let commit = self.commit_tree(mirror, &files, head.commit, message).await?;
                let keep = ["update-ref", &pin(want), &commit.to_string()];
                self.git.ours(mirror).args(keep).text().await?;
                Ok(commit)
            }
            Dirty::Refuse => Err(TreeError::Dirty(places.top.display().to_string())),
        }
    }

    /// Where the base has its things; nothing if it has no files.
    async fn places(&self, base: &Path) -> Result<Option<Places>, TreeError> {
        let asked = ["--is-bare-repository", "--show-cdup"];
        let call = self.git.ours(base).arg("rev-parse").args(asked);
        let call = call.args(["--git-path", "index", "--git-path", "info/exclude"]);
        let printed = call.text().await?;
        let mut lines = printed.lines();
        if lines.next() == Some("true") {
            return Ok(None);
        }
        let mut path = || base.join(lines.next().unwrap_or_default());
        Ok(Some(Places { top: path(), index: path(), exclude: path() }))
    }

    /// What the person and the base want to be ignored besides `.gitignore`; nothing if nobody
    /// says anything.
    async fn excludes(&self, base: &Path, places: &Places) -> Result<Option<Vec<u8>>, TreeError> {
        let asked = ["config", "--type=path", "--get", "core.excludesFile"];
        let named = self.git.persons(base).args(asked).output().await?;
        let named = String::from_utf8_lossy(&named.stdout).trim_end_matches('\n').to_owned();
        let global = match named.is_empty() {
            true => usual_excludes(),
            false => Some(base.join(named)),
        };
        let mut text = Vec::new();
        for path in global.iter().chain([&places.exclude]) {
            if let Ok(lines) = std::fs::read(path) {
                text.extend_from_slice(&lines);
                text.push(b'\n');
            }
        }
        Ok((!text.is_empty()).then_some(text))
    }
}

/// The list that git uses where nobody names one.
fn usual_excludes() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
    Some(config.join("git/ignore"))
}

/// The ref that keeps what a session began with.
pub(super) fn pin(want: &TreeRequest) -> String {
    format!("refs/belay/base/{}", want.session)
}

/// The full name of a ref that a base was listed to have, or the commit itself.
fn wanted_ref(refs: &str, name: &str, location: &str) -> Result<String, TreeError> {
    let known = |full: &String| refs.lines().any(|line| line.ends_with(&format!("\t{full}")));
    let named = [format!("refs/heads/{name}"), format!("refs/tags/{name}"), name.to_owned()];
    match named.into_iter().find(known) {
        Some(found) => Ok(found),
        None if name.parse::<CommitId>().is_ok() => Ok(name.to_owned()),
        None => Err(TreeError::NoSuchRef { name: name.into(), base: without_secret(location) }),
    }
}

//! `belay accept --merge`: the work is merged in the person's own repository, then accepted.
//!
//! Either both happen or neither: a merge that conflicts is undone before anything is accepted, and
//! a merge whose accept is refused is put back.

use std::path::Path;

use belay_api::{Accept, ClientError, TaskView};
use belay_kernel::publish::Publish;
use belay_kernel::task::State;

use crate::connect::Link;
use crate::fault::Fault;
use crate::git::Repository;
use crate::screen::{note, one_line};

/// What is merged, and into what.
#[derive(Debug)]
struct Merge {
    repository: Repository,
    /// The branch that is checked out.
    into: String,
    /// Where it was before.
    before: String,
    /// What is merged.
    commit: String,
    message: String,
}

/// Merges a task's branch, and accepts the task.
pub(crate) async fn accept(link: &mut Link, id: &str, key: &str) -> Result<TaskView, Fault> {
    let task = link.ask(async |client| client.show(id).await).await?;
    let State::Ready { attempt } = task.detail else {
        let verbs = task.verbs.iter().map(|verb| verb.name()).collect::<Vec<_>>().join(", ");
        let state = &task.summary.state;
        let text = format!("task {id} is {state}, not READY; possible now: {verbs}");
        return Err(Fault::refused(text));
    };
    let merge = plan(&task)?;
    let after = merge.perform()?;
    let body = Accept { attempt: Some(attempt) };
    match link.client().accept(id, &body, Some(key)).await {
        Ok(task) => {
            note(&format!("belay: merged into {}", merge.into));
            Ok(task)
        }
        Err(ClientError::Problem(problem)) => {
            merge.put_back(&after)?;
            Err(problem.into())
        }
        Err(ClientError::Unanswered(_)) => {
            // Nobody knows whether it was accepted: the same request is asked again.
            let again = link.ask(async |client| client.accept(id, &body, Some(key)).await).await;
            again.map_err(|fault| {
                let text = format!(
                    "the work is merged into {}, but it is not known whether it was accepted; run \
                     `belay accept {id}`: {fault}",
                    merge.into
                );
                Fault { text, ..fault }
            })
        }
    }
}

/// Finds out whether it can be merged.
fn plan(task: &TaskView) -> Result<Merge, Fault> {
    let local = task.repository.as_deref().filter(|path| Path::new(path).is_dir());
    let Some(repository) = local.and_then(|path| Repository::around(Path::new(path))) else {
        let text = match &task.repository {
            Some(named) => format!("{named} is not a repository on this machine; merge it there"),
            None => "the task works on no repository; there is nothing to merge".to_owned(),
        };
        return Err(Fault::refused(text));
    };
    let Some(branch) = &task.branch else {
        return Err(Fault::refused("the task has no branch; there is nothing to merge"));
    };
    let top = repository.top().display().to_string();
    let tip = format!("refs/heads/{branch}^{{commit}}");
    let Some(commit) = repository.get(&["rev-parse", "--verify", "--quiet", &tip])? else {
        return Err(Fault::refused(format!("{top} has no branch `{branch}`; nothing to merge")));
    };
    if let Some(pushed) = pushed(task)
        && pushed != commit
    {
        let text =
            format!("`{branch}` is not what the task pushed any more ({pushed}); look first");
        return Err(Fault::refused(text));
    }
    let head = repository.get(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
    let Some(into) = head.filter(|head| head != branch) else {
        return Err(Fault::refused(format!(
            "in {top} no base branch is checked out; do that first"
        )));
    };
    may_take(&repository, task.base.as_deref(), &into)?;
    let Some(before) = repository.get(&["rev-parse", "--verify", "HEAD^{commit}"])? else {
        return Err(Fault::refused(format!("`{into}` has no commit yet")));
    };
    let title = one_line(&task.summary.title, 60);
    let message = format!("Merge task {}: {title}", task.summary.id);
    Ok(Merge { repository, into, before, commit, message })
}

/// The commit that the attempt under review pushed.
fn pushed(task: &TaskView) -> Option<String> {
    let State::Ready { attempt } = task.detail else { return None };
    let view = task.attempt_list.iter().find(|view| view.attempt.number == attempt)?;
    match view.attempt.publish {
        Publish::Pushed(push) => Some(push.commit.to_string()),
        Publish::None | Publish::Open(_) | Publish::NotPushed(_) => None,
    }
}

/// Whether the branch that is checked out is the base, and clean.
fn may_take(repository: &Repository, base: Option<&str>, into: &str) -> Result<(), Fault> {
    if let Some(base) = base {
        let name = base.strip_prefix("refs/heads/").unwrap_or(base);
        let branch = format!("refs/heads/{name}");
        let is_branch = repository.ask(&["rev-parse", "--verify", "--quiet", &branch])?.ok;
        if is_branch && name != into {
            let text =
                format!("the base `{name}` is not checked out, `{into}` is; check it out first");
            return Err(Fault::refused(text));
        }
        if !is_branch && !repository.ask(&["merge-base", "--is-ancestor", base, "HEAD"])?.ok {
            let text =
                format!("`{into}` does not hold the base {base}; check out a branch that does");
            return Err(Fault::refused(text));
        }
    }
    let changes = repository.ask(&["status", "--porcelain", "--untracked-files=no"])?;
    if !changes.ok {
        return Err(Fault::refused(format!("git cannot tell the state: {}", changes.complaint)));
    }
    if !changes.out.is_empty() {
        let text =
            format!("`{into}` has changes that are not committed; commit or stash them first");
        return Err(Fault::refused(text));
    }
    for (mark, what) in
        [("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")]
    {
        if repository.ask(&["rev-parse", "--verify", "--quiet", mark])?.ok {
            return Err(Fault::refused(format!(
                "a {what} is under way in `{into}`; finish it first"
            )));
        }
    }
    Ok(())
}

impl Merge {
    /// Merges, or leaves everything as it was. Answers where the branch is then.
    fn perform(&self) -> Result<String, Fault> {
        let merged = self.repository.ask(&[
            "merge",
            "--no-ff",
            "--no-edit",
            "-m",
            &self.message,
            &self.commit,
        ])?;
        let head = self.repository.get(&["rev-parse", "--verify", "HEAD^{commit}"])?;
        if merged.ok
            && let Some(head) = head
        {
            return Ok(head);
        }
        // Where the merge never began there is nothing to abort, and that says so itself.
        self.repository.ask(&["merge", "--abort"])?;
        let head = self.repository.get(&["rev-parse", "--verify", "HEAD^{commit}"])?;
        let complaint = one_line(&merged.complaint, 200);
        let kept = match head.as_deref() == Some(self.before.as_str()) {
            true => "nothing was changed",
            false => "look at the repository before you go on",
        };
        Err(Fault::refused(format!(
            "it cannot be merged into `{}` ({complaint}); {kept}. Merge it by hand and `belay \
             accept`, or `belay reject` it with a comment",
            self.into
        )))
    }

    /// Puts the branch back where it was, if nobody has moved it since.
    fn put_back(&self, after: &str) -> Result<(), Fault> {
        let head = self.repository.get(&["rev-parse", "--verify", "HEAD^{commit}"])?;
        if head.as_deref() != Some(after) {
            note(&format!("belay: `{}` was moved meanwhile, and is left as it is", self.into));
            return Ok(());
        }
        let back = self.repository.ask(&["reset", "--keep", &self.before])?;
        if !back.ok {
            let complaint = one_line(&back.complaint, 200);
            note(&format!("belay: `{}` could not be put back: {complaint}", self.into));
        }
        Ok(())
    }
}

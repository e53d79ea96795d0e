//! `belay run`: makes a task, and follows it.

use std::path::Path;

use belay_agent::Machine;
use belay_api::{Dirty, NewTask};
use belay_kernel::TaskId;

use crate::cli::Run;
use crate::config::{Config, Sources};
use crate::connect::{Link, Start, key};
use crate::data::Data;
use crate::fault::{Exit, Fault};
use crate::follow;
use crate::git::Repository;
use crate::new_task::{Here, build};
use crate::screen::{note, say, say_json};

/// Makes a task, and follows it unless it is to be left alone.
pub(crate) async fn run(data: &Data, run: &Run, json: bool) -> Result<Exit, Fault> {
    let mut task = task_of(run)?;
    let key = key(run.idempotency_key.as_deref())?;
    let mut link = Link::open(data, Start::Always).await?;
    task.after = Vec::with_capacity(run.after.len());
    for id in &run.after {
        task.after.push(resolve(&mut link, id).await?);
    }
    if let Some(id) = &run.parent {
        task.parent = Some(resolve(&mut link, id).await?);
    }
    let made = link.ask(async |client| client.create(&task, Some(&key)).await).await?;
    let id = made.summary.id;
    if run.detach {
        if json {
            say_json(&made);
        } else {
            say(&id.to_string());
        }
        return Ok(Exit::Done);
    }
    if !json {
        note(&format!("belay: task {id}"));
    }
    follow::follow(&mut link, made, json).await
}

/// The task that flags, settings and this directory stand for, checked as far as it can be here.
pub(crate) fn task_of(run: &Run) -> Result<NewTask, Fault> {
    let here = std::env::current_dir()
        .map_err(|error| Fault::failed(format!("this directory cannot be used: {error}")))?;
    let local = run.repo.as_ref().map_or(here, std::path::PathBuf::from);
    let around = Repository::around(&local).map(|found| found.top().to_owned());
    // A subtask works on its parent's repository; around an agent is only its own tree.
    let is_subtask = run.parent.is_some() || std::env::var_os("BELAY_TASK_ID").is_some();
    let repository = around.filter(|_| run.repo.is_some() || !is_subtask);
    let config = Config::load(&Sources::here(repository.clone()))?;
    let machine = Machine::here();
    let variable = |name: &str| std::env::var(name).ok();
    let here = Here {
        config: &config,
        repository: repository.as_deref(),
        machine: &machine,
        variable: &variable,
    };
    let task = build(run, &here)?;
    check_tree(&task, run)?;
    Ok(task)
}

/// What the runner would refuse is refused before anything is made of it. A repository that is not
/// on this machine is the runner's to look at, and a subtask begins with its parent's work.
fn check_tree(task: &NewTask, run: &Run) -> Result<(), Fault> {
    let local = task.repository.as_deref().map(Path::new).filter(|path| path.is_dir());
    let Some(path) = local.filter(|_| run.parent.is_none()) else { return Ok(()) };
    let repository = Repository::at(path);
    if !repository.ask(&["rev-parse", "--git-dir"])?.ok {
        return Err(Fault::refused(format!(
            "{} is not a git repository; run `git init` there, or name another one with --repo",
            path.display()
        )));
    }
    if task.dirty == Dirty::Include || task.base.is_some() {
        return Ok(());
    }
    match repository.get(&["--no-optional-locks", "status", "--porcelain"])? {
        None => Ok(()),
        Some(_) => Err(Fault::refused(format!(
            "{} has changes that are not committed; commit them, or say --dirty include",
            path.display()
        ))),
    }
}

/// The full id of a task that may be named by the first letters.
async fn resolve(link: &mut Link, id: &str) -> Result<TaskId, Fault> {
    if let Ok(id) = id.parse() {
        return Ok(id);
    }
    Ok(link.ask(async |client| client.show(id).await).await?.summary.id)
}

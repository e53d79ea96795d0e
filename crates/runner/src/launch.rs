//! From an assignment to what is run: the agent's launch, and the sandbox's plan.

use std::collections::BTreeMap;
use std::path::Path;

use belay_agent::{
    Agent, BelayEnvironment, LINE_LIMIT, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions,
    Stdout,
};
use belay_api::Secrets;
use belay_api::port::{Assignment, Work};
use belay_kernel::Limits;
use belay_sandbox::{Access, Bind, Margins, Plan};

use crate::config::{Inside, RunnerConfig};
use crate::files::{Decided, Files};
use crate::program::{self, Hidden, Program};
use crate::workspace::{Base, Dirty, Tree, TreeRequest};

/// The tree that an assignment wants.
pub(crate) fn tree_request(assignment: &Assignment) -> TreeRequest {
    let work = &assignment.work;
    TreeRequest {
        session: assignment.session,
        base: work.repository.as_deref().map(Base::named),
        from: work.base.clone(),
        beside: work.beside,
        branch: work.branch.clone(),
        dirty: if work.include_uncommitted { Dirty::Include } else { Dirty::Refuse },
        kept: assignment.kept,
    }
}

/// What is masked in what an agent prints and says: its attempt's token, and the variables that
/// look like credentials.
pub(crate) fn secrets(agent: Agent, variables: &BTreeMap<String, String>, token: &str) -> Secrets {
    let secret = variables.iter().filter(|(name, _)| agent.is_secret(name));
    Secrets::new(secret.map(|(_, value)| value.as_str()).chain([token]))
}

/// What the agent shall run as; the same for the same decisions.
pub(crate) fn launch(
    agent: Agent,
    assignment: &Assignment,
    files: &Files,
    tree: &Path,
    decided: &Decided,
    config: &RunnerConfig,
) -> Launch {
    let text = |path: &Path| path.display().to_string();
    let inside = inside(&assignment.work, config);
    let own = match (inside, own_program(assignment, config)) {
        (Some(inside), _) => McpServer::belay_program(&inside.belay),
        (None, Some(program)) => McpServer::belay_program(&[text(program)]),
        (None, None) => McpServer::belay(&config.url),
    };
    let mcp = match agent {
        Agent::Command => Vec::new(),
        Agent::Gemini => vec![own.asking_as_ask_person()],
        Agent::Claude
        | Agent::Codex
        | Agent::OpenCode
        | Agent::Copilot
        | Agent::Cursor
        | Agent::Acp => vec![own],
    };
    Launch {
        program: assignment.work.command.clone(),
        prompt: decided.prompt.clone(),
        conversation: decided.conversation(),
        model: assignment.work.model.clone(),
        permissions: Permissions::All,
        mcp,
        work_dir: text(tree),
        state_dir: text(&files.home),
        belay: BelayEnvironment {
            url: inside.map_or(&config.url, |inside| &inside.url).clone(),
            token: decided.token.clone(),
            task: assignment.who.task,
            attempt: assignment.who.attempt,
            prompt_file: text(&files.prompt()),
            question_file: text(&files.question()),
            summary_file: text(&files.summary()),
        },
        environment: environment(&assignment.work, config),
        settings: serde_json::Map::new(),
        max_turns: None,
        max_budget: None,
        line_limit: LINE_LIMIT,
    }
}

/// How Belay is reached from inside, if the sandbox is a container.
fn inside<'a>(work: &Work, config: &'a RunnerConfig) -> Option<&'a Inside> {
    config.containers.get(&work.provider)
}

/// This program, if it can be executed inside as it is here. An image has libraries of its own,
/// which may not be those that it needs.
fn own_program<'a>(assignment: &Assignment, config: &'a RunnerConfig) -> Option<&'a Path> {
    let own = config.belay.as_deref().filter(|_| inside(&assignment.work, config).is_none());
    own.filter(|path| path.is_file())
}

/// What every program needs, and what the task names. An image has a search path of its own.
fn environment(work: &Work, config: &RunnerConfig) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::from(
        [("LANG", "C.UTF-8"), ("TERM", "dumb")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    if inside(work, config).is_none() {
        environment.insert("PATH".into(), config.path.clone());
    }
    environment.extend(work.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment
}

/// How the agent is run, with its program where the sandbox can reach it.
pub(crate) struct Planned {
    pub(crate) agent: LaunchPlan,
    pub(crate) sandbox: Plan,
}

/// Plans the launch in a sandbox around `tree`.
pub(crate) fn plan(
    agent: Agent,
    launch: &Launch,
    assignment: &Assignment,
    files: &Files,
    tree: &Tree,
    config: &RunnerConfig,
) -> Result<Planned, LaunchRefusal> {
    let mut planned = agent.plan(launch)?;
    let program = match (inside(&assignment.work, config), planned.argv.first()) {
        (None, Some(name)) => {
            let hidden = Hidden::new(config.hidden.iter().cloned().chain([config.root.clone()]));
            let path = planned.environment.get("PATH").map_or("", String::as_str);
            program::find(name, path, &hidden)
        }
        (Some(_), _) | (None, None) => Program::default(),
    };
    if let (Some(real), Some(name)) = (&program.real, planned.argv.first_mut()) {
        *name = real.display().to_string();
    }
    if let (Some(first), Some(path)) = (&program.path, planned.environment.get_mut("PATH")) {
        *path = format!("{}:{path}", first.display());
    }
    let own = own_program(assignment, config);
    if let (Some(own), Some(path)) = (own, planned.environment.get_mut("PATH")) {
        // Last, so that it comes before nothing that the person has chosen.
        *path = format!("{path}:{}", own.parent().unwrap_or(own).display());
    }
    let who = assignment.who;
    let mut sandbox = Plan::new(who.task, who.attempt, &tree.path, planned.argv.clone());
    sandbox.env = planned.environment.clone();
    sandbox.binds = binds(files, tree, &program);
    if let Some(own) = own {
        sandbox.binds.push(Bind { path: own.into(), access: Access::Read });
    }
    sandbox.limits = config.sandbox;
    sandbox.margins = margins(&assignment.limits);
    sandbox.image = assignment.work.image.clone();
    sandbox.stdout = match planned.stdout {
        Stdout::Pipe => belay_sandbox::Stdout::Pipe,
        Stdout::File => belay_sandbox::Stdout::File,
    };
    Ok(Planned { agent: planned, sandbox })
}

/// What is shown inside besides the tree. The prompt lies in a directory that can be written.
fn binds(files: &Files, tree: &Tree, program: &Program) -> Vec<Bind> {
    let read = |path: &Path| Bind { path: path.into(), access: Access::Read };
    let write = |path: &Path| Bind { path: path.into(), access: Access::Write };
    let mut binds: Vec<Bind> = program.shown.iter().map(|path| read(path)).collect();
    if tree.remote.is_some() {
        binds.push(read(&tree.mirror));
    }
    binds.extend([write(&files.home), write(&files.shown), read(&files.prompt())]);
    binds
}

/// How early a shim must begin to kill.
pub(crate) const fn margins(limits: &Limits) -> Margins {
    Margins { grace: limits.stop_grace, kill_bound: limits.kill_bound, drift: limits.drift }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_and_what_looks_like_a_credential_is_masked() {
        let variables = [
            ("ANTHROPIC_API_KEY", "sk-one-two"),
            ("db_password", "correct-horse"),
            ("EDITOR", "emacs-editor"),
            ("CURSOR_API_KEY", "cursor-cursor"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let secrets = secrets(Agent::Cursor, &variables, "token-of-attempt");
        let text = "sk-one-two correct-horse emacs-editor cursor-cursor token-of-attempt";
        let expected = "********** ************* emacs-editor ************* ****************";
        assert_eq!(secrets.text(text), expected);
    }
}

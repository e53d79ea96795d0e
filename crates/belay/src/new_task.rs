//! The task that `belay run` makes, out of flags, settings and the caller's environment.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use belay_agent::{Agent, Machine};
use belay_api::{Dirty, NewTask, Publishing};
use belay_kernel::Limit;
use belay_kernel::role::RoleName;
use belay_kernel::task::Review;

use crate::agents;
use crate::cli::{self, Run};
use crate::config::{Config, ProviderName};
use crate::fault::Fault;

/// The largest prompt that is read from standard input.
const PROMPT_LIMIT: u64 = 1 << 20;

/// Where the task is made.
pub(crate) struct Here<'a> {
    /// The settings.
    pub(crate) config: &'a Config,
    /// The top level of the repository that this directory is in.
    pub(crate) repository: Option<&'a Path>,
    /// What is installed.
    pub(crate) machine: &'a Machine,
    /// The value of a variable.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
}

/// An amount of money. JSON knows no infinite ones: they would be sent as nothing, and the task had
/// no budget.
pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd >= 0.0);
    amount.ok_or_else(|| format!("`{text}` is not an amount of dollars; write one like `2.50`"))
}

/// The task, but for what only the server knows (`after`, `parent`).
pub(crate) fn build(run: &Run, here: &Here<'_>) -> Result<NewTask, Fault> {
    let defaults = &here.config.file.defaults;
    let prompt = match run.prompt.as_deref() {
        Some("-") => read_prompt()?,
        Some(text) => text.to_owned(),
        None => String::new(),
    };
    if prompt.trim().is_empty() && run.program.is_empty() {
        return Err(Fault::usage("the prompt is empty; say what the agent is to do"));
    }
    let role_name = run.role.clone().or_else(|| defaults.role.as_ref().map(ToString::to_string));
    let role: RoleName = role_name
        .as_deref()
        .unwrap_or("default")
        .parse()
        .map_err(|error| Fault::usage(format!("--role: {error}")))?;
    let role = here.config.file.roles.get(&role).cloned().unwrap_or_default();
    let provider = provider(run).or(defaults.provider).or(role.provider);
    let named = run.agent.clone().or_else(|| defaults.agent.clone()).or(role.agent);
    let agent = choose(run, named.as_deref(), provider, here.machine)?;
    let environment = environment(run, agent, &role.environment, here)?;
    // Whoever names the program knows where it is and how it is let in.
    if provider != Some(ProviderName::Docker) && run.program.is_empty() {
        agents::check(agent, here.machine, &environment)?;
    }
    let repository = match &run.repo {
        Some(named) => Some(absolute(named)?),
        None => here.repository.map(|top| top.display().to_string()),
    };
    Ok(NewTask {
        title: (prompt.trim().is_empty()).then(|| run.program.join(" ")),
        prompt,
        agent: Some(agent.name().to_owned()),
        command: run.program.clone(),
        model: run.model.clone().or_else(|| defaults.model.clone()).or(role.model),
        repository,
        base: run.base.clone(),
        branch: run.branch.clone(),
        publish: publish(run).or(defaults.publish).unwrap_or_default(),
        dirty: match run.dirty {
            Some(cli::Dirty::Include) => Dirty::Include,
            Some(cli::Dirty::Refuse) | None => Dirty::Refuse,
        },
        review: review(run).or(defaults.review).unwrap_or_default(),
        limits: limits(run, here.config),
        budget_usd: run.budget_usd,
        max_tokens: run.max_tokens,
        allow_uncounted: run.allow_uncounted,
        max_attempts: run.max_attempts.or(defaults.max_attempts),
        priority: run.priority.unwrap_or(0),
        role: role_name,
        environment,
        provider: provider.map(|provider| provider.name().to_owned()),
        image: run.image.clone().or_else(|| defaults.image.clone()),
        keep_alive: run.keep_alive,
        ..NewTask::default()
    })
}

fn provider(run: &Run) -> Option<ProviderName> {
    run.provider.map(|provider| match provider {
        cli::Provider::Process => ProviderName::Process,
        cli::Provider::Docker => ProviderName::Docker,
    })
}

fn publish(run: &Run) -> Option<Publishing> {
    run.publish.map(|publish| match publish {
        cli::Publish::None => Publishing::None,
        cli::Publish::Branch => Publishing::Branch,
    })
}

fn review(run: &Run) -> Option<Review> {
    run.review.map(|review| match review {
        cli::Review::Manual => Review::Manual,
        cli::Review::Auto => Review::Auto,
    })
}

/// Which agent: the program after `--`, else the one that is named, else one that can work.
fn choose(
    run: &Run,
    named: Option<&str>,
    provider: Option<ProviderName>,
    machine: &Machine,
) -> Result<Agent, Fault> {
    if !run.program.is_empty() {
        // A program may be a known agent's, if that is said here and now.
        return match run.agent.as_deref() {
            None => Ok(Agent::Command),
            Some(name) => agents::by_name(name),
        };
    }
    match named.map(agents::by_name).transpose()? {
        Some(agent) if agent.program().is_none() => Err(Fault::usage(format!(
            "`{agent}` needs a program: belay run \"…\" --agent {agent} -- PROGRAM"
        ))),
        Some(agent) => Ok(agent),
        None if provider == Some(ProviderName::Docker) => {
            Err(Fault::usage("say which agent the image holds, with --agent"))
        }
        None => agents::any(machine),
    }
}

/// The variables that the agent gets: its credentials, what settings name, and what flags say.
fn environment(
    run: &Run,
    agent: Agent,
    role: &[String],
    here: &Here<'_>,
) -> Result<BTreeMap<String, String>, Fault> {
    let mut environment = BTreeMap::new();
    let usual = agent.credential_variables().iter().map(|name| (*name).to_owned());
    let settings = here.config.file.defaults.environment.iter().chain(role).cloned();
    for name in usual.chain(settings) {
        if let Some(value) = (here.variable)(&name).filter(|value| !value.is_empty()) {
            environment.insert(name, value);
        }
    }
    for named in &run.env {
        let (name, value) = match named.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match (here.variable)(named) {
                Some(value) => (named.as_str(), value),
                None => {
                    let text = format!(
                        "--env {named}: there is no such variable here; set it, or say \
                         --env {named}=VALUE"
                    );
                    return Err(Fault::usage(text));
                }
            },
        };
        if name.is_empty() {
            return Err(Fault::usage(format!(
                "--env {named}: a variable needs a name; say --env NAME or --env NAME=VALUE"
            )));
        }
        environment.insert(name.to_owned(), value);
    }
    Ok(environment)
}

fn limits(run: &Run, config: &Config) -> BTreeMap<String, String> {
    let mut limits = config.task_limits();
    let mut set = |limit: Limit, value: String| limits.insert(limit.key().to_owned(), value);
    if let Some(span) = run.timeout {
        set(Limit::Absolute, span.to_string());
    }
    if let Some(span) = run.inactivity {
        set(Limit::Inactivity, span.to_string());
        set(Limit::InactivityQuiet, span.to_string());
    }
    limits
}

/// A path as the server can use it; a URL as it is.
fn absolute(named: &str) -> Result<String, Fault> {
    let path = Path::new(named);
    if !path.exists() {
        let is_url = named.contains("://") || named.contains(':');
        return if is_url {
            Ok(named.to_owned())
        } else {
            Err(Fault::usage(format!(
                "--repo {named}: there is no such directory; name a repository by path or URL"
            )))
        };
    }
    let path = path.canonicalize().map_err(|error| Fault::file(path, &error))?;
    Ok(path.display().to_string())
}

fn read_prompt() -> Result<String, Fault> {
    let mut text = String::new();
    std::io::stdin()
        .take(PROMPT_LIMIT + 1)
        .read_to_string(&mut text)
        .map_err(|error| Fault::usage(format!("the prompt cannot be read: {error}")))?;
    if text.len() as u64 > PROMPT_LIMIT {
        return Err(Fault::usage(
            "the prompt is longer than 1 MiB; put the rest into a file of the repository",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;

//! Settings, from where they may be said, in rising order: the defaults, the person's file, the
//! repository's file, the environment, flags.
//!
//! A repository is something that others write. Its file may choose how its own tasks are done, and
//! nothing that reaches beyond them: not the server, not roles, not where agents run, and not which
//! of a person's variables an agent sees.

mod environment;
mod file;
mod list;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use belay_kernel::{Limit, Limits, Scope};
use toml::{Table, Value};

pub(crate) use file::{File, LogFormat, LogLevel, ProviderName, Webhook};
pub(crate) use list::table;

use crate::fault::Fault;

/// The name of a configuration file.
pub(crate) const NAME: &str = "belay.toml";

/// Where a setting comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Nobody said anything else.
    Default,
    /// The person's file.
    Person(PathBuf),
    /// The repository's file.
    Repository(PathBuf),
    /// This variable.
    Variable(String),
    /// This flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Person(path) | Self::Repository(path) => path.display().fmt(f),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The person's file; it need not exist.
    pub(crate) person: Option<PathBuf>,
    /// The top level of the repository that is worked on.
    pub(crate) repository: Option<PathBuf>,
    /// The environment.
    pub(crate) variables: Vec<(String, String)>,
    /// The port that a flag says.
    pub(crate) port: Option<u16>,
}

impl Sources {
    /// As this process sees them, for work on the repository at `repository`.
    pub(crate) fn here(repository: Option<PathBuf>) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let base = set("XDG_CONFIG_HOME").map(PathBuf::from);
        let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            person: base.map(|base| base.join("belay").join(NAME)),
            repository,
            variables: std::env::vars_os().filter_map(text).collect(),
            port: None,
        }
    }
}

/// The settings that count, and where each comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// The settings.
    pub(crate) file: File,
    origins: BTreeMap<String, Origin>,
}

impl Config {
    /// Reads every source, and checks the whole.
    pub(crate) fn load(sources: &Sources) -> Result<Self, Fault> {
        let mut whole = Table::new();
        let mut origins = BTreeMap::new();
        if let Some(path) = &sources.person
            && let Some(table) = read(path)?
        {
            merge(&mut whole, &table, "", &Origin::Person(path.clone()), &mut origins);
        }
        if let Some(path) = sources.repository.as_ref().map(|top| top.join(NAME))
            && let Some(table) = read(&path)?
        {
            may_be_in_a_repository(&path, &table)?;
            merge(&mut whole, &table, "", &Origin::Repository(path), &mut origins);
        }
        for (name, table) in environment::tables(&sources.variables)? {
            merge(&mut whole, &table, "", &Origin::Variable(name), &mut origins);
        }
        if let Some(port) = sources.port {
            let table = environment::nested(&["server", "port"], Value::Integer(port.into()));
            merge(&mut whole, &table, "", &Origin::Flag("--port"), &mut origins);
        }
        let file = whole
            .try_into()
            .map_err(|error| Fault::usage(format!("the settings do not fit together: {error}")))?;
        let config = Self { file, origins };
        config.check()?;
        Ok(config)
    }

    /// The limits on time, whole.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for (limit, length) in &self.file.limits {
            limits.set(*limit, length.0);
        }
        limits
    }

    /// The limits that a task of this caller has besides what the server knows: those that the
    /// repository's file or the caller's environment says.
    pub(crate) fn task_limits(&self) -> BTreeMap<String, String> {
        let ours = |limit: &Limit| match self.origin(&format!("limits.{}", limit.key())) {
            Origin::Repository(_) | Origin::Variable(_) => limit.scope() == Scope::Task,
            Origin::Default | Origin::Person(_) | Origin::Flag(_) => false,
        };
        let limits = self.file.limits.iter().filter(|(limit, _)| ours(limit));
        limits.map(|(limit, length)| (limit.key().to_owned(), length.to_string())).collect()
    }

    /// Where a setting comes from.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// What is wrong with the whole: most of what can be wrong is a relation.
    fn check(&self) -> Result<(), Fault> {
        let mut wrong: Vec<String> = Vec::new();
        wrong.extend(self.limits().check().iter().map(|error| format!("limits: {error}")));
        wrong.extend(self.file.caps.check().iter().map(|error| format!("caps: {error}")));
        for (name, role) in &self.file.roles {
            let mut limits = self.limits();
            for (limit, length) in &role.limits {
                limits.set(*limit, length.0);
                if limit.scope() == Scope::Installation {
                    let key = limit.key();
                    let text = format!("roles.{name}.limits: `{key}` can be set in [limits] only");
                    wrong.push(text);
                }
            }
            let errors = limits.check();
            wrong.extend(errors.iter().map(|error| format!("roles.{name}.limits: {error}")));
        }
        for text in &self.file.watch.webhook_allow {
            let network = text.parse::<belay_kernel::webhook::Network>();
            wrong.extend(network.err().map(|error| format!("watch.webhook_allow: {error}")));
        }
        for (name, hook) in &self.file.webhooks {
            let both = hook.secret.is_some() && hook.secret_env.is_some();
            let text = format!("webhooks.{name}: say `secret` or `secret_env`, not both");
            wrong.extend(both.then_some(text));
        }
        if wrong.is_empty() { Ok(()) } else { Err(Fault::usage(wrong.join("\n"))) }
    }
}

/// Reads a file, if it exists. What is wrong is told with file, line and key.
fn read(path: &Path) -> Result<Option<Table>, Fault> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Fault::file(path, &error)),
    };
    let wrong = |error: &toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text[..at].matches('\n').count();
        let key = text.lines().nth(line).and_then(|line| line.split_once('='));
        let key = key.map_or(String::new(), |(key, _)| format!(" `{}`:", key.trim()));
        let message = error.message();
        Fault::usage(format!("{}:{}:{key} {message}", path.display(), line + 1))
    };
    toml::from_str::<File>(&text).map_err(|error| wrong(&error))?;
    toml::from_str::<Table>(&text).map(Some).map_err(|error| wrong(&error))
}

/// Refuses what only a person may say.
fn may_be_in_a_repository(path: &Path, table: &Table) -> Result<(), Fault> {
    let mut beyond: Vec<String> = Vec::new();
    for (section, value) in table {
        match section.as_str() {
            "defaults" => {
                let keys = ["environment", "provider", "role"];
                let said = keys.iter().filter(|key| value.get(**key).is_some());
                beyond.extend(said.map(|key| format!("defaults.{key}")));
            }
            "limits" => {
                let keys = value.as_table().into_iter().flat_map(Table::keys);
                let wide = |key: &&String| {
                    Limit::from_key(key).is_none_or(|limit| limit.scope() != Scope::Task)
                };
                beyond.extend(keys.filter(wide).map(|key| format!("limits.{key}")));
            }
            other => beyond.push(other.to_owned()),
        }
    }
    if beyond.is_empty() {
        return Ok(());
    }
    Err(Fault::usage(format!(
        "{}: `{}` reaches beyond this repository; say it in your own {NAME} instead",
        path.display(),
        beyond.join("`, `"),
    )))
}

/// Puts one source over what is there.
fn merge(
    whole: &mut Table,
    over: &Table,
    prefix: &str,
    origin: &Origin,
    origins: &mut BTreeMap<String, Origin>,
) {
    for (key, value) in over {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (whole.get_mut(key), value) {
            (Some(Value::Table(into)), Value::Table(table)) => {
                merge(into, table, &path, origin, origins);
            }
            (_, Value::Table(table)) => {
                let mut into = Table::new();
                merge(&mut into, table, &path, origin, origins);
                whole.insert(key.clone(), Value::Table(into));
            }
            (_, value) => {
                whole.insert(key.clone(), value.clone());
                origins.insert(path, origin.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;

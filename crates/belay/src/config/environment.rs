//! Settings from the environment: `BELAY_<SECTION>_<KEY>`, and two names that others know.

use belay_kernel::{Caps, Limit, Span, Switches};
use serde::Serialize;
use toml::{Table, Value};

use super::file::{Defaults, File, Server, Watch};
use crate::fault::Fault;

/// Every setting that a variable says, as a table of its own.
pub(super) fn tables(variables: &[(String, String)]) -> Result<Vec<(String, Table)>, Fault> {
    let mut tables = Vec::new();
    let value = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    };
    for (name, limits) in FOREIGN {
        let Some(text) = value(name) else { continue };
        let span = text.trim().parse().map(Span::from_millis).map_err(|_| {
            Fault::usage(format!("${name} is `{text}`; it takes a number of milliseconds"))
        })?;
        for limit in limits {
            let path = ["limits", limit.key()];
            tables.push(((*name).to_owned(), nested(&path, Value::String(span.to_string()))));
        }
    }
    let keys: Vec<_> =
        keys().into_iter().map(|(section, key)| (variable(section, &key), section, key)).collect();
    let of_section = |name: &str| SECTIONS.iter().any(|s| name.starts_with(&variable(s, "")));
    let known = |name: &str| keys.iter().any(|(known, ..)| known == name);
    if let Some((name, _)) = variables.iter().find(|(name, _)| of_section(name) && !known(name)) {
        let text = format!("${name} is no setting; `belay config` lists all that there are");
        return Err(Fault::usage(text));
    }
    for (name, section, key) in keys {
        let Some(text) = value(&name) else { continue };
        let table = nested(&[section, &key], typed(section, &key, text));
        if let Err(error) = table.clone().try_into::<File>() {
            return Err(Fault::usage(format!("${name} is `{text}`: {}", error.message())));
        }
        tables.push((name, table));
    }
    Ok(tables)
}

/// The sections that variables can set.
const SECTIONS: [&str; 6] = ["limits", "server", "caps", "switches", "defaults", "watch"];

/// The variable of a setting.
fn variable(section: &str, key: &str) -> String {
    format!("BELAY_{section}_{key}").to_ascii_uppercase()
}

/// Names that other tools know too; both count milliseconds. Whoever says how long an agent may be
/// silent means that agent, whether it prints while it thinks or not.
const FOREIGN: [(&str, &[Limit]); 2] = [
    ("AGENT_INACTIVITY_TIMEOUT_MS", &[Limit::Inactivity, Limit::InactivityQuiet]),
    ("AGENT_MAX_WAIT_TIME_MS", &[Limit::Absolute]),
];

/// Every setting outside of roles: section and key.
fn keys() -> Vec<(&'static str, String)> {
    let mut keys: Vec<_> = Limit::ALL.iter().map(|limit| ("limits", limit.key().into())).collect();
    keys.extend(fields(&Server::default()).map(|key| ("server", key)));
    keys.extend(fields(&Caps::default()).map(|key| ("caps", key)));
    keys.extend(fields(&Switches::default()).map(|key| ("switches", key)));
    keys.extend(fields(&Defaults::default()).map(|key| ("defaults", key)));
    keys.extend(fields(&Watch::default()).map(|key| ("watch", key)));
    keys
}

/// The names of a type's fields.
fn fields<T: Serialize>(value: &T) -> impl Iterator<Item = String> + use<T> {
    let value = serde_json::to_value(value).unwrap_or_default();
    let names: Vec<String> = match value {
        serde_json::Value::Object(map) => map.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    };
    names.into_iter()
}

/// A text as the type that its key takes. What does not fit stays a text, and is refused as one.
fn typed(section: &str, key: &str, text: &str) -> Value {
    let whole = section == "caps" || matches!(key, "port" | "max_attempts");
    let list = matches!(
        (section, key),
        ("defaults", "environment") | ("server", "names") | ("watch", "webhook_allow")
    );
    match section {
        _ if whole => text.parse().map(Value::Integer).unwrap_or(Value::String(text.into())),
        "switches" => text.parse().map(Value::Boolean).unwrap_or(Value::String(text.into())),
        _ if list => {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            Value::Array(names.map(|name| Value::String(name.into())).collect())
        }
        _ => Value::String(text.into()),
    }
}

/// A value at a path, as a table.
pub(super) fn nested(path: &[&str], value: Value) -> Table {
    let mut value = value;
    for key in path.iter().skip(1).rev() {
        value = Value::Table(Table::from_iter([((*key).to_owned(), value)]));
    }
    Table::from_iter(path.first().map(|key| ((*key).to_owned(), value)))
}

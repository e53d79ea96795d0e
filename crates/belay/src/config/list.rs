//! Every setting and where it comes from: what `belay config` prints.

use belay_kernel::Limit;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Config;

/// One setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Entry {
    /// Its key, such as `limits.idle`.
    pub(crate) key: String,
    /// Its value.
    pub(crate) value: Value,
    /// Where it comes from.
    pub(crate) origin: String,
}

impl Config {
    /// Every setting.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let limits = self.limits();
        let mut sections: Vec<(String, Value)> = Vec::new();
        let tell = |value: Result<Value, _>| -> Value { value.unwrap_or_default() };
        sections.push(("server".into(), tell(serde_json::to_value(&self.file.server))));
        let lengths = Limit::ALL
            .iter()
            .map(|limit| (limit.key().to_owned(), Value::String(limits.get(*limit).to_string())));
        sections.push(("limits".into(), Value::Object(lengths.collect::<Map<_, _>>())));
        sections.push(("caps".into(), tell(serde_json::to_value(self.file.caps))));
        sections.push(("switches".into(), tell(serde_json::to_value(self.file.switches))));
        sections.push(("defaults".into(), tell(serde_json::to_value(&self.file.defaults))));
        for (name, role) in &self.file.roles {
            sections.push((format!("roles.{name}"), tell(serde_json::to_value(role))));
        }
        sections.push(("watch".into(), tell(serde_json::to_value(&self.file.watch))));
        for (name, hook) in &self.file.webhooks {
            sections.push((format!("webhooks.{name}"), tell(serde_json::to_value(hook))));
        }
        let mut entries = Vec::new();
        for (section, value) in sections {
            self.flatten(&section, value, &mut entries);
        }
        entries
    }

    fn flatten(&self, key: &str, value: Value, entries: &mut Vec<Entry>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    self.flatten(&format!("{key}.{name}"), value, entries);
                }
            }
            value => {
                let origin = self.origin(key).to_string();
                entries.push(Entry { key: key.to_owned(), value, origin });
            }
        }
    }
}

/// The settings as a table.
pub(crate) fn table(entries: &[Entry]) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Array(list) if list.is_empty() => "-".to_owned(),
        Value::Array(list) => {
            list.iter().map(|item| item.as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    let width = entries.iter().map(|entry| entry.key.len()).max().unwrap_or(0);
    let lines = entries.iter().map(|entry| {
        format!("{:<width$}  {:<12}  {}", entry.key, shown(&entry.value), entry.origin)
    });
    lines.collect::<Vec<_>>().join("\n")
}

//! The numbers that decisions are made with, and what a role means.

use std::collections::BTreeMap;

use belay_kernel::task::Policy;
use belay_kernel::{Caps, Limit, Limits, Scope, Span, Switches};
use belay_store::rows::{RoleRow, SpecRow};

/// What a role gives to its tasks, where they do not say otherwise.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoleSettings {
    /// Its agent.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// Its provider.
    pub provider: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// Limits that are not the installation's.
    pub limits: BTreeMap<String, Span>,
    /// The names of the variables that its agents get.
    pub environment: Vec<String>,
}

/// The configuration of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Limits on time.
    pub limits: Limits,
    /// Counts that bound effort.
    pub caps: Caps,
    /// What is switched off.
    pub switches: Switches,
    /// What roles mean, by name.
    pub roles: BTreeMap<String, RoleSettings>,
    /// This process's own environment: what roles name is passed on from here.
    pub environment: BTreeMap<String, String>,
    /// The agent of tasks and roles that name none.
    pub agent: String,
    /// The version that is shown.
    pub version: String,
    /// The database behind it, in a word.
    pub store: String,
    /// Webhooks that the settings say.
    pub webhooks: Vec<crate::HookSettings>,
    /// Who sends traces, if anybody does.
    pub tracer: Option<crate::trace::Tracer>,
}

/// Why a task's limits cannot be used: one sentence.
pub(crate) type BadLimit = String;

impl Settings {
    /// What a role means; nothing special, if it was never described.
    pub(crate) fn role(&self, name: &str) -> RoleSettings {
        self.roles.get(name).cloned().unwrap_or_default()
    }

    /// The policy for a task: the installation's numbers, then its role's, then its own.
    pub(crate) fn policy(&self, role: &str, stored: Option<&RoleRow>, spec: &SpecRow) -> Policy {
        let mut limits = self.limits;
        for (key, value) in &self.role(role).limits {
            set(&mut limits, key, *value);
        }
        let role_lines = stored.map(|row| row.limits.0.as_slice()).unwrap_or_default();
        for line in role_lines.iter().chain(&spec.limits.0) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let Ok(value) = value.parse::<Span>() else { continue };
            set(&mut limits, key, value);
        }
        Policy { limits, caps: self.caps }
    }

    /// Checks what a task asks for, and writes it as it is stored.
    pub(crate) fn task_limits(
        &self,
        asked: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, BadLimit> {
        let mut limits = self.limits;
        let mut lines = Vec::new();
        for (key, value) in asked {
            let limit = Limit::from_key(key).ok_or_else(|| unknown(key))?;
            if limit.scope() != Scope::Task {
                return Err(format!("`{key}` cannot be set for one task"));
            }
            let span: Span = value.parse().map_err(|error| format!("`{key}`: {error}"))?;
            limits.set(limit, span);
            lines.push(format!("{key}={span}"));
        }
        match limits.check().first() {
            Some(wrong) => Err(wrong.to_string()),
            None => Ok(lines),
        }
    }
}

fn set(limits: &mut Limits, key: &str, value: Span) {
    if let Some(limit) = Limit::from_key(key) {
        limits.set(limit, value);
    }
}

fn unknown(key: &str) -> String {
    let known: Vec<_> = Limit::ALL
        .iter()
        .filter(|limit| limit.scope() == Scope::Task)
        .map(|limit| limit.key())
        .collect();
    format!("`{key}` is not a limit of a task; known are {}", known.join(", "))
}

//! What a configuration file may hold, as types that take nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use belay_kernel::role::RoleName;
use belay_kernel::task::Review;
use belay_kernel::{Caps, Limit, Span, Switches};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A whole file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    /// The server.
    pub(crate) server: Server,
    /// Limits on time that are not the defaults.
    pub(crate) limits: BTreeMap<Limit, Length>,
    /// Counts that bound effort.
    pub(crate) caps: Caps,
    /// What can be switched off.
    pub(crate) switches: Switches,
    /// What `belay run` takes where no flag says otherwise.
    pub(crate) defaults: Defaults,
    /// Roles.
    pub(crate) roles: BTreeMap<RoleName, Role>,
    /// How Belay is watched: its log, its traces, and where webhooks may point.
    pub(crate) watch: Watch,
    /// Webhooks.
    pub(crate) webhooks: BTreeMap<String, Webhook>,
}

/// How Belay is watched.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Watch {
    /// How the log is written.
    pub(crate) log: LogFormat,
    /// What is written to it: `error`, `warn`, `info`, `debug` or `trace`.
    pub(crate) log_level: LogLevel,
    /// Networks that webhooks may point to although they are not public, such as `10.1.0.0/16`.
    pub(crate) webhook_allow: Vec<String>,
    /// Where traces are sent, as OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`.
    pub(crate) traces: Option<String>,
}

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// A line for people
    #[default]
    Text,
    /// A JSON object per line
    Json,
}

/// What is written to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogLevel {
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// What is worth knowing.
    #[default]
    Info,
    /// Every request and every step.
    Debug,
    /// Everything.
    Trace,
}

/// A webhook. Its address and its secret are never printed.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Webhook {
    /// Where it is.
    #[serde(skip_serializing)]
    pub(crate) url: String,
    /// How its bodies look.
    pub(crate) shape: belay_api::HookShape,
    /// The kinds of events that it is told.
    pub(crate) kinds: Vec<String>,
    /// What its deliveries are signed with.
    #[serde(skip_serializing)]
    pub(crate) secret: Option<String>,
    /// The variable that holds what its deliveries are signed with.
    pub(crate) secret_env: Option<String>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// The server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    /// The port; 0 takes any that is free.
    pub(crate) port: u16,
    /// The address to listen at; any but loopback needs a certificate.
    pub(crate) listen: IpAddr,
    /// Further names by which it is reached.
    pub(crate) names: Vec<String>,
    /// A certificate with its chain, as PEM.
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM.
    pub(crate) tls_key: Option<PathBuf>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            port: 7425,
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            names: Vec::new(),
            tls_cert: None,
            tls_key: None,
        }
    }
}

/// What `belay run` takes where no flag says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Defaults {
    /// The agent.
    pub(crate) agent: Option<String>,
    /// The model.
    pub(crate) model: Option<String>,
    /// Who decides about a success.
    pub(crate) review: Option<Review>,
    /// What becomes of the work.
    pub(crate) publish: Option<belay_api::Publishing>,
    /// Where agents run.
    pub(crate) provider: Option<ProviderName>,
    /// The container image.
    pub(crate) image: Option<String>,
    /// How many attempts are made without a person.
    pub(crate) max_attempts: Option<u32>,
    /// Names of variables that agents get.
    pub(crate) environment: Vec<String>,
    /// The role.
    pub(crate) role: Option<RoleName>,
}

/// Where agents run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProviderName {
    /// As processes of this machine.
    Process,
    /// In containers.
    Docker,
}

impl ProviderName {
    /// The name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Docker => "docker",
        }
    }
}

/// A role.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Role {
    /// How many workers it may have; zero means none.
    pub(crate) workers: Option<u32>,
    /// The agent.
    pub(crate) agent: Option<String>,
    /// The model.
    pub(crate) model: Option<String>,
    /// Where its agents run.
    pub(crate) provider: Option<ProviderName>,
    /// Limits that are not the installation's.
    pub(crate) limits: BTreeMap<Limit, Length>,
    /// Names of variables that its agents get.
    pub(crate) environment: Vec<String>,
}

/// A length of time, written as `90s` or `1h30m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Length(pub(crate) Span);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

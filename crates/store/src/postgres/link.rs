//! Connections: a pool, transactions with their limits, and patience when the database is away.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{PostgresOptions, tls};
use crate::open::OpenError;
use crate::refusal::Failure;

/// What one connection attempt may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The way to the database.
pub(super) struct Link {
    pool: Pool,
    config: Config,
    connector: MakeRustlsConnect,
    begin: String,
    pub(super) options: PostgresOptions,
}

/// What went wrong, by what can be done about it.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection is gone; nothing of this call was done, or it does not matter.
    Lost(String),
    /// The database chose this transaction to give way; it is begun again.
    GaveWay,
    /// Something else.
    Failed(Failure),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(state) = error.code() else {
            return Self::Lost(describe(&error));
        };
        let way = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        let away = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
        ];
        if way.contains(state) {
            Self::GaveWay
        } else if away.contains(state) || state.code().starts_with("08") {
            Self::Lost(describe(&error))
        } else if *state == SqlState::DISK_FULL {
            Self::Failed(Failure::Full)
        } else {
            Self::Failed(Failure::Postgres(std::sync::Arc::new(error)))
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Link {
    pub(super) fn new(options: PostgresOptions) -> Result<Self, OpenError> {
        let mut config: Config = options
            .url
            .parse()
            .map_err(|error: tokio_postgres::Error| OpenError::Address(describe(&error)))?;
        config.connect_timeout(CONNECT).keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("belay");
        }
        let connector = tls::connector(options.root_certificates.as_deref())?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), connector.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.patience))
            .create_timeout(Some(CONNECT))
            .recycle_timeout(Some(CONNECT))
            .build()
            .map_err(|error| OpenError::Address(error.to_string()))?;
        let ms = options.statement_timeout.as_millis();
        // Settings are the transaction's own: a pooler may give the next one another connection.
        // Every statement goes by a key or an index; a table that was never analysed must not tempt
        // the planner to read it whole, nor to compile a plan that runs once.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {ms}; \
             SET LOCAL idle_in_transaction_session_timeout = {ms}; \
             SET LOCAL synchronous_commit = on; SET LOCAL jit = off; \
             SET LOCAL enable_seqscan = off"
        );
        Ok(Self { pool, config, connector, begin, options })
    }

    /// A connection from the pool.
    pub(super) async fn client(&self) -> Result<Object, Trouble> {
        self.pool.get().await.map_err(|error| Trouble::Lost(error.to_string()))
    }

    /// A connection of its own, beside the pool.
    pub(super) async fn own_connection(
        &self,
    ) -> Result<
        (Client, tokio_postgres::Connection<tokio_postgres::Socket, TlsStream>),
        tokio_postgres::Error,
    > {
        self.config.connect(self.connector.clone()).await
    }

    /// What begins a transaction.
    pub(super) fn begin(&self) -> &str {
        &self.begin
    }

    /// Patience for one call.
    pub(super) fn patience(&self) -> Patience {
        let pause = Duration::from_millis(20);
        Patience { until: Instant::now() + self.options.patience, pause }
    }

    /// Ends a transaction that may be begun again: looking, and taking what is handed out at least
    /// once.
    pub(super) async fn close<T>(client: &Client, done: Result<T, Trouble>) -> Result<T, Trouble> {
        match done {
            Ok(done) => {
                client.batch_execute("COMMIT").await?;
                Ok(done)
            }
            Err(trouble) => {
                let _ = client.batch_execute("ROLLBACK").await;
                Err(trouble)
            }
        }
    }

    /// Ends a transaction that must not be done twice: a reply that is lost now is unknown.
    pub(super) async fn close_once<T>(
        client: &Client,
        done: Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let ready = done.is_ok();
        match Self::close(client, done).await {
            Err(Trouble::Lost(_)) if ready => Err(Trouble::Failed(Failure::Unknown)),
            other => other,
        }
    }
}

/// How long one call goes on trying, with growing pauses.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    /// Waits until it is worth trying again, or says that it is not.
    pub(super) async fn again(&mut self, trouble: Trouble) -> Result<(), Failure> {
        let why = match trouble {
            Trouble::Failed(failure) => return Err(failure),
            Trouble::GaveWay => "it keeps giving way to others".to_owned(),
            Trouble::Lost(why) => why,
        };
        if Instant::now() + self.pause > self.until {
            return Err(Failure::Unreachable(why));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        Ok(())
    }
}

/// Tries again until it works, fails for good, or patience is over. A macro, because a closure that
/// lends to its future cannot be sent between threads yet.
macro_rules! patiently {
    ($link:expr, $work:expr) => {{
        let mut patience = $link.patience();
        loop {
            let outcome: Result<_, $crate::postgres::link::Trouble> = async { $work }.await;
            match outcome {
                Ok(done) => break Ok(done),
                Err(trouble) => {
                    if let Err(failure) = patience.again(trouble).await {
                        break Err(failure);
                    }
                }
            }
        }
    }};
}
pub(super) use patiently;

/// Runs an expression over `$client` in a transaction of its own, patiently.
macro_rules! transact {
    ($link:expr, $close:ident, |$client:ident| $work:expr) => {
        $crate::postgres::link::patiently!($link, {
            let object = $link.client().await?;
            let $client: &tokio_postgres::Client = &object;
            let (begun, done) = tokio::join!($client.batch_execute($link.begin()), $work);
            begun?;
            $crate::postgres::link::Link::$close($client, done).await
        })
    };
}
pub(super) use transact;

/// The stream under TLS.
pub(super) type TlsStream =
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream;

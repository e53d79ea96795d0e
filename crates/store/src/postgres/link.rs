//! Connections: a pool, transactions with their limits, and patience when the database is away.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::args::{Arg, typed, values};
use super::{PostgresOptions, Sessions, route, tls};
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
    begin_to_write: String,
    /// Whether sessions are our own, so that something can be kept in them.
    own: bool,
    pub(super) options: PostgresOptions,
}

/// A connection, and whether statements can be kept in its session.
pub(super) struct Session {
    object: Object,
    own: bool,
}

/// A statement that was parsed before, or one that is parsed whenever it is run.
pub(super) enum Ready {
    Named(tokio_postgres::Statement),
    Unnamed,
}

impl Session {
    /// Parses a statement where it can be kept. Statements that are sent one after the other
    /// without waiting are all made ready before the first one, or their order would be lost.
    pub(super) async fn ready(&self, sql: &str, args: &[Arg]) -> Result<Ready, Error> {
        if !self.own {
            return Ok(Ready::Unnamed);
        }
        let types: Vec<_> = args.iter().map(Arg::kind).collect();
        self.object.prepare_typed_cached(sql, &types).await.map(Ready::Named)
    }

    /// Runs a statement that gives rows.
    pub(super) async fn query(&self, sql: &str, args: &[Arg]) -> Result<Vec<Row>, Error> {
        let ready = self.ready(sql, args).await?;
        self.query_ready(&ready, sql, args).await
    }

    /// Runs a statement; how many rows it touched.
    pub(super) async fn execute(&self, sql: &str, args: &[Arg]) -> Result<u64, Error> {
        let ready = self.ready(sql, args).await?;
        self.execute_ready(&ready, sql, args).await
    }

    pub(super) async fn query_ready(
        &self,
        ready: &Ready,
        sql: &str,
        args: &[Arg],
    ) -> Result<Vec<Row>, Error> {
        match ready {
            Ready::Named(statement) => self.object.query(statement, &values(args)).await,
            Ready::Unnamed => self.object.query_typed(sql, &typed(args)).await,
        }
    }

    pub(super) async fn execute_ready(
        &self,
        ready: &Ready,
        sql: &str,
        args: &[Arg],
    ) -> Result<u64, Error> {
        match ready {
            Ready::Named(statement) => self.object.execute(statement, &values(args)).await,
            Ready::Unnamed => self.object.execute_typed(sql, &typed(args)).await,
        }
    }

    /// Runs a text without parameters.
    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Error> {
        self.object.batch_execute(sql).await
    }
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

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
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

fn describe(error: &Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Link {
    pub(super) fn new(options: PostgresOptions) -> Result<Self, OpenError> {
        let mut config: Config =
            options.url.parse().map_err(|error: Error| OpenError::Address(describe(&error)))?;
        config.connect_timeout(CONNECT).keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("belay");
        }
        let connector = tls::connector(options.root_certificates.as_deref())?;
        let pool = pool(&config, &connector, &options)?;
        // Settings are the transaction's own: a pooler may give the next one another connection.
        let set: Vec<_> = settings(&options)
            .iter()
            .filter(|(name, _)| *name != "plan_cache_mode")
            .map(|(name, value)| format!("SET LOCAL {name} = {value}"))
            .collect();
        let begin = format!("{BEGIN}; {}", set.join("; "));
        let begin_to_write = begin.clone();
        Ok(Self { pool, config, connector, begin, begin_to_write, own: false, options })
    }

    /// Finds out whether sessions are our own, and makes use of it if they are.
    pub(super) async fn find_route(&mut self) -> Result<(), OpenError> {
        self.own = match self.options.sessions {
            Sessions::Own => true,
            Sessions::Shared => false,
            Sessions::FindOut => route::is_direct(&self.config, &self.connector).await,
        };
        if !self.own {
            return Ok(());
        }
        let mut config = self.config.clone();
        let mut words = config.get_options().unwrap_or_default().to_owned();
        for (name, value) in settings(&self.options) {
            words += &format!(" -c {name}={value}");
        }
        config.options(&words);
        self.pool = pool(&config, &self.connector, &self.options)?;
        self.begin = BEGIN.to_owned();
        self.begin_to_write = format!("{BEGIN}; {KEPT_PLANS}");
        Ok(())
    }

    /// Whether sessions are our own.
    pub(super) const fn is_own(&self) -> bool {
        self.own
    }

    /// A connection from the pool.
    pub(super) async fn client(&self) -> Result<Session, Trouble> {
        let object = self.pool.get().await;
        let object = object.map_err(|error| Trouble::Lost(error.to_string()))?;
        Ok(Session { object, own: self.own })
    }

    /// A connection of its own, beside the pool.
    pub(super) async fn own_connection(
        &self,
    ) -> Result<(Client, tokio_postgres::Connection<tokio_postgres::Socket, TlsStream>), Error>
    {
        self.config.connect(self.connector.clone()).await
    }

    /// What begins a transaction.
    pub(super) fn begin(&self) -> &str {
        &self.begin
    }

    /// What begins a transaction of statements that are each bounded by their arrays or by the
    /// order of an index.
    pub(super) fn begin_to_write(&self) -> &str {
        &self.begin_to_write
    }

    /// Patience for one call.
    pub(super) fn patience(&self) -> Patience {
        let pause = Duration::from_millis(20);
        Patience { until: Instant::now() + self.options.patience, pause }
    }

    /// Ends a transaction that may be begun again: looking, and taking what is handed out at least
    /// once.
    pub(super) async fn close<T>(client: &Session, done: Result<T, Trouble>) -> Result<T, Trouble> {
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
        client: &Session,
        done: Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let ready = done.is_ok();
        match Self::close(client, done).await {
            Err(Trouble::Lost(_)) if ready => Err(Trouble::Failed(Failure::Unknown)),
            other => other,
        }
    }
}

/// What begins a transaction, besides its settings.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Planning a statement costs as much as running it on twenty rows. A plan can be kept if it cannot
/// be a bad one, whatever became of the tables since it was made: if it reaches every table through
/// the array or the index that the statement names, takes what it orders in the index's order, and
/// does not compare every row of one array with every row of another.
const KEPT_PLANS: &str = "SET LOCAL plan_cache_mode = force_generic_plan; \
    SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; \
    SET LOCAL enable_nestloop = off";

/// What every transaction runs under. Every statement goes by a key or an index: a table that was
/// never analysed must not tempt the planner to read it whole, nor to compile what runs once. Plans
/// are made for the arrays at hand and for tables as large as they are now; one that was kept
/// from when a table was small reads all of it when it is large.
fn settings(options: &PostgresOptions) -> [(&'static str, String); 6] {
    let ms = options.statement_timeout.as_millis().to_string();
    [
        ("statement_timeout", ms.clone()),
        ("idle_in_transaction_session_timeout", ms),
        ("synchronous_commit", "on".to_owned()),
        ("jit", "off".to_owned()),
        ("enable_seqscan", "off".to_owned()),
        ("plan_cache_mode", "force_custom_plan".to_owned()),
    ]
}

fn pool(
    config: &Config,
    connector: &MakeRustlsConnect,
    options: &PostgresOptions,
) -> Result<Pool, OpenError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(config.clone(), connector.clone(), recycling);
    Pool::builder(manager)
        .max_size(options.connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.patience))
        .create_timeout(Some(CONNECT))
        .recycle_timeout(Some(CONNECT))
        .build()
        .map_err(|error| OpenError::Address(error.to_string()))
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
            let session = $link.client().await?;
            let $client: &$crate::postgres::link::Session = &session;
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

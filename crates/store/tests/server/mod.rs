//! A PostgreSQL of one's own, from the installed binaries, with throw-away databases.

pub(crate) mod pooler;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A server that ends with this value, however the test ends, and with this process, however that
/// ends. With `BELAY_TEST_DATABASE_URL` it is somebody else's, and only databases are made in it.
pub(crate) struct Server {
    own: Option<Own>,
    url: String,
}

struct Own {
    child: Child,
    directory: tempfile::TempDir,
    data: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
    environment: Vec<(&'static str, String)>,
}

/// The newest installed version's binaries.
fn binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed (Debian: postgresql), or BELAY_TEST_DATABASE_URL is set");
    let newest = versions
        .flatten()
        .max_by_key(|entry| entry.file_name().to_string_lossy().parse::<u32>().unwrap_or_default());
    newest.expect("there is a version").path().join("bin")
}

/// PostgreSQL does not run as root: as root it runs as the package's own user.
fn user() -> Option<(u32, u32)> {
    let me = std::fs::metadata("/proc/self").expect("/proc is mounted");
    if std::os::unix::fs::MetadataExt::uid(&me) != 0 {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("there are users");
    let line = passwd.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<_> = line.expect("there is a user `postgres`").split(':').collect();
    Some((fields[2].parse().unwrap(), fields[3].parse().unwrap()))
}

/// Where a server lives, if not where everyone does.
#[derive(Default)]
pub(crate) struct Place {
    /// The directory that its data is in.
    pub(crate) data: Option<PathBuf>,
    /// The directory that its log of changes is in.
    pub(crate) log: Option<PathBuf>,
    /// What its processes are started with.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Server {
    pub(crate) fn start() -> Self {
        if let Ok(url) = std::env::var("BELAY_TEST_DATABASE_URL") {
            return Self { own: None, url };
        }
        Self::start_in(Place::default())
    }

    /// Starts a server of our own in a place of its own.
    pub(crate) fn start_in(place: Place) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let user = user();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let made = |under: &Path, name: &str| {
            let path = under.join(name);
            std::fs::create_dir(&path).unwrap();
            if let Some((uid, gid)) = user {
                std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
            }
            path
        };
        let data = made(place.data.as_deref().unwrap_or(directory.path()), "data");
        let mut initdb = as_user(user, &binaries().join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", "belay", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        if let Some(log) = &place.log {
            initdb.arg("--waldir").arg(made(log, "wal"));
        }
        let made = initdb.stdout(Stdio::null()).status().unwrap();
        assert!(made.success(), "initdb made a cluster");
        let port = free_port();
        certificate(directory.path(), &data, user);
        let environment = place.environment;
        let child = spawn(directory.path(), &data, port, user, &environment);
        let url = format!("postgres://belay@127.0.0.1:{port}");
        let own = Own { child, directory, data, port, user, environment };
        let server = Self { own: Some(own), url };
        server.await_ready();
        server
    }

    fn await_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.psql("postgres", "SELECT 1").is_err() {
            assert!(Instant::now() < deadline, "the server accepts connections");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs SQL with `psql`, beside everything that is tested.
    pub(crate) fn psql(&self, database: &str, sql: &str) -> Result<String, String> {
        self.database_of(database).psql(sql)
    }

    /// One of its databases, also while it is started again.
    pub(crate) fn database_of(&self, database: &str) -> Database {
        Database { url: self.url_of(database) }
    }

    fn url_of(&self, database: &str) -> String {
        let (base, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let base = match base.splitn(4, '/').nth(3) {
            Some(_) => base.rsplit_once('/').unwrap().0,
            None => base,
        };
        let query = if query.is_empty() { "sslmode=disable" } else { query };
        format!("{base}/{database}?{query}")
    }

    /// A new database; gives its name and URL.
    pub(crate) fn database(&self) -> (String, String) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("belay_test_{}_{number}", std::process::id());
        self.psql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
        let url = self.url_of(&name);
        (name, url)
    }

    pub(crate) fn drop_database(&self, name: &str) {
        let _ = self.psql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    /// The authority that vouches for the server, if it is our own.
    pub(crate) fn certificate(&self) -> Option<PathBuf> {
        self.own.as_ref().map(|own| own.directory.path().join("ca.crt"))
    }

    /// Ends the server at once, as a crash would, and starts it again.
    pub(crate) fn crash_and_restart(&mut self) -> bool {
        let Some(own) = &mut self.own else { return false };
        signal(own.child.id(), "QUIT");
        own.child.wait().unwrap();
        let directory = own.directory.path();
        own.child = spawn(directory, &own.data, own.port, own.user, &own.environment);
        self.await_ready();
        true
    }
}

/// A database, as `psql` sees it.
pub(crate) struct Database {
    url: String,
}

impl Database {
    /// Runs SQL with `psql`, beside everything that is tested.
    pub(crate) fn psql(&self, sql: &str) -> Result<String, String> {
        let output = Command::new("psql")
            .args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", &self.url, "-c", sql])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

impl Server {
    /// The time that processors worked for it so far: for itself and its live processes.
    #[allow(dead_code, reason = "measurements need it, tests do not")]
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let Some(own) = &self.own else { return 0.0 };
        let parent = own.child.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.chain([parent]).map(cpu_seconds).sum()
    }
}

/// The time that processors worked for a process.
#[allow(dead_code, reason = "measurements need it, tests do not")]
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            signal(own.child.id(), "INT");
            let _ = own.child.wait();
        }
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
}

fn as_user(user: Option<(u32, u32)>, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if let Some((uid, gid)) = user {
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--clear-groups");
    }
    command.args(["--pdeathsig", "INT", "--"]).arg(program);
    command.current_dir("/");
    command
}

fn spawn(
    directory: &Path,
    data: &Path,
    port: u16,
    user: Option<(u32, u32)>,
    environment: &[(&'static str, String)],
) -> Child {
    // Set only for the server: what stands before it runs as another user.
    let mut postgres = as_user(user, Path::new("env"));
    postgres.args(environment.iter().map(|(name, value)| format!("{name}={value}")));
    postgres.arg(binaries().join("postgres")).arg("-D").arg(data).arg("-k").arg(directory);
    postgres.arg("-p").arg(port.to_string());
    let settings = [
        "listen_addresses=127.0.0.1",
        "max_connections=80",
        "ssl=on",
        "log_min_messages=fatal",
        "shared_buffers=256MB",
        "max_wal_size=2GB",
    ];
    for setting in settings {
        postgres.arg("-c").arg(setting);
    }
    let log = directory.join("log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    postgres.stdout(Stdio::null()).stderr(log).stdin(Stdio::null());
    postgres.spawn().unwrap()
}

/// A certificate for 127.0.0.1 in the cluster, and the authority that vouches for it where tests
/// find it.
fn certificate(directory: &Path, data: &Path, user: Option<(u32, u32)>) {
    let run = |arguments: &str| {
        let mut openssl = as_user(user, Path::new("openssl"));
        openssl.args(arguments.split(' ')).current_dir(data);
        let made = openssl.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(made.success(), "openssl {arguments}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!("req -x509 {key} -days 2 -subj /CN=belay-test-ca -keyout ca.key -out ca.crt"));
    run(&format!("req -new {key} -subj /CN=belay-test -keyout server.key -out server.csr"));
    std::fs::write(data.join("server.ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    run("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
         -extfile server.ext -out server.crt");
    std::fs::copy(data.join("ca.crt"), directory.join("ca.crt")).unwrap();
}

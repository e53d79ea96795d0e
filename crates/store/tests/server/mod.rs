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
    port: u16,
    user: Option<(u32, u32)>,
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

impl Server {
    pub(crate) fn start() -> Self {
        if let Ok(url) = std::env::var("BELAY_TEST_DATABASE_URL") {
            return Self { own: None, url };
        }
        let directory = tempfile::tempdir().unwrap();
        let user = user();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let data = directory.path().join("data");
        let mut initdb = as_user(user, &binaries().join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", "belay", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        let made = initdb.stdout(Stdio::null()).status().unwrap();
        assert!(made.success(), "initdb made a cluster");
        let port = free_port();
        certificate(directory.path(), &data, user);
        let child = spawn(directory.path(), port, user);
        let url = format!("postgres://belay@127.0.0.1:{port}");
        let server = Self { own: Some(Own { child, directory, port, user }), url };
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
        let url = self.url_of(database);
        let output = Command::new("psql")
            .args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", sql])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
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
        own.child = spawn(own.directory.path(), own.port, own.user);
        self.await_ready();
        true
    }
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

fn spawn(directory: &Path, port: u16, user: Option<(u32, u32)>) -> Child {
    let mut postgres = as_user(user, &binaries().join("postgres"));
    postgres.arg("-D").arg(directory.join("data")).arg("-k").arg(directory);
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

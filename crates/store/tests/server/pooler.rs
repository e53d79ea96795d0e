//! A transaction pooler of one's own, from the installed binary, in front of a server.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Server, as_user, free_port, signal, user};

/// So few connections to each database, so that transactions of one client really are on several,
/// and those of several clients on one.
const CONNECTIONS: u32 = 3;

/// A pooler that ends with this value, and with this process, however that ends.
pub(crate) struct Pooler {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Pooler {
    /// Starts one in front of `server`; none if the server is somebody else's.
    pub(crate) fn start(server: &Server) -> Option<Self> {
        let behind = server.own.as_ref()?.port;
        let directory = tempfile::tempdir().unwrap();
        let (port, user) = (free_port(), user());
        let settings = directory.path().join("pgbouncer.ini");
        std::fs::write(&settings, text(behind, port, directory.path())).unwrap();
        if let Some((uid, gid)) = user {
            chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut pgbouncer = as_user(user, Path::new("pgbouncer"));
        pgbouncer.arg("-q").arg(&settings);
        pgbouncer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = pgbouncer.spawn().expect("pgbouncer is installed (Debian: pgbouncer)");
        let pooler = Self { child, port, _directory: directory };
        let deadline = Instant::now() + Duration::from_secs(30);
        while pooler.transactions().is_none() {
            assert!(Instant::now() < deadline, "the pooler accepts connections");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(pooler)
    }

    /// The URL of a database, through the pooler.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://belay@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// How many transactions went through it, as its own console says.
    pub(crate) fn transactions(&self) -> Option<u64> {
        let url = self.url_of("pgbouncer");
        let console = ["-X", "-q", "-t", "-A", "-d", &url, "-c", "SHOW TOTALS"];
        let output = Command::new("psql").args(console).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.lines().find_map(|line| line.strip_prefix("total_xact_count|"));
        count.and_then(|count| count.trim().parse().ok())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        signal(self.child.id(), "INT");
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(behind: u16, port: u16, directory: &Path) -> String {
    let log = directory.join("log");
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={behind} user=belay\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         admin_users = belay\n\
         pool_mode = transaction\n\
         default_pool_size = {CONNECTIONS}\n\
         max_client_conn = 200\n\
         logfile = {}\n",
        log.display()
    )
}

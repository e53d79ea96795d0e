//! A container engine for tests: one that is running, or one of our own, which goes when it is
//! dropped.
//!
//! Our own engine has its data, its socket and its PID file in a directory of its own, so it
//! disturbs no other; it gets no bridge and no firewall rules, because tests need no network. It is
//! told to end when the test ends, and by the kernel if the test is killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::suite::world::Scratch;

/// The image that agents run in: busybox and nothing else.
pub(crate) const IMAGE: &str = "belay-test-busybox:1";

pub(crate) struct TestEngine {
    pub(crate) socket: PathBuf,
    own: Option<(Child, Scratch)>,
}

impl TestEngine {
    /// An engine that is running, else one of our own. Nothing only where nobody could start one.
    pub(crate) fn find() -> Option<Self> {
        let engine = Self::running().or_else(Self::start)?;
        engine.import_image();
        Some(engine)
    }

    fn running() -> Option<Self> {
        let named = std::env::var("DOCKER_HOST").ok();
        let named = named.and_then(|host| host.strip_prefix("unix://").map(PathBuf::from));
        let socket = named.unwrap_or_else(|| "/var/run/docker.sock".into());
        answers(&socket).then_some(Self { socket, own: None })
    }

    fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        let log = fs::File::create(at("log")).unwrap();
        let socket = at("docker.sock");
        // The engine gets the signal when the thread that started it ends, which is the test's own.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "dockerd", "--bridge=none", "--iptables=false"])
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .arg("--host")
            .arg(format!("unix://{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("as root the tests need an engine: apt-get install docker.io");
        let mut engine = Self { socket, own: Some((child, scratch)) };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !answers(&engine.socket) {
            let (child, scratch) = engine.own.as_mut().unwrap();
            let ended = child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(scratch.path().join("log")).unwrap_or_default();
                panic!("the engine did not start ({ended:?}): {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(engine)
    }

    /// Makes the image out of files of this machine: no registry is needed.
    fn import_image(&self) {
        let root = Scratch::new();
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::copy("/usr/bin/busybox", root.path().join("bin/busybox")).unwrap();
        for directory in ["home", "opt", "root", "usr", "proc", "tmp"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        let shared = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(root.path().join("tmp"), shared).unwrap();
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(root.path())
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let imported = Command::new("docker")
            .args(["import", "-", IMAGE])
            .env("DOCKER_HOST", format!("unix://{}", self.socket.display()))
            .stdin(tar.stdout.take().unwrap())
            .output()
            .expect("the tests need the docker command");
        tar.wait().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    }

    /// Runs the engine's command line, for a look from outside.
    pub(crate) fn command(&self, args: &[&str]) -> String {
        let output = Command::new("docker")
            .args(args)
            .env("DOCKER_HOST", format!("unix://{}", self.socket.display()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn answers(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok_and(|mut stream| {
        use std::io::{Read, Write};
        let limit = Some(Duration::from_secs(5));
        stream.set_read_timeout(limit).unwrap();
        let request = b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains("200 OK")
    })
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        let Some((child, scratch)) = &mut self.own else { return };
        let pid = rustix::process::Pid::from_child(child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = child.wait();
        // What the engine mounted and did not unmount would keep its directory from going.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let inside = scratch.path().to_string_lossy().into_owned();
        for point in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if point.starts_with(&inside) {
                let _ = Command::new("umount").args(["-l", point]).status();
            }
        }
    }
}

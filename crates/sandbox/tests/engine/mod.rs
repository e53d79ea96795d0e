//! Container engines for tests: one that is running, or one of our own, which goes when it is
//! dropped.
//!
//! Our own engine has its data, its socket and its PID file in a directory of its own, so it
//! disturbs no other; it gets no bridge and no firewall rules, because tests need no network. It is
//! told to end when the test ends, and by the kernel if the test is killed.
//!
//! Tests of the whole product use it too, and each uses a part.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tempfile::TempDir;

/// The image that agents run in: busybox and nothing else.
pub(crate) const IMAGE: &str = "belay-test-busybox:1";

/// Whose engine it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brand {
    Docker,
    Podman,
}

pub(crate) struct TestEngine {
    pub(crate) brand: Brand,
    pub(crate) socket: PathBuf,
    own: Option<(Child, TempDir)>,
}

impl TestEngine {
    /// A Docker that is running, else an engine of our own. Nothing only where nobody could start
    /// one.
    pub(crate) fn find(brand: Brand) -> Option<Self> {
        let running = match brand {
            Brand::Docker => Self::running(),
            Brand::Podman => None,
        };
        let engine = running.or_else(|| Self::start(brand))?;
        engine.import_image();
        Some(engine)
    }

    fn running() -> Option<Self> {
        let named = std::env::var("DOCKER_HOST").ok();
        let named = named.and_then(|host| host.strip_prefix("unix://").map(PathBuf::from));
        let socket = named.unwrap_or_else(|| "/var/run/docker.sock".into());
        answers(&socket).then_some(Self { brand: Brand::Docker, socket, own: None })
    }

    fn start(brand: Brand) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let log = fs::File::create(scratch.path().join("log")).unwrap();
        let socket = scratch.path().join("engine.sock");
        let mut command = match brand {
            Brand::Docker => dockerd(scratch.path(), &socket),
            Brand::Podman => podman_service(scratch.path(), &socket),
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("as root the tests need util-linux");
        let mut engine = Self { brand, socket, own: Some((child, scratch)) };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !answers(&engine.socket) {
            let (child, scratch) = engine.own.as_mut().unwrap();
            let ended = child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(scratch.path().join("log")).unwrap_or_default();
                panic!("as root the tests need docker.io and podman; {brand:?} {ended:?}: {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(engine)
    }

    /// Makes the image out of files of this machine: no registry is needed.
    fn import_image(&self) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::copy("/usr/bin/busybox", root.path().join("bin/busybox")).unwrap();
        for directory in ["home", "opt", "root", "usr", "proc", "tmp"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        let shared = fs::Permissions::from_mode(0o1777);
        for directory in ["opt", "tmp"] {
            fs::set_permissions(root.path().join(directory), shared.clone()).unwrap();
        }
        self.import(root.path(), IMAGE);
    }

    /// Makes an image of a directory.
    pub(crate) fn import(&self, root: &Path, image: &str) {
        // A directory for temporary files is its owner's alone, and an image's root is anybody's.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(root)
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let imported = Command::new("docker")
            .args(["import", "-", image])
            .env("DOCKER_HOST", format!("unix://{}", self.socket.display()))
            .stdin(tar.stdout.take().unwrap())
            .output()
            .expect("the tests need the docker command");
        tar.wait().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    }

    /// Runs Docker's command line, which Podman's service answers too, for a look from outside.
    pub(crate) fn command(&self, args: &[&str]) -> String {
        let output = Command::new("docker")
            .args(args)
            .env("DOCKER_HOST", format!("unix://{}", self.socket.display()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Where a container's cgroup is, below the root of a hierarchy.
    pub(crate) fn cgroup(&self, container: &str) -> PathBuf {
        match self.brand {
            Brand::Docker => Path::new("docker").join(container),
            Brand::Podman => Path::new("libpod_parent").join(format!("libpod-{container}")),
        }
    }
}

/// The engine gets the signal when the thread that started it ends, which is the test's own.
fn dies_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", program]);
    command
}

fn dockerd(place: &Path, socket: &Path) -> Command {
    let mut command = dies_with_us("dockerd");
    command.args(["--bridge=none", "--iptables=false"]);
    command.arg("--data-root").arg(place.join("data"));
    command.arg("--exec-root").arg(place.join("exec"));
    command.arg("--pidfile").arg(place.join("pid"));
    command.arg("--host").arg(format!("unix://{}", socket.display()));
    command
}

fn podman_service(place: &Path, socket: &Path) -> Command {
    let configuration = place.join("containers.conf");
    fs::write(&configuration, containers_conf(place)).unwrap();
    let mut command = dies_with_us("podman");
    command.env("CONTAINERS_CONF", configuration);
    command.arg("--root").arg(place.join("data"));
    command.arg("--runroot").arg(place.join("run"));
    command.args(["system", "service", "--time", "0"]);
    command.arg(format!("unix://{}", socket.display()));
    command
}

/// Everything in one place, no network, no service manager, and no more open files and processes
/// than this machine grants: Podman asks for more, and whoever may not raise limits gets no
/// container then.
fn containers_conf(place: &Path) -> String {
    let numbers = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let numbers: u64 = numbers.trim().parse().unwrap();
    let granted = |resource| getrlimit(resource).maximum.unwrap_or(numbers);
    let (files, processes) = (granted(Resource::Nofile), granted(Resource::Nproc).min(numbers));
    let place = place.display();
    format!(
        "[containers]\n\
         netns = \"none\"\n\
         default_ulimits = [\"nofile={files}:{files}\", \"nproc={processes}:{processes}\"]\n\
         [engine]\n\
         cgroup_manager = \"cgroupfs\"\n\
         events_logger = \"file\"\n\
         tmp_dir = \"{place}/tmp\"\n\
         static_dir = \"{place}/data/libpod\"\n\
         volume_path = \"{place}/volumes\"\n"
    )
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

//! The conformance suite on the Docker provider, against real engines of both brands, and what only
//! containers have.

mod engine;
mod suite;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_kernel::{SandboxId, SnapshotId, Span};
use belay_sandbox::{
    Base, DockerConfig, DockerProvider, Error, Installation, Network, Plan, Provider, Refusal,
    ShimProgram, SnapshotKind,
};
use engine::{Brand, IMAGE, TestEngine};
use suite::world::{LONG, Scratch, Subject, World, installation, unique};

struct DockerWorld {
    scratch: Scratch,
    installation: Installation,
    engine: Arc<TestEngine>,
    agents: Option<PathBuf>,
}

impl DockerWorld {
    fn new(engine: &Arc<TestEngine>) -> Self {
        let engine = Arc::clone(engine);
        Self { scratch: Scratch::new(), installation: installation(), engine, agents: None }
    }

    /// One with a directory in which a server would listen for agents.
    fn with_agents(engine: &Arc<TestEngine>) -> Self {
        let world = Self::new(engine);
        let agents = world.scratch.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        Self { agents: Some(agents), ..world }
    }

    fn config(&self) -> DockerConfig {
        DockerConfig {
            root: self.scratch.path().join("belay"),
            installation: self.installation,
            shim: ShimProgram { path: env!("CARGO_BIN_EXE_belay-shim").into(), leading: vec![] },
            socket: self.engine.socket.clone(),
            user: (65_534, 65_534),
            agents: self.agents.clone(),
        }
    }
}

impl World for DockerWorld {
    type Provider = DockerProvider;

    fn open(&self) -> DockerProvider {
        DockerProvider::open(self.config()).unwrap()
    }

    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn busybox(&self) -> &str {
        "/bin/busybox"
    }

    fn complete(&self, plan: &mut Plan) {
        plan.image = Some(IMAGE.into());
        // The engine of the tests has no bridge.
        plan.network = Network::Cut;
    }

    fn truncate(&self, snapshot: SnapshotId) {
        let path = self.scratch.path().join(format!("belay/snapshots/{snapshot}.tar.zst"));
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }

    fn assert_nothing_left(&self, sandbox: SandboxId) {
        let filter = format!("label=belay.sandbox={sandbox}");
        let running = self.engine.command(&["ps", "-q", "--filter", &filter]);
        assert_eq!(running, "", "a container is running");
        let all = self.engine.command(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        for id in all.lines() {
            for hierarchy in ["", "unified", "pids", "memory", "cpu"] {
                let root = Path::new("/sys/fs/cgroup").join(hierarchy);
                assert_no_cgroup(&root.join(self.engine.cgroup(id)));
            }
        }
    }
}

/// Nobody is in the cgroup, and the engine, which may take its time over that, removes it.
fn assert_no_cgroup(path: &Path) {
    let members = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    assert_eq!(members, "", "somebody is left in {}", path.display());
    let deadline = Instant::now() + Duration::from_secs(10);
    while path.exists() {
        assert!(Instant::now() < deadline, "a cgroup is left: {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn docker_conformance() {
    conformance(Brand::Docker, "docker");
}

#[test]
fn podman_conformance() {
    conformance(Brand::Podman, "podman");
}

fn conformance(brand: Brand, title: &str) {
    let Some(engine) = TestEngine::find(brand) else {
        return suite::say("skipped: no engine answers, and only root can start one");
    };
    let engine = Arc::new(engine);
    suite::run_all(title, DockerWorld::new(&engine));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = DockerWorld::new(&engine);
        an_absent_image_names_the_command_that_gets_it(&world).await;
        the_container_is_locked_down(&world).await;
        a_commit_keeps_the_containers_own_files(&world).await;
        a_killed_pid_1_is_seen(&world).await;
        an_agent_that_ended_unseen_is_not_executed_again(&world).await;
        what_comes_into_the_directory_for_agents_is_seen_inside(&DockerWorld::with_agents(&engine))
            .await;
    });
    let left = engine.command(&["ps", "-aq", "--filter", "label=belay.sandbox"]);
    assert_eq!(left, "", "containers are left behind");
}

async fn an_absent_image_names_the_command_that_gets_it(world: &DockerWorld) {
    let mut subject = Subject::new(world, "true");
    subject.plan.image = Some("example.org/absent:7".into());
    let until = subject.until(LONG);
    let error = subject.provider.prepare(&subject.fence, &subject.plan, until).await.unwrap_err();
    let image = "example.org/absent:7".to_owned();
    let command = "docker pull example.org/absent:7".to_owned();
    assert_eq!(error.refusal(), Some(&Refusal::ImageMissing { image, command }));
    assert!(
        !world.scratch.path().join(format!("belay/sandboxes/{}", subject.fence.sandbox)).exists()
    );
}

async fn the_container_is_locked_down(world: &DockerWorld) {
    let script = "$B id -u; $B grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; \
                  $B ls /proc/1/fd; echo x > /.belay/box/orders.json; kill -9 1; kill -STOP 1; \
                  echo alive; $B sleep 1000";
    let mut subject = Subject::new(world, script);
    subject.plan.limits.memory_bytes = Some(256 << 20);
    subject.plan.limits.processes = Some(50);
    subject.plan.limits.cpu_millis = Some(500);
    subject.start().await;
    let text = String::from_utf8(subject.see("alive").await).unwrap();
    assert!(text.contains("65534\n"), "{text}");
    assert!(text.contains("CapEff:\t0000000000000000"), "{text}");
    assert!(text.contains("CapBnd:\t0000000000000000"), "{text}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    assert!(text.contains("'/proc/1/fd': Permission denied"), "{text}");
    assert!(text.contains("Read-only file system") || text.contains("Permission denied"), "{text}");
    let name = format!("belay-{}-{}", world.installation.id, subject.fence.sandbox);
    let format = "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.HostConfig.NanoCpus}} \
                  {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.Config.User}}";
    let seen = world.engine.command(&["inspect", "--format", format, &name]);
    // Docker repeats what it was told; Podman names every capability that it took away.
    let dropped = match world.engine.brand {
        Brand::Docker => "[ALL]",
        Brand::Podman => {
            "[AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW \
             SETFCAP SETGID SETPCAP SETUID SYS_CHROOT]"
        }
    };
    assert_eq!(seen.trim(), format!("268435456 58 500000000 true {dropped} 65534:65534"));
    subject.stop(Span::ZERO).await;
    subject.destroy().await;
}

async fn a_commit_keeps_the_containers_own_files(world: &DockerWorld) {
    let mut subject = Subject::new(world, "echo x > /opt/kept; echo up; $B sleep 1000");
    subject.plan.base = Base::Writable;
    subject.start().await;
    subject.see("up").await;
    let id = SnapshotId::from_bits(unique());
    subject.provider.snapshot(&subject.fence, id, SnapshotKind::Files).await.unwrap();
    subject.stop(Span::ZERO).await;
    let mut copy = Subject::new(world, "$B ls /opt");
    copy.plan.base = Base::Writable;
    copy.provider.restore(&copy.fence, id, &copy.plan, copy.until(LONG)).await.unwrap();
    copy.provider.start(&copy.fence, copy.until(LONG)).await.unwrap();
    assert_eq!(copy.finish().await.0, b"kept\n");
    copy.destroy().await;
    subject.destroy().await;
    world.open().forget(id).await.unwrap();
    let images = world.engine.command(&["images", "-q", "belay-snapshot"]);
    assert_eq!(images, "");
}

async fn a_killed_pid_1_is_seen(world: &DockerWorld) {
    let subject = Subject::new(world, "echo up; $B sleep 1000");
    subject.start().await;
    subject.see("up").await;
    let name = format!("belay-{}-{}", world.installation.id, subject.fence.sandbox);
    world.engine.command(&["kill", &name]);
    let (bytes, end) = subject.finish().await;
    assert_eq!(bytes, b"up\n");
    assert_eq!(end.reason, belay_sandbox::EndReason::ShimLost);
    subject.assert_gone();
    subject.destroy().await;
}

async fn an_agent_that_ended_unseen_is_not_executed_again(world: &DockerWorld) {
    let subject = Subject::new(world, "echo once");
    subject.start().await;
    let name = format!("belay-{}-{}", world.installation.id, subject.fence.sandbox);
    world.engine.command(&["wait", &name]);
    let again = world.open().start(&subject.fence, subject.until(LONG)).await.unwrap_err();
    assert_eq!(again.refusal(), Some(&Refusal::Ended { sandbox: subject.fence.sandbox }));
    assert_eq!(subject.finish().await.0, b"once\n");
    subject.destroy().await;
}

async fn what_comes_into_the_directory_for_agents_is_seen_inside(world: &DockerWorld) {
    let script = "echo path $PATH; $B cat /.belay/runtime/bin/belay; echo x > /.belay/agents/mine; \
                  echo up; until $B cat /.belay/agents/socket; do $B sleep 0.02; done";
    let subject = Subject::new(world, script);
    subject.start().await;
    subject.see("up").await;
    let agents = world.agents.as_ref().unwrap();
    std::fs::write(agents.join("making"), "a server listens\n").unwrap();
    std::fs::rename(agents.join("making"), agents.join("socket")).unwrap();
    let text = String::from_utf8(subject.finish().await.0).unwrap();
    let path = text.lines().find_map(|line| line.strip_prefix("path ")).unwrap();
    assert!(path.ends_with(":/.belay/runtime/bin") && path.contains("/bin:"), "{text}");
    let program = subject.provider.program().join(" ");
    assert!(text.contains(&format!("exec {program} \"$@\"\n")), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    assert!(text.contains("a server listens\n"), "{text}");
    subject.destroy().await;
}

#[test]
fn an_engine_that_is_down_is_named() {
    let scratch = Scratch::new();
    let socket = scratch.path().join("nobody.sock");
    let config = DockerConfig {
        root: scratch.path().join("belay"),
        installation: installation(),
        shim: ShimProgram { path: env!("CARGO_BIN_EXE_belay-shim").into(), leading: vec![] },
        socket: socket.clone(),
        user: (65_534, 65_534),
        agents: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let opened = DockerProvider::open(config);
    let error = match opened {
        Ok(provider) => runtime.block_on(provider.list()).unwrap_err(),
        Err(error) => error,
    };
    match error {
        Error::EngineDown { address, .. } => assert_eq!(address, socket.to_str().unwrap()),
        other => panic!("{other:?}"),
    }
    let sandboxes = scratch.path().join("belay/sandboxes");
    let left = std::fs::read_dir(sandboxes).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

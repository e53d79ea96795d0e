//! Agents in containers, which have no network here: they reach Belay's tools through its socket,
//! by the program that is their shim, also after the server was restarted.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use belay_model_server::{ModelServer, clis};
use serde_json::json;

use crate::engine::{Brand, TestEngine};
use crate::scripted::Scripted;
use crate::world::{QUICK, World, run};

/// A world whose server has an engine. Nothing where nobody could start one, which is said.
struct Place {
    world: World,
    engine: TestEngine,
    /// What the image is made of.
    root: tempfile::TempDir,
}

impl Place {
    fn new(brand: Brand) -> Option<Self> {
        let engine = TestEngine::find(brand)?;
        let address = format!("unix://{}", engine.socket.display());
        let world = World::with(QUICK, &[("DOCKER_HOST", &address)]);
        let root = tempfile::tempdir().unwrap();
        let place = Self { world, engine, root };
        for directory in ["bin", "etc", "proc", "tmp"] {
            fs::create_dir(place.in_image(directory)).unwrap();
        }
        let shared = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(place.in_image("tmp"), shared).unwrap();
        place.copy(Path::new("/usr/bin/busybox"), "bin/busybox");
        for applet in run(Command::new("busybox").arg("--list")).done().out.lines() {
            // One of them has the program's own name.
            let _ = symlink("/bin/busybox", place.in_image("bin").join(applet));
        }
        let users = "nobody:x:65534:65534:nobody:/:/bin/sh\n";
        fs::write(place.in_image("etc/passwd"), users).unwrap();
        Some(place)
    }

    fn in_image(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn copy(&self, from: &Path, to: &str) {
        let to = self.in_image(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Copies a program with what it needs to be loaded.
    fn copy_program(&self, program: &Path, to: &str) {
        let loaded = run(Command::new("ldd").arg(program)).done().out;
        let files = loaded.split_whitespace().filter(|word| word.starts_with('/'));
        files.for_each(|file| self.copy(Path::new(file), file.trim_start_matches('/')));
        self.copy(program, to);
    }

    /// Makes the image and starts the server.
    fn up(&self) {
        self.engine.import(self.root.path(), &self.image());
        self.world.up();
    }

    fn image(&self) -> String {
        format!("belay-test-agent:{}", std::process::id())
    }

    /// Makes a task in a container; its id.
    fn start(&self, words: &[&str]) -> String {
        let image = self.image();
        let container = ["--provider", "docker", "--image", &image, "--publish", "none"];
        self.world.start(&[&words[..1], &container, &words[1..]].concat())
    }

    /// Asks and is answered by a server that fell meanwhile.
    fn asks_and_is_answered(&self, task: &str) {
        self.world.reaches(task, "BLOCKED");
        assert_eq!(self.world.cell("SELECT variant FROM tasks"), "held");
        self.world.crash();
        self.world.up();
        self.world.belay(&["answer", task, "2"]).done();
    }

    /// It is done, with what it handed in, in one attempt, and nothing of it is left.
    fn is_done(&self, task: &str) {
        self.world.reaches(task, "READY");
        let shown = self.world.belay(&["show", "--json", task]).done().json();
        assert_eq!(shown["summary_text"], "# Painted\n\nIn teal.", "{shown}");
        assert_eq!(self.world.attempts(task).len(), 1, "it was held, not begun again");
        let questions = self.world.rows("SELECT text, answer FROM questions");
        assert_eq!(questions, [["Which colour?", "teal"]]);
        self.world.settles(task);
        self.world.nothing_runs();
    }
}

/// A program of busybox that starts what its configuration names, as an agent does, and speaks MCP
/// to it.
fn speaks_mcp() -> Scripted {
    let line = |method: &str, id: u32, params| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let call =
        |id, tool, arguments| line("tools/call", id, json!({"name": tool, "arguments": arguments}));
    let hello = line(
        "initialize",
        1,
        json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "scripted", "version": "1"},
        }),
    );
    let asks = json!({"question": "Which colour?", "options": ["red", "teal"]});
    let asks = call(2, "ask_user", asks);
    let hands_in = call(3, "submit_result", json!({"result": "# Painted\n\nIn teal."}));
    Scripted::claude()
        .does(
            r#"file=$CLAUDE_CONFIG_DIR/belay-mcp.json
            program=$(sed 's/.*"command":"\([^"]*\)".*/\1/' $file)
            words=$(sed 's/.*"args":\[\([^]]*\)\].*/\1/; s/[",]/ /g' $file)
            mkfifo /tmp/in /tmp/out
            $program $words < /tmp/in > /tmp/out &
            exec 3> /tmp/in 4< /tmp/out
            tell() { printf '%s\n' "$1" >&3; read -r told <&4; printf '%s\n' "$told" >> told; }"#,
        )
        .does(&format!("tell '{hello}'"))
        .does(r#"printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&3"#)
        .does(&format!("tell '{asks}'"))
        .does("echo Half of it. | belay submit-result - && echo handed in >> told")
        .does(": > .git/answered")
        .awaits("restarted")
        .does(&format!("tell '{hands_in}'"))
        .succeeds()
}

/// The agent asks, and hands in a result to a server that was restarted since.
fn reaches_the_tools(brand: Brand) {
    let Some(place) = Place::new(brand) else { return };
    let agent = speaks_mcp();
    place.up();
    let task = place.start(&agent.words("Paint it.", &[]));
    place.asks_and_is_answered(&task);
    place.world.reached(&task, "answered");
    place.world.terminate();
    place.world.up();
    place.world.let_go(&task, "restarted");
    place.is_done(&task);
    let diff = place.world.belay(&["diff", &task]).done().out;
    for told in ["The person answers: teal", "handed in", "The result is kept."] {
        assert!(diff.contains(told), "{diff}");
    }
}

#[test]
fn an_agent_in_a_container_of_docker_reaches_the_tools() {
    reaches_the_tools(Brand::Docker);
}

#[test]
fn an_agent_in_a_container_of_podman_reaches_the_tools() {
    reaches_the_tools(Brand::Podman);
}

/// Lets whoever connects to a socket of the file system speak to a server of this machine.
fn relay(socket: &Path, url: &str) {
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let listener = UnixListener::bind(socket).unwrap();
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).unwrap();
    let pass = |mut from: Box<dyn Read + Send>, mut to: Box<dyn Write + Send>| {
        // Either side may go at any time, and the other one with it.
        std::thread::spawn(move || drop(io::copy(&mut from, &mut to)))
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&address) else { return };
            let ends: io::Result<(UnixStream, TcpStream)> =
                stream.try_clone().and_then(|stream| Ok((stream, server.try_clone()?)));
            let Ok((back, there)) = ends else { return };
            pass(Box::new(stream), Box::new(there));
            pass(Box::new(server), Box::new(back));
        }
    });
}

#[test]
fn claude_in_a_container_asks_by_mcp() {
    if std::env::var_os(clis::SKIP).is_some() {
        return;
    }
    let Some(place) = Place::new(Brand::Docker) else { return };
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let programs = clis::install(base).unwrap_or_else(|error| panic!("{error}"));
    let claude = programs.join("claude").canonicalize().unwrap();
    place.copy_program(&claude, "bin/claude");
    let asks = json!({"question": "Which colour?", "options": ["red", "teal"]});
    let hands_in = json!({"result": "# Painted\n\nIn teal."});
    let progress = json!({"message": "Halfway.", "percent": 50});
    let script = format!(
        "call mcp__belay__report_progress {progress}\ncall mcp__belay__ask_user {asks}\n\
         call mcp__belay__submit_result {hands_in}\nsay Thank you."
    );
    let model = ModelServer::start(script.parse().unwrap()).unwrap();
    place.up();
    // There is no network; but there is a directory of the machine.
    relay(&place.world.data().join("agents/model.sock"), &model.url());
    let socket = "ANTHROPIC_UNIX_SOCKET=/.belay/agents/model.sock";
    let task = place.start(
        &[
            &["Paint it.", "--agent", "claude", "--env", socket][..],
            &["--env", "ANTHROPIC_BASE_URL=http://localhost"],
            &["--env", "ANTHROPIC_API_KEY=sk-scripted-key", "--env", "CLAUDE_CODE_MAX_RETRIES=0"],
        ]
        .concat(),
    );
    place.asks_and_is_answered(&task);
    place.is_done(&task);
    let shown = place.world.belay(&["show", &task]).done().out;
    assert!(shown.contains("50 %: Halfway."), "{shown}");
    let heard = |request: &belay_model_server::Request| {
        request.scripted && request.body.to_string().contains("The person answers: teal")
    };
    assert!(model.requests().iter().any(heard), "the model was told the answer");
}

#[test]
fn an_image_in_the_settings_takes_nothing_from_agents_that_run_as_processes() {
    let world = World::new(&format!("{QUICK}[defaults]\nimage = 'belay-test-agent:none'\n"));
    let task = world.script(&["--publish", "none"], "command -v belay; git --version");
    world.reaches(&task, "READY");
    let said = world.transcript(&task, 1);
    assert!(said.contains("/belay\n") && said.contains("git version"), "{said}");
}

#[test]
fn where_no_authority_is_known_a_server_that_does_not_encrypt_is_reached() {
    let world = World::new(QUICK);
    let mut lists = world.cli(&["ls"]);
    lists.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nonexistent");
    run(&mut lists).done();
    lists.env("BELAY_URL", "https://127.0.0.1:1").env("BELAY_TOKEN", "x");
    run(&mut lists).refused(4, "no answer");
}

//! The interface for programs, against the real server: the documented examples, tokens and their
//! scopes, what an agent's own token is good for, encryption.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::world::{QUICK, World, wait_for};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The examples of the page: each block's commands, and what must be in what they print.
fn examples(page: &str) -> Vec<(String, Vec<String>)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Vec<String>)> = None;
    for line in page.lines() {
        match (&mut open, line) {
            (None, "```sh") => open = Some(Default::default()),
            (None, _) => {}
            (Some(_), "```") => blocks.extend(open.take()),
            (Some((commands, expected)), line) => match line.strip_prefix("# → ") {
                Some(text) => expected.push(text.to_owned()),
                None => {
                    commands.push_str(line);
                    commands.push('\n');
                }
            },
        }
    }
    blocks
}

#[test]
fn the_examples_of_the_documentation_are_true() {
    let page = fs::read_to_string(repository().join("docs/api.md")).unwrap();
    let blocks = examples(&page);
    assert!(blocks.len() > 8, "the page has examples");
    let world = World::new(QUICK);
    // One shell for all of them, as a person has; each block's output goes to a file of its own.
    let mut script = String::from("set -e\n");
    for (index, (commands, _)) in blocks.iter().enumerate() {
        script += &format!("exec > block-{index}.txt\n{commands}");
    }
    let home = world.path("home");
    fs::write(home.join("examples.sh"), script).unwrap();
    let mut shell = Command::new("sh");
    shell.arg("examples.sh").current_dir(&home).env("BELAY_DATA_DIR", world.data());
    let ended = shell.output().unwrap();
    let printed = |index: usize| {
        fs::read_to_string(home.join(format!("block-{index}.txt"))).unwrap_or_default()
    };
    let last = (0..blocks.len()).rfind(|index| !printed(*index).is_empty()).unwrap_or(0);
    assert!(
        ended.status.success(),
        "block {last}\n{}\nprinted\n{}\nand {}",
        blocks[last].0,
        printed(last),
        String::from_utf8_lossy(&ended.stderr)
    );
    for (index, (commands, expected)) in blocks.iter().enumerate() {
        for text in expected {
            assert!(printed(index).contains(text), "`{text}` of\n{commands}{}", printed(index));
        }
    }
}

/// The status that a request with this token is answered with, and the answer.
fn ask(world: &World, token: &str, words: &[&str]) -> (u16, Value) {
    let file: Value =
        serde_json::from_slice(&fs::read(world.data().join("server.json")).unwrap()).unwrap();
    let url = file["url"].as_str().unwrap();
    let (path, rest) = words.split_first().unwrap();
    let answer = world.path("answer.json");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "%{http_code}", "-H", &format!("Authorization: Bearer {token}"), "-o"]);
    curl.arg(&answer).args(rest).arg(format!("{url}{path}"));
    let ended = curl.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let status = String::from_utf8(ended.stdout).unwrap().parse().unwrap();
    let body = fs::read(&answer).unwrap_or_default();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn tokens_are_made_shown_once_used_and_revoked() {
    let world = World::new(QUICK);
    let token = |name: &str, scope: &str| {
        let said = world.belay(&["token", "create", name, "--scope", scope]).done();
        assert!(said.err.contains("it is not shown again"), "{said:?}");
        said.out.trim().to_owned()
    };
    let (viewer, operator) = (token("screen", "viewer"), token("ci", "operator"));
    let make = ["/api/v1/tasks", "-d", r#"{"prompt":"x","command":["true"],"hold":true}"#];
    assert_eq!(ask(&world, &viewer, &["/api/v1/tasks"]).0, 200);
    assert_eq!(ask(&world, &viewer, &make).0, 403);
    assert_eq!(ask(&world, &viewer, &["/api/v1/tokens"]).0, 403);
    let (status, made) = ask(&world, &operator, &make);
    assert_eq!(status, 201);
    let by = world.rows("SELECT created_by FROM specs");
    assert_eq!(by, [["ci"]], "what is made says by whom");
    let stored = world.rows("SELECT hash FROM tokens");
    assert!(stored.iter().all(|row| row[0].len() == 64 && !viewer.contains(&row[0])));
    world.belay(&["token", "create", "ci"]).refused(3, "there is a token `ci`");
    world.belay(&["token", "create", "not a name"]).refused(2, "cannot be the name");

    let listed = world.belay(&["token", "ls", "--json"]).json();
    let tokens = listed["tokens"].as_array().unwrap();
    let names: Vec<_> = tokens.iter().map(|token| token["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ci", "screen"], "newest first");
    assert!(tokens.iter().all(|token| token["last_used_at"].is_i64()), "{listed}");
    assert!(!listed.to_string().contains("secret") && !listed.to_string().contains("hash"));

    world.belay(&["token", "revoke", "ci"]).done();
    let id = made["id"].as_str().unwrap();
    assert_eq!(ask(&world, &operator, &[&format!("/api/v1/tasks/{id}")]).0, 401);
    assert_eq!(ask(&world, &viewer, &[&format!("/api/v1/tasks/{id}")]).0, 200);
    let listed = world.belay(&["token", "ls"]).done();
    assert!(listed.out.contains("revoked"), "{listed:?}");
    world.belay(&["token", "create", "ci", "--scope", "operator"]).done();

    let short = world.belay(&["token", "create", "brief", "--expires-in", "1ms"]).done();
    assert_eq!(ask(&world, short.out.trim(), &["/api/v1/tasks"]).0, 401, "it is over");
    let log = world.log();
    assert!(!log.contains(&viewer) && !log.contains(&operator), "no token is logged");
}

#[test]
fn whoever_guesses_waits_and_holders_do_not() {
    let world = World::new(QUICK);
    let token = world.belay(&["token", "create", "ci"]).done().out.trim().to_owned();
    let mut guess = token.clone();
    guess.replace_range(guess.len() - 4.., "zzzz");
    assert_eq!(ask(&world, &token, &["/api/v1/tasks"]).0, 200);
    let statuses: Vec<_> = (0..22).map(|_| ask(&world, &guess, &["/api/v1/tasks"]).0).collect();
    assert_eq!((statuses[19], statuses[20]), (401, 429), "{statuses:?}");
    let (status, problem) = ask(&world, &guess, &["/api/v1/tasks"]);
    assert_eq!((status, problem["code"].as_str()), (429, Some("too_many_requests")));
    assert!(problem["retry_after"].as_u64().is_some_and(|seconds| (1..=60).contains(&seconds)));
    assert_eq!(ask(&world, &token, &["/api/v1/tasks"]).0, 200, "its holder is let in");
    world.belay(&["ls"]).done();
}

/// A file of this name somewhere below a directory.
fn below(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    entries.filter_map(Result::ok).find_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => below(&entry.path(), name),
        _ => (entry.file_name() == name).then(|| entry.path()),
    })
}

#[test]
fn an_agents_token_is_for_its_own_task_and_dies_with_its_attempt() {
    let world = World::new(QUICK);
    let other = world.script(&[], "true");
    let task = world.script(
        &[],
        "printf %s \"$BELAY_TOKEN\" > .git/t && mv .git/t .git/token.told; await over",
    );
    let mut token = String::new();
    wait_for("the agent tells its token", || {
        let told = below(&world.data(), "token.told");
        token = told.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        !token.is_empty()
    });
    let path = |task: &str, rest: &str| format!("/api/v1/tasks/{task}{rest}");
    let status = |path: String, words: &[&str]| {
        let mut all = vec![path.as_str()];
        all.extend_from_slice(words);
        ask(&world, &token, &all).0
    };
    assert_eq!(status(path(&task, ""), &[]), 200);
    assert_eq!(status(path(&task, "/why"), &[]), 200);
    for verb in ["accept", "stop", "answer", "reject", "retry"] {
        assert_eq!(status(path(&task, &format!("/{verb}")), &["-X", "POST"]), 403, "{verb}");
    }
    for rest in ["", "/why", "/events", "/transcript", "/attempts"] {
        assert_eq!(status(path(&other, rest), &[]), 403, "{rest} of another task");
    }
    assert_eq!(status("/api/v1/tasks".into(), &[]), 403);
    assert_eq!(status("/api/v1/events".into(), &[]), 403);
    assert_eq!(status("/api/v1/tokens".into(), &[]), 403);
    world.belay(&["stop", &task]).done();
    let over = status(path(&task, ""), &[]);
    assert!(matches!(over, 409 | 410), "the attempt is over, and so is its token: {over}");
}

#[test]
fn beyond_loopback_is_encrypted_or_said_not_to_be() {
    let world = World::quiet(QUICK);
    world.belay(&["up", "--listen", "0.0.0.0"]).refused(2, "nothing would be encrypted");
    let certificates = repository().join("crates/server/tests/tls");
    let certificate = certificates.join("certificate.pem");
    let words = ["up", "--tls-cert", certificate.to_str().unwrap(), "--tls-key", "README"];
    world.belay(&words).refused(2, "the key cannot be read");
    let key = certificates.join("key.pem");
    let settings = format!(
        "{QUICK}\n[server]\nlisten = '127.0.0.1'\nnames = ['belay.test']\n\
         tls_cert = '{}'\ntls_key = '{}'\n",
        certificate.display(),
        key.display()
    );
    let world = World::new(&settings);
    world.belay(&["ls"]).done();
    let log = world.log();
    let address = log.split_once("https://").map(|(_, rest)| rest.lines().next().unwrap().trim());
    let url = format!("https://{}", address.expect("it says where others find it"));
    let token = fs::read_to_string(world.data().join("token")).unwrap();
    let far = |authority: Option<&Path>| {
        let mut command = world.cli(&["ls"]);
        command.env("BELAY_URL", &url).env("BELAY_TOKEN", token.trim());
        if let Some(path) = authority {
            command.env("BELAY_CA_FILE", path);
        }
        command.output().unwrap()
    };
    let trusted = far(Some(&certificates.join("authority.pem")));
    assert!(trusted.status.success(), "{trusted:?}");
    let unknown = far(None);
    assert_eq!(unknown.status.code(), Some(4), "an authority that nobody knows: {unknown:?}");
    let plain = Command::new("curl").args(["-sS", &url.replace("https:", "http:")]).output();
    assert!(!plain.unwrap().status.success(), "nothing is answered without encryption");
}

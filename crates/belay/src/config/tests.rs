//! Which source wins, and how what is wrong is told.

use super::*;

fn write(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join(NAME);
    std::fs::write(&path, text).unwrap();
    path
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn value(config: &Config, key: &str) -> (String, String) {
    let entries = config.entries();
    let entry = entries.iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("{key}"));
    (entry.value.to_string(), entry.origin.clone())
}

#[test]
fn later_sources_win_and_each_setting_says_where_it_is_from() {
    let (home, top) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let person = write(
        home.path(),
        "[server]\nport = 1\n[limits]\nidle = \"1m\"\nabsolute = \"2m\"\nlinger = \"3m\"\n\
         [defaults]\nagent = \"claude\"\n\
         [roles.builder]\nworkers = 2\nlimits = { idle = \"9m\" }\n",
    );
    let repository = write(top.path(), "[limits]\nabsolute = \"4m\"\nlinger = \"5m\"\n");
    let sources = Sources {
        person: Some(person.clone()),
        repository: Some(top.path().to_owned()),
        variables: variables(&[
            ("BELAY_LIMITS_LINGER", "6m"),
            ("BELAY_SERVER_PORT", "2"),
            ("BELAY_CAPS_STARTS", "7"),
            ("BELAY_SWITCHES_DIAGNOSTICS", "false"),
            ("BELAY_DEFAULTS_ENVIRONMENT", "A, B"),
        ]),
        port: Some(3),
    };
    let config = Config::load(&sources).unwrap();
    let from = |path: &Path| path.display().to_string();
    for (key, expected, origin) in [
        ("limits.idle", "\"1m\"", from(&person)),
        ("limits.absolute", "\"4m\"", from(&repository)),
        ("limits.linger", "\"6m\"", "$BELAY_LIMITS_LINGER".into()),
        ("limits.start", "\"2m\"", "default".into()),
        ("server.port", "3", "--port".into()),
        ("caps.starts", "7", "$BELAY_CAPS_STARTS".into()),
        ("caps.parks", "10", "default".into()),
        ("switches.diagnostics", "false", "$BELAY_SWITCHES_DIAGNOSTICS".into()),
        ("defaults.agent", "\"claude\"", from(&person)),
        ("defaults.environment", "[\"A\",\"B\"]", "$BELAY_DEFAULTS_ENVIRONMENT".into()),
        ("roles.builder.workers", "2", from(&person)),
        ("roles.builder.limits.idle", "\"9m\"", from(&person)),
    ] {
        assert_eq!(value(&config, key), (expected.to_owned(), origin), "{key}");
    }
    let sent: Vec<_> = config.task_limits().into_iter().collect();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(sent, [pair("absolute", "4m"), pair("linger", "6m")], "the server has the person's");
}

#[test]
fn names_that_others_know_are_honoured() {
    let sources = Sources {
        variables: variables(&[
            ("AGENT_INACTIVITY_TIMEOUT_MS", "90000"),
            ("AGENT_MAX_WAIT_TIME_MS", "600000"),
        ]),
        ..Sources::default()
    };
    let config = Config::load(&sources).unwrap();
    let limits = config.limits();
    assert_eq!(limits.inactivity.to_string(), "1m30s");
    assert_eq!(limits.inactivity_quiet.to_string(), "1m30s");
    assert_eq!(limits.absolute.to_string(), "10m");
    assert_eq!(value(&config, "limits.absolute").1, "$AGENT_MAX_WAIT_TIME_MS");

    let wrong = Sources {
        variables: variables(&[("AGENT_MAX_WAIT_TIME_MS", "soon")]),
        ..Sources::default()
    };
    let text = Config::load(&wrong).unwrap_err().text;
    assert_eq!(text, "$AGENT_MAX_WAIT_TIME_MS is `soon`; it takes a number of milliseconds");
}

#[test]
fn a_variable_of_a_section_that_is_no_setting_is_refused() {
    for name in ["BELAY_LIMITS_IDEL", "BELAY_SERVER_HOST", "BELAY_SWITCHES_"] {
        let sources = Sources { variables: variables(&[(name, "3m")]), ..Sources::default() };
        let text = Config::load(&sources).unwrap_err().text;
        assert_eq!(text, format!("${name} is no setting; `belay config` lists all that there are"));
    }
    let others = [("BELAY_URL", "x"), ("BELAY_CA_FILE", "x"), ("BELAY_TASK_ID", "x")];
    let sources = Sources { variables: variables(&others), ..Sources::default() };
    assert!(Config::load(&sources).is_ok());
}

/// What is said about a person's file with this text.
fn refusal(text: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let person = write(home.path(), text);
    let sources = Sources { person: Some(person.clone()), ..Sources::default() };
    let fault = Config::load(&sources).unwrap_err();
    assert_eq!(fault.exit, crate::fault::Exit::Usage);
    fault.text.replace(&person.display().to_string(), NAME)
}

#[test]
fn what_is_wrong_is_told_with_file_line_and_key() {
    let text = refusal("[limits]\nidle = \"3m\"\nabsolut = \"1h\"\n");
    assert!(text.starts_with("belay.toml:3: `absolut`: unknown variant `absolut`"), "{text}");
    let text = refusal("[limits]\nidle = \"soon\"\n");
    assert!(text.starts_with("belay.toml:2: `idle`: `soon` is not a duration"), "{text}");
    let text = refusal("[server]\nhost = \"x\"\n");
    assert!(text.starts_with("belay.toml:2: `host`: unknown field `host`"), "{text}");
    let text = refusal("[server\n");
    assert!(text.starts_with("belay.toml:1:"), "{text}");
    let text = refusal("[limits]\nheartbeat_timeout = \"1s\"\n");
    assert!(text.contains("`heartbeat_timeout` is 1s, but one lost beat must not"), "{text}");
    let text = refusal("[roles.builder.limits]\ndrift = \"1s\"\n");
    assert!(text.contains("roles.builder.limits: `drift` can be set in [limits] only"), "{text}");
}

#[test]
fn a_repository_cannot_reach_beyond_itself() {
    for (text, named) in [
        ("[server]\nport = 1\n", "server"),
        ("[defaults]\nenvironment = [\"AWS_SECRET_ACCESS_KEY\"]\n", "defaults.environment"),
        ("[defaults]\nprovider = \"process\"\n", "defaults.provider"),
        ("[limits]\ndrift = \"2s\"\n", "limits.drift"),
        ("[roles.builder]\nworkers = 9\n", "roles"),
    ] {
        let top = tempfile::tempdir().unwrap();
        write(top.path(), text);
        let sources = Sources { repository: Some(top.path().to_owned()), ..Sources::default() };
        let said = Config::load(&sources).unwrap_err().text;
        assert!(said.contains(&format!("`{named}` reaches beyond")), "{said}");
    }
    let top = tempfile::tempdir().unwrap();
    write(top.path(), "[defaults]\nagent = \"codex\"\nreview = \"auto\"\n");
    let sources = Sources { repository: Some(top.path().to_owned()), ..Sources::default() };
    let config = Config::load(&sources).unwrap();
    assert_eq!(config.file.defaults.agent.as_deref(), Some("codex"));
}

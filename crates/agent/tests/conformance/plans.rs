//! Launch plans: what every one of them promises, and what is refused.

use belay_agent::{
    Agent, Conversation, ConversationId, Launch, LaunchRefusal, McpServer, Permissions, Stdin,
};
use serde_json::json;

use crate::common::{self, Setting};

fn launch(agent: Agent) -> Launch {
    let exit = belay_agent::Exit::Code(0);
    let mut launch = common::launch(&Setting { agent, resumed: None, asks: false, exit });
    launch.environment.insert("ANTHROPIC_API_KEY".into(), "sk-very-secret".into());
    launch
}

#[test]
fn every_plan_keeps_secrets_out_of_arguments_and_files() {
    for agent in Agent::ALL {
        let plan = agent.plan(&launch(agent)).unwrap();
        for secret in ["attempt-token-7f3a", "sk-very-secret"] {
            assert!(!plan.argv.iter().any(|argument| argument.contains(secret)), "{agent}");
            assert!(!plan.files.iter().any(|file| file.contents.contains(secret)), "{agent}");
            assert!(!format!("{plan:?}").contains(secret), "{agent}");
        }
        assert!(!format!("{:?}", launch(agent).belay).contains("attempt-token"));
    }
}

#[test]
fn every_agent_gets_belays_environment_and_a_home_of_its_own() {
    for agent in Agent::ALL {
        let plan = agent.plan(&launch(agent)).unwrap();
        let variable = |name: &str| plan.environment.get(name).map(String::as_str);
        assert_eq!(variable("BELAY_URL"), Some("http://127.0.0.1:4000"));
        assert_eq!(variable("BELAY_TOKEN"), Some("attempt-token-7f3a"));
        assert_eq!(variable("BELAY_TASK_ID"), Some("0000000000000007"));
        assert_eq!(variable("BELAY_ATTEMPT"), Some("1"));
        assert_eq!(variable("BELAY_PROMPT_FILE"), Some("/sandbox/prompt"));
        assert_eq!(variable("BELAY_QUESTION_FILE"), Some("/sandbox/question"));
        assert_eq!(variable("BELAY_SUMMARY_FILE"), Some("/sandbox/summary"));
        assert_eq!(variable("HOME"), Some("/sandbox/state"));
        assert_eq!(variable("PWD"), Some("/sandbox/tree"));
        assert_eq!(plan.work_dir, "/sandbox/tree");
        let homes = plan.environment.iter().filter(|(name, _)| is_home(name));
        for (name, path) in homes {
            assert!(path.starts_with("/sandbox/state"), "{agent} has {name} at {path}");
        }
        let planned = plan.files.iter().map(|file| &file.path).chain(&plan.directories);
        for path in planned {
            assert!(path.starts_with("/sandbox/state"), "{agent} writes {path}");
        }
    }
}

/// Variables that tell an agent where its own files are.
fn is_home(name: &str) -> bool {
    name.ends_with("HOME") || name.ends_with("CONFIG_DIR") || name.ends_with("_CONFIG")
}

#[test]
fn what_the_role_names_wins() {
    for agent in Agent::ALL {
        let mut launch = launch(agent);
        launch.environment.insert("HOME".into(), "/elsewhere".into());
        let plan = agent.plan(&launch).unwrap();
        assert_eq!(plan.environment["HOME"], "/elsewhere", "{agent}");
        assert_eq!(plan.environment["ANTHROPIC_API_KEY"], "sk-very-secret", "{agent}");
    }
}

/// The prompt reaches the agent whole, whatever is in it, and through no shell.
#[test]
fn prompts_travel_unharmed() {
    let prompt = "Cost: $5; `rm -rf /`; \"quotes\" \\n 'more'\n--help\n😀";
    for agent in Agent::ALL {
        let mut launch = launch(agent);
        launch.prompt = prompt.into();
        let plan = agent.plan(&launch).unwrap();
        let first = match &plan.stdin {
            Stdin::Whole(bytes) | Stdin::Open(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        };
        let in_json = serde_json::to_string(prompt).unwrap();
        let whole = first == prompt
            || first.contains(&in_json)
            || plan.argv.iter().any(|argument| argument == prompt);
        // Codex and ACP agents are given it once a conversation is open.
        assert!(whole || matches!(agent, Agent::Codex | Agent::Acp), "{agent}");
        assert!(!plan.argv[0].contains("sh"), "{agent} is started without a shell");
    }
}

#[test]
fn a_prompt_too_long_for_an_argument_is_read_from_its_file() {
    for agent in [Agent::Copilot, Agent::Cursor] {
        let mut launch = launch(agent);
        launch.prompt = "x".repeat(1 << 20);
        let plan = agent.plan(&launch).unwrap();
        let longest = plan.argv.iter().map(String::len).max().unwrap();
        assert!(longest < 128 << 10, "{agent}");
        assert!(plan.argv.iter().any(|argument| argument.contains("/sandbox/prompt")), "{agent}");
    }
}

#[test]
fn a_conversation_is_chosen_captured_or_resumed() {
    let id = ConversationId::chosen(9);
    for agent in Agent::ALL {
        let mut launch = launch(agent);
        launch.conversation = Conversation::Fresh(id.clone());
        let chosen = agent.plan(&launch).unwrap().conversation;
        let chooses = matches!(agent, Agent::Claude | Agent::Gemini | Agent::Copilot);
        assert_eq!(chosen.is_some(), chooses, "{agent}");
        launch.conversation = Conversation::Resumed(id.clone());
        match agent.plan(&launch) {
            Ok(plan) => assert_eq!(plan.conversation.as_ref(), Some(&id), "{agent}"),
            Err(refusal) => {
                assert_eq!((agent, refusal), (Agent::Command, LaunchRefusal::NoConversations));
            }
        }
    }
}

#[test]
fn what_cannot_be_launched_is_refused_with_a_code() {
    let check = |agent: Agent, change: &dyn Fn(&mut Launch), code: &str| {
        let mut launch = launch(agent);
        change(&mut launch);
        let refusal = agent.plan(&launch).expect_err(code);
        assert_eq!(refusal.code(), code, "{agent}: {refusal}");
    };
    for agent in Agent::ALL {
        check(agent, &|launch| launch.prompt = " \n".into(), "empty_prompt");
        check(agent, &|launch| launch.prompt = "a\0b".into(), "nul_byte");
        check(agent, &|launch| launch.work_dir = "tree".into(), "not_absolute");
        let variable = |launch: &mut Launch| {
            launch.environment.insert("A".into(), "\0".into());
        };
        check(agent, &variable, "nul_byte");
    }
    for agent in [Agent::Acp, Agent::Command] {
        check(agent, &|launch| launch.program.clear(), "no_program");
    }
    for agent in [Agent::Gemini, Agent::OpenCode, Agent::Copilot, Agent::Cursor, Agent::Command] {
        check(agent, &|launch| launch.permissions = Permissions::Ask, "cannot_ask");
    }
    for agent in [Agent::Copilot, Agent::Cursor, Agent::Acp, Agent::Command] {
        let settings = |launch: &mut Launch| {
            launch.settings.insert("a".into(), json!(1));
        };
        check(agent, &settings, "no_settings");
    }
    for agent in [Agent::Claude, Agent::Gemini, Agent::Copilot] {
        let odd = |launch: &mut Launch| {
            launch.conversation = Conversation::Resumed(ConversationId::new("ses_1").unwrap());
        };
        check(agent, &odd, "not_uuid");
    }
}

/// Every agent that can be pointed at an MCP server is, over HTTP and as a program.
#[test]
fn both_kinds_of_mcp_server_are_planned() {
    for agent in
        [Agent::Claude, Agent::Codex, Agent::Gemini, Agent::OpenCode, Agent::Copilot, Agent::Cursor]
    {
        let mut launch = launch(agent);
        launch.mcp.push(McpServer::Program {
            name: "local".into(),
            argv: vec!["/bin/belay-mcp".into(), "--stdio".into()],
        });
        let plan = agent.plan(&launch).unwrap();
        let text: String = plan
            .files
            .iter()
            .map(|file| &*file.contents)
            .chain(plan.argv.iter().map(|a| &**a))
            .collect();
        for needed in ["http://127.0.0.1:4000/mcp", "BELAY_TOKEN", "/bin/belay-mcp", "--stdio"] {
            assert!(text.contains(needed), "{agent} has no {needed}");
        }
    }
}

#[test]
fn codex_settings_become_flags_of_toml() {
    let mut launch = launch(Agent::Codex);
    launch
        .settings
        .insert("model_providers".into(), json!({"my one": {"base_url": "http://x", "n": 2}}));
    let plan = Agent::Codex.plan(&launch).unwrap();
    let flag = "model_providers.\"my one\".base_url=\"http://x\"";
    assert!(plan.argv.iter().any(|argument| argument == flag), "{:?}", plan.argv);
    assert!(plan.argv.iter().any(|argument| argument == "analytics.enabled=false"));
}

/// Limits that the agent itself can hold to are passed on.
#[test]
fn limits_reach_the_agents_that_know_them() {
    let mut launch = launch(Agent::Claude);
    launch.max_turns = Some(7);
    launch.max_budget = belay_kernel::Money::from_usd(1.25);
    let argv = Agent::Claude.plan(&launch).unwrap().argv.join(" ");
    assert!(argv.contains("--max-turns 7 --max-budget-usd 1.250000"), "{argv}");
    launch.environment.clear();
    let files = Agent::Gemini.plan(&launch).unwrap().files;
    assert!(files[0].contents.contains("\"maxSessionTurns\":7"));
}

//! Real agents, each through the same turns, on the scripted model: nothing but the model is not
//! real. What an agent did is judged from its tree and from what it sent to the model; what it said
//! is judged through plan and reader.

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use belay_agent::{
    Agent, Conversation, ConversationId, Detail, Event, Judgement, Observation, Permissions,
};
use belay_kernel::{Cause, EventKind};
use belay_model_server::Request;

use support::case::{Case, Place};
use support::drive::{Run, run};
use support::record::record;

/// One test per agent and scenario.
macro_rules! scenarios {
    ($($module:ident $case:ident: $($scenario:ident)*;)*) => {$(
        mod $module {
            $(
                #[test]
                fn $scenario() {
                    if super::support::programs().is_some() {
                        super::$scenario(super::Case::$case);
                    } else {
                        let names = [stringify!($module), stringify!($scenario)];
                        super::say_skipped(&names.join("::"));
                    }
                }
            )*
        }
    )*};
}

scenarios! {
    claude Claude: edits_a_file resumes fails_for_auth fails_for_a_limit is_interrupted breaks_off
        parks_until_a_reset asks_by_mcp holds_a_question holds_a_permission says_much;
    codex Codex: edits_a_file resumes fails_for_auth fails_for_a_limit is_interrupted breaks_off
        parks_until_a_reset asks_by_mcp holds_a_question holds_a_permission says_much;
    gemini Gemini: edits_a_file resumes fails_for_auth fails_for_a_limit is_interrupted breaks_off
        asks_by_mcp says_much;
    opencode OpenCode: edits_a_file resumes fails_for_auth is_interrupted asks_by_mcp says_much;
    copilot Copilot: edits_a_file resumes fails_for_auth is_interrupted asks_by_mcp says_much;
    gemini_acp GeminiAcp: edits_a_file resumes fails_for_auth is_interrupted holds_a_permission;
    opencode_acp OpenCodeAcp: edits_a_file resumes fails_for_auth is_interrupted;
    copilot_acp CopilotAcp: edits_a_file is_interrupted;
}

fn say_skipped(name: &str) {
    use std::io::Write;
    let line = format!("skipped, because {} is set: {name}\n", belay_model_server::clis::SKIP);
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

const USAGE: &str = "usage input=1200 output=40 cached=200\n";

fn count(run: &Run, kind: &EventKind) -> usize {
    run.what()
        .filter(|what| matches!(what, Observation::Event(event) if event.kind == *kind))
        .count()
}

#[track_caller]
fn cause(run: &Run) -> Cause {
    match &run.judgement {
        Judgement::Failed(failure) => failure.cause,
        Judgement::Succeeded => panic!("it succeeded: {}", run.story()),
    }
}

/// A turn with two tools that leaves a file, is counted, and says everything that Belay needs.
fn edits_a_file(case: Case) {
    let place = Place::new(case, "edit", "");
    let file = place.tree().join("made.txt");
    let shell = case.shell("echo hi > note; cat note");
    place.script(&format!("{USAGE}{shell}{}say All done.", case.edit(&file)));
    let launch = place.launch("Please make a file.");
    let run = run(&place, &launch, |_, _| {});
    record(&place, &launch, "edits_a_file", &run);
    run.succeeded();
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "hello", "{}", run.story());
    assert_eq!(fs::read_to_string(place.tree().join("note")).unwrap(), "hi\n");
    assert!(count(&run, &EventKind::ToolUse) >= 2, "{}", run.story());
    assert!(count(&run, &EventKind::Started) == 1, "{}", run.story());
    let said = run.what().any(|what| {
        matches!(what, Observation::Event(Event { kind: EventKind::AssistantMessage, detail:
            Detail::Text(text) }) if &*text.text == "All done.")
    });
    assert!(said, "{}", run.story());
    let edited = run.what().any(|what| {
        matches!(what, Observation::Event(Event { kind: EventKind::FileEdited, detail:
            Detail::File(path) }) if path.ends_with("made.txt"))
    });
    assert!(edited, "{}", run.story());
    assert_eq!(run.reader.open_tools().count(), 0);
    assert_eq!(run.reader.drift().collect::<Vec<_>>(), [], "{}", run.story());
    let conversation = run.reader.conversation().expect("the conversation is known");
    if let Some(chosen) = case.agent().plan(&launch).unwrap().conversation {
        assert_eq!(*conversation, chosen);
    }
    counted(case, &run);
    assert!(run.reading < Duration::from_millis(5), "reading took {:?}", run.reading);
}

/// Three model calls of 1,200 tokens in (200 from the cache) and 40 out.
#[track_caller]
fn counted(case: Case, run: &Run) {
    let usage = run.reader.usage();
    let figures = [usage.input_tokens, usage.cache_read_tokens, usage.output_tokens];
    match case {
        Case::Claude | Case::Codex | Case::Gemini | Case::OpenCode => {
            assert_eq!(figures, [3_000, 600, 120], "{}", run.story());
        }
        // It tells input with the cached part in it.
        Case::GeminiAcp => assert_eq!(figures, [3_600, 0, 120], "{}", run.story()),
        Case::OpenCodeAcp => assert!(usage.tokens() > 0, "{}", run.story()),
        Case::Copilot | Case::CopilotAcp => {}
    }
    let tells_money = matches!(case, Case::Claude | Case::OpenCode | Case::OpenCodeAcp);
    assert_eq!(usage.cost.is_some_and(|cost| cost.as_micros() > 0), tells_money, "{usage:?}");
}

/// The conversation goes on in a new process, whose home holds nothing but the files that were
/// kept: the model is sent what was said before.
fn resumes(case: Case) {
    let place = Place::new(case, "resume", &format!("{USAGE}say The word is xylophone."));
    let launch = place.launch("Remember the word.");
    let first = run(&place, &launch, |_, _| {});
    first.succeeded();
    let id = first.reader.conversation().expect("the conversation is known").clone();
    restore_only_kept(case.agent(), &id, &place.state());
    if case == Case::GeminiAcp {
        let_time_pass(&place.state());
    }
    place.script(&format!("{USAGE}say It was xylophone."));
    let mut again = place.launch("Which word was it?");
    again.conversation = Conversation::Resumed(id.clone());
    let before = place.server.requests().len();
    let second = run(&place, &again, |_, _| {});
    record(&place, &again, "resumes", &second);
    second.succeeded();
    assert_eq!(second.reader.conversation(), Some(&id), "{}", second.story());
    let requests = place.server.requests();
    let sent = requests[before..].iter().find(|request| request.scripted).expect("it asked");
    let body = sent.body.to_string();
    assert!(body.contains("Remember the word."), "the old prompt is sent: {body}");
    assert!(body.contains("The word is xylophone."), "the old answer is sent: {body}");
    assert!(body.contains("Which word was it?"), "the new prompt is sent: {body}");
    let usage = second.reader.usage();
    if usage.tokens() > 0 {
        assert_eq!(usage.tokens(), 1_240, "only this attempt is counted: {}", second.story());
    }
}

/// Makes the conversation's file a few hours older. Gemini CLI names it by the minute, and over ACP
/// overwrites a session that is loaded in the same minute before it reads it.
fn let_time_pass(state: &Path) {
    for path in files(&state.join(".gemini/tmp")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some((day, rest)) = name.split_once('T').filter(|_| name.starts_with("session-")) {
            let older = format!("{day}T00-00{}", &rest[5..]);
            fs::rename(&path, path.with_file_name(older)).unwrap();
        }
    }
}

/// Leaves in `state` only what the agent's adapter keeps of a conversation.
fn restore_only_kept(agent: Agent, id: &ConversationId, state: &Path) {
    let old = state.with_extension("old");
    fs::rename(state, &old).unwrap();
    let mut kept = 0;
    for path in files(&old) {
        let relative = path.strip_prefix(&old).unwrap();
        if agent.keeps(id, relative.to_str().unwrap()) {
            let to = state.join(relative);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&path, to).unwrap();
            kept += 1;
        }
    }
    assert!(kept > 0, "nothing is kept of {:?}", files(&old));
    fs::remove_dir_all(old).unwrap();
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

fn fails_for_auth(case: Case) {
    let place = Place::new(case, "auth", "fail 401");
    let launch = place.launch("Please.");
    let run = run(&place, &launch, |_, _| {});
    record(&place, &launch, "fails_for_auth", &run);
    let expected = match case {
        // Over ACP they say only that something went wrong.
        Case::OpenCodeAcp => Cause::Crash,
        _ => Cause::Auth,
    };
    assert_eq!(cause(&run), expected, "{}", run.story());
}

fn fails_for_a_limit(case: Case) {
    let place = Place::new(case, "limit", "fail 429 retry-after=3600");
    let launch = place.launch("Please.");
    let run = run(&place, &launch, |_, _| {});
    record(&place, &launch, "fails_for_a_limit", &run);
    assert_eq!(cause(&run), Cause::RateLimit, "{}", run.story());
}

/// The account's allowance is used up until a time that the agent says.
fn parks_until_a_reset(case: Case) {
    let place = Place::new(case, "reset", "fail 429 reset=1999999999");
    let mut launch = place.launch("Please.");
    if case == Case::Claude {
        // Only a subscription has an allowance.
        launch.environment.remove("ANTHROPIC_API_KEY");
        let token = "sk-ant-oat01-scripted-token";
        launch.environment.insert("CLAUDE_CODE_OAUTH_TOKEN".into(), token.into());
    }
    let run = run(&place, &launch, |_, _| {});
    record(&place, &launch, "parks_until_a_reset", &run);
    assert_eq!(cause(&run), Cause::UsageLimit, "{}", run.story());
    let Judgement::Failed(failure) = &run.judgement else { unreachable!("it has a cause") };
    let resets_at = failure.resets_at.map(|at| at.as_millis());
    assert_eq!(resets_at, Some(1_999_999_999_000), "{}", run.story());
}

/// The connection to the model breaks in the middle of a message.
fn breaks_off(case: Case) {
    let place = Place::new(case, "drop", "drop after=I was about to");
    let launch = place.launch("Please.");
    let run = run(&place, &launch, |_, _| {});
    record(&place, &launch, "breaks_off", &run);
    let expected = match case {
        Case::Claude => Cause::Network,
        // They say only that something went wrong.
        _ => Cause::Crash,
    };
    assert_eq!(cause(&run), expected, "{}", run.story());
}

/// The turn is interrupted while a tool runs, and that is never a success, whatever the exit.
fn is_interrupted(case: Case) {
    let place = Place::new(case, "interrupt", "");
    let wait = "touch started; timeout 30 sh -c 'until test -e stop; do sleep 0.1; done'";
    place.script(&format!("{USAGE}{}say Never said.", case.shell(wait)));
    let launch = place.launch("Please wait.");
    let (started, stop) = (place.tree().join("started"), place.tree().join("stop"));
    let mut next_interrupt: Option<Instant> = None;
    let run = run(&place, &launch, |_, hands| {
        let due = next_interrupt.is_none_or(|at| Instant::now() > at);
        if started.exists() && due {
            hands.interrupt();
            next_interrupt = Some(Instant::now() + Duration::from_secs(2));
        }
    });
    // Tools run in process groups of their own; this one is told to end.
    fs::write(&stop, "").unwrap();
    record(&place, &launch, "is_interrupted", &run);
    assert!(started.exists(), "the tool ran: {}", run.story());
    let cause = cause(&run);
    assert!(matches!(cause, Cause::Cancelled | Cause::Crash), "{cause}: {}", run.story());
    if matches!(case, Case::Claude | Case::Codex | Case::GeminiAcp | Case::OpenCodeAcp) {
        assert_eq!(cause, Cause::Cancelled, "{}", run.story());
    }
    let asked = place.server.requests().iter().filter(|request| request.scripted).count();
    assert_eq!(asked, 1, "the model was not asked again");
}

/// The agent reaches Belay's MCP server, with the attempt's own token.
fn asks_by_mcp(case: Case) {
    let place = Place::new(case, "mcp", "");
    // Some agents connect in the background: the tool is called only when they have listed it.
    let wait = "timeout 30 sh -c 'until test -e listed; do sleep 0.1; done'";
    place.script(&format!("{}{}say Blue it is.", case.shell(wait), case.ask_by_mcp()));
    let launch = place.launch("Please ask.");
    let run = run(&place, &launch, |_, _| {
        let lists = |request: &Request| request.body["method"] == "tools/list";
        if place.server.requests().iter().any(lists) {
            fs::write(place.tree().join("listed"), "").unwrap();
        }
    });
    record(&place, &launch, "asks_by_mcp", &run);
    run.succeeded();
    let requests = place.server.requests();
    let call = requests.iter().find(|request| request.body["method"] == "tools/call");
    let asked = || -> Vec<_> { requests.iter().map(|r| (&r.path, &r.body["method"])).collect() };
    let call =
        call.unwrap_or_else(|| panic!("the tool was called: {:?}\n{}", asked(), run.story()));
    assert_eq!(call.authorization.as_deref(), Some("Bearer attempt-token-7f3a"));
    let tool = if case == Case::Gemini { "report_progress" } else { "ask_user" };
    assert_eq!(call.body["params"]["name"], tool);
    let answered = requests.iter().any(|request| {
        request.scripted && request.body.to_string().contains("The person says: blue.")
    });
    assert!(answered, "the answer reached the model: {}", run.story());
    let plan = case.agent().plan(&launch).unwrap();
    let token = "attempt-token-7f3a";
    assert!(!plan.argv.iter().any(|argument| argument.contains(token)), "no secret in argv");
    assert!(!plan.files.iter().any(|file| file.contents.contains(token)), "nor in a file");
}

/// The agent's own question tool is held until a person answers, and the answer reaches the model.
fn holds_a_question(case: Case) {
    let mut question = serde_json::json!({
        "question": "Which colour?",
        "header": "Colour",
        "options": [
            {"label": "Blue", "description": "sea"},
            {"label": "Red", "description": "fire"},
        ],
    });
    let tool = match case {
        Case::Claude => {
            question["multiSelect"] = false.into();
            "AskUserQuestion"
        }
        _ => {
            question["id"] = "colour".into();
            "request_user_input"
        }
    };
    let input = serde_json::json!({"questions": [question]});
    let place = Place::new(case, "question", &format!("call {tool} {input}\nsay Thank you."));
    let launch = place.launch("Please ask.");
    let mut asked = None;
    let run = run(&place, &launch, |_, hands| {
        if asked.is_none() && hands.question().is_some() {
            asked = hands.question().cloned();
            hands.answer("red");
        }
    });
    record(&place, &launch, "holds_a_question", &run);
    run.succeeded();
    let asked = asked.unwrap_or_else(|| panic!("a question was held: {}", run.story()));
    assert_eq!(&*asked.text, "Which colour?");
    assert_eq!(asked.options, ["Blue".into(), "Red".into()]);
    let requests = place.server.requests();
    let last = requests.iter().rfind(|request| request.scripted).unwrap().body.to_string();
    assert!(last.contains("Red"), "the answer reached the model: {last}");
    assert_eq!(run.reader.questions().count(), 0);
}

/// With permissions to be asked for, a tool waits for a person, and a refusal is respected.
fn holds_a_permission(case: Case) {
    let place = Place::new(case, "permission", "");
    place.script(&format!(
        "{}{}say Done.",
        case.shell("touch first-was-run"),
        case.shell("touch second-was-run")
    ));
    let mut launch = place.launch("Please.");
    launch.permissions = Permissions::Ask;
    let mut answers = Vec::new();
    let run = run(&place, &launch, |_, hands| {
        if let Some(question) = hands.question().cloned() {
            let allows = answers.is_empty();
            // The shortest is the one that allows once.
            let option = question.options.iter().filter(|option| {
                let option = option.to_lowercase();
                if allows { option.contains("allow") } else { refuses(&option) }
            });
            let option = option.min_by_key(|option| option.len());
            let option = option.unwrap_or_else(|| panic!("{question:?}")).clone();
            hands.answer(&option);
            answers.push(question);
        }
    });
    record(&place, &launch, "holds_a_permission", &run);
    assert_eq!(answers.len(), 2, "both tools were asked for: {}", run.story());
    assert!(place.tree().join("first-was-run").exists(), "{}", run.story());
    assert!(!place.tree().join("second-was-run").exists(), "{}", run.story());
}

fn refuses(option: &str) -> bool {
    ["deny", "reject", "no", "cancel"].iter().any(|word| option.starts_with(word))
}

/// Three megabytes in one message.
fn says_much(case: Case) {
    let place = Place::new(case, "much", "huge 3000000");
    let launch = place.launch("Please say much.");
    let run = run(&place, &launch, |_, _| {});
    run.succeeded();
    let longest = run.what().filter_map(|what| match what {
        Observation::Event(Event {
            kind: EventKind::AssistantMessage,
            detail: Detail::Text(text),
        }) => Some(text.bytes),
        _ => None,
    });
    assert_eq!(longest.max(), Some(3_000_000), "the whole length is known: {}", run.story());
}

//! Whole runs: the real runner with real sandboxes and real git, before a control plane in memory.
//! What is claimed is judged from outside: by `/proc`, by git, by what control was told.

mod control;
#[path = "../support/person.rs"]
mod person;
mod world;

use std::time::Duration;

use belay_api::port::{Assignment, Ending, Found, Seen};
use belay_kernel::attempt::Phase;
use belay_kernel::publish::{Publish, PushOutcome};
use belay_kernel::task::Plan;
use belay_kernel::termination::Step;
use belay_kernel::{AttemptNumber, Cause, Epoch, HeartbeatStatus, SandboxId, Span};
use belay_sandbox::Use;
use control::Row;
use person::git;
use world::{World, eventually, marked};

/// How an attempt failed.
fn failure(row: &Row) -> (Cause, &str) {
    match row.ending.as_ref().expect("it ended") {
        Ending::Failed { cause, message, .. } => (*cause, message),
        Ending::Succeeded(left) => panic!("it succeeded: {left:?}"),
    }
}

fn kept(row: &Row) -> (String, String) {
    let tree = row.found.iter().find_map(|(_, found)| match found {
        Found::Tree { commit, diff, .. } => {
            Some((commit.to_string(), String::from_utf8_lossy(diff).into_owned()))
        }
        Found::Nothing | Found::Dead { .. } | Found::Transcript(_) => None,
    });
    tree.expect("a tree was kept")
}

/// The attempt that follows in the same session.
fn next(assignment: &Assignment, row: &Row) -> Assignment {
    let mut next = assignment.clone();
    next.who.attempt = AttemptNumber(assignment.who.attempt.0 + 1);
    next.who.epoch = Epoch(assignment.who.epoch.0 + 1);
    next.sandbox = SandboxId::from_bits(assignment.sandbox.as_bits() ^ (1 << 70));
    next.plan = Plan::Same;
    next.kept = Some(kept(row).0.parse().unwrap());
    next
}

#[tokio::test]
async fn work_is_run_reported_kept_and_published() {
    let world = World::new();
    let mut assignment = world.assignment(
        "cat; echo; cat \"$BELAY_PROMPT_FILE\"; echo made > new.txt; echo all done > \
         \"$BELAY_SUMMARY_FILE\"; echo x 2>/dev/null > \"$BELAY_PROMPT_FILE\" || echo read-only",
    );
    assignment.work.publish = true;
    let row = world.run(assignment.clone()).await;
    assert_eq!(row.text(), "Do it.\nDo it.read-only\n");
    let (outcome, left) = &row.settled[0];
    assert_eq!((*outcome, left.changed), (PushOutcome::Pushed, true));
    assert_eq!(left.summary.as_deref(), Some("all done"));
    let branch = format!("refs/heads/{}", assignment.work.branch);
    assert_eq!(git(&world.base(), &["show", &format!("{branch}:new.txt")]), "made");
    let (commit, diff) = kept(&row);
    assert_eq!(
        git(&world.base(), &["rev-parse", &branch]),
        commit,
        "what is kept is what is there"
    );
    assert!(diff.contains("+made"), "{diff}");
    assert!(row.statuses.contains(&HeartbeatStatus::Running));
    let steps: Vec<_> = row.found.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [Step::Kill, Step::SaveTranscript, Step::SaveTree, Step::Destroy]);
    assert_eq!(marked(assignment.sandbox), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_that_is_to_be_forgotten_leaves_nothing_but_kept_work() {
    let world = World::new();
    let assignment = world.assignment("echo half > half.txt; exit 1");
    let row = world.run(assignment.clone()).await;
    let session = assignment.session.to_string();
    let places = [format!("runner/git/trees/{session}"), format!("runner/runs/sessions/{session}")];
    for place in &places {
        assert!(world.path(place).is_dir(), "{place}");
    }
    let runner = world.runner();
    world.control.forget(assignment.session);
    eventually("it is forgotten", || world.control.has_forgotten()).await;
    runner.abort();
    for place in &places {
        assert!(!world.path(place).exists(), "{place}");
    }
    let left = std::fs::read_dir(world.path("runner/git/trees")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    let mirror = std::fs::read_dir(world.path("runner/git/mirrors")).unwrap().flatten().next();
    let refs = git(&mirror.unwrap().path(), &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let (commit, _) = kept(&row);
    assert!(refs.contains(&commit) && !refs.contains("refs/belay/base/"), "{refs}");
}

const COUNT: &str = "i=0; while [ $i -lt 150 ]; do echo \"line $i of $$\"; echo \"error $i\" >&2; \
                     i=$((i+1)); sleep 0.01; done; sleep 0.3";

#[tokio::test]
async fn a_runner_that_is_dropped_and_made_again_loses_and_doubles_nothing() {
    let world = World::new();
    let assignment = world.assignment(COUNT);
    let who = assignment.who;
    world.control.queue(assignment.clone());
    let mut seen = 0;
    let mut pids = Vec::new();
    for lines in [5, 40, 80] {
        let runner = world.runner();
        let row = world.see(who, "lines", |row| row.text().lines().count() > 2 * lines).await;
        assert!(row.transcript.len() > seen);
        seen = row.transcript.len();
        pids.push(marked(assignment.sandbox));
        // What is under way is dropped wherever it stands, as by a crash.
        runner.abort();
        let _ = runner.await;
        assert!(!marked(assignment.sandbox).is_empty(), "the agent lives on");
    }
    let runner = world.runner();
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    let text = row.text();
    let stdout: Vec<&str> = text.lines().filter(|line| line.starts_with("line")).collect();
    let stderr: Vec<&str> = text.lines().filter(|line| line.starts_with("error")).collect();
    let pid = stdout[0].rsplit(' ').next().unwrap();
    let expected: Vec<_> = (0..150).map(|i| format!("line {i} of {pid}")).collect();
    assert_eq!(stdout, expected, "every line once, by the same process");
    assert_eq!(stderr, (0..150).map(|i| format!("error {i}")).collect::<Vec<_>>());
    assert!(matches!(row.ending, Some(Ending::Succeeded(_))), "{:?}", row.ending);
    assert_eq!(row.assignment.who, who);
}

/// Without that, control would wait for ever to be told what a silent agent printed meanwhile.
#[tokio::test]
async fn a_runner_that_finds_a_silent_agent_again_says_that_everything_is_told() {
    for (script, printed) in [("echo up; sleep 99", "up\n"), ("sleep 99", "")] {
        let world = World::new();
        let assignment = world.assignment(script);
        let who = assignment.who;
        world.control.queue(assignment);
        let first = world.runner();
        world.see(who, "the agent's word", |row| row.told && row.text() == printed).await;
        first.abort();
        let _ = first.await;
        let beats = world.control.row(who).unwrap().statuses.len();
        let second = world.runner();
        world.see(who, "that all is told", |row| row.told && row.statuses.len() > beats + 2).await;
        world.control.stop(who);
        world.see(who, "the end", Row::is_over).await;
        second.abort();
    }
}

/// Silence is judged by what was told: what was printed and is not durable yet is none.
#[tokio::test]
async fn a_runner_says_that_not_everything_is_told_while_its_reports_are_not_taken() {
    let world = World::new();
    let script = "echo one; until [ -e go ]; do sleep 0.05; done; echo two; sleep 99";
    let assignment = world.assignment(script);
    let who = assignment.who;
    let runner = world.runner_of(&assignment, "one").await;
    world.see(who, "that all is told", |row| row.told).await;
    world.control.set_deaf(true);
    let tree = world.path("runner/git/trees").join(assignment.session.to_string());
    std::fs::write(tree.join("go"), "").unwrap();
    let row = world.see(who, "that not all is told", |row| !row.told).await;
    let beats = row.statuses.len() + 3;
    let row = world.see(who, "more beats", |row| row.statuses.len() >= beats).await;
    assert!(!row.told, "nothing was taken since");
    world.control.set_deaf(false);
    world.see(who, "the rest", |row| row.told && row.text() == "one\ntwo\n").await;
    world.control.stop(who);
    world.see(who, "the end", Row::is_over).await;
    runner.abort();
}

#[tokio::test]
async fn a_stop_in_flight_ends_daemonised_children_and_keeps_the_work() {
    let world = World::new();
    let assignment = world.assignment(
        "echo half > half.txt; (setsid sh -c 'trap \"\" TERM INT; sleep 99' >/dev/null 2>&1 &); \
         trap '' TERM; echo up; while :; do sleep 0.1; done",
    );
    let who = assignment.who;
    let runner = world.runner_of(&assignment, "up").await;
    assert!(marked(assignment.sandbox).len() >= 2);
    world.control.stop(who);
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    assert_eq!(marked(assignment.sandbox), Vec::<String>::new());
    let dead = row.found.iter().find_map(|(_, found)| match found {
        Found::Dead { processes } => Some(*processes),
        _ => None,
    });
    assert!(dead.is_some_and(|count| count >= 2), "{dead:?}");
    assert!(kept(&row).1.contains("+half"), "partial work is kept");
    assert_eq!(row.ending, None, "a driver that finishes late says nothing");
    assert_eq!(git(&world.base(), &["branch", "--list", "belay/*"]), "", "and never pushed");
}

#[tokio::test]
async fn a_question_in_the_file_is_asked_and_its_answer_goes_on_in_the_same_tree() {
    let world = World::new();
    let mut assignment = world.assignment(
        "if [ -e asked ]; then cat; exit; fi; touch asked; \
         echo '{\"text\":\"Which port?\",\"options\":[\"80\"]}' > \"$BELAY_QUESTION_FILE\"",
    );
    assignment.work.publish = true;
    let row = world.run(assignment.clone()).await;
    let asked = &row.asked[0];
    assert_eq!((&*asked.text, asked.held, asked.options.len()), ("Which port?", false, 1));
    assert_eq!((row.ending.is_none(), row.settled.len()), (true, 0), "questions never publish");

    let mut again = next(&assignment, &row);
    again.prompt.whole = "80 it is.".into();
    let row = world.run(again.clone()).await;
    assert_eq!(row.text(), "80 it is.");
    let (outcome, left) = &row.settled[0];
    assert_eq!(*outcome, PushOutcome::Pushed, "what the first attempt made is published");
    assert!(!left.changed, "the second one changed nothing");
}

/// An agent that speaks as Claude Code does: it holds a question, and stays after its result.
const CLAUDE: &str = r#"#!/bin/sh
read -r prompt
id='"session_id":"00000000-0000-49ea-8000-00000000000d"'
options='[{"label":"Blue","description":"b"},{"label":"Red","description":"r"}]'
question='{"question":"Which colour?","header":"C","multiSelect":false,"options":'"$options}"
input='{"questions":['"$question]}"
tool='"subtype":"can_use_tool","tool_name":"AskUserQuestion","tool_use_id":"call_0"'
echo '{"type":"system","subtype":"init",'"$id}"
echo '{"type":"control_request","request_id":"q-1","request":{'"$tool"',"input":'"$input}}"
read -r answer
echo "$answer" >> answers.txt
echo "$answer" >&2
usage='"total_cost_usd":0.5,"usage":{"input_tokens":3,"output_tokens":4}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"ok",'"$usage,$id}"
sleep 99
"#;

#[tokio::test]
async fn a_held_question_is_answered_into_the_same_turn_and_a_quiet_agent_is_ended() {
    let world = World::new();
    let mut assignment = world.assignment("");
    assignment.work.agent = "claude".into();
    assignment.work.command = vec![world.program("claude", CLAUDE)];
    let who = assignment.who;
    world.control.queue(assignment.clone());
    let runner = world.runner();
    let row = world.see(who, "the question", |row| !row.asked.is_empty()).await;
    assert_eq!((&*row.asked[0].text, row.asked[0].held), ("Which colour?", true));
    let processes = marked(assignment.sandbox);

    // The runner falls while the question is held, and asks nothing twice.
    runner.abort();
    let _ = runner.await;
    world.control.answer(who, row.asked[0].question, "Red");
    let runner = world.runner();
    world.see(who, "the result", |row| row.text().contains("\"result\"")).await;
    assert!(!processes.is_empty() && !marked(assignment.sandbox).is_empty());
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    assert_eq!(row.asked.len(), 1);
    assert!(matches!(row.ending, Some(Ending::Succeeded(_))), "{:?}", row.ending);
    let diff = kept(&row).1;
    assert!(diff.contains(r#""answers":{"Which colour?":"Red"}"#), "{diff}");
    assert_eq!(diff.matches("control_response").count(), 1, "one answer: {diff}");
    let usage = row.seen.iter().filter(|seen| matches!(seen, Seen::Usage(_))).count();
    assert_eq!(usage, 1, "{:?}", row.seen);
    assert!(row.statuses.contains(&HeartbeatStatus::Running));
    assert_eq!(marked(assignment.sandbox), Vec::<String>::new());
}

#[tokio::test]
async fn an_attempt_that_is_fenced_is_killed_at_once() {
    let world = World::new();
    let assignment = world.assignment("trap '' TERM; echo up; while :; do sleep 0.1; done");
    let who = assignment.who;
    let runner = world.runner_of(&assignment, "up").await;
    world.control.fence(who);
    eventually("the processes are gone", || marked(assignment.sandbox).is_empty()).await;
    runner.abort();
    assert_eq!(world.control.calls("end"), 0);
}

#[tokio::test]
async fn a_push_whose_answer_is_lost_is_found_out() {
    let world = World::new();
    let remote = world.path("remote.git");
    git(&world.path(""), &["clone", "--quiet", "--bare", "base", "remote.git"]);
    let hook = world.program("hook", "#!/bin/sh\nsleep 3\n");
    std::fs::copy(hook, remote.join("hooks/post-receive")).unwrap();
    let mut assignment = world.assignment("echo made > new.txt");
    assignment.work.repository = Some(remote.display().to_string());
    assignment.work.publish = true;
    // The remote has taken the commit when the push is given up.
    assignment.limits.publish = Span::from_millis(700);
    for call in ["open_publish", "settled", "start", "end", "stepped", "report"] {
        world.control.lose(call);
    }
    let row = world.run(assignment.clone()).await;
    assert_eq!(row.settled.len(), 1);
    assert_eq!(row.settled[0].0, PushOutcome::Pushed);
    let branch = assignment.work.branch;
    assert_eq!(git(&remote, &["rev-parse", &branch]), kept(&row).0);
}

#[tokio::test]
async fn a_runner_that_falls_while_it_publishes_goes_on_with_the_same_push() {
    let world = World::new();
    let remote = world.path("remote.git");
    git(&world.path(""), &["clone", "--quiet", "--bare", "base", "remote.git"]);
    let gate = world.path("gate");
    let wait = format!("#!/bin/sh\nwhile [ ! -e {} ]; do sleep 0.02; done\n", gate.display());
    let hook = world.program("hook", &wait);
    std::fs::copy(hook, remote.join("hooks/pre-receive")).unwrap();
    let mut assignment = world.assignment("echo made > new.txt");
    assignment.work.repository = Some(remote.display().to_string());
    assignment.work.publish = true;
    let who = assignment.who;
    world.control.queue(assignment.clone());
    let runner = world.runner();
    let is_publishing = |row: &Row| matches!(row.assignment.phase, Phase::Publishing { .. });
    world.see(who, "the gate", is_publishing).await;
    runner.abort();
    let _ = runner.await;
    std::fs::write(&gate, "").unwrap();
    let runner = world.runner();
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    assert_eq!(row.settled.len(), 1);
    assert_eq!(row.settled[0].0, PushOutcome::Pushed);
    assert_eq!(git(&remote, &["rev-parse", &assignment.work.branch]), kept(&row).0);
}

#[tokio::test]
async fn what_a_remote_refuses_is_not_published_and_published_again_without_the_agent() {
    let world = World::new();
    let remote = world.path("remote.git");
    git(&world.path(""), &["clone", "--quiet", "--bare", "base", "remote.git"]);
    let hook = remote.join("hooks/pre-receive");
    std::fs::copy(world.program("hook", "#!/bin/sh\nexit 1\n"), &hook).unwrap();
    let mut assignment = world.assignment("echo made >> new.txt");
    assignment.work.repository = Some(remote.display().to_string());
    assignment.work.publish = true;
    let row = world.run(assignment.clone()).await;
    assert_eq!(row.settled[0].0, PushOutcome::NotPushed);
    assert!(matches!(row.assignment.publish, Publish::NotPushed(_)));

    std::fs::remove_file(&hook).unwrap();
    let mut again = next(&assignment, &row);
    again.plan = Plan::Republish;
    let row = world.run(again.clone()).await;
    assert_eq!(row.settled[0].0, PushOutcome::Pushed);
    let file = format!("{}:new.txt", again.work.branch);
    assert_eq!(git(&remote, &["show", &file]), "made", "the agent was not run again");
    assert_eq!(row.text(), "");
}

#[tokio::test]
async fn secrets_are_masked_in_what_is_told() {
    let world = World::new();
    let mut assignment = world.assignment(
        "printf 'key is open-ses'; sleep 0.4; echo ame-1234; echo \"$BELAY_TOKEN\"; \
         echo '{\"type\":\"agent.assistant_message\",\"text\":\"it is open-sesame-1234\"}'",
    );
    assignment.work.environment.insert("MY_API_KEY".into(), "open-sesame-1234".into());
    let row = world.run(assignment).await;
    let mut lines = row.transcript.split(|&byte| byte == b'\n');
    assert_eq!(lines.next().unwrap(), b"key is ****************");
    assert!(lines.next().unwrap().iter().all(|&byte| byte == b'*'));
    assert!(!row.text().contains("sesame") && !format!("{:?}", row.seen).contains("sesame"));
    assert!(format!("{:?}", row.seen).contains("it is ****************"));
}

#[tokio::test]
async fn what_cannot_be_run_fails_before_it_starts_with_a_sentence() {
    let world = World::new();
    let mut missing = world.assignment("");
    missing.work.command = vec!["no-such-program".into()];
    let mut nowhere = world.assignment("true");
    nowhere.work.repository = Some(world.path("nowhere").display().to_string());
    let mut unknown = world.assignment("true");
    unknown.work.agent = "hal".into();
    let mut provider = world.assignment("true");
    provider.work.provider = "cloud".into();
    for (assignment, sentence) in [
        (missing, "`no-such-program` was not found"),
        (nowhere, "is not a git repository"),
        (unknown, "`hal` is not an agent"),
        (provider, "no provider `cloud`"),
    ] {
        let row = world.run(assignment).await;
        let (cause, message) = failure(&row);
        assert_eq!(cause, Cause::Configuration, "{message}");
        assert!(message.contains(sentence), "{message}");
    }
    assert_eq!(world.control.calls("start"), 0);
}

#[tokio::test]
async fn work_is_not_published_from_a_sandbox_that_hides_nothing() {
    let mut world = World::new();
    world.bubblewrap = Use::Never;
    let mut assignment = world.assignment("echo ran");
    assignment.work.publish = true;
    let row = world.run(assignment.clone()).await;
    let (cause, message) = failure(&row);
    assert_eq!((cause, row.text().as_str()), (Cause::Configuration, ""), "{message}");
    let mut assignment = world.assignment("echo ran");
    assignment.work.publish = false;
    assert_eq!(world.run(assignment).await.text(), "ran\n");
}

#[tokio::test]
async fn a_task_without_a_repository_has_an_empty_tree_whose_files_are_kept() {
    let world = World::new();
    let mut assignment = world.assignment("ls -A; echo made > new.txt");
    assignment.work.repository = None;
    assignment.work.publish = true;
    let row = world.run(assignment.clone()).await;
    assert_eq!(row.text(), "");
    let Some(Ending::Succeeded(left)) = &row.ending else { panic!("{:?}", row.ending) };
    assert!(left.changed && row.settled.is_empty());
    assert!(kept(&row).1.contains("+made"));

    // Its tree is lost, and made again of what was kept.
    let tree = world.path("runner/git/trees").join(assignment.session.to_string());
    std::fs::remove_dir_all(&tree).unwrap();
    let row = world.run(next(&assignment, &row)).await;
    assert_eq!(row.text(), "new.txt\n");
}

#[tokio::test]
async fn while_control_is_away_the_agent_runs_on_and_nothing_is_lost() {
    let world = World::new();
    let assignment = world.assignment(COUNT);
    let who = assignment.who;
    world.control.queue(assignment.clone());
    let runner = world.runner();
    world.see(who, "lines", |row| row.text().contains("line 10 ")).await;
    world.control.set_unavailable(true);
    eventually("the agent ended", || marked(assignment.sandbox).is_empty()).await;
    world.control.set_unavailable(false);
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    let lines = row.text().lines().filter(|line| line.starts_with("line")).count();
    assert_eq!(lines, 150);
    assert!(matches!(row.ending, Some(Ending::Succeeded(_))));
}

#[tokio::test]
async fn an_agent_that_fails_is_told_with_its_exit() {
    let world = World::new();
    let row = world.run(world.assignment("echo broken; exit 3")).await;
    let (cause, message) = failure(&row);
    assert_eq!((cause, message), (Cause::Crash, "exited with 3"));
    let Some(Ending::Failed { left, .. }) = &row.ending else { panic!() };
    assert!(!left.changed);
}

#[tokio::test]
async fn an_agent_whose_sandbox_is_lost_is_not_run_a_second_time() {
    let world = World::new();
    let assignment = world.assignment("echo ran >> ran.txt; echo up; while :; do sleep 0.1; done");
    let who = assignment.who;
    let runner = world.runner_of(&assignment, "up").await;
    runner.abort();
    let _ = runner.await;
    world.forget_sandbox(&assignment).await;
    assert_eq!(marked(assignment.sandbox), Vec::<String>::new());
    let runner = world.runner();
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    let (cause, message) = failure(&row);
    assert_eq!((cause, message), (Cause::Lost, "the sandbox is not on this machine"));
    assert_eq!(kept(&row).1.matches("+ran").count(), 1);
    let missing = row.found.iter().any(|(_, found)| {
        matches!(found, Found::Transcript(seal) if seal.missing == [(3, i64::MAX as u64)])
    });
    assert!(missing, "what nobody can have any more is named: {:?}", row.found);
}

#[tokio::test]
async fn a_stop_that_finds_a_push_under_way_makes_sure_that_it_never_lands() {
    let mut world = World::new();
    // So long the remote's own answer is waited for.
    world.limits.publish = Span::from_secs(1);
    let remote = world.path("remote.git");
    git(&world.path(""), &["clone", "--quiet", "--bare", "base", "remote.git"]);
    let (first, gate) = (world.path("first"), world.path("gate"));
    // The first push waits in the remote's hook; those after it pass.
    let hook = format!(
        "#!/bin/sh\nmkdir {} 2>/dev/null || exit 0\nwhile [ ! -e {} ]; do sleep 0.02; done\n",
        first.display(),
        gate.display()
    );
    std::fs::copy(world.program("hook", &hook), remote.join("hooks/pre-receive")).unwrap();
    let mut assignment = world.assignment("echo made > new.txt");
    assignment.work.repository = Some(remote.display().to_string());
    assignment.work.publish = true;
    let who = assignment.who;
    world.control.queue(assignment.clone());
    let runner = world.runner();
    eventually("the push waits", || first.exists()).await;
    world.control.stop(who);
    let row = world.see(who, "the end", |row| row.is_over() && !row.settled.is_empty()).await;
    assert_eq!(row.settled[0].0, PushOutcome::NotPushed);
    let branch = assignment.work.branch;
    let fence = git(&remote, &["rev-parse", &branch]);
    std::fs::write(&gate, "").unwrap();
    let late = || {
        std::fs::read_dir(remote.join("objects"))
            .unwrap()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("tmp_objdir"))
    };
    eventually("the late push is over", || !late()).await;
    runner.abort();
    assert_eq!(git(&remote, &["rev-parse", &branch]), fence, "the late push found another value");
    let file = std::process::Command::new("git")
        .args(["cat-file", "-e", &format!("{branch}:new.txt")])
        .current_dir(&remote)
        .status();
    assert!(!file.unwrap().success(), "nothing of the work is there");
}

#[tokio::test]
async fn a_control_plane_that_lost_some_of_the_transcript_is_given_it_again() {
    let world = World::new();
    let assignment = world.assignment(COUNT);
    let who = assignment.who;
    world.control.queue(assignment);
    let runner = world.runner();
    world.see(who, "lines", |row| row.text().contains("line 40 ")).await;
    world.control.cut(who, 100);
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    let text = row.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("line")).collect();
    let pid = lines[0].rsplit(' ').next().unwrap();
    assert_eq!(lines, (0..150).map(|i| format!("line {i} of {pid}")).collect::<Vec<_>>());
}

/// On a clock that jumps to whatever is waited for next, a loop that never waits would hang.
#[tokio::test(start_paused = true)]
async fn a_runner_waits_for_control_and_every_loop_of_it_waits() {
    let world = World::new();
    world.control.set_unavailable(true);
    let runner = world.runner();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(world.control.calls("join"), 0);
    let mut assignment = world.assignment("true");
    assignment.work.provider = "cloud".into();
    let who = assignment.who;
    world.control.queue(assignment);
    world.control.set_unavailable(false);
    let row = world.see(who, "the end", Row::is_over).await;
    assert_eq!(failure(&row).0, Cause::Configuration);
    assert_eq!(world.control.calls("join"), 1);
    let claims = world.control.calls("claim");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let more = world.control.calls("claim") - claims;
    assert!((10..=15).contains(&more), "a claim every five seconds: {more}");
    runner.abort();
}

#[tokio::test]
async fn an_agent_that_is_to_stay_is_frozen_by_the_beat_that_comes_before_the_duty() {
    let world = World::new();
    let init =
        r#"{"type":"system","subtype":"init","session_id":"6f2c1f0e-0000-4000-8000-000000000001"}"#;
    let script = format!("read -r told; echo '{init}'; while :; do sleep 0.05; done");
    let mut assignment = world.assignment(&script);
    assignment.work.agent = "claude".into();
    assignment.work.keep_alive = true;
    let who = assignment.who;
    let runner = world.runner_of(&assignment, "init").await;
    let before = marked(assignment.sandbox).len();
    world.control.set_reticent(true);
    world.control.condemn(who);
    let beats = world.control.calls("beat");
    eventually("beats were answered", || world.control.calls("beat") > beats + 2).await;
    world.control.set_reticent(false);
    let row = world.see(who, "the end", Row::is_over).await;
    runner.abort();
    let steps: Vec<_> = row.found.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [Step::Freeze, Step::SaveTranscript, Step::SaveTree]);
    let after = marked(assignment.sandbox).len();
    world.forget_sandbox(&assignment).await;
    assert!(before > 0 && after > 0, "it is there: {before} processes, then {after}");
}

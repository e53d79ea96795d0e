//! Agents that ask from inside their sandbox: held, answered, asked again after a fall, stopped,
//! let go of; and what they hand in.

use std::fs;
use std::net::TcpListener;

use crate::world::{QUICK, World, wait_for};

/// A world whose server comes back at the same place, as a person's does.
pub(crate) fn fixed(settings: &str, further: &[(&str, &str)]) -> World {
    let port = free_port().to_string();
    let world = World::with(settings, &[&[("BELAY_SERVER_PORT", port.as_str())], further].concat());
    world.up();
    world
}

/// A port that nobody has: below those that the system hands out by itself.
fn free_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..32_000).find(free).expect("a port is free")
}

fn questions(world: &World) -> Vec<Vec<String>> {
    world.rows("SELECT text, coalesce(answer, '-'), attempt FROM questions ORDER BY asked_at")
}

/// What the agent of a task wrote into a file of its tree.
fn made(world: &World, task: &str, file: &str) -> String {
    fs::read_to_string(world.tree(task).join(file)).unwrap_or_default()
}

#[test]
fn a_command_asks_and_is_answered_also_by_a_server_that_fell_meanwhile() {
    let world = fixed(QUICK, &[]);
    let task = world.script(
        &["--publish", "none"],
        "belay ask 'Which colour?' --option red -o teal > made.txt; echo \"ended with $?\"",
    );
    world.reaches(&task, "BLOCKED");
    assert_eq!(world.cell("SELECT variant FROM tasks"), "held");
    let shown = world.belay(&["show", &task]).done().out;
    assert!(shown.contains("Which colour?") && shown.contains("teal"), "{shown}");
    world.crash();
    world.up();
    world.belay(&["answer", &task, "2"]).done();
    world.reaches(&task, "READY");
    assert_eq!(made(&world, &task, "made.txt"), "teal\n");
    assert_eq!(questions(&world), [["Which colour?", "teal", "1"]]);
    assert_eq!(world.attempts(&task).len(), 1, "it was held, not begun again");
    assert!(world.transcript(&task, 1).contains("ended with 0"));
}

#[test]
fn the_same_words_are_one_question_until_it_is_answered_and_then_a_new_one() {
    let world = World::new(QUICK);
    let task = world.script(
        &["--publish", "none"],
        "timeout -s KILL 1 belay ask 'Go on?'; reach broke
         belay ask 'Go on?' > first; reach first
         belay ask 'Go on?' > second",
    );
    world.reached(&task, "broke");
    wait_for("it is asked again", || world.state(&task) == "BLOCKED");
    world.belay(&["answer", &task, "yes"]).done();
    world.reached(&task, "first");
    wait_for("it is asked anew", || questions(&world).len() == 2);
    world.reaches(&task, "BLOCKED");
    world.belay(&["answer", &task, "no"]).done();
    world.reaches(&task, "READY");
    let answers = [made(&world, &task, "first"), made(&world, &task, "second")];
    assert_eq!(answers, ["yes\n", "no\n"], "nobody's yes is used twice");
    assert_eq!(questions(&world), [["Go on?", "yes", "1"], ["Go on?", "no", "1"]]);
}

#[test]
fn an_answer_that_nobody_fetched_is_there_when_the_same_is_asked_again() {
    let world = World::new(QUICK);
    let task = world.script(
        &["--publish", "none"],
        "timeout -s KILL 1 belay ask 'Which?'; reach broke; await answered
         belay ask 'Which?' > made.txt",
    );
    world.reached(&task, "broke");
    world.reaches(&task, "BLOCKED");
    world.belay(&["answer", &task, "this one"]).done();
    world.let_go(&task, "answered");
    world.reaches(&task, "READY");
    assert_eq!(made(&world, &task, "made.txt"), "this one\n");
    assert_eq!(questions(&world).len(), 1);
}

#[test]
fn two_questions_at_once_are_put_one_after_the_other() {
    let world = World::new(QUICK);
    let task = world
        .script(&["--publish", "none"], "belay ask 'One?' > one & belay ask 'Two?' > two & wait");
    for _ in 0..2 {
        wait_for("a question", || world.state(&task) == "BLOCKED");
        let open = world.cell("SELECT text FROM questions WHERE answer IS NULL");
        world.belay(&["answer", &task, &format!("to {open}")]).done();
    }
    world.reaches(&task, "READY");
    assert_eq!(made(&world, &task, "one"), "to One?\n");
    assert_eq!(made(&world, &task, "two"), "to Two?\n");
}

#[test]
fn a_stop_is_final_also_for_an_agent_that_waits_for_an_answer() {
    let world = World::new(QUICK);
    let task = world.script(&[], "belay ask 'Which?' > made.txt");
    world.reaches(&task, "BLOCKED");
    let receipt = world.belay(&["stop", &task]).done().out;
    assert!(receipt.contains("seen to be gone") && receipt.contains("not pushed"), "{receipt}");
    world.nothing_runs();
    assert_eq!(world.state(&task), "CANCELLED");
    world.belay(&["answer", &task, "too late"]).refused(3, "CANCELLED");
    assert_eq!(made(&world, &task, "made.txt"), "");
}

#[test]
fn after_the_linger_time_the_next_attempt_is_told_the_answer() {
    let settings = format!("{QUICK}linger = '1s'\n");
    let world = World::new(&settings);
    let task = world.script(
        &["--publish", "none"],
        "if [ $BELAY_ATTEMPT = 1 ]; then belay ask 'Which colour?' > asked; else cat > told; fi",
    );
    wait_for("the attempt is let go", || world.cell("SELECT variant FROM tasks") == "question");
    world.settles(&task);
    world.nothing_runs();
    assert_eq!(world.attempts(&task)[0][2], "question");
    world.belay(&["answer", &task, "teal"]).done();
    world.reaches(&task, "READY");
    assert_eq!(world.attempts(&task).len(), 2);
    let told = made(&world, &task, "told");
    assert!(told.contains("You asked: Which colour?"), "{told}");
    assert!(told.contains("The answer: teal"), "{told}");
}

#[test]
fn an_agent_that_does_not_wait_leaves_its_question_and_publishes_nothing() {
    let world = World::new(QUICK);
    let refs = world.refs("repo");
    let task = world
        .script(&[], "echo work > made.txt; belay ask 'Which?' --wait 1s; echo \"ended with $?\"");
    wait_for("the attempt is over", || world.cell("SELECT variant FROM tasks") == "question");
    world.settles(&task);
    assert_eq!(world.refs("repo").lines().count(), refs.lines().count(), "questions never publish");
    assert!(world.transcript(&task, 1).contains("ended with 5"));
    assert!(world.belay(&["diff", &task]).done().out.contains("+work"), "the work is kept");
}

#[test]
fn what_is_handed_in_is_the_summary_and_counts_as_progress() {
    let world = World::new(&format!("{QUICK}[caps]\nno_progress = 1\n"));
    let script = "printf '# Done\n\nAll of it.\n' | belay submit-result -
         belay submit-result missing.md || echo \"refused with $?\"
         head -c 100001 /dev/zero | tr '\\0' x > large; belay submit-result large || rm large";
    let task = world.script(&["--publish", "none"], script);
    world.reaches(&task, "READY");
    let shown = world.belay(&["show", &task]).done().out;
    assert!(shown.ends_with("# Done\n\nAll of it.\n"), "{shown}");
    assert!(world.transcript(&task, 1).contains("refused with 1"));
    // Without a change and without a result, the same cap ends it.
    let idle = world.script(&["--publish", "none"], "true");
    wait_for("the brake", || world.why(&idle).contains("no_progress"));
}

#[test]
fn people_are_told_that_it_is_not_for_them() {
    let world = World::new(QUICK);
    world.belay(&["ask", "Which?"]).refused(2, "for agents");
    world.belay(&["submit-result", "-"]).refused(2, "for agents");
}

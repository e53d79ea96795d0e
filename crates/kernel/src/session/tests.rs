//! The session machine: SPEC's table row by row, every state × every event, and the lessons.

use proptest::prelude::*;

use super::*;

fn sandbox(n: u128) -> SandboxId {
    SandboxId::from_bits(n)
}

fn snapshot(n: u128) -> SnapshotId {
    SnapshotId::from_bits(n)
}

/// Words for every event; those that speak of a sandbox speak of number 1 unless they say 2.
fn event(word: &str) -> Event {
    let (one, inactivity) = (sandbox(1), PauseReason::Inactivity);
    let snap = |kept| Event::Snapshotted { sandbox: sandbox(1), reason: inactivity, kept };
    match word {
        "open" => Event::Opened { sandbox: one },
        "memory" => snap(Kept::Memory(snapshot(7))),
        "files" => snap(Kept::Files(snapshot(7))),
        "freeze" => snap(Kept::Frozen(one)),
        "tree" => snap(Kept::Tree),
        "disk" => snap(Kept::Disk(one)),
        "memory2" => Event::Snapshotted {
            sandbox: sandbox(2),
            reason: PauseReason::Orphaned,
            kept: Kept::Memory(snapshot(7)),
        },
        "gone" => Event::Terminated { sandbox: one, how: Termination::Done },
        "gone2" => Event::Terminated { sandbox: sandbox(2), how: Termination::Done },
        "stays" => Event::Terminated { sandbox: one, how: Termination::Failed },
        "stays2" => Event::Terminated { sandbox: sandbox(2), how: Termination::Failed },
        "continue" => Event::Resumed { sandbox: sandbox(2), wake: Wake::Continue },
        "resume" => Event::Resumed { sandbox: sandbox(2), wake: Wake::Resume },
        "resume1" => Event::Resumed { sandbox: one, wake: Wake::Resume },
        "answer" => Event::Resumed { sandbox: sandbox(2), wake: Wake::Answer },
        "attempt" => Event::Resumed { sandbox: sandbox(2), wake: Wake::Attempt },
        "use" => Event::Resumed { sandbox: sandbox(2), wake: Wake::Use },
        "reconnect" => Event::Resumed { sandbox: sandbox(2), wake: Wake::Reconnect },
        "vanish" => Event::Vanished { sandbox: one },
        "vanish2" => Event::Vanished { sandbox: sandbox(2) },
        "unrestorable" => Event::RestoreFailed { snapshot: snapshot(7) },
        "unrestorable8" => Event::RestoreFailed { snapshot: snapshot(8) },
        "done" => Event::Stopped { reason: StopReason::Done },
        "cancel" => Event::Stopped { reason: StopReason::Cancelled },
        "fail" => Event::Stopped { reason: StopReason::Failed },
        "give-up" => Event::Stopped { reason: StopReason::SnapshotFailed },
        _ => panic!("{word}"),
    }
}

const WORDS: [&str; 26] = [
    "open",
    "memory",
    "files",
    "freeze",
    "tree",
    "disk",
    "memory2",
    "gone",
    "gone2",
    "stays",
    "stays2",
    "continue",
    "resume",
    "resume1",
    "answer",
    "attempt",
    "use",
    "reconnect",
    "vanish",
    "vanish2",
    "unrestorable",
    "unrestorable8",
    "done",
    "cancel",
    "fail",
    "give-up",
];

fn short(id: SandboxId) -> u128 {
    id.as_bits()
}

fn describe_kept(kept: Kept) -> String {
    match kept {
        Kept::Memory(_) => "memory".into(),
        Kept::Files(_) => "files".into(),
        Kept::Frozen(id) => format!("frozen#{}", short(id)),
        Kept::Disk(id) => format!("disk#{}", short(id)),
        Kept::Tree => "tree".into(),
    }
}

fn describe(state: &State) -> String {
    let name = |value: serde_json::Value| value.as_str().unwrap().to_owned();
    let left = |leftover: &Option<SandboxId>| {
        leftover.map(|id| format!(" left#{}", short(id))).unwrap_or_default()
    };
    match state {
        State::New => "new".into(),
        State::Running { sandbox } => format!("running#{}", short(*sandbox)),
        State::Pausing { sandbox, kept, .. } => {
            format!("pausing#{} {}", short(*sandbox), describe_kept(*kept))
        }
        State::Paused { reason, kept, leftover } => {
            let reason = name(serde_json::to_value(reason).unwrap());
            format!("paused({reason}) {}{}", describe_kept(*kept), left(leftover))
        }
        State::Stopped { reason, kept, leftover } => {
            let reason = name(serde_json::to_value(reason).unwrap());
            format!("stopped({reason}) {}{}", describe_kept(*kept), left(leftover))
        }
    }
}

fn apply(session: &mut Session, word: &str) -> String {
    match step(session, event(word)) {
        Disposition::Ignore => "ignore".into(),
        Disposition::Deny(deny) => format!("deny {}", deny.code()),
        Disposition::Accept(transition) => {
            *session = session.after(&transition);
            let effects: Vec<_> = transition
                .effects
                .iter()
                .map(|effect| match effect {
                    Effect::Terminate(id) => format!("terminate#{}", short(*id)),
                    Effect::KillKeepDisk(id) => format!("kill-keep-disk#{}", short(*id)),
                    Effect::Fence(id) => format!("fence#{}", short(*id)),
                    Effect::SayRestoreFailed(_) => "say restore failed".into(),
                    Effect::AlertSnapshotFailed => "alert".into(),
                })
                .collect();
            match effects.is_empty() {
                true => describe(&session.state),
                false => format!("{} [{}]", describe(&session.state), effects.join(", ")),
            }
        }
    }
}

/// Runs `script` on a new session: events, `save` and `change` of the tree, `claim` and `ended` of
/// an attempt.
fn check(script: &str, expected: &str) {
    let mut session = Session::new();
    let mut trace = Vec::new();
    for word in script.split_whitespace() {
        match word {
            "save" => session.tree = Tree::Saved,
            "claim" => session.attempt = Attempt::Live,
            "ended" => session.attempt = Attempt::None,
            _ => trace.push(apply(&mut session, word)),
        }
    }
    assert_eq!(trace.join("; "), expected, "{script}");
}

#[test]
fn row_new_to_running_on_the_first_sandbox() {
    check("open", "running#1");
    check("open open", "running#1; deny illegal_move");
}

#[test]
fn row_running_to_paused_when_snapshot_or_pause_is_done() {
    check("open freeze", "running#1; paused(inactivity) frozen#1");
    check(
        "open memory gone",
        "running#1; pausing#1 memory [terminate#1]; paused(inactivity) memory",
    );
    check("open files gone", "running#1; pausing#1 files [terminate#1]; paused(inactivity) files");
    check(
        "open save tree vanish",
        "running#1; pausing#1 tree [terminate#1]; paused(inactivity) tree",
    );
}

#[test]
fn row_running_to_paused_only_without_a_live_attempt() {
    for word in ["memory", "files", "freeze", "tree", "vanish", "done"] {
        check(&format!("open save claim {word}"), "running#1; deny attempt_live");
    }
}

#[test]
fn row_paused_to_running_on_resume_clears_the_pause_reason() {
    for word in ["continue", "resume", "answer", "attempt", "use"] {
        check(
            &format!("open memory gone {word}"),
            "running#1; pausing#1 memory [terminate#1]; paused(inactivity) memory; running#2",
        );
    }
    check("open freeze resume1", "running#1; paused(inactivity) frozen#1; running#1");
}

#[test]
fn row_running_paused_to_stopped_when_over() {
    check(
        "open save done gone",
        "running#1; stopped(done) tree left#1 [terminate#1]; stopped(done) tree",
    );
    check(
        "open save freeze cancel gone",
        "running#1; paused(inactivity) frozen#1; stopped(cancelled) tree left#1 [terminate#1]; \
         stopped(cancelled) tree",
    );
    check(
        "open freeze cancel",
        "running#1; paused(inactivity) frozen#1; stopped(cancelled) disk#1 [kill-keep-disk#1]",
    );
    check(
        "open memory fail gone",
        "running#1; pausing#1 memory [terminate#1]; stopped(failed) memory left#1 [terminate#1]; \
         stopped(failed) memory",
    );
    check(
        "open save give-up",
        "running#1; stopped(snapshot_failed) tree left#1 [terminate#1, alert]",
    );
}

#[test]
fn row_stopped_to_running_only_by_continue_resume_or_answer() {
    let stopped = "running#1; stopped(done) tree left#1 [terminate#1]; stopped(done) tree";
    for word in ["continue", "resume", "answer"] {
        check(&format!("open save done gone {word}"), &format!("{stopped}; running#2"));
    }
    for word in ["attempt", "use"] {
        let denied = format!("{stopped}; deny illegal_move");
        check(&format!("open save done gone {word}"), &denied);
    }
    check("open save done gone reconnect", &format!("{stopped}; deny not_asked"));
}

#[test]
fn lesson_pause_reasons_do_not_stay_after_resume() {
    let json = serde_json::to_value(State::Running { sandbox: sandbox(1) }).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 2, "state and sandbox, nothing else: {json}");
}

#[test]
fn lesson_an_automatic_reconnect_aborts_if_paused_or_stopped() {
    check("open freeze reconnect", "running#1; paused(inactivity) frozen#1; deny not_asked");
}

#[test]
fn lesson_a_terminate_that_failed_keeps_the_id() {
    check(
        "open memory stays gone",
        "running#1; pausing#1 memory [terminate#1]; paused(inactivity) memory left#1; \
         paused(inactivity) memory",
    );
    check(
        "open memory stays resume",
        "running#1; pausing#1 memory [terminate#1]; paused(inactivity) memory left#1; \
         running#2 [fence#1, terminate#1]",
    );
    check("open save done stays", "running#1; stopped(done) tree left#1 [terminate#1]; ignore");
}

#[test]
fn lesson_stopping_never_destroys_the_only_tree() {
    check("open give-up", "running#1; stopped(snapshot_failed) disk#1 [kill-keep-disk#1, alert]");
    check("open done resume1", "running#1; stopped(done) disk#1 [kill-keep-disk#1]; running#1");
    check(
        "open done resume",
        "running#1; stopped(done) disk#1 [kill-keep-disk#1]; running#2 [fence#1]",
    );
}

#[test]
fn a_session_pauses_only_if_it_could_be_resumed() {
    check("open tree", "running#1; deny illegal_move");
    check("open disk", "running#1; deny illegal_move");
    check("open vanish", "running#1; stopped(failed) tree");
    check("open save vanish", "running#1; paused(orphaned) tree");
    check(
        "open claim save vanish ended vanish",
        "running#1; deny attempt_live; paused(orphaned) tree",
    );
}

#[test]
fn a_restore_that_fails_clears_the_snapshot_and_says_so() {
    check(
        "open memory gone unrestorable unrestorable",
        "running#1; pausing#1 memory [terminate#1]; paused(inactivity) memory; \
         paused(inactivity) tree [say restore failed]; ignore",
    );
    check(
        "open files gone done unrestorable8 unrestorable",
        "running#1; pausing#1 files [terminate#1]; paused(inactivity) files; \
         stopped(done) files; ignore; stopped(done) tree [say restore failed]",
    );
}

#[test]
fn what_speaks_of_another_sandbox_is_ignored() {
    check("open memory2 vanish2 gone2", "running#1; ignore; ignore; ignore");
    check(
        "open memory gone2 vanish2 stays2 gone",
        "running#1; pausing#1 memory [terminate#1]; ignore; ignore; ignore; \
         paused(inactivity) memory",
    );
    check(
        "open freeze vanish2 gone vanish",
        "running#1; paused(inactivity) frozen#1; ignore; paused(inactivity) tree; ignore",
    );
}

#[test]
fn a_new_sandbox_in_a_running_session_fences_the_old_one() {
    check("open resume", "running#1; running#2 [fence#1]");
    check("open resume1", "running#1; ignore");
}

#[test]
fn the_tree_is_unsaved_as_soon_as_something_runs() {
    let mut session = Session::new();
    assert_eq!(session.tree, Tree::Saved);
    apply(&mut session, "open");
    assert_eq!((session.tree, session.revision), (Tree::Unsaved, Revision(1)));
    session.tree = Tree::Saved;
    apply(&mut session, "tree");
    assert_eq!((session.tree, session.revision), (Tree::Saved, Revision(2)));
    apply(&mut session, "gone");
    apply(&mut session, "resume");
    assert_eq!((session.tree, session.revision), (Tree::Unsaved, Revision(4)));
}

fn states() -> [State; 6] {
    let (reason, kept) = (PauseReason::Blocked, Kept::Memory(snapshot(7)));
    [
        State::New,
        State::Running { sandbox: sandbox(1) },
        State::Pausing { sandbox: sandbox(1), reason, kept },
        State::Paused { reason, kept, leftover: Some(sandbox(1)) },
        State::Paused { reason, kept: Kept::Frozen(sandbox(1)), leftover: None },
        State::Stopped { reason: StopReason::Done, kept, leftover: Some(sandbox(1)) },
    ]
}

#[test]
fn every_state_times_every_event_moves_only_where_the_table_says() {
    for state in states() {
        let mut accepted = Vec::new();
        for word in WORDS {
            let mut session = Session { state, tree: Tree::Saved, ..Session::new() };
            let outcome = apply(&mut session, word);
            if outcome.starts_with("deny") || outcome == "ignore" {
                assert_eq!(session.revision, Revision(0));
                continue;
            }
            let kind = match event(word) {
                Event::Opened { .. } => "opened",
                Event::Snapshotted { .. } => "snapshotted",
                Event::Terminated { .. } => "terminated",
                Event::Resumed { .. } => "resumed",
                Event::Vanished { .. } => "vanished",
                Event::RestoreFailed { .. } => "restore_failed",
                Event::Stopped { .. } => "stopped",
            };
            assert!(legal(&state).contains(&kind), "{} {word}", describe(&state));
            accepted.push(kind);
        }
        for kind in legal(&state) {
            let only_with_snapshot = *kind == "restore_failed";
            let frozen = matches!(state, State::Paused { kept: Kept::Frozen(_), .. });
            let possible = accepted.contains(kind) || (only_with_snapshot && frozen);
            assert!(possible, "{} lists {kind}", describe(&state));
        }
    }
}

#[test]
fn sandboxes_are_named_as_long_as_they_matter() {
    let named = |state: State, n| state.names(sandbox(n));
    let [new, running, pausing, left, frozen, stopped] = states();
    for state in [running, pausing, left, frozen, stopped] {
        assert!(named(state, 1) && !named(state, 2), "{}", describe(&state));
    }
    assert!(!named(new, 1));
    let (reason, kept) = (PauseReason::Ready, Kept::Disk(sandbox(2)));
    assert!(named(State::Pausing { sandbox: sandbox(1), reason, kept }, 2));
    assert_eq!(running.sandbox(), Some(sandbox(1)));
    assert_eq!(pausing.sandbox(), None);
}

#[test]
fn lesson_display_status_is_derived_from_the_row() {
    let shown = |state, attempt| {
        serde_json::to_string(&display(&Session { state, attempt, ..Session::new() })).unwrap()
    };
    let running = State::Running { sandbox: sandbox(1) };
    assert_eq!(shown(State::New, Attempt::None), r#"{"status":"new"}"#);
    assert_eq!(shown(running, Attempt::Live), r#"{"status":"working"}"#);
    assert_eq!(shown(running, Attempt::None), r#"{"status":"waiting"}"#);
    assert_eq!(shown(states()[2], Attempt::None), r#"{"status":"pausing"}"#);
    for (reason, json) in [
        (PauseReason::Blocked, r#"{"status":"needs_answer"}"#),
        (PauseReason::Ready, r#"{"status":"needs_review"}"#),
        (PauseReason::Inactivity, r#"{"status":"paused","reason":"inactivity"}"#),
        (PauseReason::Orphaned, r#"{"status":"paused","reason":"orphaned"}"#),
    ] {
        let paused = State::Paused { reason, kept: Kept::Tree, leftover: None };
        assert_eq!(shown(paused, Attempt::None), json);
    }
    assert_eq!(shown(states()[5], Attempt::None), r#"{"status":"stopped","reason":"done"}"#);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// A sandbox that the session had and no longer names was terminated, was seen gone, or is
    /// fenced from now on: none is forgotten.
    #[test]
    fn no_sandbox_is_forgotten(script in prop::collection::vec(0..WORDS.len(), 0..30)) {
        let mut session = Session::new();
        for index in script {
            let (before, word) = (session, WORDS[index]);
            let transition = match step(&session, event(word)) {
                Disposition::Accept(transition) => transition,
                Disposition::Ignore | Disposition::Deny(_) => continue,
            };
            session = session.after(&transition);
            prop_assert_eq!(session.revision, before.revision.next());
            for id in [sandbox(1), sandbox(2)] {
                let dropped = before.state.names(id) && !session.state.names(id);
                let seen_gone = matches!(
                    event(word),
                    Event::Terminated { how: Termination::Done, sandbox }
                        | Event::Vanished { sandbox } if sandbox == id
                );
                let fenced = transition.effects.contains(&Effect::Fence(id));
                prop_assert!(!dropped || seen_gone || fenced, "{}", describe(&before.state));
            }
        }
    }
}

#[test]
fn a_session_waits_with_its_task_and_is_over_with_it() {
    use crate::cause::Cause;
    use crate::clock::Clock;
    use crate::id::{AttemptNumber, QuestionId};
    use crate::task::{Blocked, Failure, Plan, State as T};
    let (attempt, plan) = (AttemptNumber(1), Plan::Same);
    let question = QuestionId::from_bits(1);
    for (state, rest) in [
        (T::Ready { attempt }, Rest::Pause(PauseReason::Ready)),
        (T::Blocked(Blocked::Question { question }), Rest::Pause(PauseReason::Blocked)),
        (T::Blocked(Blocked::Subtasks { attempt }), Rest::Pause(PauseReason::Blocked)),
        (T::Pending { plan }, Rest::Pause(PauseReason::Inactivity)),
        (T::Queued { plan, not_before: None }, Rest::Pause(PauseReason::Inactivity)),
        (T::Claimed { attempt, plan }, Rest::Pause(PauseReason::Inactivity)),
        (T::Running { attempt, plan }, Rest::Pause(PauseReason::Inactivity)),
        (T::Completed, Rest::Stop(StopReason::Done)),
        (T::Cancelled, Rest::Stop(StopReason::Cancelled)),
        (T::Failed(Failure::Cause(Cause::Crash)), Rest::Stop(StopReason::Failed)),
        (T::TimedOut { clock: Clock::Absolute }, Rest::Stop(StopReason::Failed)),
        (T::BudgetExceeded, Rest::Stop(StopReason::Failed)),
    ] {
        assert_eq!(Rest::of(&state), rest, "{state:?}");
    }
}

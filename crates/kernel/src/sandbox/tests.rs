//! The sandbox machine by script and trace, every state × every event, and SPEC's table row by row.

use proptest::prelude::*;

use super::*;
use crate::time::Span;

const EVENTS: [(&str, Event); 15] = [
    ("alive", Event::SignOfLife),
    ("work", Event::Worked),
    ("completed", Event::Completed),
    ("exit0", Event::Exited(Exit::Success)),
    ("exit1", Event::Exited(Exit::Failure)),
    ("idle", Event::FoundQuiet(Quiet::Idle)),
    ("stuck", Event::FoundQuiet(Quiet::Stuck)),
    ("never", Event::FoundDead(Death::NeverStarted)),
    ("silent", Event::FoundDead(Death::HeartbeatTimeout)),
    ("failed", Event::FoundFailed),
    ("gone", Event::FoundGone),
    ("linger", Event::LingerOver),
    ("pause", Event::Paused),
    ("resume", Event::Resumed),
    ("end", Event::Terminated),
];

fn states() -> [State; 8] {
    [
        State::Created,
        State::Running,
        State::Completed { at: Timestamp::EPOCH },
        State::Resumed,
        State::Idle { why: Quiet::Idle },
        State::Dead { why: Fall::Exited },
        State::Paused,
        State::Terminated,
    ]
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// What an event comes to, in words; `state` follows it.
fn apply(state: &mut State, event: Event, now: Timestamp) -> String {
    match step(state, event, now, &Limits::default()) {
        Disposition::Ignore => "ignore".into(),
        Disposition::Deny(deny) => format!("deny {}", deny.reason.code()),
        Disposition::Accept(Transition { next, effects }) => {
            *state = next;
            let effects: Vec<_> = effects
                .iter()
                .map(|effect| match effect {
                    Effect::EndAttempt(cause) => format!("end {cause}"),
                    Effect::Terminate => "terminate".into(),
                })
                .collect();
            match effects.is_empty() {
                true => next.status().to_string(),
                false => format!("{} [{}]", next.status(), effects.join(", ")),
            }
        }
    }
}

/// Runs `script` from CREATED: event names and `+span`; the trace has one entry per event.
fn check(script: &str, expected: &str) {
    let (mut state, mut now) = (State::Created, Timestamp::EPOCH);
    let mut trace = Vec::new();
    for word in script.split_whitespace() {
        if let Some(span) = word.strip_prefix('+') {
            now = now.after(span.parse::<Span>().unwrap());
            continue;
        }
        let (_, event) = EVENTS.iter().find(|(name, _)| *name == word).unwrap();
        trace.push(apply(&mut state, *event, now));
    }
    assert_eq!(trace.join("; "), expected, "{script}");
}

#[test]
fn row_created_to_running_on_started_or_any_sign_of_life() {
    check("alive", "RUNNING");
    check("work", "RUNNING");
}

#[test]
fn row_created_running_resumed_to_completed_on_completed_or_exit_0() {
    check("completed", "COMPLETED");
    check("exit0", "COMPLETED");
    check("alive completed", "RUNNING; COMPLETED");
    check("alive exit0", "RUNNING; COMPLETED");
    check("completed work completed", "COMPLETED; RESUMED; COMPLETED");
    check("completed work exit0", "COMPLETED; RESUMED; COMPLETED");
}

#[test]
fn row_created_to_dead_when_never_started() {
    check("never", "DEAD [end never_started, terminate]");
}

#[test]
fn row_completed_to_resumed_on_work_and_the_completion_time_is_cleared() {
    check("completed work", "COMPLETED; RESUMED");
    check("completed alive", "COMPLETED; ignore");
    check("completed +5m work +1m linger", "COMPLETED; RESUMED; ignore");
}

#[test]
fn row_running_resumed_to_idle_on_verdict_idle_or_stuck() {
    check("alive idle", "RUNNING; IDLE [end idle_timeout]");
    check("alive stuck", "RUNNING; IDLE [end stuck_running]");
    check("completed work idle", "COMPLETED; RESUMED; IDLE [end idle_timeout]");
    check("completed work stuck", "COMPLETED; RESUMED; IDLE [end stuck_running]");
}

#[test]
fn row_created_running_resumed_to_dead_on_verdict_dead_failed_or_other_exit() {
    for (event, cause) in
        [("silent", "heartbeat_timeout"), ("failed", "agent_failed"), ("exit1", "crash")]
    {
        let dead = format!("DEAD [end {cause}, terminate]");
        check(event, &dead);
        check(&format!("alive {event}"), &format!("RUNNING; {dead}"));
        check(&format!("completed work {event}"), &format!("COMPLETED; RESUMED; {dead}"));
    }
}

#[test]
fn row_running_resumed_completed_idle_to_paused() {
    check("alive pause", "RUNNING; PAUSED");
    check("completed work pause", "COMPLETED; RESUMED; PAUSED");
    check("completed pause", "COMPLETED; PAUSED");
    check("alive idle pause", "RUNNING; IDLE [end idle_timeout]; PAUSED");
    check("pause", "deny illegal_move");
}

#[test]
fn row_paused_to_running_on_resume() {
    check("completed pause resume", "COMPLETED; PAUSED; RUNNING");
}

#[test]
fn row_completed_to_terminated_when_the_linger_time_is_over() {
    check("completed +299.999s linger", "COMPLETED; deny too_early");
    check("completed +5m linger", "COMPLETED; deny too_early");
    check("completed +300.001s linger end", "COMPLETED; COMPLETED [terminate]; TERMINATED");
}

#[test]
fn row_any_to_terminated_when_the_sequence_finished() {
    for mut state in states() {
        let expected = if state == State::Terminated { "ignore" } else { "TERMINATED" };
        assert_eq!(apply(&mut state, Event::Terminated, at(0)), expected);
        assert_eq!(state, State::Terminated);
    }
}

/// One paragraph per state: the events by what they come to.
fn paragraph(state: State) -> String {
    let mut outcomes: Vec<(String, String)> = vec![];
    for (name, event) in EVENTS {
        let word = apply(&mut state.clone(), event, at(300_001));
        let outcome = word.split(" [").next().unwrap().to_owned();
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, names)) => *names += &format!(" {name}"),
            None => outcomes.push((outcome, format!(" {name}"))),
        }
    }
    outcomes.sort();
    let lines: Vec<_> = outcomes.iter().map(|(word, names)| format!("  {word}:{names}")).collect();
    format!("{}\n{}", state.status(), lines.join("\n"))
}

#[test]
fn every_state_times_every_event() {
    let table: Vec<_> = states().into_iter().map(paragraph).collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    CREATED
      COMPLETED: completed exit0
      DEAD: exit1 never silent failed
      RUNNING: alive work
      TERMINATED: end
      deny illegal_move: idle stuck gone linger pause resume
    RUNNING
      COMPLETED: completed exit0
      DEAD: exit1 silent failed
      IDLE: idle stuck
      PAUSED: pause
      TERMINATED: end
      ignore: alive work never gone linger resume
    COMPLETED
      COMPLETED: completed gone linger
      PAUSED: pause
      RESUMED: work
      TERMINATED: end
      deny illegal_move: idle stuck never silent failed resume
      ignore: alive exit0 exit1
    RESUMED
      COMPLETED: completed exit0
      DEAD: exit1 silent failed
      IDLE: idle stuck
      PAUSED: pause
      TERMINATED: end
      ignore: alive work never gone linger resume
    IDLE
      PAUSED: pause
      TERMINATED: end
      deny illegal_move: never silent failed gone linger resume
      ignore: alive work completed exit0 exit1 idle stuck
    DEAD
      TERMINATED: end
      deny illegal_move: idle stuck gone linger pause resume
      deny sandbox_gone: alive work completed
      ignore: exit0 exit1 never silent failed
    PAUSED
      RUNNING: resume
      TERMINATED: end
      deny illegal_move: idle stuck never silent failed gone linger
      ignore: alive work completed exit0 exit1 pause
    TERMINATED
      deny illegal_move: pause resume
      deny sandbox_gone: alive work completed
      ignore: exit0 exit1 idle stuck never silent failed gone linger end
    ");
}

#[test]
fn the_moves_listed_are_the_moves_that_are_made() {
    for state in states() {
        let mut reached: Vec<_> = EVENTS
            .iter()
            .filter_map(|(_, event)| {
                step(&state, *event, at(300_001), &Limits::default()).accepted()
            })
            .map(|transition| transition.next.status())
            .filter(|status| *status != state.status())
            .collect();
        reached.sort();
        reached.dedup();
        let mut listed = state.status().moves().to_vec();
        listed.sort();
        assert_eq!(reached, listed, "{}", state.status());
        let deny = Deny { from: state.status(), reason: Reason::Illegal };
        assert_eq!(deny.legal(), state.status().moves());
    }
}

#[test]
fn lesson_completed_many_times_counts_the_latest_and_ends_nothing() {
    check(
        "alive completed +4m completed +4m linger +61s linger",
        "RUNNING; COMPLETED; COMPLETED; deny too_early; COMPLETED [terminate]",
    );
}

#[test]
fn lesson_completed_sandboxes_are_reaped_after_the_linger_time() {
    check("completed +301s linger end", "COMPLETED; COMPLETED [terminate]; TERMINATED");
    check("completed gone end", "COMPLETED; COMPLETED [terminate]; TERMINATED");
}

#[test]
fn lesson_a_terminate_that_was_not_seen_to_succeed_is_not_terminated() {
    check("alive silent", "RUNNING; DEAD [end heartbeat_timeout, terminate]");
    check(
        "completed +301s linger +1h linger",
        "COMPLETED; COMPLETED [terminate]; COMPLETED [terminate]",
    );
}

#[test]
fn lesson_clean_up_never_fails_a_completed_task() {
    for (name, event) in EVENTS {
        let mut state = State::Completed { at: at(0) };
        let word = apply(&mut state, event, at(300_001));
        assert!(!word.contains("[end "), "{name}: {word}");
    }
}

#[test]
fn what_is_dead_is_told_so() {
    for event in ["alive", "work", "completed"] {
        check(&format!("exit1 {event}"), "DEAD [end crash, terminate]; deny sandbox_gone");
        check(&format!("end {event}"), "TERMINATED; deny sandbox_gone");
    }
}

#[test]
fn rulings_become_events_or_nothing() {
    for (ruling, event) in [
        (Ruling::Dead(Death::NeverStarted), Some("never")),
        (Ruling::Dead(Death::HeartbeatTimeout), Some("silent")),
        (Ruling::Failed, Some("failed")),
        (Ruling::Stuck, Some("stuck")),
        (Ruling::Idle, Some("idle")),
        (Ruling::Gone, Some("gone")),
        (Ruling::Expired, Some("linger")),
        (Ruling::Paused, None),
        (Ruling::AwaitingPerson, None),
        (Ruling::Starting, None),
        (Ruling::Lingering, None),
        (Ruling::Working, None),
    ] {
        let name = Event::from_ruling(ruling)
            .and_then(|event| EVENTS.iter().find(|(_, known)| *known == event))
            .map(|(name, _)| *name);
        assert_eq!(name, event, "{ruling:?}");
    }
}

#[test]
fn the_cause_in_the_state_is_the_cause_in_the_effect() {
    for why in [Fall::NeverStarted, Fall::HeartbeatTimeout, Fall::AgentFailed, Fall::Exited] {
        let transition = fallen(why).accepted().unwrap();
        assert_eq!(transition.effects, [Effect::EndAttempt(why.cause()), Effect::Terminate]);
        assert_eq!(transition.next, State::Dead { why });
    }
    for why in [Quiet::Idle, Quiet::Stuck] {
        let transition = quiet(why).accepted().unwrap();
        assert_eq!(transition.effects, [Effect::EndAttempt(why.cause())]);
        assert_eq!(transition.next, State::Idle { why });
    }
}

#[test]
fn names_are_the_names_on_the_wire() {
    for status in Status::ALL {
        assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
    }
    for state in states() {
        let json = serde_json::to_string(&state).unwrap();
        assert!(json.contains(state.status().name()), "{json}");
        assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state);
    }
}

proptest! {
    #[test]
    fn terminated_absorbs_and_a_live_path_always_leads_there(
        script in prop::collection::vec((0..EVENTS.len(), 0u64..400_000), 0..40),
    ) {
        let (mut state, mut now) = (State::Created, Timestamp::EPOCH);
        for (index, ms) in script {
            now = now.after(Span::from_millis(ms));
            let before = state;
            apply(&mut state, EVENTS[index].1, now);
            if before == State::Terminated {
                prop_assert_eq!(state, State::Terminated);
            } else {
                prop_assert!(before.status().moves().contains(&Status::Terminated));
            }
            if before.status() != state.status() {
                prop_assert!(before.status().moves().contains(&state.status()));
            }
        }
    }
}

#[test]
fn gone_is_what_is_dead_or_terminated() {
    let gone: Vec<_> = states().iter().filter(|state| state.is_gone()).map(State::status).collect();
    assert_eq!(gone, [Status::Dead, Status::Terminated]);
}

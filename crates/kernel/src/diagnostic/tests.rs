//! Tests of the diagnostic rule: each condition spoilt alone, the record as scripts.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp::EPOCH.after(text.parse().unwrap())
}

fn task(number: u128) -> TaskId {
    TaskId::from_bits(number)
}

/// Plays `script` (`time event; …`) on a record and compares made/pending/in a row/in vain.
fn check(script: &str, expected: &str) -> Record {
    let mut record = Record::default();
    let mut trace = Vec::new();
    for line in script.split(';').map(str::trim) {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |text: &str| task(text.parse().unwrap());
        let event = match words[1..] {
            ["start", id] => Event::Started { task: number(id), seen: Vec::new() },
            ["cured", id] => Event::Ended { task: number(id), end: RunEnd::Cured },
            ["in-vain", id] => Event::Ended { task: number(id), end: RunEnd::InVain },
            ["failed", id] => Event::Ended { task: number(id), end: RunEnd::Failed },
            ["retry"] => Event::PersonRetried,
            ref other => panic!("no event {other:?}"),
        };
        let said = match record.step(event, at(words[0]), &Caps::default()) {
            Accept(next) => {
                record = next;
                let (made, pending) = (record.made(), record.pending());
                let (failed, vain) = (record.consecutive_failures(), record.in_vain());
                format!("{made} made, {pending} pending, {failed} failed, {vain} in vain")
            }
            Ignore => "ignore".to_owned(),
            Deny(denial) => format!("deny {denial:?}"),
        };
        trace.push(format!("{line} → {said}"));
    }
    let expected: Vec<_> = expected.lines().map(str::trim).collect();
    assert_eq!(trace, expected);
    record
}

#[test]
fn runs_are_counted_by_round() {
    check(
        "0s start 1; 1s start 2; 2s failed 1; 3s start 2; 4s cured 2; 5s start 3; 6s failed 3; \
         7s start 4; 8s retry; 9s start 4; 10s in-vain 4; 11s retry; 12s retry",
        "0s start 1 → 1 made, 1 pending, 0 failed, 0 in vain
         1s start 2 → deny Pending
         2s failed 1 → 1 made, 0 pending, 1 failed, 0 in vain
         3s start 2 → 2 made, 1 pending, 1 failed, 0 in vain
         4s cured 2 → 2 made, 0 pending, 0 failed, 0 in vain
         5s start 3 → 3 made, 1 pending, 0 failed, 0 in vain
         6s failed 3 → 3 made, 0 pending, 1 failed, 0 in vain
         7s start 4 → deny CapReached
         8s retry → 0 made, 0 pending, 0 failed, 0 in vain
         9s start 4 → 1 made, 1 pending, 0 failed, 0 in vain
         10s in-vain 4 → 1 made, 0 pending, 0 failed, 1 in vain
         11s retry → 0 made, 0 pending, 0 failed, 0 in vain
         12s retry → ignore",
    );
}

#[test]
fn a_run_of_an_older_round_is_still_under_way() {
    check(
        "0s start 1; 1s retry; 2s start 2; 3s failed 1; 4s start 2",
        "0s start 1 → 1 made, 1 pending, 0 failed, 0 in vain
         1s retry → 0 made, 1 pending, 0 failed, 0 in vain
         2s start 2 → deny Pending
         3s failed 1 → 0 made, 0 pending, 0 failed, 0 in vain
         4s start 2 → 1 made, 1 pending, 0 failed, 0 in vain",
    );
}

/// Counters lived in memory and counted the same run each loop.
#[test]
fn lesson_a_run_is_counted_once_and_survives_being_stored() {
    let record = check(
        "0s start 1; 1s start 1; 2s failed 1; 3s failed 1; 4s in-vain 1; 5s start 1; 6s failed 9",
        "0s start 1 → 1 made, 1 pending, 0 failed, 0 in vain
         1s start 1 → ignore
         2s failed 1 → 1 made, 0 pending, 1 failed, 0 in vain
         3s failed 1 → ignore
         4s in-vain 1 → ignore
         5s start 1 → ignore
         6s failed 9 → deny UnknownRun",
    );
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
}

#[test]
fn how_a_run_ended_is_judged_with_the_tasks_it_looked_into() {
    let still_failed = Tally { failed: 1, ..Tally::default() };
    let timed_out = Tally { timed_out: 1, ..Tally::default() };
    let tried_again = Tally { active: 1, ..Tally::default() };
    assert_eq!(RunEnd::of(Standing::Active, &still_failed), None);
    assert_eq!(RunEnd::of(Standing::Completed, &still_failed), Some(RunEnd::InVain));
    assert_eq!(RunEnd::of(Standing::Completed, &timed_out), Some(RunEnd::InVain));
    assert_eq!(RunEnd::of(Standing::Completed, &tried_again), Some(RunEnd::Cured));
    for standing in
        [Standing::Failed, Standing::TimedOut, Standing::Cancelled, Standing::BudgetExceeded]
    {
        assert_eq!(RunEnd::of(standing, &tried_again), Some(RunEnd::Failed));
    }
}

/// Everything that lets a diagnostic start at 60 s; tests spoil one part each.
struct Scene {
    tasks: Tally,
    diagnostics: Tally,
    validated: Validated,
    record: Record,
    repository: Repository,
    last_task_ended: Option<Timestamp>,
    switches: Switches,
    caps: Caps,
}

fn scene() -> Scene {
    Scene {
        tasks: Tally { failed: 1, completed: 1, ..Tally::default() },
        diagnostics: Tally::default(),
        validated: Validated::No,
        record: Record::default(),
        repository: Repository::Clonable,
        last_task_ended: Some(at("0s")),
        switches: Switches::default(),
        caps: Caps::default(),
    }
}

impl Scene {
    fn decide(&self, now: Timestamp) -> Decision {
        let look = Look {
            tasks: &self.tasks,
            diagnostics: &self.diagnostics,
            validated: self.validated,
            record: &self.record,
            repository: self.repository,
            last_task_ended: self.last_task_ended,
        };
        decide(&look, now, &Limits::default(), &self.caps, &self.switches)
    }

    /// The conditions that do not hold, as they are shown; `start` if all do.
    fn told(&self, now: &str) -> Vec<String> {
        match self.decide(at(now)) {
            Decision::Start { seen } => {
                assert_eq!(seen.len(), 12);
                vec!["start".to_owned()]
            }
            Decision::Hold { because, .. } => because.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A record whose runs ended like this, the last at `ended`.
fn record(ends: &[RunEnd], ended: &str) -> Record {
    let run = |(number, end): (u128, &RunEnd)| Run {
        task: task(number),
        round: 0,
        started_at: at("0s"),
        seen: Vec::new(),
        ended: Some((*end, at(ended))),
    };
    Record { round: 0, runs: (1..).zip(ends).map(run).collect() }
}

#[test]
fn a_stuck_workflow_gets_a_diagnostic() {
    assert_eq!(scene().told("60s"), ["start"]);
    let timed_out = Tally { timed_out: 1, ..Tally::default() };
    assert_eq!(Scene { tasks: timed_out, ..scene() }.told("60s"), ["start"]);
    assert_eq!(Scene { repository: Repository::None, ..scene() }.told("60s"), ["start"]);
    assert_eq!(Scene { last_task_ended: None, ..scene() }.told("0s"), ["start"]);
}

#[test]
fn each_condition_alone_stands_in_the_way_and_says_why() {
    use RunEnd::{Cured, Failed, InVain};
    let off = Switches { diagnostics: false, ..Switches::default() };
    let fine = scene().tasks;
    let more = Caps { diagnostics: 9, ..Caps::default() };
    let underway = Record {
        runs: vec![Run { ended: None, ..record(&[Failed], "0s").runs[0].clone() }],
        round: 0,
    };
    for (scene, why) in [
        (Scene { switches: off, ..scene() }, "switched_on: 0, at least 1"),
        (Scene { tasks: Tally { active: 2, ..fine }, ..scene() }, "all_at_rest: 2, at most 0"),
        (Scene { tasks: Tally { failed: 0, ..fine }, ..scene() }, "some_failed: 0, at least 1"),
        (Scene { validated: Validated::Yes, ..scene() }, "no_validated_result: 1, at most 0"),
        (Scene { record: record(&[InVain], "0s"), ..scene() }, "none_in_vain: 1, at most 0"),
        (Scene { record: underway, ..scene() }, "none_pending: 1, at most 0"),
        (
            Scene { diagnostics: Tally { active: 1, ..Tally::default() }, ..scene() },
            "none_pending: 1, at most 0",
        ),
        (
            Scene { record: record(&[Failed; 3], "0s"), caps: more, ..scene() },
            "consecutive_failures: 3, at most 2",
        ),
        (Scene { record: record(&[Cured; 3], "0s"), ..scene() }, "runs: 3, at most 2"),
        (
            Scene { repository: Repository::NotClonable, ..scene() },
            "repository_clonable: 0, at least 1",
        ),
        (
            Scene { record: record(&[Failed], "0.001s"), ..scene() },
            "cool_down: 59.999s, at least 1m",
        ),
        (
            Scene { last_task_ended: Some(at("0.001s")), ..scene() },
            "stuck_for: 59.999s, at least 1m",
        ),
    ] {
        assert_eq!(scene.told("60s"), [why]);
    }
    let none = Scene { tasks: Tally::default(), ..scene() };
    assert_eq!(none.told("60s"), ["has_tasks: 0, at least 1", "some_failed: 0, at least 1"]);
    let no_cap = Scene { caps: Caps { diagnostics: 0, ..Caps::default() }, ..scene() };
    assert_eq!(no_cap.told("60s"), ["runs: 0, at least 1"]);
}

#[test]
fn two_failures_in_a_row_and_two_runs_are_still_allowed() {
    use RunEnd::{Cured, Failed};
    for ends in [[Failed, Failed], [Cured, Failed], [Cured, Cured]] {
        assert_eq!(Scene { record: record(&ends, "0s"), ..scene() }.told("60s"), ["start"]);
    }
}

#[test]
fn waiting_is_over_at_its_end_and_says_when() {
    let waits = Scene {
        record: record(&[RunEnd::Failed], "10s"),
        last_task_ended: Some(at("20s")),
        ..scene()
    };
    for now in ["69.999s", "70s", "79.999s"] {
        let Decision::Hold { recheck_at, .. } = waits.decide(at(now)) else { panic!("{now}") };
        assert_eq!(recheck_at, Some(at("80s")), "{now}");
    }
    assert_eq!(waits.told("69.999s").len(), 2);
    assert_eq!(waits.told("70s"), ["stuck_for: 50s, at least 1m"]);
    assert_eq!(waits.told("80s"), ["start"]);
    let blocked = Scene { repository: Repository::NotClonable, ..waits };
    let Decision::Hold { recheck_at, .. } = blocked.decide(at("21s")) else { panic!("no hold") };
    assert_eq!(recheck_at, None, "waiting alone does not help");
}

/// A simple workflow made no result, and so was diagnosed for ever.
#[test]
fn lesson_a_workflow_that_succeeded_without_a_result_is_left_alone() {
    let done = Tally { completed: 3, cancelled: 1, ..Tally::default() };
    let scene = Scene { tasks: done, ..scene() };
    assert_eq!(scene.told("9999s"), ["some_failed: 0, at least 1"]);
}

/// Diagnostics that completed were started again, because the original had still failed.
#[test]
fn lesson_a_diagnostic_in_vain_needs_a_person_not_another_one() {
    let (caps, switches) = (Caps::default(), Switches::default());
    let vain = record(&[RunEnd::InVain], "0s");
    let needs = Outlook::NeedsHuman(HumanReason::DiagnosedInVain);
    assert_eq!(outlook(&vain, &caps, &switches), needs);
    assert!(!Scene { record: vain.clone(), ..scene() }.told("9999s").contains(&"start".into()));
    let retried = vain.step(Event::PersonRetried, at("1s"), &caps).accepted().unwrap();
    assert_eq!(outlook(&retried, &caps, &switches), Outlook::Possible, "a person reopens");
    assert_eq!(Scene { record: retried, ..scene() }.told("9999s"), ["start"]);
}

/// A new status missing from a hand-written list made runaway spawning.
#[test]
fn lesson_what_is_not_at_rest_stands_in_the_way() {
    let tasks: Tally = [Standing::Failed, Standing::Active].into_iter().collect();
    let scene = Scene { tasks, ..scene() };
    assert_eq!(scene.told("9999s"), ["all_at_rest: 1, at most 0"]);
}

#[test]
fn the_outlook_says_what_a_person_is_wanted_for() {
    use RunEnd::{Cured, Failed, InVain};
    let off = Switches { diagnostics: false, ..Switches::default() };
    let on = Switches::default();
    let more = Caps { diagnostics: 9, ..Caps::default() };
    let caps = Caps::default();
    let human = Outlook::NeedsHuman;
    for (ends, caps, switches, expected) in [
        (&[][..], caps, on, Outlook::Possible),
        (&[Failed, Failed], caps, on, Outlook::Possible),
        (&[Cured, Cured], caps, on, Outlook::Possible),
        (&[Cured, Cured, Cured], caps, on, human(HumanReason::DiagnosticsUsedUp)),
        (&[Failed, Failed, Failed], more, on, human(HumanReason::DiagnosticsFail)),
        (&[Failed, Cured, Failed, Failed], more, on, Outlook::Possible),
        (&[Cured, InVain], more, on, human(HumanReason::DiagnosedInVain)),
        (&[], caps, off, human(HumanReason::DiagnosticsOff)),
    ] {
        assert_eq!(outlook(&record(ends, "0s"), &caps, &switches), expected, "{ends:?}");
    }
    let mut last = record(&[Cured, Cured, Cured], "0s");
    last.runs[2].ended = None;
    assert_eq!(outlook(&last, &caps, &on), Outlook::Possible, "the last one is still under way");
}

proptest! {
    /// However sweeps, ends and persons interleave, also with stale decisions and repeated ends:
    /// a round never has more diagnostics than the cap, and never two at once.
    #[test]
    fn caps_are_never_exceeded(
        moves in proptest::collection::vec((0u8..5, 0u128..12, 0u64..200), 0..150),
    ) {
        let caps = Caps::default();
        let (mut record, mut now, mut next) = (Record::default(), at("0s"), 100u128);
        for (action, choice, seconds) in moves {
            now = now.after(Span::from_secs(seconds));
            let known = record.runs.get(choice as usize % record.runs.len().max(1));
            let known = known.map_or(task(0), |run| run.task);
            let event = match action {
                0 | 1 => {
                    next += 1;
                    Event::Started { task: task(next), seen: Vec::new() }
                }
                2 => Event::Ended { task: known, end: RunEnd::Failed },
                3 => Event::Ended { task: known, end: RunEnd::Cured },
                _ if choice == 0 => Event::PersonRetried,
                _ => Event::Ended { task: known, end: RunEnd::InVain },
            };
            if let Accept(stepped) = record.step(event, now, &caps) {
                record = stepped;
            }
            prop_assert!(record.made() <= caps.diagnostics);
            prop_assert!(record.pending() <= 1);
            for round in 0..=record.round {
                let runs = record.runs.iter().filter(|run| run.round == round).count();
                prop_assert!(runs <= caps.diagnostics as usize);
            }
        }
    }
}

//! Tests of restarts: the command's life as scripts, the decision as a list of reasons.

use proptest::prelude::*;

use super::*;
use crate::limits::Caps;
use crate::role::Stop;
use crate::time::Span;

fn role(desired: Desired, workers: u32) -> Role {
    Role { name: "builder".parse().unwrap(), desired, workers }
}

fn running() -> Role {
    role(Desired::Running, 1)
}

fn at(text: &str) -> Timestamp {
    Timestamp::EPOCH.after(text.parse().unwrap())
}

fn sent() -> Start {
    Start {
        id: CommandId::from_bits(1),
        role: "builder".parse().unwrap(),
        generation: Generation(1),
        runner: RunnerId::from_bits(1),
        deadline: at("120s"),
        phase: Phase::Sent,
    }
}

fn event(words: &[&str]) -> Event {
    match words {
        ["started"] => Event::Acknowledge(Acknowledgement::Started),
        ["failed"] => Event::Acknowledge(Acknowledgement::Failed(Cause::Auth)),
        ["join", worker] => Event::Join(WorkerId::from_bits(worker.parse().unwrap())),
        ["expire"] => Event::ExpireDeadline,
        ["withdraw"] => Event::Withdraw,
        other => panic!("no event {other:?}"),
    }
}

fn show(phase: Phase) -> String {
    match phase {
        Phase::Sent => "SENT".to_owned(),
        Phase::Started => "STARTED".to_owned(),
        Phase::Over(End::Joined(worker)) => format!("JOINED {}", worker.as_bits()),
        Phase::Over(End::Failed(cause)) => format!("FAILED {cause}"),
        Phase::Over(End::Expired) => "EXPIRED".to_owned(),
        Phase::Over(End::Withdrawn) => "WITHDRAWN".to_owned(),
    }
}

fn effect(effect: &Effect) -> String {
    match effect {
        Effect::CountExit(cause) => format!("count {cause}"),
        Effect::ReviewRole => "review".to_owned(),
        Effect::StopWorker(_) => "stop".to_owned(),
    }
}

/// Plays `script` (`time event; …`) on a command sent at 0 s and compares what each event did.
fn check(script: &str, expected: &str) {
    let mut start = sent();
    let mut trace = Vec::new();
    for line in script.split(';').map(str::trim) {
        let words: Vec<_> = line.split_whitespace().collect();
        let said = match start.step(event(&words[1..]), at(words[0])) {
            Accept(transition) => {
                start = transition.start;
                let effects: Vec<_> = transition.effects.iter().map(effect).collect();
                format!("{} [{}]", show(start.phase), effects.join(", "))
            }
            Ignore => "ignore".to_owned(),
            Deny(denial) => format!("deny {}", denial.code()),
        };
        trace.push(format!("{line} → {said}"));
    }
    let expected: Vec<_> = expected.lines().map(str::trim).collect();
    assert_eq!(trace, expected);
}

#[test]
fn a_start_is_answered_and_then_joined() {
    check(
        "1s started; 2s started; 3s join 7; 4s join 7; 5s join 8; 6s started; 7s failed; \
         121s expire; 122s withdraw",
        "1s started → STARTED []
         2s started → ignore
         3s join 7 → JOINED 7 []
         4s join 7 → ignore
         5s join 8 → deny superseded
         6s started → ignore
         7s failed → ignore
         121s expire → ignore
         122s withdraw → ignore",
    );
    check("1s join 7", "1s join 7 → JOINED 7 []");
}

#[test]
fn a_start_that_fails_is_counted_once() {
    check(
        "1s failed; 2s failed; 3s join 7; 4s started; 121s expire; 122s withdraw",
        "1s failed → FAILED auth [count auth, review]
         2s failed → ignore
         3s join 7 → deny superseded
         4s started → deny superseded
         121s expire → ignore
         122s withdraw → ignore",
    );
    check(
        "1s started; 2s failed",
        "1s started → STARTED []
         2s failed → FAILED auth [count auth, review]",
    );
}

#[test]
fn the_deadline_passes_after_two_minutes_and_not_at_them() {
    for first in ["", "1s started; "] {
        let began = if first.is_empty() { "" } else { "1s started → STARTED []\n" };
        check(
            &format!("{first}119.999s expire; 120s expire; 120.001s expire; 121s join 7"),
            &format!(
                "{began}119.999s expire → ignore
                 120s expire → ignore
                 120.001s expire → EXPIRED [count never_started, stop, review]
                 121s join 7 → deny superseded"
            ),
        );
    }
    check("120s join 7", "120s join 7 → JOINED 7 []");
    check("120s started", "120s started → STARTED []");
    check(
        "120.001s join 7; 120.001s started; 120.001s failed",
        "120.001s join 7 → deny superseded
         120.001s started → deny superseded
         120.001s failed → FAILED auth [count auth, review]",
    );
}

#[test]
fn a_stopped_role_withdraws_its_start() {
    check(
        "1s withdraw; 2s started; 3s join 7; 4s withdraw; 5s failed; 121s expire",
        "1s withdraw → WITHDRAWN [stop]
         2s started → deny superseded
         3s join 7 → deny superseded
         4s withdraw → ignore
         5s failed → ignore
         121s expire → ignore",
    );
    check(
        "1s started; 2s withdraw",
        "1s started → STARTED []
         2s withdraw → WITHDRAWN [stop]",
    );
    let worker = WorkerId::from_bits(7);
    let stopped = role(Desired::Stopped(Stop::Drain), 1);
    assert_eq!(sent().admit(worker, &stopped, at("1s")), Deny(Denial::RoleStopped));
    assert!(sent().admit(worker, &running(), at("1s")).accepted().is_some());
    assert_eq!(Denial::RoleStopped.code(), "role_stopped");
}

#[test]
fn every_phase_takes_or_refuses_every_event() {
    let worker = WorkerId::from_bits(7);
    let phases = [
        Phase::Sent,
        Phase::Started,
        Phase::Over(End::Joined(worker)),
        Phase::Over(End::Failed(Cause::Crash)),
        Phase::Over(End::Expired),
        Phase::Over(End::Withdrawn),
    ];
    let events = ["started", "failed", "join 7", "join 8", "expire", "withdraw"];
    let table = |now: Timestamp| {
        phases.map(|phase| {
            let start = Start { phase, ..sent() };
            let letters = events.iter().map(|words| {
                let words: Vec<_> = words.split_whitespace().collect();
                match start.step(event(&words), now) {
                    Accept(_) => '+',
                    Ignore => '.',
                    Deny(Denial::Superseded | Denial::RoleStopped) => '-',
                }
            });
            letters.collect::<String>()
        })
    };
    assert_eq!(table(at("120s")), ["++++.+", ".+++.+", "...-..", "-.--..", "-.--..", "-.--.."]);
    assert_eq!(table(at("120.001s")), ["-+--++", "-+--++", "...-..", "-.--..", "-.--..", "-.--.."]);
}

#[test]
fn the_pending_key_is_held_exactly_while_pending() {
    let key = |phase| Start { phase, ..sent() }.pending_key().cloned();
    let name: RoleName = "builder".parse().unwrap();
    assert_eq!(key(Phase::Sent), Some(name.clone()));
    assert_eq!(key(Phase::Started), Some(name.clone()));
    for end in [End::Joined(WorkerId::from_bits(1)), End::Failed(Cause::Crash), End::Expired] {
        assert_eq!(key(Phase::Over(end)), None);
    }
    assert_eq!(key(Phase::Over(End::Withdrawn)), None);
    assert_eq!(sent().generation_key(), (&name, Generation(1)));
}

#[test]
fn a_runner_carries_out_each_command_once_and_refuses_older_ones() {
    let fresh = Performed::default();
    let begun = Performed { generation: Generation(2), answer: None };
    assert_eq!(fresh.plan(Generation(2)), Plan::StopThenStart(begun));
    // It fell between the note and the answer: again, from the stop on.
    assert_eq!(begun.plan(Generation(2)), Plan::StopThenStart(begun));
    for answer in [Acknowledgement::Started, Acknowledgement::Failed(Cause::Infrastructure)] {
        let done = Performed { answer: Some(answer), ..begun };
        assert_eq!(done.plan(Generation(2)), Plan::Repeat(answer));
        assert_eq!(done.plan(Generation(1)), Plan::Refuse);
        let newer = Performed { generation: Generation(3), answer: None };
        assert_eq!(done.plan(Generation(3)), Plan::StopThenStart(newer));
    }
    assert_eq!(begun.plan(Generation(1)), Plan::Refuse);
}

/// Everything that lets a start happen; tests spoil one part each.
struct Scene {
    role: Role,
    breaker: Breaker,
    claimable: u32,
    live: u32,
    newest: Option<Start>,
    hosts: Vec<Host>,
    switches: Switches,
}

fn host(id: u128, fitness: Fitness) -> Host {
    Host { runner: RunnerId::from_bits(id), fitness }
}

fn scene() -> Scene {
    Scene {
        role: running(),
        breaker: Breaker::default(),
        claimable: 1,
        live: 0,
        newest: None,
        hosts: vec![host(1, Fitness::Fit { free: 1 })],
        switches: Switches::default(),
    }
}

impl Scene {
    fn decide(&self, now: Timestamp) -> Decision {
        let look = Look {
            role: &self.role,
            breaker: &self.breaker,
            claimable: self.claimable,
            live: self.live,
            newest: self.newest.as_ref(),
            hosts: &self.hosts,
        };
        decide(&look, CommandId::from_bits(9), now, &Limits::default(), &self.switches)
    }

    fn codes(&self) -> Vec<&'static str> {
        match self.decide(at("10s")) {
            Decision::Start(_) => vec!["start"],
            Decision::Hold(refusals) => refusals.iter().map(Refusal::code).collect(),
        }
    }
}

#[test]
fn a_claimable_task_without_a_live_worker_makes_one_start() {
    let Decision::Start(start) = scene().decide(at("10s")) else { panic!("no start") };
    assert_eq!(start, Start { id: CommandId::from_bits(9), deadline: at("130s"), ..sent() });
    let newest = Start { phase: Phase::Over(End::Expired), generation: Generation(4), ..sent() };
    let scene = Scene { newest: Some(newest), ..scene() };
    let Decision::Start(start) = scene.decide(at("10s")) else { panic!("no start") };
    assert_eq!(start.generation, Generation(5));
}

#[test]
fn each_reason_not_to_start_is_a_value() {
    let until = at("10.001s");
    let cooling = Breaker::Cooling { until, openings: 1 };
    let off = Switches { auto_restart: false, ..Switches::default() };
    let stopped = role(Desired::Stopped(Stop::Now), 1);
    let started = Start { phase: Phase::Started, ..sent() };
    for (scene, code) in [
        (Scene { switches: off, ..scene() }, "switched_off"),
        (Scene { role: stopped, ..scene() }, "role_stopped"),
        (Scene { role: role(Desired::Running, 0), ..scene() }, "no_workers_wanted"),
        (Scene { claimable: 0, ..scene() }, "no_claimable_task"),
        (Scene { live: 1, ..scene() }, "live_worker_present"),
        (Scene { newest: Some(sent()), ..scene() }, "command_pending"),
        (Scene { newest: Some(started), ..scene() }, "command_pending"),
        (Scene { breaker: cooling, ..scene() }, "breaker_open_until"),
        (Scene { breaker: Breaker::Held { cause: Cause::Auth }, ..scene() }, "breaker_held"),
        (Scene { hosts: vec![], ..scene() }, "no_runner_can_host"),
    ] {
        assert_eq!(scene.codes(), [code]);
    }
    let cooled = Breaker::Cooling { until: at("10s"), openings: 1 };
    assert_eq!(Scene { breaker: cooled, ..scene() }.codes(), ["start"]);
}

#[test]
fn all_reasons_are_told_at_once() {
    let everything = Scene {
        role: role(Desired::Stopped(Stop::Drain), 0),
        breaker: Breaker::Held { cause: Cause::Auth },
        claimable: 0,
        live: 2,
        newest: Some(sent()),
        hosts: vec![host(1, Fitness::Silent), host(2, Fitness::Unfit)],
        switches: Switches { auto_restart: false, ..Switches::default() },
    };
    let command = CommandId::from_bits(1);
    assert_eq!(
        everything.decide(at("10s")),
        Decision::Hold(vec![
            Refusal::SwitchedOff,
            Refusal::RoleStopped,
            Refusal::NoClaimableTask,
            Refusal::LiveWorkerPresent { live: 2 },
            Refusal::CommandPending { command, deadline: at("120s") },
            Refusal::BreakerHeld { cause: Cause::Auth },
            Refusal::NoRunnerCanHost { known: 2 },
        ])
    );
}

#[test]
fn a_command_past_its_deadline_blocks_until_it_is_counted() {
    let scene = Scene { newest: Some(sent()), ..scene() };
    assert!(matches!(scene.decide(at("121s")), Decision::Hold(_)));
}

#[test]
fn the_freest_fit_runner_is_chosen() {
    let fit = |id, free| host(id, Fitness::Fit { free });
    for (hosts, chosen) in [
        (vec![fit(1, 1), fit(2, 3), fit(3, 2)], Some(2)),
        (vec![fit(3, 2), fit(1, 2), fit(2, 2)], Some(1)),
        (vec![host(1, Fitness::Silent), fit(2, 1), host(3, Fitness::Unfit)], Some(2)),
        (vec![fit(1, 0)], None),
        (vec![], None),
    ] {
        assert_eq!(best_host(&hosts), chosen.map(RunnerId::from_bits), "{hosts:?}");
    }
}

/// Every role was restarted when one was needed.
#[test]
fn lesson_only_the_role_that_needs_it_is_started() {
    let idle = Scene { claimable: 0, ..scene() };
    assert_eq!(idle.codes(), ["no_claimable_task"]);
    assert_eq!(scene().codes(), ["start"]);
}

/// Twenty reapers enqueued twenty retries: whatever looked before the commit is refused by a key.
#[test]
fn lesson_concurrent_triggers_make_one_start() {
    let (Decision::Start(one), Decision::Start(two)) =
        (scene().decide(at("10s")), scene().decide(at("11s")))
    else {
        panic!("both decide to start")
    };
    assert_eq!(one.pending_key(), two.pending_key());
    assert_eq!(one.generation_key(), two.generation_key());
    // Even when the first is joined and done with by then.
    let joined = Phase::Over(End::Joined(WorkerId::from_bits(1)));
    let one = Start { phase: joined, ..one };
    assert_eq!(one.pending_key(), None);
    assert_eq!(one.generation_key(), two.generation_key());
}

/// User-stopped agents were restarted; permanent failures restarted for ever.
#[test]
fn lesson_neither_a_stopped_nor_a_broken_role_is_started() {
    for stop in [Stop::Drain, Stop::Now] {
        let scene = Scene { role: role(Desired::Stopped(stop), 3), ..scene() };
        assert_eq!(scene.codes(), ["role_stopped"]);
    }
    let (limits, caps) = (Limits::default(), Caps::default());
    let failed = crate::breaker::Event::Exited(Cause::Configuration);
    let breaker = Breaker::default().step(failed, at("1s"), &limits, &caps);
    assert_eq!(Scene { breaker, ..scene() }.codes(), ["breaker_held"]);
}

/// What a store with the two keys makes of a start.
fn insert(rows: &mut Vec<Start>, start: Start) {
    let taken = rows.iter().any(|row| {
        row.generation_key() == start.generation_key()
            || (row.pending_key().is_some() && row.pending_key() == start.pending_key())
    });
    if !taken {
        rows.push(start);
    }
}

proptest! {
    /// Looks and commits of three nodes in any order, with answers, joins, expiries and stops in
    /// between: at most one start is ever pending, and none is made for a stopped role.
    #[test]
    fn at_most_one_start_is_pending_for_any_interleaving(
        moves in proptest::collection::vec((0u8..8, 0usize..3, 0u64..90), 0..120),
    ) {
        let mut rows: Vec<Start> = Vec::new();
        let mut looked: [Option<Start>; 3] = [None, None, None];
        let mut scene = scene();
        let mut now = at("0s");
        for (action, node, seconds) in moves {
            now = now.after(Span::from_secs(seconds));
            scene.newest = rows.last().cloned();
            let event = match action {
                0 | 1 => {
                    looked[node] = match scene.decide(now) {
                        Decision::Start(start) => Some(start),
                        Decision::Hold(_) => None,
                    };
                    continue;
                }
                2 | 3 => {
                    let start = looked[node].take();
                    if let (Some(start), Desired::Running) = (start, scene.role.desired) {
                        insert(&mut rows, start);
                    }
                    prop_assert!(rows.iter().filter(|r| r.pending_key().is_some()).count() <= 1);
                    continue;
                }
                4 => Event::Acknowledge(Acknowledgement::Started),
                5 => Event::Join(WorkerId::from_bits(node as u128)),
                6 => Event::ExpireDeadline,
                _ => {
                    let stop = scene.role.desired == Desired::Running;
                    let desired =
                        if stop { Desired::Stopped(Stop::Drain) } else { Desired::Running };
                    scene.role.desired = desired;
                    Event::Withdraw
                }
            };
            if let Some(row) = rows.last_mut()
                && let Accept(transition) = row.step(event, now)
            {
                *row = transition.start;
            }
            prop_assert!(rows.windows(2).all(|w| w[0].generation < w[1].generation));
        }
    }
}

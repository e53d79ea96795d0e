//! Tests of the worker's life: scripts in, traces out.

use super::*;

const BOOT: u128 = 7;

fn agent(start_time: u64) -> ProcessIdentity {
    ProcessIdentity::new(4_000, start_time, BOOT).unwrap()
}

fn connection(name: &str) -> ConnectionId {
    ConnectionId::from_bits(u128::from(name.as_bytes()[0]))
}

fn held(number: &str) -> Held {
    let number: u32 = number.parse().unwrap();
    Held { task: TaskId::from_bits(u128::from(number)), attempt: AttemptNumber(number) }
}

fn kind(name: &str) -> Kind {
    let runner = RunnerId::from_bits(1);
    match name {
        "pull" => Kind::Pulling { agent: agent(1) },
        "pull2" => Kind::Pulling { agent: agent(2) },
        "external" => Kind::External { agent: agent(1) },
        "slot" => Kind::Slot { runner, place: Place::Remote },
        "embedded" => Kind::Slot { runner, place: Place::Embedded },
        "slot2" => Kind::Slot { runner: RunnerId::from_bits(2), place: Place::Remote },
        other => panic!("no kind {other}"),
    }
}

fn event(words: &[&str]) -> Event {
    match words {
        ["join", from, what] => Event::Join(connection(from), kind(what)),
        ["beat", from] => Event::Beat(connection(from)),
        ["claim", from, number] => Event::Claim(connection(from), held(number)),
        ["release", number] => Event::Release(held(number)),
        ["leave", from] => Event::Leave(connection(from)),
        ["expire"] => Event::ExpireLease,
        other => panic!("no event {other:?}"),
    }
}

fn show(state: &State) -> String {
    let name = |id: ConnectionId| char::from(u8::try_from(id.as_bits()).unwrap());
    let ms = |end: Timestamp| end.since(Timestamp::EPOCH);
    match state {
        State::Gone => "GONE".to_owned(),
        State::Waiting { connection, ready_until, .. } => {
            format!("WAITING {} until {}", name(*connection), ms(*ready_until))
        }
        State::Active { connection, active_until, held, .. } => {
            let (name, end) = (name(*connection), ms(*active_until));
            format!("ACTIVE {name} #{} until {end}", held.attempt)
        }
    }
}

/// Plays `script` (`time event; …`, times like `61s`) and compares what each event did.
fn check(script: &str, expected: &str) {
    let mut state = State::Gone;
    let mut trace = Vec::new();
    for line in script.split(';').map(str::trim) {
        let words: Vec<_> = line.split_whitespace().collect();
        let now = Timestamp::EPOCH.after(words[0].parse().unwrap());
        let event = event(&words[1..]);
        let taken = state.step(event, now, &Limits::default());
        let said = match &taken {
            Accept(transition) => {
                state = transition.state;
                let change = match transition.change {
                    Change::LeaseOnly => " (lease only)",
                    Change::Moved => "",
                };
                let effect = match transition.effect {
                    Some(Effect::Recover(held, kind)) => {
                        format!(" [recover #{} {:?}]", held.attempt, kind.stop_means())
                    }
                    Some(Effect::ReviewRole) => " [review role]".to_owned(),
                    None => String::new(),
                };
                format!("{}{change}{effect}", show(&state))
            }
            Ignore => "ignore".to_owned(),
            Deny(denial) => format!("deny {}", denial.code()),
        };
        trace.push(format!("{line} → {said}"));
    }
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(trace, expected);
}

#[test]
fn a_worker_joins_claims_releases_and_leaves() {
    check(
        "0s join a slot; 10s beat a; 20s claim a 1; 30s beat a; 40s release 1; 50s leave a",
        "0s join a slot → WAITING a until 1m
         10s beat a → WAITING a until 1m10s (lease only)
         20s claim a 1 → ACTIVE a #1 until 1m20s
         30s beat a → ACTIVE a #1 until 1m30s (lease only)
         40s release 1 → WAITING a until 1m40s
         50s leave a → GONE [review role]",
    );
}

#[test]
fn a_lease_is_over_after_its_end_and_not_at_it() {
    check(
        "0s join a slot; 59.999s expire; 60s expire; 60.001s expire",
        "0s join a slot → WAITING a until 1m
         59.999s expire → ignore
         60s expire → ignore
         60.001s expire → GONE [review role]",
    );
    check(
        "0s join a pull; 0s claim a 1; 59.999s expire; 60s expire; 60.001s expire",
        "0s join a pull → WAITING a until 1m
         0s claim a 1 → ACTIVE a #1 until 1m
         59.999s expire → ignore
         60s expire → ignore
         60.001s expire → GONE [recover #1 Kill]",
    );
    let waiting = State::Waiting {
        connection: connection("a"),
        kind: kind("slot"),
        ready_until: Timestamp::from_millis(60_000),
    };
    for (ms, live) in [(59_999, true), (60_000, true), (60_001, false)] {
        assert_eq!(waiting.is_live(Timestamp::from_millis(ms)), live, "{ms}");
    }
    assert!(!State::Gone.is_live(Timestamp::EPOCH));
}

#[test]
fn a_slots_lease_is_as_long_as_its_attempts() {
    check(
        "0s join a embedded; 0s claim a 1; 61s expire; 600s expire; 600.001s expire",
        "0s join a embedded → WAITING a until 1m
         0s claim a 1 → ACTIVE a #1 until 10m
         61s expire → ignore
         600s expire → ignore
         600.001s expire → GONE [recover #1 Kill]",
    );
}

#[test]
fn a_newer_connection_supersedes_an_older_one() {
    check(
        "0s join a slot; 1s join b slot; 2s beat a; 3s claim a 1; 4s leave a; 5s claim b 1; \
         6s join c slot; 7s beat b; 8s claim b 2; 9s leave b; 10s beat c",
        "0s join a slot → WAITING a until 1m
         1s join b slot → WAITING b until 1m1s
         2s beat a → deny superseded
         3s claim a 1 → deny superseded
         4s leave a → deny superseded
         5s claim b 1 → ACTIVE b #1 until 1m5s
         6s join c slot → ACTIVE c #1 until 1m6s
         7s beat b → deny superseded
         8s claim b 2 → deny superseded
         9s leave b → deny superseded
         10s beat c → ACTIVE c #1 until 1m10s (lease only)",
    );
}

#[test]
fn who_is_gone_must_join_again() {
    check(
        "0s beat a; 0s claim a 1; 0s leave a; 0s expire; 0s release 1; 0s join a pull",
        "0s beat a → deny rejoin_required
         0s claim a 1 → deny rejoin_required
         0s leave a → ignore
         0s expire → ignore
         0s release 1 → ignore
         0s join a pull → WAITING a until 1m",
    );
}

#[test]
fn a_second_wait_for_task_returns_the_task_held() {
    check(
        "0s join a pull; 1s claim a 1; 2s claim a 2; 3s join b pull; 4s claim b 2",
        "0s join a pull → WAITING a until 1m
         1s claim a 1 → ACTIVE a #1 until 1m1s
         2s claim a 2 → deny already_holds_task
         3s join b pull → ACTIVE b #1 until 1m3s
         4s claim b 2 → deny already_holds_task",
    );
    let (connection, kind, end) = (connection("a"), kind("pull"), Timestamp::EPOCH);
    let active = State::Active { connection, kind, active_until: end, held: held("1") };
    assert_eq!(active.held(), Some(held("1")));
    assert_eq!(State::Waiting { connection, kind, ready_until: end }.held(), None);
    assert_eq!(State::Gone.held(), None);
}

#[test]
fn another_process_does_not_inherit_a_task() {
    for other in ["pull2", "slot", "external"] {
        check(
            &format!("0s join a pull; 1s claim a 1; 2s join b {other}"),
            &format!(
                "0s join a pull → WAITING a until 1m
                 1s claim a 1 → ACTIVE a #1 until 1m1s
                 2s join b {other} → WAITING b until 1m2s [recover #1 Kill]"
            ),
        );
    }
    check(
        "0s join a external; 1s claim a 1; 2s join b pull",
        "0s join a external → WAITING a until 1m
         1s claim a 1 → ACTIVE a #1 until 1m1s
         2s join b pull → WAITING b until 1m2s [recover #1 FenceOnly]",
    );
    check(
        "0s join a slot; 1s claim a 1; 2s join b slot2; 3s release 1; 4s join c external",
        "0s join a slot → WAITING a until 1m
         1s claim a 1 → ACTIVE a #1 until 1m1s
         2s join b slot2 → WAITING b until 1m2s [recover #1 Kill]
         3s release 1 → ignore
         4s join c external → WAITING c until 1m4s",
    );
}

#[test]
fn an_external_agent_is_never_killed() {
    check(
        "0s join a external; 1s claim a 1; 2s join b external; 62.001s expire",
        "0s join a external → WAITING a until 1m
         1s claim a 1 → ACTIVE a #1 until 1m1s
         2s join b external → ACTIVE b #1 until 1m2s
         62.001s expire → GONE [recover #1 FenceOnly]",
    );
    check(
        "0s join a external; 1s claim a 1; 2s leave a",
        "0s join a external → WAITING a until 1m
         1s claim a 1 → ACTIVE a #1 until 1m1s
         2s leave a → GONE [recover #1 FenceOnly]",
    );
}

#[test]
fn the_release_of_an_older_attempt_changes_nothing() {
    check(
        "0s join a pull; 1s claim a 1; 2s release 1; 3s claim a 2; 4s release 1; 5s release 2",
        "0s join a pull → WAITING a until 1m
         1s claim a 1 → ACTIVE a #1 until 1m1s
         2s release 1 → WAITING a until 1m2s
         3s claim a 2 → ACTIVE a #2 until 1m3s
         4s release 1 → ignore
         5s release 2 → WAITING a until 1m5s",
    );
}

/// The heartbeat lived in the *waiting* command: whoever claimed was taken for lost.
#[test]
fn lesson_active_liveness_comes_from_whoever_sees_the_agent() {
    check(
        "0s join a pull; 5s claim a 1; 60s beat a; 115s beat a; 170s expire",
        "0s join a pull → WAITING a until 1m
         5s claim a 1 → ACTIVE a #1 until 1m5s
         60s beat a → ACTIVE a #1 until 2m (lease only)
         115s beat a → ACTIVE a #1 until 2m55s (lease only)
         170s expire → ignore",
    );
}

/// Live agents were removed between two beats: a sweep proposes, the worker's row decides.
#[test]
fn lesson_a_beat_before_the_sweeps_commit_saves_the_worker() {
    check(
        "0s join a slot; 61s beat a; 61s expire",
        "0s join a slot → WAITING a until 1m
         61s beat a → WAITING a until 2m1s (lease only)
         61s expire → ignore",
    );
}

/// Heartbeat writes caused storms of updates.
#[test]
fn lesson_a_beat_writes_the_lease_and_nothing_else() {
    for kind_name in ["slot", "pull", "external", "embedded"] {
        let (from, kind) = (connection("a"), kind(kind_name));
        let limits = Limits::default();
        let end = Timestamp::from_millis(9_000);
        for state in [
            State::Waiting { connection: from, kind, ready_until: end },
            State::Active { connection: from, kind, active_until: end, held: held("1") },
        ] {
            let now = Timestamp::from_millis(1_000);
            let beat = state.step(Event::Beat(from), now, &limits).accepted().unwrap();
            assert_eq!((beat.change, beat.effect), (Change::LeaseOnly, None));
            assert_eq!(beat.state.held(), state.held());
        }
    }
}

#[test]
fn a_clock_set_back_never_shortens_a_lease() {
    check(
        "10s join a slot; 1s beat a; 10s claim a 1; 2s beat a",
        "10s join a slot → WAITING a until 1m10s
         1s beat a → WAITING a until 1m10s (lease only)
         10s claim a 1 → ACTIVE a #1 until 1m10s
         2s beat a → ACTIVE a #1 until 1m10s (lease only)",
    );
}

#[test]
fn a_beat_is_answered_ok_rejoin_required_or_superseded() {
    let answer = |state: State, from: &str| {
        let beat = Event::Beat(connection(from));
        BeatAnswer::of(&state.step(beat, Timestamp::EPOCH, &Limits::default()))
    };
    let waiting = State::Waiting {
        connection: connection("a"),
        kind: kind("slot"),
        ready_until: Timestamp::from_millis(60_000),
    };
    assert_eq!(answer(waiting, "a"), BeatAnswer::Ok);
    assert_eq!(answer(waiting, "b"), BeatAnswer::Superseded);
    assert_eq!(answer(State::Gone, "a"), BeatAnswer::RejoinRequired);
    assert_eq!(serde_json::to_string(&BeatAnswer::RejoinRequired).unwrap(), "\"rejoin_required\"");
}

/// A PID was cleared before death was confirmed; EPERM was read as gone; stale PIDs after a
/// reboot hit strangers.
#[test]
fn lesson_a_process_is_gone_only_if_that_is_certain() {
    let process = |start_time, boot, run| Sighting::Process { start_time, boot, run };
    for (sighting, fate) in [
        (process(1, BOOT, Run::Alive), Fate::Alive),
        (process(1, BOOT, Run::Zombie), Fate::Gone),
        (process(2, BOOT, Run::Alive), Fate::Gone),
        (process(1, BOOT + 1, Run::Alive), Fate::Gone),
        (process(2, BOOT, Run::Zombie), Fate::Gone),
        (Sighting::NoProcess, Fate::Gone),
        (Sighting::PermissionDenied, Fate::Unknown),
        (Sighting::Unreadable, Fate::Unknown),
    ] {
        assert_eq!(agent(1).fate(sighting), fate, "{sighting:?}");
    }
}

#[test]
fn processes_of_one_and_below_are_refused_wherever_they_come_from() {
    for pid in [i32::MIN, -4_000, -1, 0, 1] {
        assert_eq!(ProcessIdentity::new(pid, 1, BOOT), Err(PidError(pid)));
        let json = format!(r#"{{"pid":{pid},"start_time":1,"boot":7}}"#);
        assert!(serde_json::from_str::<ProcessIdentity>(&json).is_err(), "{pid}");
    }
    let two = ProcessIdentity::new(2, 3, BOOT).unwrap();
    assert_eq!((two.pid(), two.start_time(), two.boot()), (2, 3, BOOT));
    let json = serde_json::to_string(&two).unwrap();
    assert_eq!(serde_json::from_str::<ProcessIdentity>(&json).unwrap(), two);
}

/// Every state × every event, from the current connection and from another one.
#[test]
fn every_state_takes_or_refuses_every_event() {
    let end = Timestamp::from_millis(60_000);
    let (a, b) = (connection("a"), connection("b"));
    let states = [
        State::Gone,
        State::Waiting { connection: a, kind: kind("pull"), ready_until: end },
        State::Active { connection: a, kind: kind("pull"), active_until: end, held: held("1") },
    ];
    let events = [
        Event::Join(b, kind("pull")),
        Event::Beat(a),
        Event::Beat(b),
        Event::Claim(a, held("2")),
        Event::Claim(b, held("2")),
        Event::Release(held("1")),
        Event::Leave(a),
        Event::Leave(b),
        Event::ExpireLease,
    ];
    // W, A, G: accepted into that state; . ignored; s, r, h: superseded, rejoin, holds.
    let expected = ["Wrrrr....", "WWsAs.Gs.", "AAshsWGs."];
    let table = states.map(|state| {
        let letters =
            events.iter().map(|event| match state.step(*event, end, &Limits::default()) {
                Accept(transition) => match transition.state {
                    State::Gone => 'G',
                    State::Waiting { .. } => 'W',
                    State::Active { .. } => 'A',
                },
                Ignore => '.',
                Deny(Denial::Superseded) => 's',
                Deny(Denial::RejoinRequired) => 'r',
                Deny(Denial::Holds(_)) => 'h',
            });
        letters.collect::<String>()
    });
    assert_eq!(table, expected);
}

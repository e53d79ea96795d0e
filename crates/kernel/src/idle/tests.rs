//! The idle predicate, one condition at a time and all at once; what touches the activity clock.

use super::*;
use crate::session::{Kept, PauseReason};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

const RUNNING: State = State::Running { sandbox: SandboxId::from_bits(1) };

fn paused() -> State {
    State::Paused { reason: PauseReason::Inactivity, kept: Kept::Tree, leftover: None }
}

fn quiet() -> Presence {
    Presence::new(ClientKind::Interactive, at(0))
}

/// The conditions that do not hold at `ms`, and the recheck.
fn unmet(presence: &Presence, state: &State, ms: i64) -> (Vec<Unmet>, Option<i64>) {
    match judge(presence, state, &Limits::default(), at(ms)) {
        Idle::Eligible { grace, .. } => {
            assert!(grace.passed());
            (vec![], None)
        }
        Idle::Busy { unmet, recheck_at, .. } => (unmet, recheck_at.map(Timestamp::as_millis)),
    }
}

#[test]
fn all_conditions_hold() {
    let eligible = judge(&quiet(), &RUNNING, &Limits::default(), at(300_001));
    let Idle::Eligible { sandbox, grace } = eligible else { panic!("{eligible:?}") };
    assert_eq!(sandbox, SandboxId::from_bits(1));
    assert_eq!(grace.to_string(), "grace 5m of 5m allowed");
}

#[test]
fn condition_grace_is_over_after_300_s_and_30_s_for_automation_and_chat() {
    for (client, limit) in [
        (ClientKind::Interactive, 300_000),
        (ClientKind::Automation, 30_000),
        (ClientKind::Chat, 30_000),
    ] {
        let presence = Presence::new(client, at(0));
        let waiting = (vec![Unmet::Grace], Some(limit + 1));
        assert_eq!(unmet(&presence, &RUNNING, limit - 1), waiting, "{client:?}");
        assert_eq!(unmet(&presence, &RUNNING, limit), waiting, "{client:?}");
        assert_eq!(unmet(&presence, &RUNNING, limit + 1), (vec![], None), "{client:?}");
    }
}

#[test]
fn each_condition_alone_keeps_a_session_awake() {
    let late = 300_001;
    let check = |change: fn(&mut Presence), expected: Unmet| {
        let mut presence = quiet();
        change(&mut presence);
        assert_eq!(unmet(&presence, &RUNNING, late), (vec![expected], None));
    };
    check(|presence| presence.callbacks = 2, Unmet::ToolCallback(2));
    check(|presence| presence.tools = 1, Unmet::RunningTool(1));
    check(|presence| presence.clients = 3, Unmet::Client(3));
    check(|presence| presence.proxies = 1, Unmet::Proxy(1));
    check(|presence| presence.turn = Turn::Unfinished, Unmet::UnfinishedTurn);
    check(|presence| presence.stream = Stream::Dropped, Unmet::StreamDropped);
    assert_eq!(unmet(&quiet(), &paused(), late), (vec![Unmet::NoSandbox], None));
}

#[test]
fn every_condition_that_does_not_hold_is_listed() {
    let presence = Presence {
        callbacks: 1,
        tools: 2,
        clients: 3,
        proxies: 4,
        turn: Turn::Unfinished,
        stream: Stream::Dropped,
        ..quiet()
    };
    let (all, recheck) = unmet(&presence, &State::New, 0);
    assert_eq!(
        all,
        [
            Unmet::ToolCallback(1),
            Unmet::RunningTool(2),
            Unmet::Client(3),
            Unmet::Proxy(4),
            Unmet::UnfinishedTurn,
            Unmet::StreamDropped,
            Unmet::NoSandbox,
            Unmet::Grace,
        ]
    );
    assert_eq!(recheck, None, "time alone does not help");
}

#[test]
fn lesson_no_client_alone_is_not_idle() {
    let mut presence = quiet();
    presence.on(&RUNNING, Ingress::ProxyOpened, at(0));
    assert_eq!(unmet(&presence, &RUNNING, 400_000).0, [Unmet::Proxy(1)]);
    presence.on(&RUNNING, Ingress::ProxyClosed, at(400_000));
    assert_eq!(unmet(&presence, &RUNNING, 700_000).0, [Unmet::Grace]);
    assert_eq!(unmet(&presence, &RUNNING, 700_001).0, []);
}

#[test]
fn lesson_idle_seen_before_the_stream_dropped_is_enough() {
    let mut presence = quiet();
    presence.on(&RUNNING, Ingress::TurnOpened, at(0));
    presence.on(&RUNNING, Ingress::AgentIdle, at(1));
    presence.stream = Stream::Dropped;
    assert_eq!(unmet(&presence, &RUNNING, 300_002).0, []);
    presence.on(&RUNNING, Ingress::Prompt, at(300_002));
    assert_eq!(
        unmet(&presence, &RUNNING, 700_000).0,
        [Unmet::UnfinishedTurn, Unmet::StreamDropped],
        "a new message takes the word back"
    );
    presence.on(&RUNNING, Ingress::TurnClosed, at(700_000));
    assert_eq!(unmet(&presence, &RUNNING, 1_100_000).0, [Unmet::StreamDropped]);
}

#[test]
fn a_clients_heartbeat_touches_only_a_live_session_and_never_wakes() {
    for state in [State::New, paused()] {
        assert_eq!(touch(&state, Ingress::ClientHeartbeat), Touch::Nothing);
        let mut presence = quiet();
        presence.on(&state, Ingress::ClientHeartbeat, at(100));
        assert_eq!(presence.last_activity, at(0));
    }
    assert_eq!(touch(&RUNNING, Ingress::ClientHeartbeat), Touch::Activity);
    let mut presence = quiet();
    presence.on(&RUNNING, Ingress::ClientHeartbeat, at(100));
    assert_eq!(presence.last_activity, at(100));
}

#[test]
fn a_queued_follow_up_counts_as_activity() {
    for state in [RUNNING, paused()] {
        assert_eq!(touch(&state, Ingress::FollowUpQueued), Touch::Activity);
        let mut presence = quiet();
        presence.on(&state, Ingress::FollowUpQueued, at(100));
        assert_eq!(presence.last_activity, at(100));
    }
}

#[test]
fn who_comes_in_wakes_what_sleeps() {
    for ingress in [Ingress::ClientAttached, Ingress::ProxyOpened, Ingress::Prompt] {
        assert_eq!(touch(&paused(), ingress), Touch::Wake, "{ingress:?}");
        assert_eq!(touch(&RUNNING, ingress), Touch::Activity, "{ingress:?}");
    }
    for ingress in [Ingress::ClientDetached, Ingress::CallbackEnded, Ingress::AgentEvent] {
        assert_eq!(touch(&paused(), ingress), Touch::Activity, "{ingress:?}");
    }
}

#[test]
fn every_way_in_touches_activity_and_counts_come_back_to_zero() {
    let mut presence = quiet();
    let pairs = [
        (Ingress::ClientAttached, Ingress::ClientDetached, Unmet::Client(1)),
        (Ingress::ProxyOpened, Ingress::ProxyClosed, Unmet::Proxy(1)),
        (Ingress::CallbackStarted, Ingress::CallbackEnded, Unmet::ToolCallback(1)),
        (Ingress::ToolStarted, Ingress::ToolEnded, Unmet::RunningTool(1)),
        (Ingress::TurnOpened, Ingress::TurnClosed, Unmet::UnfinishedTurn),
        (Ingress::Prompt, Ingress::AgentIdle, Unmet::UnfinishedTurn),
    ];
    for (index, (begin, end, condition)) in pairs.into_iter().enumerate() {
        let now = 1_000_000 * (index as i64 + 1);
        presence.on(&RUNNING, begin, at(now));
        assert_eq!(presence.last_activity, at(now), "{begin:?}");
        assert_eq!(unmet(&presence, &RUNNING, now + 400_000).0, [condition], "{begin:?}");
        presence.on(&RUNNING, end, at(now + 400_000));
        presence.on(&RUNNING, end, at(now + 400_000));
        assert_eq!(unmet(&presence, &RUNNING, now + 700_001).0, [], "{end:?}, twice");
    }
    presence.on(&RUNNING, Ingress::AgentEvent, at(0));
    assert_eq!(presence.last_activity, at(6_400_000), "activity never falls back");
}

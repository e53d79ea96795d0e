//! Each rule at its boundary, and the life of an alert.

use super::*;
use crate::meter::Split;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

/// The kinds and subjects that `measured` signals.
fn judged(measured: &Measured) -> Vec<(Kind, String)> {
    let signals = judge(measured, &Limits::default(), &Caps::default());
    signals.into_iter().map(|signal| (signal.kind, signal.subject)).collect()
}

fn recent(recent: Recent) -> Measured {
    Measured { recent, ..Measured::default() }
}

#[test]
fn nothing_measured_is_no_alert() {
    assert_eq!(judged(&Measured::default()), []);
}

#[test]
fn more_than_a_tenth_of_the_stops() {
    let stops = |good, bad| recent(Recent { stops: Split { good, bad }, ..Recent::default() });
    assert_eq!(judged(&stops(90, 10)), []);
    assert_eq!(judged(&stops(89, 11)), [(Kind::StopFailures, String::new())]);
    assert_eq!(judged(&stops(0, 1)), [(Kind::StopFailures, String::new())]);
    let overdue = Measured { overdue_stops: 1, ..stops(8, 0) };
    assert_eq!(judged(&overdue), [(Kind::StopFailures, String::new())], "one of nine");
    let sentence = &judge(&stops(1, 1), &Limits::default(), &Caps::default())[0].sentence;
    assert_eq!(sentence, "1 of 2 stops within 1h were not proven in 1m: 50 % (allowed: 10 %)");
}

#[test]
fn more_than_a_fifth_by_inactivity() {
    let ended = |inactivity, ended| recent(Recent { inactivity, ended, ..Recent::default() });
    assert_eq!(judged(&ended(2, 10)), []);
    assert_eq!(judged(&ended(3, 10)), [(Kind::InactivityTimeouts, String::new())]);
    assert_eq!(judged(&ended(1, 0)), [(Kind::InactivityTimeouts, String::new())]);
}

#[test]
fn each_thing_has_its_own_alert() {
    let (task, sandbox) = (TaskId::from_bits(1), SandboxId::from_bits(2));
    let (calm, wild) = (RunnerId::from_bits(3), RunnerId::from_bits(4));
    let measured = Measured {
        missing: vec![sandbox],
        joins: vec![(calm, 2), (wild, 3)],
        open_breakers: vec!["builder".parse().unwrap()],
        budgets: vec![(task, 80), (TaskId::from_bits(9), 79)],
        census: Census { runners: 4, fell_silent: 3, overdue: 1 },
        pathless: vec![task],
        ..Measured::default()
    };
    let expected = [
        (Kind::SandboxMissing, sandbox.to_string()),
        (Kind::WorkersFlapping, wild.to_string()),
        (Kind::WorkersFlapping, "builder".to_owned()),
        (Kind::BudgetNearlyUsed, task.to_string()),
        (Kind::MassDeath, String::new()),
        (Kind::NoLivePath, task.to_string()),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(judged(&measured), expected);
}

/// Runs signs (second, there) through one alert that has to hold for `holds` seconds.
fn life(holds: u64, signs: &[(i64, bool)]) -> String {
    let mut state = None;
    let mut trace = Vec::new();
    for (second, there) in signs {
        let sign = if *there { Sign::There } else { Sign::Gone };
        let word = match step(state, sign, Span::from_secs(holds), at(*second)) {
            Step::Stay => "-".to_owned(),
            Step::Forget => {
                state = None;
                "forget".to_owned()
            }
            Step::Move(next) => {
                state = Some(next);
                "pending".to_owned()
            }
            Step::Tell(next) => {
                state = Some(next);
                match next {
                    State::Firing { since } => format!("fire@{}", since.as_millis() / 1_000),
                    State::Cleared { until, .. } => format!("clear@{}", until.as_millis() / 1_000),
                    State::Pending { .. } => "pending told".to_owned(),
                }
            }
        };
        trace.push(word);
    }
    trace.join(" ")
}

#[test]
fn an_alert_fires_once_and_clears_once() {
    let signs = [(0, false), (1, true), (2, true), (3, false), (4, false), (5, true)];
    assert_eq!(life(0, &signs), "- fire@1 - clear@3 - fire@5");
}

#[test]
fn a_signal_has_to_hold() {
    assert_eq!(life(10, &[(0, true), (9, true), (10, true)]), "pending - fire@0");
    let broken = [(0, true), (9, false), (10, true), (19, true), (20, true)];
    assert_eq!(life(10, &broken), "pending forget pending - fire@10");
}

#[test]
fn the_code_is_the_name_on_the_wire() {
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
    }
}

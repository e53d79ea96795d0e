//! Deadlines by script: phases, boundaries, held questions, tool calls, our own downtime.

use proptest::prelude::*;

use super::*;
use crate::attempt::{Event, Outcome};
use crate::id::{AttemptNumber, Epoch};
use crate::publish::{CommitId, Push};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn describe(due: Due) -> String {
    match due {
        Due::Never => "never".into(),
        Due::At(then) => format!("at {}", then.as_millis()),
        Due::Passed(reading) => reading.to_string(),
    }
}

fn claimed(lease_end: Timestamp) -> Attempt {
    Attempt::claimed(AttemptNumber(1), Epoch(1), lease_end, at(0))
}

const PUSH: Push = Push { commit: CommitId::from_sha1([1; 20]), expected: None };

/// Runs `script` of an attempt claimed at 0: what happens, `+span`, and `?` to ask what is due.
fn check(script: &str, expected: &str) {
    let limits = Limits::default();
    let (mut attempt, mut now) = (claimed(Timestamp::MAX), at(0));
    let mut stream = Stream::started(now, Pace::Partial);
    let (mut reach, mut switches) = (Reach::Heard, Switches::default());
    let mut trace = Vec::new();
    for word in script.split_whitespace() {
        if let Some(span) = word.strip_prefix('+') {
            now = now.after(span.parse().unwrap());
            continue;
        }
        let (verb, rest) = word.split_once(':').unwrap_or((word, ""));
        let mut go = |event| {
            attempt = attempt.step(event, now, &limits).accepted().unwrap_or(attempt);
        };
        match verb {
            "prepared" => go(Event::Prepared),
            "start" | "start-quiet" => {
                go(Event::Start);
                let pace = if verb == "start" { Pace::Partial } else { Pace::Quiet };
                stream = Stream::started(now, pace);
            }
            "beat" => stream.seen(),
            "output" => stream.output(now),
            "open" => stream.tool_opened(ToolKey::of(rest), now),
            "close" => stream.tool_closed(ToolKey::of(rest), now),
            "ask" => go(Event::Hold),
            "answer" => {
                if let Some(since) = attempt.held_since {
                    stream.released(since, now);
                }
                attempt = attempt.step(Event::Release, now, &limits).accepted().unwrap_or(attempt);
            }
            "publish" => go(Event::OpenPublish(PUSH)),
            "over" => go(Event::End(Outcome::Succeeded)),
            "down" => {
                reach = Reach::Awaited;
                attempt.lease_end = now.after(rest.parse().unwrap());
            }
            "report" => reach = Reach::Heard,
            "no-inactivity" => switches.inactivity = false,
            "?" => trace.push(describe(due(&attempt, &stream, reach, &limits, &switches, now))),
            _ => panic!("{word}"),
        }
    }
    assert_eq!(trace.join("; "), expected, "{script}");
}

#[test]
fn claim_is_counted_from_the_last_preparation_report() {
    check("+119.999s ? +1ms ?", "at 120001; at 120001");
    check("+120.001s ?", "claim 2m of 2m allowed");
    check("+100s prepared +120s ? +1ms ?", "at 220001; claim 2m of 2m allowed");
}

#[test]
fn claim_in_all_ends_even_a_claim_that_reports() {
    let reports = "+100s prepared ".repeat(8);
    check(&format!("{reports} +99.999s prepared ?"), "at 900001");
    check(&format!("{reports} +100s prepared ?"), "at 900001");
    check(&format!("{reports} +100.001s prepared ?"), "claim_total 15m of 15m allowed");
}

#[test]
fn start_runs_until_the_first_sign_of_life() {
    check("start +119.999s ? +1ms ?", "at 120001; at 120001");
    check("start +120.001s ?", "start 2m of 2m allowed");
    check("start +30s beat ?", "at 60001");
}

#[test]
fn a_stream_is_alive_from_its_first_sign_on() {
    let mut stream = Stream::started(at(0), Pace::Partial);
    assert!(!stream.is_alive());
    stream.seen();
    assert!(stream.is_alive());
}

#[test]
fn inactivity_is_counted_from_the_last_output() {
    check("start output +59.999s ? +1ms ?", "at 60001; at 60001");
    check("start output +60.001s ?", "inactivity 1m of 1m allowed");
    check("start output +50s output +60s ?", "at 110001");
    check("start beat +60.001s ?", "inactivity 1m of 1m allowed");
}

#[test]
fn adapters_without_partial_output_have_ten_minutes() {
    check("start-quiet output +600s ?", "at 600001");
    check("start-quiet output +600.001s ?", "inactivity 10m of 10m allowed");
}

#[test]
fn inactivity_can_be_switched_off() {
    check("no-inactivity start output +10m ?", "at 3600001");
    check("no-inactivity start +121s ?", "start 2m1s of 2m allowed");
}

#[test]
fn absolute_ends_an_attempt_that_never_stops_talking() {
    let hour = "+50s output ".repeat(71);
    check(&format!("start {hour} +49.999s output ?"), "at 3600001");
    check(&format!("start {hour} +50s output ?"), "at 3600001");
    check(&format!("start {hour} +50.001s output ?"), "absolute 1h of 1h allowed");
}

#[test]
fn lesson_quiet_but_healthy_tool_calls_are_not_timed_out() {
    check("start open:a +600s ?", "at 600001");
    check("start open:a +600.001s ?", "inactivity 10m of 1m allowed");
    check("start open:a +5m close:a +60s ? +1ms ?", "at 360001; inactivity 1m of 1m allowed");
    check("start open:a +5m open:b +1m close:b +2m ?", "at 600001");
    check("start open:a close:b +5m ?", "at 600001");
}

#[test]
fn lesson_the_maximum_reached_while_output_flows_is_a_timeout_and_no_success() {
    check("start open:a +3600.001s output ?", "absolute 1h of 1h allowed");
}

#[test]
fn the_deadline_that_passed_first_is_named() {
    check("start output +2h ?", "inactivity 2h of 1m allowed");
    check("start +2h ?", "start 2h of 2m allowed");
    check("+2h ?", "claim 2h of 2m allowed");
}

#[test]
fn a_held_question_stops_the_clocks_and_lingers() {
    check("start output +30s ask +300s ?", "at 330001");
    check("start output +30s ask +300.001s ?", "linger 5m of 5m allowed");
    check(
        "start output +30s ask +4m answer +30s ? +1ms ?",
        "at 300001; inactivity 1m of 1m allowed",
    );
    check("no-inactivity start output +30s ask +4m answer ?", "at 3840001");
    check("start open:a +30s ask +4m answer ?", "at 840001");
    check("start output ask +1m ask +1m ?", "at 300001");
    check("start output +30s answer ?", "at 60001");
}

#[test]
fn in_publishing_only_the_publish_deadline_runs() {
    check("start output +59m publish +29.999s ? +1ms ?", "at 3570001; at 3570001");
    check("start output publish +30.001s ?", "publish 30.001s of 30s allowed");
}

#[test]
fn what_is_over_is_never_timed_out() {
    check("start output over +30d ?", "never");
}

#[test]
fn after_our_downtime_a_deadline_waits_for_the_report_or_the_lease_end() {
    let down = "start output +30s down:10m +5m";
    check(&format!("{down} ?"), "at 630001");
    check(&format!("{down} report ?"), "inactivity 5m30s of 1m allowed");
    check(&format!("{down} report output ?"), "at 390001");
    check(&format!("{down} +5m ? +1ms ?"), "at 630001; inactivity 10m30s of 1m allowed");
    check("+1m down:10s ?", "at 120001");
}

#[test]
fn lesson_age_is_measured_from_the_states_own_time() {
    check("+14m start ? beat ?", "at 960001; at 900001");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_moment_named_is_the_moment_it_passes(
        steps in prop::collection::vec((0..6u8, 0u64..100_000), 0..20),
        later in 0u64..4_000_000,
        lease in prop::option::of(0u64..600_000),
    ) {
        let (limits, mut now) = (Limits::default(), at(0));
        let mut stream = Stream::started(now, Pace::Partial);
        let started = claimed(Timestamp::MAX).step(Event::Start, now, &limits);
        let mut attempt = started.accepted().unwrap();
        for (step, ms) in steps {
            now = now.after(Span::from_millis(ms));
            match step {
                0 => stream.output(now),
                1 => stream.tool_opened(ToolKey::of("a"), now),
                2 => stream.tool_closed(ToolKey::of("a"), now),
                3 => {
                    let held = attempt.step(Event::Hold, now, &limits);
                    attempt = held.accepted().unwrap_or(attempt);
                }
                4 => {
                    if let Some(since) = attempt.held_since {
                        stream.released(since, now);
                    }
                    attempt =
                        attempt.step(Event::Release, now, &limits).accepted().unwrap_or(attempt);
                }
                _ => stream.seen(),
            }
        }
        let reach = match lease {
            None => Reach::Heard,
            Some(ms) => {
                attempt.lease_end = now.after(Span::from_millis(ms));
                Reach::Awaited
            }
        };
        let ask = |now| due(&attempt, &stream, reach, &limits, &Switches::default(), now);
        now = now.after(Span::from_millis(later));
        match ask(now) {
            Due::At(then) => {
                prop_assert!(then > now);
                prop_assert_eq!(ask(then.before(Span::from_millis(1))), Due::At(then));
                let fired = matches!(ask(then), Due::Passed(_));
                prop_assert!(fired);
            }
            Due::Passed(reading) => {
                prop_assert!(reading.passed());
                prop_assert!(reach == Reach::Heard || now > attempt.lease_end);
            }
            Due::Never => prop_assert!(false, "a running attempt always has a deadline"),
        }
    }
}

#[test]
fn a_runner_is_heard_once_it_told_everything_or_began_while_we_were_there() {
    let reach = |attempt: &Attempt, told| Reach::of(attempt, at(10), told);
    let old = claimed(at(60));
    assert_eq!(reach(&old, false), Reach::Awaited);
    assert_eq!(reach(&old, true), Reach::Heard);
    let prepared = Attempt { prepared_at: at(10), ..old };
    assert_eq!(reach(&prepared, false), Reach::Heard);
    let started = |ms| Attempt { started_at: Some(at(ms)), ..old };
    assert_eq!(reach(&started(9), false), Reach::Awaited);
    assert_eq!(reach(&started(10), false), Reach::Heard);
}

//! Evidence in, verdict out: the eight rules, every boundary, and that `recheck_at` is exact.

use proptest::prelude::*;

use super::*;
use crate::event::EventKind;
use crate::tool::ToolKey;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Applies one word to the evidence; whether it was one.
fn observe(evidence: &mut Evidence, word: &str, now: Timestamp) -> bool {
    let (verb, rest) = word.split_once(':').unwrap_or((word, ""));
    match verb {
        "beat" => {
            let status = serde_json::from_value(serde_json::Value::from(rest)).unwrap();
            evidence.beat(status, now);
        }
        "output" => evidence.output(now),
        "open" => evidence.tool_opened(ToolKey::of(rest), now),
        "close" => evidence.tool_closed(ToolKey::of(rest), now),
        "ask" => evidence.asked(now),
        "answer" => evidence.answered(now),
        "pause" => evidence.paused(now),
        "resume" => evidence.resumed(now),
        "exit0" => evidence.exited_well(now),
        "agent" => evidence.seen(&EventKind::from_name(&format!("agent.{rest}")), now),
        _ => return false,
    }
    true
}

fn describe(verdict: &Verdict) -> String {
    let ruling = match verdict.ruling {
        Ruling::Dead(death) => format!("dead({})", death_name(death)),
        ruling => serde_json::to_value(ruling).unwrap().as_str().unwrap().to_owned(),
    };
    let reasons: Vec<_> = verdict.reasons.as_slice().iter().map(ToString::to_string).collect();
    let recheck = verdict
        .recheck_at
        .map_or("never".into(), |at| at.since(Timestamp::EPOCH).as_millis().to_string());
    format!("{ruling} until {recheck} [{}]", reasons.join(", "))
}

fn death_name(death: Death) -> &'static str {
    match death {
        Death::NeverStarted => "never_started",
        Death::HeartbeatTimeout => "heartbeat_timeout",
    }
}

/// Runs `script` on a sandbox created at 0: observations, `+span`, and `?` to judge.
fn check(script: &str, expected: &[&str]) {
    let mut evidence = Evidence::new(Timestamp::EPOCH);
    let mut now = Timestamp::EPOCH;
    let mut trace = Vec::new();
    for word in script.split_whitespace() {
        if word == "?" {
            trace.push(describe(&judge(&evidence, &Limits::default(), now)));
        } else if let Some(span) = word.strip_prefix('+') {
            now = now.after(span.parse().unwrap());
        } else {
            assert!(observe(&mut evidence, word, now), "{word}");
        }
    }
    assert_eq!(trace, expected, "{script}");
}

/// The ruling at the end of `script`.
fn ruling(script: &str) -> String {
    let mut evidence = Evidence::new(Timestamp::EPOCH);
    let mut now = Timestamp::EPOCH;
    for word in script.split_whitespace() {
        match word.strip_prefix('+') {
            Some(span) => now = now.after(span.parse().unwrap()),
            None => assert!(observe(&mut evidence, word, now), "{word}"),
        }
    }
    let text = describe(&judge(&evidence, &Limits::default(), now));
    text.split(' ').next().unwrap().to_owned()
}

#[test]
fn rule_1_paused_or_waiting_for_a_person_no_clock_runs() {
    check("agent:started ask +30d ?", &["awaiting_person until never []"]);
    check("agent:started pause +30d ?", &["paused until never []"]);
    check("agent:started ask pause +30d ?", &["paused until never []"]);
    check("ask +1h ?", &["awaiting_person until never []"]);
}

#[test]
fn rule_2_never_a_sign_of_life() {
    check("+119.999s ?", &["starting until 120001 []"]);
    check("+120s ?", &["starting until 120001 []"]);
    check("+120.001s ?", &["dead(never_started) until never [start 2m of 2m allowed]"]);
}

#[test]
fn rule_3_the_heartbeat_is_passed_at_90_s_exactly() {
    check("beat:running +89.999s ?", &["working until 90000 []"]);
    check(
        "beat:running +90s ?",
        &["dead(heartbeat_timeout) until never [heartbeat 1m30s of 1m30s allowed]"],
    );
    check(
        "beat:running +90.001s ?",
        &["dead(heartbeat_timeout) until never [heartbeat 1m30s of 1m30s allowed]"],
    );
}

#[test]
fn rule_3_silent_after_completion_is_only_gone() {
    check("agent:completed +89.999s ?", &["lingering until 90000 []"]);
    check("agent:completed +90s ?", &["gone until never [heartbeat 1m30s of 1m30s allowed]"]);
    check(
        "agent:completed agent:tool_use +90s ?",
        &["dead(heartbeat_timeout) until never [heartbeat 1m30s of 1m30s allowed]"],
    );
}

/// Beats every 60 s for `minutes` minutes, so that only the other clocks count.
fn beats(status: &str, minutes: usize) -> String {
    format!(" +60s beat:{status}").repeat(minutes)
}

#[test]
fn rule_4_completed_lingers_five_minutes_and_then_expires() {
    let four = format!("agent:completed{}", beats("idle", 4));
    check(&format!("{four} +59.999s beat:idle ?"), &["lingering until 300001 []"]);
    check(&format!("{four} +60s beat:idle ?"), &["lingering until 300001 []"]);
    check(
        &format!("{four} +60.001s beat:idle ?"),
        &["expired until 390001 [linger 5m of 5m allowed]"],
    );
    assert_eq!(ruling(&format!("{four} exit0 +60.001s beat:idle")), "expired", "exit 0 is not new");
    assert_eq!(ruling("agent:started exit0 +1s"), "lingering");
}

#[test]
fn rule_4_comes_before_rule_5() {
    assert_eq!(ruling("agent:completed beat:failed"), "lingering");
    assert_eq!(ruling("agent:completed beat:failed agent:tool_use"), "failed");
}

#[test]
fn rule_5_status_failed() {
    check("beat:failed +1s ?", &["failed until 90000 []"]);
    check("beat:failed +60s beat:failed +1s ?", &["failed until 150000 []"]);
}

#[test]
fn rule_6_running_without_work_is_stuck_after_ten_minutes() {
    let nine = format!("agent:tool_result{}", beats("running", 9));
    check(&format!("{nine} +59.999s beat:running ?"), &["working until 600001 []"]);
    check(&format!("{nine} +60s beat:running ?"), &["working until 600001 []"]);
    check(
        &format!("{nine} +60.001s beat:running ?"),
        &["stuck until 690001 [stuck_running 10m of 10m allowed]"],
    );
}

#[test]
fn rule_6_an_open_tool_call_holds_off_stuck_within_its_own_limit() {
    // Opened at 60 s: it holds to 660 s inclusive, and the last work was its opening.
    let open = format!("beat:running +60s open:a beat:running{}", beats("running", 9));
    check(&format!("{open} +60s beat:running ?"), &["working until 660001 []"]);
    check(
        &format!("{open} +60.001s beat:running ?"),
        &["stuck until 750001 [stuck_running 10m of 10m allowed, tool_call 10m of 10m allowed]"],
    );
    let mut limits = Limits { tool_call: Span::from_mins(20), ..Limits::default() };
    let mut evidence = Evidence::new(at(0));
    evidence.tool_opened(ToolKey::of("a"), at(0));
    evidence.beat(HeartbeatStatus::Running, at(1_200_000));
    let judged = |limits: &Limits, ms| judge(&evidence, limits, at(ms)).ruling;
    assert_eq!(judged(&limits, 1_200_000), Ruling::Working, "longer than the stuck threshold");
    assert_eq!(judged(&limits, 1_200_001), Ruling::Stuck);
    limits.tool_call = Span::from_mins(1);
    assert_eq!(judged(&limits, 1_200_000), Ruling::Stuck, "shorter than the stuck threshold");
}

#[test]
fn rule_7_otherwise_idle_after_three_minutes_without_work() {
    for status in ["idle", "degraded"] {
        let two = format!("agent:assistant_message{}", beats(status, 2));
        check(&format!("{two} +59.999s beat:{status} ?"), &["working until 180001 []"]);
        check(&format!("{two} +60s beat:{status} ?"), &["working until 180001 []"]);
        check(
            &format!("{two} +60.001s beat:{status} ?"),
            &["idle until 270001 [idle 3m of 3m allowed]"],
        );
    }
    let outputs = "output +60s ".repeat(3);
    assert_eq!(
        ruling(&format!("agent:tool_use {outputs} output +1ms")),
        "idle",
        "no status at all"
    );
}

#[test]
fn rule_8_else_working() {
    check("agent:tool_use beat:running +1s ?", &["working until 90000 []"]);
    check("beat:idle +60s agent:file_edited +1s ?", &["working until 150000 []"]);
}

#[test]
fn every_passed_clock_is_reported_with_the_deciding_one_first() {
    check(
        "agent:tool_use beat:running open:a +11m ?",
        &["dead(heartbeat_timeout) until never [heartbeat 11m of 1m30s allowed, \
           stuck_running 11m of 10m allowed, tool_call 11m of 10m allowed]"],
    );
    check(
        "agent:completed +6m ?",
        &["gone until never [heartbeat 6m of 1m30s allowed, linger 6m of 5m allowed]"],
    );
    check(
        "agent:tool_use +4m ?",
        &["dead(heartbeat_timeout) until never [heartbeat 4m of 1m30s allowed, \
           idle 4m of 3m allowed]"],
    );
}

#[test]
fn the_clocks_that_run_are_shown_before_they_pass() {
    let mut evidence = Evidence::new(at(0));
    let names = |evidence: &Evidence| {
        let readings = clocks(evidence, &Limits::default(), at(1_000));
        readings.as_slice().iter().map(|r| r.clock.name()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&evidence), "start");
    evidence.beat(HeartbeatStatus::Idle, at(0));
    assert_eq!(names(&evidence), "heartbeat idle");
    evidence.tool_opened(ToolKey::of("a"), at(0));
    evidence.beat(HeartbeatStatus::Running, at(0));
    assert_eq!(names(&evidence), "heartbeat stuck_running tool_call");
    evidence.beat(HeartbeatStatus::Failed, at(0));
    assert_eq!(names(&evidence), "heartbeat");
    evidence.seen(&EventKind::Completed, at(0));
    assert_eq!(names(&evidence), "heartbeat linger");
    evidence.asked(at(0));
    assert_eq!(names(&evidence), "");
}

#[test]
fn rulings_name_their_rule_and_their_cause() {
    for (ruling, rule, cause) in [
        (Ruling::Paused, 1, None),
        (Ruling::AwaitingPerson, 1, None),
        (Ruling::Starting, 2, None),
        (Ruling::Dead(Death::NeverStarted), 2, Some(Cause::NeverStarted)),
        (Ruling::Dead(Death::HeartbeatTimeout), 3, Some(Cause::HeartbeatTimeout)),
        (Ruling::Gone, 3, None),
        (Ruling::Lingering, 4, None),
        (Ruling::Expired, 4, None),
        (Ruling::Failed, 5, Some(Cause::AgentFailed)),
        (Ruling::Stuck, 6, Some(Cause::StuckRunning)),
        (Ruling::Idle, 7, Some(Cause::IdleTimeout)),
        (Ruling::Working, 8, None),
    ] {
        assert_eq!((ruling.rule(), ruling.cause()), (rule, cause), "{ruling:?}");
    }
}

#[test]
fn lesson_an_unknown_event_type_is_work() {
    let quiet = beats("idle", 3);
    assert_eq!(ruling(&format!("agent:started{quiet} agent:telepathy +1s")), "working");
    assert_eq!(ruling(&format!("agent:started{quiet} agent:thinking +1s")), "idle");
}

#[test]
fn lesson_agents_say_completed_many_times_and_the_latest_counts() {
    let script = format!("agent:completed{} agent:completed{}", beats("idle", 4), beats("idle", 4));
    assert_eq!(ruling(&script), "lingering");
    assert_eq!(ruling(&format!("{script}{} +1ms", beats("idle", 1))), "expired");
}

#[test]
fn lesson_completed_then_resumed_then_quiet_is_reaped() {
    let script = format!("agent:completed +1s agent:tool_use{}", beats("idle", 3));
    assert_eq!(ruling(&script), "working");
    assert_eq!(ruling(&format!("{script} +1ms")), "idle");
}

#[test]
fn lesson_running_with_no_work_ever_is_stuck() {
    let script = format!("agent:started{}", beats("running", 10));
    assert_eq!(ruling(&script), "working");
    assert_eq!(ruling(&format!("{script} +1ms")), "stuck");
}

#[test]
fn lesson_idle_with_no_work_ever_is_not_idle_at_once() {
    assert_eq!(ruling("+100s beat:idle"), "working");
    // Counted from the first sign of life, not from creation.
    assert_eq!(ruling(&format!("+100s beat:idle{}", beats("idle", 3))), "working");
    assert_eq!(ruling(&format!("+100s beat:idle{} +1ms", beats("idle", 3))), "idle");
}

#[test]
fn lesson_the_dead_are_found_by_what_they_did_not_do() {
    assert_eq!(ruling("beat:running +30d"), "dead(heartbeat_timeout)");
    assert_eq!(ruling("+30d"), "dead(never_started)");
}

#[test]
fn lesson_a_new_sandbox_never_inherits_evidence() {
    let mut old = Evidence::new(at(0));
    old.beat(HeartbeatStatus::Failed, at(0));
    let new = Evidence::new(at(1_000_000));
    assert_eq!(judge(&new, &Limits::default(), at(1_000_000)).ruling, Ruling::Starting);
    assert_eq!((new.life(), new.status(), new.completed_at()), (None, None, None));
}

#[test]
fn lesson_quiet_but_healthy_tool_calls_are_not_reaped() {
    assert_eq!(ruling(&format!("open:build{}", beats("running", 10))), "working");
}

#[test]
fn lesson_sessions_waiting_for_a_person_are_never_reaped() {
    assert_eq!(ruling("agent:tool_use ask +30d"), "awaiting_person");
}

#[test]
fn a_hold_gives_back_exactly_the_time_that_was_left() {
    let script = "agent:tool_use beat:running +50s ask +10h answer";
    assert_eq!(ruling(&format!("{script} +39.999s")), "working");
    assert_eq!(ruling(&format!("{script} +40s")), "dead(heartbeat_timeout)");
    // Beats during the hold count: the heartbeat clock starts anew, the idle clock does not.
    let beaten = "agent:tool_use beat:idle +60s ask +1h beat:idle +1h answer";
    check(&format!("{beaten} ?"), &[&format!("working until {} []", 60_000 + 7_200_000 + 90_000)]);
    assert_eq!(ruling(&format!("{beaten} +60s beat:idle +60s beat:idle")), "working");
    assert_eq!(ruling(&format!("{beaten} +60s beat:idle +60.001s beat:idle")), "idle");
}

#[test]
fn a_resume_is_a_sign_of_life_and_an_answer_is_not() {
    assert_eq!(ruling("beat:idle +89s pause +10h resume +89.999s"), "working");
    assert_eq!(ruling("beat:idle +89s ask +10h answer +1s"), "dead(heartbeat_timeout)");
    assert_eq!(
        ruling("beat:idle +89s resume +1s"),
        "dead(heartbeat_timeout)",
        "nothing was paused"
    );
    assert_eq!(ruling("beat:idle ask pause +10h resume +1h"), "awaiting_person");
    assert_eq!(ruling("beat:idle ask pause +10h answer +1h"), "paused");
}

#[test]
fn silence_while_we_could_not_commit_is_not_evidence() {
    let mut evidence = Evidence::new(at(0));
    evidence.beat(HeartbeatStatus::Running, at(0));
    evidence.excuse(at(10_000), at(500_000));
    let judged = |ms| judge(&evidence, &Limits::default(), at(ms)).ruling;
    assert_eq!(judged(579_999), Ruling::Working);
    assert_eq!(judged(580_000), Ruling::Dead(Death::HeartbeatTimeout));
}

#[test]
fn downtime_within_a_hold_is_left_out_once() {
    let mut evidence = Evidence::new(at(0));
    evidence.beat(HeartbeatStatus::Idle, at(0));
    evidence.asked(at(10_000));
    evidence.excuse(at(5_000), at(100_000));
    evidence.answered(at(200_000));
    let judged = |ms| judge(&evidence, &Limits::default(), at(ms)).ruling;
    // 5 s counted before the downtime, none since; the hold began inside it.
    assert_eq!(judged(284_999), Ruling::Working);
    assert_eq!(judged(285_000), Ruling::Dead(Death::HeartbeatTimeout));
}

#[test]
fn downtime_carries_every_clock() {
    let (from, until) = (at(1_000), at(1_001_000));
    let mut never = Evidence::new(at(0));
    never.excuse(from, until);
    assert_eq!(never.created_at(), at(1_000_000));
    let mut done = Evidence::new(at(0));
    done.tool_opened(ToolKey::of("a"), at(0));
    done.seen(&EventKind::Completed, at(0));
    done.excuse(from, until);
    let life = Life { first: at(1_000_000), last: at(1_000_000) };
    assert_eq!(done.life(), Some(life));
    assert_eq!(done.completed_at(), Some(at(1_000_000)));
    assert_eq!(done.last_work(), Some(at(1_000_000)));
    assert_eq!(done.tools().latest(), Some(at(1_000_000)));
}

#[test]
fn output_is_life_and_not_work() {
    assert_eq!(ruling("agent:tool_use +80s output +80s output +80s"), "idle");
    assert_eq!(ruling("agent:completed +80s output +80s"), "lingering");
}

#[test]
fn closing_an_unknown_call_is_work_and_harms_nothing() {
    let mut evidence = Evidence::new(at(0));
    evidence.tool_opened(ToolKey::of("a"), at(0));
    evidence.tool_closed(ToolKey::of("b"), at(5));
    assert_eq!((evidence.tools().latest(), evidence.last_work()), (Some(at(0)), Some(at(5))));
    evidence.tool_closed(ToolKey::of("a"), at(6));
    assert_eq!(evidence.tools().latest(), None);
}

#[test]
fn evidence_survives_being_stored() {
    let mut evidence = Evidence::new(at(5));
    evidence.tool_opened(ToolKey::of("a"), at(7));
    evidence.beat(HeartbeatStatus::Degraded, at(8));
    evidence.asked(at(9));
    let json = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<Evidence>(&json).unwrap(), evidence);
    assert!(size_of::<Evidence>() <= 256, "{}", size_of::<Evidence>());
}

const WORDS: &[&str] = &[
    "beat:idle",
    "beat:running",
    "beat:degraded",
    "beat:failed",
    "output",
    "open:a",
    "open:b",
    "close:a",
    "close:b",
    "ask",
    "answer",
    "pause",
    "resume",
    "exit0",
    "agent:started",
    "agent:thinking",
    "agent:tool_use",
    "agent:completed",
    "agent:error",
    "agent:never_heard_of",
];

prop_compose! {
    /// Any evidence, and the moment of its last observation.
    fn any_evidence()(
        script in prop::collection::vec((0..WORDS.len(), 0u64..200_000), 0..25),
    ) -> (Evidence, Timestamp) {
        let mut evidence = Evidence::new(Timestamp::EPOCH);
        let mut now = Timestamp::EPOCH;
        for (index, ms) in script {
            now = now.after(Span::from_millis(ms));
            observe(&mut evidence, WORDS[index], now);
        }
        (evidence, now)
    }
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (1u64..400_000, 1u64..400_000, 1u64..900_000, 1u64..900_000, 1u64..900_000).prop_map(
        |(idle, heartbeat, stuck, linger, tool)| Limits {
            idle: Span::from_millis(idle),
            heartbeat_timeout: Span::from_millis(heartbeat),
            stuck_running: Span::from_millis(stuck),
            linger: Span::from_millis(linger),
            tool_call: Span::from_millis(tool),
            ..Limits::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn recheck_at_is_exact(
        (evidence, last) in any_evidence(),
        limits in any_limits(),
        later in 0u64..1_500_000,
        probe in 0.0f64..1.0,
    ) {
        let now = last.after(Span::from_millis(later));
        let verdict = judge(&evidence, &limits, now);
        match verdict.recheck_at {
            Some(due) => {
                prop_assert!(due > now);
                let gap = (due.since(now).as_millis() - 1) as f64 * probe;
                let instant = Span::from_millis(1);
                for before in [now.after(Span::from_millis(gap as u64)), due.before(instant)] {
                    let same = judge(&evidence, &limits, before);
                    prop_assert_eq!((same.ruling, same.recheck_at), (verdict.ruling, Some(due)));
                }
                prop_assert_ne!(judge(&evidence, &limits, due).ruling, verdict.ruling);
            }
            None => for ahead in [1, 90_000, 86_400_000, u64::MAX] {
                let then = now.after(Span::from_millis(ahead));
                prop_assert_eq!(judge(&evidence, &limits, then).ruling, verdict.ruling);
            },
        }
    }

    #[test]
    fn no_verdict_of_death_while_the_evidence_is_fresh(
        (evidence, last) in any_evidence(),
        later in 0u64..400_000,
    ) {
        let (limits, now) = (Limits::default(), last.after(Span::from_millis(later)));
        let verdict = judge(&evidence, &limits, now);
        let timeout = limits.heartbeat_timeout;
        let fresh = evidence.life().is_some_and(|life| now.since(life.last) < timeout);
        if fresh {
            prop_assert!(!matches!(verdict.ruling, Ruling::Dead(_) | Ruling::Gone));
        } else if evidence.hold() == Hold::Nothing && evidence.life().is_some() {
            prop_assert!(matches!(verdict.ruling, Ruling::Dead(_) | Ruling::Gone));
        }
        // Whoever is killed by a clock is told which, and by how much.
        for reading in verdict.reasons.as_slice() {
            prop_assert!(reading.passed());
        }
        let by_status = matches!(verdict.ruling, Ruling::Failed);
        if verdict.ruling.cause().is_some() && !by_status {
            prop_assert!(!verdict.reasons.as_slice().is_empty());
        }
    }

    #[test]
    fn evidence_is_monotone_even_when_time_is_not(
        script in prop::collection::vec((0..WORDS.len(), 0i64..1_000_000), 0..40),
    ) {
        let mut evidence = Evidence::new(Timestamp::EPOCH);
        for (index, ms) in script {
            let before = evidence;
            observe(&mut evidence, WORDS[index], at(ms));
            prop_assert!(evidence.last_work() >= before.last_work());
            let last = |evidence: &Evidence| evidence.life().map(|life| life.last);
            let first = |evidence: &Evidence| evidence.life().map(|life| life.first);
            prop_assert!(last(&evidence) >= last(&before));
            prop_assert!(before.life().is_none() || first(&evidence) >= first(&before));
        }
    }

    #[test]
    fn a_hold_stops_every_clock(
        (before, last) in any_evidence(),
        held in 1u64..1_000_000_000,
        later in 0u64..1_000_000,
    ) {
        let (limits, mut before) = (Limits::default(), before);
        before.answered(last);
        before.resumed(last);
        let mut after = before;
        after.asked(last);
        after.answered(last.after(Span::from_millis(held)));
        let then = last.after(Span::from_millis(later));
        let shifted = then.after(Span::from_millis(held));
        prop_assert_eq!(
            judge(&before, &limits, then).ruling,
            judge(&after, &limits, shifted).ruling
        );
    }
}

/// Every ruling, with the clock that decides it.
const RULINGS: [(Ruling, Option<Clock>); 12] = [
    (Ruling::Paused, None),
    (Ruling::AwaitingPerson, None),
    (Ruling::Starting, None),
    (Ruling::Dead(Death::NeverStarted), Some(Clock::Start)),
    (Ruling::Dead(Death::HeartbeatTimeout), Some(Clock::Heartbeat)),
    (Ruling::Gone, Some(Clock::Heartbeat)),
    (Ruling::Lingering, None),
    (Ruling::Expired, Some(Clock::Linger)),
    (Ruling::Failed, None),
    (Ruling::Stuck, Some(Clock::StuckRunning)),
    (Ruling::Idle, Some(Clock::Idle)),
    (Ruling::Working, None),
];

/// What a node believes of every ruling that it reaches at `now`, with a heartbeat timeout and
/// every other limit of 90 s; `up` is since when it could commit. What stands is left out.
fn believed(up: i64, reach: Reach, now: i64) -> Vec<(Ruling, Belief)> {
    let watched = Watched { since: at(up), jumped_at: None };
    let beliefs = RULINGS.into_iter().map(|(ruling, clock)| {
        let mut reasons = Readings::NONE;
        if let Some(clock) = clock {
            reasons.push(Reading::since(clock, at(0), at(now), Span::from_secs(90)));
        }
        let verdict = Verdict { ruling, recheck_at: None, reasons };
        (ruling, verdict.believed(watched, reach, &Limits::default(), at(now)))
    });
    beliefs.filter(|(_, belief)| *belief != Belief::Stands).collect()
}

#[test]
fn whoever_was_always_there_and_has_heard_believes_every_verdict() {
    assert_eq!(believed(0, Reach::Heard, 1_000_000), []);
}

#[test]
fn whoever_has_not_heard_the_runner_believes_its_silence_alone() {
    let later = Belief::AskAgain { by: None };
    let doubted = [
        (Ruling::Dead(Death::NeverStarted), later),
        (Ruling::Failed, later),
        (Ruling::Stuck, later),
        (Ruling::Idle, later),
    ];
    assert_eq!(believed(0, Reach::Awaited, 1_000_000), doubted);
}

#[test]
fn whoever_has_just_come_up_believes_no_silence_before_it_has_watched_it() {
    let up = 1_000_000;
    let (from, by) = (at(up + 90_000), Some(at(up + 90_001)));
    let silence = [
        (Ruling::Dead(Death::NeverStarted), Belief::AskAgain { by }),
        (Ruling::Dead(Death::HeartbeatTimeout), Belief::NotBefore(from)),
        (Ruling::Gone, Belief::NotBefore(from)),
        (Ruling::Stuck, Belief::AskAgain { by }),
        (Ruling::Idle, Belief::AskAgain { by }),
    ];
    assert_eq!(believed(up, Reach::Heard, up), silence);
    assert_eq!(believed(up, Reach::Heard, up + 89_999), silence);
    // At its limit the silence was watched for as long as it is allowed, and no longer.
    let at_limit: Vec<_> = silence
        .into_iter()
        .filter(|(ruling, _)| *ruling != Ruling::Gone)
        .map(|(ruling, _)| (ruling, Belief::AskAgain { by }))
        .collect();
    assert_eq!(believed(up, Reach::Heard, up + 90_000), at_limit);
    assert_eq!(believed(up, Reach::Heard, up + 90_001), []);
}

#[test]
fn only_what_had_completed_is_past_completion() {
    let past = RULINGS.into_iter().map(|(ruling, _)| ruling);
    let past: Vec<_> = past.filter(|ruling| ruling.is_past_completion()).collect();
    assert_eq!(past, [Ruling::Gone, Ruling::Expired]);
}

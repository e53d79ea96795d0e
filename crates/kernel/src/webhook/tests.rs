//! Scripts in, decisions out.

use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn lane(bits: u128) -> Option<TaskId> {
    Some(TaskId::from_bits(bits))
}

fn letter(number: u64, task: Option<TaskId>, due: i64) -> Letter {
    Letter { number, task, due_at: at(due) }
}

#[test]
fn a_pattern_is_a_kind_or_how_kinds_begin() {
    let wanted = |patterns: &[&str], kind| {
        let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        wants(&patterns, kind)
    };
    assert!(wanted(&["task.ready"], "task.ready"));
    assert!(!wanted(&["task.ready"], "task.ready_soon"));
    assert!(wanted(&["agent.*", "task.*"], "task.failed"));
    assert!(!wanted(&["task.*"], "tasks.failed"));
    assert!(wanted(&["*"], "anything"));
    assert!(!wanted(&[], "anything"));
    for text in ["", "task.*.x", "ta*", "**", "Task.ready", "task ready", &"a".repeat(101)] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
    for pattern in usual() {
        assert_eq!(pattern.to_string().parse(), Ok(pattern));
    }
}

#[test]
fn only_the_first_of_each_lane_is_sent() {
    let letters = [
        letter(1, lane(1), 10),
        letter(2, lane(1), 0),
        letter(3, lane(2), 0),
        letter(4, None, 5),
        letter(5, None, 0),
        letter(6, lane(3), 99),
    ];
    let sent = |under_way: &[u64], room, now| {
        sendable(&letters, &under_way.iter().copied().collect(), room, at(now))
    };
    assert_eq!(sent(&[], 9, 4), Sendable { now: vec![3], next: Some(at(5)) });
    assert_eq!(sent(&[], 9, 10), Sendable { now: vec![3, 4, 1], next: Some(at(99)) });
    assert_eq!(sent(&[3, 1], 9, 10).now, [4], "what is under way holds its lane");
    assert_eq!(sent(&[], 1, 10).now, [3], "the longest due goes first");
    assert_eq!(sent(&[], 0, 10).now, [0u64; 0]);
}

fn failed(tries: u32, now: i64) -> Next {
    let failed = Failed { tries, since: at(0), retry_after: None, jitter: Jitter::NONE };
    after_failure(&failed, at(now), &Limits::default())
}

#[test]
fn waits_double_up_to_the_longest_and_end_after_a_day() {
    assert_eq!(failed(1, 0), Next::Again(at(5)));
    assert_eq!(failed(2, 5), Next::Again(at(15)));
    assert_eq!(failed(10, 5_000), Next::Again(at(5_000 + 2_560)));
    assert_eq!(failed(11, 9_000), Next::Again(at(9_000 + 3_600)));
    assert_eq!(failed(u32::MAX, 9_000), Next::Again(at(9_000 + 3_600)));
    assert_eq!(failed(30, 86_000), Next::Again(at(86_400)), "once more at the very end");
    assert_eq!(failed(31, 86_400), Next::Dead);
    assert_eq!(failed(1, 90_000), Next::Dead, "one that waited a day for its lane is tried once");
}

#[test]
fn a_receiver_may_ask_for_patience_within_bounds() {
    let asked = |seconds| {
        let retry_after = Some(Span::from_secs(seconds));
        let failed = Failed { tries: 1, since: at(0), retry_after, jitter: Jitter::NONE };
        after_failure(&failed, at(0), &Limits::default())
    };
    assert_eq!(asked(1), Next::Again(at(5)));
    assert_eq!(asked(60), Next::Again(at(60)));
    assert_eq!(asked(1_000_000), Next::Again(at(3_600)));
}

#[test]
fn only_public_addresses_are_reached() {
    for (address, place) in [
        ("127.0.0.1", Place::Loopback),
        ("127.255.255.254", Place::Loopback),
        ("0.0.0.0", Place::Loopback),
        ("10.0.0.1", Place::Private),
        ("172.16.0.1", Place::Private),
        ("172.31.255.255", Place::Private),
        ("192.168.1.1", Place::Private),
        ("100.64.0.1", Place::Private),
        ("169.254.169.254", Place::LinkLocal),
        ("192.0.0.8", Place::Special),
        ("198.19.0.1", Place::Special),
        ("224.0.0.1", Place::Special),
        ("255.255.255.255", Place::Special),
        ("::", Place::Loopback),
        ("::1", Place::Loopback),
        ("::ffff:127.0.0.1", Place::Loopback),
        ("::ffff:10.1.2.3", Place::Private),
        ("::169.254.169.254", Place::LinkLocal),
        ("64:ff9b::7f00:1", Place::Loopback),
        ("64:ff9b:1::1", Place::Special),
        ("2002:7f00:1::", Place::Loopback),
        ("2002:c0a8:101::1", Place::Private),
        ("2001:0:4136:e378::1", Place::Special),
        ("fc00::1", Place::Private),
        ("fdff::1", Place::Private),
        ("fe80::1", Place::LinkLocal),
        ("ff02::1", Place::Special),
    ] {
        assert_eq!(may_reach(address.parse().unwrap(), &[]), Err(place), "{address}");
    }
    for address in [
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "2002:808:808::",
    ] {
        assert_eq!(may_reach(address.parse().unwrap(), &[]), Ok(()), "{address}");
    }
}

#[test]
fn what_is_allowed_is_reached_and_nothing_beside_it() {
    let allowed: Vec<Network> =
        ["10.1.0.0/16", "127.0.0.1", "fd00::/8"].iter().map(|text| text.parse().unwrap()).collect();
    let reached = |address: &str| may_reach(address.parse().unwrap(), &allowed).is_ok();
    for address in ["10.1.2.3", "127.0.0.1", "fd12::1", "::ffff:10.1.2.3"] {
        assert!(reached(address), "{address}");
    }
    for address in ["10.2.0.1", "127.0.0.2", "fc00::1", "::1", "169.254.169.254"] {
        assert!(!reached(address), "{address}");
    }
    assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("9.9.9.9".parse().unwrap()));
    for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/-1", "localhost"] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
}

proptest! {
    /// However receivers behave, each lane is delivered in order, and every letter ends.
    #[test]
    fn lanes_keep_their_order_and_every_letter_ends(
        lanes in prop::collection::vec(0u128..4, 1..30),
        answers in prop::collection::vec(0u8..4, 1..200),
    ) {
        let limits = Limits::default();
        let mut waiting: Vec<(Letter, u32)> = lanes
            .iter()
            .enumerate()
            .map(|(index, bits)| (letter(index as u64, lane(*bits), 0), 0))
            .collect();
        let mut now = at(0);
        let mut told: Vec<(Option<TaskId>, u64)> = Vec::new();
        let mut answers = answers.iter().cycle();
        for _ in 0..10_000 {
            let letters: Vec<_> = waiting.iter().map(|(letter, _)| *letter).collect();
            let sendable = sendable(&letters, &BTreeSet::new(), 3, now);
            for number in &sendable.now {
                let index = waiting.iter().position(|(one, _)| one.number == *number).unwrap();
                waiting[index].1 += 1;
                let tries = waiting[index].1;
                let jitter = Jitter::from_bits(tries.wrapping_mul(0x9E37_79B9));
                let failed = Failed { tries, since: at(0), retry_after: None, jitter };
                // The receiver takes one of four.
                let next = match answers.next() {
                    Some(0) => None,
                    _ => Some(after_failure(&failed, now, &limits)),
                };
                match next {
                    Some(Next::Again(at)) => waiting[index].0.due_at = at,
                    Some(Next::Dead) | None => {
                        let (letter, _) = waiting.remove(index);
                        told.push((letter.task, letter.number));
                    }
                }
            }
            if sendable.now.is_empty() {
                match sendable.next {
                    Some(next) => now = next,
                    None => break,
                }
            }
        }
        prop_assert!(waiting.is_empty(), "{waiting:?}");
        for bits in 0..4 {
            let numbers: Vec<_> = told.iter().filter(|one| one.0 == lane(bits)).collect();
            prop_assert!(numbers.is_sorted());
        }
    }
}

//! The lock: numbers grow, ends are exact, a late holder is harmless.

use super::*;
use crate::session::{self, State};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn node(n: u128) -> NodeId {
    NodeId::from_bits(n)
}

fn locked() -> Session {
    take(Session::new(), node(1), &Limits::default(), at(0)).unwrap()
}

#[test]
fn a_lock_is_held_until_its_end_and_then_anyones() {
    let session = locked();
    let lock = session.lock.unwrap();
    assert_eq!((lock.number, lock.until), (Epoch(1), at(300_000)));
    for (ms, free) in [(299_999, false), (300_000, false), (300_001, true)] {
        let taken = take(session, node(2), &Limits::default(), at(ms));
        assert_eq!(taken.is_ok(), free, "{ms}");
        match taken {
            Ok(session) => assert_eq!((session.epoch, session.revision), (Epoch(2), Revision(0))),
            Err(refused) => assert_eq!(refused, Refused::Busy { until: at(300_000) }),
        }
    }
    assert!(take(session, node(1), &Limits::default(), at(1)).is_err(), "not even its own holder");
}

#[test]
fn lesson_a_lock_is_renewed_while_its_holder_works() {
    let limits = Limits::default();
    let renewed = renew(locked(), Epoch(1), &limits, at(300_000)).unwrap();
    assert_eq!(renewed.lock.unwrap().until, at(600_000));
    assert_eq!(renew(locked(), Epoch(1), &limits, at(300_001)), Err(Refused::Lost), "too late");
    assert_eq!(renew(locked(), Epoch(2), &limits, at(0)), Err(Refused::Lost), "not ours");
    assert_eq!(renew(Session::new(), Epoch(1), &limits, at(0)), Err(Refused::Lost));
    let back = renew(renewed, Epoch(1), &limits, at(0)).unwrap();
    assert_eq!(back.lock.unwrap().until, at(600_000), "a clock set back shortens nothing");
}

#[test]
fn only_the_holder_gives_it_back() {
    assert_eq!(release(locked(), Epoch(1)).lock, None);
    assert_eq!(release(locked(), Epoch(2)), locked());
    let again = take(release(locked(), Epoch(1)), node(2), &Limits::default(), at(1)).unwrap();
    assert_eq!(again.lock.unwrap().number, Epoch(2), "numbers only grow");
}

#[test]
fn lesson_waiting_for_the_lock_has_a_deadline() {
    let session = locked();
    assert_eq!(wait(&Session::new(), at(0), at(5)), Wait::Take);
    assert_eq!(wait(&session, at(1_000_000), at(300_001)), Wait::Take);
    assert_eq!(wait(&session, at(1_000_000), at(300_000)), Wait::Until(at(300_001)));
    assert_eq!(wait(&session, at(1_000), at(500)), Wait::Until(at(1_001)));
    assert_eq!(wait(&session, at(1_000), at(1_000)), Wait::Until(at(1_001)));
    assert_eq!(wait(&session, at(1_000), at(1_001)), Wait::GiveUp);
}

#[test]
fn a_key_matches_only_what_was_read() {
    let sandbox = SandboxId::from_bits(1);
    let session = Session { state: State::Running { sandbox }, ..locked() };
    let key = Key::read(&session, Epoch(1), at(300_000)).unwrap();
    assert_eq!(key, Key { sandbox: Some(sandbox), revision: Revision(0), lock: Epoch(1) });
    assert!(key.matches(&session));
    let other = State::Running { sandbox: SandboxId::from_bits(2) };
    let retaken = take(session, node(2), &Limits::default(), at(300_001)).unwrap();
    for moved_on in [
        Session { state: other, ..session },
        Session { revision: Revision(1), ..session },
        Session { lock: None, ..session },
        retaken,
    ] {
        assert!(!key.matches(&moved_on));
    }
    let renewed = renew(session, Epoch(1), &Limits::default(), at(1)).unwrap();
    assert!(key.matches(&renewed), "a renewal overtakes nobody");
    let failed = Session { attempt: session::Attempt::Live, ..session };
    assert!(key.matches(&failed), "the attempt is judged by the machine, not by the key");
    assert_eq!(Key::read(&session, Epoch(1), at(300_001)), None, "its end has passed");
    assert_eq!(Key::read(&session, Epoch(2), at(0)), None, "not ours");
    assert_eq!(Key::read(&Session::new(), Epoch(1), at(0)), None);
}

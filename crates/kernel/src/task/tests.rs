//! The task machine, row by row: a script goes in, a trace comes out.

mod lessons;
mod rows;
mod script;
mod words;

use proptest::prelude::*;

use self::script::{World, every_event, every_state};
use super::*;
use crate::status::Group;
use crate::why::LivePath;

#[test]
fn verbs_are_what_the_machine_accepts_from_a_person() {
    for (label, state, _) in every_state() {
        let accepted: Vec<_> = every_event()
            .into_iter()
            .filter(|(_, event)| World::at(label).step(event).accepted().is_some())
            .map(|(name, _)| name)
            .collect();
        for verb in Verb::ALL {
            let follow_up =
                verb == Verb::Continue || (verb == Verb::Resume && state.group() == Group::Final);
            if !follow_up {
                let listed = state.verbs().contains(&verb);
                assert_eq!(listed, accepted.contains(&verb.name()), "{label}: {verb}");
            }
        }
    }
}

#[test]
fn every_state_answers_every_event() {
    let mut table = String::new();
    for (label, _, _) in every_state() {
        for (name, event) in every_event() {
            let answer = match World::at(label).step(&event) {
                crate::Disposition::Accept(next) => script::show_state(&next.task.state),
                crate::Disposition::Ignore => "ignore".into(),
                crate::Disposition::Deny(denial) => {
                    format!("deny {}", script::show_denial(&denial))
                }
            };
            table.push_str(&format!("{label:<10} {name:<20} {answer}\n"));
        }
    }
    insta::assert_snapshot!(table);
}

// What must hold whatever happens.

proptest! {
    #[test]
    fn final_states_absorb_and_numbers_only_grow(
        choices in prop::collection::vec((0usize..every_event().len(), 0u64..200), 1..60),
        max_attempts in 1u32..4,
    ) {
        let mut world = World::at(&format!("PENDING max={max_attempts}"));
        for (choice, seconds) in choices {
            let (name, event) = every_event().swap_remove(choice);
            let event = script::for_attempt(event, world.task.attempts);
            let before = world.clone();
            world.wait(seconds);
            if let crate::Disposition::Accept(next) = world.step(&event) {
                prop_assert!(before.task.state.group() != Group::Final, "{name}");
                prop_assert!(next.task.attempts >= before.task.attempts);
                prop_assert!(next.task.effort.fruitless >= before.task.effort.fruitless);
                prop_assert!(next.task.since >= before.task.since);
                world.apply(next);
            }
            let caps = Caps::default();
            prop_assert!(world.task.effort.tries <= max_attempts);
            prop_assert!(world.task.effort.failed_starts <= caps.starts);
            prop_assert!(world.task.effort.parks <= caps.parks);
            let acting = world.attempt.filter(Attempt::may_act).map(|attempt| attempt.number);
            prop_assert_eq!(world.task.state.attempt(), acting, "one attempt may act, or none");
            prop_assert!(world.path() != LivePath::None, "nothing moves {:?}", world.task.state);
        }
    }
}

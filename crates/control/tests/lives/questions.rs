//! Questions: they wait for a person, stop the clocks while they are held, and are answered once.

use std::time::Duration;

use belay_api::port::{Asked, Beaten, Duty, Port, PortError, Report, Seen};
use belay_api::{Answer, Code, NewTask};
use belay_kernel::{QuestionId, Span};

use crate::support::{RUNNER, World, task, test};
use crate::{beat, words};

#[test]
fn a_question_by_file_waits_and_its_answer_resumes_the_session() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let conversation = Report {
            from: 0,
            bytes: b"?\n".to_vec(),
            seen: vec![Seen::Conversation("talk-1".into())],
        };
        world.control.report(run.who, conversation).await.unwrap();
        let asked = Asked {
            question: QuestionId::from_bits(9),
            text: "Wood or wire?".into(),
            options: vec!["wood".into(), "wire".into()],
            held: false,
        };
        world.control.ask(run.who, asked).await.unwrap();
        world.terminate(run.who).await;
        assert_eq!(world.state(id).await, "BLOCKED question");
        world.pass(Span::from_mins(600)).await;
        assert_eq!(world.state(id).await, "BLOCKED question");
        let answer = Answer { question: None, text: "2".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        let again = world.start().await;
        assert_eq!(again.session, run.session);
        assert_eq!(again.conversation.as_deref(), Some("talk-1"));
        assert_eq!(again.prompt.next, "The answer: wire");
        world.succeed(again.who).await;
        assert_eq!(world.state(id).await, "READY succeeded");
    });
}

#[test]
fn a_held_question_stops_the_clocks_and_its_answer_is_handed_over() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.print(run.who, 0, "?\n").await;
        let question = QuestionId::from_bits(9);
        let asked = Asked { question, text: "Go on?".into(), options: vec![], held: true };
        world.control.ask(run.who, asked.clone()).await.unwrap();
        world.control.ask(run.who, asked).await.unwrap(); // the answer was lost: no harm
        world.pass(Span::from_mins(4)).await; // beyond every clock but the linger time
        assert_eq!(world.state(id).await, "BLOCKED question");
        let answer = Answer { question: Some(question), text: "yes".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        assert_eq!(world.state(id).await, "RUNNING answer");
        world.tend().await;
        let duties = world.control.duties(RUNNER, Span::ZERO).await.unwrap();
        let text = "yes".to_owned();
        assert!(duties.contains(&Duty::Answer { who: run.who, question, text }));
    });
}

#[test]
fn a_beat_of_an_attempt_that_is_over_says_whether_its_agent_stays() {
    test(async {
        for (keep_alive, beaten) in [(true, Beaten::Freeze), (false, Beaten::Fenced)] {
            let world = World::new().await;
            let id = world.make(NewTask { keep_alive, ..task("Mend it") }).await;
            let run = world.start().await;
            world.print(run.who, 0, "?\n").await;
            let question = QuestionId::from_bits(9);
            let asked = Asked { question, text: "Go on?".into(), options: vec![], held: true };
            world.control.ask(run.who, asked).await.unwrap();
            world.pass(Span::from_mins(6)).await; // beyond the linger time
            assert_eq!(world.state(id).await, "BLOCKED question");
            // The duty to end it is on its way; the beat is quicker.
            assert_eq!(world.control.beat(beat(run.who, true)).await.unwrap(), [beaten]);
            world.control.stop("ada", id, Duration::ZERO).await.unwrap();
            let mut other = run.who;
            other.epoch = other.epoch.next();
            assert_eq!(world.control.beat(beat(other, true)).await.unwrap(), [Beaten::Fenced]);
        }
    });
}

#[test]
fn a_question_that_is_asked_again_after_its_answer_blocks_nothing() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let question = QuestionId::from_bits(9);
        let asked = Asked { question, text: "Go on?".into(), options: vec![], held: true };
        world.control.ask(run.who, asked.clone()).await.unwrap();
        let answer = Answer { question: None, text: "yes".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        world.control.ask(run.who, asked.clone()).await.unwrap(); // the first answer was lost
        assert_eq!(world.state(id).await, "RUNNING answer");
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert_eq!(world.control.ask(run.who, asked).await, Err(PortError::Fenced));
    });
}

#[test]
fn a_question_is_known_by_its_words_until_its_answer_is_handed_over() {
    test(async {
        let mut world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let ask = async |world: &World, text| {
            world.control.ask_person(run.who, words(text)).await.unwrap()
        };
        let first = ask(&world, "Go on?").await;
        let question = first.question.unwrap();
        assert_eq!(first.answer, None);
        assert_eq!(world.state(id).await, "BLOCKED question");
        assert_eq!(ask(&world, "Go on?").await.question, Some(question), "it is the same one");
        let other = ask(&world, "Something else?").await;
        assert_eq!(other.question, None, "it waits for its turn");
        let early = world.control.handed_over(run.who, question).await.unwrap_err();
        assert_eq!(early.code, Code::IllegalMove);
        world.restart(Span::from_secs(1)).await;
        let answer = Answer { question: Some(question), text: "yes".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        for _ in 0..2 {
            assert_eq!(ask(&world, "Go on?").await.answer.as_deref(), Some("yes"));
        }
        let next = ask(&world, "Something else?").await;
        assert_ne!(next.question, Some(question));
        world.control.handed_over(run.who, question).await.unwrap();
        world.control.handed_over(run.who, question).await.unwrap(); // told twice: no harm
        let again = ask(&world, "Go on?").await;
        assert_eq!(again.question, None, "a new one, after the one that is open");
        let answer = Answer { question: next.question, text: "no".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        let again = ask(&world, "Go on?").await;
        assert!(again.question.is_some_and(|new| new != question) && again.answer.is_none());
    });
}

//! Who may speak: an agent for its own task while its attempt acts, and whoever holds a token.

use std::time::Duration;

use belay_api::port::{Ending, Left, Port, Start};
use belay_api::{Ask, Code, ListTokens, NewToken, Progress, Scope, Submission, token_hash};
use belay_kernel::{QuestionId, Span};

use crate::support::{World, task, test};
use crate::words;

#[test]
fn an_agent_speaks_only_while_its_attempt_acts() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Parent")).await;
        let run = world.claim().await;
        let token = format!("belay_attempt_{id}_1_{}", "0".repeat(64));
        let start = Start { token_hash: token_hash(&token), partial_output: true };
        world.control.start(run.who, start).await.unwrap();
        assert_eq!(world.control.speaker(&token).await.unwrap(), Some(run.who));
        let wrong = format!("belay_attempt_{id}_1_{}", "1".repeat(64));
        assert_eq!(world.control.speaker(&wrong).await.unwrap(), None);
        let child = world.control.add_subtask(run.who, task("Child"), None).await.unwrap();
        assert_eq!(child.summary.parent, Some(id));
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert_eq!(world.control.speaker(&token).await.unwrap(), None);
        let late = world.control.add_subtask(run.who, task("Late"), None).await.unwrap_err();
        assert_eq!(late.code, Code::Fenced);
    });
}

#[test]
fn an_attempt_that_may_not_act_asks_and_tells_nothing() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let asking = world.control.ask_person(run.who, words("Go on?")).await;
        let question = asking.unwrap().question.unwrap();
        let progress = || Progress { text: "Half.".into(), percent: Some(50) };
        let result = || Submission { text: "# Done".into() };
        world.control.report_progress(run.who, progress()).await.unwrap();
        world.control.submit_result(run.who, result()).await.unwrap();
        let view = world.control.show(id).await.unwrap();
        assert_eq!(view.progress.unwrap().text, "50 %: Half.");
        assert_eq!(view.summary_text.as_deref(), Some("# Done"));
        let stranger = QuestionId::from_bits(77);
        let unknown = world.control.await_answer(run.who, stranger, Duration::ZERO).await;
        assert_eq!(unknown.unwrap_err().code, Code::NotFound);
        for (text, percent) in [("", None), ("x", Some(101))] {
            let bad = Progress { text: text.into(), percent };
            let refused = world.control.report_progress(run.who, bad).await.unwrap_err();
            assert_eq!(refused.code, Code::BadRequest);
        }
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        let fenced = Code::Fenced;
        let ask = world.control.ask_person(run.who, words("Go on?")).await;
        assert_eq!(ask.unwrap_err().code, fenced);
        let waits = world.control.await_answer(run.who, question, Duration::from_secs(60)).await;
        assert_eq!(waits.unwrap_err().code, fenced);
        let told = world.control.report_progress(run.who, progress()).await;
        assert_eq!(told.unwrap_err().code, fenced);
        let told = world.control.submit_result(run.who, result()).await;
        assert_eq!(told.unwrap_err().code, fenced);
    });
}

#[test]
fn a_result_that_is_handed_in_is_progress_and_the_last_one_counts() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        for text in ["first", "second", "first"] {
            let result = Submission { text: text.into() };
            world.control.submit_result(run.who, result).await.unwrap();
        }
        let left = Left { changed: false, summary: Some("from a file".into()) };
        world.control.end(run.who, Ending::Succeeded(left)).await.unwrap();
        world.terminate(run.who).await;
        let view = world.control.show(id).await.unwrap();
        assert_eq!(view.summary_text.as_deref(), Some("first"));
        let events = world.control.events(Some(id), None, Duration::ZERO).await.unwrap();
        let told = events.events.iter().filter(|event| event.kind == "agent.result");
        assert_eq!(told.count(), 3);
    });
}

#[test]
fn a_token_opens_until_it_is_revoked_or_over() {
    test(async {
        let world = World::new().await;
        let new = |name: &str, expires_in: Option<&str>| NewToken {
            name: name.to_owned(),
            scope: Scope::Operator,
            expires_in: expires_in.map(str::to_owned),
        };
        let ask = || Ask::by("admin").key("k");
        let made = world.control.make_token(ask(), new("ci", None)).await.unwrap();
        let token = made.token.unwrap();
        let again = world.control.make_token(ask(), new("ci", None)).await.unwrap();
        assert_eq!((again.token, again.about.id), (None, made.about.id), "told once, made once");
        let twice = world.control.make_token("admin", new("ci", None)).await.unwrap_err();
        assert_eq!(twice.code, Code::Refused);

        let holder = world.control.principal(&token).await.unwrap().unwrap();
        assert_eq!((holder.scope(), holder.name()), (Scope::Operator, "ci"));
        let listed = world.control.tokens(ListTokens::default()).await.unwrap();
        assert!(listed.tokens[0].last_used_at.is_some(), "its use is shown");
        for wrong in ["", "belay_token_", &token[..token.len() - 1], &format!("{token}0")] {
            assert_eq!(world.control.principal(wrong).await.unwrap(), None, "{wrong}");
        }
        let brief = world.control.make_token("admin", new("brief", Some("1ms"))).await.unwrap();
        world.pass(Span::from_secs(1)).await;
        assert_eq!(world.control.principal(&brief.token.unwrap()).await.unwrap(), None);

        let revoked = world.control.revoke_token("admin", "ci").await.unwrap();
        assert!(revoked.revoked_at.is_some());
        assert_eq!(world.control.principal(&token).await.unwrap(), None);
        let by_id = made.about.id.to_string();
        let same = world.control.revoke_token("admin", &by_id).await.unwrap();
        assert_eq!(same, revoked, "revoked once");
        let unknown = world.control.revoke_token("admin", "ci").await.unwrap_err();
        assert_eq!(unknown.code, Code::NotFound);
        world.control.make_token("admin", new("ci", None)).await.unwrap();
        for name in ["", "admin", "two words", "0123456789abcdef", &"x".repeat(61)] {
            let refused = world.control.make_token("admin", new(name, None)).await.unwrap_err();
            assert_eq!(refused.code, Code::BadRequest, "{name}");
        }
    });
}

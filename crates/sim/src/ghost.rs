//! What speaks with an attempt's token: its agent while it lives, and whoever has kept the token
//! when the attempt is over. The second must get nothing, whoever acts for the task by then.

use std::sync::Arc;

use belay_api::NewTask;
use belay_api::port::{Asked, Beat, Ending, Left, Port, Pulse, Report, Who};
use belay_kernel::publish::{CommitId, Push};
use belay_kernel::{Cause, HeartbeatStatus, QuestionId, RunnerId};

use crate::net::{Line, Net, Speaker};

fn subtask() -> NewTask {
    NewTask { prompt: "Hold the ladder.".into(), allow_uncounted: true, ..NewTask::default() }
}

/// Whose token this is, if its attempt may act.
async fn speaker(net: &Arc<Net>, token: &str) -> Option<Who> {
    let token = token.to_owned();
    let asked = net.say(Speaker::Person, Line::Network, move |control| {
        let token = token.clone();
        async move { control.speaker(&token).await }
    });
    asked.await?.ok()?
}

/// The agent asks for a subtask, once.
pub(crate) async fn ask_for_subtask(net: &Arc<Net>, token: &str) {
    let Some(who) = speaker(net, token).await else { return };
    let key = format!("subtask-{:016x}", net.sim.rng().next());
    let asked = net.say(Speaker::Person, Line::Network, move |control| {
        let key = key.clone();
        async move { control.add_subtask(who, subtask(), Some(key)).await }
    });
    let _ = asked.await;
}

/// Whoever was an attempt's agent waits until the attempt is over, and then tries everything with
/// its token, again and again: meanwhile another attempt may act for the task.
pub(crate) async fn haunt(net: Arc<Net>, who: Who) {
    let mut left = net.sim.rng().between(1, 5);
    while left > 0 {
        net.sim.wait(500, 20_000).await;
        if net.sim.is_calm() {
            return;
        }
        if net.is_over(who) {
            left -= 1;
            try_everything(&net, who).await;
        }
    }
}

fn failed() -> Ending {
    Ending::Failed {
        cause: Cause::Crash,
        message: "Boo.".into(),
        resets_at: None,
        conversation_lost: false,
        left: Left::default(),
    }
}

/// Everything that a current attempt could say; none of it may change anything.
async fn try_everything(net: &Arc<Net>, who: Who) {
    net.sim.note(format_args!("ghost   of {} #{} speaks", who.task, who.attempt));
    let commit = CommitId::from_sha1([7; 20]);
    let said = net.say(Speaker::Person, Line::Network, move |control| async move {
        let report = Report { from: 0, bytes: b"boo".to_vec(), seen: Vec::new() };
        let asked = Asked {
            question: QuestionId::from_bits(u128::from(who.attempt.0)),
            text: "Boo?".into(),
            options: Vec::new(),
            held: false,
        };
        let pulse = Pulse { who, status: HeartbeatStatus::Running, told: true };
        let beat = Beat { runner: RunnerId::from_bits(99), attempts: vec![pulse] };
        let _ = control.add_subtask(who, subtask(), None).await;
        let _ = control.report(who, report).await;
        let _ = control.ask(who, asked).await;
        let _ = control.open_publish(who, Push { commit, expected: None }).await;
        let _ = control.end(who, Ending::Succeeded(Left::default())).await;
        let _ = control.end(who, failed()).await;
        let _ = control.beat(beat).await;
    });
    let _ = said.await;
}

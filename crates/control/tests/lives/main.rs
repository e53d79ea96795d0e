//! Whole lives of tasks through control's own surface, on the in-memory store: what a person asks,
//! what a runner says, what is stored and told. Real processes are the end-to-end tests' part.

#[path = "../support/mod.rs"]
mod support;

mod families;
mod questions;
mod silence;
mod speakers;
mod stops;
mod work;

use belay_api::NewQuestion;
use belay_api::port::{Assignment, Beat, Ending, Left, Port, Pulse, Who};
use belay_kernel::{Cause, HeartbeatStatus, Span};
use support::{RUNNER, World};

impl World {
    /// The node is gone for so long, and another one comes up; the runner joins it.
    async fn restart(&mut self, downtime: Span) -> Vec<Assignment> {
        self.set_ahead(downtime);
        self.control = self.another_node().await;
        self.join(RUNNER).await
    }

    async fn succeed(&self, who: Who) {
        let left = Left { changed: true, summary: Some("Mended.".into()) };
        self.control.end(who, Ending::Succeeded(left)).await.unwrap();
        self.terminate(who).await;
    }

    async fn fail(&self, who: Who, cause: Cause) {
        let ending = Ending::Failed {
            cause,
            message: "it broke".into(),
            resets_at: None,
            conversation_lost: false,
            left: Left { changed: true, summary: None },
        };
        self.control.end(who, ending).await.unwrap();
        self.terminate(who).await;
    }
}

fn beat(who: Who, told: bool) -> Beat {
    let pulse = Pulse { who, status: HeartbeatStatus::Running, told };
    Beat { runner: RUNNER, attempts: vec![pulse] }
}

fn words(text: &str) -> NewQuestion {
    NewQuestion { text: text.into(), options: Vec::new() }
}

//! The sweep: whatever a provider has and control does not want is killed, by its id, with a
//! tombstone. Its tree is elsewhere and stays, until its session is to be forgotten.

use std::sync::Arc;

use belay_api::port::{Fate, Port, Present};
use belay_kernel::{SessionId, Span};
use belay_sandbox::{Fence, Listed, Provider};

use crate::files::Files;
use crate::shared::{Shared, sleep};
use crate::workspace::Workspace;

/// Sweeps at once, and then as often as the limits say, for ever.
pub(crate) async fn sweep<C: Port, P: Provider, W>(shared: Arc<Shared<C, P, W>>) {
    loop {
        for (name, provider) in &shared.providers {
            if let Err(why) = sweep_one(&shared, provider).await {
                tracing::warn!(provider = name, why, "the sweep was not finished");
            }
        }
        sleep(shared.config.limits.orphan_sweep).await;
    }
}

/// Removes everything of a session but its kept work, and tells control.
pub(crate) async fn forget<C: Port, P: Provider, W: Workspace>(
    shared: &Shared<C, P, W>,
    session: SessionId,
) -> Result<(), String> {
    shared.workspace.remove(session).await.map_err(|error| error.to_string())?;
    let files = Files::of_session(&shared.config.root, session);
    match std::fs::remove_dir_all(&files) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", files.display()));
        }
        Ok(()) | Err(_) => {}
    }
    let forgot = shared.port.forgot(shared.config.runner, session).await;
    forgot.map_err(|error| error.to_string())
}

async fn sweep_one<C: Port, P: Provider, W>(
    shared: &Shared<C, P, W>,
    provider: &P,
) -> Result<(), String> {
    let listed = provider.list().await.map_err(|error| error.to_string())?;
    if listed.is_empty() {
        return Ok(());
    }
    let present =
        |one: &Listed| Present { sandbox: one.sandbox, installation_epoch: one.installation_epoch };
    let present = listed.iter().map(present).collect();
    let fates = shared.port.sweep(shared.config.runner, present).await;
    for (one, fate) in listed.iter().zip(fates.map_err(|error| error.to_string())?) {
        match fate {
            Fate::Keep => {}
            Fate::Kill => kill(provider, one).await?,
            Fate::Quarantine => {
                let (sandbox, task) = (one.sandbox, one.task);
                tracing::warn!(%sandbox, %task, "left as it is: it was made before a restore");
            }
        }
    }
    Ok(())
}

async fn kill<P: Provider>(provider: &P, one: &Listed) -> Result<(), String> {
    let fence = Fence { session: one.session, sandbox: one.sandbox, epoch: one.epoch };
    let text = |error: belay_sandbox::Error| error.to_string();
    provider.stop(&fence, Span::ZERO).await.map_err(text)?;
    provider.destroy(&fence).await.map_err(text)?;
    tracing::info!(sandbox = %one.sandbox, task = %one.task, "an orphan was ended");
    Ok(())
}

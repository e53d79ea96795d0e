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
        if let Err(why) = sweep_once(&shared).await {
            tracing::warn!(why, "the sweep was not finished");
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

/// Lists what all providers have, tells it together, and does what is answered. Control is told
/// also of nothing: what it wants and nobody has is missing. One provider that cannot be asked does
/// not keep the orphans of the others alive.
async fn sweep_once<C: Port, P: Provider, W>(shared: &Shared<C, P, W>) -> Result<(), String> {
    let mut listed: Vec<(&P, Listed)> = Vec::new();
    for (name, provider) in &shared.providers {
        match provider.list().await {
            Ok(found) => listed.extend(found.into_iter().map(|one| (provider, one))),
            Err(error) => tracing::warn!(provider = name, %error, "a provider was not listed"),
        }
    }
    let present = listed.iter().map(|(_, one)| Present {
        sandbox: one.sandbox,
        installation_epoch: one.installation_epoch,
    });
    let fates = shared.port.sweep(shared.config.runner, present.collect()).await;
    for ((provider, one), fate) in listed.iter().zip(fates.map_err(|error| error.to_string())?) {
        match fate {
            Fate::Keep => {}
            Fate::Kill => {
                if let Err(why) = kill(*provider, one).await {
                    tracing::warn!(sandbox = %one.sandbox, why, "an orphan was not ended");
                }
            }
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

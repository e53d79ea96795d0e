//! Orphans: what providers have and no row wants. A provider is asked first and the rows are read
//! after, so that what was made in between is not taken for an orphan: the row comes first.

use belay_api::port::{Fate, Present};
use belay_kernel::orphan::{self, Label, Listed, Wanted};
use belay_kernel::sandbox::State;
use belay_kernel::{Epoch, RunnerId};
use belay_store::Store;
use belay_store::rows::SandboxRow;

use crate::Control;
use crate::refuse::Outcome;

impl<S: Store> Control<S> {
    /// What is to become of sandboxes that a runner's providers have, all of them together.
    pub(crate) async fn judge_present(
        &self,
        runner: RunnerId,
        present: &[Present],
    ) -> Outcome<Vec<Fate>> {
        let now = self.now().await?;
        self.note_sighting(runner, now, present.iter().map(|one| one.sandbox).collect());
        let installation = self.store().installation();
        let label = |epoch| Label { installation: installation.id, epoch: Epoch(epoch) };
        let ids: Vec<_> = present.iter().map(|one| one.sandbox).collect();
        let rows = self.store().load::<SandboxRow>(&ids).await?;
        let both = present.iter().zip(rows);
        let fates = both.map(|(one, row)| {
            let wanted = match row {
                Some(row) if row.row.state != State::Terminated && !row.row.buried => Wanted::Yes,
                Some(_) | None => Wanted::No,
            };
            let ours = label(installation.epoch);
            match orphan::listed(label(one.installation_epoch), ours, wanted, now) {
                Listed::Keep | Listed::AwaitCreate(_) => Fate::Keep,
                Listed::TombstoneAndKill => Fate::Kill,
                Listed::NotOurs | Listed::Quarantine => Fate::Quarantine,
            }
        });
        Ok(fates.collect())
    }
}

//! The provider's directory.

use std::fs;
use std::path::{Path, PathBuf};

use belay_kernel::{SandboxId, SnapshotId};

use crate::error::{Error, Refusal, Result};
use crate::files::{self, Durability};
use crate::os::clock;
use crate::output::End;
use crate::plan::{Fence, Plan};
use crate::provider::Installation;
use crate::shim::wire::{END, HELD, Held, IDENTITY, Identity, LAUNCH, Launch};

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    root: PathBuf,
}

impl Home {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        files::private_directory(&root.join("sandboxes"))?;
        files::private_directory(&root.join("snapshots"))?;
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn sandbox(&self, sandbox: SandboxId) -> PathBuf {
        self.root.join("sandboxes").join(sandbox.to_string())
    }

    pub(crate) fn snapshot_archive(&self, id: SnapshotId) -> PathBuf {
        self.root.join("snapshots").join(format!("{id}.tar.zst"))
    }

    pub(crate) fn snapshot_record(&self, id: SnapshotId) -> PathBuf {
        self.root.join("snapshots").join(format!("{id}.json"))
    }

    pub(crate) fn identity(&self, sandbox: SandboxId) -> Result<Option<Identity>> {
        files::get(&self.sandbox(sandbox).join(IDENTITY))
    }

    /// Who a sandbox is that must be here.
    pub(crate) fn known(&self, sandbox: SandboxId) -> Result<Identity> {
        self.identity(sandbox)?.ok_or_else(|| Refusal::NotFound { sandbox }.into())
    }

    /// Refuses a sandbox that is not here, or belongs to another session.
    pub(crate) fn belongs(&self, fence: &Fence) -> Result<()> {
        match self.known(fence.sandbox)?.session == fence.session {
            true => Ok(()),
            false => Err(Refusal::WrongSession { sandbox: fence.sandbox }.into()),
        }
    }

    pub(crate) fn launch(&self, sandbox: SandboxId) -> Result<Option<Launch>> {
        files::get(&self.sandbox(sandbox).join(LAUNCH))
    }

    pub(crate) fn held(&self, sandbox: SandboxId) -> Result<Option<Held>> {
        files::get(&self.sandbox(sandbox).join(HELD))
    }

    pub(crate) fn end(&self, sandbox: SandboxId) -> Result<Option<End>> {
        files::get(&self.sandbox(sandbox).join(END))
    }

    pub(crate) fn put_end(&self, end: &End) -> Result<()> {
        files::put_once(&self.sandbox(end.sandbox).join(END), end)
    }

    /// Records who a sandbox is to be. Its name is what matters; it need not survive a power cut,
    /// because nothing that it names does.
    pub(crate) fn put_identity(
        &self,
        installation: Installation,
        fence: &Fence,
        plan: &Plan,
    ) -> Result<()> {
        let identity = Identity {
            installation,
            sandbox: fence.sandbox,
            session: fence.session,
            task: plan.task,
            attempt: plan.attempt,
            tree: plan.tree.clone(),
            created: clock::now(),
            boot: clock::boot_id(),
        };
        let directory = self.sandbox(fence.sandbox);
        files::private_directory(&directory)?;
        files::put(&directory.join(IDENTITY), &identity, Durability::Crash)
    }

    /// The plan of a container.
    pub(crate) fn plan(&self, sandbox: SandboxId) -> Result<Option<Plan>> {
        files::get(&self.sandbox(sandbox).join("plan.json"))
    }

    pub(crate) fn put_plan(&self, sandbox: SandboxId, plan: &Plan) -> Result<()> {
        files::put(&self.sandbox(sandbox).join("plan.json"), plan, Durability::Crash)
    }

    pub(crate) fn put_launch(&self, launch: &Launch) -> Result<()> {
        files::put(&self.sandbox(launch.sandbox).join(LAUNCH), launch, Durability::Crash)
    }

    /// Everything that is here, in order of its id.
    pub(crate) fn identities(&self) -> Result<Vec<Identity>> {
        let directory = self.root.join("sandboxes");
        let mut found = Vec::new();
        for entry in fs::read_dir(&directory).map_err(Error::io("list", &directory))? {
            let path = entry.map_err(Error::io("list", &directory))?.path();
            found.extend(files::get::<Identity>(&path.join(IDENTITY))?);
        }
        found.sort_by_key(|identity| identity.sandbox);
        Ok(found)
    }

    pub(crate) fn remove(&self, sandbox: SandboxId) -> Result<()> {
        files::remove_directory(&self.sandbox(sandbox))
    }

    pub(crate) fn forget(&self, id: SnapshotId) -> Result<()> {
        for path in [self.snapshot_record(id), self.snapshot_archive(id)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

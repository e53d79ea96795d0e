//! When the file that is the agent's standard output is looked at.
//!
//! A file has no end to wait for: it is read up to where it is now, and again when the kernel says
//! that it was changed. A machine gives each user few of the objects that say so (128 as a rule).
//! Where there is none left the file is looked at instead: soon after it grew, ever more rarely
//! while it does not.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use belay_kernel::Span;
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

use crate::os::clock;
use crate::plan::Moment;
use crate::shim::growing::Growing;
use crate::shim::wire::STDOUT;

/// How soon a file that grew is looked at again, where nobody tells; twice as late each time that
/// it did not grow.
const SOON: Span = Span::from_millis(10);
const LATE: Span = Span::from_millis(160);

/// The file, and when to look at it.
pub(super) struct Follow {
    pub(super) file: Growing,
    /// Becomes readable when the file was changed.
    notices: Option<OwnedFd>,
    pause: Span,
    look_at: Option<Moment>,
}

impl Follow {
    /// Makes the file in the current directory. Returns what follows it, and the agent's end.
    pub(super) fn create() -> io::Result<(Self, File)> {
        let (file, agents) = Growing::create(STDOUT.as_ref())?;
        let notices = watch().ok();
        let look_at = notices.is_none().then(clock::moment);
        Ok((Self { file, notices, pause: SOON, look_at }, agents))
    }

    pub(super) const fn notices(&self) -> Option<&OwnedFd> {
        self.notices.as_ref()
    }

    pub(super) const fn look_at(&self) -> Option<Moment> {
        self.look_at
    }

    /// Has the file looked at in the next turn, whatever happens.
    pub(super) fn look_soon(&mut self) {
        self.look_at = Some(clock::moment());
    }

    /// Whether it is time to look, because of a notice or by the clock. Notices are taken before
    /// the file is read, so that a change after the read gives another one.
    pub(super) fn is_due(&self) -> bool {
        let mut events = [0; 1024];
        let mut noticed = false;
        while let Some(notices) = &self.notices
            && rustix::io::read(notices, &mut events).is_ok_and(|count| count > 0)
        {
            noticed = true;
        }
        noticed || self.look_at.is_some_and(|at| clock::moment() >= at)
    }

    /// Notes when to look again, after all was read that there was.
    pub(super) fn rest(&mut self, grew: bool) {
        self.pause = if grew { SOON } else { self.pause.plus(self.pause).min(LATE) };
        self.look_at = self.notices.is_none().then(|| clock::moment().after(self.pause));
    }
}

fn watch() -> rustix::io::Result<OwnedFd> {
    let notices = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    add_watch(&notices, STDOUT, WatchFlags::MODIFY)?;
    Ok(notices)
}

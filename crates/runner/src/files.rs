//! The files of sessions and attempts, and how they are read and written beside an agent.
//!
//! ```text
//! ROOT/sessions/SESSION/                      for the runner's user alone
//!   home/                                     the agent's home, writable inside
//!   attempts/TASK-N/  prompt.md               read-only inside
//!                     question.json summary.md   written by the agent
//!   private/TASK-N/   launch.json             what was drawn and decided once
//!                     stdin.journal           what was written to the agent
//!                     started                 the agent may have been executed
//!                     executed                it was
//!                     thawed-TASK-N           it may have been thawed for this later attempt
//! ```
//!
//! An attempt that goes on in a frozen sandbox has the files of the attempt that the sandbox was
//! made for: its agent knows those, and what was written to it is in one journal.
//!
//! An agent can put links and pipes where we expect files. So nothing below its home is reached
//! through a link, and what it wrote is read only if it is a plain file, up to a bound. What is
//! shown inside is open to any user: the session's directory keeps everybody else out, and a
//! container's user is not the runner's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use belay_agent::{Conversation, ConversationId, PlannedFile};
use belay_api::port::{Assignment, Who};
use belay_kernel::SessionId;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The mark of an agent that was executed.
const EXECUTED: &str = "executed";

/// What was drawn and decided for an attempt once, so that it is the same after a restart.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decided {
    /// The attempt's own token.
    pub(crate) token: String,
    /// The conversation's id.
    pub(crate) conversation: ConversationId,
    /// Whether it is resumed.
    pub(crate) resumed: bool,
    /// What the agent is told.
    pub(crate) prompt: String,
}

impl Decided {
    pub(crate) fn conversation(&self) -> Conversation {
        let id = self.conversation.clone();
        if self.resumed { Conversation::Resumed(id) } else { Conversation::Fresh(id) }
    }
}

/// Where the files of one attempt are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    session: PathBuf,
    /// The agent's home.
    pub(crate) home: PathBuf,
    /// What the agent sees of its attempt.
    pub(crate) shown: PathBuf,
    private: PathBuf,
    /// The name of the file that says that the agent may have begun.
    began: String,
}

impl Files {
    pub(crate) fn of(root: &Path, assignment: &Assignment) -> Self {
        let session = Self::of_session(root, assignment.session);
        let named = |who: &Who| format!("{}-{}", who.task, who.attempt);
        let first = assignment.thaw.as_ref().map(|thaw| named(&thaw.first));
        let began = match first {
            Some(_) => format!("thawed-{}", named(&assignment.who)),
            None => "started".to_owned(),
        };
        let name = first.unwrap_or_else(|| named(&assignment.who));
        Self {
            home: session.join("home"),
            shown: session.join("attempts").join(&name),
            private: session.join("private").join(&name),
            session,
            began,
        }
    }

    /// Where everything of a session is.
    pub(crate) fn of_session(root: &Path, session: SessionId) -> PathBuf {
        root.join("sessions").join(session.to_string())
    }

    pub(crate) fn prompt(&self) -> PathBuf {
        self.shown.join("prompt.md")
    }

    pub(crate) fn question(&self) -> PathBuf {
        self.shown.join("question.json")
    }

    pub(crate) fn summary(&self) -> PathBuf {
        self.shown.join("summary.md")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.private.join("stdin.journal")
    }

    /// Makes the directories.
    pub(crate) fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.session)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.private)?;
        for path in [&self.home, &self.shown] {
            fs::create_dir_all(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        Ok(())
    }

    /// What was decided for this attempt before, if anything was.
    pub(crate) fn decided(&self) -> io::Result<Option<Decided>> {
        match fs::read(self.private.join("launch.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes down what is decided, and the prompt for the agent.
    pub(crate) fn decide(&self, decided: &Decided) -> io::Result<()> {
        fs::write(self.prompt(), &decided.prompt)?;
        let (making, path) = (self.private.join("launch.making"), self.private.join("launch.json"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&making)?;
        file.write_all(&serde_json::to_vec(decided)?)?;
        fs::rename(making, path)
    }

    /// Whether the agent may have been executed.
    pub(crate) fn is_started(&self) -> bool {
        self.private.join(&self.began).exists()
    }

    /// The agent may be executed from now on.
    pub(crate) fn set_started(&self) -> io::Result<()> {
        File::create(self.private.join(&self.began)).map(drop)
    }

    /// Whether the agent was executed.
    pub(crate) fn is_executed(&self) -> bool {
        self.private.join(EXECUTED).exists()
    }

    /// The agent was executed: whatever is found where it was, it is not executed again.
    pub(crate) fn set_executed(&self) -> io::Result<()> {
        File::create(self.private.join(EXECUTED)).map(drop)
    }

    /// Removes what the agent asked or said in an earlier attempt.
    pub(crate) fn clear_words(&self) -> io::Result<()> {
        for path in [self.question(), self.summary()] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Makes what an agent's plan wants in its home; links that are in the way go.
    pub(crate) fn plant(&self, directories: &[String], files: &[PlannedFile]) -> io::Result<()> {
        for directory in directories {
            self.below_home(Path::new(directory)).map(drop)?;
        }
        for file in files {
            let path = Path::new(&file.path);
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let directory = self.below_home(parent)?;
            let making = format!(".belay-{}", name.to_string_lossy());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            match rustix::fs::unlinkat(&directory, &*making, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            let mode = Mode::from_raw_mode(0o666);
            let made = rustix::fs::openat(&directory, &*making, flags | OFlags::CLOEXEC, mode)?;
            rustix::fs::fchmod(&made, mode)?;
            File::from(made).write_all(file.contents.as_bytes())?;
            rustix::fs::renameat(&directory, &*making, &directory, name)?;
        }
        Ok(())
    }

    /// Opens a directory in the agent's home, made if it is missing, without following a link.
    fn below_home(&self, path: &Path) -> io::Result<OwnedFd> {
        let outside = || io::Error::other("an agent's file would lie outside its home");
        let below = path.strip_prefix(&self.home).map_err(|_| outside())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = rustix::fs::open(&self.home, flags, Mode::empty())?;
        for part in below.components() {
            let Component::Normal(name) = part else { return Err(outside()) };
            directory = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                Ok(next) => next,
                Err(error @ (Errno::NOENT | Errno::LOOP | Errno::NOTDIR)) => {
                    if error != Errno::NOENT {
                        rustix::fs::unlinkat(&directory, name, AtFlags::empty())?;
                    }
                    let mode = Mode::from_raw_mode(0o777);
                    rustix::fs::mkdirat(&directory, name, mode)?;
                    let made = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
                    rustix::fs::fchmod(&made, mode)?;
                    made
                }
                Err(error) => return Err(error.into()),
            };
        }
        Ok(directory)
    }
}

/// Reads a file that an agent may have written: nothing if it is not a plain file, and at most
/// `limit` bytes and one more.
pub(crate) fn read_plain(path: &Path, limit: usize) -> Option<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let bits = i32::try_from(flags.bits()).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(bits).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn files(root: &Path) -> Files {
        let session = root.join("s");
        let files = Files {
            home: session.join("home"),
            shown: session.join("attempts/t-1"),
            private: session.join("private/t-1"),
            session,
            began: "started".into(),
        };
        files.make().unwrap();
        files
    }

    #[test]
    fn links_that_an_agent_left_in_its_home_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        let secret = root.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("settings.json"), "mine").unwrap();
        symlink(&secret, files.home.join("agent")).unwrap();
        symlink(secret.join("settings.json"), files.home.join("top.json")).unwrap();
        symlink(secret.join("settings.json"), files.home.join(".belay-top.json")).unwrap();
        let path = |name: &str| files.home.join(name).display().to_string();
        let planned = |name| PlannedFile { path: path(name), contents: "planned".into() };
        let plan = [planned("agent/settings.json"), planned("top.json")];
        files.plant(&[path("agent/deep/er")], &plan).unwrap();
        assert_eq!(fs::read_to_string(secret.join("settings.json")).unwrap(), "mine");
        for name in ["agent/settings.json", "top.json"] {
            assert_eq!(fs::read_to_string(files.home.join(name)).unwrap(), "planned");
        }
        assert!(files.home.join("agent/deep/er").is_dir());
        let outside = PlannedFile { path: path("../x"), contents: String::new() };
        assert!(files.plant(&[], &[outside]).is_err());
    }

    #[test]
    fn only_plain_files_are_read_and_only_so_much_of_them() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("plain"), "12345").unwrap();
        symlink(path("plain"), path("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(read_plain(&path("plain"), 3), Some(b"1234".to_vec()));
        for name in ["link", "pipe", ".", "missing"] {
            assert_eq!(read_plain(&path(name), 3), None, "{name}");
        }
    }
}

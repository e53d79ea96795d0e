//! The data directory: where the database, the token and the server's address are.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::process::Process;

/// The server that is up, as it wrote itself down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ServerFile {
    /// Its process, which can be told from a later one with the same id.
    #[serde(flatten)]
    pub(crate) process: Process,
    /// Where it listens.
    pub(crate) url: String,
    /// Its version.
    pub(crate) version: String,
}

/// A data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Data {
    root: PathBuf,
}

impl Data {
    /// The directory that is named, else the usual one.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, Fault> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = match (named, set("XDG_DATA_HOME"), std::env::home_dir()) {
            (Some(named), _, _) => named.to_owned(),
            (None, Some(base), _) => PathBuf::from(base).join("belay"),
            (None, None, Some(home)) => home.join(".local/share/belay"),
            (None, None, None) => {
                let text = "there is no home directory; say where to keep data with --data-dir";
                return Err(Fault::usage(text));
            }
        };
        let root = std::path::absolute(&root).map_err(|error| Fault::file(&root, &error))?;
        Ok(Self { root })
    }

    /// The directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A file or directory in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The directory with the socket for agents in containers.
    pub(crate) fn agents(&self) -> PathBuf {
        self.path("agents")
    }

    /// Whether there is a database in it.
    pub(crate) fn is_used(&self) -> bool {
        self.path(belay_store::sqlite::DATABASE).exists()
    }

    /// Makes the directory, for its owner alone.
    pub(crate) fn make(&self) -> Result<(), Fault> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root);
        made.map_err(|error| Fault::file(&self.root, &error))
    }

    /// The token, which is made when there is none.
    pub(crate) fn make_token(&self) -> Result<String, Fault> {
        let path = self.path("token");
        if path.exists() {
            return self.token();
        }
        let mut bits = [0u8; 32];
        getrandom::fill(&mut bits)
            .map_err(|error| Fault::failed(format!("there is no randomness: {error}")))?;
        let token: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        // Linked into place whole: whoever reads it never sees half a token.
        let temporary = self.path(&format!("token.{}", std::process::id()));
        write_new(&temporary, token.as_bytes())?;
        let linked = fs::hard_link(&temporary, &path);
        // A file that stays behind holds a token that nobody uses.
        let _ = fs::remove_file(&temporary);
        match linked {
            Ok(()) => Ok(token),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.token(),
            Err(error) => Err(Fault::file(&path, &error)),
        }
    }

    /// The token.
    pub(crate) fn token(&self) -> Result<String, Fault> {
        let path = self.path("token");
        let mut text = String::new();
        fs::File::open(&path)
            .and_then(|file| file.take(1024).read_to_string(&mut text))
            .map_err(|error| Fault::file(&path, &error))?;
        Ok(text.trim().to_owned())
    }

    /// The server that wrote itself down and is still there.
    pub(crate) fn server(&self) -> Option<ServerFile> {
        let text = fs::read(self.path("server.json")).ok()?;
        let server: ServerFile = serde_json::from_slice(&text).ok()?;
        server.process.is_alive().then_some(server)
    }

    /// Writes the server down, whole or not at all.
    pub(crate) fn write_server(&self, server: &ServerFile) -> Result<(), Fault> {
        let text = serde_json::to_vec_pretty(server)
            .map_err(|error| Fault::failed(format!("server.json cannot be told: {error}")))?;
        self.write("server.json", &text)
    }

    /// Writes a file, whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let path = self.path(name);
        let temporary = self.path(&format!("{name}.{}", std::process::id()));
        write_new(&temporary, bytes)?;
        fs::rename(&temporary, &path).map_err(|error| Fault::file(&path, &error))
    }

    /// Removes what `server` wrote, if it is still that.
    pub(crate) fn remove_server(&self, server: &ServerFile) {
        let path = self.path("server.json");
        let written = fs::read(&path).ok();
        let same = written.and_then(|text| serde_json::from_slice::<ServerFile>(&text).ok());
        if same.as_ref() == Some(server) {
            // A file that stays names a process that is gone, and is not believed.
            let _ = fs::remove_file(&path);
        }
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    // Left by an earlier process with the same id.
    let _ = fs::remove_file(path);
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| Fault::file(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_token_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let data = Data::find(Some(&directory.path().join("deep/data"))).unwrap();
        data.make().unwrap();
        let token = data.make_token().unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(data.make_token().unwrap(), token);
        assert_eq!(data.token().unwrap(), token);
        let mode = fs::metadata(data.path("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mode = fs::metadata(data.root()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(fs::read_dir(data.root()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_server_that_is_gone_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let data = Data::find(Some(directory.path())).unwrap();
        assert_eq!(data.server(), None);
        let process = Process::own().unwrap();
        let server = ServerFile { process, url: "http://127.0.0.1:1".into(), version: "1".into() };
        data.write_server(&server).unwrap();
        assert_eq!(data.server(), Some(server.clone()));
        let mut other = server.clone();
        other.process.start += 1;
        data.write_server(&other).unwrap();
        assert_eq!(data.server(), None, "the same pid, but a later process");
        data.remove_server(&server);
        assert!(data.path("server.json").exists(), "it is another's");
        data.remove_server(&other);
        assert!(!data.path("server.json").exists());
    }
}

//! File-system snapshots: a compressed archive of a tree, and the tree back from it, bit for bit.
//!
//! The archive is an ordinary tar in zstd with a checksum, so that any tool can read it: owners,
//! modes, times to the nanosecond, symbolic and hard links, empty directories, FIFOs. Sockets are
//! left out: they mean nothing without the process behind them. A restore builds the tree beside
//! its place and renames it there, so there is never half of one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use belay_kernel::{SandboxId, SnapshotId};
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, utimensat};
use tar::{Archive, Builder, EntryType, Header};

use crate::error::{Error, Refusal, Result};
use crate::files::{self, Durability};
use crate::os::clock;
use crate::process::Home;
use crate::provider::{Snapshot, SnapshotKind};

/// Fast enough to be bound by the disk.
const LEVEL: i32 = 3;
const MTIME: &str = "BELAY.mtime";

/// Takes a snapshot of a sandbox's tree; one that was taken under this id before is returned.
pub(crate) fn snapshot_of(home: &Home, sandbox: SandboxId, id: SnapshotId) -> Result<Snapshot> {
    if let Some(taken) = files::get::<Snapshot>(&home.snapshot_record(id))? {
        return Ok(taken);
    }
    let identity = home.known(sandbox)?;
    if !identity.tree.is_dir() {
        return Err(Refusal::TreeMissing { path: identity.tree }.into());
    }
    let group = home.launch(sandbox)?.and_then(|launch| launch.group);
    let running = home.end(sandbox)?.is_none();
    let group = group.filter(|group| running && group.can_kill() && !group.freeze_wanted());
    // A tree that nobody changes meanwhile: the lease goes on, and a kill reaches what is frozen.
    if let Some(group) = &group {
        let _ = group.freeze(true);
    }
    let packed = save(&identity.tree, &home.snapshot_archive(id));
    if let Some(group) = &group {
        let _ = group.freeze(false);
    }
    let bytes = packed?;
    let kind = SnapshotKind::Files;
    let snapshot = Snapshot { id, kind, sandbox, at: clock::now(), bytes };
    files::put(&home.snapshot_record(id), &snapshot, Durability::PowerCut)?;
    Ok(snapshot)
}

/// Packs a tree into an archive, durably and whole or not at all; says how large it is.
pub(crate) fn save(tree: &Path, archive: &Path) -> Result<u64> {
    let temporary = archive.with_extension("new");
    let packed = pack(tree, &temporary).and_then(|bytes| {
        fs::rename(&temporary, archive)?;
        files::sync_directory(archive.parent().unwrap_or(Path::new("/")))?;
        Ok(bytes)
    });
    if packed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    packed.map_err(Error::io("make a snapshot of", tree))
}

/// Gives the tree back in its place, from a snapshot that was taken here.
pub(crate) fn restore_tree(
    home: &Home,
    id: SnapshotId,
    sandbox: SandboxId,
    tree: &Path,
) -> Result<()> {
    let recorded = files::get::<Snapshot>(&home.snapshot_record(id))?;
    let snapshot = recorded.ok_or(Refusal::SnapshotMissing { snapshot: id })?;
    let archive = home.snapshot_archive(id);
    load(&archive, snapshot.bytes, id, sandbox, tree)
}

/// Unpacks an archive of `bytes` bytes beside `tree` and renames it there.
pub(crate) fn load(
    archive: &Path,
    bytes: u64,
    id: SnapshotId,
    sandbox: SandboxId,
    tree: &Path,
) -> Result<()> {
    let broken = |problem: String| Refusal::SnapshotBroken { snapshot: id, problem };
    if tree.symlink_metadata().is_ok() && !is_empty_directory(tree) {
        return Err(Refusal::TreeExists { path: tree.to_owned() }.into());
    }
    match archive.metadata() {
        Ok(metadata) if metadata.len() == bytes => {}
        Ok(metadata) => {
            let found = metadata.len();
            return Err(broken(format!("{found} bytes of {bytes} are there")).into());
        }
        Err(error) => return Err(broken(error.to_string()).into()),
    }
    let name = tree.file_name().unwrap_or_default().to_string_lossy();
    let building = tree.with_file_name(format!(".{name}.belay-{sandbox}"));
    files::remove_directory(&building)?;
    let built = unpack(archive, &building);
    if let Err(error) = built {
        make_removable(&building);
        files::remove_directory(&building)?;
        return Err(broken(error.to_string()).into());
    }
    if tree.is_dir() {
        fs::remove_dir(tree).map_err(Error::io("replace", tree))?;
    }
    fs::rename(&building, tree).map_err(Error::io("restore", tree))
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn pack(tree: &Path, archive: &Path) -> io::Result<u64> {
    let mut encoder = zstd::Encoder::new(BufWriter::new(File::create(archive)?), LEVEL)?;
    encoder.include_checksum(true)?;
    let mut packer = Packer { builder: Builder::new(encoder), links: HashMap::new() };
    packer.add(tree, Path::new(""))?;
    let file = packer.builder.into_inner()?.finish()?.into_inner()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

struct Packer<W: Write> {
    builder: Builder<W>,
    /// The first name of every file that has several.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Packer<W> {
    fn add(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let metadata = path.symlink_metadata()?;
        let kind = metadata.file_type();
        if kind.is_socket() {
            return Ok(());
        }
        let inside = Path::new(".").join(name);
        let mut header = header_of(&metadata);
        let mtime = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        self.builder.append_pax_extensions([(MTIME, mtime.as_bytes())])?;
        if kind.is_dir() {
            header.set_entry_type(EntryType::Directory);
            self.builder.append_data(&mut header, &inside, io::empty())?;
            return self.add_children(path, name);
        }
        if metadata.nlink() > 1 {
            let key = (metadata.dev(), metadata.ino());
            if let Some(first) = self.links.get(&key) {
                header.set_entry_type(EntryType::Link);
                return self.builder.append_link(&mut header, &inside, first);
            }
            self.links.insert(key, inside.clone());
        }
        if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            return self.builder.append_link(&mut header, &inside, fs::read_link(path)?);
        }
        if kind.is_file() {
            header.set_size(metadata.len());
            let file = File::open(path)?;
            // A file that shrinks meanwhile must not shift what comes after it.
            let padded = file.take(metadata.len()).chain(io::repeat(0)).take(metadata.len());
            return self.builder.append_data(&mut header, &inside, padded);
        }
        header.set_entry_type(match () {
            () if kind.is_fifo() => EntryType::Fifo,
            () if kind.is_char_device() => EntryType::Char,
            () => EntryType::Block,
        });
        header.set_device_major(rustix::fs::major(metadata.rdev()))?;
        header.set_device_minor(rustix::fs::minor(metadata.rdev()))?;
        self.builder.append_data(&mut header, &inside, io::empty())
    }

    fn add_children(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let mut children: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
        children.sort_by_key(fs::DirEntry::file_name);
        for child in children {
            match self.add(&child.path(), &name.join(child.file_name())) {
                // What was removed meanwhile is not part of the snapshot.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                added => added?,
            }
        }
        Ok(())
    }
}

fn header_of(metadata: &fs::Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

/// What a directory gets once everything is in it.
struct Finish {
    path: PathBuf,
    mode: u32,
    mtime: Option<Timespec>,
}

fn unpack(archive: &Path, tree: &Path) -> io::Result<()> {
    let decoder = zstd::Decoder::new(BufReader::new(File::open(archive)?))?;
    let mut archive = Archive::new(decoder);
    archive.set_preserve_mtime(false);
    fs::create_dir(tree)?;
    fs::set_permissions(tree, fs::Permissions::from_mode(0o700))?;
    let root = rustix::process::geteuid().is_root();
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = inside(&entry.path()?)?;
        let path = tree.join(&name);
        let header = entry.header().clone();
        let mtime = entry.pax_extensions()?.and_then(mtime_of);
        let mode = header.mode()?;
        let kind = header.entry_type();
        if kind.is_dir() {
            if name != Path::new("") {
                fs::create_dir(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
            }
        } else {
            make(&mut entry, kind, tree, &path)?;
        }
        if root && !kind.is_hard_link() {
            let (uid, gid) = (u32::try_from(header.uid()?), u32::try_from(header.gid()?));
            std::os::unix::fs::lchown(&path, uid.ok(), gid.ok())?;
        }
        if kind.is_dir() {
            directories.push(Finish { path, mode, mtime });
        } else if !kind.is_hard_link() {
            if !kind.is_symlink() {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            set_mtime(&path, mtime)?;
        }
    }
    // The end of the compressed stream carries the checksum; it must be read to be checked.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    for directory in directories.into_iter().rev() {
        fs::set_permissions(&directory.path, fs::Permissions::from_mode(directory.mode))?;
        set_mtime(&directory.path, directory.mtime)?;
    }
    Ok(())
}

/// A name that stays inside: no `..`, no root.
fn inside(name: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a name leads outside"));
            }
        }
    }
    Ok(clean)
}

/// Makes anything but a directory. Every name is new, so nothing is written through a link.
fn make<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    kind: EntryType,
    tree: &Path,
    path: &Path,
) -> io::Result<()> {
    let target = entry.link_name()?.map(|name| name.into_owned());
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "a link leads nowhere");
    match kind {
        EntryType::Symlink => std::os::unix::fs::symlink(target.ok_or_else(missing)?, path),
        EntryType::Link => fs::hard_link(tree.join(inside(&target.ok_or_else(missing)?)?), path),
        EntryType::Fifo | EntryType::Char | EntryType::Block => {
            let (major, minor) = (entry.header().device_major()?, entry.header().device_minor()?);
            let device = rustix::fs::makedev(major.unwrap_or(0), minor.unwrap_or(0));
            let kind = match kind {
                EntryType::Fifo => rustix::fs::FileType::Fifo,
                EntryType::Char => rustix::fs::FileType::CharacterDevice,
                _ => rustix::fs::FileType::BlockDevice,
            };
            Ok(rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device)?)
        }
        _ => {
            let mut file = File::create_new(path)?;
            io::copy(entry, &mut file).map(drop)
        }
    }
}

fn mtime_of(extensions: tar::PaxExtensions<'_>) -> Option<Timespec> {
    extensions.flatten().find(|extension| extension.key() == Ok(MTIME)).and_then(|extension| {
        let (seconds, nanos) = extension.value().ok()?.split_once('.')?;
        Some(Timespec { tv_sec: seconds.parse().ok()?, tv_nsec: nanos.parse().ok()? })
    })
}

fn set_mtime(path: &Path, mtime: Option<Timespec>) -> io::Result<()> {
    let Some(mtime) = mtime else { return Ok(()) };
    let times = Timestamps { last_access: mtime, last_modification: mtime };
    Ok(utimensat(CWD, path.as_os_str().as_bytes(), &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Lets an ordinary user remove directories that were given back without write permission.
fn make_removable(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

//! Whether an agent's `.git` is still the kind of thing that we made.
//!
//! One that was pointed elsewhere (a `gitdir:` file, `commondir`, other `alternates`, links) could
//! make us read, and publish, a repository that the agent never saw.

use std::path::Path;

/// What `alternates` holds in a tree that borrows from `mirror`.
pub(crate) fn alternates_for(mirror: &Path) -> String {
    format!("{}\n", mirror.join("objects").display())
}

/// Looks at a tree's `.git`; what is wrong with it otherwise.
pub(crate) fn inspect(tree: &Path, mirror: &Path) -> Result<(), &'static str> {
    let git = tree.join(".git");
    let is_plain = |path: &Path, file: bool| {
        path.symlink_metadata().is_ok_and(|meta| if file { meta.is_file() } else { meta.is_dir() })
    };
    if !is_plain(&git, false) {
        return Err("`.git` is not a directory");
    }
    if git.join("commondir").symlink_metadata().is_ok() {
        return Err("`.git` borrows another repository");
    }
    let info = git.join("objects/info");
    if !is_plain(&git.join("objects"), false) || !is_plain(&info, false) {
        return Err("`.git/objects` is not a directory");
    }
    let alternates = info.join("alternates");
    let expected = alternates_for(mirror);
    let ours = is_plain(&alternates, true)
        && std::fs::read_to_string(&alternates).is_ok_and(|text| text == expected);
    if !ours || info.join("http-alternates").symlink_metadata().is_ok() {
        return Err("`.git` borrows objects from elsewhere");
    }
    if has_links(&git.join("objects"), 3) || has_links(&git.join("refs"), 64) {
        return Err("`.git` holds links");
    }
    let plain = |name: &str| is_plain(&git.join(name), true);
    let packed = git.join("packed-refs").symlink_metadata().is_err() || plain("packed-refs");
    if !plain("HEAD") || !packed {
        return Err("`.git/HEAD` or `packed-refs` is not a file");
    }
    Ok(())
}

/// Whether anything below `directory` is a link, or deeper than git makes it.
fn has_links(directory: &Path, depth: u32) -> bool {
    let Ok(entries) = directory.read_dir() else { return true };
    entries.into_iter().any(|entry| {
        let Ok(kind) = entry.as_ref().map_err(drop).and_then(|e| e.file_type().map_err(drop))
        else {
            return true;
        };
        match entry {
            Ok(entry) if kind.is_dir() => depth == 0 || has_links(&entry.path(), depth - 1),
            Ok(_) => kind.is_symlink(),
            Err(_) => true,
        }
    })
}

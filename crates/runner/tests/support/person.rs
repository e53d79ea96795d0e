//! What a person does beside Belay.

use std::path::Path;
use std::process::Command;

/// Runs git as a person would, and returns what it printed.
pub(crate) fn git(directory: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=P", "-c", "user.email=p@example.com"])
        .args(words)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {words:?} in {}: {said}", directory.display());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

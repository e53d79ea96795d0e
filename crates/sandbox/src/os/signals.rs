//! Signals as a program expects to find them.
//!
//! What a process ignores, its children ignore too, across `exec`. A runner that was started with
//! `&` from a script ignores SIGINT; an agent that inherits that cannot be interrupted, and a
//! shell cannot even set a trap for it. One that inherits an ignored SIGCHLD cannot wait for its
//! children.

/// Lets every signal do by default what it does by default, for this process and those it starts.
///
/// SIGPIPE stays as it is: the standard library ignores it for us and resets it for what we start.
pub(crate) fn reset() {
    let catchable = |signal: &i32| ![libc::SIGKILL, libc::SIGSTOP, libc::SIGPIPE].contains(signal);
    for signal in (1..32).filter(catchable) {
        // SAFETY: `SIG_DFL` installs no handler, so that nothing of ours can be called from one.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

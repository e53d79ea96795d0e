//! The provider's side of a shim's socket.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use belay_kernel::Span;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::duration;
use crate::shim::wire::{Reply, Request, SOCKET};

/// Why there is no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallError {
    /// Nobody listens there, or whoever did is gone.
    Gone,
    /// Somebody is there and did not answer in time.
    TimedOut,
}

/// Sends a request with its bytes, and waits for the reply.
pub(super) async fn call(
    directory: &Path,
    request: &Request,
    body: &[u8],
    limit: Span,
) -> Result<Reply, CallError> {
    match tokio::time::timeout(duration(limit), exchange(directory, request, body)).await {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err(CallError::Gone),
        Err(_) => Err(CallError::TimedOut),
    }
}

async fn exchange(directory: &Path, request: &Request, body: &[u8]) -> Option<Reply> {
    // A socket's path may have 108 bytes at most; a directory's own descriptor is always short.
    let directory = File::open(directory).ok()?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    let mut stream = UnixStream::connect(path).await.ok()?;
    let mut message = serde_json::to_vec(request).ok()?;
    message.push(b'\n');
    message.extend_from_slice(body);
    stream.write_all(&message).await.ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.ok()?;
    serde_json::from_slice(&reply).ok()
}

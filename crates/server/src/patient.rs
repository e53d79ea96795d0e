//! A connection whose other side must take what it is sent.
//!
//! A client that stops reading would hold its connection, and everything that waits for it, for
//! ever. Here a write that makes no progress for a while is a failure, and the connection ends.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection, with how long a write may stand still.
#[derive(Debug)]
pub(crate) struct Patient<T> {
    stream: T,
    limit: Duration,
    /// Runs while a write stands still.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    pub(crate) fn new(stream: T, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    /// What a write came to, or that it has stood still for too long.
    fn judge<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_off_and_who_is_slow_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut patient = Patient::new(ours, LIMIT);
        let slow = tokio::spawn(async move {
            let mut byte = [0];
            for _ in 0..16 {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                theirs.read_exact(&mut byte).await.unwrap();
            }
            theirs
        });
        patient.write_all(&[7; 32]).await.unwrap();
        let theirs = slow.await.unwrap();
        let error = patient.write_all(&[7; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}

//! Work that blocks, away from the threads that must not.

use std::sync::Arc;

use belay_kernel::Span;

use crate::error::{Error, Result};

/// Runs something that blocks, with what it needs at hand. Its panic is the caller's.
pub(crate) async fn blocking<I: Send + Sync + 'static, T: Send + 'static>(
    inner: &Arc<I>,
    work: impl FnOnce(&I) -> Result<T> + Send + 'static,
) -> Result<T> {
    let inner = Arc::clone(inner);
    match tokio::task::spawn_blocking(move || work(&inner)).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::TimedOut { operation: "shutting down", after: Span::ZERO }),
    }
}

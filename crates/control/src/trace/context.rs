//! Where in which trace something happens, as W3C's `traceparent` says it.

use std::fmt;
use std::str::FromStr;

tokio::task_local! {
    static CURRENT: Context;
}

/// A place in a trace: the trace, and a span of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The trace; never zero.
    pub trace: u128,
    /// The span; never zero.
    pub span: u64,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// The text is no `traceparent`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoContext;

impl FromStr for Context {
    type Err = NoContext;

    fn from_str(text: &str) -> Result<Self, NoContext> {
        let mut parts = text.trim().split('-');
        let mut part = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length).ok_or(NoContext)?;
            let plain = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            u128::from_str_radix(part, 16).ok().filter(|_| plain).ok_or(NoContext)
        };
        let (version, trace, span) = (part(2)?, part(32)?, part(16)?);
        part(2)?;
        let span = u64::try_from(span).map_err(|_| NoContext)?;
        if version == 0xff || trace == 0 || span == 0 {
            return Err(NoContext);
        }
        Ok(Self { trace, span })
    }
}

/// Does something within a context.
pub async fn within<F: Future>(context: Option<Context>, work: F) -> F::Output {
    match context {
        Some(context) => CURRENT.scope(context, work).await,
        None => work.await,
    }
}

/// The context that this is done within.
pub fn current() -> Option<Context> {
    CURRENT.try_with(|context| *context).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_what_w3c_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context: Context = text.parse().unwrap();
        assert_eq!(context.span, 0xb7ad_6b71_6920_3331);
        assert_eq!(context.to_string(), text);
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(wrong.parse::<Context>(), Err(NoContext), "{wrong}");
        }
    }
}

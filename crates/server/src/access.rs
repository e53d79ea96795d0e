//! Who may ask: whoever has the token, by a name of this server.

use std::fmt;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, Uri, header};
use belay_api::Code;

use crate::answer::Failed;
use crate::bounds::Bounds;
use crate::figures::Figures;
use crate::tls::Tls;

/// A secret that opens the server. It is never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// The token with this text.
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Whether this is it. How long that takes tells nothing of where they differ.
    fn is(&self, other: &[u8]) -> bool {
        let mut different = u8::from(self.0.len() != other.len());
        for (index, byte) in self.0.iter().enumerate() {
            different |= black_box(byte ^ other.get(index).copied().unwrap_or(0));
        }
        black_box(different) == 0 && !self.0.is_empty()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Whose tokens are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holders {
    /// Anybody's. Some routes need none.
    Anybody,
    /// Those of attempts. Every route needs one.
    Agents,
}

/// What opens the server, by which names it is reached, and how much it takes.
#[derive(Clone, Debug)]
pub struct Access {
    token: Token,
    hosts: Vec<String>,
    /// Whether any number is a name of ours: where it listens at every address of the machine.
    any_number: bool,
    holders: Holders,
    tls: Option<Tls>,
    bounds: Bounds,
    figures: Option<Arc<Figures>>,
}

impl Access {
    /// A server that `token` opens, reached at `address` or by a loopback name.
    pub fn new(token: Token, address: SocketAddr) -> Self {
        let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let any_number = address.ip().is_unspecified();
        let (holders, bounds) = (Holders::Anybody, Bounds::USUAL);
        let hosts = hosts.to_vec();
        let (tls, figures) = (None, None);
        let mut access = Self { token, hosts, any_number, holders, tls, bounds, figures };
        if !any_number {
            access.hosts.push(address.ip().to_string());
        }
        access
    }

    /// A server that the tokens of attempts open and nothing else does, not even an admin's:
    /// whoever speaks there is an agent.
    pub fn for_agents() -> Self {
        Self {
            // The empty token opens nothing.
            token: Token::new(""),
            hosts: vec!["localhost".to_owned()],
            any_number: false,
            holders: Holders::Agents,
            tls: None,
            bounds: Bounds::USUAL,
            figures: None,
        }
    }

    /// The same, reached by this name too.
    #[must_use]
    pub fn known_as(mut self, host: &str) -> Self {
        self.hosts.push(host.to_ascii_lowercase());
        self
    }

    /// The same, over connections that are encrypted with this.
    #[must_use]
    pub fn encrypted(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same, taking so much.
    #[must_use]
    pub const fn within(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// The same, counting its requests here: what is served in several places tells the same
    /// figures in each of them.
    #[must_use]
    pub fn counted_in(self, figures: &Arc<Figures>) -> Self {
        Self { figures: Some(Arc::clone(figures)), ..self }
    }

    /// Where its requests are counted, if others count there too.
    pub(crate) fn figures(&self) -> Option<&Arc<Figures>> {
        self.figures.as_ref()
    }

    /// How much is taken.
    pub(crate) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// What connections are encrypted with.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Whether a request names a host of ours: a page of another name that points here does not.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Failed> {
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = uri.authority().map(|authority| authority.as_str()).or(named).unwrap_or("");
        let name = without_port(host).to_ascii_lowercase();
        // A page of another name cannot be served from a number, so a number misleads nobody.
        let number = || self.any_number && name.parse::<IpAddr>().is_ok();
        if self.hosts.contains(&name) || number() {
            return Ok(());
        }
        let detail = format!(
            "`{}` is not a name of this server; use one of {}",
            name.chars().take(80).collect::<String>(),
            self.hosts.join(", "),
        );
        Err(Failed::new(Code::Forbidden, detail))
    }

    /// Whether nobody is answered who does not hold an attempt's token.
    pub(crate) fn only_agents(&self) -> bool {
        self.holders == Holders::Agents
    }

    /// Whether this is the installation's token.
    pub(crate) fn opens(&self, token: &str) -> bool {
        self.token.is(token.as_bytes())
    }
}

/// The bearer token that a request carries; nothing, if it carries none.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Failed> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| unknown_token())?;
    let (scheme, token) = text.split_at_checked(7).ok_or_else(unknown_token)?;
    match scheme.eq_ignore_ascii_case("bearer ") {
        true => Ok(Some(token)),
        false => Err(unknown_token()),
    }
}

/// A token that opens nothing.
pub(crate) fn unknown_token() -> Failed {
    Failed::new(
        Code::Unauthorized,
        "the token opens nothing here: it is not this server's, or it was revoked, or it is over; \
         `belay token create` makes one, and the first is in the file `token` of the data \
         directory",
    )
}

/// The name in a `Host`: without the port, and without the brackets of IPv6.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or("");
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_token_opens() {
        let token = Token::new("secret");
        assert!(token.is(b"secret"));
        for wrong in ["", "secre", "secret ", "Secret", "secretsecret"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(!Token::new("").is(b""), "an empty token opens nothing");
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn a_host_is_a_name_with_or_without_a_port() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:7425", "localhost"),
            ("[::1]:7425", "::1"),
            ("[::1]", "::1"),
            ("127.0.0.1:80", "127.0.0.1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}

//! Who carries letters: over HTTP, to where a hook may point and nowhere else.
//!
//! The address is judged where it is used: the resolver gives the connection only addresses that
//! were found to be allowed, so a name that points elsewhere a moment later (DNS rebinding) is
//! looked up, judged and refused again. There are no redirects and no proxies.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belay_kernel::Span;
use belay_kernel::webhook::{Network, Place, may_reach};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

/// What is carried.
#[derive(Clone)]
pub struct Parcel {
    /// Where to.
    pub url: String,
    /// Headers, besides those that every request has.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long the receiver has to answer.
    pub limit: Duration,
}

/// Without the address, which may hold a secret.
impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// Why something was not delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undelivered {
    /// A few words, without anything secret.
    pub failure: String,
    /// How long the receiver asks us to wait.
    pub retry_after: Option<Span>,
}

impl Undelivered {
    fn because(failure: impl Into<String>) -> Self {
        Self { failure: failure.into(), retry_after: None }
    }
}

/// What a delivery comes to.
pub type Delivery = Pin<Box<dyn Future<Output = Result<(), Undelivered>> + Send>>;

/// Carries letters. A trait, so that control can be tested without a network.
pub trait Courier: Send + Sync + 'static {
    /// Whether a hook may point there, as far as the text tells; else a sentence why not.
    fn check(&self, url: &str) -> Result<(), String>;
    /// Delivers one.
    fn send(&self, parcel: Parcel) -> Delivery;
}

/// A courier over HTTP.
#[derive(Debug)]
pub struct HttpCourier {
    client: Client,
    allowed: Arc<[Network]>,
}

impl HttpCourier {
    /// A courier that reaches public addresses, and those in `allowed`.
    pub fn new(allowed: Vec<Network>) -> Result<Self, reqwest::Error> {
        // The HTTP library asks for it also where nothing is encrypted; the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Arc<[Network]> = allowed.into();
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .pool_idle_timeout(Duration::from_secs(30))
            .user_agent(concat!("belay/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(Judged(allowed.clone())))
            .build()?;
        Ok(Self { client, allowed })
    }
}

impl Courier for HttpCourier {
    fn check(&self, url: &str) -> Result<(), String> {
        let url: Url = url.parse().map_err(|_| "the address is no URL".to_owned())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("the address has to begin with http:// or https://".to_owned());
        }
        match literal(&url) {
            Some(address) => may_reach(address, &self.allowed)
                .map_err(|place| Forbidden { address, place }.to_string()),
            None => Ok(()),
        }
    }

    fn send(&self, parcel: Parcel) -> Delivery {
        // A literal address is not asked of any resolver, so it is judged here.
        if let Err(why) = self.check(&parcel.url) {
            return Box::pin(std::future::ready(Err(Undelivered::because(why))));
        }
        let mut request = self.client.post(&parcel.url).timeout(parcel.limit).body(parcel.body);
        for (name, value) in parcel.headers {
            request = request.header(name, value);
        }
        Box::pin(async move {
            let response = request.send().await.map_err(|error| failed(&error, parcel.limit))?;
            let status = response.status();
            if status.is_success() {
                return Ok(());
            }
            let header = response.headers().get(reqwest::header::RETRY_AFTER);
            let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let failure = refused(status);
            Err(Undelivered { failure, retry_after: seconds.map(Span::from_secs) })
        })
    }
}

/// The address that a URL names without a name.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn refused(status: StatusCode) -> String {
    match status.is_redirection() {
        true => format!("it answered {}: redirects are not followed", status.as_u16()),
        false => format!("it answered {}", status.as_u16()),
    }
}

fn failed(error: &reqwest::Error, limit: Duration) -> Undelivered {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            return Undelivered::because(forbidden.to_string());
        }
        source = cause.source();
    }
    Undelivered::because(match error {
        error if error.is_timeout() => format!("no answer within {limit:?}"),
        error if error.is_connect() => "no connection".to_owned(),
        _ => "the connection broke before an answer".to_owned(),
    })
}

/// An address that is not reached.
#[derive(Debug, Clone, Copy)]
struct Forbidden {
    address: IpAddr,
    place: Place,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, place) = (self.address, self.place.name());
        write!(f, "{address} is a {place} address; `webhook_allow` in [watch] can allow it")
    }
}

impl std::error::Error for Forbidden {}

/// Looks names up, and gives back only what may be reached.
struct Judged(Arc<[Network]>);

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let mut forbidden = None;
            let mut reachable = Vec::new();
            for socket in found {
                let address = socket.ip();
                match may_reach(address, &allowed) {
                    Ok(()) => reachable.push(socket),
                    Err(place) => forbidden = Some(Forbidden { address, place }),
                }
            }
            match (reachable.is_empty(), forbidden) {
                (true, Some(forbidden)) => Err(forbidden.into()),
                (_, _) => Ok(Box::new(reachable.into_iter()) as Addrs),
            }
        })
    }
}

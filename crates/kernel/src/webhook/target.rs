//! Where a webhook may point: to the public Internet, and to the networks that the installation
//! allows; never by chance into the machine or the network that Belay itself stands in.
//!
//! The address that is judged is the one that is connected to. An IPv6 address that carries an IPv4
//! address (mapped, compatible, NAT64, 6to4) is judged by what it carries.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

/// Why an address is not reached without being allowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// The same link, where clouds keep their metadata.
    LinkLocal,
    /// Many receivers, or none.
    Special,
}

impl Place {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Special => "special-purpose",
        }
    }
}

/// A network: an address and how many of its first bits count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no network: write `10.1.0.0/16`, `fd00::/8` or a single address")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.chars().take(60).collect());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?,
            None => most,
        };
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, bits: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)), bits }
    }

    const fn v6(a: u16, b: u16, c: u16, bits: u8) -> Self {
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), bits }
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, length: u32| {
            let ignored = length - u32::from(self.bits);
            one.checked_shr(ignored).unwrap_or(0) == other.checked_shr(ignored).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => same(own.to_bits(), other.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

const SPECIAL: &[(Network, Place)] = &[
    (Network::v4(127, 0, 0, 8), Place::Loopback),
    (Network::v4(0, 0, 0, 8), Place::Loopback),
    (Network::v4(10, 0, 0, 8), Place::Private),
    (Network::v4(172, 16, 0, 12), Place::Private),
    (Network::v4(192, 168, 0, 16), Place::Private),
    (Network::v4(100, 64, 0, 10), Place::Private),
    (Network::v4(169, 254, 0, 16), Place::LinkLocal),
    (Network::v4(192, 0, 0, 24), Place::Special),
    (Network::v4(192, 0, 2, 24), Place::Special),
    (Network::v4(198, 18, 0, 15), Place::Special),
    (Network::v4(198, 51, 100, 24), Place::Special),
    (Network::v4(203, 0, 113, 24), Place::Special),
    (Network::v4(224, 0, 0, 4), Place::Special),
    (Network::v4(240, 0, 0, 4), Place::Special),
    (Network::v6(0xfc00, 0, 0, 7), Place::Private),
    (Network::v6(0xfec0, 0, 0, 10), Place::Private),
    (Network::v6(0xfe80, 0, 0, 10), Place::LinkLocal),
    (Network::v6(0x0100, 0, 0, 64), Place::Special),
    (Network::v6(0x0064, 0xff9b, 1, 48), Place::Special),
    (Network::v6(0x2001, 0, 0, 32), Place::Special),
    (Network::v6(0x2001, 0x0db8, 0, 32), Place::Special),
    (Network::v6(0x3fff, 0, 0, 20), Place::Special),
    (Network::v6(0xff00, 0, 0, 8), Place::Special),
];

/// The IPv4 address that an IPv6 address carries.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let (low, nat64) = (bits as u32, 0x0064_ff9b_u128 << 64);
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] if low > 1 => Some(low.into()),
        [0x2002, high, low, ..] => Some(((u32::from(high) << 16) | u32::from(low)).into()),
        _ if bits >> 32 == nat64 => Some(low.into()),
        _ => None,
    }
}

/// Whether an address may be connected to: it is public, or one of `allowed` holds it.
pub fn may_reach(address: IpAddr, allowed: &[Network]) -> Result<(), Place> {
    if allowed.iter().any(|network| network.contains(address)) {
        return Ok(());
    }
    let address = match address {
        IpAddr::V6(six) if six.to_bits() <= 1 => return Err(Place::Loopback),
        IpAddr::V6(six) => match carried(six) {
            Some(four) => return may_reach(IpAddr::V4(four), allowed),
            None => address,
        },
        IpAddr::V4(_) => address,
    };
    match SPECIAL.iter().find(|(network, _)| network.contains(address)) {
        Some((_, place)) => Err(*place),
        None => Ok(()),
    }
}

//! Which addresses may be called: what the internet has, and what the operator allows beyond it.
//!
//! Pure. Whoever connects asks about the very address that it then connects to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Addresses that the operator allows although they are not the internet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    Loopback,
    /// Also carriers' shared addresses, 100.64.0.0/10.
    Private,
    /// Also where clouds serve their machines' credentials, 169.254.169.254.
    LinkLocal,
    Block {
        network: IpAddr,
        prefix: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{written:?} is no address to allow{why}; write loopback, private, link-local, or a block as \
     10.0.0.0/8"
)]
pub struct NotAllowable {
    written: String,
    why: String,
}

impl FromStr for Allowed {
    type Err = NotAllowable;

    fn from_str(text: &str) -> Result<Self, NotAllowable> {
        let wrong = |why: String| NotAllowable { written: text.to_owned(), why };
        match text {
            "loopback" => return Ok(Self::Loopback),
            "private" => return Ok(Self::Private),
            "link-local" => return Ok(Self::LinkLocal),
            _ => {}
        }
        let (network, prefix) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let network: IpAddr = network.parse().map_err(|_| wrong(String::new()))?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= longest)
                .ok_or_else(|| wrong(format!(": its prefix is longer than {longest}")))?,
            Some(_) => return Err(wrong(String::new())),
        };
        let first = first_of(network, prefix);
        if first != network {
            return Err(wrong(format!(
                ": the block begins with {first}, so write {first}/{prefix}"
            )));
        }
        Ok(Self::Block { network, prefix })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::Private => f.write_str("private"),
            Self::LinkLocal => f.write_str("link-local"),
            Self::Block { network, prefix } => write!(f, "{network}/{prefix}"),
        }
    }
}

impl Allowed {
    fn holds(self, address: IpAddr) -> bool {
        match self {
            Self::Loopback => class(address) == Some(Class::Loopback),
            Self::Private => class(address) == Some(Class::Private),
            Self::LinkLocal => class(address) == Some(Class::LinkLocal),
            Self::Block { network, prefix } => {
                network.is_ipv4() == address.is_ipv4() && first_of(address, prefix) == network
            }
        }
    }
}

/// What an address is that is not somebody's on the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Loopback,
    Private,
    LinkLocal,
    Unspecified,
    Multicast,
    Reserved,
}

impl Class {
    /// After "it is".
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::Loopback => "this machine itself",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Unspecified => "no address of anybody",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        }
    }

    /// What the operator would write to allow `address`.
    pub(super) fn allowed_by(self, address: IpAddr) -> Allowed {
        match self {
            Self::Loopback => Allowed::Loopback,
            Self::Private => Allowed::Private,
            Self::LinkLocal => Allowed::LinkLocal,
            _ => Allowed::Block {
                network: address,
                prefix: if address.is_ipv4() { 32 } else { 128 },
            },
        }
    }
}

/// Why it may not be called. `None`: it may.
pub(super) fn refused(address: IpAddr, allow: &[Allowed]) -> Option<Class> {
    let address = address.to_canonical();
    let class = class(address)?;
    let reaches = [Some(address), embedded(address).map(IpAddr::V4)];
    let allowed = |address: &IpAddr| allow.iter().any(|allowed| allowed.holds(*address));
    (!reaches.iter().flatten().any(allowed)).then_some(class)
}

const V4: [(Ipv4Addr, u8, Class); 15] = [
    (Ipv4Addr::UNSPECIFIED, 8, Class::Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Class::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Class::Private),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Class::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Class::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Class::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Class::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Class::Reserved),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Class::Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Class::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Class::Reserved),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Class::Reserved),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Class::Reserved),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Class::Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Class::Reserved),
];

const fn v6(a: u16, b: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)
}

const V6: [(Ipv6Addr, u8, Class); 8] = [
    (Ipv6Addr::UNSPECIFIED, 128, Class::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Class::Loopback),
    (v6(0xfc00, 0), 7, Class::Private),
    (v6(0xfe80, 0), 10, Class::LinkLocal),
    (v6(0xff00, 0), 8, Class::Multicast),
    // Protocols of the IETF, Teredo among them; documentation.
    (v6(0x2001, 0), 23, Class::Reserved),
    (v6(0x2001, 0x0db8), 32, Class::Reserved),
    (v6(0x3fff, 0), 20, Class::Reserved),
];

/// The only block that the internet's addresses are given out of.
const GLOBAL_V6: (Ipv6Addr, u8) = (v6(0x2000, 0), 3);

fn class(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(address) => V4
            .iter()
            .find(|(network, prefix, _)| first_of_v4(address, *prefix) == *network)
            .map(|(_, _, class)| *class),
        IpAddr::V6(address) => {
            if let Some(inner) = embedded(IpAddr::V6(address)) {
                return class(IpAddr::V4(inner));
            }
            let within = |network, prefix| first_of_v6(address, prefix) == network;
            let known = V6.iter().find(|(network, prefix, _)| within(*network, *prefix));
            let global = within(GLOBAL_V6.0, GLOBAL_V6.1);
            known.map(|(_, _, class)| *class).or((!global).then_some(Class::Reserved))
        }
    }
}

/// The IPv4 address that a gateway would make of it: 6to4, and NAT64's well-known prefix.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let ([0x2002, high, low, ..] | [0x64, 0xff9b, 0, 0, 0, 0, high, low]) = address.segments()
    else {
        return None;
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

/// The first address of the block of this size that the address lies in.
fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => first_of_v4(address, prefix).into(),
        IpAddr::V6(address) => first_of_v6(address, prefix).into(),
    }
}

fn first_of_v4(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn first_of_v6(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    fn allow(words: &[&str]) -> Vec<Allowed> {
        words.iter().map(|word| word.parse().expect(word)).collect()
    }

    #[test]
    fn what_is_not_the_internet_is_refused() {
        use Class::{LinkLocal, Loopback, Multicast, Private, Reserved, Unspecified};
        for (text, class) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("64:ff9b::127.0.0.1", Loopback),
            ("2002:7f00:1::", Loopback),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", Private),
            ("100.127.255.255", Private),
            ("fd00::1", Private),
            ("fc00::1", Private),
            ("::ffff:10.1.2.3", Private),
            ("169.254.169.254", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("64:ff9b::a9fe:a9fe", LinkLocal),
            ("2002:a9fe:a9fe::1", LinkLocal),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("::", Unspecified),
            ("::ffff:0.0.0.0", Unspecified),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("ff02::1", Multicast),
            ("255.255.255.255", Reserved),
            ("240.0.0.1", Reserved),
            ("192.0.2.1", Reserved),
            ("198.18.0.1", Reserved),
            ("198.19.255.255", Reserved),
            ("198.51.100.7", Reserved),
            ("203.0.113.7", Reserved),
            ("192.0.0.170", Reserved),
            ("192.88.99.1", Reserved),
            // IPv4-compatible, the local NAT64 prefix, Teredo, documentation, site-local, discard.
            ("::127.0.0.1", Reserved),
            ("::8.8.8.8", Reserved),
            ("64:ff9b:1::1", Reserved),
            ("2001:0:53aa:64c::1", Reserved),
            ("2001:db8::1", Reserved),
            ("3fff::1", Reserved),
            ("fec0::1", Reserved),
            ("100::1", Reserved),
            ("4000::1", Reserved),
        ] {
            assert_eq!(refused(address(text), &[]), Some(class), "{text}");
        }
    }

    #[test]
    fn the_internet_is_not_refused() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(refused(address(text), &[]), None, "{text}");
        }
    }

    #[test]
    fn only_what_is_allowed_is_opened() {
        for (words, open, closed) in [
            (&["loopback"][..], &["127.0.0.1", "::1", "::ffff:127.9.9.9"][..], &["10.0.0.1"][..]),
            (&["private"], &["10.0.0.1", "100.64.0.1", "fd00::1"], &["127.0.0.1", "169.254.1.1"]),
            (&["link-local"], &["169.254.169.254", "fe80::1"], &["127.0.0.1", "0.0.0.0"]),
            (&["10.1.0.0/16"], &["10.1.2.3", "::ffff:10.1.2.3"], &["10.2.0.1", "fd00::1"]),
            (&["10.1.0.0/16"], &["64:ff9b::10.1.2.3"], &["64:ff9b::10.2.0.1"]),
            (&["fd00:1::/32"], &["fd00:1::5"], &["fd00:2::5"]),
            (&["127.0.0.1"], &["127.0.0.1"], &["127.0.0.2"]),
            (&["0.0.0.0/0"], &["127.0.0.1", "0.0.0.0", "255.255.255.255"], &["::1"]),
            (&["::/0"], &["::1", "ff02::1"], &["127.0.0.1"]),
        ] {
            let allow = allow(words);
            for text in open {
                assert_eq!(refused(address(text), &allow), None, "{words:?} {text}");
            }
            for text in closed {
                assert!(refused(address(text), &allow).is_some(), "{words:?} {text}");
            }
        }
    }

    #[test]
    fn words_that_allow_nothing_are_refused() {
        for (text, word) in [
            ("", "10.0.0.0/8"),
            ("localhost", "loopback"),
            ("10.0.0.0/33", "longer than 32"),
            ("10.0.0.0/", "longer than 32"),
            ("10.0.0.0/+8", "10.0.0.0/8"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("::1/129", "longer than 128"),
            ("0x7f.1", "loopback"),
        ] {
            let error = text.parse::<Allowed>().expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        for text in ["loopback", "private", "link-local", "10.0.0.0/8", "fd00::/8"] {
            assert_eq!(allow(&[text])[0].to_string(), text);
        }
    }
}

//! How many connections one address has. One that has enough gets no more, so that whoever holds them open
//! for nothing keeps out nobody but itself.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts by address. Of IPv6 by /64: whoever has one address there has the whole network of it.
#[derive(Clone, Debug)]
pub(super) struct ConnectionCounts {
    most: usize,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of an address, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    address: IpAddr,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl ConnectionCounts {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    /// None: it has as many as it may.
    pub(super) fn admit(&self, address: IpAddr) -> Option<CountedConnection> {
        let address = network(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(CountedConnection { address, open: self.open.clone() })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: IPv4 in IPv6's clothes is itself, of IPv6 the /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_and_others_have_theirs() {
        let addresses = ConnectionCounts::new(2);
        let admit = |text: &str| addresses.admit(text.parse().unwrap());
        let (first, _second) = (admit("10.0.0.1").unwrap(), admit("::ffff:10.0.0.1").unwrap());
        assert!(admit("10.0.0.1").is_none());
        let other = admit("10.0.0.2");
        assert!(other.is_some());
        drop(first);
        let again = admit("10.0.0.1");
        assert!(again.is_some() && admit("10.0.0.1").is_none());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_none_is_remembered_after_its_last_connection() {
        let addresses = ConnectionCounts::new(1);
        let admit = |text: &str| addresses.admit(text.parse().unwrap());
        let held = admit("2001:db8:1:2::1");
        assert!(held.is_some() && admit("2001:db8:1:2:ffff::9").is_none());
        assert!(admit("2001:db8:1:3::1").is_some());
        drop(held);
        assert!(addresses.open.lock().unwrap().is_empty());
    }
}

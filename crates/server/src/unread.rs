//! Bytes of answers that were made and that their clients have not taken yet.
//!
//! A client that asks and does not read costs memory until it is cut off. So each has an allowance: what would
//! go beyond it is refused. Who reads what it asks for never notices.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;

/// All clients together may have so many times what one may.
const TOGETHER: usize = 4;
/// Smaller ones are not counted: a client that is at its end can still ask how things are.
pub(crate) const COUNTED_FROM: usize = 16 << 10;

/// Who reads: whose token it is, or without one, from where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    Token(String),
    Address(IpAddr),
}

#[derive(Clone, Debug)]
pub struct Unread(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    per_client: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    clients: HashMap<Client, usize>,
}

/// What one client may hold. In the extensions of its requests.
#[derive(Clone, Debug)]
pub struct Allowance {
    unread: Unread,
    client: Client,
}

/// So many bytes of a client's allowance, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    unread: Unread,
    client: Client,
    bytes: usize,
}

impl Unread {
    pub fn new(per_client: usize) -> Self {
        Self(Arc::new(Shared { per_client, held: Mutex::default() }))
    }

    pub fn allowance(&self, client: Client) -> Allowance {
        Allowance { unread: self.clone(), client }
    }
}

impl Allowance {
    /// None: the client has too much already, or all have. The first of a client is never too much, or one
    /// that is larger than the allowance could not be answered at all.
    pub fn hold(&self, bytes: usize) -> Option<Hold> {
        let per_client = self.unread.0.per_client;
        let mut held = self.unread.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        let has = held.clients.get(&self.client).copied().unwrap_or(0);
        let fits = has.saturating_add(bytes) <= per_client
            && held.all.saturating_add(bytes) <= per_client.saturating_mul(TOGETHER);
        if has > 0 && !fits {
            return None;
        }
        held.all += bytes;
        *held.clients.entry(self.client.clone()).or_default() += bytes;
        Some(Hold { unread: self.unread.clone(), client: self.client.clone(), bytes })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.unread.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all = held.all.saturating_sub(self.bytes);
        if let Some(has) = held.clients.get_mut(&self.client) {
            *has = has.saturating_sub(self.bytes);
            if *has == 0 {
                held.clients.remove(&self.client);
            }
        }
    }
}

/// Bytes that count until the last of them is written out, also while they wait in a connection's own queue.
pub(crate) fn counted(bytes: Bytes, hold: Hold) -> Bytes {
    struct Owned(Bytes, #[allow(dead_code, reason = "held for as long as the bytes are")] Hold);
    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owned(bytes, hold))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> Client {
        Client::Token(name.to_owned())
    }

    #[test]
    fn a_client_has_its_allowance_and_one_answer_in_any_case() {
        let unread = Unread::new(100);
        let one = unread.allowance(client("one"));
        let large = one.hold(1000).expect("the first one");
        assert!(one.hold(1).is_none());
        drop(large);
        let (half, other) = (one.hold(50), one.hold(50));
        assert!(half.is_some() && other.is_some() && one.hold(1).is_none());
        drop(half);
        assert!(one.hold(50).is_some(), "it was taken");
        assert!(unread.allowance(client("two")).hold(100).is_some(), "others have their own");
    }

    #[test]
    fn all_together_have_four_times_as_much() {
        let unread = Unread::new(100);
        let held: Vec<_> = (0..4)
            .map(|n| unread.allowance(client(&n.to_string())))
            .map(|client| (client.hold(99), client))
            .collect();
        assert!(held.iter().all(|(hold, _)| hold.is_some()));
        let more = unread.allowance(client("five"));
        let first = more.hold(50);
        assert!(first.is_some() && more.hold(1).is_none(), "there is no room");
        drop(first);
        drop(held);
        assert!(unread.0.held.lock().unwrap().clients.is_empty());
        assert_eq!(unread.0.held.lock().unwrap().all, 0);
    }

    #[test]
    fn counted_bytes_count_until_the_last_part_of_them_is_gone() {
        let unread = Unread::new(10);
        let allowance = unread.allowance(client("one"));
        let bytes = counted(Bytes::from_static(b"0123456789"), allowance.hold(10).unwrap());
        let part = bytes.slice(8..);
        drop(bytes);
        assert!(allowance.hold(1).is_none());
        drop(part);
        assert!(allowance.hold(1).is_some());
    }
}

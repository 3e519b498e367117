//! Free TCP ports on the loopback address.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ports handed out. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Ports(Arc<Mutex<HashSet<u16>>>);

/// A port that nobody else gets from the same [`Ports`] until this is dropped.
///
/// It is not kept open, so that the process can bind it: a stranger on the same machine can be faster.
#[derive(Debug)]
pub struct Port {
    number: u16,
    ports: Ports,
}

const TRIES: usize = 1_000;

impl Ports {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn take(&self) -> io::Result<Port> {
        for _ in 0..TRIES {
            // The kernel picks these at random, and apart from those of outgoing connections.
            let number = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            if self.held().insert(number) {
                return Ok(Port { number, ports: self.clone() });
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no free TCP port on 127.0.0.1"))
    }

    fn held(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    pub const fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.ports.held().remove(&self.number);
    }
}

//! Stands between a store and its database, and can cut a connection when a word has passed.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// What happens to the next group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cut {
    Nothing = 0,
    /// It does not reach the database.
    Request = 1,
    /// It does, and its answer does not come back.
    Answer = 2,
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    pub(crate) fn before(url: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (head, name) = url.rsplit_once('/').expect("a URL");
        let (user, database) = head.rsplit_once('@').expect("a URL");
        let database = database.to_owned();
        let cut = Arc::new(AtomicU8::new(Cut::Nothing as u8));
        let cuts = cut.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&database)) else {
                    return;
                };
                carry(&client, &server, &cuts);
            }
        });
        Self { url: format!("{user}@127.0.0.1:{port}/{name}"), cut }
    }

    pub(crate) fn cut_next(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }
}

fn carry(client: &TcpStream, server: &TcpStream, cut: &Arc<AtomicU8>) {
    let both = || (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    let ((mut from, mut to), cuts) = (both(), cut.clone());
    let waits = Arc::new(AtomicU8::new(0));
    let waiting = waits.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count) = from.read(&mut buffer) {
            let bytes = &buffer[..count];
            let is_group = bytes.windows(9).any(|word| word == b"commit_v1");
            let armed = is_group.then(|| cuts.swap(Cut::Nothing as u8, Ordering::SeqCst));
            if count == 0 || armed == Some(Cut::Request as u8) {
                break;
            }
            if armed == Some(Cut::Answer as u8) {
                waiting.store(1, Ordering::SeqCst);
            }
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        end(&from, &to);
    });
    let (mut to, mut from) = both();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = from.read(&mut buffer) {
            // The answer is here, so the database has done it.
            if count == 0 || waits.load(Ordering::SeqCst) == 1 {
                break;
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        end(&from, &to);
    });
}

fn end(one: &TcpStream, other: &TcpStream) {
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}

//! A wire between two programs that a test can cut, hold and listen to: bytes go through it as they are.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::harness::{pass, wait_for};

/// How soon a connection notices that the wire has changed.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Whole,
    /// Connections end, new ones are not taken.
    Cut,
    /// Nothing arrives, in either direction, until it is whole again.
    Silent,
    /// All arrives, so much later.
    Slow(Duration),
    /// What is asked arrives, what is answered is gone. Half of a connection is of no use: it ends when the wire is whole again.
    Mute,
    /// The other half.
    Deaf,
}

/// What is held of the next exchange that has a word in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Request,
    Answer,
}

#[derive(Debug)]
struct Shared {
    state: State,
    /// The next request with this word is caught, and this part of it held until it is released.
    trap: Option<(&'static str, Part)>,
    caught: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Wire {
    /// Where it begins.
    pub(crate) address: String,
    shared: Arc<Mutex<Shared>>,
}

impl Wire {
    pub(crate) fn to(end: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Shared { state: State::Whole, trap: None, caught: false };
        let wire = Self { address, shared: Arc::new(Mutex::new(shared)) };
        let (end, taken) = (end.to_owned(), wire.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if taken.state() == State::Cut {
                    continue;
                }
                // Nobody listens there: so it is for the one who has come.
                let Ok(server) = TcpStream::connect(&end) else { continue };
                taken.connect(client, server);
            }
        });
        wire
    }

    fn with<T>(&self, look: impl FnOnce(&mut Shared) -> T) -> T {
        look(&mut self.shared.lock().expect("unpoisoned"))
    }

    fn state(&self) -> State {
        self.with(|shared| shared.state)
    }

    pub(crate) fn set(&self, state: State) {
        self.with(|shared| shared.state = state);
    }

    /// Waits until a request with this word is there, and holds a part of that exchange. False: none came.
    pub(crate) fn catch(&self, word: &'static str, part: Part) -> bool {
        self.with(|shared| (shared.trap, shared.caught) = (Some((word, part)), false));
        let until = super::harness::now() + Duration::from_secs(5);
        while super::harness::now() < until {
            if self.with(|shared| shared.caught) {
                return true;
            }
            pass(LOOK / 10);
        }
        self.release();
        false
    }

    pub(crate) fn release(&self) {
        self.with(|shared| (shared.trap, shared.caught) = (None, false));
    }

    fn connect(&self, client: TcpStream, server: TcpStream) {
        let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(LOOK)).expect("a timeout");
            stream.set_nodelay(true).expect("a socket");
        }
        // Whether an answer that comes is the one that is held.
        let held = Arc::new(Mutex::new(false));
        let (wire, to, from, asked) = (self.clone(), clone(&server), clone(&client), held.clone());
        thread::spawn(move || {
            wire.carry(from, to, State::Deaf, |wire, bytes| wire.request(bytes, &asked));
        });
        let wire = self.clone();
        thread::spawn(move || {
            wire.carry(server, client, State::Mute, |wire, _| wire.answer(&held));
        });
    }

    /// `broken`: the state in which this direction carries nothing.
    fn carry(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        broken: State,
        pass_on: impl Fn(&Self, &[u8]),
    ) {
        let mut buffer = vec![0; 1 << 16];
        let mut has_lost = false;
        loop {
            let state = self.state();
            if state == State::Cut || (has_lost && state != broken) {
                break;
            }
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    pass_on(self, &buffer[..count]);
                    while self.state() == State::Silent {
                        pass(LOOK);
                    }
                    if let State::Slow(late) = self.state() {
                        pass(late);
                    }
                    if self.state() == broken {
                        has_lost = true;
                        continue;
                    }
                    if self.state() == State::Cut || to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        for stream in [&from, &to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn request(&self, bytes: &[u8], held: &Mutex<bool>) {
        let caught = self.with(|shared| {
            let (word, part) = shared.trap.filter(|_| !shared.caught)?;
            let is_it = bytes.windows(word.len()).any(|part| part == word.as_bytes());
            is_it.then(|| {
                shared.caught = true;
                part
            })
        });
        match caught {
            Some(Part::Request) => self.until_released(),
            Some(Part::Answer) => *held.lock().expect("unpoisoned") = true,
            None => {}
        }
    }

    fn answer(&self, held: &Mutex<bool>) {
        if std::mem::take(&mut *held.lock().expect("unpoisoned")) {
            self.until_released();
        }
    }

    fn until_released(&self) {
        while self.with(|shared| shared.caught) && self.state() != State::Cut {
            pass(LOOK / 4);
        }
    }
}

#[test]
fn a_wire_carries_is_cut_and_holds() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let wire = Wire::to(&listener.local_addr().expect("an address").to_string());
    let connect = || {
        let client = TcpStream::connect(&wire.address).expect("a wire");
        (client, listener.accept().expect("the other end").0)
    };
    let read = |stream: &mut TcpStream| {
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).map(|()| bytes)
    };
    let (mut near, mut far) = connect();
    near.write_all(b"hello").expect("written");
    assert_eq!(&read(&mut far).expect("carried"), b"hello");
    let catching = wire.clone();
    let caught = thread::spawn(move || catching.catch("group", Part::Request));
    wait_for("the trap", || wire.with(|shared| shared.trap.is_some()).then_some(()));
    near.write_all(b"group").expect("written");
    assert!(caught.join().expect("no panic"));
    far.set_read_timeout(Some(LOOK * 5)).expect("a timeout");
    assert!(read(&mut far).is_err(), "it is held");
    wire.release();
    far.set_read_timeout(None).expect("a timeout");
    assert_eq!(&read(&mut far).expect("carried"), b"group");
    wire.set(State::Mute);
    far.write_all(b"never").expect("written");
    near.write_all(b"asked").expect("written");
    assert_eq!(&read(&mut far).expect("carried"), b"asked");
    near.set_read_timeout(Some(LOOK * 5)).expect("a timeout");
    assert!(read(&mut near).is_err(), "what is answered is gone");
    wire.set(State::Whole);
    near.set_read_timeout(None).expect("a timeout");
    assert!(read(&mut near).is_err(), "half of it is of no use");
    let (mut near, mut far) = connect();
    wire.set(State::Cut);
    assert!(read(&mut far).is_err() && read(&mut near).is_err(), "it is cut");
}

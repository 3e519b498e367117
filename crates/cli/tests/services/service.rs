//! Somebody's web service, as bad as services are: raw HTTP on loopback, which counts and keeps what it is
//! sent, and answers each request as the test says, or does not.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::harness::{pass, wait_for};
use crate::e2e::rest::{Reply, ask};

/// What is done with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Status, headers, body.
    Said(u16, Vec<(&'static str, String)>, String),
    /// Nothing, until the caller has had enough.
    Hang,
    /// The connection is torn down with the request half read.
    Reset,
    /// Closed without a word.
    Nothing,
    /// Fewer bytes than were announced.
    Half,
    /// Never ends, and says so or not.
    Endless,
    /// A byte now and then.
    Drip,
    /// Not HTTP at all.
    Garbage,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self::Said(status, vec![], String::new())
    }

    pub(crate) fn text(status: u16, text: &str) -> Self {
        Self::Said(status, vec![], text.to_owned())
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::text(200, &body.to_string())
    }

    /// `success: true` with this output.
    pub(crate) fn output(output: impl Into<Value>) -> Self {
        Self::json(&json!({ "success": true, "output": output.into() }))
    }

    pub(crate) fn with(self, name: &'static str, value: impl fmt::Display) -> Self {
        match self {
            Self::Said(status, mut headers, body) => {
                headers.push((name, value.to_string()));
                Self::Said(status, headers, body)
            }
            other => other,
        }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Which one it is, from 0.
    pub(crate) number: usize,
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(given, _)| given == name);
        let first = found.next()?;
        assert!(found.next().is_none(), "{name} twice: {self:?}");
        Some(&first.1)
    }

    #[track_caller]
    fn number_in(&self, name: &str) -> usize {
        let text = self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        text.parse().expect("a number")
    }

    #[track_caller]
    pub(crate) fn attempt(&self) -> usize {
        self.number_in("steadfast-attempt")
    }

    #[track_caller]
    pub(crate) fn item(&self) -> usize {
        self.number_in("steadfast-item")
    }

    #[track_caller]
    pub(crate) fn key(&self) -> &str {
        self.header("idempotency-key").expect("a key")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn callback(&self) -> Callback {
        let url = self.header("steadfast-callback-url").expect("where to call back");
        Callback::at(url)
    }
}

/// Where an attempt is to be called back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    pub(crate) address: String,
    pub(crate) path: String,
}

impl Callback {
    pub(crate) fn at(url: &str) -> Self {
        let rest = url.strip_prefix("http://").expect("http");
        let (address, path) = rest.split_once('/').expect("a path");
        Self { address: address.to_owned(), path: format!("/{path}") }
    }

    /// None: nobody answers.
    pub(crate) fn try_say(&self, body: &Value) -> Option<Reply> {
        self.send(&[("Content-Type", "application/json")], &body.to_string())
    }

    pub(crate) fn send(&self, headers: &[(&str, &str)], body: &str) -> Option<Reply> {
        ask(&self.address, "POST", &self.path, headers, body)
    }

    #[track_caller]
    pub(crate) fn say(&self, body: &Value) -> Reply {
        self.try_say(body).expect("somebody listens")
    }

    /// That it ended well.
    #[track_caller]
    pub(crate) fn done(&self, output: impl Into<Value>) -> Reply {
        self.say(&json!({ "success": true, "output": output.into() }))
    }

    /// That it ended well, without a thought for the answer.
    pub(crate) fn say_and_hang_up(&self) {
        let body = r#"{"success":true,"output":1}"#;
        let mut stream = TcpStream::connect(&self.address).expect("somebody listens");
        let head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", self.path, self.address);
        let kind = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
        write!(stream, "{head}{kind}\r\n\r\n{body}").expect("it takes it");
    }

    /// Another one with this last sign of its token.
    pub(crate) fn forged(&self) -> Self {
        let (rest, last) = self.path.split_at(self.path.len() - 1);
        let other = if last == "0" { "1" } else { "0" };
        Self { path: format!("{rest}{other}"), ..self.clone() }
    }
}

type Script = dyn Fn(&Seen) -> Answer + Send + Sync;

struct Shared {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
    closed: AtomicBool,
    /// Of connections that are open, by their number.
    streams: Mutex<HashMap<usize, TcpStream>>,
}

pub(crate) struct Service {
    address: String,
    shared: Arc<Shared>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Service {
    pub(crate) fn new(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", script)
    }

    pub(crate) fn at(
        address: &str,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = Some(accept(listener, &shared));
        Self { address, shared, accepting }
    }

    /// The same answer to everything.
    pub(crate) fn always(answer: Answer) -> Self {
        Self::new(move |_| answer.clone())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("unpoisoned").clone()
    }

    pub(crate) fn of(&self, path: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.path == path).collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.shared.seen.lock().expect("unpoisoned").len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many requests there were at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }

    /// Waits until it has been called so often.
    #[track_caller]
    pub(crate) fn called(&self, times: usize) -> Vec<Seen> {
        wait_for(&format!("{times} calls"), || {
            let seen = self.seen();
            (seen.len() >= times).then_some(seen)
        })
    }

    /// Nobody listens any more, and connections that were kept are gone.
    pub(crate) fn close(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the one that accepts.
        drop(TcpStream::connect(&self.address));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().expect("no panic");
        }
        self.shared.connections.fetch_sub(1, Ordering::SeqCst);
        for stream in self.shared.streams.lock().expect("unpoisoned").values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// At the same port.
    pub(crate) fn open_again(&mut self) {
        self.shared.closed.store(false, Ordering::SeqCst);
        let listener = wait_for("its port", || TcpListener::bind(&self.address).ok());
        self.accepting = Some(accept(listener, &self.shared));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.accepting.is_some() {
            self.close();
        }
    }
}

fn accept(listener: TcpListener, shared: &Arc<Shared>) -> std::thread::JoinHandle<()> {
    let shared = shared.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let number = shared.connections.fetch_add(1, Ordering::SeqCst);
            if shared.closed.load(Ordering::SeqCst) {
                return;
            }
            let another = stream.try_clone().expect("a descriptor");
            shared.streams.lock().expect("unpoisoned").insert(number, another);
            let shared = shared.clone();
            std::thread::spawn(move || {
                let _ = serve(&shared, stream);
                shared.streams.lock().expect("unpoisoned").remove(&number);
            });
        }
    })
}

/// One connection, until it is over.
fn serve(shared: &Shared, mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    loop {
        let (mut seen, length) = read_head(&mut stream)?;
        if shared.closed.load(Ordering::SeqCst) {
            return None;
        }
        // The last byte is left: who closes with something unread resets the connection.
        let mut body = vec![0; length];
        let (all_but_last, last) = body.split_at_mut(length.saturating_sub(1));
        stream.read_exact(all_but_last).ok()?;
        if length > 0 {
            stream.peek(last).ok()?;
        }
        seen.body = String::from_utf8(body).expect("text");
        let now = shared.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most.fetch_max(now, Ordering::SeqCst);
        let seen = {
            let mut all = shared.seen.lock().expect("unpoisoned");
            seen.number = all.len();
            all.push(seen.clone());
            seen
        };
        let answer = (shared.script)(&seen);
        shared.under_way.fetch_sub(1, Ordering::SeqCst);
        if matches!(answer, Answer::Reset) {
            assert!(length > 0, "there is nothing to leave unread: {seen:?}");
            return None;
        }
        if length > 0 {
            stream.read_exact(&mut [0]).ok()?;
        }
        give(&mut stream, answer)?;
    }
}

/// None: the connection is over.
fn give(stream: &mut TcpStream, answer: Answer) -> Option<()> {
    let part = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    match answer {
        Answer::Said(status, headers, body) => {
            let mut text = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
            for (name, value) in headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(format!("{text}\r\n{body}").as_bytes()).ok()
        }
        Answer::Hang => {
            let _ = stream.read(&mut [0]);
            None
        }
        Answer::Nothing => {
            let _ = stream.shutdown(Shutdown::Both);
            None
        }
        Answer::Half => {
            let text = format!("{part}Content-Length: 100\r\n\r\n{{\"success\": true");
            stream.write_all(text.as_bytes()).ok()?;
            None
        }
        Answer::Endless => {
            let head = format!("{part}Transfer-Encoding: chunked\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
            while stream.write_all(chunk.as_bytes()).is_ok() {}
            None
        }
        Answer::Drip => {
            let head = format!("{part}Content-Length: 1000000\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            while stream.write_all(b" ").is_ok() {
                pass(Duration::from_millis(10));
            }
            None
        }
        Answer::Garbage => {
            stream.write_all(b"220 mail.example.com ESMTP\r\n").ok()?;
            None
        }
        Answer::Reset => None,
    }
}

/// None: nothing came any more.
fn read_head(stream: &mut TcpStream) -> Option<(Seen, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    };
    let headers: Vec<_> = lines.filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().expect("a length"));
    Some((Seen { number: 0, method, path, headers, body: String::new() }, length))
}

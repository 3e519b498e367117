//! Many workers in one process: each a real session with a real server, over HTTP/2. What they are
//! assigned they report as a success at once. They hold nothing, run nothing, and are never lost unless
//! the server is wrong.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use steadfast_api::proto;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};

use proto::from_worker::Kind as Say;
use proto::report::Outcome;
use proto::to_worker::Kind as Hear;
use proto::workers_client::WorkersClient;

/// The server takes 256 streams on one connection.
const SESSIONS_PER_CONNECTION: usize = 200;
/// Nothing here takes as long unless it hangs.
const LONG: Duration = Duration::from_mins(5);

/// What has become of all of them so far.
#[derive(Debug)]
pub(crate) struct Sessions {
    told: mpsc::UnboundedReceiver<(usize, SessionEvent)>,
    pub(crate) welcomed: usize,
    /// From each assignment to the acknowledgement of its report.
    pub(crate) acknowledged: Vec<Duration>,
    /// Beats that were answered, for each worker.
    pub(crate) answered: Vec<usize>,
    /// Withdrawals, refused reports, sessions that ended: all that must not happen.
    pub(crate) losses: Vec<String>,
}

enum SessionEvent {
    Welcomed,
    Acknowledged(Duration),
    Answered,
    Lost(String),
}

impl Sessions {
    /// `address`: host and port.
    pub(crate) async fn open(address: &str, workers: usize, slots: u32) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let mut channel = None;
        for worker in 0..workers {
            if worker % SESSIONS_PER_CONNECTION == 0 {
                let server =
                    Endpoint::from_shared(format!("http://{address}")).expect("an address");
                channel = Some(server.tcp_nodelay(true).connect().await.expect("a connection"));
            }
            let (channel, tell) = (channel.clone().expect("made with the first"), tell.clone());
            tokio::spawn(async move {
                let why = work(channel, worker, slots, &tell).await;
                let _ = tell.send((worker, SessionEvent::Lost(why)));
            });
        }
        let answered = vec![0; workers];
        let mut sessions =
            Self { told, welcomed: 0, acknowledged: vec![], answered, losses: vec![] };
        sessions.until("all to be let in", |sessions| sessions.welcomed == workers).await;
        sessions
    }

    /// Waits until it is so, or something is lost.
    pub(crate) async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LONG;
        while !so(self) && self.losses.is_empty() {
            let told = timeout(end.duration_since(Instant::now()), self.told.recv()).await;
            let (worker, told) =
                told.unwrap_or_else(|_| panic!("waited in vain for {what}")).expect("open");
            match told {
                SessionEvent::Welcomed => self.welcomed += 1,
                SessionEvent::Acknowledged(after) => self.acknowledged.push(after),
                SessionEvent::Answered => self.answered[worker] += 1,
                SessionEvent::Lost(why) => self.losses.push(format!("worker {worker}: {why}")),
            }
        }
        assert!(self.losses.is_empty(), "while waiting for {what}: {:?}", self.losses);
    }

    /// Until each has been answered so many beats more.
    pub(crate) async fn beat(&mut self, beats: usize) {
        let before = self.answered.clone();
        let all =
            |now: &Self| now.answered.iter().zip(&before).all(|(now, was)| *now >= was + beats);
        self.until("beats to be answered", all).await;
    }
}

/// One worker's session; returns why it ended.
async fn work(
    channel: Channel,
    number: usize,
    slots: u32,
    tell: &mpsc::UnboundedSender<(usize, SessionEvent)>,
) -> String {
    // No more than the server assigns, and it knows the slots.
    let (say, said) = mpsc::unbounded_channel();
    let say = |kind| drop(say.send(proto::FromWorker { kind: Some(kind) }));
    let tell = |told| drop(tell.send((number, told)));
    say(Say::Hello(proto::Hello {
        name: format!("worker-{number}"),
        incarnation: "first".to_owned(),
        secret: number.to_le_bytes().repeat(4),
        slots,
        processes: true,
        ..proto::Hello::default()
    }));
    let session = WorkersClient::new(channel).session(UnboundedReceiverStream::new(said)).await;
    let mut heard = match session {
        Ok(session) => session.into_inner(),
        Err(status) => return status.to_string(),
    };
    let mut beats: Option<Interval> = None;
    let mut assigned = HashMap::new();
    let mut number = 0;
    loop {
        let message = tokio::select! {
            message = heard.message() => message,
            () = next(&mut beats) => {
                number += 1;
                say(Say::Beat(proto::Beat { number }));
                continue;
            }
        };
        match message {
            Ok(Some(proto::ToWorker { kind: Some(kind) })) => match kind {
                Hear::Welcome(welcome) => {
                    let every = Duration::from_millis(welcome.beat_ms);
                    beats = Some(interval_at(Instant::now() + every, every));
                    tell(SessionEvent::Welcomed);
                }
                Hear::Beat(_) => tell(SessionEvent::Answered),
                Hear::Assignment(assignment) => {
                    let token = assignment.attempt.as_ref().map(|attempt| attempt.token);
                    assigned.insert(token, Instant::now());
                    let outcome = Some(Outcome::Succeeded(proto::Succeeded::default()));
                    let attempt = assignment.attempt;
                    say(Say::Report(proto::Report { attempt, outcome, log_follows: false }));
                }
                Hear::Acknowledgement(proto::Acknowledgement { attempt, counted: true }) => {
                    match assigned.remove(&attempt.map(|attempt| attempt.token)) {
                        Some(since) => tell(SessionEvent::Acknowledged(since.elapsed())),
                        None => return "acknowledged twice".to_owned(),
                    }
                }
                unwanted => return format!("{unwanted:?}"),
            },
            Ok(Some(proto::ToWorker { kind: None })) => {}
            Ok(None) => return "the server ended the session".to_owned(),
            Err(status) => return status.to_string(),
        }
    }
}

async fn next(beats: &mut Option<Interval>) {
    match beats {
        Some(beats) => drop(beats.tick().await),
        None => std::future::pending().await,
    }
}

/// One request on a connection of its own: the status, and the body.
pub(crate) fn request(address: &str, head: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/yaml\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// Submits a job of one step with so many items; its id.
pub(crate) fn submit(address: &str, items: usize) -> String {
    let job = format!(
        "name: scale\nsteps: {{ s: {{ argv: [/bin/true], for_each: {{ range: {items} }} }} }}\n"
    );
    let (status, body) = request(address, "POST /v1/jobs", &job).expect("a server");
    assert_eq!(status, 201, "{body}");
    let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    answer["id"].as_str().expect("an id").to_owned()
}

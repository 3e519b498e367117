//! One stream to the server, from hello to its end. What runs does not end with it.

use std::time::Duration;

use proto::{from_worker, to_worker};
use steadfast_api::proto;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic::{Status, Streaming};

use super::connect::Client;
use super::link::Link;
use super::reports::Outgoing;
use super::{PATIENCE, blocking, logs};
use crate::credits::Grant;
use crate::lease::clock;
use crate::resources::Capacity;

/// Messages made and not taken by the stream yet: a beat waits behind no more than this.
const AHEAD: usize = 1;
/// How often it is looked whether the lease is over.
const LOOK: Duration = Duration::from_millis(250);
/// However often the server wants to hear from us, it can answer no more often than this.
const BEAT_LEAST: Duration = Duration::from_millis(10);

/// How long the server may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why a session ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The server answered a beat: it was a session worth having.
    pub(super) answered: bool,
    /// There was a welcome.
    pub(super) welcomed: bool,
    pub(super) status: Status,
}

pub(super) async fn hold(link: &Link, client: Client) -> Ended {
    let ended = speak(link, client).await;
    link.disconnected();
    ended
}

async fn speak(link: &Link, mut client: Client) -> Ended {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let hello_sent = clock();
    let (mut stream, welcome) = match greet(link, &mut client, &sender, receiver).await {
        Ok(greeted) => greeted,
        Err(status) => return Ended { answered: false, welcomed: false, status },
    };
    if let Err(status) = link.admit(&welcome) {
        return Ended { answered: false, welcomed: false, status };
    }
    let lease = Duration::from_millis(welcome.lease_ms);
    let beat = Duration::from_millis(welcome.beat_ms).max(BEAT_LEAST);
    let (known, proof) = (link.clone(), welcome.proof.clone());
    blocking(move || known.identity.proven(&known.server.name, proof)).await;
    link.welcomed(client.clone(), hello_sent, &welcome);
    tracing::info!(server = link.server.name.address, worker = link.config.name, "connected");
    let mut answered = false;
    let status = tokio::select! {
        status = receive(link, &mut stream, lease, &mut answered) => status,
        said = send(link, sender, beat) => match said {
            SendEnd::Goodbye => {
                let last = receive(link, &mut stream, lease, &mut answered);
                timeout(GOODBYE, last).await.unwrap_or_else(|_| Status::cancelled("we left"))
            }
            SendEnd::IntoTheVoid => Status::unavailable("the connection broke"),
        },
        never = logs::upload(link, client) => match never {},
        status = over(link) => status,
    };
    Ended { answered, welcomed: true, status }
}

async fn greet(
    link: &Link,
    client: &mut Client,
    sender: &mpsc::Sender<proto::FromWorker>,
    receiver: mpsc::Receiver<proto::FromWorker>,
) -> Result<(Streaming<proto::ToWorker>, proto::Welcome), Status> {
    let silent = |_| Status::deadline_exceeded("the server does not answer");
    let gone = |_| Status::internal("the stream was closed before it was opened");
    let hello = from_worker::Kind::Hello(hello(link));
    sender.send(proto::FromWorker { kind: Some(hello) }).await.map_err(gone)?;
    let opened = timeout(PATIENCE, client.session(Outgoing::new(link, receiver)));
    let mut stream = opened.await.map_err(silent)??.into_inner();
    let first = timeout(PATIENCE, stream.message()).await.map_err(silent)??;
    match first.and_then(|message| message.kind) {
        Some(to_worker::Kind::Welcome(welcome)) if welcome.lease_ms > 0 => Ok((stream, welcome)),
        Some(_) => Err(Status::internal("the server did not begin with a welcome")),
        None => Err(Status::unavailable("the server ended the session before it began")),
    }
}

fn hello(link: &Link) -> proto::Hello {
    let config = &link.config;
    proto::Hello {
        name: config.name.clone(),
        incarnation: link.incarnation.clone(),
        returning: link.server.is_welcomed(),
        datacenter: config.datacenter.clone().unwrap_or_default(),
        labels: config.labels.clone(),
        slots: config.slots,
        cpu: config.cpu.unwrap_or_default(),
        memory_bytes: config.memory_bytes.unwrap_or_default(),
        functions: config.functions.as_ref().map(|known| known.names()).unwrap_or_default(),
        processes: config.processes,
        http: link.caller.is_some(),
        queues: true,
        holds: link.holds(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        secret: link.identity.secret(),
        proof: link.identity.proof(&link.server.name, link.is_alone()),
        credits: link.greet(),
        elsewhere: link.elsewhere(),
    }
}

async fn receive(
    link: &Link,
    stream: &mut Streaming<proto::ToWorker>,
    lease: Duration,
    answered: &mut bool,
) -> Status {
    use to_worker::Kind;
    // A connection can be dead without either end knowing. There is still time then to save what runs
    // with another one.
    let silence = lease * 2 / 3;
    loop {
        let message = match timeout(silence, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Status::unavailable("the server ended the session"),
            Ok(Err(status)) => return status,
            Err(_) => return Status::deadline_exceeded("the server has fallen silent"),
        };
        match message.kind {
            Some(Kind::Beat(beat)) => {
                *answered = true;
                link.answered(beat.number);
            }
            Some(Kind::Assignment(assignment)) => link.assign(assignment),
            Some(Kind::Withdrawal(withdrawal)) => link.withdraw(&withdrawal),
            Some(Kind::TookOver(took_over)) => link.took_over(took_over),
            Some(Kind::Acknowledgement(proto::Acknowledgement {
                attempt: Some(attempt),
                counted,
            })) => {
                let key = attempt.id();
                if !counted {
                    tracing::info!(attempt = ?key.to_string(), "the report came too late");
                }
                link.acknowledged(&key);
            }
            Some(Kind::Drain(_)) => link.drain(),
            Some(Kind::Undrain(_)) => link.undrain(),
            Some(Kind::CreditsTaken(taken)) => link.credits_taken(taken.number),
            Some(Kind::Wanted(_)) => link.wanted(),
            // A newer server may say more than we understand; what it must know is in what we say.
            Some(Kind::Welcome(_) | Kind::Acknowledgement(_)) | None => {}
        }
    }
}

/// Why nothing more is sent.
enum SendEnd {
    /// Everything was said, and our half of the stream is closed.
    Goodbye,
    IntoTheVoid,
}

/// Beats, credits, and that we drain or take work again. Reports go past this, and logs another way.
async fn send(link: &Link, sender: mpsc::Sender<proto::FromWorker>, beat: Duration) -> SendEnd {
    use from_worker::Kind;
    let mut beats = interval(beat);
    // Late beats are not made up for: the next answer counts.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = link.changes();
    let mut told_draining = false;
    loop {
        // Before looking, so that no change between looking and waiting is missed.
        changes.mark_unchanged();
        let undrained = std::mem::take(&mut link.state().undrain_unanswered);
        let draining = link.draining();
        let next = if undrained {
            // Before a drain that came later is told.
            told_draining = false;
            Kind::Undrained(proto::Undrained {})
        } else if let Some(why) = draining.filter(|_| !told_draining) {
            told_draining = true;
            Kind::Draining(proto::Draining { why })
        } else if let Some(Grant { slots, left, number }) = link.next_grant() {
            let Capacity { cpu_milli, memory_bytes } = left;
            Kind::Credits(proto::Credits { slots, number, cpu_milli, memory_bytes })
        } else if link.is_leaving() {
            return SendEnd::Goodbye;
        } else {
            tokio::select! {
                biased;
                _ = beats.tick() => Kind::Beat(proto::Beat { number: link.beat() }),
                _ = changes.changed() => continue,
            }
        };
        if sender.send(proto::FromWorker { kind: Some(next) }).await.is_err() {
            return SendEnd::IntoTheVoid;
        }
    }
}

/// Why nothing that this server says counts any more, once that is so.
async fn over(link: &Link) -> Status {
    let mut changes = link.changes();
    loop {
        if link.lease_is_over() {
            return Status::deadline_exceeded("no beat was answered for a whole lease");
        }
        if link.is_taken_over() {
            return Status::unavailable("another server has taken over what it had");
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

//! One stream to the server, from hello to its end. What runs does not end with it.

use std::sync::Arc;
use std::time::Duration;

use proto::{from_worker, to_worker};
use steadfast_api::proto;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic::{Status, Streaming};

use super::connect::Client;
use super::executor::{Executor, SERVER_ASKED};
use super::outbox::Outbox;
use super::task_reports::Outgoing;
use super::{PATIENCE, blocking};
use crate::lease::clock;

/// Messages made and not taken by the stream yet: a beat waits behind no more than this.
const AHEAD: usize = 1;
/// How often running attempts are asked what they have printed.
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

pub(super) async fn hold(executor: &Arc<Executor>, mut client: Client) -> Ended {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let hello_sent = clock();
    let (mut stream, welcome) = match greet(executor, &mut client, &sender, receiver).await {
        Ok(greeted) => greeted,
        Err(status) => return Ended { answered: false, welcomed: false, status },
    };
    let lease = Duration::from_millis(welcome.lease_ms);
    let beat = Duration::from_millis(welcome.beat_ms).max(BEAT_LEAST);
    let known = executor.clone();
    blocking(move || known.identity.proven(welcome.proof)).await;
    executor.welcomed(client, hello_sent, lease);
    tracing::info!(server = executor.config.server, worker = executor.config.name, "connected");
    let mut answered = false;
    let status = tokio::select! {
        status = receive(executor, &mut stream, lease, &mut answered) => status,
        said = send(executor, sender, beat) => match said {
            SendEnd::Goodbye => {
                let last = receive(executor, &mut stream, lease, &mut answered);
                timeout(GOODBYE, last).await.unwrap_or_else(|_| Status::cancelled("we left"))
            }
            SendEnd::IntoTheVoid => Status::unavailable("the connection broke"),
        },
        () = lease_over(executor) => Status::deadline_exceeded("no beat was answered for a whole lease"),
    };
    executor.disconnected();
    Ended { answered, welcomed: true, status }
}

async fn greet(
    executor: &Arc<Executor>,
    client: &mut Client,
    sender: &mpsc::Sender<proto::FromWorker>,
    receiver: mpsc::Receiver<proto::FromWorker>,
) -> Result<(Streaming<proto::ToWorker>, proto::Welcome), Status> {
    let silent = |_| Status::deadline_exceeded("the server does not answer");
    let gone = |_| Status::internal("the stream was closed before it was opened");
    let hello = from_worker::Kind::Hello(hello(executor));
    sender.send(proto::FromWorker { kind: Some(hello) }).await.map_err(gone)?;
    let opened = timeout(PATIENCE, client.session(Outgoing::new(executor, receiver)));
    let mut stream = opened.await.map_err(silent)??.into_inner();
    let first = timeout(PATIENCE, stream.message()).await.map_err(silent)??;
    match first.and_then(|message| message.kind) {
        Some(to_worker::Kind::Welcome(welcome)) if welcome.lease_ms > 0 => Ok((stream, welcome)),
        Some(_) => Err(Status::internal("the server did not begin with a welcome")),
        None => Err(Status::unavailable("the server ended the session before it began")),
    }
}

fn hello(executor: &Executor) -> proto::Hello {
    let config = &executor.config;
    proto::Hello {
        name: config.name.clone(),
        incarnation: executor.incarnation.clone(),
        returning: executor.is_welcomed(),
        datacenter: config.datacenter.clone().unwrap_or_default(),
        labels: config.labels.clone().into_iter().collect(),
        slots: config.slots,
        cpu: config.cpu.unwrap_or_default(),
        memory_bytes: config.memory_bytes.unwrap_or_default(),
        functions: config.functions.as_ref().map(|known| known.names()).unwrap_or_default(),
        processes: config.processes,
        http: executor.caller.is_some(),
        queues: true,
        holds: executor.holds(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        secret: executor.identity.secret(),
        proof: executor.identity.proof(),
    }
}

async fn receive(
    executor: &Arc<Executor>,
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
                executor.answered(beat.number);
            }
            Some(Kind::Assignment(assignment)) => executor.assign(assignment),
            Some(Kind::Withdrawal(proto::Withdrawal { attempt: Some(attempt) })) => {
                executor.withdraw(&attempt.id());
            }
            Some(Kind::Acknowledgement(proto::Acknowledgement {
                attempt: Some(attempt),
                counted,
            })) => {
                let key = attempt.id();
                if !counted {
                    tracing::info!(attempt = ?key.to_string(), "the report came too late");
                }
                executor.acknowledged(&key);
            }
            Some(Kind::Drain(_)) => executor.drain(SERVER_ASKED),
            Some(Kind::Undrain(_)) => executor.undrain(),
            // A newer server may say more than we understand; what it must know is in what we say.
            Some(Kind::Welcome(_) | Kind::Withdrawal(_) | Kind::Acknowledgement(_)) | None => {}
        }
    }
}

/// Why nothing more is sent.
enum SendEnd {
    /// Everything was said, and our half of the stream is closed.
    Goodbye,
    IntoTheVoid,
}

async fn send(
    executor: &Arc<Executor>,
    sender: mpsc::Sender<proto::FromWorker>,
    beat: Duration,
) -> SendEnd {
    use from_worker::Kind;
    let mut beats = interval(beat);
    // Late beats are not made up for: the next answer counts.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = executor.changes();
    let mut outbox = Outbox::new(executor.clone());
    loop {
        // Before looking, so that no change between looking and waiting is missed.
        changes.mark_unchanged();
        let next = tokio::select! {
            biased;
            _ = beats.tick() => Some(Kind::Beat(proto::Beat { number: executor.beat() })),
            next = outbox.next() => next,
        };
        if let Some(kind) = next {
            if sender.send(proto::FromWorker { kind: Some(kind) }).await.is_err() {
                return SendEnd::IntoTheVoid;
            }
            continue;
        }
        outbox.rest();
        let (follow, leaving) = {
            let state = executor.state();
            (!state.running.is_empty(), state.leaving)
        };
        if leaving {
            return SendEnd::Goodbye;
        }
        tokio::select! {
            biased;
            _ = beats.tick() => {
                let beat = Kind::Beat(proto::Beat { number: executor.beat() });
                if sender.send(proto::FromWorker { kind: Some(beat) }).await.is_err() {
                    return SendEnd::IntoTheVoid;
                }
            }
            _ = changes.changed() => {}
            _ = looks.tick(), if follow => outbox.look(),
        }
    }
}

async fn lease_over(executor: &Executor) {
    let mut changes = executor.changes();
    while !executor.lease_is_over() {
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

//! One stream to the server, from hello to its end. What runs does not end with it.

use std::time::Duration;

use proto::{from_worker, to_worker};
use steadfast_api::proto;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic::{Status, Streaming};

use super::connect::Client;
use super::reports::Outgoing;
use super::worker::Worker;
use super::{PATIENCE, blocking, logs};
use crate::executor::SERVER_ASKED;
use crate::lease::clock;

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

pub(super) async fn hold(worker: &Worker, mut client: Client) -> Ended {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let hello_sent = clock();
    let (mut stream, welcome) = match greet(worker, &mut client, &sender, receiver).await {
        Ok(greeted) => greeted,
        Err(status) => return Ended { answered: false, welcomed: false, status },
    };
    let lease = Duration::from_millis(welcome.lease_ms);
    let beat = Duration::from_millis(welcome.beat_ms).max(BEAT_LEAST);
    let (known, proof) = (worker.clone(), welcome.proof.clone());
    blocking(move || known.identity.proven(proof)).await;
    worker.welcomed(client.clone(), hello_sent, &welcome);
    tracing::info!(server = worker.config.server, worker = worker.config.name, "connected");
    let mut answered = false;
    let status = tokio::select! {
        status = receive(worker, &mut stream, lease, &mut answered) => status,
        said = send(worker, sender, beat) => match said {
            SendEnd::Goodbye => {
                let last = receive(worker, &mut stream, lease, &mut answered);
                timeout(GOODBYE, last).await.unwrap_or_else(|_| Status::cancelled("we left"))
            }
            SendEnd::IntoTheVoid => Status::unavailable("the connection broke"),
        },
        never = logs::upload(worker, client) => match never {},
        () = lease_over(worker) => Status::deadline_exceeded("no beat was answered for a whole lease"),
    };
    worker.disconnected();
    Ended { answered, welcomed: true, status }
}

async fn greet(
    worker: &Worker,
    client: &mut Client,
    sender: &mpsc::Sender<proto::FromWorker>,
    receiver: mpsc::Receiver<proto::FromWorker>,
) -> Result<(Streaming<proto::ToWorker>, proto::Welcome), Status> {
    let silent = |_| Status::deadline_exceeded("the server does not answer");
    let gone = |_| Status::internal("the stream was closed before it was opened");
    let hello = from_worker::Kind::Hello(hello(worker));
    sender.send(proto::FromWorker { kind: Some(hello) }).await.map_err(gone)?;
    let opened = timeout(PATIENCE, client.session(Outgoing::new(worker, receiver)));
    let mut stream = opened.await.map_err(silent)??.into_inner();
    let first = timeout(PATIENCE, stream.message()).await.map_err(silent)??;
    match first.and_then(|message| message.kind) {
        Some(to_worker::Kind::Welcome(welcome)) if welcome.lease_ms > 0 => Ok((stream, welcome)),
        Some(_) => Err(Status::internal("the server did not begin with a welcome")),
        None => Err(Status::unavailable("the server ended the session before it began")),
    }
}

fn hello(worker: &Worker) -> proto::Hello {
    let config = &worker.config;
    proto::Hello {
        name: config.name.clone(),
        incarnation: worker.incarnation.clone(),
        returning: worker.is_welcomed(),
        datacenter: config.datacenter.clone().unwrap_or_default(),
        labels: config.labels.clone(),
        slots: config.slots,
        cpu: config.cpu.unwrap_or_default(),
        memory_bytes: config.memory_bytes.unwrap_or_default(),
        functions: config.functions.as_ref().map(|known| known.names()).unwrap_or_default(),
        processes: config.processes,
        http: worker.caller.is_some(),
        queues: true,
        holds: worker.holds(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        secret: worker.identity.secret(),
        proof: worker.identity.proof(),
    }
}

async fn receive(
    worker: &Worker,
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
                worker.answered(beat.number);
            }
            Some(Kind::Assignment(assignment)) => worker.assign(assignment),
            Some(Kind::Withdrawal(proto::Withdrawal { attempt: Some(attempt) })) => {
                worker.withdraw(&attempt.id());
            }
            Some(Kind::Acknowledgement(proto::Acknowledgement {
                attempt: Some(attempt),
                counted,
            })) => {
                let key = attempt.id();
                if !counted {
                    tracing::info!(attempt = ?key.to_string(), "the report came too late");
                }
                worker.acknowledged(&key);
            }
            Some(Kind::Drain(_)) => worker.0.drain(SERVER_ASKED),
            Some(Kind::Undrain(_)) => worker.undrain(),
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

/// Beats, and that we drain or take work again. Reports go past this, and logs another way.
async fn send(worker: &Worker, sender: mpsc::Sender<proto::FromWorker>, beat: Duration) -> SendEnd {
    use from_worker::Kind;
    let mut beats = interval(beat);
    // Late beats are not made up for: the next answer counts.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = worker.changes();
    let mut told_draining = false;
    loop {
        // Before looking, so that no change between looking and waiting is missed.
        changes.mark_unchanged();
        let undrained = std::mem::take(&mut worker.state().undrain_unanswered);
        let draining = worker.draining();
        let next = if undrained {
            // Before a drain that came later is told.
            told_draining = false;
            Kind::Undrained(proto::Undrained {})
        } else if let Some(why) = draining.filter(|_| !told_draining) {
            told_draining = true;
            Kind::Draining(proto::Draining { why })
        } else if worker.state().leaving {
            return SendEnd::Goodbye;
        } else {
            tokio::select! {
                biased;
                _ = beats.tick() => Kind::Beat(proto::Beat { number: worker.beat() }),
                _ = changes.changed() => continue,
            }
        };
        if sender.send(proto::FromWorker { kind: Some(next) }).await.is_err() {
            return SendEnd::IntoTheVoid;
        }
    }
}

async fn lease_over(worker: &Worker) {
    let mut changes = worker.changes();
    while !worker.lease_is_over() {
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

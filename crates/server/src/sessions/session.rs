//! One worker's session, from Hello to its end.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_api::proto;
use steadfast_core::event::AttemptId;
use steadfast_engine::{Arrival, Arriving, Credits, Identity, Inbox, Missed, NameInUse, SendError};
use steadfast_store::is_plain_name;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::backlog::{Backlog, Word};
use super::hello::{check, spec};
use super::proof::{Holder, fingerprint};
use super::queue::{Outgoing, UNREAD, queue};
use super::{Session, SessionRegistry};
use crate::observability::{Rejected, SessionEnd};
use crate::tokens::{Granted, WorkerBinding};
use proto::from_worker::Kind as Sent;
use proto::to_worker::Kind as OutgoingStream;
use proto::workers_server::Workers;

/// Whoever opens a session has so long to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Before the engine is asked again to take what it had no room for.
const AGAIN: Duration = Duration::from_millis(5);
/// One message of a worker: an output of 1 MiB, and what is around it.
pub const LARGEST_MESSAGE: usize = 4 << 20;
/// A worker has lost its lease after one; what it says after so many leases of silence it says in a new session.
const SILENT_LEASES: u64 = 2;
/// Of unread answers to beats: twice those of a lease, and no fewer than this, as several may come at once.
const UNREAD_BEATS_LEAST: u64 = 64;
/// Of an attempt that somebody names without having it, in the server's log.
const LONGEST_SHOWN: usize = 64;

/// The gRPC service.
#[derive(Clone, Debug)]
pub struct WorkerSessions {
    pub(super) registry: SessionRegistry,
    pub(super) inbox: Inbox,
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Who is at the other end.
#[derive(Clone)]
pub(super) struct Peer {
    id: u64,
    pub(super) name: Arc<str>,
    pub(super) incarnation: Arc<str>,
    fingerprint: Arc<str>,
    /// The id of its token. None: a server without tokens.
    token: Option<Arc<str>>,
    out: Outgoing,
}

impl Peer {
    fn holder(&self) -> Holder<'_> {
        Holder { name: &self.name, fingerprint: &self.fingerprint }
    }
}

/// What a worker that is welcome is told.
struct WelcomeNotices {
    /// What it says that it has, and was never assigned.
    foreign: Vec<proto::AttemptRef>,
    /// And what this server does not have.
    not_held: Vec<proto::AttemptRef>,
    missed: Missed,
}

impl WorkerSessions {
    pub fn new(registry: SessionRegistry, inbox: Inbox) -> Self {
        Self { registry, inbox }
    }

    async fn welcome(
        &self,
        hello: proto::Hello,
        binding: &WorkerBinding,
        peer: &Peer,
    ) -> Result<(), Status> {
        let proofs = &self.registry.0.parts.proofs;
        let spec = spec(&hello, peer);
        let identity = Identity {
            fingerprint: peer.fingerprint.clone(),
            proven: proofs.is_session(peer.holder(), &hello.proof),
            owns_name: binding.worker.is_some() || self.registry.0.rules.inside,
        };
        // What was never assigned to this worker it is to forget.
        let (held, foreign): (Vec<_>, Vec<_>) = hello
            .holds
            .into_iter()
            .partition(|attempt| self.registry.is_assigned_to(attempt, peer));
        let mut holds: BTreeSet<AttemptId> = held.iter().map(proto::AttemptRef::id).collect();
        let (mut elsewhere, mut of_others) = (BTreeSet::new(), HashMap::new());
        let (session, mut returning, credits) = (peer.id, hello.returning, hello.credits);
        for other in hello.elsewhere {
            let its = other.holds.iter().filter(|it| self.registry.is_assigned_to(it, peer));
            if other.scope == self.registry.0.parts.scope.id {
                // Under another address it is this server as well.
                holds.extend(its.map(proto::AttemptRef::id));
                returning |= other.returning;
            } else {
                for attempt in its {
                    elsewhere.insert(attempt.id());
                    of_others.insert(attempt.id(), attempt.clone());
                }
            }
        }
        let held_refs: HashMap<AttemptId, proto::AttemptRef> =
            held.into_iter().map(|attempt| (attempt.id(), attempt)).collect();
        let held: HashSet<AttemptId> = holds.iter().cloned().collect();
        let in_vain = BTreeSet::new();
        let arriving =
            Arriving { spec, identity, session, returning, holds, elsewhere, in_vain, credits };
        let (tell, told) = oneshot::channel();
        let (registry, arrived) = (self.registry.clone(), peer.clone());
        // On the engine's thread, before the worker is assigned anything: what it is assigned must find
        // its way, and Welcome comes first.
        let reply = Box::new(move |answer: Result<Arrival, NameInUse>| {
            let began = answer.map(|Arrival { missed, adopted, not_held, .. }| {
                let not_held =
                    not_held.iter().filter_map(|id| held_refs.get(id).cloned()).collect();
                registry.begin(arrived.clone(), held, WelcomeNotices { foreign, not_held, missed });
                registry.adopt(&arrived, &adopted, &of_others);
            });
            drop(tell.send(began));
        });
        self.inbox.connect(arriving, reply).map_err(unavailable)?;
        let answer = told.await.map_err(|_| unavailable(SendError::Stopped))?;
        answer.map_err(|in_use| {
            self.registry.0.parts.watch.worker_refused(&peer.name, &in_use.to_string());
            Status::already_exists(in_use.to_string())
        })
    }

    async fn listen(self, peer: Peer, mut said: Streaming<proto::FromWorker>) {
        let silence =
            Duration::from_millis(self.registry.0.rules.lease_ms.saturating_mul(SILENT_LEASES));
        let mut backlog = Backlog::default();
        loop {
            let kind = tokio::select! {
                () = tokio::time::sleep(AGAIN), if !backlog.is_empty() => {
                    while let Some(word) = backlog.first().cloned() {
                        match self.hear(&peer, word) {
                            Ok(()) => backlog.taken(),
                            Err(SendError::Full) => break,
                            Err(SendError::Stopped) => return self.ended(peer).await,
                        }
                    }
                    if backlog.has_lost() {
                        let why = "the server's store stalled; send what is not acknowledged again";
                        self.registry.end(&peer, SessionEnd::Overflow, Status::unavailable(why));
                        break;
                    }
                    continue;
                }
                message = tokio::time::timeout(silence, said.next()) => match message {
                    Ok(Some(Ok(proto::FromWorker { kind: Some(kind) }))) => kind,
                    Ok(Some(Ok(proto::FromWorker { kind: None }))) => continue,
                    Ok(Some(Err(_)) | None) => break,
                    Err(_) => {
                        let why = "the worker was silent for longer than its lease";
                        self.registry.end(&peer, SessionEnd::Silent, Status::deadline_exceeded(why));
                        break;
                    }
                },
                () = peer.out.ended() => break,
            };
            // Another session has the name by now: this one speaks for nobody.
            if !self.registry.is_current(&peer) {
                break;
            }
            match kind {
                Sent::Beat(beat) => {
                    if let Err(status) = self.registry.still_admitted(peer.token.as_deref()) {
                        self.registry.end(&peer, SessionEnd::Token, status);
                        break;
                    }
                    self.beat(&peer, beat);
                }
                Sent::Report(report) => {
                    if self.take(&peer, Word::Report(report), &mut backlog).is_err() {
                        break;
                    }
                }
                Sent::Progress(progress) => {
                    if self.take(&peer, Word::Progress(progress), &mut backlog).is_err() {
                        break;
                    }
                }
                Sent::Draining(_) => {
                    let _ = self.inbox.drain_worker(&peer.name, Box::new(|_| ()));
                    if let Some(session) = self.registry.sessions().get(&peer.name) {
                        session.drains.send_replace(true);
                    }
                }
                Sent::Undrained(_) => {
                    self.inbox.undrained(&peer.name);
                    if let Some(session) = self.registry.sessions().get(&peer.name) {
                        session.drains.send_replace(false);
                        session.undrained.send_modify(|times| *times += 1);
                    }
                }
                Sent::Credits(proto::Credits { slots, number, cpu_milli, memory_bytes }) => {
                    let credits = Credits { slots, cpu_milli, memory_bytes, number };
                    self.inbox.credits(&peer.name, peer.id, credits);
                }
                Sent::Hello(_) => {}
            }
        }
        self.ended(peer).await;
    }

    async fn ended(&self, peer: Peer) {
        self.registry.forget(&peer);
        let inbox = self.inbox.clone();
        // The engine may have no room for a moment, and nobody says this again.
        let _ = tokio::task::spawn_blocking(move || inbox.away(&peer.name, peer.id)).await;
    }

    /// Hears it, or keeps it behind what is kept already. An error: the engine has stopped.
    fn take(&self, peer: &Peer, word: Word, backlog: &mut Backlog) -> Result<(), SendError> {
        if backlog.is_empty() {
            match self.hear(peer, word.clone()) {
                Err(SendError::Full) => {}
                heard => return heard,
            }
        }
        backlog.push(word);
        Ok(())
    }

    fn hear(&self, peer: &Peer, word: Word) -> Result<(), SendError> {
        match word {
            Word::Report(report) => self.report(peer, report),
            Word::Progress(progress) => self.progress(peer, progress),
        }
    }

    fn beat(&self, peer: &Peer, beat: proto::Beat) {
        let (registry, answered) = (self.registry.clone(), peer.clone());
        let reply = Box::new(move |known: bool| {
            if known && !registry.vouches() {
                // Not answered: another server may have what the worker runs.
            } else if known {
                registry.0.parts.watch.metrics().heartbeat();
                registry.say(&answered, OutgoingStream::Beat(beat));
            } else {
                // It was silent for too long; it comes in anew.
                registry.forget(&answered);
            }
        });
        // One that is not heard is not answered, as if it had been lost on the way.
        let _ = self.inbox.beat(&peer.name, &peer.incarnation, reply);
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn unavailable(unheard: SendError) -> Status {
    Status::unavailable(unheard.to_string())
}

impl SessionRegistry {
    /// The worker is welcome; whoever had its name is not listened to any more.
    fn begin(
        &self,
        peer: Peer,
        held: HashSet<AttemptId>,
        WelcomeNotices { foreign, not_held, missed }: WelcomeNotices,
    ) {
        let rules = self.0.rules;
        let proof = self.0.parts.proofs.session(peer.holder());
        self.say(
            &peer,
            OutgoingStream::Welcome(proto::Welcome {
                lease_ms: rules.lease_ms,
                beat_ms: rules.beat_ms,
                proof,
                log_bytes: rules.log_cap,
                output_bytes: rules.output_cap as u64,
                peers: self.0.parts.peers.clone(),
                scope: self.0.parts.scope.id.clone(),
                epoch: self.0.parts.scope.epoch(),
                not_held,
            }),
        );
        // It was away when it was to be told.
        match missed {
            Missed::Nothing => {}
            Missed::Drain => self.say(&peer, OutgoingStream::Drain(proto::Drain {})),
            Missed::Undrain => self.say(&peer, OutgoingStream::Undrain(proto::Undrain {})),
        }
        for attempt in foreign {
            // Signed by nobody here: said as this server, whatever shard its name would be in.
            let epoch = self.0.parts.scope.epoch();
            let withdrawal =
                proto::Withdrawal { attempt: Some(attempt), scope: String::new(), epoch };
            self.say(&peer, OutgoingStream::Withdrawal(withdrawal));
        }
        let Peer { id, name, fingerprint, token, out, .. } = peer;
        let before = self.sessions().insert(
            name,
            Session {
                id,
                fingerprint,
                token,
                out,
                held,
                drains: watch::Sender::new(false),
                undrained: watch::Sender::new(0),
            },
        );
        if let Some(before) = before {
            before.out.hang_up();
        }
    }

    fn is_current(&self, peer: &Peer) -> bool {
        self.sessions().get(&peer.name).is_some_and(|session| session.id == peer.id)
    }

    /// The server has signed all of it, for this worker.
    pub(super) fn is_assigned_to(&self, attempt: &proto::AttemptRef, peer: &Peer) -> bool {
        is_plain_name(&attempt.job_id)
            && is_plain_name(&attempt.step_name)
            && self.0.parts.proofs.is_attempt(attempt, peer.holder())
    }

    /// Of an attempt that was never this worker's. It is told to forget it, as of one that comes too late.
    pub(super) fn refuse_report(&self, peer: &Peer, mut attempt: proto::AttemptRef) {
        let shown: String = attempt.job_id.chars().take(LONGEST_SHOWN).collect();
        self.0.parts.watch.attempt_rejected(&Rejected {
            job: &shown.as_str().into(),
            item: &format!("{}/{}[{}]", attempt.run, attempt.step, attempt.index),
            attempt: Some(attempt.attempt),
            token: attempt.token,
            worker: &peer.name,
            reason: "the attempt was not assigned to this worker",
        });
        if attempt.job_id.len() <= LONGEST_SHOWN {
            // No more than what it is known by is said again.
            (attempt.step_name, attempt.proof) = (String::new(), Vec::new());
            let kind = proto::Acknowledgement { attempt: Some(attempt), counted: false };
            self.say(peer, OutgoingStream::Acknowledgement(kind));
        }
    }

    pub(super) fn say(&self, peer: &Peer, kind: OutgoingStream) {
        if peer.out.send(kind).is_err() {
            self.dropped(&peer.name, SessionEnd::Unread, UNREAD);
        }
    }

    /// Ends a session with a reason.
    pub(super) fn end(&self, peer: &Peer, end: SessionEnd, why: Status) {
        self.dropped(&peer.name, end, why.message());
        peer.out.end(why);
    }

    /// Unless another session of that worker has taken its place.
    fn forget(&self, peer: &Peer) {
        let mut sessions = self.sessions();
        if sessions.get(&peer.name).is_some_and(|session| session.id == peer.id) {
            sessions.remove(&peer.name);
        }
        peer.out.hang_up();
    }
}

#[tonic::async_trait]
impl Workers for WorkerSessions {
    type SessionStream = Out<proto::ToWorker>;
    type GetFileStream = Out<proto::FileChunk>;

    async fn session(
        &self,
        request: Request<Streaming<proto::FromWorker>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let granted = request.extensions().get::<Granted>().cloned();
        let mut said = request.into_inner();
        let first = tokio::time::timeout(HELLO_WITHIN, said.next()).await;
        let Ok(Some(Ok(proto::FromWorker { kind: Some(Sent::Hello(hello)) }))) = first else {
            return Err(Status::invalid_argument("a session begins with Hello"));
        };
        check(&hello).map_err(Status::invalid_argument)?;
        let binding = granted.as_ref().map(|granted| granted.binding.clone()).unwrap_or_default();
        let labels = &hello.labels;
        if let Err(why) = binding.allows(&hello.name, &hello.datacenter, labels) {
            self.registry.0.parts.watch.worker_refused(&hello.name, &why.to_string());
            return Err(Status::permission_denied(why.to_string()));
        }
        let rules = self.registry.0.rules;
        let beats = (2 * rules.lease_ms / rules.beat_ms.max(1)).max(UNREAD_BEATS_LEAST);
        let (out, told) = queue(beats);
        let peer = Peer {
            id: self.registry.next_session(),
            name: hello.name.as_str().into(),
            incarnation: hello.incarnation.as_str().into(),
            fingerprint: fingerprint(&hello.secret).into(),
            token: granted.map(|granted| granted.id.into()),
            out,
        };
        // Apart, because a worker that loses its patience meanwhile has come, and must be seen to go.
        let (registry, arrived) = (self.clone(), peer);
        let welcomed = tokio::spawn(async move {
            registry.welcome(hello, &binding, &arrived).await?;
            tokio::spawn(registry.clone().listen(arrived, said));
            Ok::<_, Status>(())
        });
        welcomed.await.map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(Box::pin(told)))
    }

    async fn get_file(
        &self,
        request: Request<proto::GetFileRequest>,
    ) -> Result<Response<Self::GetFileStream>, Status> {
        let granted = request.extensions().get::<Granted>().cloned();
        let chunks = self.registry.file(request.into_inner(), granted.as_ref()).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(chunks))))
    }

    async fn send_log(
        &self,
        request: Request<proto::LogChunk>,
    ) -> Result<Response<proto::LogAck>, Status> {
        let granted = request.extensions().get::<Granted>().cloned();
        let answer = self.registry.take_log(request.into_inner(), granted.as_ref()).await?;
        Ok(Response::new(answer))
    }
}

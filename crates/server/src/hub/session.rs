//! One worker's session, from Hello to its end.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Component, Path};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_api::{Said as Word, proto};
use steadfast_core::decide::Input;
use steadfast_core::event::JobId;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::MAX_LABELS;
use steadfast_engine::{
    Answer, Arriving, AttemptKey, Inbox, Missed, NameInUse, Unheard, WorkerSpec,
};
use steadfast_store::Folder;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::{Hub, Session};
use crate::log_times;
use crate::watch::Rejected;
use proto::from_worker::Kind as Said;
use proto::to_worker::Kind as Told;
use proto::workers_server::Workers;

/// Whoever opens a session has so long to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Before the engine is asked again to hear something it had no room for.
const AGAIN: Duration = Duration::from_millis(2);
const LONGEST_NAME: usize = 200;
const MOST_SLOTS: u32 = 10_000;
/// One message of a worker: an output of 1 MiB, and what is around it.
pub const LARGEST_MESSAGE: usize = 4 << 20;
const FILE_CHUNK: usize = 64 << 10;

/// The gRPC service.
#[derive(Clone, Debug)]
pub struct WorkerSessions {
    hub: Hub,
    inbox: Inbox,
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Who is at the other end.
#[derive(Clone)]
struct Peer {
    id: u64,
    name: Arc<str>,
    incarnation: Arc<str>,
    out: mpsc::UnboundedSender<proto::ToWorker>,
    /// Told when the session is to end.
    ended: Arc<Notify>,
}

impl WorkerSessions {
    pub fn new(hub: Hub, inbox: Inbox) -> Self {
        Self { hub, inbox }
    }

    async fn welcome(&self, hello: proto::Hello, peer: &Peer) -> Result<(), Status> {
        let holds: BTreeSet<AttemptKey> =
            hello.holds.iter().map(|held| (held.job_id.as_str().into(), held.token)).collect();
        let spec = spec(&hello, peer);
        let arriving = Arriving { spec, session: peer.id, returning: hello.returning, holds };
        let (tell, told) = oneshot::channel();
        let (hub, arrived) = (self.hub.clone(), peer.clone());
        let held: HashSet<AttemptKey> = arriving.holds.iter().cloned().collect();
        // On the engine's thread, before the worker is assigned anything: what it is assigned must find
        // its way, and Welcome comes first.
        let reply = Box::new(move |answer: Result<Missed, NameInUse>| {
            if let Ok(missed) = answer {
                let rules = hub.0.rules;
                let kind = proto::Welcome { lease_ms: rules.lease_ms, beat_ms: rules.beat_ms };
                let _ = arrived.out.send(proto::ToWorker { kind: Some(Told::Welcome(kind)) });
                // It was away when it was to be told.
                let missed = match missed {
                    Missed::Nothing => None,
                    Missed::Drain => Some(Told::Drain(proto::Drain {})),
                    Missed::Undrain => Some(Told::Undrain(proto::Undrain {})),
                };
                if missed.is_some() {
                    let _ = arrived.out.send(proto::ToWorker { kind: missed });
                }
                let Peer { id, name, out, ended, .. } = arrived;
                let before = hub.sessions().insert(
                    name,
                    Session {
                        id,
                        out,
                        held,
                        withdrawn: VecDeque::new(),
                        drains: watch::Sender::new(false),
                        undrained: watch::Sender::new(0),
                        ended,
                    },
                );
                if let Some(before) = before {
                    before.ended.notify_one();
                }
            }
            drop(tell.send(answer.map(drop)));
        });
        self.inbox.connect(arriving, reply).map_err(unavailable)?;
        let answer = told.await.map_err(|_| unavailable(Unheard::Stopped))?;
        answer.map_err(|in_use| {
            self.hub.0.watch.worker_refused(&peer.name, &in_use.to_string());
            Status::already_exists(in_use.to_string())
        })
    }

    async fn listen(self, peer: Peer, mut said: Streaming<proto::FromWorker>) {
        loop {
            let kind = tokio::select! {
                message = said.next() => match message {
                    Some(Ok(proto::FromWorker { kind: Some(kind) })) => kind,
                    Some(Ok(proto::FromWorker { kind: None })) => continue,
                    Some(Err(_)) | None => break,
                },
                () = peer.ended.notified() => break,
                () = peer.out.closed() => break,
            };
            match kind {
                Said::Beat(beat) => self.beat(&peer, beat),
                Said::Report(report) => {
                    if self.report(&peer, report).await.is_err() {
                        break;
                    }
                }
                Said::Output(output) => {
                    // The next session begins with all that is not acknowledged, logs among it.
                    if !self.output(&peer, output).await {
                        break;
                    }
                }
                Said::Progress(progress) => self.progress(&peer, progress).await,
                Said::Draining(_) => {
                    let _ = self.inbox.drain_worker(&peer.name, Box::new(|_| ()));
                    if let Some(session) = self.hub.sessions().get(&peer.name) {
                        session.drains.send_replace(true);
                    }
                }
                Said::Undrained(_) => {
                    self.inbox.undrained(&peer.name);
                    if let Some(session) = self.hub.sessions().get(&peer.name) {
                        session.drains.send_replace(false);
                        session.undrained.send_modify(|times| *times += 1);
                    }
                }
                Said::Hello(_) => {}
            }
        }
        self.hub.forget(&peer);
        let inbox = self.inbox.clone();
        // The engine may have no room for a moment, and nobody says this again.
        let _ = tokio::task::spawn_blocking(move || inbox.away(&peer.name, peer.id)).await;
    }

    fn beat(&self, peer: &Peer, beat: proto::Beat) {
        let (hub, answered) = (self.hub.clone(), peer.clone());
        let reply = Box::new(move |known: bool| {
            if known {
                hub.0.watch.metrics().heartbeat();
                let _ = answered.out.send(proto::ToWorker { kind: Some(Told::Beat(beat)) });
            } else {
                // It was silent for too long; it comes in anew.
                hub.forget(&answered);
            }
        });
        // One that is not heard is not answered, as if it had been lost on the way.
        let _ = self.inbox.beat(&peer.name, &peer.incarnation, reply);
    }

    /// Acknowledged when it is durable, or refused as stale.
    async fn report(&self, peer: &Peer, report: proto::Report) -> Result<(), Unheard> {
        let Some(attempt) = report.attempt.clone() else { return Ok(()) };
        let most = self.hub.0.rules.output_cap;
        let (item, token) = (attempt.item(), attempt.token);
        let ended = |outcome| Input::Report { item, token, outcome };
        let input = match steadfast_api::from_report(report) {
            Ok((_, Word::Ended(outcome))) => ended(outcome.within(most)),
            Ok((_, Word::AwaitsCallback)) => Input::Awaits { item, token },
            // Said again it would be the same: the attempt must not wait for it for ever.
            Err(malformed) => ended(Outcome::Failed(Failure {
                error: Some(ErrorText {
                    kind: Some("malformed_report".to_owned()),
                    message: format!("worker {}: {malformed}", peer.name),
                }),
                ..Failure::new(FailureKind::NotCompleted)
            })),
        };
        let job: JobId = attempt.job_id.as_str().into();
        loop {
            let (hub, peer, attempt) = (self.hub.clone(), peer.clone(), attempt.clone());
            let key = (job.clone(), token);
            let reply = Box::new(move |answer: Answer| {
                if let Err(why) = &answer {
                    hub.0.watch.attempt_rejected(&Rejected {
                        job: &key.0,
                        item: &format!("{}/{}[{}]", attempt.run, attempt.step, attempt.index),
                        attempt: Some(attempt.attempt),
                        token,
                        worker: &peer.name,
                        reason: &why.to_string(),
                    });
                }
                if let Some(session) = hub.sessions().get_mut(&peer.name) {
                    session.held.remove(&key);
                }
                let counted = answer.is_ok();
                let kind = proto::Acknowledgement { attempt: Some(attempt), counted };
                let kind = Some(Told::Acknowledgement(kind));
                let _ = peer.out.send(proto::ToWorker { kind });
            });
            match self.inbox.hear(&job, input.clone(), reply) {
                Err(Unheard::Full) => tokio::time::sleep(AGAIN).await,
                heard => return heard,
            }
        }
    }

    /// Not acknowledged: the next one says more.
    async fn progress(&self, peer: &Peer, progress: proto::Progress) {
        let Some(attempt) = progress.attempt else { return };
        let job: JobId = attempt.job_id.as_str().into();
        let key = (job.clone(), attempt.token);
        let is_its =
            self.hub.sessions().get(&peer.name).is_some_and(|session| session.held.contains(&key));
        if let Some(progress) = steadfast_api::progress(progress.progress_json.as_bytes())
            && is_its
        {
            let (item, token) = (attempt.item(), attempt.token);
            let input = Input::Progress { item, token, progress, by_callback: false };
            while let Err(Unheard::Full) = self.inbox.hear(&job, input.clone(), Box::new(|_| ())) {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// False: it could not be written now, and must come again before the report of its attempt counts.
    async fn output(&self, peer: &Peer, output: proto::Output) -> bool {
        let Some(attempt) = &output.attempt else { return true };
        let key = (attempt.job_id.as_str().into(), attempt.token);
        let is_its = self.hub.sessions().get_mut(&peer.name).is_some_and(|session| {
            let is_its = session.may_print(&key);
            if output.last {
                session.withdrawn.retain(|withdrawn| *withdrawn != key);
            }
            is_its
        });
        // The log may be a little longer than the cap, by the line about what was left out.
        let end = output.offset.saturating_add(output.bytes.len() as u64);
        if !is_its || end > self.hub.0.rules.log_cap + 4096 || !is_plain(&output.step_name) {
            return true;
        }
        let path = self.hub.0.folder.log(
            &attempt.job_id,
            &output.step_name,
            attempt.item(),
            attempt.attempt,
        );
        let hub = self.hub.clone();
        let written = tokio::task::spawn_blocking(move || {
            write_log(&hub.0.folder, &path, &output, hub.0.health.takes_logs())
        });
        let Ok(Err(error)) = written.await else { return true };
        tracing::warn!(event = "LogNotWritten", job_id = %key.0, worker = %peer.name, %error);
        !is_worth_another_try(&error)
    }
}

/// Descriptors come back, and so does what an operator repairs. Logs give way on a full disk, and where nothing
/// may be written a job is not held up for its log.
fn is_worth_another_try(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    !matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

/// The last line of a log that ends before the attempt did. Nothing is added after it: it would not fit on.
const CUT_OFF: &str = "\n… the server's disk is nearly full: what follows is not kept …\n";

/// `room`: there is enough on the disk for logs too.
fn write_log(data: &Folder, path: &Path, output: &proto::Output, room: bool) -> io::Result<()> {
    if output.bytes.is_empty() && !path.exists() {
        return Ok(());
    }
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            data.create_inside(folder)?;
            open()?
        }
        (opened, _) => opened?,
    };
    let (length, end) = (file.metadata()?.len(), output.offset + output.bytes.len() as u64);
    if is_cut_off(&file, length)? {
        return Ok(());
    }
    // What is written over what is there takes no room.
    if end > length && !room {
        return file.write_all_at(CUT_OFF.as_bytes(), length);
    }
    file.write_all_at(&output.bytes, output.offset)?;
    // What comes whole was printed when the file was written. Without times the log is still there.
    if output.offset > 0 || !output.last {
        let _ = log_times::note(&file, path, length, output.offset, end);
    }
    // Nothing but what is printed changes the file's time.
    if output.last && length.max(end) != end {
        file.set_len(end)?;
    }
    Ok(())
}

fn is_cut_off(file: &File, length: u64) -> io::Result<bool> {
    let Some(start) = length.checked_sub(CUT_OFF.len() as u64) else { return Ok(false) };
    let mut end = [0; CUT_OFF.len()];
    file.read_exact_at(&mut end, start)?;
    Ok(end == *CUT_OFF.as_bytes())
}

/// A name that can be part of a path without leading anywhere else.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
        && !name.contains('\0')
}

fn spec(hello: &proto::Hello, peer: &Peer) -> WorkerSpec {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    WorkerSpec {
        name: peer.name.clone(),
        incarnation: peer.incarnation.clone(),
        datacenter: some(&hello.datacenter),
        labels: hello.labels.clone().into_iter().collect::<BTreeMap<_, _>>(),
        slots: hello.slots,
        cpu: Some(hello.cpu).filter(|cpu| *cpu > 0.0),
        memory_bytes: Some(hello.memory_bytes).filter(|bytes| *bytes > 0),
        functions: hello.functions.iter().cloned().collect(),
        processes: hello.processes,
        http: hello.http,
        queues: hello.queues,
    }
}

/// What is wrong with how a worker introduces itself.
fn check(hello: &proto::Hello) -> Result<(), String> {
    let good = |text: &str| text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    if hello.name.is_empty() || !good(&hello.name) || hello.name.contains('/') {
        return Err(format!("{:?} is not a name for a worker", hello.name));
    }
    if hello.incarnation.is_empty() || !good(&hello.incarnation) || !good(&hello.datacenter) {
        return Err("the incarnation or the datacenter has no fitting name".to_owned());
    }
    if hello.slots == 0 || hello.slots > MOST_SLOTS {
        return Err(format!("a worker has 1 to {MOST_SLOTS} slots, not {}", hello.slots));
    }
    if !(hello.cpu.is_finite() && (0.0..=1e6).contains(&hello.cpu)) {
        return Err(format!("{} is no number of cpus", hello.cpu));
    }
    if hello.labels.len() > MAX_LABELS {
        let count = hello.labels.len();
        return Err(format!("a worker has at most {MAX_LABELS} labels, not {count}"));
    }
    let texts = hello.labels.iter().flat_map(|(name, value)| [name, value]);
    if !texts.chain(&hello.functions).all(|text| good(text)) {
        return Err("a label or function has a name that is too long or not printable".to_owned());
    }
    Ok(())
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn unavailable(unheard: Unheard) -> Status {
    Status::unavailable(unheard.to_string())
}

impl Hub {
    /// Unless another session of that worker has taken its place.
    fn forget(&self, peer: &Peer) {
        let mut sessions = self.sessions();
        if sessions.get(&peer.name).is_some_and(|session| session.id == peer.id) {
            sessions.remove(&peer.name);
        }
        peer.ended.notify_one();
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
        let mut said = request.into_inner();
        let first = tokio::time::timeout(HELLO_WITHIN, said.next()).await;
        let Ok(Some(Ok(proto::FromWorker { kind: Some(Said::Hello(hello)) }))) = first else {
            return Err(Status::invalid_argument("a session begins with Hello"));
        };
        check(&hello).map_err(Status::invalid_argument)?;
        let (out, told) = mpsc::unbounded_channel();
        let peer = Peer {
            id: self.hub.next_session(),
            name: hello.name.as_str().into(),
            incarnation: hello.incarnation.as_str().into(),
            out,
            ended: Arc::default(),
        };
        // Apart, because a worker that loses its patience meanwhile has come, and must be seen to go.
        let (hub, arrived) = (self.clone(), peer);
        let welcomed = tokio::spawn(async move {
            hub.welcome(hello, &arrived).await?;
            tokio::spawn(hub.clone().listen(arrived, said));
            Ok::<_, Status>(())
        });
        welcomed.await.map_err(|error| Status::internal(error.to_string()))??;
        let told = UnboundedReceiverStream::new(told).map(Ok);
        Ok(Response::new(Box::pin(told)))
    }

    async fn get_file(
        &self,
        request: Request<proto::GetFileRequest>,
    ) -> Result<Response<Self::GetFileStream>, Status> {
        let proto::GetFileRequest { job_id, path } = request.into_inner();
        let inside = Path::new(&path);
        let stays = inside.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain(&job_id) || path.is_empty() || path.contains('\0') || !stays {
            return Err(Status::invalid_argument("not the path of a job's file"));
        }
        let path = self.hub.0.folder.files(&job_id).join(inside);
        let opened = tokio::task::spawn_blocking(move || {
            let file = File::open(&path)?;
            let executable = file.metadata()?.permissions().mode() & 0o100 != 0;
            Ok::<_, io::Error>((file, executable))
        });
        let (mut file, executable) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => return Err(Status::not_found("the job has no such file")),
            Err(error) => return Err(Status::internal(error.to_string())),
        };
        // As many chunks as may wait for a slow reader.
        let (chunks, sent) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || {
            // An empty file is one empty chunk.
            let mut sent = 0;
            loop {
                let mut bytes = vec![0; FILE_CHUNK];
                let read = file.read(&mut bytes);
                let count = read.as_ref().map_or(0, |count| *count);
                if count == 0 && sent > 0 && read.is_ok() {
                    return;
                }
                bytes.truncate(count);
                sent += 1;
                let chunk = read.map(|_| proto::FileChunk { bytes, executable });
                let chunk = chunk.map_err(|error| Status::internal(error.to_string()));
                if chunks.blocking_send(chunk).is_err() || count == 0 {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(sent))))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn output(offset: u64, text: &str, last: bool) -> proto::Output {
        proto::Output {
            offset,
            bytes: text.as_bytes().to_vec().into(),
            last,
            ..proto::Output::default()
        }
    }

    #[test]
    fn a_log_ends_with_a_mark_where_the_room_did() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let put = |output: &proto::Output, room| {
            write_log(&data, &path, output, room).unwrap();
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(put(&output(0, "one\n", false), true), "one\n");
        let cut = format!("one\n{CUT_OFF}");
        assert_eq!(put(&output(4, "two\n", false), false), cut);
        assert_eq!(put(&output(8, "three\n", false), false), cut);
        assert_eq!(put(&output(14, "four\n", true), true), cut, "there is a gap before it");
        assert_eq!(put(&output(0, "one\ntwo\nthree\nfour\n", true), true), cut);
    }

    #[test]
    fn a_log_does_not_make_a_data_folder_anew_that_was_moved_away() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().join("data"));
        let path = data.logs("job").join("step").join("log");
        let written = write_log(&data, &path, &output(0, "one\n", false), true);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!data.root().exists());
    }
}

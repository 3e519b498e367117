//! What attempts print, sent piece by piece apart from the session: a log delays no beat, report or assignment.
//!
//! One piece is on its way at a time, and small where the way is slow, so that a beat on the same connection waits for
//! little. The server answers how far it has a log; from there it goes on, in the next session or life too. The end
//! of a log follows the acknowledgement of its report.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use steadfast_api::proto;
use steadfast_core::event::AttemptId;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::blocking;
use super::connect::Client;
use super::link::Link;
use super::worker_dir::WorkerDir;
use crate::TaskControl;
use crate::lease::clock;

/// Bytes of the first piece; the next is twice as large where one took less than `QUICK`, and half where it took more
/// than `SLOW`.
const PIECE: u64 = 128 << 10;
const PIECE_LEAST: u64 = 16 << 10;
const PIECE_MOST: u64 = 1 << 20;
const QUICK: Duration = Duration::from_millis(100);
const SLOW: Duration = Duration::from_millis(500);
/// How often running attempts are asked what they have printed.
const LOOK: Duration = Duration::from_millis(250);
/// How long a server may take for a piece, and how long it is left alone after it could not take one.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);
/// On a full disk a log's last bytes give way to a note of fewer bytes than this; they are sent again.
const NOTE: u64 = 512;
/// Logs of ended attempts that wait for the server, on disk or in memory: beyond either the oldest are given up. A
/// server that takes no logs for long has no disk for them either.
const WAITING_MOST: usize = 10_000;
const WAITING_BYTES: u64 = 1 << 30;

/// Whose log it is, and where it lies.
#[derive(Clone, Debug)]
pub(super) struct LogSource {
    attempt: proto::AttemptRef,
    place: Place,
    /// The server may have some of it.
    begun: bool,
    /// Which came first.
    number: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    File {
        path: PathBuf,
        /// Bytes that no longer change while the attempt runs: the first half of its cap is written once, the rest
        /// goes round until the end.
        firm: u64,
        /// Of one that has ended.
        bytes: u64,
    },
    Memory(TaskControl),
}

impl Place {
    /// Of a process that has ended. None: it printed nothing.
    pub(super) fn of_process(dir: &WorkerDir, id: &AttemptId) -> Option<Self> {
        let path = dir.log(id);
        let bytes = path.metadata().ok()?.len();
        Some(Self::File { path, firm: 0, bytes })
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Memory(control) => control.log_length(),
        }
    }
}

impl LogSource {
    pub(super) fn new(attempt: &proto::AttemptRef, place: Place) -> Self {
        Self { attempt: attempt.clone(), place, begun: false, number: 0 }
    }
}

/// The logs that the server does not have whole.
#[derive(Debug, Default)]
pub(super) struct Logs {
    running: BTreeMap<AttemptId, LogSource>,
    /// Of attempts whose reports are not acknowledged.
    ended: BTreeMap<AttemptId, LogSource>,
    /// To be sent to their ends.
    finished: BTreeMap<AttemptId, LogSource>,
    finished_bytes: u64,
    last_number: u64,
}

impl Logs {
    /// With what earlier lives left.
    pub(super) fn new(left: Vec<(proto::AttemptRef, PathBuf)>) -> Self {
        let mut logs = Self::default();
        for (attempt, path) in left {
            let bytes = path.metadata().map_or(0, |about| about.len());
            let place = Place::File { path, firm: 0, bytes };
            let source = LogSource { begun: true, ..LogSource::new(&attempt, place) };
            logs.finish(attempt.id(), source);
        }
        logs
    }

    /// There may be something to send.
    pub(super) fn running(&mut self, id: &AttemptId, source: impl FnOnce() -> LogSource) {
        if !self.running.contains_key(id) {
            self.running.insert(id.clone(), source());
        }
    }

    pub(super) fn ended(&mut self, id: &AttemptId, mut source: LogSource) {
        source.begun = self.running.remove(id).is_some_and(|running| running.begun);
        self.ended.insert(id.clone(), source);
    }

    /// The report is acknowledged.
    pub(super) fn finished(
        &mut self,
        id: &AttemptId,
        attempt: &proto::AttemptRef,
        dir: &WorkerDir,
    ) {
        // The report may be an earlier life's.
        let source = self.ended.remove(id).or_else(|| {
            let place = Place::of_process(dir, id)?;
            Some(LogSource { begun: true, ..LogSource::new(attempt, place) })
        });
        if let Some(source) = source {
            self.finish(id.clone(), source);
        }
    }

    fn finish(&mut self, id: AttemptId, mut source: LogSource) {
        self.last_number += 1;
        source.number = self.last_number;
        self.finished_bytes += source.place.bytes();
        self.finished.insert(id, source);
    }

    pub(super) fn forget(&mut self, id: &AttemptId) {
        self.running.remove(id);
        self.ended.remove(id);
        if let Some(source) = self.finished.remove(id) {
            self.finished_bytes -= source.place.bytes();
        }
    }

    /// Those that are given up, oldest first, because too many wait.
    pub(super) fn excess(&mut self) -> Vec<AttemptId> {
        let mut excess = Vec::new();
        while self.finished.len() > WAITING_MOST || self.finished_bytes > WAITING_BYTES {
            let oldest = self.finished.iter().min_by_key(|(_, source)| source.number);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else { break };
            self.forget(&id);
            excess.push(id);
        }
        excess
    }

    /// Nothing waits that could be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// The log of an attempt is another server's to have.
    pub(super) fn move_to(&mut self, other: &mut Self, id: &AttemptId) {
        let begun = |source| LogSource { begun: true, ..source };
        if let Some(source) = self.running.remove(id) {
            other.running.insert(id.clone(), begun(source));
        }
        if let Some(source) = self.ended.remove(id) {
            other.ended.insert(id.clone(), begun(source));
        }
        if let Some(source) = self.finished.remove(id) {
            self.finished_bytes -= source.place.bytes();
            other.finish(id.clone(), begun(source));
        }
    }

    /// Those of ended attempts.
    pub(super) fn of_ended(&self) -> impl Iterator<Item = AttemptId> {
        self.ended.keys().chain(self.finished.keys()).cloned()
    }

    fn begun(&mut self, id: &AttemptId) {
        let all = [&mut self.running, &mut self.ended, &mut self.finished];
        all.into_iter().filter_map(|logs| logs.get_mut(id)).for_each(|source| source.begun = true);
    }
}

/// How far a log was sent in this session.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    offset: u64,
    /// The attempt has ended, and what may have changed at the end is sent again.
    ended: bool,
    /// The server wants no more while the attempt runs.
    full: bool,
}

/// Where the next piece is read.
#[derive(Debug)]
struct Next {
    id: AttemptId,
    source: LogSource,
    offset: u64,
    finished: bool,
}

struct Piece {
    bytes: Vec<u8>,
    last: bool,
}

/// Sends logs for as long as the session lasts.
pub(super) async fn upload(link: &Link, client: Client) -> Infallible {
    let mut upload =
        Upload { link, client, sent: HashMap::new(), piece: PIECE, turn: None, look: true };
    let mut changes = link.changes();
    loop {
        changes.mark_unchanged();
        match upload.next().await {
            Some(true) => {}
            Some(false) => sleep(PAUSE).await,
            None => {
                upload.look = false;
                let runs = !link.state().logs.running.is_empty();
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep(LOOK), if runs => upload.look = true,
                }
            }
        }
    }
}

struct Upload<'a> {
    link: &'a Link,
    client: Client,
    sent: HashMap<AttemptId, Sent>,
    piece: u64,
    /// Whose log came last: the next one's turn is now.
    turn: Option<AttemptId>,
    /// It is time to see what running attempts have printed: nobody says when their logs have grown.
    look: bool,
}

impl Upload<'_> {
    /// Sends one piece. False: the server could not take it now. None: there is nothing to send.
    async fn next(&mut self) -> Option<bool> {
        let sources = self.sources();
        if sources.is_empty() {
            return None;
        }
        let most = self.piece;
        let (next, piece) = blocking(move || first(sources, most)).await?;
        let Next { id, source, offset, finished } = next;
        let Some(Piece { bytes, last }) = piece else {
            tracing::warn!(attempt = %id, "its log cannot be read");
            self.link.log_sent(&id);
            return Some(true);
        };
        let length = bytes.len() as u64;
        let is_question = length == 0 && !last;
        let chunk = proto::LogChunk {
            attempt: Some(source.attempt),
            worker: self.link.config.name.clone(),
            offset,
            bytes: bytes.into(),
            last,
        };
        self.link.state().logs.begun(&id);
        let began = clock();
        let answer = timeout(PATIENCE, self.client.send_log(chunk)).await;
        self.pace(length, clock().saturating_sub(began));
        match answer {
            Ok(Ok(answer)) => {
                let proto::LogAck { length: have, complete } = answer.into_inner();
                self.turn = Some(id.clone());
                if complete && finished {
                    self.sent.remove(&id);
                    self.link.log_sent(&id);
                    return Some(true);
                }
                let got_on = have > offset || length == 0;
                let ended = finished && !is_question;
                self.sent.insert(id, Sent { offset: have, ended, full: complete });
                Some(got_on)
            }
            Ok(Err(status)) if will_not_heal(status.code()) => {
                tracing::warn!(attempt = %id, "the server does not take its log: {}", status.message());
                self.sent.insert(id.clone(), Sent { full: true, ..Sent::default() });
                if finished {
                    self.link.log_sent(&id);
                }
                Some(true)
            }
            Ok(Err(_)) | Err(_) => Some(false),
        }
    }

    /// What is on its way delays beats for no longer than about `SLOW`.
    fn pace(&mut self, length: u64, took: Duration) {
        if took > SLOW {
            self.piece = (self.piece / 2).max(PIECE_LEAST);
        } else if took < QUICK && length == self.piece {
            self.piece = (self.piece * 2).min(PIECE_MOST);
        }
    }

    /// Logs that may have something new, those whose turn it is first.
    fn sources(&mut self) -> Vec<Next> {
        let state = self.link.state();
        let logs = &state.logs;
        let known = logs.running.len() + logs.ended.len() + logs.finished.len();
        if self.sent.len() > 1024 + 2 * known {
            self.sent.retain(|id, _| {
                logs.running.contains_key(id)
                    || logs.ended.contains_key(id)
                    || logs.finished.contains_key(id)
            });
        }
        let next = |id: &AttemptId, source: &LogSource, finished: bool| {
            let sent = self.sent.get(id).copied();
            let offset = match sent {
                // What the server may have of it, it says: asked by a piece at the very end.
                None if source.begun => u64::MAX,
                None => 0,
                Some(sent) if finished && !sent.ended => sent.offset.saturating_sub(NOTE),
                Some(sent) => sent.offset,
            };
            let wanted = finished || !sent.is_some_and(|sent| sent.full);
            wanted.then(|| Next { id: id.clone(), source: source.clone(), offset, finished })
        };
        let finished = logs.finished.iter().filter_map(|(id, source)| next(id, source, true));
        let running = logs.running.iter().filter(|_| self.look);
        let running = running.filter_map(|(id, source)| next(id, source, false));
        let mut sources: Vec<Next> = finished.chain(running).collect();
        let turn = sources.iter().position(|source| Some(&source.id) > self.turn.as_ref());
        sources.rotate_left(turn.unwrap_or(0));
        sources
    }
}

fn will_not_heal(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::InvalidArgument | Code::Unimplemented)
}

/// The first that has something. None: it cannot be read.
fn first(sources: Vec<Next>, most: u64) -> Option<(Next, Option<Piece>)> {
    for next in sources {
        if next.offset == u64::MAX {
            let question = Piece { bytes: Vec::new(), last: false };
            return Some((Next { offset: 0, ..next }, Some(question)));
        }
        match (read(&next, most), next.finished) {
            (Ok(None), false) => {}
            (Ok(Some(piece)), _) => return Some((next, Some(piece))),
            (Ok(None), true) => return Some((next, None)),
            (Err(error), finished) => {
                tracing::warn!(attempt = %next.id, %error, "a log cannot be read");
                if finished {
                    return Some((next, None));
                }
            }
        }
    }
    None
}

/// The next bytes, and whether they are the last. `None`: there is no file, or, of one that runs, nothing new.
fn read(next: &Next, most: u64) -> io::Result<Option<Piece>> {
    let Next { source, offset, finished, .. } = next;
    match &source.place {
        Place::Memory(control) => {
            let (bytes, length) = control.read_log(*offset, most);
            let last = *finished && offset + bytes.len() as u64 >= length;
            Ok((*finished || !bytes.is_empty()).then_some(Piece { bytes, last }))
        }
        Place::File { path, firm, .. } => {
            read_file(path, *offset, (!finished).then_some(*firm), most)
        }
    }
}

/// `firm`: bytes that no longer change. `None`: all.
fn read_file(path: &Path, offset: u64, firm: Option<u64>, most: u64) -> io::Result<Option<Piece>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let end = firm.unwrap_or(length).min(length);
    if firm.is_some() && end <= offset {
        return Ok(None);
    }
    let mut bytes = vec![0; end.saturating_sub(offset).min(most) as usize];
    file.read_exact_at(&mut bytes, offset)?;
    let last = firm.is_none() && offset + bytes.len() as u64 >= length;
    Ok(Some(Piece { bytes, last }))
}

//! What is sent next in a session: that we drain, how attempts ended, what they print.
//!
//! Nothing is gathered here: a message is made when the stream has room for it, from what is in the executor and on
//! disk. So a slow server costs no memory and holds no process up. A session begins from nothing:
//! what was not acknowledged is sent again, and a log from its beginning.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_core::event::AttemptId;

use proto::from_worker::Kind;
use steadfast_api::proto;

use super::blocking;
use super::executor::Executor;
use super::worker_dir::is_plain;

/// Bytes of a log in one message.
const CHUNK: u64 = 64 * 1024;
/// On a full disk a log's last bytes give way to a note of fewer bytes than this; they are sent again.
const NOTE: u64 = 512;
/// Attempts that may be remembered beyond those that are held.
const FORGOTTEN: usize = 1_024;

#[derive(Debug)]
pub(super) struct Outbox {
    executor: Arc<Executor>,
    told_draining: bool,
    printed: HashMap<AttemptId, Printed>,
    reported: HashSet<AttemptId>,
    /// It is time to see what running attempts have printed.
    look: bool,
    /// Whose log came last: the next one's turn is now.
    last: Option<AttemptId>,
}

/// How much of a log was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Printed {
    offset: u64,
    /// The attempt has ended, and the note that may stand at the end is sent.
    ended: bool,
    done: bool,
}

#[derive(Debug)]
struct Source {
    key: AttemptId,
    attempt: proto::AttemptRef,
    path: PathBuf,
    offset: u64,
    /// Bytes that no longer change. `None`: all.
    firm: Option<u64>,
}

/// What lies in a log.
#[derive(Debug)]
enum Found {
    Bytes {
        bytes: Vec<u8>,
        last: bool,
    },
    /// Nothing was printed, or it cannot be read.
    Nothing,
}

impl Outbox {
    pub(super) fn new(executor: Arc<Executor>) -> Self {
        Self {
            executor,
            told_draining: false,
            printed: HashMap::new(),
            reported: HashSet::new(),
            look: true,
            last: None,
        }
    }

    /// Logs of running attempts are looked at when told so, because nobody says when they have grown.
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    /// `None`: nothing for now. May be dropped while it waits; nothing is lost by that.
    pub(super) async fn next(&mut self) -> Option<Kind> {
        self.forget_last_words();
        loop {
            if let Some(kind) = self.ready() {
                return Some(kind);
            }
            let sources = self.sources();
            if sources.is_empty() {
                return None;
            }
            let (source, found) = blocking(move || first(sources)).await?;
            let printed = self.printed.entry(source.key.clone()).or_default();
            printed.ended = source.firm.is_none();
            match found {
                Found::Nothing => printed.done = true,
                Found::Bytes { bytes, last } => {
                    printed.offset = source.offset + bytes.len() as u64;
                    printed.done = last;
                    self.last = Some(source.key);
                    return Some(Kind::Output(proto::Output {
                        attempt: Some(source.attempt),
                        offset: source.offset,
                        bytes: bytes.into(),
                        last,
                    }));
                }
            }
        }
    }

    /// What was made before is on its way by now.
    fn forget_last_words(&self) {
        let state = self.executor.state();
        if state.last_words.is_empty() {
            return;
        }
        let sent = |key: &&AttemptId| self.printed.get(*key).is_some_and(|printed| printed.done);
        let sent: Vec<AttemptId> = state.last_words.keys().filter(sent).cloned().collect();
        drop(state);
        self.executor.last_words_sent(&sent);
    }

    /// What needs no disk.
    fn ready(&mut self) -> Option<Kind> {
        let mut state = self.executor.state();
        if std::mem::take(&mut state.undrain_unanswered) {
            // Before a drain that came later is told.
            self.told_draining = false;
            return Some(Kind::Undrained(proto::Undrained {}));
        }
        if let Some(why) = state.draining.as_ref().filter(|_| !self.told_draining) {
            self.told_draining = true;
            return Some(Kind::Draining(proto::Draining { why: why.clone() }));
        }
        let is_held = |key: &AttemptId| {
            state.running.contains_key(key)
                || state.reports.get(key).is_some()
                || state.last_words.contains_key(key)
        };
        let held = state.running.len() + state.reports.len() + state.last_words.len();
        if self.printed.len() > FORGOTTEN + 2 * held {
            self.printed.retain(|key, _| is_held(key));
            self.reported.retain(is_held);
        }
        let (key, kept) = state.reports.iter().find(|(key, _)| {
            !self.reported.contains(key) && self.printed.get(key).is_some_and(|p| p.done)
        })?;
        self.reported.insert(key.clone());
        Some(Kind::Report(kept.report.clone()))
    }

    /// Logs that may have something new, those whose turn it is first.
    fn sources(&mut self) -> Vec<Source> {
        let state = self.executor.state();
        let source = |key: &AttemptId, attempt: &proto::AttemptRef, firm: Option<u64>| {
            let printed = self.printed.get(key).copied().unwrap_or_default();
            let again = if firm.is_none() && !printed.ended { NOTE } else { 0 };
            Source {
                key: key.clone(),
                attempt: attempt.clone(),
                // A key that is no file name never had a log.
                path: if is_plain(&key.job) { self.executor.dir.log(key) } else { PathBuf::new() },
                offset: printed.offset.saturating_sub(again),
                firm,
            }
        };
        let mut sources: Vec<_> = state
            .reports
            .iter()
            .filter(|(key, _)| !self.printed.get(key).is_some_and(|printed| printed.done))
            .filter_map(|(key, kept)| Some(source(key, kept.report.attempt.as_ref()?, None)))
            .collect();
        let withdrawn = state.last_words.iter();
        let withdrawn =
            withdrawn.filter(|(key, _)| !self.printed.get(*key).is_some_and(|it| it.done));
        sources.extend(withdrawn.map(|(key, attempt)| source(key, attempt, None)));
        if self.look {
            // The first half of a log is written once; the rest goes round until the end.
            let firm = Some(self.executor.config.log_cap / 2);
            sources.extend(
                state.running.iter().map(|(key, running)| source(key, &running.attempt, firm)),
            );
        }
        let turn = sources.iter().position(|source| Some(&source.key) > self.last.as_ref());
        sources.rotate_left(turn.unwrap_or(0));
        sources
    }

    /// Everything there was has been looked at.
    pub(super) fn rest(&mut self) {
        self.look = false;
    }
}

fn first(sources: Vec<Source>) -> Option<(Source, Found)> {
    for source in sources {
        match (read(&source.path, source.offset, source.firm), source.firm) {
            (Ok(None), Some(_)) => {}
            (Ok(Some((bytes, end))), firm) => {
                let last = firm.is_none() && end;
                return Some((source, Found::Bytes { bytes, last }));
            }
            (Ok(None), None) => return Some((source, Found::Nothing)),
            (Err(error), firm) => {
                tracing::warn!(path = %source.path.display(), %error, "a log cannot be read");
                if firm.is_none() {
                    return Some((source, Found::Nothing));
                }
            }
        }
    }
    None
}

/// The next bytes, and whether they are the last of the file. `None`: there is no file, or, of what is firm,
/// nothing new.
fn read(path: &Path, offset: u64, firm: Option<u64>) -> io::Result<Option<(Vec<u8>, bool)>> {
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
    let mut bytes = vec![0; end.saturating_sub(offset).min(CHUNK) as usize];
    file.read_exact_at(&mut bytes, offset)?;
    let last = offset + bytes.len() as u64 >= length;
    Ok(Some((bytes, last)))
}

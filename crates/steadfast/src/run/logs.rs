//! What attempts print, put from the files that it is written to into the database, where every machine finds it.
//!
//! It follows what is printed, and never holds up an attempt: a database that is away is waited for, and the file has what it does not. A
//! file goes once all of it is there. What a run that died had left is put there by the next one in the same folder.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_core::event::AttemptId;
use steadfast_store::{Blobs, Folder, LogChunk, LogName};
use steadfast_worker::LOG_CAP;

/// How often running attempts are asked what they have printed.
const LOOK: Duration = Duration::from_millis(500);
/// Before a database that could not take a piece is asked again.
const PAUSE: Duration = Duration::from_secs(1);
const PIECE: u64 = 256 << 10;
/// While an attempt runs, the first half of the cap is written once, and the rest goes round until the end.
const FIRM: u64 = LOG_CAP / 2;
/// On a full disk a log's last bytes give way to a note of fewer bytes than this; they are sent again.
const NOTE: u64 = 512;

/// A log and the file that it is in.
#[derive(Debug)]
struct Source {
    log: LogName,
    path: PathBuf,
    /// How far the database has it. None: to be asked.
    sent: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<AttemptId, Source>,
    /// As many as there are files in the folder.
    ended: VecDeque<Source>,
    /// Nothing more comes: it ends when it has no more, or when the database does not take it.
    closing: bool,
    /// Nothing more is put there, whatever is left.
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cheap to clone: all are the same.
#[derive(Clone, Debug)]
pub(super) struct LogShipper {
    shared: Arc<Shared>,
    folder: Folder,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl LogShipper {
    /// With what an earlier run of the job left in the folder.
    pub(super) fn start(blobs: Arc<dyn Blobs>, folder: Folder, job: &str) -> io::Result<Self> {
        let state = State { ended: left(&folder, job), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let shipping = shared.clone();
        let thread = std::thread::Builder::new().name("logs".to_owned());
        let thread = thread.spawn(move || run(&shipping, &*blobs))?;
        Ok(Self { shared, folder, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    pub(super) fn began(&self, id: AttemptId, log: LogName, path: PathBuf) {
        self.shared.state().running.insert(id, Source { log, path, sent: Some(0) });
    }

    pub(super) fn ended(&self, id: &AttemptId) {
        let mut state = self.shared.state();
        if let Some(source) = state.running.remove(id) {
            state.ended.push_back(source);
            self.shared.changed.notify_one();
        }
    }

    /// Of a job that is another's now.
    pub(super) fn stop(&self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_one();
    }

    /// Waits until all is there, or cannot be put there now: how many are left in the folder.
    pub(super) fn finish(&self, job: &str) -> usize {
        self.shared.state().closing = true;
        self.shared.changed.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let state = self.shared.state();
        let left = state.ended.len() + state.running.len();
        if left == 0 {
            let _ = fs::remove_dir_all(self.folder.logs(job));
        }
        left
    }
}

fn left(folder: &Folder, job: &str) -> VecDeque<Source> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let mut left = VecDeque::new();
    for step in entries(folder.logs(job)) {
        let Ok(name) = step.file_name().into_string() else { continue };
        for file in entries(step.path()) {
            let path = file.path();
            let log = path.file_stem().and_then(|stem| stem.to_str()).map(|stem| LogName {
                job: job.into(),
                step: name.clone(),
                name: stem.to_owned(),
            });
            let is_log = path.extension().is_some_and(|kind| kind == "log");
            left.extend(log.filter(|_| is_log).map(|log| Source { log, path, sent: None }));
        }
    }
    left
}

fn run(shared: &Shared, blobs: &dyn Blobs) {
    let mut state = shared.state();
    loop {
        if state.stopped {
            return;
        }
        if let Some(mut source) = state.ended.pop_front() {
            drop(state);
            let whole = put_whole(blobs, &mut source);
            state = shared.state();
            if whole.is_err() {
                state.ended.push_front(source);
                if state.closing {
                    return;
                }
                state = wait(shared, state, PAUSE);
            }
            continue;
        }
        if state.closing {
            return;
        }
        state = wait(shared, state, LOOK);
        if !state.ended.is_empty() || state.closing {
            continue;
        }
        let ids: Vec<AttemptId> = state.running.keys().cloned().collect();
        for id in ids {
            // One that has ended meanwhile is among those.
            let Some(source) = state.running.get(&id) else { continue };
            let mut source =
                Source { log: source.log.clone(), path: source.path.clone(), sent: source.sent };
            drop(state);
            let put = put(blobs, &mut source, Some(FIRM));
            state = shared.state();
            let ended = state.ended.iter().position(|ended| ended.path == source.path);
            let known = match ended {
                Some(at) => state.ended.get_mut(at),
                None => state.running.get_mut(&id),
            };
            if let Some(known) = known {
                // Of a piece whose answer was lost, it is to be asked.
                known.sent = put.is_ok().then_some(source.sent).flatten();
            }
            if put.is_err() {
                state = wait(shared, state, PAUSE);
                break;
            }
        }
    }
}

fn wait<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    longest: Duration,
) -> MutexGuard<'a, State> {
    let waited = shared.changed.wait_timeout(state, longest);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// All of a log whose attempt has ended.
fn put_whole(blobs: &dyn Blobs, source: &mut Source) -> io::Result<()> {
    let was_begun = source.sent != Some(0);
    source.sent = source.sent.map(|sent| sent.saturating_sub(NOTE));
    if put(blobs, source, None)? {
        if was_begun {
            blobs.mark_whole(&source.log)?;
        }
        let _ = fs::remove_file(&source.path);
    }
    Ok(())
}

/// What is new of it, up to `firm`; none: to its end. False: it cannot be read, or nothing was ever printed.
fn put(blobs: &dyn Blobs, source: &mut Source, firm: Option<u64>) -> io::Result<bool> {
    let opened = File::open(&source.path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let Ok((length, file)) = opened else { return Ok(false) };
    let end = firm.unwrap_or(length).min(length);
    let mut offset = match source.sent {
        Some(sent) => sent,
        None => {
            let question = LogChunk { offset: 0, bytes: &[], last: false };
            blobs.write_log(&source.log, question, true)?.length.saturating_sub(NOTE)
        }
    };
    loop {
        let mut bytes = vec![0; end.saturating_sub(offset).min(PIECE) as usize];
        if file.read_exact_at(&mut bytes, offset).is_err() {
            return Ok(false);
        }
        let is_end = offset + bytes.len() as u64 >= end;
        let last = is_end && firm.is_none();
        // A log without a byte is none.
        if bytes.is_empty() && (!last || end == 0) {
            break;
        }
        source.sent = None;
        let progress =
            blobs.write_log(&source.log, LogChunk { offset, bytes: &bytes, last }, true)?;
        offset = progress.length;
        if is_end || progress.complete {
            break;
        }
    }
    source.sent = Some(offset);
    Ok(true)
}

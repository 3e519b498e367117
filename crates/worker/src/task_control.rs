//! Between a task and those who watch over it: it is told to end, and says that it lives, how far it is, and
//! what is to stand in its log.
//!
//! Waits for nothing and reads no clock; [`crate::tasks`] does.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::remote::held;

/// Bytes that a task's log has at most, whatever the server allows: it is in memory until the server has it.
const LONGEST_LOG: u64 = 4 << 20;
/// Room for the line about what was left out.
const NOTE: usize = 96;

/// What a task has been told. Never taken back, only made more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    NotYet,
    /// When it can; whoever said so kills it if it does not.
    Asked,
    /// Within the worker's grace.
    Soon,
    /// Now.
    Killed,
}

const ENDS: [End; 4] = [End::NotYet, End::Asked, End::Soon, End::Killed];

#[derive(Clone, Debug)]
pub struct TaskControl(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    end: AtomicU8,
    /// The task has asked whether it should end: one that never does is not waited for.
    listens: AtomicBool,
    /// Since the last look.
    spoke: AtomicBool,
    /// The latest word that was not taken yet, as JSON.
    progress: Mutex<Option<String>>,
    log: Mutex<Log>,
    log_cap: usize,
    /// For the task.
    cancelled: Notify,
    /// For who watches over it.
    stirred: Notify,
}

#[derive(Debug, Default)]
struct Log {
    bytes: Vec<u8>,
    /// Of so many of them it was said that they are there.
    told: usize,
    full: bool,
}

impl TaskControl {
    /// `log_cap`: bytes that its log may have.
    pub(crate) fn new(log_cap: u64) -> Self {
        Self(Arc::new(Shared {
            log_cap: log_cap.min(LONGEST_LOG) as usize,
            end: AtomicU8::new(End::NotYet as u8),
            listens: AtomicBool::new(false),
            spoke: AtomicBool::new(false),
            progress: Mutex::new(None),
            log: Mutex::default(),
            cancelled: Notify::new(),
            stirred: Notify::new(),
        }))
    }

    /// The attempt is not wanted any more, or the worker has to go.
    pub fn is_cancelled(&self) -> bool {
        self.0.listens.store(true, Ordering::Relaxed);
        self.end() > End::NotYet
    }

    /// Returns when it is. What listens here has a grace before it is dropped.
    pub async fn cancelled(&self) {
        let mut notified = std::pin::pin!(self.0.cancelled.notified());
        // Before looking, so that nothing between looking and waiting is missed.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// It lives; and, if it says so, how far it is, as JSON.
    pub fn say(&self, progress: Option<String>) {
        if let Some(progress) = progress {
            *held(&self.0.progress) = Some(progress);
        }
        self.0.spoke.store(true, Ordering::Release);
        self.0.stirred.notify_one();
    }

    /// Into the attempt's log. That is no sign of life: only [`say`](Self::say) is.
    pub fn write(&self, text: &str) {
        let mut log = held(&self.0.log);
        if log.full {
            return;
        }
        let cap = self.0.log_cap;
        let room = cap.saturating_sub(NOTE).saturating_sub(log.bytes.len());
        if text.len() <= room {
            log.bytes.extend_from_slice(text.as_bytes());
        } else {
            log.full = true;
            log.bytes.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(room)]);
            let note = format!("… the rest is left out: this log may have {cap} bytes at most …\n");
            log.bytes.extend_from_slice(note.as_bytes());
        }
        drop(log);
        self.0.stirred.notify_one();
    }

    /// Something was written that nobody was told of.
    pub(crate) fn has_log(&self) -> bool {
        let log = held(&self.0.log);
        log.told < log.bytes.len()
    }

    pub(crate) fn log_told(&self) {
        let mut log = held(&self.0.log);
        log.told = log.bytes.len();
    }

    pub(crate) fn log_length(&self) -> u64 {
        held(&self.0.log).bytes.len() as u64
    }

    /// At most so many bytes from there on, and how many there are in all.
    pub(crate) fn read_log(&self, offset: u64, most: u64) -> (Vec<u8>, u64) {
        let log = held(&self.0.log);
        let all = log.bytes.len();
        let from = usize::try_from(offset).unwrap_or(all).min(all);
        let to = from.saturating_add(most as usize).min(all);
        (log.bytes[from..to].to_vec(), all as u64)
    }

    pub(crate) fn end(&self) -> End {
        ENDS[usize::from(self.0.end.load(Ordering::Acquire))]
    }

    pub(crate) fn tell(&self, end: End) {
        self.0.end.fetch_max(end as u8, Ordering::AcqRel);
        self.0.cancelled.notify_waiters();
        self.0.stirred.notify_one();
    }

    pub(crate) fn listens(&self) -> bool {
        self.0.listens.load(Ordering::Relaxed)
    }

    /// Whether it spoke since the last look.
    pub(crate) fn spoke(&self) -> bool {
        self.0.spoke.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn has_progress(&self) -> bool {
        held(&self.0.progress).is_some()
    }

    pub(crate) fn take_progress(&self) -> Option<String> {
        held(&self.0.progress).take()
    }

    /// Returns when it spoke or was told something.
    pub(crate) async fn stirred(&self) {
        self.0.stirred.notified().await;
    }
}

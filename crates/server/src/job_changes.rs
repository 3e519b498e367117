//! Which jobs have changed, for pages that show lists of them: one message a second for all of them together, with ids alone. What a
//! page wants to know of those that it shows, it asks for.
//!
//! Messages are numbered, so that who is told can say [as of](AsOf) which one it wants an answer.
//!
//! While nobody listens, a commit costs one load here. A page that does not read its messages misses some, and is told so.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use serde_json::json;
use steadfast_api::JobCounts;
use steadfast_core::event::JobId;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::queries::{JobReader, wire_counts};

/// Between two messages.
const EVERY: Duration = Duration::from_secs(1);
/// Ids in one message; if more jobs have changed, it has none, and a page reads its list anew.
const MOST: usize = 1000;
/// Messages that a page may be behind.
const BEHIND: usize = 16;

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct JobChanges(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sender: SenderId,
    /// The number of the last message. What it tells of is durable.
    last: AtomicU64,
    listeners: AtomicUsize,
    changed: Mutex<Changed>,
    /// While somebody listens. None and closed: the server ends.
    messages: Mutex<Messages>,
}

#[derive(Debug, Default)]
struct Messages {
    sender: Option<Sender<Arc<ChangesMessage>>>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Changed {
    ids: BTreeSet<JobId>,
    more: bool,
}

/// As it is sent to everybody: what has changed, and what those are told who have missed a message.
#[derive(Debug)]
struct ChangesMessage {
    event: Bytes,
    after_a_gap: Bytes,
}

/// Which process numbers the messages: after a restart, or of another server, they are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SenderId(u64);

impl Default for SenderId {
    fn default() -> Self {
        // Random by what the standard library takes for its maps.
        Self(RandomState::new().hash_one(()))
    }
}

/// Names a message: `0123456789abcdef-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsOf {
    sender: SenderId,
    message: u64,
}

impl AsOf {
    /// What [`AsOf::from_str`] takes, and no more.
    pub(crate) const PATTERN: &str = "^[0-9a-f]{16}-[0-9]{1,18}$";

    /// None: it is not one of these.
    pub(crate) fn message_of(self, changes: &JobChanges) -> Option<u64> {
        (self.sender == changes.0.sender).then_some(self.message)
    }
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.sender.0, self.message)
    }
}

impl FromStr for AsOf {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sender, message) = text.split_once('-').ok_or(())?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let fits = sender.len() == 16
            && sender.bytes().all(is_hex)
            && message.len() <= 18
            && message.bytes().all(|byte| byte.is_ascii_digit());
        let sender = u64::from_str_radix(sender, 16).map_err(drop)?;
        let message = message.parse().map_err(drop)?;
        if fits { Ok(Self { sender: SenderId(sender), message }) } else { Err(()) }
    }
}

impl JobChanges {
    /// Something of the job is durable. Waits for nobody.
    pub(crate) fn told(&self, job: &JobId) {
        if self.0.listeners.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut changed = lock(&self.0.changed);
        if changed.ids.len() < MOST {
            changed.ids.insert(job.clone());
        } else if !changed.ids.contains(job) {
            changed.more = true;
        }
    }

    /// What changes from now on.
    pub(crate) fn listen(&self, reader: &JobReader) -> ChangesListener {
        let mut messages = lock(&self.0.messages);
        self.0.listeners.fetch_add(1, Ordering::Relaxed);
        let receiver = match &messages.sender {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, receiver) = channel(BEHIND);
                if !messages.closed {
                    messages.sender = Some(sender);
                    *lock(&self.0.changed) = Changed::default();
                    tokio::spawn(self.clone().tell(reader.clone()));
                }
                receiver
            }
        };
        ChangesListener { receiver, of: self.clone(), gap: false }
    }

    /// The number of the last message.
    pub(crate) fn last(&self) -> u64 {
        self.0.last.load(Ordering::SeqCst)
    }

    /// What a listener is told at first.
    pub(crate) fn first(&self, counts: &JobCounts) -> Bytes {
        self.event(self.last(), &BTreeSet::new(), false, counts)
    }

    fn event(&self, message: u64, ids: &BTreeSet<JobId>, more: bool, counts: &JobCounts) -> Bytes {
        let as_of = AsOf { sender: self.0.sender, message }.to_string();
        let data = json!({ "ids": ids, "more": more, "counts": counts, "as_of": as_of });
        format!("event: jobs\ndata: {data}\n\n").into()
    }

    /// Whoever listens is let go.
    pub(crate) fn close(&self) {
        let mut messages = lock(&self.0.messages);
        *messages = Messages { sender: None, closed: true };
    }

    /// Until nobody listens.
    async fn tell(self, reader: JobReader) {
        let mut last = None;
        loop {
            tokio::time::sleep(EVERY).await;
            {
                let mut messages = lock(&self.0.messages);
                if self.0.listeners.load(Ordering::Relaxed) == 0 {
                    messages.sender = None;
                }
                if messages.sender.is_none() {
                    return;
                }
            }
            let Changed { ids, more } = std::mem::take(&mut *lock(&self.0.changed));
            // What other servers do is seen by the counts alone.
            if ids.is_empty() && !reader.is_shared() {
                continue;
            }
            let Ok(counts) = reader.counts().await.map(|counts| wire_counts(&counts)) else {
                // Told with the next message that there is one for.
                let mut changed = lock(&self.0.changed);
                changed.more = true;
                changed.ids.extend(ids);
                continue;
            };
            let elsewhere = last.as_ref() != Some(&counts) && reader.is_shared();
            if ids.is_empty() && !elsewhere {
                continue;
            }
            // After what it tells of was taken: whatever is read from now on has that.
            let number = self.0.last.fetch_add(1, Ordering::SeqCst) + 1;
            let after_a_gap = self.event(number, &BTreeSet::new(), true, &counts);
            let event = if more || elsewhere {
                after_a_gap.clone()
            } else {
                self.event(number, &ids, false, &counts)
            };
            let message = ChangesMessage { event, after_a_gap };
            last = Some(counts);
            if let Some(sender) = &lock(&self.0.messages).sender {
                let _ = sender.send(Arc::new(message));
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct ChangesListener {
    receiver: Receiver<Arc<ChangesMessage>>,
    of: JobChanges,
    /// It has missed some.
    gap: bool,
}

impl ChangesListener {
    /// The next message. None: the server ends. Who does not wait to the end misses nothing.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.receiver.recv().await {
                Ok(message) if std::mem::take(&mut self.gap) => {
                    return Some(message.after_a_gap.clone());
                }
                Ok(message) => return Some(message.event.clone()),
                Err(RecvError::Lagged(_)) => self.gap = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for ChangesListener {
    fn drop(&mut self) {
        self.of.0.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

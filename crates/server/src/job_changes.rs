//! Which jobs have changed, for pages that show lists of them: one message a second for all of them together, with ids alone. What a
//! page wants to know of those that it shows, it asks for.
//!
//! While nobody listens, a commit costs one load here. A page that does not read its messages misses some, and is told so.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use steadfast_core::event::JobId;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::queries::{JobReader, wire_counts};

/// Between two messages.
const EVERY: Duration = Duration::from_secs(1);
/// Ids in one message; if more jobs have changed, a page reads its list anew.
const MOST: usize = 1000;
/// Messages that a page may be behind.
const BEHIND: usize = 16;

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct JobChanges(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
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

/// As JSON: what has changed, and what those are told who have missed a message.
#[derive(Debug)]
struct ChangesMessage {
    text: String,
    after_a_gap: String,
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
        ChangesListener { receiver, of: self.clone() }
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
            let message = |ids: &BTreeSet<JobId>, more: bool| {
                json!({ "ids": ids, "more": more, "counts": counts }).to_string()
            };
            let text = message(&ids, more || elsewhere);
            let message = ChangesMessage { text, after_a_gap: message(&BTreeSet::new(), true) };
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
}

impl ChangesListener {
    /// The next message. None: the server ends.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let mut gap = false;
        loop {
            match self.receiver.recv().await {
                Ok(message) if gap => return Some(message.after_a_gap.clone()),
                Ok(message) => return Some(message.text.clone()),
                Err(RecvError::Lagged(_)) => gap = true,
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

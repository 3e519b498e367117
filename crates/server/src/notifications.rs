//! Who follows a job, and how far its log is durable.
//!
//! Only numbers pass through here. Whoever follows reads the events themselves from the reader, at
//! its own pace: a slow reader holds up nobody. Of a small job that somebody waits for since before it was submitted,
//! the log is kept: then nothing needs to be read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_core::event::{Event, JobId, RecordedEvent};
use tokio::sync::watch;

use crate::job_changes::JobChanges;

/// Jobs that nobody follows any more are looked for when there are so many, and then at every
/// doubling.
const SWEEP: usize = 64;
/// Events that are kept of a job that somebody waits for. Those of a larger one are read when it has ended.
const LOG_MOST: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Notifications {
    followed: Arc<Mutex<Followed>>,
    changes: JobChanges,
    is_closed: watch::Sender<bool>,
}

/// How far a job's log is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The last event; 0: none since following began.
    pub seq: u64,
    /// The job has ended: its state is its last. Late results may still come.
    pub ended: bool,
}

#[derive(Debug, Default)]
struct Followed {
    jobs: HashMap<JobId, Follow>,
    sweep_at: usize,
    closed: bool,
}

#[derive(Debug)]
struct Follow {
    sender: watch::Sender<Durable>,
    /// All of it so far, if nobody has missed any of it and it is short.
    log: Option<Vec<RecordedEvent>>,
}

impl Notifications {
    pub fn new() -> Self {
        Self::default()
    }

    /// Which jobs change, whoever they are.
    pub fn changes(&self) -> &JobChanges {
        &self.changes
    }

    /// These are durable. Waits for nobody.
    pub fn told(&self, job: &JobId, records: &[RecordedEvent]) {
        let Some(last) = records.last() else { return };
        self.changes.told(job);
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Follow { sender, log }) = followed.jobs.get_mut(job) else { return };
        if let Some(kept) = log {
            if kept.len() + records.len() <= LOG_MOST {
                kept.extend_from_slice(records);
            } else {
                *log = None;
            }
        }
        let ended = records.iter().any(|record| matches!(record.event, Event::JobEnded { .. }));
        sender.send_modify(|durable| {
            durable.seq = last.seq;
            durable.ended |= ended;
        });
        if sender.is_closed() {
            followed.jobs.remove(job);
        }
    }

    /// What becomes durable from now on. Ends when the server does. Begin to follow, then read: what comes
    /// after the reading is told.
    pub fn follow(&self, job: &str) -> watch::Receiver<Durable> {
        self.begin(job, None)
    }

    /// Of a job that is not yet submitted. Its log is [kept](Self::log).
    pub fn follow_new(&self, job: &str) -> watch::Receiver<Durable> {
        self.begin(job, Some(Vec::new()))
    }

    /// All of the job's log, if it was followed from the start and is short.
    pub fn log(&self, job: &str) -> Option<Vec<RecordedEvent>> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.jobs.get_mut(job)?.log.take()
    }

    fn begin(&self, job: &str, log: Option<Vec<RecordedEvent>>) -> watch::Receiver<Durable> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.jobs.len() >= followed.sweep_at.max(SWEEP) {
            followed.jobs.retain(|_, follow| !follow.sender.is_closed());
            followed.sweep_at = followed.jobs.len() * 2;
        }
        if let Some(follow) = followed.jobs.get(job) {
            return follow.sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Durable::default());
        if !followed.closed {
            followed.jobs.insert(job.into(), Follow { sender, log });
        }
        receiver
    }

    /// Jobs that somebody follows and that are such.
    pub(crate) fn followed(&self, is_such: impl Fn(&JobId) -> bool) -> Vec<JobId> {
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |follow: &Follow| !follow.sender.is_closed();
        let jobs = followed.jobs.iter().filter(|(job, follow)| is_open(follow) && is_such(job));
        jobs.map(|(job, _)| job.clone()).collect()
    }

    /// Another server has made a job durable up to this event.
    pub(crate) fn moved_on(&self, job: &JobId, seq: u64, ended: bool) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Follow { sender, log }) = followed.jobs.get_mut(job) else { return };
        if seq > sender.borrow().seq {
            *log = None;
        }
        sender.send_if_modified(|durable| {
            let before = *durable;
            durable.seq = durable.seq.max(seq);
            durable.ended |= ended;
            *durable != before
        });
    }

    /// Returns when the server is about to end: for requests that would go on for ever.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_closed = self.is_closed.subscribe();
        async move {
            // Without a sender nobody is left to tell either.
            let _ = is_closed.wait_for(|is_closed| *is_closed).await;
        }
    }

    /// Nothing more is told: whoever follows is let go, so that a server can end.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
        self.changes.close();
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.closed = true;
        followed.jobs.clear();
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::event::{CompletionReason, JobState};
    use steadfast_core::time::Timestamp;

    use super::*;

    fn followed(notifications: &Notifications) -> usize {
        notifications.followed.lock().unwrap().jobs.len()
    }

    fn record(seq: u64, event: Event) -> RecordedEvent {
        RecordedEvent { seq, at: Timestamp(seq), event }
    }

    fn started(seq: u64) -> RecordedEvent {
        record(seq, Event::JobStarted)
    }

    fn ended(seq: u64) -> RecordedEvent {
        let (state, reason) = (JobState::Succeeded, CompletionReason::AllReported);
        record(seq, Event::JobEnded { state, reason, succeeded: 1, of: 1 })
    }

    #[test]
    fn the_log_of_a_short_job_is_kept_for_who_waits_since_before_it_was_there() {
        let notifications = Notifications::new();
        let _waits = notifications.follow_new("a");
        notifications.told(&"a".into(), &[started(1)]);
        notifications.told(&"a".into(), &[ended(2)]);
        assert_eq!(notifications.log("a"), Some(vec![started(1), ended(2)]));
        let _came_later = notifications.follow("b");
        notifications.told(&"b".into(), &[ended(2)]);
        assert_eq!(notifications.log("b"), None);
        let _waits = notifications.follow_new("c");
        for seq in 1..=LOG_MOST as u64 + 1 {
            notifications.told(&"c".into(), &[started(seq)]);
        }
        assert_eq!(notifications.log("c"), None, "it is long");
    }

    #[tokio::test]
    async fn what_is_told_after_following_began_is_not_missed() {
        let notifications = Notifications::new();
        let mut receiver = notifications.follow("a");
        notifications.told(&"a".into(), &[started(3)]);
        notifications.told(&"a".into(), &[started(4)]);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow_and_update(), Durable { seq: 4, ended: false });
        notifications.told(&"a".into(), &[ended(5)]);
        notifications.told(&"a".into(), &[started(6)]);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow_and_update(), Durable { seq: 6, ended: true });
        notifications.close();
        assert!(receiver.changed().await.is_err(), "the server ends");
    }

    #[test]
    fn jobs_that_nobody_follows_are_let_go() {
        let notifications = Notifications::new();
        drop(notifications.follow("a"));
        notifications.told(&"a".into(), &[started(1)]);
        assert_eq!(followed(&notifications), 0);
        for n in 0..1000 {
            drop(notifications.follow(&n.to_string()));
        }
        assert!(followed(&notifications) <= SWEEP);
    }
}

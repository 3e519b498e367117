//! Who follows a job, and how far its log is durable.
//!
//! Only numbers pass through here. Whoever follows reads the events themselves from the reader, at
//! its own pace: a slow reader holds up nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_core::event::JobId;
use tokio::sync::watch;

/// Jobs that nobody follows any more are looked for when there are so many, and then at every
/// doubling.
const SWEEP: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Notifications(Arc<Mutex<Followed>>);

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
    jobs: HashMap<JobId, watch::Sender<Durable>>,
    sweep_at: usize,
    closed: bool,
}

impl Notifications {
    pub fn new() -> Self {
        Self::default()
    }

    /// The job's log is durable up to `seq`; `ended`: the job's end is in what is new. Waits for nobody.
    pub fn told(&self, job: &JobId, seq: u64, ended: bool) {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = followed.jobs.get(job) else { return };
        sender.send_modify(|durable| {
            durable.seq = seq;
            durable.ended |= ended;
        });
        if sender.is_closed() {
            followed.jobs.remove(job);
        }
    }

    /// What becomes durable from now on. Ends when the server does. Begin to follow, then read: what comes
    /// after the reading is told.
    pub fn follow(&self, job: &str) -> watch::Receiver<Durable> {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.jobs.len() >= followed.sweep_at.max(SWEEP) {
            followed.jobs.retain(|_, sender| !sender.is_closed());
            followed.sweep_at = followed.jobs.len() * 2;
        }
        if let Some(sender) = followed.jobs.get(job) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Durable::default());
        if !followed.closed {
            followed.jobs.insert(job.into(), sender);
        }
        receiver
    }

    /// Nothing more is told: whoever follows is let go, so that a server can end.
    pub fn close(&self) {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        followed.closed = true;
        followed.jobs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(notifications: &Notifications) -> usize {
        notifications.0.lock().unwrap().jobs.len()
    }

    #[tokio::test]
    async fn what_is_told_after_following_began_is_not_missed() {
        let notifications = Notifications::new();
        let mut receiver = notifications.follow("a");
        notifications.told(&"a".into(), 3, false);
        notifications.told(&"a".into(), 4, false);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow_and_update(), Durable { seq: 4, ended: false });
        notifications.told(&"a".into(), 5, true);
        notifications.told(&"a".into(), 6, false);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow_and_update(), Durable { seq: 6, ended: true });
        notifications.close();
        assert!(receiver.changed().await.is_err(), "the server ends");
    }

    #[test]
    fn jobs_that_nobody_follows_are_let_go() {
        let notifications = Notifications::new();
        drop(notifications.follow("a"));
        notifications.told(&"a".into(), 1, false);
        assert_eq!(followed(&notifications), 0);
        for n in 0..1000 {
            drop(notifications.follow(&n.to_string()));
        }
        assert!(followed(&notifications) <= SWEEP);
    }
}

//! Makes groups durable, and only then lets out what waits for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver as ChannelReceiver;
use std::time::Duration;

use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, Owner, StoreError};

use super::{Observer, Sent, Stopped, Workers};
use crate::controller::{Group, Outgoing, Outputs, Parked, ReplyId};
use crate::crash::crash_point;
use crate::inbox::{Answer, Message, Reply};
use crate::mailbox::{Lane, Sender};

/// Before a full disk is tried again.
const FULL: Duration = Duration::from_millis(250);

pub(super) struct Writer {
    pub(super) journal: Box<dyn Journal>,
    pub(super) owner: Owner,
    pub(super) workers: Box<dyn Workers>,
    pub(super) observer: Box<dyn Observer>,
    pub(super) unsynced: ChannelReceiver<Sent>,
    pub(super) decider: Sender<Message>,
    pub(super) waits: Arc<AtomicBool>,
    /// A full disk and a lock of another process are waited for, as long as it takes: the operator can free
    /// space, the other process will end, and workers go on meanwhile.
    pub(super) patient: bool,
}

impl Writer {
    pub(super) fn run(mut self) -> Result<(), Stopped> {
        while let Ok(first) = self.unsynced.recv() {
            let mut sent = vec![first];
            sent.extend(self.unsynced.try_iter());
            if self.waits.swap(false, Ordering::SeqCst) {
                let _ = self.decider.send(Message::WriterReady, Lane::Liveness, true);
            }
            self.commit(sent)?;
        }
        Ok(())
    }

    fn commit(&mut self, sent: Vec<Sent>) -> Result<(), Stopped> {
        let mut all = Group::default();
        let mut callers = HashMap::new();
        for Sent { group, replies } in sent {
            all.join(group);
            callers.extend(replies);
        }
        crash_point("in-append");
        let mut answers = self.insist(|journal, owner| journal.commit(owner, &all.writes));
        let mut is_unknown = false;
        while let Err(StoreError::Unknown { .. }) = answers {
            is_unknown = true;
            // In a new epoch the lost transaction is over, or will never be: what is found then is final.
            self.owner =
                self.insist(|journal, owner| journal.take(&owner.id, Timestamp(0), None))?;
            answers = self.insist(|journal, owner| journal.commit(owner, &all.writes));
        }
        let mut answers = answers?;
        if is_unknown {
            for (write, answer) in all.writes.iter().zip(&mut answers) {
                if answer.is_err()
                    && !write.records.is_empty()
                    && self.insist(|journal, _| journal.is_kept(write))?
                {
                    *answer = Ok(());
                }
            }
        }
        crash_point("after-append");
        self.release(all.committed(answers), callers)
    }

    /// Waits for what the operator or another process can help with.
    fn insist<T>(
        &mut self,
        mut act: impl FnMut(&mut dyn Journal, &Owner) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match act(&mut *self.journal, &self.owner) {
                // Nothing was written. What was decided is not lost, and no caller has heard of it.
                Err(StoreError::Full { .. }) if self.patient => std::thread::park_timeout(FULL),
                // The store has waited for the lock itself.
                Err(StoreError::Busy { .. }) if self.patient => {}
                done => return done,
            }
        }
    }

    fn release(
        &mut self,
        outputs: Outputs,
        mut callers: HashMap<ReplyId, Reply<Answer>>,
    ) -> Result<(), Stopped> {
        if !outputs.refused.is_empty() {
            let jobs = Message::Refused(outputs.refused.clone());
            let _ = self.decider.send(jobs, Lane::Liveness, true);
        }
        if !outputs.idle.is_empty() {
            let _ = self.decider.send(Message::Idle(outputs.idle.clone()), Lane::Liveness, false);
        }
        for job in &outputs.slept {
            self.observer.slept(job);
        }
        for job in &outputs.woken {
            self.observer.woken(job);
        }
        for (job, token) in outputs.settled() {
            self.workers.settled(job, token);
        }
        for (job, records) in outputs.events {
            self.observer.committed(&job, records);
        }
        for (reply_id, answer) in outputs.replies {
            if let Some(reply) = callers.remove(&reply_id) {
                reply(answer);
            }
        }
        for effect in outputs.effects {
            crash_point("before-effect");
            match effect {
                Outgoing::Assign(work) => self.workers.assign(work),
                Outgoing::Withdraw(over) => self.workers.withdraw(over),
            }
        }
        if !outputs.news.is_empty() {
            self.observer.fleet(outputs.news);
        }
        for (job, why) in &outputs.refused {
            self.observer.refused(job, why);
        }
        for Parked { job, why } in &outputs.parked {
            // Found again after a restart, should this be lost.
            let parked = self.journal.park(job, why);
            if let Err(error) = parked
                && error.is_fatal()
            {
                return Err(error.into());
            }
            self.observer.parked(job, why);
        }
        Ok(())
    }
}

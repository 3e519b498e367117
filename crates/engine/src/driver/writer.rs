//! Makes groups durable, and only then lets out what waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver as ChannelReceiver;
use std::time::Duration;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::{AttemptId, Event, JobId};
use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, OwnedShards, Owner, Refused, StoreError, Write};

use super::{Arrived, Clock, Observer, Patience, Sent, Signals, Stopped, Then, Workers};
use crate::controller::{Group, Outgoing, Outputs, Parked, ReplyId};
use crate::crash::crash_point;
use crate::hash::{HashMap, HashSet};
use crate::inbox::{Answer, Message, Reply};
use crate::mailbox::{Lane, Sender};

/// Before a full disk, or a database that is away, is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// Where servers share a database, its cores are too dear for small groups, which cost it 0.5 ms whatever is in them. So what waits when a
/// group is written waits this much longer: what that one has let out comes back, and goes with it.
const BESIDE_OTHERS: Duration = Duration::from_micros(600);

pub(super) struct Writer {
    pub(super) journal: Box<dyn Journal>,
    pub(super) owner: Owner,
    pub(super) workers: Box<dyn Workers>,
    pub(super) observer: Box<dyn Observer>,
    pub(super) unsynced: ChannelReceiver<Sent>,
    /// Taken from there, and not to be joined with what was before it.
    pub(super) kept: Option<Sent>,
    pub(super) decider: Sender<Message>,
    pub(super) signals: Arc<Signals>,
    /// Why the store took no write of these, until the decider knows: what it decides about them before is built on what was
    /// refused, and might fit what is stored by its number alone. And which refusal that was.
    pub(super) refused: HashMap<JobId, (u64, Refused)>,
    /// Groups that it has taken to be written.
    pub(super) written: u64,
    /// Refusals that the decider was told of.
    pub(super) refusals: u64,
    pub(super) patience: Patience,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) shards: Arc<OwnedShards>,
}

/// Who waits for a group.
#[derive(Default)]
struct Callers {
    replies: HashMap<ReplyId, Reply<Answer>>,
    arrived: Vec<Arrived>,
}

impl Writer {
    pub(super) fn run(mut self) -> Result<(), Stopped> {
        while let Some(first) = self.kept.take().or_else(|| self.next()) {
            self.turn(first)?;
        }
        Ok(())
    }

    /// One turn, if there is something to write. False: there is not.
    pub(super) fn step(&mut self) -> Result<bool, Stopped> {
        let first = self.kept.take().or_else(|| self.unsynced.try_recv().ok());
        let Some(first) = first else { return Ok(false) };
        self.turn(first)?;
        Ok(true)
    }

    fn turn(&mut self, first: Sent) -> Result<(), Stopped> {
        let mut sent = vec![first];
        while sent.last().is_some_and(|last| last.then.is_none())
            && let Ok(next) = self.unsynced.try_recv()
        {
            if matches!(next.then, Some(Then::Write(_))) {
                self.kept = Some(next);
                break;
            }
            sent.push(next);
        }
        self.written += sent.len() as u64;
        // There is room for the next one.
        if self.signals.wants_room.swap(false, Ordering::SeqCst) {
            self.tell_decider();
        }
        self.commit(sent)
    }

    fn next(&mut self) -> Option<Sent> {
        if let Ok(next) = self.unsynced.try_recv() {
            if self.shards.others_have_some() {
                self.clock.pause(BESIDE_OTHERS);
            }
            return Some(next);
        }
        self.signals.is_busy.store(false, Ordering::SeqCst);
        if self.signals.wants_idle.swap(false, Ordering::SeqCst) {
            self.tell_decider();
        }
        let next = self.unsynced.recv().ok();
        self.signals.is_busy.store(true, Ordering::SeqCst);
        next
    }

    fn tell_decider(&self) {
        let _ = self.decider.send(Message::WriterReady, Lane::Liveness, true);
    }

    fn commit(&mut self, sent: Vec<Sent>) -> Result<(), Stopped> {
        let mut all = Group::default();
        let mut callers = Callers::default();
        let mut change = None;
        let mut known = Vec::new();
        for Sent { mut group, replies, arrived, then } in sent {
            if !self.refused.is_empty() {
                let refusals = group.refusals;
                group.refuse(|job| self.built_on(job, refusals));
            }
            known.resize(known.len() + group.writes.len(), group.refusals);
            all.join(group);
            callers.replies.extend(replies);
            callers.arrived.extend(arrived);
            // What is joined with it was decided after it.
            if let Some(Then::Write(owner)) = then {
                // Unless a lost commit has raised the epoch further meanwhile: then this one is over.
                if owner.epoch > self.owner.epoch || is_on(Defect::GoesOnInLowerEpoch) {
                    self.owner = owner;
                }
            } else {
                change = then;
            }
        }
        crash_point("in-append");
        let answers = if is_on(Defect::AcknowledgedBeforeSync) {
            let writes = all.writes.clone();
            let hoped_for = vec![Ok(()); writes.len()];
            self.release(all.committed(hoped_for), callers, true)?;
            return self.write(&writes).map(drop).map_err(Stopped::from);
        } else if self.refused.is_empty() {
            self.write(&all.writes)?
        } else {
            self.write_unrefused(&all.writes, &known)?
        };
        // What was committed is gone: the store was put back while we ran. The tokens that were given since are not given again.
        if answers.iter().any(|answer| answer.as_ref().is_err_and(Refused::is_rewound)) {
            self.owner =
                self.insist(|journal, owner| journal.take(&owner.id, Timestamp(0), None))?;
        }
        crash_point("after-append");
        let told_again: BTreeSet<JobId> = std::mem::take(&mut all.told_again).into_iter().collect();
        for job in &told_again {
            if !self.insist(|journal, owner| journal.is_owned(owner, job))? {
                all.tell_nothing_of(job);
            }
        }
        self.release(all.committed(answers), callers, !told_again.is_empty())?;
        if let Some(Then::Give { shards, to }) = change {
            self.insist(|journal, owner| journal.hand_over(owner, &shards, &to))?;
        }
        Ok(())
    }

    fn write(&mut self, writes: &[Write]) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut answers = self.insist(|journal, owner| journal.commit(owner, writes));
        let mut is_unknown = false;
        if is_on(Defect::UnknownTakenForSuccess)
            && matches!(answers, Err(StoreError::Unknown { .. }))
        {
            return Ok(vec![Ok(()); writes.len()]);
        }
        while let Err(StoreError::Unknown { .. }) = answers {
            is_unknown = true;
            // In a new epoch the lost transaction is over, or will never be: what is found then is final.
            self.owner =
                self.insist(|journal, owner| journal.take(&owner.id, Timestamp(0), None))?;
            answers = self.insist(|journal, owner| journal.commit(owner, writes));
        }
        let mut answers = answers?;
        if is_unknown && !is_on(Defect::UnknownTakenForFailure) {
            for (write, answer) in writes.iter().zip(&mut answers) {
                if answer.is_err()
                    && !write.records.is_empty()
                    && self.insist(|journal, _| journal.is_kept(write))?
                {
                    *answer = Ok(());
                }
            }
        }
        Ok(answers)
    }

    /// The refused write of a job that is under what was decided about it by one who knew of so many refusals.
    fn built_on(&self, job: &JobId, known: u64) -> Option<Refused> {
        let refused = self.refused.get(job).filter(|(refusal, _)| known < *refusal);
        refused.map(|(_, why)| why.clone())
    }

    /// What is built on a write that was refused is refused as that was. `refusals`: known to each.
    fn write_unrefused(
        &mut self,
        writes: &[Write],
        refusals: &[u64],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let built_on = writes.iter().zip(refusals);
        let built_on = built_on.map(|(write, known)| self.built_on(&write.job, *known));
        let built_on: Vec<Option<Refused>> = built_on.collect();
        let fresh = writes.iter().zip(&built_on).filter(|(_, refused)| refused.is_none());
        let fresh: Vec<Write> = fresh.map(|(write, _)| write.clone()).collect();
        let mut answers = self.write(&fresh)?.into_iter();
        if let Some(known) = refusals.last() {
            self.refused.retain(|_, (refusal, _)| known < refusal);
        }
        let answer = |refused: Option<Refused>| match refused {
            Some(why) => Err(why),
            None => answers.next().unwrap_or(Ok(())),
        };
        Ok(built_on.into_iter().map(answer).collect())
    }

    /// Waits for what the operator or another process can help with, as long as its patience lasts.
    fn insist<T>(
        &mut self,
        mut act: impl FnMut(&mut dyn Journal, &Owner) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let began_ms = self.clock.monotonic_ms();
        loop {
            let done = act(&mut *self.journal, &self.owner);
            let waits = match (&done, &self.patience) {
                // Nothing was written. What was decided is not lost, and no caller has heard of it.
                (
                    Err(StoreError::Full { .. } | StoreError::Unavailable { .. }),
                    Patience::Endless,
                ) => true,
                // The store has waited for the lock itself.
                (Err(StoreError::Busy { .. }), Patience::Endless) => continue,
                (Err(StoreError::Unavailable { .. }), Patience::Outage(tolerance_ms)) => {
                    let waited_ms = self.clock.monotonic_ms().saturating_sub(began_ms);
                    waited_ms < tolerance_ms.load(Ordering::Relaxed)
                }
                _ => false,
            };
            if !waits {
                return done;
            }
            self.clock.pause(PAUSE);
        }
    }

    /// `assigns_again`: what was assigned before is among it.
    fn release(
        &mut self,
        outputs: Outputs,
        mut callers: Callers,
        assigns_again: bool,
    ) -> Result<(), Stopped> {
        if !outputs.refused.is_empty() {
            self.refusals += 1;
            let refused = outputs.refused.iter().cloned();
            let refused = refused.map(|(job, why)| (job, (self.refusals, why)));
            self.refused.extend(refused);
            let (jobs, epoch) = (outputs.refused.clone(), self.owner.epoch);
            let refused = Message::Refused { jobs, epoch };
            let _ = self.decider.send(refused, Lane::Liveness, true);
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
        // What was to be assigned again to a worker that came in, and has been reported since, would be run twice.
        let mut ended: HashSet<AttemptId> = HashSet::default();
        for (job, records) in outputs.events {
            if assigns_again {
                ended.extend(records.iter().filter_map(|record| match &record.event {
                    Event::AttemptEnded { token, .. } | Event::CallbackAwaited { token, .. } => {
                        Some(AttemptId::new(job.clone(), *token))
                    }
                    _ => None,
                }));
            }
            self.observer.committed(&job, records);
        }
        // Before they are assigned anything.
        for Arrived { arrival, reply } in callers.arrived {
            reply(Ok(arrival));
        }
        for effect in outputs.effects {
            crash_point("before-effect");
            match effect {
                Outgoing::Assign(work) if ended.contains(&work.assignment.id()) => {}
                Outgoing::Assign(work) => self.workers.assign(work),
                Outgoing::Withdraw(over) => self.workers.withdraw(over),
            }
        }
        for (reply_id, answer) in outputs.replies {
            if let Some(reply) = callers.replies.remove(&reply_id) {
                reply(answer);
            }
        }
        for (worker, notice) in outputs.credits {
            self.workers.credits(&worker, notice);
        }
        for worker in &outputs.ask {
            self.workers.ask(worker);
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
        // The decider has time: whoever waits for this group comes first.
        if !outputs.idle.is_empty() {
            let _ = self.decider.send(Message::Idle(outputs.idle), Lane::Liveness, false);
        }
        if !outputs.ended.is_empty() {
            let ended = outputs.ended.into_iter().map(|job| job.id).collect();
            let _ = self.decider.send(Message::Ended(ended), Lane::Liveness, false);
        }
        Ok(())
    }
}

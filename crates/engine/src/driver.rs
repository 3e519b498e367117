//! The threads around a [`Controller`]: one decides, one makes durable. While one group syncs the next gathers.
//!
//! There are no rules here. Whatever leaves (assignments, replies, events) leaves after its group is synced. A
//! store that stalls fills the queue of groups; from then on work waits in the mailbox, and workers' signs of
//! life and questions are answered all the same.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver as ChannelReceiver, Sender as ChannelSender, SyncSender, TrySendError, channel,
    sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::{Owner, Refused, Store, StoreError};

use crate::batch::Assignment;
use crate::controller::{Controller, Group, Outgoing, Outputs, Parked, ReplyId};
use crate::crash::crash_point;
use crate::fleet::FleetNotification;
use crate::inbox::{Adopted, Answer, Inbox, Message, Reply};
use crate::load::{Loader, Unreadable};
use crate::mailbox::{Lane, Receiver, Sender, mailbox};
use crate::placement::Placement;
use crate::work::Work;

/// Messages that wait in each lane of the mailbox; whoever sends more waits with them, or is told.
const INBOX: usize = 4096;
/// Inputs decided together before they go to the store.
const GROUP: usize = 256;
/// While more attempts than `BUSY` times its reports are under way, a group waits up to `GATHER` for one more,
/// at most `WAITS` times. Timers that are due and people do not wait with it.
const BUSY: usize = 2;
const GATHER: Duration = Duration::from_micros(500);
const WAITS: u32 = 4;
/// While attempts wait at the workers, it waits until half of what is under way has reported, as long as
/// reports come: no slot is idle meanwhile.
const GATHER_AHEAD: Duration = Duration::from_millis(2);
const WAITS_AHEAD: u32 = 8;
/// Groups that wait to be synced: enough to keep the disk busy, few enough to stay close to it.
const UNSYNCED: usize = 4;
/// However long nothing is due: a clock that was set forward, or a machine that slept, is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Jobs that are due within this many milliseconds are in memory; the others are read in time.
const HORIZON_MS: u64 = 60_000;
/// Jobs whose ids are read at once.
const LOADED_AT_ONCE: usize = 1000;
/// Before a full disk is tried again.
const FULL: Duration = Duration::from_millis(250);

/// What time it is.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Unix milliseconds.
    fn now(&self) -> Timestamp;

    /// Milliseconds since some moment, whatever is done to the clock.
    fn monotonic_ms(&self) -> u64;
}

/// Who runs attempts. Called after the events that say so are durable.
pub trait Workers: Send {
    fn assign(&mut self, work: Box<Work>);
    fn withdraw(&mut self, over: Assignment);
    /// This attempt succeeded, and will not be asked about again.
    fn settled(&mut self, job: &JobId, token: u64);
}

/// Who wants to know. Called with durable events only.
pub trait Observer: Send {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>);

    /// Of the workers.
    fn fleet(&mut self, _news: Vec<FleetNotification>) {}

    /// The store took no write of this job: another process has it, or has changed it. It left memory here.
    fn refused(&mut self, _job: &JobId, _why: &Refused) {}

    /// This job cannot go on; the others do.
    fn parked(&mut self, _job: &JobId, _why: &str) {}

    /// A stored job is in memory from now on, as it is here; and one that is not any more.
    fn woken(&mut self, _job: &Job) {}
    fn slept(&mut self, _job: &JobId) {}
}

/// Why nothing can be acknowledged any more.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the engine failed; what was acknowledged is stored, `resume` goes on from there")]
    Failed,
}

/// A running controller.
#[derive(Debug)]
pub struct Live {
    inbox: Inbox,
    decider: JoinHandle<()>,
    writer: JoinHandle<Result<(), Stopped>>,
    loader: Option<JoinHandle<()>>,
    recovered: Mutex<ChannelReceiver<Result<usize, Unreadable>>>,
}

/// Who writes, and where it reads stored jobs.
#[derive(Debug)]
pub struct Ownership {
    pub owner: Owner,
    /// None: all jobs are brought by whoever starts this.
    pub loader: Option<Loader>,
}

impl Live {
    /// `make_workers` is given the inbox to report to.
    pub fn start<W: Workers + 'static>(
        store: Box<dyn Store>,
        clock: Box<dyn Clock>,
        room: Placement,
        ownership: Ownership,
        make_workers: impl FnOnce(Inbox) -> W,
        observer: Box<dyn Observer>,
    ) -> Self {
        let (sender, messages) = mailbox(INBOX);
        let (groups, unsynced) = sync_channel(UNSYNCED);
        let inbox = Inbox::new(sender.clone());
        let workers = Box::new(make_workers(inbox.clone()));
        let patient = matches!(room, Placement::Fleet(_));
        let waits = Arc::new(AtomicBool::new(false));
        let controller = Controller::new(room);
        let Ownership { owner, loader } = ownership;
        let (recovered_to, recovered) = channel();
        let (loads, to_load) = channel();
        let loads = loader.is_some().then_some(loads);
        let loader = loader.map(|loader| {
            let loading = Loading { loader, loads: to_load, decider: sender.clone() };
            thread("load", move || loading.run())
        });
        let writer = Writer {
            store,
            owner,
            workers,
            observer,
            unsynced,
            patient,
            decider: sender,
            waits: waits.clone(),
        };
        let decider = Decider {
            controller,
            clock,
            messages,
            groups,
            waits,
            loads,
            recovered: recovered_to,
            unsent: None,
            replies: HashMap::new(),
            last_reply_id: 0,
        };
        Self {
            inbox,
            decider: thread("decide", move || decider.run()),
            writer: thread("store", move || writer.run()),
            loader,
            recovered: Mutex::new(recovered),
        }
    }

    /// Waits until every stored job that is due or under way is in memory; how many these are. Workers must not come in before:
    /// what they hold would seem to be nobody's.
    pub fn recovered(&self) -> Result<usize, Unreadable> {
        let recovered = self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
        // An error: it has stopped, and says why in `stop`.
        recovered.recv().unwrap_or(Ok(0))
    }

    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Decides what has arrived, makes it durable, and ends.
    pub fn stop(self) -> Result<(), Stopped> {
        self.inbox.stop();
        drop(self.inbox);
        let decided = self.decider.join().map_err(|_| Stopped::Failed);
        let written = self.writer.join().unwrap_or(Err(Stopped::Failed));
        if let Some(loader) = self.loader {
            let _ = loader.join();
        }
        written.and(decided)
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let named = std::thread::Builder::new().name(name.to_owned());
    named.spawn(body).expect("a process can have two more threads")
}

/// A group on its way to the store, with the callers that wait for its replies.
struct Sent {
    group: Group,
    replies: HashMap<ReplyId, Reply<Answer>>,
}

struct Decider {
    controller: Controller,
    clock: Box<dyn Clock>,
    messages: Receiver<Message>,
    groups: SyncSender<Sent>,
    /// The writer says when it has room again.
    waits: Arc<AtomicBool>,
    loads: Option<ChannelSender<Load>>,
    recovered: ChannelSender<Result<usize, Unreadable>>,
    /// The writer had no room for it: the store stalls.
    unsent: Option<Sent>,
    replies: HashMap<ReplyId, Reply<Answer>>,
    last_reply_id: ReplyId,
}

impl Decider {
    fn run(mut self) {
        let mut open = true;
        while open {
            if self.resend().is_err() {
                return;
            }
            self.look_ahead();
            let lane = if self.unsent.is_some() { Lane::Liveness } else { Lane::Work };
            self.controller.engine.hear(self.clock.monotonic_ms(), 0);
            let wait = self.wait();
            self.messages.wait_for(1, lane, wait);
            self.controller.engine.hear(self.clock.monotonic_ms(), wait.as_millis() as u64);
            open = self.gather(lane);
            if !open {
                // What was said before is decided, and whoever waits for it hears how it ended.
                let rest = self.messages.take(usize::MAX, Lane::Work);
                self.take_all(rest);
            }
            if lane == Lane::Work {
                let heard_all = self.messages.is_empty(Lane::Work);
                self.controller.due(self.clock.now(), heard_all);
            }
            for job in self.controller.take_loads() {
                self.load(Load::Job(job));
            }
            if let Some(group) = self.controller.group() {
                crash_point("before-append");
                self.send(group);
            }
        }
        if let Some(unsent) = self.unsent.take() {
            let _ = self.groups.send(unsent);
        }
    }

    /// Has what is due within `HORIZON_MS` loaded, in time.
    fn look_ahead(&mut self) {
        let now = self.clock.now();
        let horizon = self.controller.horizon();
        let is_near = horizon.is_none_or(|horizon| horizon.since(now) < HORIZON_MS / 2);
        if self.loads.is_some() && is_near {
            let until = now.plus(HORIZON_MS);
            self.controller.raise_horizon(until);
            self.load(Load::Due { after: horizon, until });
        }
    }

    fn load(&self, load: Load) {
        if let Some(loads) = &self.loads {
            // A loader that is gone has said why.
            let _ = loads.send(load);
        }
    }

    /// Takes what has arrived, and waits for a little more while much is under way. False: we are to stop.
    fn gather(&mut self, lane: Lane) -> bool {
        let (mut open, mut taken, mut waits) = (true, 0, 0);
        while open && taken < GROUP {
            let messages = self.messages.take(GROUP - taken, lane);
            let arrived = messages.len();
            open = self.take_all(messages);
            taken += arrived;
            let may_wait = arrived > 0 && lane == Lane::Work && !self.controller.owes_replies();
            let more = self.more(taken, waits).filter(|_| may_wait);
            let Some((wanted, longest)) = more else { break };
            self.messages.wait_for(wanted, lane, longest.min(self.wait()));
            waits += 1;
        }
        open
    }

    /// With much under way the next report is close, and each sync is worth sharing: how many more a group
    /// waits for, and how long.
    fn more(&self, taken: usize, waits: u32) -> Option<(usize, Duration)> {
        let engine = &self.controller.engine;
        let (under_way, ahead) = (engine.in_flight(), engine.is_ahead());
        let (enough, waits_at_most) =
            if ahead { (under_way, WAITS_AHEAD) } else { (under_way / BUSY, WAITS) };
        let more = enough.saturating_sub(taken);
        if more == 0 || waits >= waits_at_most {
            return None;
        }
        // Each report is one less under way.
        Some(if ahead { (more.div_ceil(2), GATHER_AHEAD) } else { (1, GATHER) })
    }

    fn wait(&self) -> Duration {
        let engine = &self.controller.engine;
        let longest = engine.check_every().unwrap_or(LONGEST_WAIT);
        if self.unsent.is_some() {
            // Nothing that is due can be written now; the writer says when it can.
            return longest;
        }
        let timer = engine.next_due().map(|due| due.plus(1).since(self.clock.now()));
        let wake = engine.next_wake();
        let wake = wake.map(|wake| wake.saturating_sub(self.clock.monotonic_ms()));
        let look_ahead = self.controller.horizon().map(|_| HORIZON_MS / 4);
        let soonest = timer.into_iter().chain(wake).chain(look_ahead).min();
        soonest.map_or(longest, Duration::from_millis).min(longest)
    }

    fn take_all(&mut self, messages: VecDeque<Message>) -> bool {
        let mut open = true;
        for message in messages {
            open &= !matches!(message, Message::Stop);
            self.take(message);
        }
        open
    }

    fn take(&mut self, message: Message) {
        let now = self.clock.now();
        match message {
            Message::Request { request, reply } => {
                let reply_id = reply.map(|reply| {
                    self.last_reply_id += 1;
                    self.replies.insert(self.last_reply_id, reply);
                    self.last_reply_id
                });
                self.controller.request(reply_id, request, now);
            }
            Message::Connect { arriving, reply } => {
                let engine = &mut self.controller.engine;
                let worker = arriving.spec.name.clone();
                let connected = engine.connect(*arriving, now);
                let missed = engine.missed(&worker);
                reply(connected.map(|more| {
                    self.controller.join(more);
                    missed
                }));
            }
            Message::Beat { worker, incarnation, reply } => {
                reply(self.controller.engine.beat(&worker, &incarnation));
            }
            Message::Away { worker, session } => self.controller.engine.away(&worker, session),
            Message::DrainWorker { worker, reply } => {
                reply(self.controller.engine.drain_worker(&worker));
            }
            Message::UndrainWorker { worker, reply } => {
                reply(self.controller.engine.undrain_worker(&worker));
            }
            Message::Undrained { worker } => self.controller.engine.undrained(&worker),
            Message::Look(look) => look(&self.controller.engine),
            Message::Refused(jobs) => jobs.iter().for_each(|job| self.controller.refused(job)),
            Message::Idle(jobs) => {
                for (job, seq) in &jobs {
                    self.controller.idle(job, *seq);
                }
            }
            Message::Loaded { job, found } => self.controller.loaded(&job, found, now),
            Message::Recovered(result) => {
                self.controller.engine.recovered();
                let _ = self.recovered.send(result);
            }
            Message::Drain => self.controller.engine.drain(),
            Message::WriterReady | Message::Stop => {}
        }
    }

    fn send(&mut self, group: Group) {
        let replies = group.reply_ids().filter_map(|reply_id| self.replies.remove_entry(&reply_id));
        let replies = replies.collect();
        match &mut self.unsent {
            Some(unsent) => {
                unsent.group.join(group);
                unsent.replies.extend(replies);
            }
            None => self.unsent = Some(Sent { group, replies }),
        }
    }

    /// Err: the writer is gone.
    fn resend(&mut self) -> Result<(), ()> {
        // Asked for before the second try, so that the writer's word is not missed.
        for last in [false, true] {
            let Some(unsent) = self.unsent.take() else { return Ok(()) };
            match self.groups.try_send(unsent) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(()),
                Err(TrySendError::Full(unsent)) => self.unsent = Some(unsent),
            }
            if !last {
                self.waits.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

/// Makes groups durable, and only then lets out what waits for them.
struct Writer {
    store: Box<dyn Store>,
    owner: Owner,
    workers: Box<dyn Workers>,
    observer: Box<dyn Observer>,
    unsynced: ChannelReceiver<Sent>,
    decider: Sender<Message>,
    waits: Arc<AtomicBool>,
    /// A full disk and a lock of another process are waited for, as long as it takes: the operator can free
    /// space, the other process will end, and workers go on meanwhile.
    patient: bool,
}

impl Writer {
    fn run(mut self) -> Result<(), Stopped> {
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
        let answers = loop {
            match self.store.commit(&self.owner, &all.writes) {
                // Nothing was written. What was decided is not lost, and nobody has heard of it.
                Err(StoreError::Full { .. }) if self.patient => std::thread::park_timeout(FULL),
                // The store has waited for the lock itself.
                Err(StoreError::Busy { .. }) if self.patient => {}
                committed => break committed?,
            }
        };
        crash_point("after-append");
        self.release(all.committed(answers), callers)
    }

    fn release(
        &mut self,
        outputs: Outputs,
        mut callers: HashMap<ReplyId, Reply<Answer>>,
    ) -> Result<(), Stopped> {
        if !outputs.refused.is_empty() {
            let jobs = outputs.refused.iter().map(|(job, _)| job.clone()).collect();
            let _ = self.decider.send(Message::Refused(jobs), Lane::Liveness, true);
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
            let parked = self.store.park(job, why);
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

/// What the loader is to read.
enum Load {
    Job(JobId),
    /// Everything that is to be woken after one moment, up to another; none: from the beginning on.
    Due {
        after: Option<Timestamp>,
        until: Timestamp,
    },
}

/// Reads stored jobs beside everything else. Whoever waits for one waits for this alone.
struct Loading {
    loader: Loader,
    loads: ChannelReceiver<Load>,
    decider: Sender<Message>,
}

impl Loading {
    fn run(mut self) {
        while let Ok(load) = self.loads.recv() {
            match load {
                Load::Job(job) => {
                    let found = self.loader.load(&job);
                    self.tell(job, found);
                }
                Load::Due { after, until } => {
                    let mut read = self.due(after, until);
                    if after.is_none() {
                        let _ = self.decider.send(Message::Recovered(read), Lane::Work, true);
                        continue;
                    }
                    // What is due must be found, however long the store cannot be read.
                    while read.is_err() {
                        std::thread::park_timeout(FULL);
                        if self.decider.send(Message::WriterReady, Lane::Liveness, false).is_err() {
                            return;
                        }
                        read = self.due(after, until);
                    }
                }
            }
        }
    }

    fn due(&mut self, after: Option<Timestamp>, until: Timestamp) -> Result<usize, Unreadable> {
        // After every id of that moment.
        let mut last = after.map(|after| (after, JobId::from("\u{10ffff}")));
        let mut loaded = 0;
        loop {
            let page = self.loader.due(last, until, LOADED_AT_ONCE)?;
            last = page.last().cloned();
            for (_, job) in &page {
                match self.loader.load(job) {
                    Err(why) if !why.is_of_one_job() => return Err(why),
                    found => {
                        loaded += usize::from(matches!(found, Ok(Some(_))));
                        self.tell(job.clone(), found);
                    }
                }
            }
            if page.len() < LOADED_AT_ONCE {
                return Ok(loaded);
            }
        }
    }

    fn tell(&self, job: JobId, found: Result<Option<Adopted>, Unreadable>) {
        let found = found.map(|found| found.map(Box::new));
        let _ = self.decider.send(Message::Loaded { job, found }, Lane::Work, false);
    }
}

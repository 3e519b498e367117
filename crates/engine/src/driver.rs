//! The threads around a [`Controller`]: one decides, one makes durable, one loads. While one group syncs the next
//! gathers.
//!
//! There are no rules here. Whatever leaves (assignments, replies, events) leaves after its group is synced. A
//! store that stalls fills the queue of groups; from then on work waits in the mailbox, and workers' signs of
//! life and questions are answered all the same.

mod decider;
mod loading;
mod stepped;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver as ChannelReceiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, OwnedShards, Owner, Refused, StoreError};

use crate::batch::Assignment;
use crate::controller::{Arrival, Controller, Group, ReplyId};
use crate::fleet::{CreditNotice, FleetNotification, NameInUse};
use crate::hash::HashMap;
use crate::inbox::{Answer, Inbox, Reply};
use crate::load::{Loader, Unreadable};
use crate::mailbox::mailbox;
use crate::placement::Placement;
use crate::work::Work;
use decider::Decider;
use loading::Loading;
pub use stepped::Stepped;
use writer::Writer;

/// Messages that wait in each lane of the mailbox; a sender beyond that waits, or is told.
const INBOX: usize = 4096;
/// Groups that wait to be synced: enough to keep the disk busy, few enough to stay close to it.
const UNSYNCED: usize = 2;
/// Questions that wait at the loader: one for each job that something was said about, and the next of the queue.
const LOADS: usize = 4096;

/// What time it is.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Unix milliseconds.
    fn now(&self) -> Timestamp;

    /// Milliseconds since some moment, whatever is done to the clock.
    fn monotonic_ms(&self) -> u64;

    /// Lets some time pass before something is tried again.
    fn pause(&self, longest: Duration) {
        std::thread::park_timeout(longest);
    }
}

/// Who runs attempts. Called after the events that say so are durable.
pub trait Workers: Send {
    fn assign(&mut self, work: Box<Work>);
    fn withdraw(&mut self, over: Assignment);
    /// This attempt succeeded, and will not be asked about again.
    fn settled(&mut self, job: &JobId, token: u64);
    /// The worker is to come in anew, and to say what it has.
    fn ask(&mut self, _worker: &str) {}
    /// About the slots that a worker has for this server.
    fn credits(&mut self, _worker: &str, _notice: CreditNotice) {}
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
    recovered: Mutex<ChannelReceiver<Result<(), Unreadable>>>,
}

/// Who writes, and where it reads stored jobs.
#[derive(Debug)]
pub struct Ownership {
    pub owner: Owner,
    /// Those that it has.
    pub shards: Arc<OwnedShards>,
    /// None: the one that starts this brings all jobs.
    pub loader: Option<Loader>,
    pub patience: Patience,
}

/// How long a store that cannot be used now is waited for.
#[derive(Clone, Debug)]
pub enum Patience {
    /// Whatever it is: a full disk, a lock of another process, a database that is away. The operator can free space, the other process
    /// will end, the database comes back, and workers go on meanwhile.
    Endless,
    /// A database that is away, for so long, in milliseconds. May be changed meanwhile.
    Outage(Arc<AtomicU64>),
    None,
}

impl Ownership {
    /// Of one that has its store alone, and brings all jobs.
    pub fn alone(owner: Owner) -> Self {
        let shards = Arc::new(OwnedShards::all());
        Self { owner, shards, loader: None, patience: Patience::None }
    }

    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }
}

impl Live {
    /// `make_workers` is given the inbox to report to.
    pub fn start<W: Workers + 'static>(
        journal: Box<dyn Journal>,
        clock: Box<dyn Clock>,
        room: Placement,
        ownership: Ownership,
        make_workers: impl FnOnce(Inbox) -> W,
        observer: Box<dyn Observer>,
    ) -> Self {
        let controller = Controller::new(room);
        let parts =
            Parts::new(journal, clock.into(), controller, ownership, make_workers, observer);
        let Parts { inbox, decider, writer, loading, recovered } = parts;
        Self {
            inbox,
            loader: loading.map(|loading| thread("load", move || loading.run())),
            decider: thread("decide", move || decider.run()),
            writer: thread("store", move || writer.run()),
            recovered: Mutex::new(recovered),
        }
    }

    /// Waits until every stored job of which an attempt is under way is in memory. Workers must not come in before: what they hold would seem to belong to no job.
    pub fn recovered(&self) -> Result<(), Unreadable> {
        let recovered = self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
        // An error: it has stopped, and says why in `stop`.
        recovered.recv().unwrap_or(Ok(()))
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

/// What the threads do, and the ways between them.
struct Parts {
    inbox: Inbox,
    decider: Decider,
    writer: Writer,
    loading: Option<Loading>,
    recovered: ChannelReceiver<Result<(), Unreadable>>,
}

impl Parts {
    fn new<W: Workers + 'static>(
        journal: Box<dyn Journal>,
        clock: Arc<dyn Clock>,
        controller: Controller,
        ownership: Ownership,
        make_workers: impl FnOnce(Inbox) -> W,
        observer: Box<dyn Observer>,
    ) -> Self {
        let (sender, messages) = mailbox(INBOX);
        let (groups, unsynced) = sync_channel(UNSYNCED);
        let inbox = Inbox::new(sender.clone());
        let workers = Box::new(make_workers(inbox.clone()));
        let signals = Arc::new(Signals::default());
        let Ownership { owner, shards, loader, patience } = ownership;
        let controller =
            controller.keeping_readiness(journal.keeps_readiness()).in_epoch(owner.epoch);
        // One word, once.
        let (recovered_to, recovered) = sync_channel(1);
        let (loads, to_load) = mailbox(LOADS);
        let loads = loader.is_some().then_some(loads);
        let loading = loader.map(|loader| {
            let (decider, clock) = (sender.clone(), clock.clone());
            Loading {
                loader,
                loads: to_load,
                decider,
                insists: false,
                clock,
                signals: signals.clone(),
            }
        });
        let writer = Writer {
            journal,
            owner,
            workers,
            observer,
            unsynced,
            kept: None,
            written: 0,
            patience,
            clock: clock.clone(),
            decider: sender,
            signals: signals.clone(),
            refused: HashMap::default(),
            refusals: 0,
            shards: shards.clone(),
        };
        let decider =
            Decider::new(controller, clock, messages, groups, signals, loads, recovered_to)
                .with_shards(shards);
        Self { inbox, decider, writer, loading, recovered }
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let named = std::thread::Builder::new().name(name.to_owned());
    named.spawn(body).expect("a process can have three more threads")
}

/// What the threads know of each other beside what they send.
#[derive(Debug, Default)]
struct Signals {
    /// The writer makes a group durable, or has one waiting.
    is_busy: AtomicBool,
    /// The decider is to be told when that is over.
    wants_idle: AtomicBool,
    /// The decider is to be told when there is room for another group.
    wants_room: AtomicBool,
    /// [`Controller::departures`], as far as the loader is to know.
    departures: AtomicU64,
}

/// A group on its way to the store, with the callers that wait for its replies.
#[derive(Default)]
struct Sent {
    group: Group,
    replies: HashMap<ReplyId, Reply<Answer>>,
    arrived: Vec<Arrived>,
    /// What is to be done with it.
    then: Option<Then>,
}

enum Then {
    /// Once it is committed, shards become another owner's.
    Give { shards: Vec<u16>, to: Arc<str> },
    /// It, and what comes after it, is written as this one.
    Write(Owner),
}

/// A worker in a new life, which is welcome once the loss of what an earlier one had is durable: a server that is restarted in between
/// would take this life for the one that was assigned it, and assign it again.
struct Arrived {
    arrival: Arrival,
    reply: Reply<Result<Arrival, NameInUse>>,
}

//! The engine at work: one thread decides, one makes durable. While one group syncs the next gathers.
//!
//! Whatever leaves here (assignments, answers, news) leaves after its events are synced.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, Recorded};
use steadfast_core::job::{Job, StepRun};
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;
use steadfast_store::{IdempotencyKey, Refused, Row, Store, StoreError};

use crate::batch::{Assignment, Batch, Effect};
use crate::crash::crash_point;
use crate::engine::Engine;
use crate::fleet::FleetNews;
use crate::inbox::{Adopted, Answer, Inbox, Lost, Message, NotDone, Reply};
use crate::mailbox::{Receiver, mailbox};
use crate::room::Room;
use crate::work::Work;
use crate::writer::Writer;

/// Messages that wait to be decided; whoever sends more waits with them.
const INBOX: usize = 4096;
/// Inputs decided together before they go to the store.
const GROUP: usize = 256;
/// While more attempts than this many times its reports are under way, a group waits for one more, so
/// long each time and so often. Timers that are due and people do not wait with it.
const BUSY: usize = 2;
const GATHER: Duration = Duration::from_micros(500);
const WAITS: u32 = 4;
/// While attempts wait at the workers, it waits until half of what is under way has reported, as long
/// as reports come: no slot is idle meanwhile.
const GATHER_AHEAD: Duration = Duration::from_millis(2);
const WAITS_AHEAD: u32 = 8;
/// Groups that wait to be synced: enough to keep the disk busy, few enough to stay close to it.
const UNSYNCED: usize = 4;
/// However long nothing is due: a clock that was set forward, or a machine that slept, is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Time for a worker to end an attempt that is over its timeout, and to say so.
const TIMEOUT_LENIENCE_MS: u64 = 30_000;
/// Events after which the state is stored too, so that recovery does not read a long log.
const SNAPSHOT_EVERY: u64 = 1000;

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
    /// This attempt succeeded, and nobody will ask about it again.
    fn settled(&mut self, job: &JobId, token: u64);
}

/// Who wants to know. Called with durable events only.
pub trait Observer: Send {
    fn committed(&mut self, job: &JobId, records: Vec<Recorded>);

    /// Of the workers.
    fn fleet(&mut self, _news: Vec<FleetNews>) {}
}

/// Why the engine can acknowledge nothing any more.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("job {job} belongs to another process now: {refused}")]
    TakenOver { job: JobId, refused: Refused },
    #[error("the engine failed; what was acknowledged is stored, `resume` goes on from there")]
    Failed,
}

/// The running engine.
#[derive(Debug)]
pub struct Live {
    inbox: Inbox,
    decider: JoinHandle<()>,
    writer: JoinHandle<Result<(), Stopped>>,
}

impl Live {
    /// `make_workers` is given the inbox to report to.
    pub fn start<W: Workers + 'static>(
        store: Box<dyn Store>,
        clock: Box<dyn Clock>,
        room: Room,
        make_workers: impl FnOnce(Inbox) -> W,
        observer: Box<dyn Observer>,
    ) -> Self {
        let (inbox, messages) = mailbox(INBOX);
        let (groups, unsynced) = sync_channel(UNSYNCED);
        let inbox = Inbox(inbox);
        let workers = Box::new(make_workers(inbox.clone()));
        let patient = matches!(room, Room::Fleet(_));
        let decider = Decider {
            engine: Engine::new(room).with_timeout_lenience_ms(TIMEOUT_LENIENCE_MS),
            clock,
            ours: HashMap::new(),
            messages,
            groups,
        };
        let writer = Writer { store, workers, observer, unsynced, patient };
        Self {
            inbox,
            decider: thread("decide", move || decider.run()),
            writer: thread("store", move || writer.run()),
        }
    }

    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Decides what has arrived, makes it durable, and ends.
    pub fn stop(self) -> Result<(), Stopped> {
        let _ = self.inbox.0.send(Message::Stop, true);
        drop(self.inbox);
        let decided = self.decider.join().map_err(|_| Stopped::Failed);
        let written = self.writer.join().unwrap_or(Err(Stopped::Failed));
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

/// One transaction on its way to the store.
pub(crate) struct Group {
    pub(crate) records: Vec<(JobId, Recorded)>,
    pub(crate) metas: BTreeMap<JobId, Meta>,
    pub(crate) effects: Vec<Due>,
    pub(crate) answers: Vec<Owed>,
    pub(crate) news: Vec<FleetNews>,
}

/// An answer that waits for what it is about to be durable.
pub(crate) struct Owed {
    pub(crate) reply: Reply<Answer>,
    pub(crate) answer: Answer,
    /// It is about a note on this job, which somebody else may have changed since it was read.
    pub(crate) note: Option<JobId>,
}

/// An effect with all that its worker needs to know.
pub(crate) enum Due {
    Assign(Box<Work>),
    Withdraw(Assignment),
}

/// What the store keeps of a job beside its events.
pub(crate) struct Meta {
    pub(crate) epoch: u64,
    pub(crate) row: Row,
    pub(crate) snapshot: Option<Vec<u8>>,
    /// With the first group of a job only.
    pub(crate) key: Option<IdempotencyKey>,
}

struct Ours {
    epoch: u64,
    snapshot_seq: u64,
    /// Not handed to the store yet.
    key: Option<IdempotencyKey>,
}

struct Decider {
    engine: Engine,
    clock: Box<dyn Clock>,
    ours: HashMap<JobId, Ours>,
    messages: Receiver<Message>,
    groups: SyncSender<Group>,
}

impl Decider {
    fn run(mut self) {
        let mut open = true;
        while open {
            let mut batch = Batch::default();
            let mut answers = Vec::new();
            self.engine.hear(self.clock.monotonic_ms(), 0);
            let wait = self.wait();
            self.messages.wait_for(1, wait);
            self.engine.hear(self.clock.monotonic_ms(), wait.as_millis() as u64);
            let mut taken = 0;
            let mut waits = 0;
            while open && taken < GROUP {
                let messages = self.messages.take(GROUP - taken);
                let arrived = messages.len();
                for message in messages {
                    open &= !matches!(message, Message::Stop);
                    self.take(message, &mut batch, &mut answers);
                }
                taken += arrived;
                let more = self.more(taken, waits).filter(|_| arrived > 0 && answers.is_empty());
                let Some((wanted, longest)) = more else { break };
                self.messages.wait_for(wanted, longest.min(self.wait()));
                waits += 1;
            }
            let now = self.clock.now();
            // The millisecond of a decision had begun before it was made: only when the one it is due
            // in is over has it waited long enough. Never early, at most so much late.
            while self.engine.next_due().is_some_and(|due| due < now) {
                batch.join(self.engine.tick(now));
            }
            // Only when everything that was said has been heard is silence silence.
            if self.messages.is_empty() {
                batch.join(self.engine.tick_workers(now));
            }
            loop {
                let starts = self.engine.dispatch(now);
                if starts.is_empty() {
                    break;
                }
                batch.join(starts);
            }
            let news = self.engine.take_news();
            if batch.is_empty() && answers.is_empty() && news.is_empty() {
                continue;
            }
            crash_point("before-append");
            let group = Group { news, ..self.group(batch, answers) };
            if self.groups.send(group).is_err() {
                return;
            }
        }
    }

    /// With much under way the next report is close, and each sync is worth sharing: how many more a
    /// group waits for, and how long.
    fn more(&self, taken: usize, waits: u32) -> Option<(usize, Duration)> {
        let (under_way, ahead) = (self.engine.in_flight(), self.engine.is_ahead());
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
        let timer = self.engine.next_due().map(|due| due.plus(1).since(self.clock.now()));
        let wake = self.engine.next_wake();
        let wake = wake.map(|wake| wake.saturating_sub(self.clock.monotonic_ms()));
        let soonest = timer.into_iter().chain(wake).min();
        let longest = self.engine.check_every().unwrap_or(LONGEST_WAIT);
        soonest.map_or(longest, Duration::from_millis).min(longest)
    }

    fn take(&mut self, message: Message, batch: &mut Batch, answers: &mut Vec<Owed>) {
        let now = self.clock.now();
        let owed = |reply, answer| Owed { reply, answer, note: None };
        match message {
            Message::Submit { accepted, key, reply } => {
                let ours = Ours { epoch: 1, snapshot_seq: 0, key };
                self.ours.insert(accepted.id.clone(), ours);
                batch.join(self.engine.submit(*accepted, now));
                answers.push(owed(reply, Ok(())));
            }
            Message::Adopt { adopted, reply } => {
                crash_point("during-recovery");
                let Adopted { job, epoch, down_since, lost } = *adopted;
                let ours = Ours { epoch, snapshot_seq: job.seq, key: None };
                self.ours.insert(job.id.clone(), ours);
                let id = job.id.clone();
                batch.join(self.engine.adopt(job, down_since, now));
                for Lost { item, token, started } in lost {
                    let outcome = Outcome::Lost { started, why: None };
                    let input = Input::Report { item, token, outcome };
                    let _ = self.engine.handle(&id, &input, now, batch);
                }
                answers.push(owed(reply, Ok(())));
            }
            Message::Note { job, epoch, input, reply } => {
                let (id, snapshot_seq) = (job.id.clone(), job.seq);
                self.ours.insert(id.clone(), Ours { epoch, snapshot_seq, key: None });
                let said = match self.engine.note(*job, &input, now) {
                    Ok(more) => {
                        batch.join(more);
                        Ok(())
                    }
                    Err(why) => Err(why.into()),
                };
                answers.push(Owed { reply, answer: said, note: Some(id) });
            }
            Message::Input { job, input, reply } => {
                let said = match self.engine.handle(&job, &input, now, batch) {
                    Ok(said) => said.map_err(NotDone::from),
                    Err(_) => Err(NotDone::Unknown(job)),
                };
                answers.extend(reply.map(|reply| owed(reply, said)));
            }
            Message::Connect { arriving, reply } => {
                let worker = arriving.spec.name.clone();
                let connected = self.engine.connect(*arriving, now).map(|more| batch.join(more));
                reply(connected.map(|()| self.engine.missed(&worker)));
            }
            Message::Beat { worker, incarnation, reply } => {
                reply(self.engine.beat(&worker, &incarnation));
            }
            Message::Away { worker, session } => self.engine.away(&worker, session),
            Message::DrainWorker { worker, reply } => reply(self.engine.drain_worker(&worker)),
            Message::UndrainWorker { worker, reply } => {
                reply(self.engine.undrain_worker(&worker));
            }
            Message::Undrained { worker } => self.engine.undrained(&worker),
            Message::Look(look) => look(&self.engine),
            Message::Drain => self.engine.drain(),
            Message::Stop => {}
        }
    }

    fn group(&mut self, batch: Batch, answers: Vec<Owed>) -> Group {
        let mut metas = BTreeMap::new();
        for (id, _) in &batch.records {
            if !metas.contains_key(id)
                && let Some(meta) = self.meta(id)
            {
                metas.insert(id.clone(), meta);
            }
        }
        let effects = batch.effects.into_iter().filter_map(|effect| match effect {
            Effect::Assign(assignment) => {
                let job = self.engine.job(&assignment.job)?;
                Some(Due::Assign(Box::new(Work::of(job, assignment))))
            }
            Effect::Withdraw(over) => Some(Due::Withdraw(over)),
        });
        let effects = effects.collect();
        for id in metas.keys() {
            if self.engine.job(id).is_some_and(Job::is_over) {
                self.engine.forget(id);
                self.ours.remove(id);
            }
        }
        Group { records: batch.records, metas, effects, answers, news: Vec::new() }
    }

    fn meta(&mut self, id: &JobId) -> Option<Meta> {
        let job = self.engine.job(id)?;
        let ours = self.ours.get_mut(id)?;
        let over = job.is_over();
        // Seldom enough that what is written of the state is no more than a few times its events, however
        // large it is; and always at the end.
        let steps = job.runs.iter().flat_map(|run| &run.steps);
        let size = |step: &StepRun| step.live.len() + step.outputs.len() + step.failed.len();
        let size: usize = steps.map(size).sum();
        let grown = job.seq - ours.snapshot_seq >= SNAPSHOT_EVERY + size as u64;
        let snapshot = (over || grown).then(|| serde_json::to_vec(job).ok()).flatten();
        if snapshot.is_some() {
            ours.snapshot_seq = job.seq;
        }
        let row = Row {
            id: id.clone(),
            name: job.plan.name().to_owned(),
            state: job.state(),
            submitted_at: job.accepted_at,
            finished_at: job.finished_at,
            due_at: self.engine.due_of(id).filter(|_| !over),
            over,
            labels: job.plan.labels().clone(),
            retried_from: job.retried_from.clone(),
            local: job.source.is_some(),
        };
        let key = ours.key.take();
        Some(Meta { epoch: ours.epoch, row, snapshot, key })
    }
}

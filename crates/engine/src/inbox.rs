//! The way to the engine: everything that can be said to it, and how it answers.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use steadfast_core::decide::{Input, Refusal};
use steadfast_core::event::{AcceptedJob, ItemId, JobId};
use steadfast_core::job::Job;
use steadfast_store::{Gap, IdempotencyKey, Owner, QueueEntry, Refused};

use crate::controller::Arrival;
use crate::controller::{Loaded, Request};
use crate::engine::Engine;
use crate::fleet::{Credits, NameInUse, Undraining};
use crate::load::Unreadable;
use crate::mailbox::{Lane, NotSent, Sender};
use crate::workers::Arriving;

/// What was asked has happened and is durable, or why not.
pub type Answer = Result<(), CommandError>;

/// Why what was asked has not happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("there is no job {0} under way")]
    Unknown(JobId),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another process has the job, or has changed it.
    #[error("job {job} is not this process's any more: {why}")]
    Taken { job: JobId, why: Refused },
    /// Another server has it.
    #[error("job {job} is {owner}'s")]
    Elsewhere { job: JobId, owner: String },
    #[error("job {job} is stuck: {why}")]
    Stuck { job: JobId, why: String },
    /// Nothing has happened.
    #[error("the store cannot be read: {0}")]
    Unavailable(String),
    /// Whether it has happened is known once the engine is back.
    #[error("the engine has stopped")]
    Stopped,
}

impl From<CommandError> for String {
    fn from(why: CommandError) -> Self {
        why.to_string()
    }
}

/// Called once with the answer, on a thread of the engine, so it must not wait for anything. Dropped if
/// the engine ends before it can answer.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// A stored job that this engine goes on with.
#[derive(Debug)]
pub struct Adopted {
    pub job: Job,
    /// Nothing was decided in these; those that ended before its last event are none of its.
    pub gaps: Vec<Gap>,
    /// Attempts under way whose workers are gone.
    pub lost: Vec<Lost>,
}

#[derive(Clone, Copy, Debug)]
pub struct Lost {
    pub item: ItemId,
    pub token: u64,
    /// It may have begun to run.
    pub started: bool,
}

pub(crate) enum Message {
    Request {
        request: Request,
        reply: Option<Reply<Answer>>,
    },
    Connect {
        arriving: Box<Arriving>,
        reply: Reply<Result<Arrival, NameInUse>>,
    },
    Beat {
        worker: Arc<str>,
        incarnation: Arc<str>,
        reply: Reply<bool>,
    },
    Away {
        worker: Arc<str>,
        session: u64,
    },
    DrainWorker {
        worker: String,
        reply: Reply<bool>,
    },
    UndrainWorker {
        worker: String,
        reply: Reply<Undraining>,
    },
    Undrained {
        worker: Arc<str>,
    },
    Credits {
        worker: Arc<str>,
        session: u64,
        credits: Credits,
    },
    Look(Box<dyn FnOnce(&Engine) + Send>),
    /// Their ends are durable.
    Ended(Vec<JobId>),
    /// The store took no write of these.
    Refused {
        jobs: Vec<(JobId, Refused)>,
        /// That is written in now.
        epoch: u64,
    },
    /// These are durable up to this event, and may leave memory if that was their last.
    Idle(Vec<(JobId, u64)>),
    /// Stored jobs that wait for a worker.
    Queued(Vec<QueueEntry>),
    Loaded {
        job: JobId,
        found: Loaded,
        /// [`Controller::departures`](crate::Controller::departures) when it was read.
        as_of: u64,
    },
    /// What was read before this departure has arrived.
    ReadUpTo(u64),
    /// All that had an attempt under way at the start has been loaded.
    Recovered(Result<(), Unreadable>),
    /// Shards have become this server's: their jobs are to be loaded.
    GainShards(Vec<u16>),
    /// All that had an attempt under way in them has been loaded.
    Gained(Vec<u16>),
    /// Shards are to be another server's.
    GiveShards {
        shards: Vec<u16>,
        to: Arc<str>,
    },
    /// Everything was taken over by others; what is written from now on is written as this one.
    BeginAnew {
        owner: Owner,
        reply: Reply<()>,
    },
    /// The writer can take groups again.
    WriterReady,
    Drain,
    Stop,
}

/// The engine has stopped, or cannot take more at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the engine has stopped")]
    Stopped,
    #[error("the engine has more to do than it can take; try again in a moment")]
    Full,
}

/// A way to the engine; cheap to clone, one for each who reports.
#[derive(Clone)]
pub struct Inbox(Sender<Message>);

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

impl Inbox {
    pub(crate) fn new(sender: Sender<Message>) -> Self {
        Self(sender)
    }

    /// Takes a new job in; durable when this returns, with its key. That no other job has the key is for the
    /// one who submits to see to.
    pub fn submit(&self, accepted: AcceptedJob, key: Option<IdempotencyKey>) -> Answer {
        self.ask(Request::Submit { accepted: Box::new(accepted), key })
    }

    /// Says something without waiting: `reply` is called once what it came to is durable. Refused, the engine has not seen it, and it is
    /// given back.
    #[expect(clippy::result_large_err, reason = "it is as large as what was given")]
    pub fn try_request(
        &self,
        request: Request,
        reply: Reply<Answer>,
    ) -> Result<(), (SendError, Request)> {
        let lane = lane(&request);
        let message = Message::Request { request, reply: Some(reply) };
        self.0.try_send(message, lane, true).map_err(|(why, message)| match message {
            Message::Request { request, .. } => (unheard(why), request),
            _ => unreachable!("it is what was sent"),
        })
    }

    /// Goes on with a stored job.
    pub fn adopt(&self, adopted: Adopted) -> Answer {
        self.ask(Request::Adopt(Box::new(adopted)))
    }

    /// A command of a person; durable when this returns.
    pub fn command(&self, job: &JobId, input: Input) -> Answer {
        self.ask(Request::Input { job: job.clone(), input })
    }

    /// A worker's word that it wants acknowledged: `reply` is called once what it came to is durable, and
    /// dropped if the engine cannot hear it now.
    pub fn send(&self, job: &JobId, input: Input, reply: Reply<Answer>) -> Result<(), SendError> {
        self.try_request(Request::Input { job: job.clone(), input }, reply).map_err(|(why, _)| why)
    }

    /// A word about a job that is over, as it is stored: no other process writes it meanwhile.
    pub fn note(&self, job: Job, input: Input, reply: Reply<Answer>) -> Result<(), SendError> {
        let note = Request::Note { job: Box::new(job), input };
        self.try_request(note, reply).map_err(|(why, _)| why)
    }

    /// A worker comes in. `reply` is called before it is assigned anything, with whether it was told to
    /// take nothing new.
    pub fn connect(
        &self,
        arriving: Arriving,
        reply: Reply<Result<Arrival, NameInUse>>,
    ) -> Result<(), SendError> {
        self.try_live(Message::Connect { arriving: Box::new(arriving), reply })
    }

    /// A worker is alive. Answered with whether this life of it is known here.
    pub fn beat(
        &self,
        worker: &Arc<str>,
        incarnation: &Arc<str>,
        reply: Reply<bool>,
    ) -> Result<(), SendError> {
        let (worker, incarnation) = (worker.clone(), incarnation.clone());
        self.try_live(Message::Beat { worker, incarnation, reply })
    }

    /// The session of a worker has ended. Waits for room, as the session does not say it again.
    pub fn away(&self, worker: &Arc<str>, session: u64) {
        self.live(Message::Away { worker: worker.clone(), session });
    }

    /// A worker takes nothing new. Answered with whether there is such a worker.
    pub fn drain_worker(&self, worker: &str, reply: Reply<bool>) -> Result<(), SendError> {
        self.try_live(Message::DrainWorker { worker: worker.to_owned(), reply })
    }

    /// An operator takes that back. Answered with whether the worker must be told now.
    pub fn undrain_worker(&self, worker: &str, reply: Reply<Undraining>) -> Result<(), SendError> {
        self.try_live(Message::UndrainWorker { worker: worker.to_owned(), reply })
    }

    /// The worker takes new work again. Waits for room, as the worker does not say it again.
    pub fn undrained(&self, worker: &Arc<str>) {
        self.live(Message::Undrained { worker: worker.clone() });
    }

    /// The worker has so much for this server. Waits for room, as the worker does not say it again.
    pub fn credits(&self, worker: &Arc<str>, session: u64, credits: Credits) {
        self.live(Message::Credits { worker: worker.clone(), session, credits });
    }

    /// A look at the workers and at what waits for them. Of jobs only what is durable may be shown, so
    /// their state is not for this.
    pub fn look(&self, look: impl FnOnce(&Engine) + Send + 'static) -> Result<(), SendError> {
        self.try_live(Message::Look(Box::new(look)))
    }

    /// A worker's word on an attempt. A stale one is refused by its fence.
    pub fn report(&self, job: &JobId, input: Input) {
        let request = Request::Input { job: job.clone(), input };
        // An engine that has stopped has nothing to hear: the attempt will be a loss.
        let _ = self.0.send(Message::Request { request, reply: None }, Lane::Work, false);
    }

    /// Goes on with the jobs of shards that have become this server's.
    pub fn gain(&self, shards: Vec<u16>) {
        self.live(Message::GainShards(shards));
    }

    /// Lets go of the jobs of some shards, and then gives these to another owner.
    pub fn give(&self, shards: Vec<u16>, to: Arc<str>) {
        self.live(Message::GiveShards { shards, to });
    }

    /// Others have taken everything over. What is written from now on is written as `owner`. `reply` is called when nothing of before
    /// is in memory any more.
    pub fn begin_anew(&self, owner: Owner, reply: Reply<()>) {
        self.live(Message::BeginAnew { owner, reply });
    }

    /// From now on nothing new starts.
    pub fn drain(&self) {
        self.live(Message::Drain);
    }

    /// Begins what [`Live::stop`](crate::Live::stop) ends: what was said before is decided and written, and nothing after it.
    pub fn stop(&self) {
        self.live(Message::Stop);
    }

    fn live(&self, message: Message) {
        let _ = self.0.send(message, Lane::Liveness, true);
    }

    fn try_live(&self, message: Message) -> Result<(), SendError> {
        self.0.try_send(message, Lane::Liveness, true).map_err(|(why, _)| unheard(why))
    }

    fn ask(&self, request: Request) -> Answer {
        let (answer, answered) = sync_channel(1);
        let reply: Reply<Answer> = Box::new(move |said| drop(answer.send(said)));
        let lane = lane(&request);
        let message = Message::Request { request, reply: Some(reply) };
        self.0.send(message, lane, true).map_err(|_| CommandError::Stopped)?;
        answered.recv().map_err(|_| CommandError::Stopped)?
    }
}

fn lane(request: &Request) -> Lane {
    match request {
        Request::Submit { .. } => Lane::NewJobs,
        _ => Lane::Work,
    }
}

fn unheard(why: NotSent) -> SendError {
    match why {
        NotSent::Full => SendError::Full,
        NotSent::Closed => SendError::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::plan::{Action, Plan, PlanDraft, StepDraft};
    use steadfast_core::policy::Policy;

    use super::*;
    use crate::mailbox::mailbox;

    fn submission(id: &str) -> Request {
        let step = StepDraft::new("s", Action::Run("true".to_owned()), Policy::default());
        let plan = Plan::new(PlanDraft::new("nightly", vec![step])).expect("valid");
        let accepted = Box::new(AcceptedJob::new(id.into(), Arc::new(plan)));
        let key = IdempotencyKey { key: format!("key of {id}"), digest: String::new() };
        Request::Submit { accepted, key: Some(key) }
    }

    fn key_of(request: &Request) -> &str {
        match request {
            Request::Submit { key: Some(key), .. } => &key.key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "it is what is given back")]
    fn what_there_is_no_room_for_is_given_back_and_can_be_said_again() {
        let (sender, receiver) = mailbox(1);
        let inbox = Inbox::new(sender);
        let say = |request| inbox.try_request(request, Box::new(|_| ()));
        assert!(say(submission("a")).is_ok());
        let (why, kept) = say(submission("b")).expect_err("there is room for one");
        assert_eq!((why, key_of(&kept)), (SendError::Full, "key of b"));
        assert_eq!(receiver.take(9, Lane::NewJobs).len(), 1);
        assert!(say(kept).is_ok());
        drop(receiver);
        let (why, kept) = say(submission("c")).expect_err("nobody takes it");
        assert_eq!((why, key_of(&kept)), (SendError::Stopped, "key of c"));
    }
}

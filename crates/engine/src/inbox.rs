//! The way to the engine: everything that can be said to it, and how it answers.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use steadfast_core::decide::{Input, Refusal};
use steadfast_core::event::{Accepted, ItemId, JobId};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::IdempotencyKey;

use crate::engine::Engine;
use crate::fleet::{Missed, NameInUse, Undraining};
use crate::mailbox::{NotSent, Sender};
use crate::workers::Arriving;

/// What was asked has happened and is durable, or why not.
pub type Answer = Result<(), NotDone>;

/// Why what was asked has not happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    #[error("there is no job {0} under way")]
    Unknown(JobId),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Whether it has happened is known once the engine is back.
    #[error("the engine has stopped")]
    Stopped,
}

impl From<NotDone> for String {
    fn from(why: NotDone) -> Self {
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
    /// Which says that it is ours.
    pub epoch: u64,
    /// Nothing was decided since then.
    pub down_since: Timestamp,
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
    Submit { accepted: Box<Accepted>, key: Option<IdempotencyKey>, reply: Reply<Answer> },
    Adopt { adopted: Box<Adopted>, reply: Reply<Answer> },
    Input { job: JobId, input: Input, reply: Option<Reply<Answer>> },
    Note { job: Box<Job>, epoch: u64, input: Input, reply: Reply<Answer> },
    Connect { arriving: Box<Arriving>, reply: Reply<Result<Missed, NameInUse>> },
    Beat { worker: Arc<str>, incarnation: Arc<str>, reply: Reply<bool> },
    Away { worker: Arc<str>, session: u64 },
    DrainWorker { worker: String, reply: Reply<bool> },
    UndrainWorker { worker: String, reply: Reply<Undraining> },
    Undrained { worker: Arc<str> },
    Look(Box<dyn FnOnce(&Engine) + Send>),
    Drain,
    Stop,
}

/// The engine has stopped, or cannot take more at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    #[error("the engine has stopped")]
    Stopped,
    #[error("the engine has more to do than it can take; try again in a moment")]
    Full,
}

/// A way to the engine; cheap to clone, one for each who reports.
#[derive(Clone)]
pub struct Inbox(pub(crate) Sender<Message>);

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

impl Inbox {
    /// Takes a new job in; durable when this returns, with its key. Nobody has the key: that is for
    /// the one who submits to see to.
    pub fn submit(&self, accepted: Accepted, key: Option<IdempotencyKey>) -> Answer {
        self.ask(|reply| Message::Submit { accepted: Box::new(accepted), key, reply })
    }

    /// Goes on with a stored job.
    pub fn adopt(&self, adopted: Adopted) -> Answer {
        self.ask(|reply| Message::Adopt { adopted: Box::new(adopted), reply })
    }

    /// Goes on with one of many stored jobs; `reply` is called when that is durable.
    pub fn adopt_and(&self, adopted: Adopted, reply: Reply<Answer>) -> Result<(), Unheard> {
        let message = Message::Adopt { adopted: Box::new(adopted), reply };
        self.0.send(message, true).map_err(|_| Unheard::Stopped)
    }

    /// A wish of a person; durable when this returns.
    pub fn wish(&self, job: &JobId, input: Input) -> Answer {
        let job = job.clone();
        self.ask(|reply| Message::Input { job, input, reply: Some(reply) })
    }

    /// A worker's word that it wants acknowledged: `reply` is called once what it came to is durable.
    /// Gives the reply back if the engine cannot hear it now.
    pub fn hear(&self, job: &JobId, input: Input, reply: Reply<Answer>) -> Result<(), Unheard> {
        self.try_send(Message::Input { job: job.clone(), input, reply: Some(reply) })
    }

    /// A word about a job that is over, as it is stored: nobody else writes it meanwhile.
    pub fn note(
        &self,
        job: Job,
        epoch: u64,
        input: Input,
        reply: Reply<Answer>,
    ) -> Result<(), Unheard> {
        self.try_send(Message::Note { job: Box::new(job), epoch, input, reply })
    }

    /// A worker comes in. `reply` is called before it is assigned anything, with whether it was told to
    /// take nothing new.
    pub fn connect(
        &self,
        arriving: Arriving,
        reply: Reply<Result<Missed, NameInUse>>,
    ) -> Result<(), Unheard> {
        self.try_send(Message::Connect { arriving: Box::new(arriving), reply })
    }

    /// A worker is alive. Answered with whether this life of it is known here.
    pub fn beat(
        &self,
        worker: &Arc<str>,
        incarnation: &Arc<str>,
        reply: Reply<bool>,
    ) -> Result<(), Unheard> {
        let (worker, incarnation) = (worker.clone(), incarnation.clone());
        self.try_send(Message::Beat { worker, incarnation, reply })
    }

    /// The session of a worker has ended. Waits for room, as nobody says it again.
    pub fn away(&self, worker: &Arc<str>, session: u64) {
        let _ = self.0.send(Message::Away { worker: worker.clone(), session }, true);
    }

    /// A worker takes nothing new. Answered with whether there is such a worker.
    pub fn drain_worker(&self, worker: &str, reply: Reply<bool>) -> Result<(), Unheard> {
        self.try_send(Message::DrainWorker { worker: worker.to_owned(), reply })
    }

    /// Somebody takes that back. Answered with whether the worker must be told now.
    pub fn undrain_worker(&self, worker: &str, reply: Reply<Undraining>) -> Result<(), Unheard> {
        self.try_send(Message::UndrainWorker { worker: worker.to_owned(), reply })
    }

    /// The worker takes new work again. Waits for room, as the worker does not say it again.
    pub fn undrained(&self, worker: &Arc<str>) {
        let _ = self.0.send(Message::Undrained { worker: worker.clone() }, true);
    }

    /// A look at the workers and at what waits for them. Of jobs only what is durable may be shown, so
    /// their state is not for this.
    pub fn look(&self, look: impl FnOnce(&Engine) + Send + 'static) -> Result<(), Unheard> {
        self.try_send(Message::Look(Box::new(look)))
    }

    fn try_send(&self, message: Message) -> Result<(), Unheard> {
        self.0.try_send(message, true).map_err(|error| match error {
            NotSent::Full => Unheard::Full,
            NotSent::Closed => Unheard::Stopped,
        })
    }

    /// A worker's word on an attempt. A stale one is refused by its fence.
    pub fn report(&self, job: &JobId, input: Input) {
        // An engine that has stopped has nothing to hear: the attempt will be a loss.
        let _ = self.0.send(Message::Input { job: job.clone(), input, reply: None }, false);
    }

    /// From now on nothing new starts.
    pub fn drain(&self) {
        let _ = self.0.send(Message::Drain, true);
    }

    fn ask(&self, message: impl FnOnce(Reply<Answer>) -> Message) -> Answer {
        let (answer, answered) = sync_channel(1);
        let reply: Reply<Answer> = Box::new(move |said| drop(answer.send(said)));
        self.0.send(message(reply), true).map_err(|_| NotDone::Stopped)?;
        answered.recv().map_err(|_| NotDone::Stopped)?
    }
}

//! Servers that share a store. What is asked here about a job that another server has is asked there, through the store; and what
//! becomes durable there is noticed here, for those who follow it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_core::event::{JobId, JobState, Requester};
use steadfast_store::{AskedInput, Exchange, OwnedShards};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::callbacks::{CallbackHandler, Taken};
use crate::commands::JobCommands;
use crate::error::ApiError;
use crate::hand_over::CONFIRM;
use crate::notifications::Notifications;

/// How often an answer is looked for, and what others ask.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often jobs of other servers that somebody follows here are looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// Every so many times, all that somebody follows.
const ALL_EVERY: u32 = 10;
/// Of what others ask, so much is taken at once.
const ASKED_AT_ONCE: usize = 64;

/// What one server asks of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PeerRequest {
    Cancel(Requester),
    Pause(Requester),
    Resume(Requester),
    /// Its token and signature were good.
    Callback {
        token: String,
        body: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PeerAnswer {
    Done,
    Late,
    Ended(JobState),
    Refused { code: String, why: String },
}

impl From<Result<Taken, ApiError>> for PeerAnswer {
    fn from(answer: Result<Taken, ApiError>) -> Self {
        match answer {
            Ok(Taken::Counted) => Self::Done,
            Ok(Taken::Late) => Self::Late,
            Err(ApiError::AlreadyEnded { state, .. }) => Self::Ended(state),
            Err(why) => Self::Refused { code: why.code().to_owned(), why: why.to_string() },
        }
    }
}

impl PeerAnswer {
    fn into_answer(self, job: &JobId) -> Result<Taken, ApiError> {
        Err(match self {
            Self::Done => return Ok(Taken::Counted),
            Self::Late => return Ok(Taken::Late),
            Self::Ended(state) => ApiError::AlreadyEnded { job: job.clone(), state },
            Self::Refused { code, why } => match &*code {
                "not_found" => ApiError::NotFound(why),
                "not_possible" => ApiError::NotPossible(why),
                "bad_request" => ApiError::BadRequest(why),
                "too_large" => ApiError::TooLarge(why),
                "callback_refused" => ApiError::CallbackRefused(why),
                "too_often" => ApiError::TooOften(why),
                "disk_full" => ApiError::DiskFull,
                "stuck" => ApiError::Stuck { job: job.clone(), why },
                "unconfirmed" => ApiError::Unconfirmed { job: job.clone() },
                _ => ApiError::Overloaded(why),
            },
        })
    }
}

/// The way to the others.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    exchange: Option<Arc<dyn Exchange>>,
    shards: Arc<OwnedShards>,
    last_id: Arc<Mutex<Ulid>>,
}

impl Peers {
    pub(crate) fn new(exchange: Option<Arc<dyn Exchange>>, shards: Arc<OwnedShards>) -> Self {
        Self { exchange, shards, last_id: Arc::default() }
    }

    /// Of a server that has its store alone.
    pub(crate) fn none() -> Self {
        Self::new(None, Arc::new(OwnedShards::all()))
    }

    /// Whether another server has the job, as far as is known here.
    pub(crate) fn have(&self, job: &str) -> bool {
        !self.shards.has(job)
    }

    /// An id for a job that this server takes.
    pub(crate) fn new_id(&self) -> Result<JobId, ApiError> {
        if self.shards.is_empty() {
            let why = "this server has no part of the store yet; try again in a moment, or another server";
            return Err(ApiError::Overloaded(why.to_owned()));
        }
        loop {
            let id = self.next_id();
            if self.shards.has(&id) || self.shards.is_empty() {
                return Ok(id);
            }
        }
    }

    /// They sort by when they were made, within a millisecond too: the jobs of one body are listed in its order. A
    /// clock that was put back is believed, since jobs are kept by the time in their ids.
    fn next_id(&self) -> JobId {
        let mut last = self.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Ulid::generate();
        let is_as_late = fresh.timestamp_ms() == last.timestamp_ms();
        *last = if is_as_late { last.increment().unwrap_or(fresh) } else { fresh };
        last.to_string().to_lowercase().into()
    }

    /// Asks the server that has the job, and waits for its answer.
    pub(crate) async fn ask(&self, job: &JobId, asked: &PeerRequest) -> Result<Taken, ApiError> {
        let Some(exchange) = self.exchange.clone() else { return Err(ApiError::no_job(job)) };
        let body = serde_json::to_vec(asked).map_err(ApiError::internal)?;
        let (to, id) = (exchange.clone(), job.clone());
        let input = blocking(move || to.ask(&id, &body)).await?;
        let deadline = Instant::now() + CONFIRM;
        loop {
            let from = exchange.clone();
            if let Ok(Some(answer)) = blocking(move || from.answered(input)).await {
                let told: PeerAnswer =
                    serde_json::from_slice(&answer).map_err(ApiError::internal)?;
                return told.into_answer(job);
            }
            if Instant::now() >= deadline {
                return Err(ApiError::Unconfirmed { job: job.clone() });
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(act).await?.map_err(|error| {
        ApiError::Overloaded(format!("the database cannot be used now ({error}); try again"))
    })
}

/// Takes what other servers ask, until it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct PeerService {
    pub(crate) owner: Arc<str>,
    pub(crate) exchange: Arc<dyn Exchange>,
    pub(crate) shards: Arc<OwnedShards>,
    pub(crate) commands: JobCommands,
    pub(crate) callbacks: CallbackHandler,
    pub(crate) notifications: Notifications,
}

impl PeerService {
    pub(crate) async fn run(self) {
        tokio::join!(self.clone().answer(), self.follow());
    }

    async fn answer(self) {
        let (done, mut ended) = mpsc::unbounded_channel();
        let mut under_way = HashSet::new();
        loop {
            sleep(LOOK_EVERY).await;
            while let Ok(input) = ended.try_recv() {
                under_way.remove(&input);
            }
            let (exchange, owner) = (self.exchange.clone(), self.owner.clone());
            let asked = blocking(move || exchange.asked(&owner, ASKED_AT_ONCE)).await;
            // A database that is away is looked at again.
            for input in asked.unwrap_or_default() {
                if under_way.insert(input.id) {
                    let (service, done) = (self.clone(), done.clone());
                    tokio::spawn(async move {
                        let id = input.id;
                        service.take(input).await;
                        let _ = done.send(id);
                    });
                }
            }
        }
    }

    /// Said twice, because the answer was lost, it comes to the same.
    async fn take(&self, input: AskedInput) {
        let AskedInput { id, job, body } = input;
        let answer = match serde_json::from_slice(&body) {
            Ok(PeerRequest::Callback { token, body }) => {
                self.callbacks.forwarded(&token, &body).await
            }
            Ok(asked) => self.commands.forwarded(&job, asked).await.map(|()| Taken::Counted),
            Err(error) => Err(ApiError::internal(error)),
        };
        // It has gone elsewhere meanwhile, where it is found again; or it can be asked again.
        if let Err(ApiError::Overloaded(_) | ApiError::Unconfirmed { .. }) = answer {
            return;
        }
        let Ok(told) = serde_json::to_vec(&PeerAnswer::from(answer)) else { return };
        let exchange = self.exchange.clone();
        let _ = blocking(move || exchange.answer(id, &told)).await;
    }

    /// Now and then also jobs of this server: another one may have ended them just before it had them.
    async fn follow(self) {
        let mut rounds = 0_u32;
        loop {
            sleep(FOLLOW_EVERY).await;
            rounds = rounds.wrapping_add(1);
            let is_all = rounds.is_multiple_of(ALL_EVERY);
            let elsewhere = self.notifications.followed(|job| is_all || !self.shards.has(job));
            if elsewhere.is_empty() {
                continue;
            }
            let exchange = self.exchange.clone();
            for (job, seq, ended) in
                blocking(move || exchange.ends(&elsewhere)).await.unwrap_or_default()
            {
                self.notifications.moved_on(&job, seq, ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_millisecond_sort_as_they_were_made() {
        let peers = Peers::none();
        let ids: Vec<_> = (0..10_000).map(|_| peers.new_id().unwrap()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }
}

//! What services say later of attempts they have taken: how one ended, or how far it is.
//!
//! Whoever has a token may speak for its attempt, once, while the attempt lasts. Nothing is decided
//! here: the words go to the engine, and only what it refuses is looked up in the log, to tell a word
//! said twice from one that comes too late.

mod ids;
mod signature;
mod token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use serde_json::Value;
use steadfast_core::answer::said;
use steadfast_core::decide::{Input, Refusal};
use steadfast_core::outcome::{MOST_NESTED, Outcome, nesting};
use steadfast_core::time::Timestamp;
use steadfast_engine::{Answer, Assignment, CommandError, Inbox, Reply, SendError};
use steadfast_store::Refused as NotWritten;
use tokio::sync::Mutex;

use crate::error::ApiError;
use crate::hand_over::{confirmed, hand_over};
use crate::peers::{PeerRequest, Peers};
use crate::queries::{AttemptEnd, HowEnded, JobReader};

use ids::{Begun, Ids};
pub use signature::Secrets;
pub(crate) use signature::secret;
pub(crate) use token::KEY;
pub use token::{CallbackToken, CallbackTokens};

/// How often a note is tried while the job that it is about moves on.
const NOTE_TRIES: u32 = 8;
const NOTE_PAUSE: Duration = Duration::from_millis(20);

/// Where services are told to call back.
#[derive(Clone, Debug)]
pub struct CallbackUrls {
    callback_tokens: CallbackTokens,
    /// Of this server, as others reach it.
    base: Arc<str>,
}

impl CallbackUrls {
    pub fn new(callback_tokens: CallbackTokens, base: &str) -> Self {
        Self { callback_tokens, base: base.trim_end_matches('/').into() }
    }

    pub fn of(&self, assignment: &Assignment) -> String {
        let Assignment { job, item, attempt, token, .. } = assignment;
        let callback_token =
            CallbackToken { job: job.clone(), item: *item, attempt: *attempt, token: *token };
        format!("{}/v1/callbacks/{}", self.base, self.callback_tokens.token(&callback_token))
    }
}

/// Where callbacks are taken.
#[derive(Clone)]
pub struct CallbackHandler {
    callback_tokens: CallbackTokens,
    secrets: Secrets,
    inbox: Inbox,
    reader: JobReader,
    /// Bytes of an attempt's output.
    pub(crate) output_cap: usize,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    noting: Arc<Mutex<()>>,
    ids: Ids,
    peers: Peers,
}

impl fmt::Debug for CallbackHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackHandler").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is durable, now or since the same was said before.
    Counted,
    /// What it is about was over. That it came is recorded.
    Late,
}

impl CallbackHandler {
    pub fn new(
        callback_tokens: CallbackTokens,
        secrets: Secrets,
        inbox: Inbox,
        reader: JobReader,
        output_cap: usize,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (noting, ids) = (Arc::default(), Ids::default());
        let peers = Peers::none();
        Self { callback_tokens, secrets, inbox, reader, output_cap, clock, noting, ids, peers }
    }

    /// There are other servers.
    #[must_use]
    pub(crate) fn beside(mut self, peers: Peers) -> Self {
        self.peers = peers;
        self
    }

    /// Which attempt a callback is for. Before its body is read: who has no token costs next to nothing.
    pub fn admit(&self, token: &str) -> Result<CallbackToken, ApiError> {
        self.callback_tokens.read(token).ok_or_else(|| {
            ApiError::CallbackRefused(
                "no attempt has this token: use the URL of its own request".into(),
            )
        })
    }

    pub async fn take(
        &self,
        callback_token: &CallbackToken,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Taken, ApiError> {
        let token = self.callback_tokens.token(callback_token);
        let signed = self.secrets.check(headers, &token, body, (self.clock)());
        let Some(id) = signed.map_err(ApiError::CallbackRefused)? else {
            return self.said(callback_token, body).await;
        };
        let taking = match self.ids.begin(id, (self.clock)()) {
            Begun::New(taking) => taking,
            Begun::Known(taken) => return Ok(taken),
            Begun::UnderWay => {
                let why = "a callback with this `webhook-id` is being taken this moment; try again";
                return Err(ApiError::Overloaded(why.to_owned()));
            }
        };
        let taken = self.said(callback_token, body).await?;
        taking.done(taken);
        Ok(taken)
    }

    /// Another server has taken it, and this one has the job.
    pub(crate) async fn forwarded(&self, token: &str, body: &str) -> Result<Taken, ApiError> {
        self.said_here(&self.admit(token)?, body.as_bytes()).await
    }

    /// The server that has the job takes it.
    async fn said(&self, callback_token: &CallbackToken, body: &[u8]) -> Result<Taken, ApiError> {
        let job = &callback_token.job;
        if !self.peers.have(job) {
            match self.said_here(callback_token, body).await {
                Err(ApiError::Overloaded(_)) if self.peers.have(job) => {}
                said => return said,
            }
        }
        let body = str::from_utf8(body)
            .map_err(|error| ApiError::BadRequest(format!("a callback is JSON: {error}")))?;
        let token = self.callback_tokens.token(callback_token);
        self.peers.ask(job, &PeerRequest::Callback { token, body: body.to_owned() }).await
    }

    async fn said_here(
        &self,
        callback_token: &CallbackToken,
        body: &[u8],
    ) -> Result<Taken, ApiError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::BadRequest(format!("a callback is JSON: {error}")))?;
        if nesting(&body) > MOST_NESTED {
            let why = format!("the body is nested deeper than {MOST_NESTED} levels");
            return Err(ApiError::BadRequest(why));
        }
        match (said(&body), body.get("progress")) {
            (Some(outcome), _) => self.ended(callback_token, outcome.within(self.output_cap)).await,
            (None, Some(progress)) => self.progressed(callback_token, progress).await,
            (None, None) => Err(ApiError::BadRequest(
                "a callback says `\"success\": true` or `false`, or how far it is in `progress`"
                    .to_owned(),
            )),
        }
    }

    async fn ended(
        &self,
        callback_token: &CallbackToken,
        outcome: Outcome,
    ) -> Result<Taken, ApiError> {
        let CallbackToken { item, attempt, token, .. } = *callback_token;
        let input = Input::Callback { item, token, outcome: outcome.clone() };
        match self.send(|reply| self.inbox.send(&callback_token.job, input.clone(), reply)).await? {
            Ok(()) => return Ok(Taken::Counted),
            Err(
                CommandError::Refused(Refusal::StaleFence)
                | CommandError::Unknown(_)
                | CommandError::Taken { why: NotWritten::Conflict { .. }, .. },
            ) => {}
            Err(why) => return Err(why.into()),
        }
        let refused =
            |why: &str| ApiError::CallbackRefused(format!("attempt {attempt} is over: {why}"));
        let end = self.reader.attempt_end(&callback_token.job, item, attempt).await?;
        match &end.how {
            HowEnded::ByCallback(before) if *before == outcome => return Ok(Taken::Counted),
            HowEnded::TimedOut => return Err(refused("it was not called back in time")),
            HowEnded::ByCallback(_) if end.item_goes_on => {
                return Err(refused("something else was said of it before"));
            }
            HowEnded::Otherwise if end.item_goes_on => {
                return Err(refused("the item goes on without it"));
            }
            HowEnded::ByCallback(_) | HowEnded::Otherwise => {}
        }
        let (callbacks, callback_token) = (self.clone(), callback_token.clone());
        let late = Input::LateCallback { item, attempt, outcome };
        // Apart, because who hangs up meanwhile must not end the turn before its word is stored.
        let noting = tokio::spawn(async move { callbacks.note(&callback_token, late, end).await });
        noting.await.map_err(|error| ApiError::Internal(error.to_string()))??;
        Ok(Taken::Late)
    }

    /// Once, however often it is said.
    async fn note(
        &self,
        callback_token: &CallbackToken,
        late: Input,
        end: AttemptEnd,
    ) -> Result<(), ApiError> {
        // One at a time: the state that a note is added to must be the last one.
        let _turn = self.noting.lock().await;
        // Of a job that is over, the store refuses what is added to an earlier state.
        let mut known = Some(end).filter(|end| end.ended.is_some());
        for _ in 0..NOTE_TRIES {
            let end = match known.take() {
                Some(end) => end,
                None => {
                    self.reader
                        .attempt_end(
                            &callback_token.job,
                            callback_token.item,
                            callback_token.attempt,
                        )
                        .await?
                }
            };
            if end.noted {
                return Ok(());
            }
            let noted = match end.ended {
                Some(job) => {
                    self.send(|reply| self.inbox.note(job.clone(), late.clone(), reply)).await?
                }
                None => {
                    self.send(|reply| self.inbox.send(&callback_token.job, late.clone(), reply))
                        .await?
                }
            };
            match noted {
                // It has ended this very moment, or there was another note.
                Err(
                    CommandError::Unknown(_)
                    | CommandError::Taken { why: NotWritten::Conflict { .. }, .. },
                ) => {
                    tokio::time::sleep(NOTE_PAUSE).await;
                }
                noted => return Ok(noted?),
            }
        }
        // A local `run` has it, and listens on a port of its own.
        Err(ApiError::NotPossible(format!("job {} is not run by this server", callback_token.job)))
    }

    async fn progressed(
        &self,
        callback_token: &CallbackToken,
        progress: &Value,
    ) -> Result<Taken, ApiError> {
        let text = progress.to_string();
        let Some(progress) = steadfast_api::progress(text.as_bytes()) else {
            let most = steadfast_api::LONGEST_PROGRESS;
            return Err(ApiError::TooLarge(format!("`progress` has at most {most} bytes")));
        };
        let input = Input::Progress {
            item: callback_token.item,
            token: callback_token.token,
            progress,
            by_callback: true,
        };
        match self.send(|reply| self.inbox.send(&callback_token.job, input.clone(), reply)).await? {
            Ok(()) => Ok(Taken::Counted),
            Err(CommandError::Refused(why @ Refusal::TooOften(_))) => {
                Err(ApiError::TooOften(why.to_string()))
            }
            Err(CommandError::Refused(Refusal::StaleFence) | CommandError::Unknown(_)) => Err(
                ApiError::CallbackRefused(format!("attempt {} is over", callback_token.attempt)),
            ),
            Err(why) => Err(why.into()),
        }
    }

    /// Answered when what it came to is durable. Said again, the answer is the same, so a store that stalls is told
    /// by 503 like an engine without room.
    async fn send(
        &self,
        send: impl FnMut(Reply<Answer>) -> Result<(), SendError>,
    ) -> Result<Answer, ApiError> {
        let confirmation = hand_over(send).await?;
        confirmed(confirmation).await.ok_or_else(|| {
            ApiError::Overloaded("the store has not confirmed it yet; send it again".to_owned())
        })
    }
}

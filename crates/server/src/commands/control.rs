//! Cancel, pause, resume: done by the server that has the job, whichever is asked.

use steadfast_core::decide::{Input, Refusal};
use steadfast_core::event::{JobId, JobState, Requester};
use steadfast_engine::CommandError;
use steadfast_store::Refused as NotWritten;

use super::JobCommands;
use crate::error::ApiError;
use crate::hand_over::{confirmed, hand_over};
use crate::peers::PeerRequest;
use crate::queries::job_id;

impl JobCommands {
    pub async fn cancel(&self, id: &str, requested: Requester) -> Result<(), ApiError> {
        self.command(id, PeerRequest::Cancel(requested)).await
    }

    pub async fn pause(&self, id: &str, requested: Requester) -> Result<(), ApiError> {
        self.command(id, PeerRequest::Pause(requested)).await
    }

    pub async fn resume(&self, id: &str, requested: Requester) -> Result<(), ApiError> {
        self.command(id, PeerRequest::Resume(requested)).await
    }

    /// Another server was asked, and this one has the job.
    pub(crate) async fn forwarded(&self, id: &JobId, asked: PeerRequest) -> Result<(), ApiError> {
        match self.command_here(id, asked).await? {
            Some(()) => Ok(()),
            None => Err(ApiError::Overloaded(format!("another server has job {id} now"))),
        }
    }

    /// The server that has the job does it.
    async fn command(&self, id: &str, asked: PeerRequest) -> Result<(), ApiError> {
        let id = job_id(id)?;
        self.health.takes_commands()?;
        if !self.peers.have(&id)
            && let Some(()) = self.command_here(&id, asked.clone()).await?
        {
            return Ok(());
        }
        // Of a job that does not exist there is nobody to ask.
        let row = self.reader.row(&id).await?;
        if row.local {
            return Err(of_run(id, row.state));
        }
        self.peers.ask(&id, &asked).await?;
        Ok(())
    }

    /// None: another server has it.
    async fn command_here(&self, id: &JobId, asked: PeerRequest) -> Result<Option<()>, ApiError> {
        // A job that is in this state already needs nothing.
        let (input, wanted) = match asked {
            PeerRequest::Cancel(requested) => (Input::Cancel(requested), JobState::Cancelled),
            PeerRequest::Pause(requested) => (Input::Pause(requested), JobState::Paused),
            PeerRequest::Resume(requested) => (Input::Resume(requested), JobState::Running),
            PeerRequest::Callback { .. } => {
                return Err(ApiError::internal("a callback is no command"));
            }
        };
        let id = id.clone();
        let send = |reply| self.inbox.send(&id, input.clone(), reply);
        let confirmation = hand_over(send).await?;
        let Some(answer) = confirmed(confirmation).await else {
            return Err(ApiError::Unconfirmed { job: id });
        };
        match answer {
            Ok(()) | Err(CommandError::Refused(Refusal::AlreadyPaused | Refusal::NotPaused)) => {
                Ok(Some(()))
            }
            Err(CommandError::Elsewhere { .. }) => Ok(None),
            Err(CommandError::Taken { why, .. }) if is_elsewhere(&why) => Ok(None),
            Err(CommandError::Unknown(_) | CommandError::Refused(Refusal::Ended)) => {
                let row = self.reader.row(&id).await?;
                if let Some(why) = self.reader.damage(&id).await? {
                    Err(ApiError::Stuck { job: id, why })
                } else if row.state == wanted && !row.local {
                    Ok(Some(()))
                } else {
                    Err(of_run(id, row.state))
                }
            }
            Err(why) => Err(why.into()),
        }
    }
}

/// A `run` has it, and is asked where it is.
pub(super) fn of_run(job: JobId, state: JobState) -> ApiError {
    if state.is_terminal() {
        return ApiError::AlreadyEnded { job, state };
    }
    ApiError::NotPossible(format!(
        "job {job} was begun by `steadfast run` and is not this server's; give --data DIR, its data folder, or --store \
         URL, its database, instead of --server"
    ))
}

/// Another server has it.
fn is_elsewhere(why: &NotWritten) -> bool {
    matches!(why, NotWritten::NotOurs { .. } | NotWritten::Fenced { .. })
}

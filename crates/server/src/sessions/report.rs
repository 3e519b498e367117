//! What workers say of attempts, on its way to the engine and back.

use proto::to_worker::Kind as OutgoingStream;
use steadfast_api::{WorkerReport, proto};
use steadfast_core::decide::Input;
use steadfast_core::event::{AttemptId, JobId};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_engine::{Answer, CommandError, SendError};
use tonic::Status;

use super::session::{Peer, WorkerSessions};
use crate::observability::{Rejected, SessionEnd};

impl WorkerSessions {
    /// Acknowledged when it is durable, or refused as stale.
    pub(super) fn report(&self, peer: &Peer, report: proto::Report) -> Result<(), SendError> {
        let Some(attempt) = report.attempt.clone() else { return Ok(()) };
        if !self.registry.is_assigned_to(&attempt, peer) {
            self.registry.refuse_report(peer, attempt);
            return Ok(());
        }
        if report.log_follows {
            self.registry.expect_log(&attempt);
        }
        let most = self.registry.0.rules.output_cap;
        let (item, token) = (attempt.item(), attempt.token);
        let ended = |outcome| Input::Report { item, token, outcome };
        let input = match steadfast_api::from_report(report) {
            Ok((_, WorkerReport::Ended(outcome))) => ended(outcome.within(most)),
            Ok((_, WorkerReport::AwaitsCallback)) => Input::Awaits { item, token },
            // Sent again it would be the same: the attempt must not wait for it for ever.
            Err(malformed) => ended(Outcome::Failed(Failure {
                error: Some(ErrorText {
                    kind: Some("malformed_report".to_owned()),
                    message: format!("worker {}: {malformed}", peer.name),
                }),
                ..Failure::new(FailureKind::NotCompleted)
            })),
        };
        let job: JobId = attempt.job_id.as_str().into();
        let (registry, peer) = (self.registry.clone(), peer.clone());
        let key = AttemptId::new(job.clone(), token);
        let reply = Box::new(move |answer: Answer| {
            // The worker keeps it, for the server that has the job.
            if let Err(CommandError::Elsewhere { .. }) = &answer {
                return;
            }
            if let Err(why) = &answer {
                registry.0.parts.watch.attempt_rejected(&Rejected {
                    job: &key.job,
                    item: &format!("{}/{}[{}]", attempt.run, attempt.step, attempt.index),
                    attempt: Some(attempt.attempt),
                    token,
                    worker: &peer.name,
                    reason: &why.to_string(),
                });
            }
            // Acknowledged it would be gone, and the attempt run again by a worker that no longer knows of it.
            if let Err(why) = &answer
                && !is_final(why)
            {
                let why = format!("{why}; send what is not acknowledged again");
                return registry.end(&peer, SessionEnd::Overflow, Status::unavailable(why));
            }
            if let Some(session) = registry.sessions().get_mut(&peer.name) {
                session.held.remove(&key);
            }
            let counted = answer.is_ok();
            let kind = proto::Acknowledgement { attempt: Some(attempt), counted };
            registry.say(&peer, OutgoingStream::Acknowledgement(kind));
        });
        self.inbox.send(&job, input, reply)
    }

    /// Not acknowledged: the next one says more.
    pub(super) fn progress(&self, peer: &Peer, progress: proto::Progress) -> Result<(), SendError> {
        let Some(attempt) = progress.attempt else { return Ok(()) };
        let job: JobId = attempt.job_id.as_str().into();
        let key = attempt.id();
        let is_its = self.registry.is_assigned_to(&attempt, peer)
            && self.registry.sessions().get(&peer.name).is_some_and(|it| it.held.contains(&key));
        if let Some(progress) = steadfast_api::progress(progress.progress_json.as_bytes())
            && is_its
        {
            let (item, token) = (attempt.item(), attempt.token);
            let input = Input::Progress { item, token, progress, by_callback: false };
            return self.inbox.send(&job, input, Box::new(|_| ()));
        }
        Ok(())
    }
}

/// Said of a report: sent again, it would be told the same.
fn is_final(why: &CommandError) -> bool {
    match why {
        CommandError::Unknown(_) | CommandError::Refused(_) | CommandError::Stuck { .. } => true,
        CommandError::Taken { .. }
        | CommandError::Elsewhere { .. }
        | CommandError::Unavailable(_)
        | CommandError::Stopped => false,
    }
}

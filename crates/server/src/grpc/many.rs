//! Many jobs in one stream: each is answered for itself, in order.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use prost::Message as _;
use steadfast_api::proto;
use tonic::Status;

use super::{JobsService, warned};
use crate::commands::{AT_ONCE, Submitted};
use crate::error::ApiError;

/// Answers that are sent together, if they are there.
const TOLD_TOGETHER: usize = 256;

type Answer = Result<proto::NewJobResult, Status>;
type MessageResult = Result<proto::SubmitJobsResponse, Status>;

pub(super) fn answers(
    service: JobsService,
    messages: impl Stream<Item = Result<proto::SubmitJobsRequest, Status>> + Send,
) -> impl Stream<Item = MessageResult> + Send {
    let service = Arc::new(service);
    let commands = service.commands.clone();
    let jobs = messages.and_then(move |message| {
        let commands = commands.clone();
        async move {
            let room = Arc::new(commands.room_for_many(message.encoded_len()).await?);
            Ok(stream::iter(message.jobs).map(move |job| Ok((job, room.clone()))))
        }
    });
    let results = jobs.try_flatten().map(move |job: Result<_, Status>| {
        let service = service.clone();
        async move {
            let (job, _until_it_is_answered) = job?;
            Ok(service.take_one_of_many(job).await)
        }
    });
    results.buffered(AT_ONCE).ready_chunks(TOLD_TOGETHER).flat_map(|some| stream::iter(told(some)))
}

/// What was answered before the stream broke is told before that.
fn told(answers: Vec<Answer>) -> impl Iterator<Item = MessageResult> {
    let (mut results, mut broken) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(result) => results.push(result),
            Err(status) => broken = Some(status),
        }
    }
    let results = (!results.is_empty()).then_some(proto::SubmitJobsResponse { results });
    results.map(Ok).into_iter().chain(broken.map(Err))
}

impl JobsService {
    async fn take_one_of_many(&self, job: proto::NewJob) -> proto::NewJobResult {
        let taken = match self.commands.new_id() {
            Ok(id) => self.take(id, job).await,
            Err(why) => Err(why),
        };
        match taken {
            Ok(Submitted { id, existing, warnings }) => proto::NewJobResult {
                job_id: id.to_string(),
                existing,
                warnings: warned(warnings),
                refusal: None,
            },
            Err(why) => {
                let job_id = match &why {
                    ApiError::Unconfirmed { job } => job.to_string(),
                    _ => String::new(),
                };
                let status = Status::from(why);
                let (code, message) = (status.code().into(), status.message().to_owned());
                let refusal = Some(proto::Refusal { code, message });
                proto::NewJobResult { job_id, refusal, ..proto::NewJobResult::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_is_told_before_the_end_of_a_broken_stream() {
        let result = |id: &str| proto::NewJobResult { job_id: id.to_owned(), ..Default::default() };
        let ids = |told: MessageResult| match told {
            Ok(told) => told.results.into_iter().map(|it| it.job_id).collect::<Vec<_>>().join(" "),
            Err(status) => status.message().to_owned(),
        };
        let all = |answers| told(answers).map(ids).collect::<Vec<_>>();
        assert_eq!(all(vec![Ok(result("a")), Ok(result("b"))]), ["a b"]);
        let broken = || Err(Status::unauthenticated("revoked"));
        assert_eq!(all(vec![Ok(result("a")), broken()]), ["a", "revoked"]);
        assert_eq!(all(vec![broken()]), ["revoked"]);
    }
}

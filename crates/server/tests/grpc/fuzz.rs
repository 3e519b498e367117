//! Whatever a message holds: it is taken, or refused as the caller's mistake, and the server goes on.

use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _, Bytes};
use steadfast_api::proto::{
    AttachedFile, GetJobStatusRequest, LaunchJobRequest, ListJobsRequest, ResourceSpec,
    RetryConfig, SubmitJobRequest, TerminateJobRequest,
};
use steadfast_engine::Slots;
use steadfast_fuzz::{Fuzz, Random, Shape};
use steadfast_jobfile::fluster::FlusterDefaults;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

use super::place::{Place, request};

/// Messages as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

const METHODS: [&str; 5] = ["LaunchJob", "SubmitJob", "GetJobStatus", "ListJobs", "TerminateJob"];

fn messages() -> Vec<Vec<u8>> {
    let retry = RetryConfig {
        max_retries_failure: Some(3),
        initial_retry_delay_ms: Some(1),
        ..RetryConfig::default()
    };
    let resources = ResourceSpec::default();
    let launch =
        LaunchJobRequest { retry: Some(retry), resources: Some(resources), ..request(&["never"]) };
    let files = vec![AttachedFile { path: "a.txt".to_owned(), ..AttachedFile::default() }];
    let file = "name: j\nfiles: [a.txt]\nsteps: { a: { run: never } }".to_owned();
    let submit = SubmitJobRequest { file, files, ..SubmitJobRequest::default() };
    let job_id = "01k".to_owned();
    vec![
        launch.encode_to_vec(),
        submit.encode_to_vec(),
        GetJobStatusRequest { job_id: job_id.clone() }.encode_to_vec(),
        ListJobsRequest::default().encode_to_vec(),
        TerminateJobRequest { job_id, reason: "enough".to_owned() }.encode_to_vec(),
    ]
}

#[test]
fn messages_are_taken_or_refused_as_the_callers_mistake() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // One job keeps the only slot, so that its worker need not understand the others.
    let mut place = runtime.block_on(Place::with(FlusterDefaults::default(), Slots::shared(1)));
    runtime.block_on(place.launch(&["never"], RetryConfig::default()));
    let mut client = tonic::client::Grpc::new(place.channel.clone());
    Fuzz::new(Shape::Message, 1500).corpus(messages()).words(["name: j\nsteps: {}"]).run(
        |message| {
            let sum = message.iter().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte));
            let method = Random::new(sum).pick(&METHODS).copied().expect("some");
            let path = format!("/steadfast.v1.Jobs/{method}").parse().expect("a path");
            let message = Bytes::copy_from_slice(message);
            let answer = runtime.block_on(async {
                client.ready().await.expect("the server is there");
                client.unary(Request::new(message), path, Plain).await
            });
            if let Err(status) = answer {
                // Not one of those that say that the server is wrong. A message that is none is `Internal` to tonic.
                let is_none = status.message().contains("failed to decode Protobuf message");
                let is_mistake = matches!(
                    status.code(),
                    Code::InvalidArgument
                        | Code::NotFound
                        | Code::AlreadyExists
                        | Code::FailedPrecondition
                        | Code::OutOfRange
                        | Code::ResourceExhausted
                        | Code::Unimplemented
                );
                assert!(is_mistake || is_none, "{method}: {status:?}");
                assert!(!status.message().is_empty(), "{method}: {status:?}");
            }
        },
    );
    runtime.block_on(place.jobs.list_jobs(ListJobsRequest::default())).expect("it goes on");
}

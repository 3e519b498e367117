//! The cases of the Fluster document, by its own calls.

use rustix::process::Signal;
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_api::proto::{
    Entrypoint, GetJobStatusRequest, JobAttempt, JobState, JobStatus, LaunchJobRequest,
    RetryConfig, TerminateJobRequest, WatchJobRequest, entrypoint,
};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::harness::{Place, Server, gated, wait_for};

struct Jobs {
    runtime: Runtime,
    client: JobsClient<Channel>,
}

impl Jobs {
    fn of(server: &Server) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(JobsClient::connect(server.url())).expect("a connection");
        Self { runtime, client }
    }

    fn launch(&mut self, script: &str, retry: RetryConfig) -> String {
        let request = LaunchJobRequest {
            name: "by fluster".to_owned(),
            entrypoint: Some(Entrypoint {
                kind: Some(entrypoint::Kind::Script(script.to_owned())),
            }),
            retry: Some(retry),
            ..LaunchJobRequest::default()
        };
        let launched = self.runtime.block_on(self.client.launch_job(request)).expect("launched");
        launched.into_inner().job_id
    }

    fn status(&mut self, job: &str) -> JobStatus {
        let request = GetJobStatusRequest { job_id: job.to_owned() };
        let status = self.runtime.block_on(self.client.get_job_status(request)).expect("a status");
        status.into_inner().job.expect("the job")
    }

    /// What watching says last.
    fn end(&mut self, job: &str) -> JobStatus {
        let request = WatchJobRequest { job_id: job.to_owned(), end_only: false };
        self.runtime.block_on(async {
            let watching = self.client.watch_job(request).await.expect("a stream");
            let mut watching = watching.into_inner();
            let mut last = None;
            while let Some(status) = watching.message().await.expect("it goes on") {
                last = Some(status);
            }
            last.expect("at least one")
        })
    }
}

/// Fails as often as told, counted outside.
fn fails(place: &Place, times: u32, code: u32) -> String {
    let ran = place.text("ran");
    format!("echo $FLUSTER_ATTEMPT_ID >> {ran}; [ $(wc -l < {ran}) -gt {times} ] || exit {code}")
}

#[test]
fn failures_are_retried_up_to_the_limit_and_told_with_their_attempts() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let mut jobs = Jobs::of(&server);
    let retry = RetryConfig {
        max_retries_failure: Some(2),
        initial_retry_delay_ms: Some(20),
        ..RetryConfig::default()
    };
    let folders = place.text("folders");
    let job = jobs.launch(&format!("pwd >> {folders}; {}", fails(&place, 2, 3)), retry.clone());
    let status = jobs.end(&job);
    // As Fluster calls them, counted from 1.
    let named = |folder: &String| folder.rsplit('/').next().unwrap_or_default().to_owned();
    let folders: Vec<String> = place.lines("folders").iter().map(named).collect();
    assert_eq!(folders, [1, 2, 3].map(|attempt| format!("{job}_attempt_{attempt}")));
    assert_eq!(status.state(), JobState::Succeeded, "{status:#?}");
    assert_eq!((status.failure_count, status.preemption_count), (2, 0));
    assert_eq!((status.max_retries_failure, status.max_retries_preemption), (2, 100));
    assert_eq!(status.current_attempt_id, 2);
    let ids: Vec<i32> = status.attempts.iter().map(|attempt| attempt.attempt_id).collect();
    assert_eq!(ids, [0, 1, 2]);
    assert_eq!(status.attempts[0].exit_code, Some(3));
    assert_eq!(place.lines("ran"), ["0", "1", "2"]);

    let job = jobs.launch("exit 4", retry);
    let status = jobs.end(&job);
    assert_eq!(status.state(), JobState::Failed, "{status:#?}");
    assert_eq!((status.failure_count, status.attempts.len()), (3, 3));
    assert_eq!(status.reason, "attempts_exhausted");

    // Without a word nothing is tried again.
    let job = jobs.launch("exit 4", RetryConfig::default());
    assert_eq!(jobs.end(&job).attempts.len(), 1);
}

#[test]
fn exit_codes_decide_which_failures_are_tried_again() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let mut jobs = Jobs::of(&server);
    let retry = |only: &[i32], never: &[i32]| RetryConfig {
        max_retries_failure: Some(1),
        initial_retry_delay_ms: Some(10),
        retry_on_exit_codes: only.to_vec(),
        no_retry_on_exit_codes: never.to_vec(),
        ..RetryConfig::default()
    };
    let cases = [(retry(&[7], &[]), 2), (retry(&[8], &[]), 1), (retry(&[], &[7]), 1)];
    for (retry, attempts) in cases {
        let job = jobs.launch("exit 7", retry.clone());
        assert_eq!(jobs.end(&job).attempts.len(), attempts, "{retry:?}");
    }
}

#[test]
fn a_lost_worker_is_a_preemption_and_one_too_many_is_a_worker_failure() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let mut jobs = Jobs::of(&server);
    let retry = RetryConfig { max_retries_preemption: Some(1), ..RetryConfig::default() };
    let job = jobs.launch(&gated(&place, "gate"), retry);
    let first = place.worker(&server.url(), "w1").start();
    place.has_lines("ran", 1);
    first.kill();
    let waits = wait_for("the loss", || {
        let status = jobs.status(&job);
        (status.preemption_count == 1).then_some(status)
    });
    assert_eq!(waits.state(), JobState::Pending, "nobody has it: {waits:#?}");
    let mut second = place.worker(&server.url(), "w2").start();
    place.has_lines("ran", 2);
    let status = jobs.status(&job);
    assert_eq!(status.state(), JobState::Running, "{status:#?}");
    assert_eq!((status.failure_count, status.preemption_count), (0, 1));
    assert_eq!((status.worker_id.as_str(), status.current_attempt_id), ("w2", 1));
    assert!(status.attempts[0].is_worker_failure && !status.attempts[1].is_worker_failure);
    second.signal(Signal::TERM);
    assert!(second.ends().success());
    let status = jobs.end(&job);
    assert_eq!(status.state(), JobState::WorkerFailed, "{status:#?}");
    // The one that was too many counts.
    assert_eq!((status.failure_count, status.preemption_count), (0, 2));
    let lost = [JobState::WorkerFailed; 2];
    assert_eq!(status.attempts.iter().map(JobAttempt::state).collect::<Vec<_>>(), lost);
}

#[test]
fn a_killed_job_is_never_tried_again() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let mut jobs = Jobs::of(&server);
    let retry = RetryConfig { max_retries_failure: Some(5), ..RetryConfig::default() };
    let job = jobs.launch(&gated(&place, "gate"), retry);
    place.has_lines("ran", 1);
    let request = TerminateJobRequest { job_id: job.clone(), reason: String::new() };
    jobs.runtime.block_on(jobs.client.terminate_job(request)).expect("terminated");
    let status = jobs.end(&job);
    assert_eq!(status.state(), JobState::Killed, "{status:#?}");
    assert_eq!((status.failure_count, status.attempts.len()), (0, 1));
    assert_eq!(status.attempts[0].state(), JobState::Killed);
    wait_for("a free slot", || server.worker("w1").filter(|worker| worker["busy"] == 0));
    assert_eq!(place.lines("ran").len(), 1);
}

//! The Jobs service as a client sees it: first what Fluster's document asks of it, then the rest.

mod fuzz;
mod many;
mod place;
mod reflection;
mod run;

use place::{Place, request, request as request_of};
use steadfast_api::proto::{
    AttachedFile, JobState, JobStatus, LaunchJobRequest, ListJobsRequest, ListJobsResponse,
    ResourceSpec, RetryConfig, SubmitJobRequest, TerminateJobRequest, WatchJobRequest,
};
use steadfast_engine::Slots;
use steadfast_jobfile::Operator;
use steadfast_jobfile::fluster::FlusterDefaults;
use tonic::Code;

fn retries(max_retries_failure: i32) -> RetryConfig {
    RetryConfig {
        max_retries_failure: Some(max_retries_failure),
        initial_retry_delay_ms: Some(1),
        ..RetryConfig::default()
    }
}

fn ids(status: &JobStatus) -> Vec<i32> {
    status.attempts.iter().map(|attempt| attempt.attempt_id).collect()
}

fn states(status: &JobStatus) -> Vec<JobState> {
    status.attempts.iter().map(steadfast_api::proto::JobAttempt::state).collect()
}

async fn terminate(place: &mut Place, job: &str) -> Result<(), tonic::Status> {
    let request = TerminateJobRequest { job_id: job.to_owned(), reason: String::new() };
    place.jobs.terminate_job(request).await.map(drop)
}

#[tokio::test]
async fn what_surprises_is_told_with_the_servers_numbers_and_an_end_with_its_reason() {
    let mut operator = Operator { budget_required: true, ..Operator::default() };
    operator.budget_total.max = 7;
    let mut place = Place::of(operator, FlusterDefaults::default(), Slots::unlimited()).await;
    let file = "name: j\nretry_budget: { total: 500 }\nsteps: { a: { run: never } }".to_owned();
    let request = SubmitJobRequest { file, ..SubmitJobRequest::default() };
    let submitted = place.jobs.submit_job(request).await.expect("taken").into_inner();
    let clamped = submitted.warnings.iter().find(|warning| warning.code == "budget_clamped");
    let clamped = clamped.unwrap_or_else(|| panic!("{:?}", submitted.warnings));
    assert_eq!((clamped.path.as_str(), clamped.line), ("retry_budget.total", 2));
    assert!(clamped.message.contains("leaves 7"), "{}", clamped.message);

    // The operator gives every job 3 retries for a step: more cannot be had.
    let launch = LaunchJobRequest { retry: Some(retries(10)), ..request_of(&["never"]) };
    let launched = place.jobs.launch_job(launch).await.expect("taken").into_inner();
    let [warning] = launched.warnings.as_slice() else { panic!("{:?}", launched.warnings) };
    assert_eq!(warning.code, "attempts_unreachable");
    assert_eq!(warning.path, "retry.max_retries_failure");
    assert!(warning.message.contains("10 retries") && warning.message.ends_with("leaves 3"));

    let reason = "x".repeat(501);
    let request = TerminateJobRequest { job_id: launched.job_id.clone(), reason };
    let refused = place.jobs.terminate_job(request).await.expect_err("too long");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let reason = "wrong input".to_owned();
    let request = TerminateJobRequest { job_id: launched.job_id.clone(), reason };
    place.jobs.terminate_job(request).await.expect("ended");
    let end = place.end(&launched.job_id).await;
    let all: serde_json::Value = serde_json::from_str(&end.status_json).expect("JSON");
    assert_eq!(all["cancel_request"]["reason"], "wrong input");
}

#[tokio::test]
async fn a_job_that_fails_and_then_succeeds_has_succeeded_after_its_delays() {
    let mut place = Place::new().await;
    let retry = RetryConfig {
        initial_retry_delay_ms: Some(40),
        max_retry_delay_ms: Some(60),
        ..retries(5)
    };
    let job = place.launch(&["exit:1", "exit:3", "exit:1", r#"ok={"a":1}"#], retry).await;
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.reason.as_str()), (JobState::Succeeded, ""));
    assert_eq!((end.failure_count, end.preemption_count), (3, 0));
    assert_eq!((end.max_retries_failure, end.max_retries_preemption), (5, 100));
    assert_eq!((ids(&end), end.current_attempt_id), (vec![0, 1, 2, 3], 3));
    let codes: Vec<_> = end.attempts.iter().map(|attempt| attempt.exit_code).collect();
    assert_eq!(codes, [Some(1), Some(3), Some(1), Some(0)]);
    let waited: Vec<i64> = (end.attempts.windows(2))
        .map(|pair| pair[1].started_at_ms - pair[0].finished_at_ms)
        .collect();
    assert!(waited[0] >= 40 && waited[1] >= 60 && waited[2] >= 60, "{waited:?}");
    assert!(waited[2] < 20_000, "{waited:?}");
    assert_eq!((end.exit_code, end.error.as_str()), (Some(0), ""));
    assert_eq!((end.output_json.as_str(), end.worker_id.as_str()), (r#"{"a":1}"#, ""));
    assert_eq!(end.started_at_ms, end.attempts[0].started_at_ms);
    assert!(end.submitted_at_ms <= end.started_at_ms && end.started_at_ms <= end.finished_at_ms);
    let all: serde_json::Value = serde_json::from_str(&end.status_json).expect("JSON");
    let item = &all["runs"][0]["steps"]["main"]["items"][0];
    assert_eq!((&all["id"], &item["failures"]), (&job.into(), &3.into()));
    assert_eq!(item["attempts"][3]["exit_code"], 0);
    assert!(all.get("plan").is_none() && all.get("totals").is_none(), "{all}");
}

#[tokio::test]
async fn a_job_that_exceeds_its_limit_has_failed() {
    let mut place = Place::new().await;
    let job = place.launch(&["exit:1", "exit:7"], retries(2)).await;
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.reason.as_str()), (JobState::Failed, "attempts_exhausted"));
    assert_eq!((end.failure_count, ids(&end)), (3, vec![0, 1, 2]));
    assert_eq!(end.exit_code, Some(7));
    assert!(end.error.contains('7'), "{}", end.error);
    assert_eq!(end.retry_available_at_ms, 0);
}

#[tokio::test]
async fn exit_codes_decide_what_is_retried() {
    let mut place = Place::new().await;
    let only = |codes: &[i32]| RetryConfig { retry_on_exit_codes: codes.to_vec(), ..retries(3) };
    let job = place.launch(&["exit:1"], only(&[137, 139])).await;
    let end = place.end(&job).await;
    assert_eq!((end.reason.as_str(), end.failure_count), ("exit_code_not_listed", 1));

    let job = place.launch(&["signal:9", "exit:139", "ok"], only(&[137, 139])).await;
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.failure_count), (JobState::Succeeded, 2));
    assert_eq!((end.attempts[0].signal, end.attempts[0].exit_code), (Some(9), Some(137)));
    assert_eq!(states(&end), [JobState::Failed, JobState::Failed, JobState::Succeeded]);

    let job = place.launch(&["signal:11"], retries(0)).await;
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.exit_code), (JobState::Failed, Some(139)));

    let never = RetryConfig { no_retry_on_exit_codes: vec![1], ..only(&[1, 2]) };
    let job = place.launch(&["exit:2", "exit:1"], never).await;
    let end = place.end(&job).await;
    assert_eq!((end.reason.as_str(), end.failure_count), ("exit_code_excluded", 2));
}

#[tokio::test]
async fn a_killed_job_is_never_retried() {
    let mut place = Place::new().await;
    let retry = RetryConfig { initial_retry_delay_ms: Some(3_600_000), ..retries(5) };
    let job = place.launch(&["exit:1"], retry).await;
    let seen = place.watch_until(&job, |status| status.retry_available_at_ms > 0).await;
    let waiting = seen.last().expect("at least one");
    let due = waiting.attempts[0].finished_at_ms + 3_600_000;
    assert_eq!((waiting.state(), waiting.retry_available_at_ms), (JobState::Pending, due));
    assert!(waiting.error.contains("exit code 1"), "{}", waiting.error);
    terminate(&mut place, &job).await.expect("killed");
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.reason.as_str()), (JobState::Killed, "cancelled"));
    assert_eq!((ids(&end), end.retry_available_at_ms), (vec![0], 0));
    terminate(&mut place, &job).await.expect("as wished already");
}

#[tokio::test]
async fn a_running_attempt_is_killed_with_its_job() {
    let mut place = Place::new().await;
    let job = place.launch(&["never"], retries(5)).await;
    let seen = place.watch_until(&job, |status| !status.attempts.is_empty()).await;
    let running = seen.last().expect("at least one");
    assert_eq!((running.worker_id.as_str(), running.state()), ("w1", JobState::Running));
    assert_eq!(states(running), [JobState::Running]);
    terminate(&mut place, &job).await.expect("killed");
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.attempts[0].state()), (JobState::Killed, JobState::Killed));
    assert_eq!(end.attempts[0].outcome, "killed");
}

#[tokio::test]
async fn a_job_that_has_ended_stays_what_it_is() {
    let mut place = Place::new().await;
    let job = place.launch(&["ok"], retries(0)).await;
    place.end(&job).await;
    let refused = terminate(&mut place, &job).await.expect_err("it has ended");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("succeeded"), "{refused}");
    let unknown = terminate(&mut place, "nobody").await.expect_err("unknown");
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn losses_of_the_worker_are_counted_apart() {
    let mut place = Place::new().await;
    let retry = RetryConfig { max_retries_preemption: Some(2), ..retries(1) };
    let job = place.launch(&["lost", "exit:1", "lost", "ok"], retry.clone()).await;
    let end = place.end(&job).await;
    assert_eq!(end.state(), JobState::Succeeded);
    assert_eq!((end.failure_count, end.preemption_count), (1, 2));
    let lost: Vec<bool> = end.attempts.iter().map(|attempt| attempt.is_worker_failure).collect();
    assert_eq!(lost, [true, false, true, false]);
    let (lost, failed) = (JobState::WorkerFailed, JobState::Failed);
    assert_eq!(states(&end), [lost, failed, lost, JobState::Succeeded]);

    let job = place.launch(&["lost"], retry).await;
    let end = place.end(&job).await;
    assert_eq!(
        (end.state(), end.reason.as_str()),
        (JobState::WorkerFailed, "preemptions_exhausted")
    );
    // The last one too.
    assert_eq!((end.failure_count, end.preemption_count, end.attempts.len()), (0, 3, 3));
    assert_eq!((end.exit_code, end.error.as_str()), (None, "the worker was lost"));
}

#[tokio::test]
async fn what_is_unset_has_the_operators_default_and_zero_is_zero() {
    let defaults =
        FlusterDefaults { max_retries_failure: 2, max_retries_preemption: 7, retry_delay_ms: 1 };
    let mut place = Place::with(defaults, Slots::unlimited()).await;
    let taken = place.jobs.launch_job(request(&["exit:1"])).await.expect("taken");
    let end = place.end(&taken.into_inner().job_id).await;
    assert_eq!((end.max_retries_failure, end.max_retries_preemption), (2, 7));
    assert_eq!(end.failure_count, 3);
    let zero = RetryConfig { max_retries_preemption: Some(0), ..retries(0) };
    let job = place.launch(&["exit:1"], zero).await;
    let end = place.end(&job).await;
    assert_eq!((end.max_retries_failure, end.max_retries_preemption), (0, 0));
    assert_eq!((end.failure_count, end.attempts.len()), (1, 1));
}

#[tokio::test]
async fn a_job_that_no_worker_takes_in_time_is_unschedulable() {
    let mut place = Place::with(FlusterDefaults::default(), Slots::per_datacenter(1)).await;
    let first = place.launch(&["never"], retries(0)).await;
    place.watch_until(&first, |status| !status.attempts.is_empty()).await;
    let waits = LaunchJobRequest { scheduling_timeout_seconds: 1, ..request(&["ok"]) };
    let job = place.jobs.launch_job(waits).await.expect("taken").into_inner().job_id;
    let queued = place.watch_until(&job, |_| true).await;
    assert_eq!(queued[0].state(), JobState::Pending, "nobody has it");
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.reason.as_str()), (JobState::Unschedulable, "unschedulable"));
    assert_eq!((end.started_at_ms, end.current_attempt_id, ids(&end)), (0, 0, vec![]));
}

#[tokio::test]
async fn watching_begins_with_what_is_and_ends_with_the_end() {
    let mut place = Place::new().await;
    let retry = RetryConfig { initial_retry_delay_ms: Some(200), ..retries(2) };
    let job = place.launch(&["exit:1", "ok"], retry).await;
    let seen = place.watch(&job).await;
    let (last, before) = seen.split_last().expect("at least one");
    assert_eq!(last.state(), JobState::Succeeded);
    let waits = |status: &&JobStatus| status.retry_available_at_ms > 0;
    assert!(before.iter().any(|status| waits(&status)), "{before:?}");
    assert!(before.iter().filter(waits).all(|status| status.state() == JobState::Pending));
    let under_way = |status: &JobStatus| states(status).last() == Some(&JobState::Running);
    let runs = |status: &JobStatus| status.state() == JobState::Running;
    assert!(before.iter().all(|status| runs(status) == under_way(status)), "{before:?}");
    let again = place.watch(&job).await;
    assert_eq!(again, std::slice::from_ref(last), "of a job that has ended, its end");
    assert_eq!(place.status(&job).await, *last);
    let request = WatchJobRequest { job_id: "nobody".to_owned(), end_only: false };
    let unknown = place.jobs.watch_job(request).await.expect_err("unknown");
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn of_a_large_job_the_sums_are_over_all_items() {
    let mut place = Place::new().await;
    let file = "name: large\nsteps:\n  many:\n    run: exit:1\n    for_each: { range: 150 }\n    \
                max_failed: 150\n    retry: { max_attempts: 2, initial_delay: 1ms }\n";
    let request = SubmitJobRequest { file: file.to_owned(), ..SubmitJobRequest::default() };
    let job = place.jobs.submit_job(request).await.expect("taken").into_inner().job_id;
    let end = place.end(&job).await;
    assert_eq!((end.state(), end.failure_count), (JobState::Succeeded, 300));
    assert_eq!(end.attempts.len(), 2, "those of the first item");
}

#[tokio::test]
async fn a_job_file_comes_with_its_files_or_is_refused_with_the_line() {
    let mut place = Place::new().await;
    let file = "name: with-files\nfiles: [go.sh]\nsteps:\n  a: { run: ok }\n".to_owned();
    let go = AttachedFile { path: "go.sh".into(), content: b"true".to_vec(), executable: true };
    let whole = SubmitJobRequest { file, files: vec![go], idempotency_key: "k".into() };
    let first = place.jobs.submit_job(whole.clone()).await.expect("taken").into_inner();
    let again = place.jobs.submit_job(whole.clone()).await.expect("known").into_inner();
    assert_eq!(first, again);
    assert_eq!(place.end(&first.job_id).await.state(), JobState::Succeeded);
    let without = SubmitJobRequest { files: vec![], idempotency_key: String::new(), ..whole };
    let refused = place.jobs.submit_job(without).await.expect_err("a file is missing");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("go.sh"), "{refused}");
    let bad = "name: a\nsteps:\n  a: { runn: ok }\n".to_owned();
    let bad = SubmitJobRequest { file: bad, ..SubmitJobRequest::default() };
    let refused = place.jobs.submit_job(bad).await.expect_err("no such key");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("line 3"), "{refused}");
}

#[tokio::test]
async fn one_key_is_one_job_whatever_the_order_of_maps() {
    let mut place = Place::new().await;
    let keyed = || {
        let mut keyed = LaunchJobRequest { idempotency_key: "once".into(), ..request(&["ok"]) };
        // Each map has an order of its own.
        let env = keyed.environment.get_or_insert_default();
        env.env_vars.extend((0..20).map(|n| (format!("V{n}"), n.to_string())));
        keyed
    };
    let first = place.jobs.launch_job(keyed()).await.expect("taken").into_inner();
    for _ in 0..5 {
        let again = place.jobs.launch_job(keyed()).await.expect("known").into_inner();
        assert_eq!(again, first);
    }
    let mut other = keyed();
    other.environment.get_or_insert_default().env_vars.insert("V0".into(), "other".into());
    let refused = place.jobs.launch_job(other).await.expect_err("another request");
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains(&first.job_id), "{refused}");
    assert_eq!(list(&mut place, ListJobsRequest::default()).await.jobs.len(), 1);
}

#[tokio::test]
async fn files_come_with_a_launched_job_and_are_part_of_what_it_is() {
    let mut place = Place::new().await;
    let file = |path: &str, content: &str, executable| AttachedFile {
        path: path.to_owned(),
        content: content.into(),
        executable,
    };
    let with = |files: Vec<AttachedFile>, key: &str| LaunchJobRequest {
        files,
        idempotency_key: key.to_owned(),
        ..request(&["ok"])
    };
    let files = || vec![file("run.py", "print()", true), file("lib/call.pickle", "x", false)];
    let first = place.jobs.launch_job(with(files(), "k")).await.expect("taken").into_inner();
    let again = place.jobs.launch_job(with(files(), "k")).await.expect("known").into_inner();
    assert_eq!(first, again);
    assert_eq!(place.end(&first.job_id).await.state(), JobState::Succeeded);
    let kept = place.folder.files(&first.job_id);
    assert_eq!(std::fs::read_to_string(kept.join("lib/call.pickle")).expect("kept"), "x");
    for other in [file("run.py", "exit()", true), file("run.py", "print()", false)] {
        let changed = with(vec![other, files().remove(1)], "k");
        let refused = place.jobs.launch_job(changed).await.expect_err("another request");
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    }
    for hostile in ["../run.py", "/run.py", "", "lib/../../run.py"] {
        let refused = place.jobs.launch_job(with(vec![file(hostile, "", false)], "")).await;
        let refused = refused.expect_err("it leads elsewhere");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("files[0]"), "{refused}");
    }
    let twice = with(vec![file("a", "1", false), file("a", "2", false)], "");
    let refused = place.jobs.launch_job(twice).await.expect_err("which of them?");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[tokio::test]
async fn bad_requests_name_the_field() {
    let mut place = Place::new().await;
    let negative = LaunchJobRequest { retry: Some(retries(-1)), ..request(&["ok"]) };
    let resources = ResourceSpec { cpu: -1.0, memory: "lots".into() };
    let greedy = LaunchJobRequest { resources: Some(resources), ..request(&["ok"]) };
    let nothing = LaunchJobRequest { entrypoint: None, ..request(&["ok"]) };
    let nameless = LaunchJobRequest { name: String::new(), ..request(&["ok"]) };
    let odd_key = LaunchJobRequest { idempotency_key: "a b".into(), ..request(&["ok"]) };
    for (wrong, fields) in [
        (negative, vec!["retry.max_retries_failure"]),
        (greedy, vec!["resources.cpu", "resources.memory"]),
        (nothing, vec!["entrypoint"]),
        (nameless, vec!["name"]),
        (odd_key, vec!["idempotency key"]),
    ] {
        let refused = place.jobs.launch_job(wrong).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        for field in fields {
            assert!(refused.message().contains(field), "{field}: {refused}");
        }
    }
    for (wrong, field) in [
        (ListJobsRequest { state: "odd".into(), ..ListJobsRequest::default() }, "state"),
        (ListJobsRequest { label: "odd".into(), ..ListJobsRequest::default() }, "label"),
        (ListJobsRequest { limit: -1, ..ListJobsRequest::default() }, "limit"),
        (ListJobsRequest { limit: 100_000, ..ListJobsRequest::default() }, "limit"),
        (ListJobsRequest { cursor: "odd".into(), ..ListJobsRequest::default() }, "cursor"),
    ] {
        let refused = place.jobs.list_jobs(wrong).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(field), "{field}: {refused}");
    }
    assert!(list(&mut place, ListJobsRequest::default()).await.jobs.is_empty());
}

#[tokio::test]
async fn more_problems_than_fit_a_header_are_cut_short_and_not_lost() {
    let mut place = Place::new().await;
    let steps = (0..90).map(|n| format!("  s{n}: {{ run: ok, wröng{n}: 1 }}\n"));
    let file = format!("name: a\nsteps:\n{}", steps.collect::<String>());
    let request = SubmitJobRequest { file, ..SubmitJobRequest::default() };
    let refused = place.jobs.submit_job(request).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("wröng0") && refused.message().ends_with('…'), "{refused}");
    let mut odd = request_with_odd_variables(90);
    let refused = place.jobs.launch_job(odd.clone()).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().ends_with('…'), "{refused}");
    odd.environment = None;
    place.jobs.launch_job(odd).await.expect("the rest of it is valid");
}

fn request_with_odd_variables(count: usize) -> LaunchJobRequest {
    let mut request = request(&["ok"]);
    let env = request.environment.get_or_insert_default();
    env.env_vars.extend((0..count).map(|n| (format!("ö{n}"), String::new())));
    request
}

async fn list(place: &mut Place, request: ListJobsRequest) -> ListJobsResponse {
    place.jobs.list_jobs(request).await.expect("a list").into_inner()
}

#[tokio::test]
async fn lists_have_pages_and_filters() {
    let mut place = Place::new().await;
    let mut launched = Vec::new();
    for n in 0..5 {
        let outcome = if n == 2 { "exit:1" } else { "ok" };
        let job = place.launch(&[outcome], retries(0)).await;
        place.end(&job).await;
        launched.push(job);
    }
    let killed = place.launch(&["never"], retries(0)).await;
    terminate(&mut place, &killed).await.expect("killed");
    launched.push(killed.clone());
    let labelled = "name: other\nlabels: { team: search }\nsteps:\n  a: { run: ok }\n".to_owned();
    let labelled = SubmitJobRequest { file: labelled, ..SubmitJobRequest::default() };
    let labelled = place.jobs.submit_job(labelled).await.expect("taken").into_inner().job_id;
    launched.push(labelled.clone());

    let (mut listed, mut cursor) = (Vec::new(), String::new());
    for _ in 0..4 {
        let page =
            list(&mut place, ListJobsRequest { limit: 2, cursor, ..Default::default() }).await;
        assert!(page.jobs.len() <= 2);
        listed.extend(page.jobs.into_iter().map(|job| job.job_id));
        cursor = page.next_cursor;
    }
    assert_eq!(cursor, "", "that was all");
    listed.sort();
    launched.sort();
    assert_eq!(listed, launched);

    let state = |state: &str| ListJobsRequest { state: state.into(), ..Default::default() };
    let failed = list(&mut place, state("failed")).await.jobs;
    assert_eq!((failed.len(), failed[0].state()), (1, JobState::Failed));
    for word in ["killed", "cancelled"] {
        let found = list(&mut place, state(word)).await.jobs;
        assert_eq!((found.len(), found[0].state()), (1, JobState::Killed));
        assert_eq!(found[0].job_id, killed);
        assert!(found[0].finished_at_ms >= found[0].submitted_at_ms);
    }
    for request in [
        ListJobsRequest { label: "team=search".into(), ..Default::default() },
        ListJobsRequest { name: "other".into(), ..Default::default() },
    ] {
        let found = list(&mut place, request).await.jobs;
        let found: Vec<&str> = found.iter().map(|job| job.job_id.as_str()).collect();
        assert_eq!(found, [&labelled]);
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_and_the_connection_lives() {
    let mut place = Place::new().await;
    let file = "x".repeat(17 << 20);
    let large = SubmitJobRequest { file, ..SubmitJobRequest::default() };
    let refused = place.jobs.submit_job(large).await.expect_err("too large");
    assert!(matches!(refused.code(), Code::OutOfRange | Code::ResourceExhausted), "{refused}");
    assert!(list(&mut place, ListJobsRequest::default()).await.jobs.is_empty());
}

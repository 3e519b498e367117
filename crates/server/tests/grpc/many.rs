//! `SubmitJobs`.

use futures_util::stream;
use steadfast_api::proto::new_job::Kind;
use steadfast_api::proto::{
    JobState, ListJobsRequest, NewJob, NewJobResult, SubmitJobRequest, SubmitJobsRequest,
};
use tonic::Code;

use crate::place::{Place, request};

fn job(name: &str, key: &str) -> NewJob {
    let file = format!("{{\"name\": \"{name}\", \"steps\": {{\"a\": {{\"run\": \"ok\"}}}}}}");
    let submit = SubmitJobRequest { file, idempotency_key: key.to_owned(), files: vec![] };
    NewJob { kind: Some(Kind::Submit(submit)) }
}

async fn submit(place: &mut Place, messages: Vec<Vec<NewJob>>) -> Vec<NewJobResult> {
    let messages = messages.into_iter().map(|jobs| SubmitJobsRequest { jobs });
    let sent = place.jobs.submit_jobs(stream::iter(messages.collect::<Vec<_>>())).await;
    let mut told = sent.expect("taken").into_inner();
    let mut results = vec![];
    while let Some(message) = told.message().await.expect("to its end") {
        results.extend(message.results);
    }
    results
}

#[tokio::test]
async fn each_of_many_jobs_is_answered_by_itself_and_in_order() {
    let mut place = Place::new().await;
    let mut bad = job("bad", "");
    if let Some(Kind::Submit(bad)) = &mut bad.kind {
        bad.file = "name: nothing".to_owned();
    }
    let started = NewJob { kind: Some(Kind::Launch(Box::new(request(&["ok"])))) };
    let jobs = vec![
        vec![job("one", "k1"), bad],
        vec![],
        vec![job("two", "k2"), job("other", "k1"), NewJob { kind: None }],
        vec![job("one", "k1"), started],
    ];
    let results = submit(&mut place, jobs).await;
    let codes: Vec<Option<Code>> = (results.iter())
        .map(|it| it.refusal.as_ref().map(|refusal| Code::from_i32(refusal.code)))
        .collect();
    let invalid = Some(Code::InvalidArgument);
    let expected = [None, invalid, None, Some(Code::AlreadyExists), invalid, None, None];
    assert_eq!(codes, expected);
    assert_eq!((&results[5].job_id, results[5].existing), (&results[0].job_id, true));
    assert!(!results[0].existing && results[0].job_id != results[2].job_id);
    assert!(results[1].job_id.is_empty());
    for accepted in [0, 2, 6] {
        assert_eq!(place.end(&results[accepted].job_id).await.state(), JobState::Succeeded);
    }
}

/// More than are on their way to the store at once.
#[tokio::test]
async fn thousands_of_jobs_are_taken_once() {
    const JOBS: usize = 3000;
    let mut place = Place::new().await;
    let messages = || {
        let jobs: Vec<NewJob> =
            (0..JOBS).map(|n| job(&format!("job-{n}"), &format!("k{n}"))).collect();
        jobs.chunks(500).map(<[NewJob]>::to_vec).collect::<Vec<_>>()
    };
    let first = submit(&mut place, messages()).await;
    assert_eq!(first.len(), JOBS);
    assert!(first.iter().all(|it| it.refusal.is_none() && !it.existing));
    let again = submit(&mut place, messages()).await;
    assert!(first.iter().zip(&again).all(|(a, b)| a.job_id == b.job_id && b.existing));
    let last = ListJobsRequest { name: format!("job-{}", JOBS - 1), ..ListJobsRequest::default() };
    let listed = place.jobs.list_jobs(last).await.expect("listed").into_inner().jobs;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].job_id, first[JOBS - 1].job_id);
}

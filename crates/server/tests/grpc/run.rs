//! `RunJob`.

use steadfast_api::proto::new_job::Kind;
use steadfast_api::proto::{JobState, NewJob, SubmitJobRequest};
use tonic::Code;

use crate::place::Place;

#[tokio::test]
async fn a_job_is_submitted_and_waited_for_in_one_call() {
    let mut place = Place::new().await;
    let file = "name: once\nsteps: { a: { run: ok }, b: { run: ok, needs: [a] } }";
    for (file, state) in [
        (file.to_owned(), JobState::Succeeded),
        // More than is kept in memory of a job that is waited for.
        (
            "name: many\nsteps: { a: { run: ok, for_each: { range: 60 } } }".to_owned(),
            JobState::Succeeded,
        ),
        (
            "name: bad\nsteps: { a: { run: 'exit:1', retry: { max_attempts: 1 } } }".to_owned(),
            JobState::Failed,
        ),
    ] {
        let key = format!("key-{}", file.len());
        let submit = SubmitJobRequest { file, idempotency_key: key, files: vec![] };
        let request = NewJob { kind: Some(Kind::Submit(submit)) };
        let mut told = place.jobs.run_job(request.clone()).await.expect("taken").into_inner();
        let begun = told.message().await.expect("told").expect("the id first");
        assert_eq!((begun.job_id.len(), &begun.job), (26, &None));
        let end = told.message().await.expect("told").expect("then the end");
        assert_eq!(told.message().await.expect("closed"), None);
        let shown = place.end(&begun.job_id).await;
        assert_eq!((end.job_id, end.job.as_ref()), (begun.job_id.clone(), Some(&shown)));
        assert_eq!(shown.state(), state);
        let mut again = place.jobs.run_job(request).await.expect("known").into_inner();
        assert_eq!(again.message().await.expect("told").expect("the id").job_id, begun.job_id);
        let end = again.message().await.expect("told").expect("the end");
        assert_eq!(end.job, Some(shown), "it has ended before");
    }
    let bad = SubmitJobRequest { file: "name: a".to_owned(), ..SubmitJobRequest::default() };
    for bad in [Some(Kind::Submit(bad)), None] {
        let refused = place.jobs.run_job(NewJob { kind: bad }).await.expect_err("no steps");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
}

//! What the client says when something is in the way.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use steadfast::{Client, ClientError, Context, Error, Job, JobState, Query, Step, Worker};

use crate::server::{LONG, Server, ended};

fn nothing() -> Worker {
    Worker::builder().function("nothing", |_: Context, (): ()| async { Ok::<_, Error>(()) }).build()
}

fn job(name: &str) -> Job {
    Job::new(name).step(Step::call("s", "nothing"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_trouble_has_its_own_error() {
    let server = Server::start().await;
    let client = server.client().await;
    let twice = Job::new("twice").step(Step::run("s", "true")).step(Step::run("s", "false"));
    match client.submit(&twice).await {
        Err(ClientError::Invalid(why)) => assert!(why.contains("`s` is already written"), "{why}"),
        other => panic!("{other:?}"),
    }
    let unknown = client.status("01ARZ3NDEKTSV4RRFFQ69G5FAV").await;
    assert!(matches!(unknown, Err(ClientError::NotFound(_))), "{unknown:?}");
    let unknown = client.wait("01ARZ3NDEKTSV4RRFFQ69G5FAV").await;
    assert!(matches!(unknown, Err(ClientError::NotFound(_))), "{unknown:?}");

    let first = client.submit_with_key(&job("a"), "key").await.unwrap();
    assert_eq!(client.submit_with_key(&job("a"), "key").await.unwrap(), first);
    let other = client.submit_with_key(&job("b"), "key").await;
    assert!(matches!(other, Err(ClientError::Conflict(_))), "{other:?}");

    let nowhere = Client::connect("http://127.0.0.1:1").await;
    assert!(matches!(nowhere, Err(ClientError::Unreachable { .. })), "{nowhere:?}");
    let wrong = Client::connect("127.0.0.1:7117").await;
    assert!(matches!(wrong, Err(ClientError::Address(_))), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_found_by_what_they_are() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut ids = vec![];
    for (name, team) in [("a", "x"), ("b", "y"), ("a", "y")] {
        // There is no worker.
        let job = job(name).label("team", team);
        ids.push(client.submit(&job).await.unwrap());
    }
    client.cancel(&ids[1]).await.unwrap();
    let found = async |query: Query| {
        let found = client.list(&query).await.unwrap();
        found.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let [first, second, third] = &ids[..] else { panic!("{ids:?}") };
    assert_eq!(found(Query::new()).await, [third, second, first].map(String::clone));
    assert_eq!(found(Query::new().at_most(2)).await, [third, second].map(String::clone));
    assert_eq!(found(Query::new().name("a")).await, [third, first].map(String::clone));
    assert_eq!(found(Query::new().label("team", "x")).await, [first].map(String::clone));
    let cancelled = client.list(&Query::new().state(JobState::Cancelled)).await.unwrap();
    assert_eq!(cancelled.len(), 1);
    assert_eq!((&cancelled[0].id, cancelled[0].state), (second, JobState::Cancelled));
    assert!(cancelled[0].finished_at_ms >= Some(cancelled[0].submitted_at_ms));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_is_waited_for_and_one_that_does_not_is_given_up() {
    let mut server = Server::start().await;
    let client = server.client().await;
    // There is no worker yet: it cannot end before the restart.
    let id = client.submit(&job("restart")).await.unwrap();
    let (waiting, watched) = (client.clone(), id.clone());
    let mut statuses = Box::pin(client.watch(&id));
    let first = statuses.next().await.expect("how it stands").unwrap();
    assert!(!first.is_over(), "{first:?}");
    let waits = tokio::spawn(async move { waiting.wait(&watched).await });
    server.stop().await;
    let impatient = client.clone().patience(Duration::from_millis(50)).status(&id).await;
    assert!(matches!(impatient, Err(ClientError::Unreachable { .. })), "{impatient:?}");
    server.begin().await;
    let _working = server.work(nothing());
    let status = tokio::time::timeout(LONG, waits).await.expect("it ends").unwrap().unwrap();
    assert!(status.is_success(), "{status:?}");
    let mut last = None;
    while let Some(status) = statuses.next().await {
        last = Some(status.unwrap());
    }
    assert_eq!(last.expect("told").state, JobState::Succeeded);
    assert!(ended(&server.client().await, &job("after")).await.is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_run_in_one_call_survives_a_restart_of_the_server() {
    let mut server = Server::start().await;
    let client = server.client().await;
    // There is no worker yet: it cannot end before the restart.
    let (running, name) = (client.clone(), "run");
    let runs = tokio::spawn(async move { running.run_with_key(&job(name), "once").await });
    let query = Query::new().name(name);
    let listed = || client.list(&query);
    while listed().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    server.begin().await;
    let _working = server.work(nothing());
    let status = tokio::time::timeout(LONG, runs).await.expect("it ends").unwrap().unwrap();
    assert!(status.is_success(), "{status:?}");
    let again = client.run_with_key(&job(name), "once").await.unwrap();
    assert_eq!(format!("{again:?}"), format!("{status:?}"));
    assert_eq!(listed().await.unwrap().len(), 1);
    assert!(client.run(&job(name)).await.unwrap().is_success());
    assert_eq!(listed().await.unwrap().len(), 2);
}

/// They share a stream, which ends when none comes for a while, and with its server.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_submitted_at_the_same_time_each_have_their_own_answer() {
    let mut server = Server::start().await;
    let client = server.client().await;
    let large = "#".repeat(20_000);
    let submit = |n: usize| {
        let (client, large) = (client.clone(), large.clone());
        tokio::spawn(async move {
            match n % 5 {
                0 => client.submit_with_key(&job("same"), "same").await,
                1 => client.submit_with_key(&job("another"), "same").await,
                2 => client.submit(&Job::new("no steps")).await,
                3 => {
                    let text =
                        format!("{large}\nname: large\nsteps: {{ s: {{ run: \"true\" }} }}\n");
                    client.submit_file(&text, &format!("large-{n}")).await
                }
                _ => client.submit(&job(&format!("job-{n}"))).await,
            }
        })
    };
    let same = client.submit_with_key(&job("same"), "same").await.expect("accepted");
    let mut ids = BTreeSet::from([same.clone()]);
    for round in 0..2 {
        let all: Vec<_> = (500 * round..500 * (round + 1)).map(submit).collect();
        for (n, answer) in all.into_iter().enumerate() {
            let answer = answer.await.expect("no panic");
            match n % 5 {
                0 => assert_eq!(answer.expect("the same job"), same),
                1 => assert!(matches!(answer, Err(ClientError::Conflict(_))), "{answer:?}"),
                2 => assert!(matches!(answer, Err(ClientError::Invalid(_))), "{answer:?}"),
                _ => assert!(ids.insert(answer.expect("accepted")), "an id of its own"),
            }
        }
        server.stop().await;
        server.begin().await;
    }
    let all = client.list(&Query::new().at_most(10_000)).await.expect("listed");
    assert_eq!(all.into_iter().map(|job| job.id).collect::<BTreeSet<_>>(), ids);
    assert_eq!(ids.len(), 1 + 2 * 200);
}

/// A restart in the middle: nothing is lost, and nothing is taken twice.
#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_are_taken_once_each_whatever_the_server_does() {
    const JOBS: usize = 2000;
    let mut server = Server::start().await;
    let client = server.client().await;
    let jobs = (0..JOBS).map(|n| job(&format!("many-{n}")));
    let bad = Job::new("no steps");
    let submitting = {
        let (client, jobs) = (client.clone(), jobs.chain([bad]).collect::<Vec<_>>());
        tokio::spawn(async move { client.submit_all(jobs).await })
    };
    let some = Query::new().at_most(1);
    while client.list(&some).await.expect("listed").is_empty() {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    server.begin().await;
    let mut answers = submitting.await.expect("no panic");
    let refused = answers.pop().expect("one for each").expect_err("it has no steps");
    assert!(matches!(refused, ClientError::Invalid(_)), "{refused:?}");
    let ids: Vec<String> = answers.into_iter().map(|id| id.expect("accepted")).collect();
    assert_eq!(ids.len(), JOBS);
    let all = client.list(&Query::new().at_most(10 * JOBS)).await.expect("listed");
    let found: BTreeSet<&str> = all.iter().map(|job| job.id.as_str()).collect();
    assert_eq!((all.len(), found.len()), (JOBS, JOBS));
    assert!(ids.iter().all(|id| found.contains(id.as_str())));
    let key = |n: usize| format!("key-{n}");
    let keyed = || (0..3).map(|n| (job("keyed"), key(n)));
    let read = |all: Vec<Result<String, ClientError>>| {
        all.into_iter().map(|id| id.expect("accepted")).collect::<Vec<_>>()
    };
    let first = read(client.submit_all_with_keys(keyed()).await);
    assert_eq!(first, read(client.submit_all_with_keys(keyed()).await));
    server.stop().await;
    let gone = client.patience(Duration::ZERO).submit_all([job("late"), job("later")]).await;
    assert_eq!(gone.len(), 2);
    for answer in gone {
        assert!(matches!(answer, Err(ClientError::Unreachable { .. })), "{answer:?}");
    }
}

//! Logs, explanations, pauses and retries, over loopback and within the process.

use std::time::Duration;

use futures_util::StreamExt as _;
use steadfast::{
    Client, ClientError, Context, DecisionSummary, Embedded, Error, Job, JobState, LogQuery, Retry,
    RetryOptions, Status, Step, StopReason, Worker,
};

use crate::server::{LONG, Server, ended, wait};

const NOBODY: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn quick(attempts: u32) -> Retry {
    Retry::new().max_attempts(attempts).initial_delay(Duration::from_millis(1))
}

/// Writes into its log, and fails before the attempt that it is told.
fn flaky() -> Worker {
    let flaky = |ctx: Context, good: u32| async move {
        ctx.log(format_args!("attempt {} of {}", ctx.attempt(), ctx.step()));
        ctx.log("ö");
        if ctx.attempt() < good {
            return Err(Error::new("not yet"));
        }
        Ok(ctx.item_index())
    };
    let wordy = |ctx: Context, (): ()| async move {
        for _ in 0..6 {
            ctx.log("w".repeat(1 << 20));
        }
        Ok::<_, Error>(())
    };
    Worker::builder().function("flaky", flaky).function("wordy", wordy).build()
}

fn step(name: &str, good: u32, attempts: u32) -> Step {
    Step::call(name, "flaky").input(&good).unwrap().retry(quick(attempts))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_functions_log_is_read_by_step_item_and_attempt() {
    let server = Server::start().await;
    let _working = server.work(flaky());
    let client = server.client().await;
    let job = Job::new("logs").step(step("a", 2, 3)).step(step("b", 1, 1).for_each_range(2));
    let status = ended(&client, &job).await;
    assert!(status.is_success(), "{status:?}");
    let logs = client.logs(&status.id, &LogQuery::new()).await.unwrap();
    let told: Vec<_> = logs
        .iter()
        .map(|log| (log.of.step.as_str(), log.of.item, log.of.attempt, &*log.text))
        .collect();
    assert_eq!(
        told,
        [
            ("a", 0, 1, "attempt 1 of a\nö\n"),
            ("a", 0, 2, "attempt 2 of a\nö\n"),
            ("b", 0, 1, "attempt 1 of b\nö\n"),
            ("b", 1, 1, "attempt 1 of b\nö\n"),
        ]
    );
    let second = client.logs(&status.id, &LogQuery::new().step("b").item(1)).await.unwrap();
    assert_eq!(second, logs[3..]);
    let retried = client.logs(&status.id, &LogQuery::new().attempt(2)).await.unwrap();
    assert_eq!(retried, logs[1..2]);
    let none = client.logs(&status.id, &LogQuery::new().attempt(0)).await;
    assert!(matches!(&none, Err(ClientError::Invalid(why)) if why.contains("from 1")), "{none:?}");
    let nowhere = client.logs(&status.id, &LogQuery::new().step("no/where")).await;
    assert!(matches!(nowhere, Err(ClientError::NotFound(_))), "{nowhere:?}");
    let nobody = client.logs(NOBODY, &LogQuery::new()).await;
    assert!(matches!(nobody, Err(ClientError::NotFound(_))), "{nobody:?}");

    let wordy = ended(&client, &Job::new("wordy").step(Step::call("s", "wordy"))).await;
    let logs = client.logs(&wordy.id, &LogQuery::new()).await.unwrap();
    assert!(((4 << 20) - 96..=4 << 20).contains(&logs[0].text.len()), "{}", logs[0].text.len());
    assert!(logs[0].text.ends_with("this log may have 4194304 bytes at most …\n"));
}

/// Written before the server went away, it is there when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_survives_a_restart_of_the_server() {
    let mut server = Server::start().await;
    let (go, gone) = tokio::sync::watch::channel(false);
    let waits = move |ctx: Context, (): ()| {
        let mut gone = gone.clone();
        async move {
            ctx.log("before");
            gone.wait_for(|gone| *gone).await.map_err(Error::new)?;
            ctx.log("after");
            Ok::<_, Error>(())
        }
    };
    let _working = server.work(Worker::builder().function("waits", waits).build());
    let client = server.client().await;
    let id = client.submit(&Job::new("restart").step(Step::call("s", "waits"))).await.unwrap();
    let all = LogQuery::new();
    while client.logs(&id, &all).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop().await;
    go.send(true).unwrap();
    server.begin().await;
    let status = wait(&client, &id).await;
    assert!(status.is_success(), "{status:?}");
    let logs = client.logs(&id, &all).await.unwrap();
    assert_eq!(logs.last().unwrap().text, "before\nafter\n", "{logs:?}");
}

/// Where it stops to be in this state.
async fn reached(client: &Client, id: &str, state: JobState) -> Status {
    let mut statuses = Box::pin(client.watch(id));
    let told = async {
        while let Some(status) = statuses.next().await {
            let status = status.unwrap();
            if status.state == state {
                return status;
            }
        }
        panic!("it never was {state:?}");
    };
    tokio::time::timeout(LONG, told).await.expect("it gets there")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_paused_resumed_retried_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    // No worker yet: nothing of it can end before it is paused.
    let steadfast = Embedded::open(folder.path()).start().await.unwrap();
    let client = steadfast.client();
    let job = Job::new("wishes").step(step("good", 1, 1)).step(step("bad", 3, 2).needs(["good"]));
    let id = client.submit(&job).await.unwrap();
    client.pause(&id).await.unwrap();
    client.pause(&id).await.expect("again changes nothing");
    assert_eq!(reached(client, &id, JobState::Paused).await.id, id);
    client.resume(&id).await.unwrap();
    let working = tokio::spawn(flaky().run(steadfast.server()));
    let status = wait(client, &id).await;
    assert_eq!((status.state, status.failures), (JobState::Failed, 2), "{status:?}");

    let explained = client.explain(&id).await.unwrap();
    assert_eq!(explained.job.state, JobState::Failed);
    let [good, first, last] = &explained.verdicts[..] else { panic!("{explained:?}") };
    assert_eq!(good.decision, DecisionSummary::Complete);
    assert!(matches!(first.decision, DecisionSummary::Retry { .. }), "{first:?}");
    assert_eq!((last.item.name.as_str(), last.attempt), ("bad", 2));
    assert_eq!(last.decision, DecisionSummary::Stop { reason: StopReason::AttemptsExhausted });
    assert!(last.would_change.is_some(), "{last:?}");
    let page = explained.to_string();
    assert!(page.contains("not yet: stop, attempts_exhausted"), "{page}");

    let paused = client.pause(&id).await;
    assert!(matches!(paused, Err(ClientError::Conflict(_))), "{paused:?}");
    let options = RetryOptions::new().grant(3).key("again");
    let again = client.retry(&id, &options).await.unwrap();
    assert_eq!(client.retry(&id, &options).await.unwrap(), again, "the same key is the same job");
    let status = wait(client, &again).await;
    assert!(status.is_success(), "{status:?}");
    let good = &status.step("good").unwrap().items[0];
    assert!(good.attempts.is_empty(), "what succeeded is kept: {good:?}");
    let nowhere = client.retry(&id, &RetryOptions::new().from_step("nowhere")).await;
    assert!(
        matches!(nowhere, Err(ClientError::Invalid(_) | ClientError::NotFound(_))),
        "{nowhere:?}"
    );
    for nobody in [client.pause(NOBODY).await, client.resume(NOBODY).await] {
        assert!(matches!(nobody, Err(ClientError::NotFound(_))), "{nobody:?}");
    }
    working.abort();
    steadfast.stop().await.unwrap();
}

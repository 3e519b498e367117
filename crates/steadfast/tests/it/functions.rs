//! What a function gives, how it fails, and how it is ended.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast::{AttemptStatus, Context, Error, Job, JobState, Retry, Rule, Status, Step, Worker};
use tokio::sync::Notify;

use crate::server::{LONG, Server, ended, wait};

const SOON: Duration = Duration::from_millis(1);

fn attempts<'a>(status: &'a Status, step: &str) -> &'a [AttemptStatus] {
    &status.step(step).expect("a step").items[0].attempts
}

fn states<'a>(status: &'a Status, step: &str) -> Vec<&'a str> {
    attempts(status, step).iter().map(|attempt| attempt.state.name()).collect()
}

fn quick(attempts: u32) -> Retry {
    Retry::new().max_attempts(attempts).initial_delay(SOON)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Page {
    url: String,
    words: u32,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_functions_give_is_what_later_ones_get() {
    let server = Server::start().await;
    let worker = Worker::builder()
        .name("typed")
        .function("crawl", |_: Context, site: String| async move {
            let page = |n: u32| Page { url: format!("{site}/{n}"), words: n * 10 };
            Ok::<_, Error>((1..=3).map(page).collect::<Vec<_>>())
        })
        .function("count", |ctx: Context, page: Page| async move {
            assert_eq!(ctx.item::<Page>()?, Some(page.clone()));
            assert_eq!((ctx.attempt(), ctx.step()), (1, "count"));
            assert_eq!(page.url, format!("a/{}", ctx.item_index() + 1));
            Ok::<_, Error>(page.words)
        })
        .function("sum", |_: Context, counts: Vec<u32>| async move {
            Ok::<_, Error>(counts.iter().sum::<u32>())
        });
    let _working = server.work(worker.build());
    let job = Job::new("typed")
        .step(Step::call("crawl", "crawl").input(&"a").unwrap())
        .step(
            Step::call("count", "count")
                .needs(["crawl"])
                .for_each_output("crawl")
                .input(&"{{ item }}")
                .unwrap(),
        )
        .step(
            Step::call("sum", "sum").needs(["count"]).input(&"{{ steps.count.outputs }}").unwrap(),
        );
    let client = server.client().await;
    let status = ended(&client, &job).await;
    assert!(status.is_success(), "{status:?}");
    assert_eq!(status.outputs::<u32>("count").unwrap(), [Some(10), Some(20), Some(30)]);
    let all = client.outputs(&status.id, None).await.unwrap();
    assert_eq!(
        all.iter().map(|output| &*output.step).collect::<Vec<_>>(),
        ["crawl", "count", "count", "count", "sum"]
    );
    let counts = client.outputs(&status.id, Some("count")).await.unwrap();
    assert_eq!(counts.last().map(|it| (it.item, &it.output)), Some((2, &30.into())));
    assert_eq!(status.output::<u32>("sum").unwrap(), Some(60));
    assert_eq!(&*attempts(&status, "sum")[0].worker, "typed");
}

/// More than a message to the server may be: it must not be said again and again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_a_failure_and_the_worker_goes_on() {
    let server = Server::start().await;
    let worker = Worker::builder()
        .function("large", |_: Context, (): ()| async { Ok::<_, Error>("x".repeat(6 << 20)) })
        .function("wordy", |_: Context, (): ()| async {
            Err::<(), _>(Error::permanent("w".repeat(6 << 20)))
        })
        .function("small", |_: Context, (): ()| async { Ok::<_, Error>(1) });
    let _working = server.work(worker.build());
    let client = server.client().await;
    for (function, said) in [("large", "the output is larger than"), ("wordy", "wwww")] {
        let job = Job::new("t").step(Step::call("s", function).retry(quick(1)));
        let status = ended(&client, &job).await;
        assert_eq!(status.state, JobState::Failed);
        let error = attempts(&status, "s")[0].error.clone().expect("an error");
        assert!(error.contains(said) && error.len() < 20_000, "{} bytes", error.len());
    }
    let status = ended(&client, &Job::new("t").step(Step::call("s", "small"))).await;
    assert!(status.is_success(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_whether_and_when_to_try_again() {
    let server = Server::start().await;
    let worker = Worker::builder()
        .function("flaky", |ctx: Context, (): ()| async move {
            if ctx.attempt() < 3 {
                // Any error will do.
                std::fs::read("/no/such/file")?;
            }
            Ok::<_, Error>("at last")
        })
        .function("hopeless", |_: Context, (): ()| async {
            Err::<(), _>(Error::permanent("there is no such page"))
        })
        .function("ruled", |_: Context, (): ()| async {
            Err::<(), _>(Error::new("too much").kind("quota"))
        })
        .function("busy", |ctx: Context, (): ()| async move {
            if ctx.attempt() == 1 {
                return Err(Error::new("later").retry_after(Duration::from_millis(30)));
            }
            Ok(())
        })
        .function("not_yet", |ctx: Context, (): ()| async move {
            if ctx.attempt() < 4 {
                return Err(Error::new("not yet").defer(SOON));
            }
            Ok(())
        });
    let _working = server.work(worker.build());
    let client = server.client().await;
    let one =
        |name: &str, retry: Retry| Job::new("errors").step(Step::call("s", name).retry(retry));

    let status = ended(&client, &one("flaky", quick(3))).await;
    assert_eq!(status.output::<String>("s").unwrap().as_deref(), Some("at last"));
    assert_eq!(states(&status, "s"), ["failed", "failed", "succeeded"]);
    let said = attempts(&status, "s")[0].error.as_deref().unwrap();
    assert!(said.contains("No such file"), "{said}");

    let status = ended(&client, &one("hopeless", quick(3))).await;
    assert_eq!((status.state, status.failures), (JobState::Failed, 1));
    assert_eq!(status.reason.as_deref(), Some("permanent_error"));
    assert!(status.error.as_deref().unwrap().contains("there is no such page"));

    let status = ended(&client, &one("ruled", quick(3).rule(Rule::stop().error("quota")))).await;
    assert_eq!(status.reason.as_deref(), Some("rule_stop"));

    // The delay it asks for replaces one that would be far longer.
    let slow = Retry::new().initial_delay(LONG * 10).max_delay(LONG * 10);
    let status = ended(&client, &one("busy", slow.clone())).await;
    let [first, second] = attempts(&status, "s") else { panic!("{status:?}") };
    assert!(second.started_at_ms.since(first.finished_at_ms.unwrap()) >= 30);
    assert_eq!(status.failures, 1);

    // A single attempt is allowed: deferrals are no failures.
    let status = ended(&client, &one("not_yet", slow.max_attempts(1))).await;
    assert!(status.is_success(), "{status:?}");
    assert_eq!((status.failures, attempts(&status, "s").len()), (0, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_does_not_fit_and_a_panic_are_failures() {
    let server = Server::start().await;
    let worker = Worker::builder()
        .function("wants_a_number", |_: Context, _: u32| async { Ok::<_, Error>(()) })
        .function("panics", |ctx: Context, (): ()| async move {
            assert!(ctx.attempt() > 1, "not the first time");
            Ok::<_, Error>(())
        });
    let _working = server.work(worker.build());
    let client = server.client().await;
    let job = Job::new("misfit")
        .step(Step::call("s", "wants_a_number").input(&"one").unwrap().retry(quick(3)));
    let status = ended(&client, &job).await;
    assert_eq!(status.reason.as_deref(), Some("permanent_error"));
    assert!(status.error.unwrap().contains("the input does not fit the function"));

    let job = Job::new("panics").step(Step::call("s", "panics").retry(quick(2)));
    let status = ended(&client, &job).await;
    assert!(status.is_success(), "{status:?}");
    let said = attempts(&status, "s")[0].error.clone().unwrap();
    assert!(said.contains("panicked: not the first time"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_and_too_silent_attempts_end() {
    let server = Server::start().await;
    let worker = Worker::builder()
        .function("hangs_once", |ctx: Context, (): ()| async move {
            if ctx.attempt() == 1 {
                pending::<()>().await;
            }
            Ok::<_, Error>(ctx.time_left().is_some())
        })
        .function("beats", |ctx: Context, (): ()| async move {
            // Longer in all than it may be silent.
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                ctx.alive();
            }
            Ok::<_, Error>(())
        });
    let _working = server.work(worker.build());
    let client = server.client().await;
    let hangs = || Step::call("s", "hangs_once").retry(quick(2));
    let timeout = Job::new("timeout").step(hangs().timeout(Duration::from_millis(200)));
    let status = ended(&client, &timeout).await;
    assert_eq!(states(&status, "s"), ["timed_out", "succeeded"]);
    assert_eq!(status.output::<bool>("s").unwrap(), Some(true));

    let silent = Job::new("silent").step(hangs().heartbeat(Duration::from_millis(200)));
    let status = ended(&client, &silent).await;
    assert_eq!(states(&status, "s"), ["timed_out", "succeeded"]);
    let said = attempts(&status, "s")[0].error.clone().unwrap();
    assert!(said.contains("silent for longer than its heartbeat of 200ms"), "{said}");

    let alive = Step::call("s", "beats").heartbeat(Duration::from_millis(500)).retry(quick(1));
    let status = ended(&client, &Job::new("alive").step(alive)).await;
    assert!(status.is_success(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_reads_how_far_the_last_one_was() {
    let server = Server::start().await;
    let worker = Worker::builder().function("counts", |ctx: Context, to: u32| async move {
        let before = ctx.previous_progress::<u32>()?.unwrap_or(0);
        for done in before + 1..=to {
            ctx.heartbeat(done)?;
            if done % 10 == 0 && done < to {
                return Err(Error::new(format!("stumbled at {done}")));
            }
        }
        Ok(json!({ "from": before, "attempt": ctx.attempt() }))
    });
    let _working = server.work(worker.build());
    let job =
        Job::new("progress").step(Step::call("s", "counts").input(&30).unwrap().retry(quick(5)));
    let status = ended(&server.client().await, &job).await;
    assert_eq!(
        status.output::<serde_json::Value>("s").unwrap(),
        Some(json!({ "from": 20, "attempt": 3 })),
        "{status:?}"
    );
}

/// What a function that waits tells the test.
#[derive(Debug, Default)]
struct Seen {
    begun: Notify,
    cancelled: Notify,
    calls: AtomicU32,
}

fn waits(seen: &Arc<Seen>) -> steadfast::WorkerBuilder {
    let seen = seen.clone();
    Worker::builder().function("waits", move |ctx: Context, (): ()| {
        let seen = seen.clone();
        async move {
            // Only the first one waits.
            if seen.calls.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok("again");
            }
            seen.begun.notify_one();
            ctx.cancelled().await;
            seen.cancelled.notify_one();
            Err(Error::new("ended because it was asked to"))
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_sees_that_its_job_is_cancelled() {
    let server = Server::start().await;
    let seen = Arc::new(Seen::default());
    let _working = server.work(waits(&seen).build());
    let client = server.client().await;
    let id = client.submit(&Job::new("cancel").step(Step::call("s", "waits"))).await.unwrap();
    tokio::time::timeout(LONG, seen.begun.notified()).await.expect("it begins");
    client.cancel(&id).await.unwrap();
    tokio::time::timeout(LONG, seen.cancelled.notified()).await.expect("it is told");
    assert_eq!(wait(&client, &id).await.state, JobState::Cancelled);
    client.cancel(&id).await.expect("again changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_leaving_worker_runs_is_run_again_elsewhere_free_of_failures() {
    let server = Server::start().await;
    let seen = Arc::new(Seen::default());
    let leaving = server.work(waits(&seen).name("leaving").build());
    let client = server.client().await;
    let job = Job::new("drain").step(Step::call("s", "waits").retry(quick(1)));
    let id = client.submit(&job).await.unwrap();
    tokio::time::timeout(LONG, seen.begun.notified()).await.expect("it begins");
    leaving.stop().await;
    tokio::time::timeout(LONG, seen.cancelled.notified()).await.expect("it was told");
    let _staying = server.work(waits(&seen).name("staying").build());
    let status = wait(&client, &id).await;
    assert_eq!(status.output::<String>("s").unwrap().as_deref(), Some("again"));
    // Before it was known to leave it may have been given it once more, and have given it back: charged as a preemption if it
    // had begun, and else not at all.
    let attempts = attempts(&status, "s");
    assert_eq!(status.failures, 0);
    assert!((1..attempts.len()).contains(&(status.preemptions as usize)), "{status:?}");
    assert_eq!(&*attempts.last().unwrap().worker, "staying");
}

//! effectum: a library on SQLite, all in this process. No server, no connection: its CPU and memory are those of client and
//! handler too. Its file is as effectum opens it: a rollback journal, synchronous NORMAL, submissions of the same moment
//! in one transaction.

use std::sync::Arc;
use std::time::Duration;

use effectum::{Job, JobRunner, Queue, RunningJob, Worker};
use measure::{Fail, HOUR, Peer, Seen, Stage};
use time::OffsetDateTime;

struct Effectum {
    queue: Queue,
    seen: Arc<Seen>,
    _worker: Worker,
}

async fn nothing(job: RunningJob, seen: Arc<Seen>) -> Result<u32, Fail> {
    seen.call(job.json_payload().expect("a number"))
}

fn job(job: u32) -> effectum::JobBuilder {
    Job::builder("nothing").json_payload(&job).expect("JSON")
}

impl Peer for Effectum {
    const NAME: &'static str = "effectum";
    const LEAVES_OUT: &'static [(&'static str, &'static str)] = &[
        ("submit_and_wait_64", "nothing in it waits for a result"),
        ("retry_1", "its delays are whole seconds"),
        ("retry_64", "its delays are whole seconds"),
        ("retry_saturated", "its delays are whole seconds"),
    ];

    async fn start(stage: Stage) -> Self {
        let queue = Queue::new(&stage.folder.join("effectum.db")).await.expect("a queue");
        let runner = JobRunner::builder("nothing", nothing).build();
        let slots = u16::try_from(stage.in_flight).expect("some hundreds");
        let worker =
            Worker::builder(&queue, stage.seen.clone()).max_concurrency(slots).jobs([runner]);
        let worker = worker.build().await.expect("a worker");
        Self { queue, seen: stage.seen, _worker: worker }
    }

    async fn submit(&self, number: u32) {
        job(number).add_to(&self.queue).await.expect("taken");
    }

    /// Until the handler's word, which may not be stored yet.
    async fn submit_and_wait(&self, number: u32) {
        let end = self.seen.end_of(number);
        self.submit(number).await;
        end.await.expect("an end");
    }

    async fn delay(&self, number: u32) {
        job(number)
            .run_at(OffsetDateTime::now_utc() + HOUR)
            .add_to(&self.queue)
            .await
            .expect("taken");
    }

    async fn stop(&self) {
        self.queue.close(Duration::from_secs(10)).await.expect("closed");
    }
}

#[tokio::main]
async fn main() {
    measure::all::<Effectum>().await;
}

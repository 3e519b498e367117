//! apalis on PostgreSQL: a library whose queue is a table. The server is PostgreSQL, as initdb makes it (fsync and
//! synchronous_commit on); the worker is in this process, told of new jobs by NOTIFY, and takes up to 200 at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use apalis::layers::retry::backoff::{ExponentialBackoffMaker, MakeBackoff};
use apalis::layers::retry::{HasherRng, RetryPolicy};
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use measure::{BACKOFF, Fail, HOUR, Peer, Seen, Stage};
use tokio::task::JoinHandle;

static DATABASES: AtomicU32 = AtomicU32::new(0);

struct Apalis {
    storage: PostgresStorage<u32>,
    pool: PgPool,
    seen: Arc<Seen>,
    worker: JoinHandle<()>,
}

async fn nothing(job: u32, seen: Data<Arc<Seen>>) -> Result<u32, Fail> {
    seen.call(job)
}

impl Peer for Apalis {
    const NAME: &'static str = "apalis";

    async fn start(stage: Stage) -> Self {
        let cluster = std::env::var("DATABASE_URL").expect("DATABASE_URL, as `run` sets it");
        let name = format!("apalis_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let admin = PgPool::connect(&format!("{cluster}/postgres")).await.expect("PostgreSQL");
        sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&admin)
            .await
            .expect("a database");
        admin.close().await;
        let pool = PgPool::connect(&format!("{cluster}/{name}")).await.expect("PostgreSQL");
        PostgresStorage::<()>::setup(&pool).await.expect("its tables");
        let config = Config::default().queue("bench").batch_size(200);
        let storage = PostgresStorage::<u32>::new(&pool).with_config(config);

        let backoff = ExponentialBackoffMaker::new(BACKOFF, BACKOFF, 0.0, HasherRng::default());
        let backoff = backoff.expect("a backoff").make_backoff();
        let backend = storage.clone().with_pubsub().poll_with_interval(Duration::from_millis(100));
        let worker = WorkerBuilder::new("bench")
            .backend(backend)
            .data(stage.seen.clone())
            .concurrency(256)
            .retry(RetryPolicy::retries(2).with_backoff(backoff))
            .build(nothing);
        let worker = tokio::spawn(async move { worker.run().await.expect("a worker") });
        Self { storage, pool, seen: stage.seen, worker }
    }

    async fn submit(&self, job: u32) {
        self.storage.clone().push(job).await.expect("taken");
    }

    /// Its own wait asks every 500 ms: the handler tells, then the status is asked until it is stored.
    async fn submit_and_wait(&self, job: u32) {
        let end = self.seen.end_of(job);
        let id = TaskId::from(ulid::Ulid::generate());
        let task = TaskBuilder::new(job).task_id(id.clone()).build();
        let mut storage = self.storage.clone();
        storage.push_task(task).await.expect("taken");
        end.await.expect("an end");
        loop {
            let found: Vec<TaskResult<u32>> =
                storage.check_status([id.clone()]).await.expect("a status");
            if !found.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn delay(&self, job: u32) {
        let task = TaskBuilder::new(job).run_after(HOUR).build();
        self.storage.clone().push_task(task).await.expect("taken");
    }

    fn server(&self) -> u32 {
        std::env::var("POSTGRES")
            .ok()
            .and_then(|id| id.parse().ok())
            .expect("POSTGRES, as `run` sets it")
    }

    async fn stop(&self) {
        self.worker.abort();
        self.pool.close().await;
    }
}

#[tokio::main]
async fn main() {
    measure::all::<Apalis>().await;
}

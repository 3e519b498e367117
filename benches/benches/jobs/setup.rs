//! A server with a worker whose function does nothing, and what that function has seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast::{Backoff, Client, Context, Error, Jitter, Job, Retry, Step, Worker};
use steadfast_benches::{Folder, Server};
use tokio::sync::Notify;

pub(crate) const BACKOFF: Duration = Duration::from_millis(100);
/// Jobs that are made and sent together.
const CHUNK: u32 = 50_000;

pub(crate) struct Bench {
    /// Ends before its folder goes.
    pub(crate) server: Server,
    pub(crate) folder: Arc<Folder>,
    pub(crate) client: Client,
    pub(crate) seen: Arc<Seen>,
    pub(crate) working: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) done: AtomicU32,
    /// When the attempt before failed, and how much too late the next ones came.
    failed: Mutex<HashMap<u32, Instant>>,
    pub(crate) late: Mutex<Vec<Duration>>,
    pub(crate) early: AtomicU32,
    /// Of one job each: its function has run.
    ended: Mutex<HashMap<u32, Arc<Notify>>>,
}

impl Seen {
    /// `fails`: how often before it succeeds.
    fn call(&self, job: u32, attempt: u32, fails: u32) -> Result<u32, Error> {
        let mut failed = self.failed.lock().expect("no panic");
        if let Some(before) = failed.remove(&job) {
            match before.elapsed().checked_sub(BACKOFF) {
                Some(late) => self.late.lock().expect("no panic").push(late),
                None => drop(self.early.fetch_add(1, Ordering::Relaxed)),
            }
        }
        if attempt <= fails {
            failed.insert(job, Instant::now());
            return Err(Error::new("fails twice"));
        }
        drop(failed);
        if let Some(end) = self.ended.lock().expect("no panic").remove(&job) {
            end.notify_one();
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(job)
    }

    fn end_of(&self, job: u32) -> Arc<Notify> {
        self.ended.lock().expect("no panic").entry(job).or_default().clone()
    }
}

impl Bench {
    /// On what a server before has left in `folder`, or on nothing.
    pub(crate) async fn start(slots: u32, fails: u32, folder: Option<&Arc<Folder>>) -> Self {
        let folder = folder.cloned().unwrap_or_default();
        let server = Server::start("server", &folder, &[]);
        let address = format!("http://{}", server.address);
        let client = Client::connect(&*address).await.expect("a server");
        let seen = Arc::new(Seen::default());
        let working = work(&[address], &seen, slots, fails);
        let bench = Self { server, folder, client, seen, working };
        // The first job waits for the worker to come in.
        let id = bench.client.submit(&job(u32::MAX)).await.expect("taken");
        assert!(bench.client.wait(&id).await.expect("ended").is_success());
        bench.seen.done.store(0, Ordering::Relaxed);
        bench.seen.early.store(0, Ordering::Relaxed);
        bench.seen.late.lock().expect("no panic").clear();
        bench
    }

    /// All that were submitted have been called.
    pub(crate) async fn done(&self, jobs: u32) {
        while self.seen.done.load(Ordering::Relaxed) < jobs {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn submit_all(&self, jobs: impl Iterator<Item = Job> + Send) {
        for answer in self.client.submit_all(jobs).await {
            answer.expect("accepted");
        }
    }

    /// In several chunks, each `until` what it says has come of it.
    pub(crate) async fn submit_chunks(&self, jobs: u32, make: fn(u32) -> Job, until: Until) {
        for from in (0..jobs).step_by(CHUNK as usize) {
            let end = jobs.min(from + CHUNK);
            self.submit_all((from..end).map(make)).await;
            if !matches!(until, Until::Accepted) {
                self.done(end).await;
            }
        }
    }

    /// `in_flight` tasks submit one job after the other; the next when the last is done, as `until` says.
    pub(crate) async fn submit(&self, in_flight: u32, jobs: u32, until: Until) {
        self.seen.done.store(0, Ordering::Relaxed);
        let next = Arc::new(AtomicU32::new(0));
        let tasks = (0..in_flight).map(|_| {
            let (next, client, seen) = (next.clone(), self.client.clone(), self.seen.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return;
                    }
                    one(number, &client, &seen, until).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        if !matches!(until, Until::Accepted) {
            assert_eq!(self.seen.done.load(Ordering::Relaxed), jobs);
        }
    }
}

pub(crate) async fn one(number: u32, client: &Client, seen: &Seen, until: Until) {
    let job = job(number);
    match until {
        Until::Accepted => drop(client.submit(&job).await.expect("taken")),
        Until::Called => {
            let end = seen.end_of(number);
            client.submit(&job).await.expect("taken");
            end.notified().await;
        }
        Until::Told => {
            let status = client.run(&job).await.expect("ended");
            assert!(status.is_success(), "{status:?}");
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The server has stored it.
    Accepted,
    /// The function has succeeded, here.
    Called,
    /// The client knows the result, and that it is durable.
    Told,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.working.abort();
    }
}

/// For servers at these addresses.
pub(crate) fn work(
    addresses: &[String],
    seen: &Arc<Seen>,
    slots: u32,
    fails: u32,
) -> tokio::task::JoinHandle<()> {
    let calls = Arc::clone(seen);
    let function = move |context: Context, job: u32| {
        let called = calls.call(job, context.attempt(), fails);
        async move { called }
    };
    let [first, others @ ..] = addresses else { panic!("a server") };
    let worker = Worker::builder().slots(slots).servers(others).function("nothing", function);
    let (worker, first) = (worker.build(), first.clone());
    tokio::spawn(async move { drop(worker.run(first).await) })
}

pub(crate) fn job(number: u32) -> Job {
    let retry = Retry::new()
        .max_attempts(3)
        .backoff(Backoff::Fixed)
        .initial_delay(BACKOFF)
        .jitter(Jitter::None);
    let step = Step::call("s", "nothing").input(&number).expect("JSON").retry(retry);
    Job::new("separate").step(step)
}

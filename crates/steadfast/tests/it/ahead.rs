//! Functions that are handed out before their slots are free. Nobody is to notice.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::{Context, Error, Job, Status, Step, Worker};

use crate::server::{Server, ended};

const SLOTS: u32 = 4;

/// What functions saw of each other.
#[derive(Debug, Default)]
struct Seen {
    now: AtomicU32,
    most: AtomicU32,
    /// How often each item began.
    begun: Mutex<Vec<u32>>,
}

impl Seen {
    async fn run(&self, index: u32, takes: Option<Duration>) {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        {
            let mut begun = self.begun.lock().expect("unpoisoned");
            let index = index as usize;
            let items = begun.len().max(index + 1);
            begun.resize(items, 0);
            begun[index] += 1;
        }
        match takes {
            Some(takes) => tokio::time::sleep(takes).await,
            None => tokio::task::yield_now().await,
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn each_once(&self, items: usize) {
        assert_eq!(*self.begun.lock().expect("unpoisoned"), vec![1; items]);
    }
}

/// A worker whose function `f` takes as long as is said of its item.
fn worker(name: &str, seen: &Arc<Seen>, takes: fn(u32) -> Option<Duration>) -> Worker {
    let seen = seen.clone();
    let function = move |ctx: Context, (): ()| {
        let seen = seen.clone();
        async move {
            let index = ctx.item_index();
            seen.run(index, takes(index)).await;
            Ok::<_, Error>(index)
        }
    };
    Worker::builder().name(name).slots(SLOTS).function("f", function).build()
}

fn many(items: u32) -> Step {
    Step::call("s", "f").for_each_range(items)
}

#[track_caller]
fn free_of_charge(status: &Status, items: u32) {
    assert!(status.is_success(), "{status:?}");
    let counts = &status.step("s").expect("a step").counts;
    assert_eq!(counts.get(&steadfast::ItemState::Succeeded), Some(&items), "{counts:?}");
    assert_eq!((status.failures, status.preemptions), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_short_functions_each_run_once_and_no_more_at_once_than_slots() {
    let (server, seen) = (Server::start().await, Arc::new(Seen::default()));
    let _working = server.work(worker("short", &seen, |_| None));
    let job = Job::new("short").step(many(5000));
    free_of_charge(&ended(&server.client().await, &job).await, 5000);
    seen.each_once(5000);
    assert!(seen.most() <= SLOTS, "{} at once", seen.most());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steps_parallelism_holds_however_short_its_functions_are() {
    let (server, seen) = (Server::start().await, Arc::new(Seen::default()));
    let _working = server.work(worker("short", &seen, |_| None));
    let job = Job::new("short").step(many(1000).parallelism(2));
    free_of_charge(&ended(&server.client().await, &job).await, 1000);
    seen.each_once(1000);
    assert!(seen.most() <= 2, "{} at once", seen.most());
}

/// Those behind the long ones are handed back, and run when there is room, there or elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn long_functions_that_follow_short_ones_cost_nobody_anything() {
    let (server, seen) = (Server::start().await, Arc::new(Seen::default()));
    let takes = |index| (1000..1012).contains(&index).then_some(Duration::from_millis(1500));
    let _one = server.work(worker("one", &seen, takes));
    let _two = server.work(worker("two", &seen, takes));
    let job = Job::new("mixed").step(many(2000));
    free_of_charge(&ended(&server.client().await, &job).await, 2000);
    seen.each_once(2000);
    assert!(seen.most() <= 2 * SLOTS, "{} at once", seen.most());
}

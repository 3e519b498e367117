//! Slots, their queue, and what becomes of what waits in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use steadfast_worker::{Folders, LONGEST_WAIT, Over, Pool, Prepared, Tasks};

use super::*;

/// Tasks are attempts; what becomes of them is told in order.
struct LocalExecutor {
    told: Sender<(u32, Over)>,
    under_way: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Tasks for LocalExecutor {
    type Key = u32;
    type Task = Attempt;

    fn prepare(&self, _: &u32, task: &Attempt) -> Result<Prepared, Outcome> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Ok(Prepared { attempt: task.clone(), ports: vec![] })
    }

    fn over(&self, key: &u32, _: &Attempt, how: Over) {
        if how != Over::NeverBegan {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
        let _ = self.told.send((*key, how));
    }
}

fn pool(slots: u32) -> (Pool<LocalExecutor>, Receiver<(u32, Over)>, Arc<AtomicUsize>) {
    let (told, over) = channel();
    let most = Arc::new(AtomicUsize::new(0));
    let shop = LocalExecutor { told, under_way: AtomicUsize::new(0), most: most.clone() };
    (Pool::new(slots, Arc::new(shop)), over, most)
}

fn succeeded() -> Over {
    Over::Ended(Ended::Outcome(Outcome::Succeeded { output: None }))
}

/// One that has begun, and goes on until something is written to the second pipe.
fn begin_long(pool: &Pool<LocalExecutor>, folder: &Folder, key: u32) -> PathBuf {
    let (begun, go) = (folder.fifo(&format!("begun{key}")), folder.fifo(&format!("go{key}")));
    pool.assign(key, folder.shell(&format!("echo > begun{key}; read line < go{key}")));
    fs::read(begun).unwrap();
    go
}

#[test]
fn what_waits_too_long_is_handed_back_and_never_begins() {
    let folder = Folder::new();
    let (pool, over, _) = pool(1);
    let go = begin_long(&pool, &folder, 1);
    pool.assign(2, folder.shell("echo > ran"));
    assert_eq!(over.recv_timeout(LONGEST_WAIT * 20), Ok((2, Over::NeverBegan)));
    assert_eq!(pool.running(), [1]);
    fs::write(go, "\n").unwrap();
    assert_eq!(over.recv_timeout(LONG), Ok((1, succeeded())));
    // The same, assigned again, has a slot now.
    pool.assign(2, folder.shell("echo > ran"));
    assert_eq!(over.recv_timeout(LONG), Ok((2, succeeded())));
    assert!(folder.path("ran").exists());
}

#[test]
fn what_waits_when_all_is_stopped_never_began() {
    let folder = Folder::new();
    let (pool, over, _) = pool(1);
    begin_long(&pool, &folder, 1);
    pool.assign(2, folder.shell("echo > ran"));
    pool.assign(3, folder.shell("echo > ran"));
    pool.stop_all();
    pool.assign(4, folder.shell("echo > ran"));
    let mut told: Vec<_> = (0..4).map(|_| over.recv_timeout(LONG).unwrap()).collect();
    told.sort_by_key(|(key, _)| *key);
    let never = |key| (key, Over::NeverBegan);
    assert_eq!(told, [(1, Over::Ended(Ended::Stopped)), never(2), never(3), never(4)]);
    assert!(!folder.path("ran").exists());
    while !pool.is_idle() {
        std::thread::yield_now();
    }
}

#[test]
fn one_that_is_stopped_leaves_the_others_and_its_slot() {
    let folder = Folder::new();
    let (pool, over, _) = pool(1);
    begin_long(&pool, &folder, 1);
    pool.assign(2, folder.shell("exit 0"));
    pool.assign(3, folder.shell("exit 0"));
    pool.stop(&2);
    assert_eq!(over.recv_timeout(LONG), Ok((2, Over::NeverBegan)));
    pool.kill(&1);
    assert_eq!(over.recv_timeout(LONG), Ok((1, Over::Ended(Ended::Stopped))));
    assert_eq!(over.recv_timeout(LONG), Ok((3, succeeded())));
}

#[test]
fn however_many_wait_no_more_run_than_there_are_slots() {
    let folder = Folder::new();
    let (pool, over, most) = pool(3);
    for key in 0..60 {
        pool.assign(key, folder.argv(&["/bin/true"]));
    }
    let mut keys: Vec<_> = over.iter().take(60).map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..60), "each is told of once");
    assert!(most.load(Ordering::SeqCst) <= 3);
}

#[test]
fn only_an_empty_folder_of_a_success_is_handed_on() {
    let place = Folder::new();
    let folders = Folders::new(false);
    for name in ["empty", "full", "failed"] {
        folders.make(name, &place.path(name)).unwrap();
    }
    fs::write(place.path("full").join("file"), "").unwrap();
    folders.leave(&"failed");
    for name in ["empty", "full", "failed"] {
        folders.settled(&name);
    }
    for name in ["a", "b", "c"] {
        folders.make(name, &place.path(name)).unwrap();
        assert!(fs::read_dir(place.path(name)).unwrap().next().is_none());
    }
    let left = ["empty", "full", "failed"].map(|name| place.path(name).exists());
    assert_eq!(left, [false, true, true]);
}

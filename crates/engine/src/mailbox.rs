//! Messages for one reader, who can wait for several at once.
//!
//! A channel wakes its reader for each message. With thousands of reports in a second, half of what a
//! report costs would be the waking.
//!
//! There are three lanes. While the store stalls, the reader leaves work and new jobs alone, and their senders
//! meet a bound; workers' heartbeats and questions have a lane of their own, and are answered all the same. What is under
//! way comes before new jobs, so that however many of these are sent, no retry waits behind them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) struct Sender<M>(Arc<Shared<M>>);

pub(crate) struct Receiver<M>(Arc<Shared<M>>);

/// In the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// What needs no store.
    Liveness,
    /// What is decided about jobs that are there, and must become durable.
    Work,
    /// The same, of jobs that are not.
    NewJobs,
}

impl Lane {
    const COUNT: usize = 3;
}

struct Shared<M> {
    state: Mutex<State<M>>,
    enough: Condvar,
    room: Condvar,
    most: usize,
}

struct State<M> {
    lanes: [VecDeque<M>; Lane::COUNT],
    /// The reader sleeps.
    wanted: Option<Wanted>,
    /// The reader is gone.
    closed: bool,
    senders: usize,
    /// Senders that wait for room.
    waiting: usize,
}

/// What the reader wakes up for.
#[derive(Clone, Copy)]
struct Wanted {
    /// So many messages in the lanes up to this one.
    count: usize,
    up_to: Lane,
    /// One that is urgent, in the lanes up to this one.
    urgent_up_to: Lane,
}

impl<M> State<M> {
    fn lane(&mut self, lane: Lane) -> &mut VecDeque<M> {
        &mut self.lanes[lane as usize]
    }

    /// `up_to`: with the lanes before it.
    fn len(&self, up_to: Lane) -> usize {
        self.lanes[..=up_to as usize].iter().map(VecDeque::len).sum()
    }
}

/// At most `most` wait in each lane; a sender of more waits with them.
pub(crate) fn mailbox<M>(most: usize) -> (Sender<M>, Receiver<M>) {
    let lanes = [const { VecDeque::new() }; Lane::COUNT];
    let state = State { lanes, wanted: None, closed: false, senders: 1, waiting: 0 };
    let (enough, room) = (Condvar::new(), Condvar::new());
    let shared = Arc::new(Shared { state: Mutex::new(state), enough, room, most });
    (Sender(shared.clone()), Receiver(shared))
}

impl<M> Shared<M> {
    fn held(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        self.0.held().senders += 1;
        Self(self.0.clone())
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        let mut state = self.0.held();
        state.senders -= 1;
        if state.senders == 0 {
            state.wanted = None;
            drop(state);
            self.0.enough.notify_one();
        }
    }
}

/// The reader is gone.
#[derive(Debug)]
pub(crate) struct Closed;

/// Why a message was not taken at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotSent {
    Full,
    Closed,
}

impl<M> Sender<M> {
    /// `urgent`: the reader does not sleep on for more.
    pub(crate) fn send(&self, message: M, lane: Lane, urgent: bool) -> Result<(), Closed> {
        self.send_below(self.0.most, message, lane, urgent)
    }

    /// Waits until fewer than `most` are in the lane.
    pub(crate) fn send_below(
        &self,
        most: usize,
        message: M,
        lane: Lane,
        urgent: bool,
    ) -> Result<(), Closed> {
        let full = |state: &mut State<M>| state.lane(lane).len() >= most && !state.closed;
        let mut state = self.0.held();
        state.waiting += 1;
        let waited = self.0.room.wait_while(state, full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.closed {
            return Err(Closed);
        }
        self.put(state, message, lane, urgent);
        Ok(())
    }

    /// Waits for no room: gives back what there is none for.
    pub(crate) fn try_send(
        &self,
        message: M,
        lane: Lane,
        urgent: bool,
    ) -> Result<(), (NotSent, M)> {
        let mut state = self.0.held();
        if state.closed {
            return Err((NotSent::Closed, message));
        }
        if state.lane(lane).len() >= self.0.most {
            return Err((NotSent::Full, message));
        }
        self.put(state, message, lane, urgent);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State<M>>, message: M, lane: Lane, urgent: bool) {
        state.lane(lane).push_back(message);
        let is_enough = |wanted: Wanted| {
            (urgent && lane <= wanted.urgent_up_to)
                || (lane <= wanted.up_to && state.len(wanted.up_to) >= wanted.count)
        };
        if state.wanted.is_some_and(is_enough) {
            state.wanted = None;
            drop(state);
            self.0.enough.notify_one();
        }
    }
}

impl<M> Receiver<M> {
    pub(crate) fn is_empty(&self, up_to: Lane) -> bool {
        self.len(up_to) == 0
    }

    pub(crate) fn len(&self, up_to: Lane) -> usize {
        self.0.held().len(up_to)
    }

    /// In this lane alone.
    pub(crate) fn waiting(&self, lane: Lane) -> usize {
        self.0.held().lane(lane).len()
    }

    /// No sender is left, and everything that was sent is taken.
    pub(crate) fn is_abandoned(&self) -> bool {
        let state = self.0.held();
        state.senders == 0 && state.len(Lane::NewJobs) == 0
    }

    /// Sleeps until there are `count` messages or an urgent one, at most `longest`; there may be none.
    pub(crate) fn wait_for(&self, count: usize, up_to: Lane, longest: Duration) {
        self.sleep(Wanted { count, up_to, urgent_up_to: up_to }, longest);
    }

    /// The same, in all lanes, where only what needs no store is urgent.
    pub(crate) fn wait_for_many(&self, count: usize, longest: Duration) {
        let (up_to, urgent_up_to) = (Lane::NewJobs, Lane::Liveness);
        self.sleep(Wanted { count, up_to, urgent_up_to }, longest);
    }

    fn sleep(&self, wanted: Wanted, longest: Duration) {
        let mut state = self.0.held();
        if state.len(wanted.up_to) < wanted.count && state.senders > 0 {
            state.wanted = Some(wanted);
            let sleeps = |state: &mut State<M>| state.wanted.is_some();
            let waited = self.0.enough.wait_timeout_while(state, longest, sleeps);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.wanted = None;
        }
    }

    /// What has arrived, at most `most`, lane by lane; of new jobs, if there are any, at least half of it.
    pub(crate) fn take(&self, most: usize, up_to: Lane) -> VecDeque<M> {
        self.take_some_new(most, up_to, most / 2, most)
    }

    /// The same; of new jobs, if there are so many, from `least_new` to `most_new`.
    pub(crate) fn take_some_new(
        &self,
        most: usize,
        up_to: Lane,
        least_new: usize,
        most_new: usize,
    ) -> VecDeque<M> {
        let mut state = self.0.held();
        let new_jobs =
            if up_to == Lane::NewJobs { state.lane(up_to).len().min(least_new) } else { 0 };
        let mut taken = VecDeque::new();
        for lane in [Lane::Liveness, Lane::Work, Lane::NewJobs] {
            let kept_free = if lane == Lane::Work { new_jobs } else { 0 };
            let room = most.saturating_sub(taken.len() + kept_free);
            let room = if lane == Lane::NewJobs { room.min(most_new) } else { room };
            if lane <= up_to && room > 0 {
                let mut part = part(state.lane(lane), room);
                if taken.is_empty() {
                    taken = part;
                } else {
                    taken.append(&mut part);
                }
            }
        }
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.0.room.notify_all();
        }
        taken
    }
}

fn part<M>(lane: &mut VecDeque<M>, most: usize) -> VecDeque<M> {
    if lane.len() <= most { std::mem::take(lane) } else { lane.drain(..most).collect() }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        let mut state = self.0.held();
        state.closed = true;
        // Callers that wait for the answer to a message in here have to learn that there is none.
        let left = std::mem::replace(&mut state.lanes, [const { VecDeque::new() }; Lane::COUNT]);
        drop(state);
        drop(left);
        self.0.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn the_reader_sleeps_until_there_are_enough_or_one_is_urgent() {
        let (sender, receiver) = mailbox(10);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=3).for_each(|n| sender.send(n, Lane::Work, false).expect("open")));
            receiver.wait_for(3, Lane::Work, LONG);
            assert_eq!(receiver.take(10, Lane::Work), [1, 2, 3]);
            scope.spawn(|| sender.send(4, Lane::Liveness, true).expect("open"));
            receiver.wait_for(3, Lane::Work, LONG);
            assert_eq!(receiver.take(10, Lane::Work), [4]);
        });
        receiver.wait_for(1, Lane::Work, Duration::from_millis(1));
        assert!(receiver.take(10, Lane::Work).is_empty());
    }

    #[test]
    fn what_the_reader_would_leave_alone_does_not_wake_it() {
        let (sender, receiver) = mailbox(10);
        let sleeps = || receiver.0.held().wanted.is_some();
        std::thread::scope(|scope| {
            for (first, second) in [(Lane::NewJobs, Lane::Work), (Lane::Work, Lane::NewJobs)] {
                let reader = scope.spawn(|| receiver.wait_for(1, Lane::Liveness, LONG));
                while !sleeps() {
                    std::thread::yield_now();
                }
                sender.send(1, first, true).expect("open");
                sender.send(2, second, true).expect("open");
                assert!(sleeps());
                sender.send(3, Lane::Liveness, true).expect("open");
                reader.join().expect("ends");
                assert_eq!(receiver.take(9, Lane::NewJobs).len(), 3);
            }
            let reader = scope.spawn(|| receiver.wait_for_many(3, LONG));
            while !sleeps() {
                std::thread::yield_now();
            }
            sender.send(1, Lane::NewJobs, true).expect("open");
            sender.send(2, Lane::Work, true).expect("open");
            assert!(sleeps());
            sender.send(3, Lane::NewJobs, true).expect("open");
            reader.join().expect("ends");
        });
    }

    #[test]
    fn who_sends_too_much_waits_until_there_is_room_or_nobody() {
        let (sender, receiver) = mailbox(2);
        std::thread::scope(|scope| {
            let sends = scope
                .spawn(|| (1..=5).map(|n| sender.send(n, Lane::Work, false)).collect::<Vec<_>>());
            let mut seen = vec![];
            while seen.len() < 3 {
                receiver.wait_for(1, Lane::Work, LONG);
                seen.extend(receiver.take(1, Lane::Work));
            }
            assert_eq!(seen, [1, 2, 3]);
            drop(receiver);
            let sent = sends.join().expect("ends");
            assert!(sent[..3].iter().all(Result::is_ok));
        });
        assert!(sender.send(6, Lane::Work, true).is_err());
    }

    #[test]
    fn signs_of_life_pass_work_that_is_left_alone() {
        let (sender, receiver) = mailbox(2);
        for n in [1, 2] {
            sender.send(n, Lane::Work, false).expect("open");
        }
        assert!(matches!(sender.try_send(3, Lane::Work, false), Err((NotSent::Full, 3))));
        sender.try_send(10, Lane::Liveness, true).expect("a lane of its own");
        assert_eq!(receiver.take(10, Lane::Liveness), [10]);
        assert!(receiver.is_empty(Lane::Liveness) && !receiver.is_empty(Lane::Work));
        sender.try_send(11, Lane::Liveness, true).expect("room");
        assert_eq!(receiver.take(10, Lane::Work), [11, 1, 2]);
    }

    #[test]
    fn what_is_under_way_passes_new_jobs_and_does_not_keep_them_out() {
        let (sender, receiver) = mailbox(20);
        for n in 0..10 {
            sender.send(100 + n, Lane::NewJobs, true).expect("open");
            sender.send(n, Lane::Work, true).expect("open");
        }
        assert_eq!(receiver.take(8, Lane::NewJobs), [0, 1, 2, 3, 100, 101, 102, 103]);
        assert_eq!(receiver.take(5, Lane::Work), [4, 5, 6, 7, 8]);
        assert_eq!(receiver.take(4, Lane::NewJobs), [9, 104, 105, 106]);
        assert_eq!(receiver.take(99, Lane::NewJobs), [107, 108, 109]);
        for n in 0..10 {
            sender.send(100 + n, Lane::NewJobs, true).expect("open");
            sender.send(n, Lane::Work, true).expect("open");
        }
        assert_eq!(receiver.waiting(Lane::NewJobs), 10);
        assert_eq!(receiver.take_some_new(4, Lane::NewJobs, 1, 1), [0, 1, 2, 100]);
        assert_eq!(receiver.take_some_new(4, Lane::Work, 1, 1), [3, 4, 5, 6]);
        assert_eq!(receiver.take_some_new(9, Lane::NewJobs, 1, 2), [7, 8, 9, 101, 102]);
    }

    #[test]
    fn the_reader_learns_that_nobody_is_left_to_send() {
        let (sender, receiver) = mailbox(2);
        let other = sender.clone();
        other.send(1, Lane::Work, false).expect("open");
        drop(sender);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(other));
            receiver.wait_for(2, Lane::Work, LONG);
        });
        assert!(!receiver.is_abandoned(), "there is something to take");
        assert_eq!(receiver.take(9, Lane::Work), [1]);
        receiver.wait_for(1, Lane::Work, LONG);
        assert!(receiver.is_abandoned());
    }

    #[test]
    fn who_leaves_room_for_others_waits_sooner() {
        let (sender, receiver) = mailbox(4);
        std::thread::scope(|scope| {
            let loads = sender.clone();
            scope.spawn(move || {
                (1..=3).for_each(|n| drop(loads.send_below(1, n, Lane::Work, true)));
            });
            for n in 1..=3 {
                receiver.wait_for(1, Lane::Work, LONG);
                assert_eq!(receiver.take(1, Lane::Work), [n]);
                assert!(receiver.0.held().lane(Lane::Work).len() <= 1);
            }
        });
    }
}

//! A bounded queue between threads that must not wait and one that may: log lines, spans.
//!
//! Whoever puts something in never waits: what does not fit is refused, and theirs to count.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Bounded<T> {
    most: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Taken out, and not yet done with.
    busy: bool,
    closed: bool,
}

impl<T> std::fmt::Debug for Bounded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bounded").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<T> Bounded<T> {
    pub(super) fn new(most: usize) -> Self {
        let state = State { waiting: VecDeque::new(), busy: false, closed: false };
        Self { most, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False: it is full or closed, and `item` is gone.
    pub(super) fn put(&self, item: T) -> bool {
        let mut state = self.lock();
        let fits = !state.closed && state.waiting.len() < self.most;
        if fits {
            state.waiting.push_back(item);
            drop(state);
            self.changed.notify_all();
        }
        fits
    }

    /// Waits for something, then at most `linger` for it to become `most`. None: closed and empty.
    /// What was taken before is done with.
    pub(super) fn take(&self, most: usize, linger: Duration) -> Option<Vec<T>> {
        let mut state = self.lock();
        state.busy = false;
        self.changed.notify_all();
        state = self
            .changed
            .wait_while(state, |state| state.waiting.is_empty() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        if !linger.is_zero() {
            (state, _) = self
                .changed
                .wait_timeout_while(state, linger, |s| s.waiting.len() < most && !s.closed)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.waiting.is_empty() {
            return None;
        }
        state.busy = true;
        let taken = most.min(state.waiting.len());
        Some(state.waiting.drain(..taken).collect())
    }

    /// Takes nothing more in, and waits at most `wait` until all is done with. False: it is not.
    pub(super) fn close(&self, wait: Duration) -> bool {
        let mut state = self.lock();
        state.closed = true;
        self.changed.notify_all();
        let open = |state: &mut State<T>| state.busy || !state.waiting.is_empty();
        let (state, timed_out) = self
            .changed
            .wait_timeout_while(state, wait, open)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !timed_out.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_full_queue_refuses_instead_of_waiting() {
        let queue = Bounded::new(2);
        assert!(queue.put(1) && queue.put(2));
        assert!(!queue.put(3));
        assert_eq!(queue.take(10, Duration::ZERO), Some(vec![1, 2]));
        assert!(queue.put(4));
    }

    #[test]
    fn closing_waits_for_what_is_in_it() {
        let queue = Arc::new(Bounded::new(100));
        for i in 0..100 {
            assert!(queue.put(i));
        }
        let taker = queue.clone();
        let taken = std::thread::spawn(move || {
            let mut all = vec![];
            while let Some(some) = taker.take(7, Duration::ZERO) {
                all.extend(some);
            }
            all
        });
        assert!(queue.close(Duration::from_mins(1)));
        assert_eq!(taken.join().unwrap(), (0..100).collect::<Vec<_>>());
        assert!(!queue.put(1), "a closed queue takes nothing in");
    }

    #[test]
    fn closing_gives_up_on_a_taker_that_is_stuck() {
        let queue = Bounded::new(1);
        assert!(queue.put(1));
        assert!(!queue.close(Duration::from_millis(1)));
    }
}

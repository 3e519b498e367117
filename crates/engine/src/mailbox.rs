//! Messages for one reader, who can wait for several at once.
//!
//! A channel wakes its reader for each message. With thousands of reports in a second, half of what a
//! report costs would be the waking.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) struct Sender<M>(Arc<Shared<M>>);

pub(crate) struct Receiver<M>(Arc<Shared<M>>);

struct Shared<M> {
    state: Mutex<State<M>>,
    enough: Condvar,
    room: Condvar,
    most: usize,
}

struct State<M> {
    messages: VecDeque<M>,
    /// The reader sleeps until there are so many.
    wanted: Option<usize>,
    /// Nobody will read any more.
    closed: bool,
}

/// At most so many wait; whoever sends more waits with them.
pub(crate) fn mailbox<M>(most: usize) -> (Sender<M>, Receiver<M>) {
    let state = State { messages: VecDeque::new(), wanted: None, closed: false };
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
        Self(self.0.clone())
    }
}

/// Nobody reads any more.
#[derive(Debug)]
pub(crate) struct Closed;

/// Why a message was not taken at once.
#[derive(Debug)]
pub(crate) enum NotSent {
    Full,
    Closed,
}

impl<M> Sender<M> {
    /// `urgent`: the reader does not sleep on for more.
    pub(crate) fn send(&self, message: M, urgent: bool) -> Result<(), Closed> {
        let full = |state: &mut State<M>| state.messages.len() >= self.0.most && !state.closed;
        let waited = self.0.room.wait_while(self.0.held(), full);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Closed);
        }
        self.put(state, message, urgent);
        Ok(())
    }

    /// Waits for no room.
    pub(crate) fn try_send(&self, message: M, urgent: bool) -> Result<(), NotSent> {
        let state = self.0.held();
        if state.closed {
            return Err(NotSent::Closed);
        }
        if state.messages.len() >= self.0.most {
            return Err(NotSent::Full);
        }
        self.put(state, message, urgent);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State<M>>, message: M, urgent: bool) {
        state.messages.push_back(message);
        let enough = state.wanted.is_some_and(|wanted| urgent || state.messages.len() >= wanted);
        if enough {
            state.wanted = None;
            drop(state);
            self.0.enough.notify_one();
        }
    }
}

impl<M> Receiver<M> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.held().messages.is_empty()
    }

    /// Sleeps until there are so many messages or an urgent one, or for so long; there may be none.
    pub(crate) fn wait_for(&self, wanted: usize, longest: Duration) {
        let mut state = self.0.held();
        if state.messages.len() < wanted {
            state.wanted = Some(wanted);
            let sleeps = |state: &mut State<M>| state.wanted.is_some();
            let waited = self.0.enough.wait_timeout_while(state, longest, sleeps);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.wanted = None;
        }
    }

    /// What has arrived, up to so many.
    pub(crate) fn take(&self, most: usize) -> VecDeque<M> {
        let mut state = self.0.held();
        let was_full = state.messages.len() >= self.0.most;
        let taken = if state.messages.len() <= most {
            std::mem::take(&mut state.messages)
        } else {
            state.messages.drain(..most).collect()
        };
        drop(state);
        if was_full {
            self.0.room.notify_all();
        }
        taken
    }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        let mut state = self.0.held();
        state.closed = true;
        // Whoever waits for the answer to a message in here has to learn that there is none.
        state.messages.clear();
        drop(state);
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
            scope.spawn(|| (1..=3).for_each(|n| sender.send(n, false).expect("open")));
            receiver.wait_for(3, LONG);
            assert_eq!(receiver.take(10), [1, 2, 3]);
            scope.spawn(|| sender.send(4, true).expect("open"));
            receiver.wait_for(3, LONG);
            assert_eq!(receiver.take(10), [4]);
        });
        receiver.wait_for(1, Duration::from_millis(1));
        assert!(receiver.take(10).is_empty());
    }

    #[test]
    fn who_sends_too_much_waits_until_there_is_room_or_nobody() {
        let (sender, receiver) = mailbox(2);
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| (1..=5).map(|n| sender.send(n, false)).collect::<Vec<_>>());
            let mut seen = vec![];
            while seen.len() < 3 {
                receiver.wait_for(1, LONG);
                seen.extend(receiver.take(1));
            }
            assert_eq!(seen, [1, 2, 3]);
            drop(receiver);
            let sent = sends.join().expect("ends");
            assert!(sent[..3].iter().all(Result::is_ok));
        });
        assert!(sender.send(6, true).is_err());
    }
}

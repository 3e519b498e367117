//! How long the worker may go on with what it runs.
//!
//! A lease is counted from when a beat was *sent*, not from when its answer came: the server counts from
//! when the beat arrived, which is later, so the worker always stops first. The clock goes on while the
//! machine sleeps. No clock is read here but in [`clock`].

use std::collections::VecDeque;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use steadfast_core::defects::{Defect, is_on};

/// Beats that may be unanswered and still remembered: a lease is much shorter than so many.
const REMEMBERED: usize = 1_024;

/// Time since some moment in the past, the machine's sleep included. Never goes back.
pub(crate) fn clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

#[derive(Debug, Default)]
pub struct Lease {
    length: Duration,
    until: Option<Duration>,
    /// Of this session, oldest first.
    sent: VecDeque<(u64, Duration)>,
    number: u64,
}

impl Lease {
    /// A session was opened: the welcome answers the hello. What was promised before is void, for the
    /// server may have been set up anew meanwhile.
    pub fn welcome(&mut self, hello_sent: Duration, length: Duration) {
        self.length = length;
        self.sent.clear();
        self.until = Some(hello_sent.saturating_add(length));
    }

    /// `None`: there never was one.
    pub fn length(&self) -> Option<Duration> {
        self.until.map(|_| self.length)
    }

    /// The number of the next beat.
    pub fn beat(&mut self, now: Duration) -> u64 {
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.number += 1;
        self.sent.push_back((self.number, now));
        self.number
    }

    pub fn answered(&mut self, number: u64) {
        let Some(at) = self.sent.iter().position(|(sent, _)| *sent == number) else { return };
        let sent = self.sent[at].1;
        self.sent.drain(..=at);
        let until = sent.saturating_add(self.length);
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
    }

    /// `None`: there never was one.
    pub fn until(&self) -> Option<Duration> {
        self.until
    }

    /// Zero: it has ended. `None`: there never was one.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        self.until.map(|until| until.saturating_sub(now))
    }

    pub fn is_over(&self, now: Duration) -> bool {
        self.left(now).is_some_and(|left| left.is_zero()) && !is_on(Defect::WorkerIgnoresItsLease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_late_answer_does_not_lengthen_the_lease_beyond_what_the_server_gives() {
        let mut lease = Lease::default();
        lease.welcome(s(100), s(10));
        let first = lease.beat(s(102));
        let second = lease.beat(s(104));
        assert_eq!(lease.left(s(109)), Some(s(1)));
        // Whenever the answer comes, it counts from 102.
        lease.answered(first);
        assert_eq!(lease.left(s(109)), Some(s(3)));
        lease.answered(second);
        assert_eq!(lease.left(s(109)), Some(s(5)));
        assert!(lease.is_over(s(114)));
    }

    #[test]
    fn answers_that_are_doubled_unknown_or_out_of_order_shorten_nothing() {
        let mut lease = Lease::default();
        lease.welcome(s(0), s(10));
        let (first, second) = (lease.beat(s(1)), lease.beat(s(2)));
        lease.answered(second);
        for number in [first, second, 0, 99] {
            lease.answered(number);
            assert_eq!(lease.left(s(2)), Some(s(10)));
        }
    }

    #[test]
    fn an_answer_to_a_beat_of_a_session_that_has_broken_counts_for_nothing() {
        let mut lease = Lease::default();
        lease.welcome(s(0), s(10));
        let before = lease.beat(s(5));
        lease.welcome(s(6), s(4));
        lease.answered(before);
        assert_eq!(lease.left(s(6)), Some(s(4)), "it counts from the hello");
    }
}

//! How many attempts are handed out before a slot is free for them.
//!
//! An attempt starts only when that is durable. A process of a millisecond ends sooner than a disk syncs,
//! and its slot would then wait for the disk again and again. So while attempts are very short, the next
//! ones are handed out ahead and wait where they will run.

use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;

/// An attempt is short if slots are free again so soon, on average.
const SHORT_MS: u64 = 25;
/// As many are handed out ahead as the slots finish in this time: longer than it takes to gather a
/// group and to sync it.
const AHEAD_MS: u64 = 20;
/// A group's reports come in one moment, and seem faster than they are: this many for each slot at most,
const MOST_EACH: u32 = 8;
/// and no more than are stored while they wait.
const MOST_AHEAD: u32 = 512;
/// Attempts of each slot that one measurement is made of, so that slots that end all at once are
/// not taken for fast ones.
const LAP: u32 = 2;

/// Made of what has been reported, and when; it has no clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefetch {
    since: Option<Timestamp>,
    reports: u32,
    /// The lap begins with the start of attempts, and not with the end of one: each slot's first report is enough.
    from_start: bool,
    ahead: u32,
}

impl Prefetch {
    pub(crate) fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Before something is handed out: what has rested since may be of another kind now.
    pub(crate) fn look(&mut self, at: Timestamp) {
        if self.since.is_some_and(|since| is_long(at.since(since))) {
            self.ahead = 0;
        }
    }

    /// An attempt has a slot. When the first ones began is known, and how long they took as soon as they are over.
    pub(crate) fn started(&mut self, at: Timestamp) {
        if self.since.is_none() {
            (self.since, self.from_start) = (Some(at), true);
        }
    }

    /// An attempt in one of `slots` was reported to be over.
    pub(crate) fn reported(&mut self, slots: u32, outcome: &Outcome, at: Timestamp) {
        match outcome {
            // Handed back: it waited behind long ones.
            Outcome::Lost { started: false, .. } => return *self = Self::default(),
            // Says nothing about how long attempts take.
            Outcome::Lost { started: true, .. } => return,
            Outcome::Succeeded { .. } | Outcome::Failed(_) => {}
        }
        let took = at.since(*self.since.get_or_insert(at));
        self.reports += 1;
        if is_long(took) {
            self.ahead = 0;
        }
        // From start to end one each is enough; from the first of a lap, which is one end, to the last.
        let (lap, is_over, is_short) = if self.from_start {
            (slots, self.reports >= slots, took <= SHORT_MS)
        } else {
            let lap = slots.saturating_mul(LAP);
            (lap, self.reports > lap, !is_long(took))
        };
        if is_over {
            if is_short {
                let finished = u64::from(lap) * AHEAD_MS / took.max(1);
                let most = slots.saturating_mul(MOST_EACH).min(MOST_AHEAD);
                self.ahead = finished.min(most.into()) as u32;
            }
            // The last of this lap is where the next begins.
            (self.since, self.reports, self.from_start) = (Some(at), 1, false);
        }
    }
}

/// For a lap.
fn is_long(took_ms: u64) -> bool {
    took_ms > SHORT_MS * u64::from(LAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Outcome = Outcome::Succeeded { output: None };

    /// Attempts of `each_ms`, `slots` at a time, which all begin at once.
    fn after(pace: &mut Prefetch, slots: u32, each_ms: u64, rounds: u64) -> u32 {
        let from = pace.since.map_or(1000, |since| since.0);
        for round in 1..=rounds {
            for _ in 0..slots {
                pace.reported(slots, &DONE, Timestamp(from + round * each_ms));
            }
        }
        pace.ahead()
    }

    #[test]
    fn only_short_attempts_are_handed_out_ahead() {
        for slots in [1, 2, 8, 64, 1024] {
            for (each_ms, ahead) in [(1, true), (10, true), (60, false), (1000, false)] {
                let now = after(&mut Prefetch::default(), slots, each_ms, 20);
                assert_eq!(now > 0, ahead, "{slots} slots, {each_ms} ms: {now}");
                assert!(now <= MOST_AHEAD);
            }
        }
    }

    #[test]
    fn as_many_as_are_finished_while_a_group_is_stored() {
        assert_eq!(after(&mut Prefetch::default(), 8, 10, 20), 16);
        assert_eq!(after(&mut Prefetch::default(), 8, 1, 20), 8 * MOST_EACH);
        assert_eq!(after(&mut Prefetch::default(), 64, 1, 20), MOST_AHEAD);
    }

    /// One report of each slot, some time after all began.
    #[test]
    fn where_the_start_is_known_the_first_of_each_slot_are_enough() {
        for (took_ms, ahead) in [(0, 64), (4, 40), (25, 6), (26, 0), (1000, 0)] {
            let mut pace = Prefetch::default();
            for _ in 0..8 {
                pace.started(Timestamp(1000));
            }
            for report in 1..=8 {
                assert_eq!(pace.ahead(), 0, "{report} of 8, {took_ms} ms");
                pace.reported(8, &DONE, Timestamp(1000 + took_ms));
            }
            assert_eq!(pace.ahead(), ahead, "{took_ms} ms");
        }
    }

    #[test]
    fn what_starts_later_does_not_change_a_lap() {
        let mut pace = Prefetch::default();
        assert!(after(&mut pace, 8, 60, 4) == 0);
        pace.started(Timestamp(1240));
        for _ in 0..8 {
            pace.reported(8, &DONE, Timestamp(1241));
        }
        assert_eq!(pace.ahead(), 0);
    }

    #[test]
    fn the_first_long_ones_end_it() {
        let mut pace = Prefetch::default();
        assert!(after(&mut pace, 8, 1, 20) > 0);
        let late = Timestamp(pace.since.expect("a lap").0 + 100);
        pace.reported(8, &DONE, late);
        assert_eq!(pace.ahead(), 0);
        assert!(after(&mut pace, 8, 1, 20) > 0);
    }

    #[test]
    fn a_rest_ends_it() {
        let mut pace = Prefetch::default();
        let ahead = after(&mut pace, 8, 1, 20);
        let last = pace.since.expect("a lap").0;
        pace.look(Timestamp(last + 50));
        assert_eq!(pace.ahead(), ahead);
        pace.look(Timestamp(last + 51));
        assert_eq!(pace.ahead(), 0);
    }

    #[test]
    fn what_was_handed_back_ends_it_until_short_ones_are_seen() {
        let mut pace = Prefetch::default();
        assert!(after(&mut pace, 8, 1, 20) > 0);
        pace.reported(8, &Outcome::NOT_BEGUN, Timestamp(5000));
        assert_eq!(pace.ahead(), 0);
        assert_eq!(after(&mut pace, 8, 1, 2), 0);
        assert!(after(&mut pace, 8, 1, 20) > 0);
    }

    #[test]
    fn losses_found_on_a_resume_are_no_short_attempts() {
        let mut pace = Prefetch::default();
        for _ in 0..100 {
            pace.reported(8, &Outcome::LOST, Timestamp(1));
        }
        assert_eq!(pace.ahead(), 0);
    }
}

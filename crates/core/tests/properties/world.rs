//! A job that things happen to at random.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::decide::{Input, Refusal, accept, advance};
use steadfast_core::event::{AcceptedJob, ItemId, RecordedEvent, Requester};
use steadfast_core::job::{Job, Phase};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;

use crate::strategies::outcome;

/// What happens next; the numbers choose among what is possible then.
pub(crate) type Happening = (u8, u8, u16);

pub(crate) struct World {
    pub(crate) job: Job,
    pub(crate) log: Vec<RecordedEvent>,
    pub(crate) now: Timestamp,
    /// The state after each input, by the number of its last event.
    pub(crate) states: BTreeMap<u64, Job>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let (job, log) = accept(AcceptedJob::new("job-1".into(), Arc::new(plan)), Timestamp(1000));
        let states = BTreeMap::from([(job.seq, job.clone())]);
        Self { job, log, now: Timestamp(1000), states }
    }

    pub(crate) fn input(&mut self, input: &Input) -> bool {
        let before = self.job.clone();
        match advance(&mut self.job, input, self.now) {
            Ok(advanced) => {
                for killed in &advanced.killed {
                    assert!(self.job.live(killed.item).is_none(), "killed, and alive");
                }
                self.log.extend(advanced.log);
                self.states.insert(self.job.seq, self.job.clone());
                true
            }
            Err(refusal) => {
                assert!(
                    !matches!(refusal, Refusal::Illegal(_)),
                    "decide emitted what apply refuses: {refusal} on {input:?}"
                );
                assert_eq!(self.job, before, "a refused input changed the job");
                false
            }
        }
    }

    pub(crate) fn start_some(&mut self, most: usize) {
        for _ in 0..most {
            let next = (0..self.job.runs.len() as u32).find_map(|run| self.job.next_startable(run));
            let Some(item) = next else { return };
            assert!(
                self.input(&Input::Start {
                    item,
                    worker: "w".into(),
                    incarnation: None,
                    least_token: 0
                }),
                "startable, yet refused"
            );
        }
    }

    pub(crate) fn running(&self) -> Vec<(ItemId, u64)> {
        self.live_in(Phase::Running)
    }

    pub(crate) fn live_in(&self, phase: Phase) -> Vec<(ItemId, u64)> {
        let live = self.job.all_live().filter(|(_, item)| item.phase == phase);
        live.map(|(id, item)| (id, item.token)).collect()
    }

    /// A service takes an attempt, says how far it is, or how it ended, before it is known to have it
    /// and after.
    pub(crate) fn serve(&mut self, which: u8, amount: u16) {
        let phase = if which.is_multiple_of(2) { Phase::Running } else { Phase::AwaitingCallback };
        let live = self.live_in(phase);
        let Some(&(item, token)) = live.get(usize::from(which / 2) % live.len().max(1)) else {
            return;
        };
        let outcome = outcome(amount as u8);
        match amount % 4 {
            0 => drop(self.input(&Input::Awaits { item, token })),
            1 => {
                let progress = Arc::new(serde_json::json!(amount));
                self.input(&Input::Progress {
                    item,
                    token,
                    progress,
                    by_callback: which.is_multiple_of(3),
                });
            }
            _ if phase == Phase::AwaitingCallback => {
                let (attempt, late) = (1, outcome.clone());
                assert!(
                    !self.input(&Input::Report { item, token, outcome: outcome.clone() }),
                    "a worker spoke for what a service has"
                );
                assert!(self.input(&Input::Callback { item, token, outcome: outcome.clone() }));
                assert!(!self.input(&Input::Callback { item, token, outcome }), "said twice");
                let before = self.job.state();
                assert!(self.input(&Input::LateCallback { item, attempt, outcome: late }));
                assert_eq!(self.job.state(), before, "a late word changed the job");
            }
            _ => {
                assert!(self.input(&Input::Callback { item, token, outcome }), "an early callback");
                assert!(!self.input(&Input::Awaits { item, token }), "the worker's word after it");
            }
        }
    }

    pub(crate) fn fire_next(&mut self) -> bool {
        let Some(&(due, timer)) = self.job.timers().first() else { return false };
        self.now = self.now.max(due);
        assert!(self.input(&Input::Fired(timer)), "due, yet refused: {timer:?}");
        true
    }

    pub(crate) fn happen(&mut self, (what, which, amount): Happening) {
        match what % 16 {
            0..4 => self.start_some(usize::from(which % 4) + 1),
            4..9 => {
                let running = self.running();
                if let Some(&(item, token)) = running.get(usize::from(which) % running.len().max(1))
                {
                    self.input(&Input::Report { item, token, outcome: outcome(amount as u8) });
                    // The same report again is stale.
                    assert!(!self.input(&Input::Report { item, token, outcome: Outcome::OK }));
                }
            }
            9..11 => drop(self.fire_next()),
            12 if which % 2 == 0 => self.now = self.now.plus(u64::from(amount)),
            12 => self.serve(which / 2, amount),
            11 => self.serve(which, amount),
            13 => {
                let down_since = self.now;
                self.now = self.now.plus(u64::from(amount) * 2);
                self.input(&Input::Restarted { down_since });
            }
            14 => drop(self.input(if which % 2 == 0 {
                &Input::Pause(Requester::NOBODY)
            } else {
                &Input::Resume(Requester::NOBODY)
            })),
            _ if which % 8 == 0 => drop(self.input(&Input::Cancel(Requester::NOBODY))),
            _ => {}
        }
    }

    /// Faults have stopped: everything that can start starts and succeeds.
    pub(crate) fn drain(&mut self) {
        for _ in 0..10_000 {
            if self.job.is_over() {
                return;
            }
            if self.job.paused_at.is_some() {
                self.input(&Input::Resume(Requester::NOBODY));
            }
            self.start_some(100);
            let waits = self.live_in(Phase::AwaitingCallback);
            match (self.running().first(), waits.first()) {
                (Some(&(item, token)), _) => {
                    self.input(&Input::Report { item, token, outcome: Outcome::OK });
                }
                (None, Some(&(item, token))) => {
                    self.input(&Input::Callback { item, token, outcome: Outcome::OK });
                }
                (None, None) => drop(self.fire_next()),
            }
        }
        panic!("the job does not end: {:?}", self.job);
    }
}

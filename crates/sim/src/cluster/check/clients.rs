//! What clients were told, held against what is durable: the ledger of who was promised what.

use std::collections::BTreeMap;

use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::Job;

use super::{CANCEL, Checked, DURABLE, KEYS, violated};
use crate::cluster::requests::{Answer, Asked};

#[derive(Default)]
pub(crate) struct Promises {
    /// Whose each key is, as clients were told, and as it was written.
    told: BTreeMap<String, JobId>,
    written: BTreeMap<String, JobId>,
    accepted: Vec<JobId>,
    refused: Vec<JobId>,
}

impl Promises {
    pub(super) fn key_written(&mut self, key: &str, job: &JobId) -> Checked {
        match self.written.insert(key.to_owned(), job.clone()) {
            Some(before) if before != *job => {
                violated(KEYS, format!("{key} is written for {before} and for {job}"))
            }
            _ => Ok(()),
        }
    }

    /// Whatever was promised after the moment that the store was put back to is gone, and that is known.
    pub(super) fn restored(&mut self) {
        *self = Self::default();
    }

    /// `key`: of the submission, whose body is the first one's unless `is_other`.
    pub(crate) fn submitted(
        &mut self,
        key: Option<&str>,
        is_other: bool,
        answer: &Answer,
        is_stored: impl Fn(&str) -> bool,
    ) -> Checked {
        match answer {
            Answer::Accepted(job) | Answer::Known(job) => {
                if !is_stored(job) {
                    return violated(DURABLE, format!("{job} was accepted, and is not stored"));
                }
                self.accepted.push(job.clone());
                let Some(key) = key else { return Ok(()) };
                // Whichever body came first is the key's.
                let name = format!("{key} {is_other}");
                match self.told.insert(name, job.clone()) {
                    Some(before) if before != *job => {
                        violated(KEYS, format!("{key} is {before}'s, and {job}'s"))
                    }
                    _ => self.one_body(key),
                }
            }
            Answer::NothingHappened(job) => {
                self.refused.push(job.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn one_body(&self, key: &str) -> Checked {
        let of = |is_other: bool| self.told.get(&format!("{key} {is_other}"));
        match (of(false), of(true)) {
            (Some(one), Some(other)) => {
                violated(KEYS, format!("{key} is {one}'s, and of another body {other}'s"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn commanded(
        asked: &Asked,
        answer: &Answer,
        job: Option<&Job>,
        log: &[RecordedEvent],
    ) -> Checked {
        if *answer != Answer::Done {
            return Ok(());
        }
        let Some(job) = job else {
            return violated(DURABLE, format!("{} was confirmed of no job", asked.name()));
        };
        let has = |wanted: fn(&Event) -> bool| log.iter().any(|record| wanted(&record.event));
        let (holds, invariant) = match asked {
            Asked::Cancel => (job.state().is_terminal(), CANCEL),
            Asked::Pause => (has(|event| matches!(event, Event::JobPaused { .. })), DURABLE),
            Asked::Resume => (true, DURABLE),
            Asked::Callback { name, outcome } => {
                let says_so = log.iter().any(|record| {
                    // By its number: what was begun before a store was put back is called back as what is begun instead.
                    matches!(&record.event, Event::AttemptEnded { item, attempt, outcome: said, by_callback: true, .. }
                        if (*item, *attempt) == (name.item, name.attempt) && said == outcome)
                });
                (says_so, DURABLE)
            }
        };
        if holds {
            return Ok(());
        }
        violated(
            invariant,
            format!("{} of {} was confirmed, and has not happened", asked.name(), job.id),
        )
    }

    /// At the end, and after every crash.
    pub(crate) fn look(&self, is_stored: impl Fn(&str) -> bool) -> Checked {
        if let Some(job) = self.accepted.iter().find(|job| !is_stored(job)) {
            return violated(DURABLE, format!("{job} was accepted, and is gone"));
        }
        if let Some(job) = self.refused.iter().find(|job| is_stored(job)) {
            return violated(
                DURABLE,
                format!("nothing was said to have happened, and {job} is there"),
            );
        }
        Ok(())
    }
}

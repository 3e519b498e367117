//! The thread that makes groups durable, and only then lets their effects, answers and news out.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use steadfast_core::event::{Event, JobId, Recorded};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Plan;
use steadfast_store::{Entry, Store, StoreError, Write};

use crate::batch::Effect;
use crate::crash::crash_point;
use crate::fleet::FleetNews;
use crate::inbox::{Answer, Reply};
use crate::live::{Group, Meta, Observer, Stopped, Workers};
use crate::work::Work;

/// Before a full disk is tried again.
const FULL: Duration = Duration::from_millis(250);

pub(crate) struct Writer {
    pub(crate) store: Box<dyn Store>,
    pub(crate) workers: Box<dyn Workers>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) unsynced: Receiver<Group>,
    /// A full disk is waited for: somebody will free some, and workers go on meanwhile.
    pub(crate) patient: bool,
}

impl Writer {
    pub(crate) fn run(mut self) -> Result<(), Stopped> {
        while let Ok(first) = self.unsynced.recv() {
            let mut groups = vec![first];
            groups.extend(self.unsynced.try_iter());
            self.commit(groups)?;
        }
        Ok(())
    }

    fn commit(&mut self, groups: Vec<Group>) -> Result<(), Stopped> {
        let mut writes = Vec::new();
        let mut after = Vec::new();
        for group in groups {
            let Group { batch, mut metas, works, answers, news } = group;
            let mut by_job: BTreeMap<JobId, Vec<Recorded>> = BTreeMap::new();
            for (id, record) in batch.records {
                by_job.entry(id).or_default().push(record);
            }
            for (id, records) in by_job {
                let Some(meta) = metas.remove(&id) else { continue };
                writes.push(write(id, &records, meta));
                after.push(After::News(records));
            }
            after.push(After::Effects(batch.effects, works, answers));
            if !news.is_empty() {
                after.push(After::Fleet(news));
            }
        }
        let jobs: Vec<JobId> = writes.iter().map(|write| write.job.clone()).collect();
        crash_point("in-append");
        let answers = loop {
            match self.store.commit(&writes) {
                // Nothing was written. What was decided is not lost, and nobody has heard of it.
                Err(StoreError::Full { .. }) if self.patient => std::thread::park_timeout(FULL),
                committed => break committed?,
            }
        };
        crash_point("after-append");
        for (job, answer) in jobs.iter().zip(answers) {
            answer.map_err(|refused| Stopped::TakenOver { job: job.clone(), refused })?;
        }
        let mut jobs = jobs.into_iter();
        for after in after {
            match after {
                After::News(records) => {
                    let Some(job) = jobs.next() else { continue };
                    for record in &records {
                        if let Event::AttemptEnded { token, outcome, .. } = &record.event
                            && matches!(outcome, Outcome::Succeeded { .. })
                        {
                            self.workers.settled(&job, *token);
                        }
                    }
                    self.observer.committed(&job, records);
                }
                After::Fleet(news) => self.observer.fleet(news),
                After::Effects(effects, mut works, answers) => {
                    for (reply, answer) in answers {
                        reply(answer);
                    }
                    for effect in effects {
                        crash_point("before-effect");
                        match effect {
                            Effect::Assign(assignment) => {
                                let key = (assignment.job, assignment.token);
                                if let Some(work) = works.remove(&key) {
                                    self.workers.assign(work);
                                }
                            }
                            Effect::Withdraw(over) => self.workers.withdraw(over),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

enum After {
    News(Vec<Recorded>),
    Effects(Vec<Effect>, HashMap<(JobId, u64), Work>, Vec<(Reply<Answer>, Answer)>),
    Fleet(Vec<FleetNews>),
}

fn write(job: JobId, records: &[Recorded], meta: Meta) -> Write {
    let first = records.first().map_or(1, |record| record.seq);
    let entries = records
        .iter()
        .map(|record| Entry { about: about(&meta.plan, record), record: record.clone() });
    Write {
        job,
        epoch: meta.epoch,
        expected_seq: first - 1,
        records: entries.collect(),
        row: meta.row,
        snapshot: meta.snapshot,
        key: meta.key,
    }
}

/// `eu-west/index[2]`: for people who read the table of events.
fn about(plan: &Plan, record: &Recorded) -> Option<String> {
    match record.event.place()? {
        (_, _, Some(item)) => Some(plan.item_name(item)),
        (run, Some(step), None) => Some(plan.step_name(run, step)),
        (run, None, None) => plan.datacenter(run).map(str::to_owned),
    }
}

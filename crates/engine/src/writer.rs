//! The thread that makes groups durable, and only then lets their effects, answers and news out.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use steadfast_core::event::{Event, JobId, Recorded};
use steadfast_core::outcome::Outcome;
use steadfast_store::{Store, StoreError, Write};

use crate::crash::crash_point;
use crate::fleet::FleetNews;
use crate::inbox::NotDone;
use crate::live::{Due, Group, Meta, Observer, Owed, Stopped, Workers};

/// Before a full disk is tried again.
const FULL: Duration = Duration::from_millis(250);

pub(crate) struct Writer {
    pub(crate) store: Box<dyn Store>,
    pub(crate) workers: Box<dyn Workers>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) unsynced: Receiver<Group>,
    /// A full disk and a lock of another process are waited for, as long as it takes: the operator can free
    /// space, the other process will end, and workers go on meanwhile.
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
            let Group { records, mut metas, effects, answers, news } = group;
            let mut by_job: BTreeMap<JobId, Vec<Recorded>> = BTreeMap::new();
            for (id, record) in records {
                by_job.entry(id).or_default().push(record);
            }
            let before = writes.len();
            writes.extend(by_job.into_iter().filter_map(|(id, records)| {
                let meta = metas.remove(&id)?;
                Some(write(id, records, meta))
            }));
            after.push(After { writes: writes.len() - before, effects, answers, news });
        }
        crash_point("in-append");
        let answers = loop {
            match self.store.commit(&writes) {
                // Nothing was written. What was decided is not lost, and nobody has heard of it.
                Err(StoreError::Full { .. }) if self.patient => std::thread::park_timeout(FULL),
                // The store has waited for the lock itself.
                Err(StoreError::Busy { .. }) if self.patient => {}
                committed => break committed?,
            }
        };
        crash_point("after-append");
        let mut writes = writes.into_iter().zip(answers);
        for mut after in after {
            for (Write { job, records, .. }, answer) in writes.by_ref().take(after.writes) {
                if let Err(refused) = answer {
                    // A job is ours alone as long as it goes on. One that is over is not.
                    let is_about = |owed: &&mut Owed| owed.note.as_deref() == Some(&*job);
                    let Some(owed) = after.answers.iter_mut().find(is_about) else {
                        return Err(Stopped::TakenOver { job, refused });
                    };
                    owed.answer = Err(NotDone::Unknown(job));
                    continue;
                }
                for record in &records {
                    if let Event::AttemptEnded { token, outcome, .. } = &record.event
                        && matches!(outcome, Outcome::Succeeded { .. })
                    {
                        self.workers.settled(&job, *token);
                    }
                }
                self.observer.committed(&job, records);
            }
            for Owed { reply, answer, .. } in after.answers {
                reply(answer);
            }
            for effect in after.effects {
                crash_point("before-effect");
                match effect {
                    Due::Assign(work) => self.workers.assign(work),
                    Due::Withdraw(over) => self.workers.withdraw(over),
                }
            }
            if !after.news.is_empty() {
                self.observer.fleet(after.news);
            }
        }
        Ok(())
    }
}

/// What of a group comes after its so many writes.
struct After {
    writes: usize,
    effects: Vec<Due>,
    answers: Vec<Owed>,
    news: Vec<FleetNews>,
}

fn write(job: JobId, records: Vec<Recorded>, meta: Meta) -> Write {
    let first = records.first().map_or(1, |record| record.seq);
    Write {
        job,
        epoch: meta.epoch,
        expected_seq: first - 1,
        records,
        row: meta.row,
        snapshot: meta.snapshot,
        key: meta.key,
    }
}

//! What is held against what must hold: after every event what became durable, now and then everything.

use steadfast_core::event::Event;
use steadfast_core::outcome::Outcome;
use steadfast_worker::Capacity;

use super::super::check::{Checked, LIMITS, LIVENESS, violated};
use super::super::server::Server;
use super::super::store::Observed;
use super::{World, trace};

impl World {
    pub(super) fn not_ended(&self) -> Checked {
        let open: Vec<String> = self
            .checker
            .open_jobs()
            .map(|job| {
                let live: Vec<_> =
                    job.all_live().map(|(id, live)| (id, live.phase, live.token)).collect();
                let has = |server: &&Server| {
                    server.stepped().is_some_and(|it| it.controller().job(&job.id).is_some())
                };
                let in_memory: Vec<usize> =
                    self.servers.iter().filter(has).map(|server| server.index).collect();
                let stored = self.store.held().database.stored(&job.id);
                let row = stored.map(|it| (it.owner, it.row.wake_at, it.row.queued));
                format!("{} {} {live:?}, in memory of {in_memory:?}, {row:?}", job.id, job.state())
            })
            .collect();
        let asks = self.clients.open();
        let detail = format!(
            "{} ms after faults stopped: {open:?}, unanswered {asks:?}",
            self.time.now() - self.scenario.heal_at
        );
        violated(LIVENESS, detail)
    }

    /// What the store has done since is checked, before anybody is told of it.
    pub(super) fn look_at_store(&mut self) {
        let (observed, database) = {
            let mut shared = self.store.held();
            (std::mem::take(&mut shared.observed), shared.database.is_shared())
        };
        for observed in observed {
            if let Observed::Committed(committed) = &observed {
                for record in &committed.records {
                    trace!(
                        self,
                        "s{} {} {} {:?}",
                        committed.server,
                        committed.job,
                        record.seq,
                        Short(record)
                    );
                }
            }
            let store = self.store.clone();
            let shard_of = |job: &str| database.then(|| store.held().database.shard_of(job));
            let written = match &observed {
                Observed::Committed(committed) => Some((committed.server, committed.job.clone())),
                _ => None,
            };
            let checked = self.checker.observed(observed, shard_of);
            self.violation = self.violation.take().or(checked.err());
            if let Some((server, job)) = written
                && self.store.held().database.is_owned(&job, &self.servers[server].owner.id)
                && !self.servers[server].begins_anew()
                && let Some(stepped) = self.servers[server].stepped()
            {
                let checked = self.checker.live(server, stepped.controller(), &job);
                self.violation = self.violation.take().or(checked.err());
            }
        }
    }

    /// Now and then, and at the end.
    pub(super) fn check_all(&mut self) -> Checked {
        self.look_at_store();
        for server in &self.servers {
            if let Some(stepped) = server.stepped() {
                let shared = self.store.held();
                let has = |job: &str| shared.database.is_owned(job, &server.owner.id);
                self.checker.all_live(server.index, stepped.controller(), has)?;
            }
        }
        let shared = self.store.held();
        self.checker.clients.look(|job| shared.database.stored(job).is_some())?;
        drop(shared);
        let now = self.time.now();
        let awake =
            self.workers.iter().enumerate().filter(|(_, it)| it.up && it.frozen_until.is_none());
        let running: Vec<_> =
            awake.flat_map(|(n, worker)| worker.runs().map(move |name| (n, name))).collect();
        let mut attempts = std::mem::take(&mut self.checker.attempts);
        let checked = attempts.look(
            now,
            &running,
            |job| self.checker.state(job),
            |id| {
                let shared = self.store.held();
                let log = shared.database.log(&id.job);
                log.iter().any(|record| {
                    matches!(&record.event, Event::AttemptEnded { token, outcome, .. }
                        if *token == id.token && !matches!(outcome, Outcome::Lost { .. }))
                })
            },
        );
        self.checker.attempts = attempts;
        checked?;
        self.within_limits()
    }

    /// Of slots, cpus and memory of each worker.
    pub(super) fn within_limits(&self) -> Checked {
        for (n, worker) in self.workers.iter().enumerate() {
            let (running, slots) = (worker.runs().count(), worker.plan().slots);
            if running > slots as usize {
                let detail = format!("w{n} runs {running} attempts in {slots} slots");
                return violated(LIMITS, detail);
            }
            let steps = worker.runs().filter_map(|name| {
                let job = self.checker.state(&name.id.job)?;
                Some(&job.plan.step(name.item.step).resources)
            });
            let (cpu_milli, memory) = steps.fold((0, 0), |(cpu, memory), step| {
                (cpu + step.cpu_milli(), memory + step.memory_bytes.unwrap_or(0))
            });
            let Capacity { cpu_milli: cpus, memory_bytes } = worker.plan().capacity();
            if cpus.is_some_and(|all| cpu_milli > all)
                || memory_bytes.is_some_and(|all| memory > all)
            {
                let detail = format!(
                    "w{n} runs what takes {cpu_milli} of {cpus:?} thousandths and {memory} of {memory_bytes:?} bytes"
                );
                return violated(LIMITS, detail);
            }
        }
        Ok(())
    }

    pub(super) fn note_checked(&mut self, checked: Checked) {
        self.violation = self.violation.take().or(checked.err());
    }
}

/// An event as a person wants to read it.
struct Short<'a>(&'a steadfast_core::event::RecordedEvent);

impl std::fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.event {
            Event::JobAccepted(accepted) => write!(f, "JobAccepted {}", accepted.plan.name()),
            event => write!(f, "{event:?}"),
        }
    }
}

//! A worker: the real [`Executor`], with its lease, credits and scopes, and around it a model of what `worker::remote` does with threads
//! and streams. The model follows `remote::link`, `session` and `reports` rule by rule; attempts take the time and end as
//! [`fate`](super::fates::fate) says.

mod link;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_api::WorkerReport;
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::Action;
use steadfast_engine::{Credits, WorkerSpec};
use steadfast_worker::{Assigned, Capacity, Executor, Grant, LeaseEnd, Resources, Said, Settled};

use super::clock::{MachineClock, WorldTime};
use super::fates::{AttemptEnd, AttemptFate, fate};
use super::messages::{AttemptName, FromWorker, ToWorker};
use super::rng::Rng;
use super::scenario::WorkerPlan;
pub(crate) use link::{Link, Session};
use work::SimWork;

/// From SIGTERM to SIGKILL.
pub(crate) const KILL_GRACE_MS: u64 = 2000;
/// A worker that is told to go is gone after this, whatever runs.
const DRAIN_GRACE_MS: u64 = 3000;
const PREEMPTED: &str = "preempted";

/// What a worker does that others see, in order.
#[derive(Clone, Debug)]
pub(crate) enum Did {
    Send {
        server: usize,
        session: u64,
        message: FromWorker,
    },
    Began(AttemptName),
    Ended(AttemptId),
    /// A service has been asked, and calls back.
    Called {
        name: AttemptName,
        outcome: Outcome,
        after_ms: u64,
        times: u32,
    },
    /// It was told how a report was taken.
    Note(&'static str),
}

/// A process or task.
#[derive(Debug)]
struct Running {
    ends_at: u64,
    said: Said,
    is_task: bool,
    name: AttemptName,
    progress: Vec<u64>,
    /// Asked to end, it does not.
    ignores_stop: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptReport {
    name: AttemptName,
    report: WorkerReport,
    on_disk: bool,
    /// The server does not want to hear it.
    withdrawn: bool,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: Arc<str>,
    plan: WorkerPlan,
    /// Each has another incarnation.
    pub(crate) life: u32,
    pub(crate) up: bool,
    /// For good.
    pub(crate) is_gone: bool,
    /// The whole machine stands still until then.
    pub(crate) frozen_until: Option<u64>,
    frozen_since: u64,
    clock: MachineClock,
    time: WorldTime,
    seed: u64,
    executor: Executor<SimWork>,
    pub(crate) links: Vec<Link>,
    /// Of attempts that another server has than the one that assigned them.
    homes: BTreeMap<AttemptId, usize>,
    running: BTreeMap<AttemptId, Running>,
    /// Told to go: when it is gone at the latest.
    leaving: Option<u64>,
    last_session: u64,
    rng: Rng,
    pub(crate) did: Vec<Did>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        plan: WorkerPlan,
        servers: usize,
        time: &WorldTime,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed, &format!("worker {index}"));
        let drift = rng.between(0, 400) as i64 - 200;
        let mut worker = Self {
            name: format!("w{index}").into(),
            life: 0,
            up: false,
            is_gone: false,
            frozen_until: None,
            frozen_since: 0,
            clock: MachineClock::new(time, drift),
            time: time.clone(),
            seed,
            executor: Executor::new(plan.slots, plan.capacity()),
            links: Vec::new(),
            homes: BTreeMap::new(),
            running: BTreeMap::new(),
            leaving: None,
            last_session: 0,
            plan,
            rng,
            did: Vec::new(),
        };
        worker.links.resize_with(servers, Link::default);
        worker
    }

    pub(crate) fn spec(&self, incarnation: &str) -> WorkerSpec {
        let plan = &self.plan;
        WorkerSpec {
            name: self.name.clone(),
            incarnation: incarnation.into(),
            datacenter: plan.datacenter.clone(),
            labels: plan.labels.clone(),
            slots: plan.slots,
            cpu: plan.cpu,
            memory_bytes: plan.memory_bytes,
            functions: ["charge", "resize"].map(str::to_owned).into(),
            processes: true,
            http: true,
            queues: true,
        }
    }

    pub(crate) fn plan(&self) -> &WorkerPlan {
        &self.plan
    }

    pub(crate) fn incarnation(&self) -> String {
        format!("{}.{}", self.name, self.life)
    }

    /// It is down, and not for good.
    pub(crate) fn may_start(&self) -> bool {
        !self.up && !self.is_gone
    }

    fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// A new life, with what an earlier one left on its disk.
    pub(crate) fn start(&mut self) {
        self.life += 1;
        self.up = true;
        self.leaving = None;
        self.executor = Executor::new(self.plan.slots, self.plan.capacity());
        for _ in 1..self.links.len() {
            self.executor.add_source();
        }
        self.homes.clear();
        let now = self.time.now();
        for link in &mut self.links {
            link.reports.retain(|_, kept| kept.on_disk && !kept.withdrawn);
            let scope = link.scope.take().filter(|_| !link.reports.is_empty());
            let reports = std::mem::take(&mut link.reports);
            let session = Session::Idle { next_try: now + self.rng.between(1, 200) };
            *link = Link { scope, session, reports, ..Link::default() };
        }
    }

    /// kill -9, and its processes with it.
    pub(crate) fn die(&mut self) {
        self.up = false;
        self.frozen_until = None;
        for id in std::mem::take(&mut self.running).into_keys() {
            self.did.push(Did::Ended(id));
        }
    }

    /// The whole machine stands still.
    pub(crate) fn freeze(&mut self, until: u64) {
        (self.frozen_since, self.frozen_until) = (self.time.now(), Some(until));
    }

    /// What runs has so much left as before.
    pub(crate) fn thaw(&mut self) {
        self.frozen_until = None;
        let frozen_ms = self.time.now() - self.frozen_since;
        for running in self.running.values_mut() {
            running.ends_at = running.ends_at.saturating_add(frozen_ms);
        }
    }

    pub(crate) fn session_with(&self, server: usize) -> Option<u64> {
        match self.links[server].session {
            Session::Greeted { id, .. } | Session::Open { id, .. } if self.up => Some(id),
            _ => None,
        }
    }

    /// Its host wants it gone.
    pub(crate) fn preempt(&mut self) {
        self.leaving = Some(self.time.now() + DRAIN_GRACE_MS);
        let waited = self.executor.drain(PREEMPTED);
        self.give_back(waited, || Outcome::NOT_BEGUN, PREEMPTED);
        let asked_at = self.time.now();
        for (id, _) in self.executor.preempt() {
            self.stop(&id, asked_at);
        }
    }

    fn stop(&mut self, id: &AttemptId, at: u64) {
        let soon = self.rng.between(1, 60);
        if let Some(running) = self.running.get_mut(id) {
            let ends = at + if running.ignores_stop { KILL_GRACE_MS } else { soon };
            if ends < running.ends_at {
                (running.ends_at, running.said) = (ends, Said::Stopped);
            }
        }
    }

    fn kill(&mut self, id: &AttemptId) {
        let ends = self.time.now() + self.rng.between(1, 3);
        if let Some(running) = self.running.get_mut(id).filter(|it| it.ends_at > ends) {
            (running.ends_at, running.said) = (ends, Said::Stopped);
        }
    }

    fn give_back(&mut self, works: Vec<SimWork>, outcome: fn() -> Outcome, why: &str) {
        for work in works {
            let settled = Settled::not_begun(work.name.clone(), outcome(), why.to_owned());
            self.report(&work.name.id, work.server, settled, true);
            self.executor.told(&work.name.id);
        }
    }

    /// How an attempt ended is kept until its server has acknowledged it.
    fn report(&mut self, id: &AttemptId, server: usize, it: Settled<AttemptName>, is_task: bool) {
        let Settled { attempt, report, started, withdrawn, .. } = it;
        let home = self.homes.get(id).copied().unwrap_or(server);
        let on_disk = started && !is_task;
        let kept = KeptReport { name: attempt, report, on_disk, withdrawn };
        self.links[home].reports.insert(id.clone(), kept);
        self.tell(home, id);
    }

    fn tell(&mut self, server: usize, id: &AttemptId) {
        let link = &self.links[server];
        let Session::Open { id: session, .. } = link.session else { return };
        if let Some(kept) = link.reports.get(id).filter(|kept| !kept.withdrawn) {
            let message = FromWorker::Report(kept.name.clone(), kept.report.clone());
            self.did.push(Did::Send { server, session, message });
        }
    }

    fn begin(&mut self, id: AttemptId, work: SimWork) {
        let now = self.time.now();
        let SimWork { name, is_task, timeout_ms, fate, .. } = work;
        let AttemptFate { takes_ms, end, ignores_stop, progress } = fate;
        let timeout = timeout_ms.unwrap_or(u64::MAX);
        let timed_out = || {
            let report = WorkerReport::Ended(Outcome::from(FailureKind::TimedOut));
            let grace = if ignores_stop { KILL_GRACE_MS } else { 5 };
            (now.saturating_add(timeout).saturating_add(grace), Said::Report(report))
        };
        let (ends_at, said) = match end {
            AttemptEnd::CallsBack { outcome, after_ms, times } => {
                // A service may be faster than the worker's word that it has it.
                let name = name.clone();
                self.did.push(Did::Called { name, outcome, after_ms, times });
                (
                    now + takes_ms.min(timeout.saturating_sub(1)),
                    Said::Report(WorkerReport::AwaitsCallback),
                )
            }
            AttemptEnd::Hangs => timed_out(),
            AttemptEnd::Outcome(_) if takes_ms >= timeout => timed_out(),
            AttemptEnd::Outcome(outcome) => {
                (now + takes_ms, Said::Report(WorkerReport::Ended(outcome)))
            }
        };
        let every = (ends_at - now) / (u64::from(progress) + 1);
        let progress = (1..=u64::from(progress)).map(|n| now + every * n).collect();
        self.did.push(Did::Began(name.clone()));
        self.running.insert(id, Running { ends_at, said, is_task, name, progress, ignores_stop });
    }

    /// Everything that is due, and everything that can begin.
    pub(crate) fn tick(&mut self) {
        let (now, world) = (self.now(), self.time.now());
        self.say_progress(world);
        self.end_what_has_ended(world);
        self.keep_sessions(world);
        loop {
            if let Some(LeaseEnd { running, waiting, .. }) = self.executor.lease_ended(now) {
                for id in &running {
                    self.kill(id);
                }
                self.did.push(Did::Note("worker's lease ended"));
                self.give_back(waiting, || Outcome::NOT_BEGUN, "the lease ended");
                continue;
            }
            let overdue = self.executor.overdue(now);
            if !overdue.is_empty() {
                self.did.push(Did::Note("handed back after waiting for a slot"));
                self.give_back(overdue, Outcome::handed_back, "");
                continue;
            }
            let Some((id, work)) = self.executor.begin(now) else { break };
            self.executor.started(&id);
            self.begin(id, work);
        }
        self.say_what_changed(now);
        self.leave_if_done(world);
    }

    fn say_progress(&mut self, world: u64) {
        let mut due = Vec::new();
        for (id, running) in &mut self.running {
            let before = running.progress.len();
            running.progress.retain(|at| *at > world);
            if running.progress.len() < before {
                due.push((id.clone(), running.name.clone(), before as u32));
            }
        }
        for (id, name, step) in due {
            let home = (0..self.links.len()).find(|server| self.executor.is_from(&id, *server));
            let Some(server) = home else { continue };
            if let Session::Open { id: session, .. } = self.links[server].session {
                let message = FromWorker::Progress(name, step);
                self.did.push(Did::Send { server, session, message });
            }
        }
    }

    fn end_what_has_ended(&mut self, world: u64) {
        let ended = self.running.iter().filter(|(_, it)| it.ends_at <= world);
        for id in ended.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let Some(Running { said, is_task, .. }) = self.running.remove(&id) else { continue };
            self.did.push(Did::Ended(id.clone()));
            let home = (0..self.links.len()).find(|server| self.executor.is_from(&id, *server));
            let now = self.now();
            let Some(settled) = self.executor.ended(&id, said, "", now) else { continue };
            self.report(&id, home.unwrap_or_default(), settled, is_task);
            if self.executor.reported(&id).is_some() {
                let home = self.homes.get(&id).copied().or(home).unwrap_or_default();
                self.acknowledged(home, &id);
            }
        }
    }

    fn say_what_changed(&mut self, now: Duration) {
        for server in 0..self.links.len() {
            let drains = self.executor.draining(server).is_some();
            let link = &mut self.links[server];
            let Session::Open { id: session, told_draining, .. } = &mut link.session else {
                continue;
            };
            let session = *session;
            if std::mem::take(&mut link.undrain_unanswered) {
                *told_draining = false;
                self.did.push(Did::Send { server, session, message: FromWorker::Undrained });
            } else if drains && !std::mem::replace(told_draining, true) {
                self.did.push(Did::Send { server, session, message: FromWorker::Draining });
            }
            while let Some(Grant { slots, left, number }) = self.executor.next_grant(server, now) {
                let Capacity { cpu_milli, memory_bytes } = left;
                let credits = Credits { slots, cpu_milli, memory_bytes, number };
                let message = FromWorker::Credits(credits);
                self.did.push(Did::Send { server, session, message });
            }
        }
    }

    fn leave_if_done(&mut self, world: u64) {
        let Some(latest) = self.leaving else { return };
        if latest <= world {
            let all: Vec<AttemptId> = self.running.keys().cloned().collect();
            for id in &all {
                self.kill(id);
            }
        }
        let is_heard = self.links.iter().all(|link| link.reports.is_empty());
        if (self.running.is_empty() && is_heard) || latest + 2 * DRAIN_GRACE_MS <= world {
            for server in 0..self.links.len() {
                self.hang_up(server);
            }
            self.die();
        }
    }

    /// When it must be looked at again.
    pub(crate) fn next_wake(&self) -> Option<u64> {
        if !self.up {
            return None;
        }
        let world = self.time.now();
        let ends = self.running.values().map(|it| it.ends_at);
        let progress = self.running.values().flat_map(|it| it.progress.iter().copied());
        let look = self.executor.look_again(self.now());
        let look = look.map(|wait| world + wait.as_millis() as u64 + 1);
        let links = self.links.iter().map(|link| link.session.next_look());
        let leaving = self.leaving.map(|at| if at > world { at } else { world + 500 });
        ends.chain(progress).chain(look).chain(links).chain(leaving).min()
    }

    /// What it runs at this moment.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &AttemptName> {
        self.running.values().map(|it| &it.name)
    }

    /// It runs nothing. A report about a job that is over and has changed servers may stay with it until its next session.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// All that it holds for a server, in hand or to be reported.
    fn held_of(&self, server: usize) -> BTreeMap<AttemptId, AttemptName> {
        let in_hand = self.executor.attempts(server);
        let reports = self.links[server].reports.iter();
        in_hand.chain(reports.map(|(id, kept)| (id.clone(), kept.name.clone()))).collect()
    }

    fn assign(&mut self, server: usize, work: &steadfast_engine::Work) {
        let name = AttemptName::from(&work.assignment);
        let is_task = matches!(work.action, Ok(Action::Call { .. } | Action::Http(_)));
        let mut fate = fate(self.seed, work);
        if self.time.now() < self.plan.broken_until {
            let cannot_begin = self.plan.slots.is_multiple_of(2);
            let failed = Outcome::from(FailureKind::NotCompleted);
            let outcome = if cannot_begin { Outcome::NOT_BEGUN } else { failed };
            fate = AttemptFate { takes_ms: 5, end: AttemptEnd::Outcome(outcome), ..fate };
        }
        let takes = Resources {
            cpu_milli: work.resources.cpu_milli(),
            memory_bytes: work.resources.memory_bytes.unwrap_or(0),
        };
        let work = SimWork { name, server, is_task, takes, timeout_ms: work.timeout_ms, fate };
        let now = self.now();
        match self.executor.assign(work, now) {
            Assigned::Known => self.did.push(Did::Note("assigned twice")),
            Assigned::Queued => {}
            Assigned::GivenBack(work, why) => {
                self.give_back(vec![work], || Outcome::NOT_BEGUN, &why);
            }
        }
    }

    pub(crate) fn hear(&mut self, server: usize, session: u64, message: ToWorker) {
        link::hear(self, server, session, message);
    }

    /// Of all servers.
    pub(crate) fn holds(&self, id: &AttemptId) -> bool {
        self.executor.holds(id) || self.links.iter().any(|link| link.reports.contains_key(id))
    }
}

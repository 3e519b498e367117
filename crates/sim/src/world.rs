//! The loop of a rehearsal: the next report or timer, the virtual clock set to it, the engine asked.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, Event, ItemId, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::outcome::OutcomeLabel;
use steadfast_core::plan::{NotBefore, Plan};
use steadfast_core::time::Timestamp;
use steadfast_engine::{Assignment, Batch, Effect, Engine, Log, Placement, Slots};

use crate::report::{Decision, Rehearsal};
use crate::script::Script;

#[derive(Clone, Debug)]
pub struct Options {
    /// Attempts at once in each datacenter; none: as many as there are.
    pub slots: Option<u32>,
    pub max_decisions: usize,
    /// Go on after a best-effort job has ended, to see its late results.
    pub past_the_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { slots: None, max_decisions: 1_000_000, past_the_end: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stopped after {decisions} decisions, at {} of virtual time: the job goes on and on; bound its \
     retries, or raise --max-decisions",
    steadfast_core::time::human_ms(at.0)
)]
pub struct TooManyDecisions {
    pub decisions: usize,
    pub at: Timestamp,
}

/// Plays `script` to the workers of a job, on a virtual clock that starts at 0.
pub fn rehearse(
    plan: Arc<Plan>,
    script: &Script,
    options: &Options,
) -> Result<Rehearsal, TooManyDecisions> {
    rehearse_into(plan, script, options, |_| ())
}

/// The same, with every event shown to `witness` when it is committed.
pub fn rehearse_into(
    plan: Arc<Plan>,
    script: &Script,
    options: &Options,
    witness: impl FnMut(&RecordedEvent),
) -> Result<Rehearsal, TooManyDecisions> {
    let slots = options.slots.map_or_else(Slots::unlimited, Slots::per_datacenter);
    let job: JobId = "rehearsal".into();
    let mut world = World {
        engine: Engine::new(Placement::here(slots, "rehearsal")),
        log: Witnessed { witness, decisions: vec![], decided: vec![], ended: None },
        now: Timestamp(0),
        inbox: BTreeMap::new(),
        sent: 0,
        down_until: None,
        script,
        job: job.clone(),
    };
    let plan = starting_now(plan);
    let batch = world.engine.submit(AcceptedJob::new(job, plan), world.now);
    world.commit(batch);
    world.dispatch();
    while !world.over(options.past_the_end) && world.step() {
        let decisions = world.log.decisions.len();
        if decisions > options.max_decisions {
            let decisions = options.max_decisions;
            return Err(TooManyDecisions { decisions, at: world.now });
        }
    }
    let World { engine, log, job, .. } = world;
    let job = engine.job(&job).expect("it was submitted above");
    Ok(Rehearsal::new(job, log.decisions))
}

/// A calendar time means nothing on a clock that starts at 0: such a job is rehearsed from then on.
fn starting_now(plan: Arc<Plan>) -> Arc<Plan> {
    match plan.not_before() {
        Some(NotBefore::At(_)) => {
            let mut draft = plan.draft();
            draft.not_before = None;
            Arc::new(Plan::new(draft).expect("it was valid with a later start"))
        }
        _ => plan,
    }
}

struct World<'a, W> {
    engine: Engine,
    log: Witnessed<W>,
    now: Timestamp,
    /// Reports on their way, by arrival and then in the order they were sent.
    inbox: BTreeMap<(Timestamp, u64), Report>,
    sent: u64,
    /// The engine is down, since `now` until then.
    down_until: Option<Timestamp>,
    script: &'a Script,
    job: JobId,
}

/// On its way to the engine; what it says is in the script.
#[derive(Clone, Copy, Debug)]
struct Report {
    item: ItemId,
    attempt: u32,
    token: u64,
}

/// The rehearsal's log: decisions are kept, events are shown and let go.
struct Witnessed<W> {
    witness: W,
    decisions: Vec<Decision>,
    /// Items that the last batch decided on.
    decided: Vec<(ItemId, u32)>,
    ended: Option<(Timestamp, OutcomeLabel)>,
}

impl<W: FnMut(&RecordedEvent)> Log for Witnessed<W> {
    type Error = Infallible;

    fn append(&mut self, records: Vec<(JobId, RecordedEvent)>) -> Result<(), Infallible> {
        for (_, record) in records {
            (self.witness)(&record);
            if let Some(decision) = Decision::of(&record, self.ended) {
                self.decided.push((decision.item, decision.attempt));
                self.decisions.push(decision);
            }
            if let Event::AttemptEnded { started_at, outcome, .. } = &record.event {
                self.ended = Some((*started_at, outcome.label()));
            }
        }
        Ok(())
    }
}

impl<W: FnMut(&RecordedEvent)> World<'_, W> {
    fn job(&self) -> &Job {
        self.engine.job(&self.job).expect("it was submitted and is never dropped")
    }

    fn over(&self, past_the_end: bool) -> bool {
        let job = self.job();
        if past_the_end { job.is_over() } else { job.state().is_terminal() }
    }

    /// Takes the world on by one event; false when nothing can happen any more.
    fn step(&mut self) -> bool {
        if let Some(until) = self.down_until.take() {
            self.restart(until);
            return true;
        }
        let report = self.inbox.first_key_value().map(|((at, _), _)| *at);
        let timer = self.engine.next_due();
        // A report that arrives at the very moment a timer fires was in time.
        match (report, timer) {
            (Some(at), timer) if timer.is_none_or(|timer| at <= timer) => {
                self.now = self.now.max(at);
                self.take_report();
            }
            (_, Some(at)) => {
                self.now = self.now.max(at);
                let batch = self.engine.tick(self.now);
                self.commit(batch);
            }
            (_, None) => return false,
        }
        if self.down_until.is_none() {
            self.dispatch();
        }
        true
    }

    /// First the restart itself, then what arrived meanwhile, then what fell due, then new starts.
    fn restart(&mut self, until: Timestamp) {
        let down_since = self.now;
        self.now = until;
        let batch = self.engine.restart(down_since, until);
        self.commit(batch);
        while self.down_until.is_none()
            && self.inbox.first_key_value().is_some_and(|((at, _), _)| *at <= until)
        {
            self.take_report();
        }
        while self.down_until.is_none() && self.engine.next_due().is_some_and(|due| due <= until) {
            let batch = self.engine.tick(until);
            self.commit(batch);
        }
        if self.down_until.is_none() {
            self.dispatch();
        }
    }

    fn take_report(&mut self) {
        let Some((_, Report { item, attempt, token })) = self.inbox.pop_first() else { return };
        let (Some(outcome), _) = self.script.of(item).attempt(attempt) else { return };
        let input = Input::Report { item, token, outcome: outcome.clone() };
        // What comes too late is refused by its fence; that is the point of it.
        let mut batch = Batch::default();
        if self.engine.handle(&self.job, &input, self.now, &mut batch).is_ok() {
            self.commit(batch);
        }
    }

    fn dispatch(&mut self) {
        loop {
            let batch = self.engine.dispatch(self.now);
            if batch.is_empty() {
                return;
            }
            self.commit(batch);
        }
    }

    fn commit(&mut self, batch: Batch) {
        let Ok(effects) = batch.commit(&mut self.log);
        for effect in effects {
            match effect {
                Effect::Assign(assignment) => self.work(&assignment),
                // A scripted worker cannot be stopped; its report comes, and is stale.
                Effect::Withdraw(_) => {}
            }
        }
        for (item, attempt) in std::mem::take(&mut self.log.decided) {
            let down_ms = self.script.of(item).down_after_ms(attempt);
            if down_ms > 0 {
                let until = self.now.plus(down_ms);
                self.down_until = Some(self.down_until.map_or(until, |other| other.max(until)));
            }
        }
    }

    /// The scripted worker: it reports what the script says, when it says so.
    fn work(&mut self, assignment: &Assignment) {
        let item = assignment.item;
        let (outcome, takes_ms) = self.script.of(item).attempt(assignment.attempt);
        if outcome.is_some() {
            self.sent += 1;
            let at = self.now.plus(takes_ms);
            let Assignment { attempt, token, .. } = *assignment;
            self.inbox.insert((at, self.sent), Report { item, attempt, token });
        }
    }
}

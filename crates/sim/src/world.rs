//! The loop of a rehearsal: the next report or timer, the virtual clock set to it, the controller asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, Event, ItemId, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::outcome::OutcomeLabel;
use steadfast_core::plan::{NotBefore, Plan};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Adopted, Assignment, Controller, Outgoing, Outputs, Placement, Request, Slots,
};
use steadfast_store::Gap;

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
    let job: JobId = "rehearsal".into();
    let mut world = World {
        controller: controller(options),
        over: None,
        options,
        log: Witnessed { witness, decisions: vec![], decided: vec![], ended: None },
        now: Timestamp(0),
        inbox: BTreeMap::new(),
        sent: 0,
        down_until: None,
        script,
        job: job.clone(),
    };
    let plan = starting_now(plan);
    let accepted = Box::new(AcceptedJob::new(job, plan));
    world.controller.request(None, Request::Submit { accepted, key: None }, world.now);
    world.commit();
    world.dispatch();
    while !world.is_over() && world.step() {
        let decisions = world.log.decisions.len();
        if decisions > options.max_decisions {
            let decisions = options.max_decisions;
            return Err(TooManyDecisions { decisions, at: world.now });
        }
    }
    let decisions = std::mem::take(&mut world.log.decisions);
    Ok(Rehearsal::new(world.job(), decisions))
}

fn controller(options: &Options) -> Controller {
    let slots = options.slots.map_or_else(Slots::unlimited, Slots::per_datacenter);
    Controller::rehearsing(Placement::here(slots, "rehearsal"))
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
    controller: Controller,
    /// The job, once nothing of it is left to be done.
    over: Option<Box<Job>>,
    options: &'a Options,
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
    /// Items that the last group decided on.
    decided: Vec<(ItemId, u32)>,
    ended: Option<(Timestamp, OutcomeLabel)>,
}

impl<W: FnMut(&RecordedEvent)> Witnessed<W> {
    fn append(&mut self, record: &RecordedEvent) {
        (self.witness)(record);
        if let Some(decision) = Decision::of(record, self.ended) {
            self.decided.push((decision.item, decision.attempt));
            self.decisions.push(decision);
        }
        if let Event::AttemptEnded { started_at, outcome, .. } = &record.event {
            self.ended = Some((*started_at, outcome.label()));
        }
    }
}

impl<W: FnMut(&RecordedEvent)> World<'_, W> {
    fn job(&self) -> &Job {
        let job = self.controller.job(&self.job).or(self.over.as_deref());
        job.expect("it was submitted, and is kept when it is over")
    }

    fn is_over(&self) -> bool {
        let job = self.job();
        if self.options.past_the_end { job.is_over() } else { job.state().is_terminal() }
    }

    /// Takes the world on by one event; false when nothing can happen any more.
    fn step(&mut self) -> bool {
        if let Some(until) = self.down_until.take() {
            self.restart(until);
            return true;
        }
        let report = self.inbox.first_key_value().map(|((at, _), _)| *at);
        let timer = self.controller.next_due();
        // A report that arrives at the very moment a timer fires was in time.
        match (report, timer) {
            (Some(at), timer) if timer.is_none_or(|timer| at <= timer) => {
                self.now = self.now.max(at);
                self.take_report();
            }
            (_, Some(at)) => {
                self.now = self.now.max(at);
                self.controller.tick(self.now);
                self.commit();
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
        let gaps = vec![Gap { from: self.now, until }];
        self.now = until;
        let before = std::mem::replace(&mut self.controller, controller(self.options));
        // What its workers are at goes on meanwhile.
        if let Some(job) = before.into_job(&self.job) {
            let adopted = Adopted { job, gaps, lost: vec![] };
            self.controller.request(None, Request::Adopt(Box::new(adopted)), until);
        }
        self.commit();
        while self.down_until.is_none()
            && self.inbox.first_key_value().is_some_and(|((at, _), _)| *at <= until)
        {
            self.take_report();
        }
        let due = |world: &Self| world.controller.next_due().is_some_and(|due| due <= until);
        while self.down_until.is_none() && due(self) {
            self.controller.tick(until);
            self.commit();
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
        let report = Request::Input { job: self.job.clone(), input };
        self.controller.request(None, report, self.now);
        self.commit();
    }

    fn dispatch(&mut self) {
        self.controller.start(self.now);
        self.commit();
    }

    fn commit(&mut self) {
        let Some(group) = self.controller.group_of(|_, assignment| assignment) else { return };
        let all = vec![Ok(()); group.writes.len()];
        let Outputs { events, effects, ended, .. } = group.committed(all);
        for record in events.iter().flat_map(|(_, records)| records) {
            self.log.append(record);
        }
        self.over = ended.into_iter().next().or(self.over.take());
        for effect in effects {
            match effect {
                Outgoing::Assign(assignment) => self.work(&assignment),
                // A scripted worker cannot be stopped; its report comes, and is stale.
                Outgoing::Withdraw(_) => {}
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

//! Workers that come and go: who gets what, who is believed, and what becomes of what they had.

mod ahead;
mod credits;
mod drains;
mod health;
mod identity;
mod ownership;
mod timeouts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, AttemptId, Event, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{Action, ForEach, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Adopted, Answer, Arriving, Assignment, Controller, CreditNotice, FleetNotification, FleetRules,
    Identity, Missed, Outgoing, Placement, Request, Undraining, WorkerSpec, WorkerState,
};
use steadfast_store::{Gap, Refused};

/// What leaves for a worker.
type Effect = Outgoing<Assignment>;

struct World {
    controller: Controller,
    log: Vec<(JobId, RecordedEvent)>,
    news: Vec<FleetNotification>,
    /// Jobs that are over.
    over: BTreeMap<JobId, Job>,
    /// The monotonic clock.
    now: u64,
    /// The wall clock is so far ahead of it.
    wall_ahead: u64,
    sessions: u64,
    jobs: u32,
    /// What workers that come say of their slots.
    credits: Option<u32>,
    /// What they hold for other servers, and what of it was adopted.
    elsewhere: BTreeSet<AttemptId>,
    adopted: Vec<AttemptId>,
    told: Vec<(Arc<str>, CreditNotice)>,
}

fn step(name: &str, items: u32) -> StepDraft {
    let policy = Policy::new(PolicyDraft::default()).expect("the defaults are valid");
    let action = Action::Run("true".to_owned());
    let for_each = if items == 1 { ForEach::Once } else { ForEach::Range(items) };
    StepDraft { for_each, ..StepDraft::new(name, action, policy) }
}

fn worker(name: &str, slots: u32) -> WorkerSpec {
    WorkerSpec {
        name: name.into(),
        incarnation: "1".into(),
        datacenter: None,
        labels: BTreeMap::new(),
        slots,
        cpu: Some(4.0),
        memory_bytes: Some(1 << 30),
        functions: BTreeSet::new(),
        processes: true,
        http: true,
        queues: false,
    }
}

fn identity(fingerprint: &str, proven: bool) -> Identity {
    Identity { fingerprint: fingerprint.into(), proven, owns_name: false }
}

impl World {
    fn new() -> Self {
        let mut controller = Controller::new(Placement::fleet(FleetRules::default()));
        controller.engine_mut().hear(1000, 0);
        let (log, news, over) = (vec![], vec![], BTreeMap::new());
        let (now, wall_ahead, sessions, jobs) = (1000, 0, 0, 0);
        let (credits, told, elsewhere, adopted) = (None, vec![], BTreeSet::new(), vec![]);
        Self {
            controller,
            log,
            news,
            over,
            now,
            wall_ahead,
            sessions,
            jobs,
            credits,
            elsewhere,
            adopted,
            told,
        }
    }

    fn job(&self, id: &JobId) -> &Job {
        self.controller.job(id).or(self.over.get(id)).expect("it was submitted")
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.now + self.wall_ahead)
    }

    /// Starts what may start, and makes durable what was decided.
    fn done(&mut self) -> Vec<Effect> {
        self.controller.start(self.wall());
        self.commit().0
    }

    fn commit(&mut self) -> (Vec<Effect>, Vec<Answer>) {
        let Some(group) = self.controller.group_of(|_, assignment| assignment) else {
            return (vec![], vec![]);
        };
        let all = vec![Ok(()); group.writes.len()];
        let outputs = group.committed(all);
        for (job, records) in outputs.events {
            self.log.extend(records.into_iter().map(|record| (job.clone(), record)));
        }
        self.news.extend(outputs.news);
        self.told.extend(outputs.credits);
        self.over.extend(outputs.ended.into_iter().map(|job| (job.id.clone(), *job)));
        (outputs.effects, outputs.replies.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Something is said about a job.
    fn say(&mut self, job: &JobId, input: Input) -> Result<Vec<Effect>, String> {
        let now = self.wall();
        self.controller.request(Some(1), Request::Input { job: job.clone(), input }, now);
        self.controller.start(now);
        let (effects, mut answers) = self.commit();
        answers.remove(0).map(|()| effects).map_err(|why| why.to_string())
    }

    /// A job that was stored by another, which was down until now.
    fn adopt(&mut self, job: Job, down_since: Timestamp, now: Timestamp) -> Vec<Effect> {
        let gaps = vec![Gap { from: down_since, until: now }];
        let adopted = Box::new(Adopted { job, gaps, lost: vec![] });
        self.controller.request(None, Request::Adopt(adopted), now);
        self.done()
    }

    fn submit(&mut self, draft: PlanDraft) -> (JobId, Vec<Effect>) {
        self.jobs += 1;
        let id: JobId = format!("job{}", self.jobs).into();
        let plan = Arc::new(Plan::new(draft).expect("valid"));
        let accepted = Box::new(AcceptedJob::new(id.clone(), plan));
        self.controller.request(None, Request::Submit { accepted, key: None }, self.wall());
        (id, self.done())
    }

    fn connect(&mut self, spec: WorkerSpec) -> Vec<Effect> {
        self.arrive(spec, false, &[]).expect("the name is free")
    }

    /// The worker that has the name, with a proof of it.
    fn arrive(
        &mut self,
        spec: WorkerSpec,
        returning: bool,
        holds: &[AttemptId],
    ) -> Result<Vec<Effect>, String> {
        self.arrive_as(identity("its own", true), spec, returning, holds)
    }

    fn arrive_as(
        &mut self,
        identity: Identity,
        spec: WorkerSpec,
        returning: bool,
        holds: &[AttemptId],
    ) -> Result<Vec<Effect>, String> {
        self.sessions += 1;
        let holds = holds.iter().cloned().collect();
        let (session, elsewhere) = (self.sessions, self.elsewhere.clone());
        let arriving = Arriving {
            spec,
            identity,
            session,
            returning,
            holds,
            elsewhere,
            in_vain: BTreeSet::new(),
            credits: self.credits,
        };
        let connected = self.controller.connect(arriving, self.wall());
        self.adopted = connected.map_err(|error| error.to_string())?.adopted;
        Ok(self.done())
    }

    fn report(&mut self, about: &Assignment, outcome: Outcome) -> Result<Vec<Effect>, String> {
        let input = Input::Report { item: about.item, token: about.token, outcome };
        self.say(&about.job, input)
    }

    /// Time passes, in which the engine waits for something to happen.
    fn wait(&mut self, ms: u64) -> Vec<Effect> {
        self.now += ms;
        self.controller.engine_mut().hear(self.now, ms);
        self.controller.due(self.wall(), true);
        self.commit().0
    }

    fn news(&mut self) -> Vec<FleetNotification> {
        // What workers did since the last group is told with the next.
        let _ = self.commit();
        std::mem::take(&mut self.news)
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let ended = |(_, record): &(JobId, RecordedEvent)| match &record.event {
            Event::AttemptEnded { outcome: Outcome::Lost { started, .. }, .. } => {
                Some(Outcome::Lost { started: *started, why: None })
            }
            Event::AttemptEnded { outcome, .. } => Some(outcome.clone()),
            _ => None,
        };
        self.log.iter().filter_map(ended).collect()
    }
}

fn assigned(effects: &[Effect]) -> Vec<&Assignment> {
    let assigns = effects.iter().filter_map(|effect| match effect {
        Effect::Assign(assignment) => Some(assignment),
        Effect::Withdraw(_) => None,
    });
    assigns.collect()
}

fn on(effects: &[Effect], worker: &str) -> usize {
    assigned(effects).iter().filter(|assignment| &*assignment.worker == worker).count()
}

fn key(assignment: &Assignment) -> AttemptId {
    assignment.id()
}

fn fan_out(name: &str, items: u32) -> PlanDraft {
    PlanDraft::new(name, vec![step("s", items)])
}

#[test]
fn nothing_starts_without_a_worker_and_everything_fits_its_slots() {
    let mut world = World::new();
    let (job, effects) = world.submit(fan_out("a", 10));
    assert_eq!(assigned(&effects).len(), 0);
    assert_eq!(
        world.controller.engine().why_not_running(&job)[0].1,
        "no worker is connected; start one with `steadfast worker`"
    );
    let effects = world.connect(worker("w1", 3));
    assert_eq!(assigned(&effects).len(), 3);
    assert_eq!(
        world.controller.engine().why_not_running(&job)[0].1,
        "w1, the one worker that could take it, is busy"
    );
    let next = world.report(assigned(&effects)[0], Outcome::OK).expect("current");
    assert_eq!(assigned(&next).len(), 1, "a slot that is given back is taken at once");
}

#[test]
fn resources_are_counted_and_what_nobody_has_is_named() {
    let mut world = World::new();
    world.connect(worker("w1", 100));
    let mut heavy = step("s", 10);
    heavy.resources.cpu = Some(1.5);
    let (_, effects) = world.submit(PlanDraft::new("a", vec![heavy.clone()]));
    assert_eq!(assigned(&effects).len(), 2, "4 cpus have room for two times 1.5");
    heavy.resources.cpu = Some(8.0);
    let (job, effects) = world.submit(PlanDraft::new("b", vec![heavy, step("light", 1)]));
    assert_eq!(assigned(&effects).len(), 1, "a step that nobody can take holds up no other");
    let why = &world.controller.engine().why_not_running(&job)[0].1;
    assert_eq!(why, "no worker has 8 cpus; the largest has 4");
}

#[test]
fn labels_functions_and_datacenters_are_held_against_the_worker() {
    let mut world = World::new();
    let spec = WorkerSpec {
        datacenter: Some("eu-west".to_owned()),
        labels: BTreeMap::from([("gpu".to_owned(), "a100".to_owned())]),
        functions: BTreeSet::from(["train".to_owned()]),
        ..worker("w1", 10)
    };
    world.connect(spec);
    let mut labelled = step("s", 1);
    labelled.labels.insert("gpu".to_owned(), "h100".to_owned());
    let mut call = step("t", 1);
    call.action = Action::Call { name: "infer".to_owned(), input: serde_json::Value::Null };
    let (job, effects) = world.submit(PlanDraft::new("a", vec![labelled.clone(), call]));
    assert!(assigned(&effects).is_empty());
    let why: Vec<String> =
        world.controller.engine().why_not_running(&job).into_iter().map(|(_, why)| why).collect();
    assert_eq!(why, ["no worker has the label gpu=h100", "no worker has the function infer"]);

    labelled.labels.insert("gpu".to_owned(), "a100".to_owned());
    let draft = PlanDraft {
        datacenters: vec!["eu-west".to_owned(), "us-east".to_owned()],
        ..PlanDraft::new("b", vec![labelled])
    };
    let (job, effects) = world.submit(draft);
    assert_eq!(assigned(&effects).len(), 1);
    let why = world.controller.engine().why_not_running(&job);
    assert_eq!(why, [((1, 0), "no worker in us-east is connected".to_owned())]);
}

#[test]
fn jobs_share_alike_and_a_higher_priority_goes_first() {
    let mut world = World::new();
    let (first, _) = world.submit(fan_out("a", 100));
    let (second, _) = world.submit(fan_out("b", 100));
    let effects = world.connect(worker("w1", 10));
    let of = |job: &JobId| assigned(&effects).iter().filter(|one| one.job == *job).count();
    assert_eq!((of(&first), of(&second)), (5, 5));

    let urgent = PlanDraft { priority: 1, ..fan_out("c", 100) };
    let (urgent, none) = world.submit(urgent);
    assert!(assigned(&none).is_empty(), "nothing that runs is thrown out");
    for about in assigned(&effects) {
        let next = world.report(about, Outcome::OK).expect("current");
        assert_eq!(assigned(&next)[0].job, urgent);
    }
}

#[test]
fn a_silent_worker_is_lost_and_its_items_go_elsewhere_without_a_charge() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (_, effects) = world.submit(fan_out("a", 2));
    assert_eq!(on(&effects, "w1"), 2);
    world.wait(10_000);
    assert!(world.controller.engine_mut().beat("w1", "1"));
    world.connect(worker("w2", 2));
    world.wait(14_999);
    assert!(world.controller.engine_mut().beat("w2", "1"));
    assert!(world.outcomes().is_empty(), "the lease counts from the last beat");
    let again = world.wait(1);
    assert_eq!(on(&again, "w2"), 2);
    assert_eq!(world.outcomes(), [Outcome::LOST, Outcome::LOST]);
    assert!(!world.controller.engine_mut().beat("w1", "1"), "it must come in anew");
    let late = world.report(assigned(&effects)[0], Outcome::OK);
    assert!(late.expect_err("fenced").contains("stale"));
    assert!(world.news().contains(&FleetNotification::Lost {
        worker: "w1".into(),
        attempts: 2,
        why: "it was silent for longer than its lease",
    }));
}

#[test]
fn an_engine_that_was_away_does_not_blame_the_workers() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    world.submit(fan_out("a", 2));
    // A minute in which nothing was heard, not even waited.
    world.now += 60_000;
    world.controller.engine_mut().hear(world.now, 0);
    world.wait(0);
    assert!(world.outcomes().is_empty());
    assert!(world.controller.engine_mut().beat("w1", "1"));
}

#[test]
fn a_worker_that_returns_goes_on_with_what_it_holds_and_gets_the_rest_again() {
    let mut world = World::new();
    world.connect(worker("w1", 3));
    let (_, effects) = world.submit(fan_out("a", 3));
    let all = assigned(&effects);
    world.controller.engine_mut().away("w1", world.sessions);
    let foreign: AttemptId = AttemptId::new("other", 7);
    let holds = [key(all[0]), foreign.clone()];
    let told = world.arrive(worker("w1", 3), true, &holds).expect("its own name");
    let again: Vec<AttemptId> = assigned(&told).iter().map(|one| key(one)).collect();
    assert_eq!(again, [key(all[1]), key(all[2])]);
    assert!(
        told.iter().any(|effect| matches!(effect, Effect::Withdraw(one) if key(one) == foreign))
    );
    assert!(world.outcomes().is_empty());
    world.report(all[0], Outcome::OK).expect("current");
}

/// Its welcome did not reach it: nothing that it was assigned meanwhile did.
#[test]
fn a_worker_that_says_hello_twice_has_lost_nothing() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (_, effects) = world.submit(fan_out("a", 2));
    let all: Vec<AttemptId> = assigned(&effects).iter().map(|one| key(one)).collect();
    let told = world.arrive(worker("w1", 2), false, &[]).expect("the same life");
    let again: Vec<AttemptId> = assigned(&told).iter().map(|one| key(one)).collect();
    assert_eq!(again, all);
    assert!(world.outcomes().is_empty());
}

#[test]
fn a_restarted_worker_has_lost_what_its_earlier_life_had_but_for_kept_reports() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (_, effects) = world.submit(fan_out("a", 2));
    let all = assigned(&effects);
    let reborn = WorkerSpec { incarnation: "2".into(), ..worker("w1", 2) };
    let refused = world.arrive(reborn.clone(), false, &[]).expect_err("the other is connected");
    assert!(refused.contains("a worker named w1 is connected already"), "{refused}");
    world.controller.engine_mut().away("w1", world.sessions - 1);
    let told = world.arrive(reborn, false, &[key(all[0])]).expect("the other has gone");
    assert_eq!(world.outcomes(), [Outcome::LOST]);
    assert_eq!(on(&told, "w1"), 1, "what was lost starts again");
    let withdrawn =
        |effect: &Effect| matches!(effect, Effect::Withdraw(it) if key(it) == key(all[1]));
    assert!(
        told.iter().any(withdrawn),
        "an assignment to its earlier life may be on its way to it"
    );
    world.report(all[0], Outcome::OK).expect("a report that was kept counts");
}

#[test]
fn the_end_of_an_old_session_does_not_end_the_new_one() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    world.arrive(worker("w1", 2), true, &[]).expect("the same life");
    world.controller.engine_mut().away("w1", 1);
    assert_eq!(world.controller.engine().workers()[0].state, WorkerState::Connected);
    let (_, effects) = world.submit(fan_out("a", 2));
    assert_eq!(on(&effects, "w1"), 2);
}

#[test]
fn after_a_restart_workers_have_a_lease_to_come_back_in() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    world.connect(worker("w2", 2));
    let (id, effects) = world.submit(fan_out("a", 4));
    let job = world.job(&id).clone();
    let mut restarted = World::new();
    assert!(assigned(&restarted.adopt(job, Timestamp(1000), Timestamp(2000))).is_empty());
    let holds: Vec<AttemptId> =
        assigned(&effects).into_iter().filter(|one| &*one.worker == "w1").map(key).collect();
    let told = restarted.arrive(worker("w1", 2), true, &holds).expect("welcome");
    assert!(told.is_empty(), "it goes on as if nothing had happened: {told:?}");
    restarted.wait(14_000);
    assert!(restarted.controller.engine_mut().beat("w1", "1"));
    let again = restarted.wait(1000);
    assert_eq!(restarted.outcomes(), [Outcome::LOST, Outcome::LOST]);
    assert!(assigned(&again).is_empty(), "w1 is full");
    for one in assigned(&effects).into_iter().filter(|one| &*one.worker == "w1") {
        let next = restarted.report(one, Outcome::OK).expect("current");
        assert_eq!(on(&next, "w1"), 1);
    }
}

#[test]
fn a_worker_that_cannot_begin_anything_is_put_aside_at_once() {
    let mut world = World::new();
    world.connect(worker("full", 1));
    let (_, mut effects) = world.submit(fan_out("a", 10));
    let not_begun = |world: &mut World, effects: &[Effect]| {
        let one = assigned(effects).into_iter().find(|one| &*one.worker == "full");
        let one = one.expect("it is given something").clone();
        world.report(&one, Outcome::NOT_BEGUN).expect("current")
    };
    for _ in 0..3 {
        effects = not_begun(&mut world, &effects);
    }
    let why = "3 attempts in a row could not even begin there; not put aside, as nobody else could run \
               what waits";
    assert_eq!(world.controller.engine().workers()[0].why.as_deref(), Some(why));
    let also = world.connect(worker("well", 1));
    assert_eq!(on(&also, "well"), 1);
    world.now += 1000;
    world.controller.engine_mut().hear(world.now, 1000);
    effects = not_begun(&mut world, &effects);
    assert_eq!(on(&effects, "full"), 0);
    let full =
        world.controller.engine().workers().into_iter().find(|view| &*view.spec.name == "full");
    assert_eq!(full.expect("it is there").state, WorkerState::Quarantined);
}

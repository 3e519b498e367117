//! A store with jobs of all kinds in it, and all that can be read of one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use steadfast_core::decide::accept;
use steadfast_core::event::{AcceptedJob, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::transfer::{LogAbout, Movable, MovableBlobs};
use steadfast_store::{
    AttachedFile, AttachedFiles, Blobs, Filter, Gap, IdempotencyKey, Journal, LogChunk, LogName,
    Owner, QueueEntry, Row, Stored, Whose, Write,
};

use crate::strategies::plans;
use crate::world::{Happening, World};

pub(crate) const SETTINGS: [&str; 2] = ["tokens.json", "callback.key"];
/// When the server of [`fill`] was last alive.
pub(crate) const ALIVE: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) fn id(number: usize) -> String {
    format!("01k{number:023}")
}

fn world(id: &str, plan: steadfast_core::plan::Plan) -> World {
    let at = Timestamp(1000);
    let (job, log) = accept(AcceptedJob::new(id.into(), Arc::new(plan)), at);
    let states = BTreeMap::from([(job.seq, job.clone())]);
    World { job, log, now: at, states }
}

/// As a controller would have it.
pub(crate) fn row(job: &Job) -> Row {
    let over = job.is_over();
    let timers = job.timers();
    let next = timers.first().map_or(Timestamp(u64::MAX), |(at, _)| *at);
    let is_queued =
        !over && (0..job.runs.len() as u32).any(|run| job.next_startable(run).is_some());
    Row {
        id: job.id.clone(),
        name: job.plan.name().to_owned(),
        state: job.state(),
        submitted_at: job.accepted_at,
        finished_at: job.finished_at,
        wake_at: (!over).then_some(next),
        queued: is_queued.then(|| "{\"class\":1}".to_owned()),
        over,
        labels: [("team".to_owned(), format!("sökning {}", job.id.len()))].into(),
        retried_from: None,
        local: false,
    }
}

/// What is written of the job from an event on up to another, where its state was that.
pub(crate) fn write(log: &[RecordedEvent], after: u64, state: &Job, has_snapshot: bool) -> Write {
    let records = &log[after as usize..state.seq as usize];
    let snapshot = has_snapshot.then(|| serde_json::to_vec(&state.clone().with_plan(())).unwrap());
    Write {
        job: state.id.clone(),
        expected_seq: after,
        records: records.to_vec(),
        row: row(state),
        snapshot,
        key: None,
        readiness: None,
    }
}

fn blobs(blobs: &dyn MovableBlobs, world: &World, number: usize) {
    let job = &*world.job.id;
    // Enough of them: each is read several times.
    if !number.is_multiple_of(7) {
        return;
    }
    if number.is_multiple_of(2) {
        let file = |path: &str, content: Vec<u8>, executable| {
            (PathBuf::from(path), AttachedFile { path: path.to_owned(), content, executable })
        };
        let large = vec![number as u8; 300_000];
        let files = [file("run.sh", b"true\n".to_vec(), true), file("data/large", large, false)];
        blobs.put_files(job, &files.into()).unwrap();
    }
    for step in world.job.plan.steps() {
        let log = |name: &str| LogName {
            job: job.into(),
            step: step.name.clone(),
            name: name.to_owned(),
        };
        let whole = log("whole");
        let put = |log: &LogName, offset: u64, text: &[u8], last: bool| {
            blobs.write_log(log, LogChunk { offset, bytes: text, last }, true).unwrap();
        };
        put(&whole, 0, b"one\n", false);
        put(&whole, 4, &vec![b'x'; 300_000], true);
        blobs.mark_whole(&whole).unwrap();
        let times = vec![(0, 5_000), (4, 6_000 + number as u64)];
        let timed = LogAbout { log: log("timed"), length: 300_004, partial: false, times };
        blobs.put_log(&timed, &*blobs.open_log(&whole).unwrap()).unwrap();
        assert_eq!(blobs.log_times(&timed.log).unwrap(), timed.times);
        put(&log("partial"), 0, b"more is to come", false);
        blobs.mark_partial(&log("nothing yet")).unwrap();
    }
}

/// Jobs to which things happen at random, the same ones each time: some of them over, most not; keys, files and logs. And one of
/// `run` that is over.
pub(crate) fn fill(storage: &dyn Movable, jobs: usize) -> Vec<World> {
    let claim = storage.claim().expect("nobody has it");
    let mut journal = storage.journal().unwrap();
    let owner = journal.take(Owner::SHARD, Timestamp(500), None).unwrap();
    for name in SETTINGS {
        let mut change = |_| Ok(format!("the {name} of here").into_bytes());
        storage.settings().change(name, &mut change).unwrap();
    }
    let (mut runner, mut worlds, mut group) = (TestRunner::deterministic(), vec![], vec![]);
    let cases = (plans(), prop::collection::vec(any::<Happening>(), 0..40));
    for number in 0..jobs {
        let (plan, happenings) = cases.new_tree(&mut runner).unwrap().current();
        let mut world = world(&id(number), plan);
        for happening in happenings {
            world.happen(happening);
        }
        if number % 3 == 2 {
            world.drain();
        }
        blobs(&*storage.own_blobs(), &world, number);
        // In two parts, the first with its state.
        let half = world.states.range(..=world.job.seq / 2 + 1).next_back();
        let half = half.map_or(&world.job, |(_, state)| state).clone();
        let mut first = write(&world.log, 0, &half, number.is_multiple_of(5));
        if number.is_multiple_of(3) {
            let (key, digest) = (format!("key-{number}"), "digest".to_owned());
            first.key = Some(IdempotencyKey { key, digest });
        }
        group.push(first);
        if half.seq < world.job.seq {
            group.push(write(&world.log, half.seq, &world.job, number.is_multiple_of(10)));
        }
        worlds.push(world);
    }
    let answers = journal.commit(&owner, &group).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    // It was down twice; some have events since.
    for (from, until) in [(900, 1500), (1 << 40, (1 << 40) + 77)] {
        journal.take(Owner::SHARD, Timestamp(until), Some(Timestamp(from))).unwrap();
    }
    run_job(&mut *journal, "local-over", true);
    claim.renew(ALIVE).unwrap();
    worlds
}

/// A job of `run`, which is its own owner.
pub(crate) fn run_job(journal: &mut dyn Journal, id: &str, is_over: bool) {
    let plan = plans().new_tree(&mut TestRunner::deterministic()).unwrap().current();
    let mut world = world(id, plan);
    if is_over {
        world.drain();
    }
    let owner = journal.take(id, Timestamp(0), None).unwrap();
    let mut write = write(&world.log, 0, &world.job, false);
    write.row.local = true;
    assert_eq!(journal.commit(&owner, &[write]).unwrap(), [Ok(())]);
}

#[derive(Debug, PartialEq)]
pub(crate) struct JobImage {
    stored: Stored,
    is_its_own: bool,
    log: Vec<RecordedEvent>,
    key: Option<IdempotencyKey>,
    gaps: Vec<Gap>,
    files: AttachedFiles,
    logs: BTreeMap<(String, String), LogImage>,
}

#[derive(Debug, PartialEq)]
struct LogImage {
    content: Vec<u8>,
    is_partial: bool,
    times: Vec<(u64, u64)>,
}

/// All that can be read of a store.
#[derive(Debug, PartialEq)]
pub(crate) struct Image {
    /// In the order of a list, the latest first.
    pub(crate) order: Vec<JobId>,
    pub(crate) jobs: BTreeMap<JobId, JobImage>,
    due: Vec<(Timestamp, JobId)>,
    queued: Vec<QueueEntry>,
    settings: Vec<Option<Vec<u8>>>,
}

pub(crate) fn image(storage: &dyn Movable) -> Image {
    let mut store = storage.transfer().unwrap();
    let (mut order, mut cursor) = (vec![], None);
    loop {
        let page = store.list(&Filter::default(), cursor.as_deref(), 50).unwrap();
        order.extend(page.jobs.into_iter().map(|row| row.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let blobs = storage.blobs();
    let mut jobs = BTreeMap::new();
    for id in &order {
        let mut stored = store.get(id).unwrap().expect("it is listed");
        let is_its_own = *stored.owner == **id;
        stored.owner = String::new();
        let log = store.events(id, 0, usize::MAX).unwrap();
        assert_eq!(log.len() as u64, stored.seq);
        let last_at = log.last().expect("it was accepted").at;
        let gaps =
            if stored.row.over { vec![] } else { store.gaps(Owner::SHARD, id, last_at).unwrap() };
        let files = blobs.get_files(id, &BTreeSet::from([PathBuf::new()])).unwrap_or_default();
        let logs = logs(&*blobs, id, &log);
        let key = store.key_of(id).unwrap();
        jobs.insert(id.clone(), JobImage { stored, is_its_own, log, key, gaps, files, logs });
    }
    let whose = Whose::all(Owner::SHARD);
    let due = store.due(whose, None, Timestamp(u64::MAX), usize::MAX).unwrap();
    let queued = store.queued(whose, None, usize::MAX).unwrap();
    let settings = storage.settings();
    let settings = SETTINGS.iter().map(|name| settings.get(name).unwrap().1).collect();
    Image { order, jobs, due, queued, settings }
}

fn logs(
    blobs: &dyn Blobs,
    job: &str,
    log: &[RecordedEvent],
) -> BTreeMap<(String, String), LogImage> {
    let steadfast_core::event::Event::JobAccepted(accepted) = &log[0].event else {
        panic!("{:?}", log[0])
    };
    let mut logs = BTreeMap::new();
    for step in accepted.plan.steps() {
        let mut names = vec![];
        blobs.each_log(job, &step.name, &mut |name| names.push(name.to_owned())).unwrap();
        for name in names {
            let log = LogName { job: job.into(), step: step.name.clone(), name: name.clone() };
            let content = blobs.open_log(&log).unwrap().read(0, 1 << 20).unwrap();
            let times = blobs.log_times(&log).unwrap();
            let is_partial = blobs.is_partial(&log);
            logs.insert((step.name.clone(), name), LogImage { content, is_partial, times });
        }
    }
    logs
}

impl JobImage {
    /// Its id, if it is not over.
    pub(crate) fn open(&self) -> Option<JobId> {
        (!self.stored.row.over).then(|| self.stored.row.id.clone())
    }
}

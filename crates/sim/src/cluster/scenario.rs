//! What a seed says: who is there, which jobs come when, what people want of them, and what goes wrong. All of it is data, decided before
//! anything happens, so that a failing seed can be made smaller by leaving some of it out.

mod combined;

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::plan::{Plan, milli_cpus};
use steadfast_worker::Capacity;

use super::jobs::{self, DATACENTERS};
use super::requests::Asked;
use super::rng::Rng;
use super::server::ServerPlan;
use super::store::{CommitFault, Fate};

#[derive(Clone, Debug)]
pub(crate) struct WorkerPlan {
    pub(crate) slots: u32,
    pub(crate) datacenter: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) cpu: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Until then it fails whatever it is given.
    pub(crate) broken_until: u64,
}

impl WorkerPlan {
    pub(crate) fn capacity(&self) -> Capacity {
        let cpu_milli = self.cpu.map(milli_cpus);
        Capacity { cpu_milli, memory_bytes: self.memory_bytes }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    pub(crate) at: u64,
    pub(crate) text: String,
    pub(crate) plan: Arc<Plan>,
    pub(crate) key: Option<String>,
    /// Submitted once more, with the same key and body, so much later.
    pub(crate) again_after: Option<u64>,
    /// And with another body.
    pub(crate) other_after: Option<u64>,
    /// So long after it was accepted.
    pub(crate) commands: Vec<(u64, Asked)>,
    /// When it has ended, it is retried.
    pub(crate) retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Both,
    ToServer,
    ToWorker,
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    CrashServer {
        server: usize,
        for_ms: u64,
    },
    StopServer {
        server: usize,
        for_ms: u64,
    },
    FreezeServer {
        server: usize,
        for_ms: u64,
    },
    CutStore {
        server: usize,
        for_ms: u64,
    },
    Commit {
        server: usize,
        fault: CommitFault,
    },
    SlowStore {
        for_ms: u64,
    },
    /// What is read arrives when the store may have gone on.
    SlowReads {
        for_ms: u64,
    },
    FailReads {
        times: u32,
    },
    JumpClock {
        server: usize,
        by_ms: i64,
    },
    KillWorker {
        worker: usize,
        for_ms: u64,
    },
    FreezeWorker {
        worker: usize,
        for_ms: u64,
    },
    PreemptWorker {
        worker: usize,
        for_ms: u64,
    },
    DrainWorker {
        worker: usize,
    },
    /// It never comes back.
    LoseWorker {
        worker: usize,
    },
    LoseDatacenter {
        datacenter: &'static str,
        for_ms: u64,
    },
    Partition {
        server: usize,
        worker: usize,
        direction: Direction,
        for_ms: u64,
    },
    BreakSessions {
        server: usize,
    },
    LossyNetwork {
        for_ms: u64,
    },
    SlowNetwork {
        for_ms: u64,
    },
    /// All servers stop, the store is put back to how it was then, and they start again.
    Restore {
        to: u64,
    },
}

impl Fault {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::CrashServer { .. } => "server killed",
            Self::StopServer { .. } => "server stopped in order",
            Self::FreezeServer { .. } => "server paused",
            Self::CutStore { .. } => "server cut off from the store",
            Self::Commit { .. } => "commit fault armed",
            Self::SlowStore { .. } => "store stalled",
            Self::SlowReads { .. } => "reads late",
            Self::FailReads { .. } => "reads fail",
            Self::JumpClock { by_ms, .. } if *by_ms > 0 => "clock set forward",
            Self::JumpClock { .. } => "clock set back",
            Self::KillWorker { .. } => "worker killed",
            Self::FreezeWorker { .. } => "worker suspended",
            Self::PreemptWorker { .. } => "worker preempted",
            Self::DrainWorker { .. } => "worker drained",
            Self::LoseWorker { .. } => "worker gone for good",
            Self::LoseDatacenter { .. } => "datacenter lost",
            Self::Partition { direction: Direction::Both, .. } => "partition",
            Self::Partition { .. } => "one-way partition",
            Self::BreakSessions { .. } => "sessions broken",
            Self::LossyNetwork { .. } => "network loses, doubles and reorders",
            Self::SlowNetwork { .. } => "network slow",
            Self::Restore { .. } => "store restored",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// 0: a data folder, with one server.
    pub(crate) shards: u16,
    pub(crate) servers: Vec<ServerPlan>,
    pub(crate) workers: Vec<WorkerPlan>,
    pub(crate) jobs: Vec<JobPlan>,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// From then on nothing goes wrong any more.
    pub(crate) heal_at: u64,
}

/// What is left of a scenario. None: all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub jobs: Option<Vec<usize>>,
    pub faults: Option<Vec<usize>>,
}

impl Scenario {
    pub(crate) fn new(seed: u64, parts: &Parts) -> Self {
        let mut rng = Rng::new(seed, "scenario");
        let servers = *rng.pick(&[1, 1, 2, 2, 3, 4]);
        let shards = if servers == 1 && rng.percent(60) { 0 } else { 8 };
        let servers = (0..servers).map(|_| ServerPlan {
            snapshot_every: *rng.pick(&[3, 10, 30, 1000]),
            resting_most: *rng.pick(&[0, 1, 1000]),
        });
        let servers: Vec<ServerPlan> = servers.collect();
        let heal_at = rng.between(15_000, 60_000);
        let workers = rng.between(1, 4);
        let workers = (0..workers).map(|n| worker(&mut rng, n, heal_at)).collect();
        let mut all =
            Self { seed, shards, servers, workers, jobs: Vec::new(), faults: Vec::new(), heal_at };
        all.jobs = (0..rng.between(1, 9) as usize).map(|n| job(seed, n, heal_at)).collect();
        let faults = if rng.percent(8) { 0 } else { rng.between(1, 12) };
        all.faults =
            (0..faults).map(|n| all.fault(&mut Rng::new(seed, &format!("fault {n}")))).collect();
        if rng.percent(50) {
            let some = combined::combined(&all, &mut Rng::new(seed, "combined"));
            all.faults.extend(some);
        }
        // A machine whose store is put back has a clock that is not: epochs and tokens of the lost time are told from new ones by it.
        let is_restored = all.faults.iter().any(|(_, it)| matches!(it, Fault::Restore { .. }));
        if is_restored && all.shards == 0 {
            all.faults.retain(|(_, it)| !matches!(it, Fault::JumpClock { by_ms: ..0, .. }));
        }
        // Of its own, so that what seeds said before there was this they still say.
        let mut reads = Rng::new(seed, "reads");
        if reads.percent(20) {
            let at = reads.between(1500, heal_at - 1000);
            all.faults.push((at, Fault::SlowReads { for_ms: reads.between(3000, 20_000) }));
        }
        if let Some(kept) = &parts.jobs {
            all.jobs = kept.iter().filter_map(|n| all.jobs.get(*n).cloned()).collect();
        }
        if let Some(kept) = &parts.faults {
            all.faults = kept.iter().filter_map(|n| all.faults.get(*n).cloned()).collect();
        }
        all.faults.sort_by_key(|(at, _)| *at);
        all
    }

    fn fault(&self, rng: &mut Rng) -> (u64, Fault) {
        let at = rng.between(300, self.heal_at - 1000);
        let server = rng.below(self.servers.len() as u64) as usize;
        let worker = rng.below(self.workers.len() as u64) as usize;
        let for_ms = match rng.below(4) {
            0 => rng.between(50, 1000),
            1 | 2 => rng.between(1000, 6000),
            _ => rng.between(6000, 25_000),
        };
        let for_ms = if rng.percent(25) { for_ms.max(9000) } else { for_ms };
        let fault = match rng.below(48) {
            0..4 => Fault::CrashServer { server, for_ms },
            4 => Fault::StopServer { server, for_ms },
            5..9 => Fault::FreezeServer { server, for_ms },
            9 | 10 => Fault::CutStore { server, for_ms },
            11..19 => Fault::Commit { server, fault: self.commit_fault(rng) },
            19 => Fault::SlowStore { for_ms: for_ms.min(8000) },
            20 => Fault::FailReads { times: rng.between(1, 3) as u32 },
            21 | 22 => Fault::JumpClock { server, by_ms: self.jump(rng) },
            23 | 24 | 33 | 34 if worker > 0 => Fault::LoseWorker { worker },
            23..26 => Fault::KillWorker { worker, for_ms },
            26..29 => Fault::FreezeWorker { worker, for_ms },
            29 | 30 => Fault::PreemptWorker { worker, for_ms },
            31 => Fault::DrainWorker { worker },
            32 => {
                let datacenter = DATACENTERS[rng.below(3) as usize];
                Fault::LoseDatacenter { datacenter, for_ms }
            }
            33..36 => Fault::Partition { server, worker, direction: Direction::Both, for_ms },
            36 => Fault::Partition { server, worker, direction: Direction::ToServer, for_ms },
            37 => Fault::Partition { server, worker, direction: Direction::ToWorker, for_ms },
            38 | 39 => Fault::BreakSessions { server },
            40 | 41 => Fault::LossyNetwork { for_ms },
            42 => Fault::SlowNetwork { for_ms },
            43..47 => {
                // Longer than a lease.
                let for_ms = rng.between(8000, 20_000);
                Fault::Partition { server, worker, direction: Direction::Both, for_ms }
            }
            _ => Fault::Restore { to: at.saturating_sub(rng.between(100, 5000)) },
        };
        (at, fault)
    }

    /// Servers that share a store keep time with each other, within seconds. Set back, timers are late by as much.
    fn jump(&self, rng: &mut Rng) -> i64 {
        let by = *rng.pick(&[500, 5000, 60_000, 3_600_000, 365 * 24 * 3_600_000_i64]);
        let most = if self.shards > 0 { 5000 } else { i64::MAX };
        if rng.percent(50) { by.min(most) } else { -by.min(most).min(60_000) }
    }

    fn commit_fault(&self, rng: &mut Rng) -> CommitFault {
        let of_both = [
            CommitFault::CrashBefore,
            CommitFault::CrashAfter,
            CommitFault::CrashTorn,
            CommitFault::SyncFails { kept: true },
            CommitFault::SyncFails { kept: false },
            CommitFault::Full,
        ];
        if rng.percent(40) {
            return *rng.pick(&of_both);
        }
        if self.shards == 0 {
            return *rng.pick(&[CommitFault::Busy, CommitFault::CrashAfter]);
        }
        *rng.pick(&[
            CommitFault::Unknown(Fate::Committed),
            CommitFault::Unknown(Fate::Lost),
            CommitFault::Unknown(Fate::UnderWay),
            CommitFault::Unavailable,
        ])
    }
}

fn worker(rng: &mut Rng, n: u64, heal_at: u64) -> WorkerPlan {
    // The first one is everywhere: what needs a datacenter finds one there, if no other has it.
    let datacenter = (n > 0).then(|| DATACENTERS[(n as usize - 1) % 3].to_owned());
    let memory_bytes = rng.percent(40).then_some(2 << 30);
    WorkerPlan {
        slots: rng.between(1, 4) as u32,
        datacenter,
        labels: BTreeMap::new(),
        cpu: rng.percent(40).then_some(2.0),
        memory_bytes,
        broken_until: if n > 0 && rng.percent(30) { heal_at } else { 0 },
    }
}

fn job(seed: u64, n: usize, heal_at: u64) -> JobPlan {
    let mut rng = Rng::new(seed, &format!("job {n}"));
    let (text, plan) = jobs::job(&mut rng, n);
    let key = rng.percent(70).then(|| format!("key-{n}"));
    let mut commands = Vec::new();
    match rng.below(10) {
        0 | 1 => commands.push((rng.between(0, 10_000), Asked::Cancel)),
        2..5 => {
            let at = rng.between(0, 5000);
            commands.push((at, Asked::Pause));
            if rng.percent(70) {
                commands.push((at + rng.between(100, 15_000), Asked::Resume));
            }
            if rng.percent(30) {
                commands.push((at + rng.between(100, 15_000), Asked::Cancel));
            }
        }
        _ => {}
    }
    JobPlan {
        at: rng.below(heal_at * 2 / 3),
        text,
        plan,
        again_after: (key.is_some() && rng.percent(30)).then(|| rng.below(9000)),
        other_after: (key.is_some() && rng.percent(15)).then(|| rng.below(9000)),
        key,
        commands,
        retried: rng.percent(15),
    }
}

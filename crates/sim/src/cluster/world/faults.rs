//! What goes wrong, and that it stops.

use super::super::scenario::Fault;
use super::super::server::Phase;
use super::super::store::Restored;
use super::{Happening, World, trace};
use crate::cluster::messages::ToWorker;

impl World {
    pub(super) fn plan_faults(&mut self) {
        for (n, (at, fault)) in self.scenario.faults.clone().into_iter().enumerate() {
            if let Fault::Restore { to } = fault {
                self.at(to, Happening::Backup(to));
            }
            self.at(at, Happening::Fault(n));
        }
    }

    pub(super) fn fault(&mut self, n: usize) {
        let fault = self.scenario.faults[n].1.clone();
        let now = self.time.now();
        trace!(self, "FAULT {n} {fault:?}");
        self.checker.fault(fault.name());
        // No fault outlives the time of faults.
        let until = |for_ms: u64| (now + for_ms).min(self.scenario.heal_at);
        match fault {
            Fault::CrashServer { server, for_ms } => {
                let until = until(for_ms);
                self.crash_server(server);
                self.at(until, Happening::StartServer(server));
            }
            Fault::StopServer { server, for_ms } => {
                let until = until(for_ms);
                let server_up = self.servers[server].phase != Phase::Down;
                if server_up && self.servers[server].can_reach_store() {
                    self.servers[server].stop();
                    self.look_at_store();
                    self.server_did(server);
                    self.hang_up_all(server);
                    self.store.held().crashed.clear();
                }
                self.at(until, Happening::StartServer(server));
            }
            Fault::FreezeServer { server, for_ms } => {
                self.servers[server].frozen_until = Some(until(for_ms));
            }
            Fault::CutStore { server, for_ms } => self.servers[server].cut_until = until(for_ms),
            Fault::Commit { server, fault } => {
                self.store.held().faults.entry(server).or_default().push_back(fault);
                let late = self.rng.between(20, 4000);
                self.after(late, Happening::Arrive);
            }
            Fault::SlowStore { for_ms } => self.slow_until = until(for_ms),
            Fault::SlowReads { for_ms } => self.slow_reads_until = until(for_ms),
            Fault::FailReads { times } => self.store.held().failing_reads += times,
            Fault::JumpClock { server, by_ms } => self.servers[server].clock.jump(by_ms),
            Fault::KillWorker { worker, for_ms } => {
                let until = until(for_ms);
                self.kill_worker(worker);
                self.at(until, Happening::StartWorker(worker));
            }
            Fault::FreezeWorker { worker, for_ms } => {
                let until = until(for_ms);
                self.freeze_worker(worker, until);
            }
            Fault::PreemptWorker { worker, for_ms } => {
                let until = until(for_ms);
                if self.workers[worker].up && self.workers[worker].frozen_until.is_none() {
                    self.workers[worker].preempt();
                    self.wake(worker);
                }
                self.at(until + 12_000, Happening::StartWorker(worker));
            }
            Fault::DrainWorker { worker } => self.drain(worker, true),
            Fault::LoseWorker { worker } => {
                self.kill_worker(worker);
                self.workers[worker].is_gone = true;
            }
            Fault::LoseDatacenter { datacenter, for_ms } => {
                let until = until(for_ms);
                for worker in 0..self.workers.len() {
                    let is_there =
                        self.workers[worker].plan().datacenter.as_deref() == Some(datacenter);
                    if is_there {
                        self.kill_worker(worker);
                        self.at(until, Happening::StartWorker(worker));
                    }
                }
            }
            Fault::Partition { server, worker, direction, for_ms } => {
                let until = until(for_ms);
                self.network.partition(server, worker, direction, until);
            }
            Fault::BreakSessions { server } => self.hang_up_all(server),
            Fault::LossyNetwork { for_ms } => self.network.lossy_until = until(for_ms),
            Fault::SlowNetwork { for_ms } => self.network.slow_until = until(for_ms),
            Fault::Restore { to } => self.restore(to),
        }
    }

    fn drain(&mut self, worker: usize, drains: bool) {
        let name = self.workers[worker].name.clone();
        for server in 0..self.servers.len() {
            if self.servers[server].is_up() && self.servers[server].frozen_until.is_none() {
                self.servers[server].drain(&name, drains);
                self.decide_soon(server);
                self.server_did(server);
            }
        }
    }

    pub(super) fn crash_server(&mut self, server: usize) {
        if self.servers[server].phase == Phase::Down {
            return;
        }
        trace!(self, "s{server} is dead");
        self.servers[server].crash();
        self.hang_up_all(server);
    }

    /// The workers' ends of its connections are closed.
    fn hang_up_all(&mut self, server: usize) {
        for worker in 0..self.workers.len() {
            if let Some(session) = self.workers[worker].session_with(server) {
                if self.servers[server].phase == Phase::Down {
                    self.send_to_worker(server, worker, session, ToWorker::Closed);
                } else {
                    self.break_session(server, worker, session);
                }
            }
        }
    }

    fn kill_worker(&mut self, worker: usize) {
        if !self.workers[worker].up {
            return;
        }
        trace!(self, "w{worker} is dead");
        for server in 0..self.servers.len() {
            if let Some(session) = self.workers[worker].session_with(server) {
                self.break_session(server, worker, session);
            }
        }
        self.workers[worker].die();
        self.worker_did(worker);
    }

    fn freeze_worker(&mut self, worker: usize, until: u64) {
        if self.workers[worker].up && self.workers[worker].frozen_until.is_none() {
            self.workers[worker].freeze(until);
            self.at(until, Happening::Thaw(worker));
        }
    }

    pub(super) fn thaw(&mut self, worker: usize) {
        if self.workers[worker].frozen_until.is_some() {
            self.workers[worker].thaw();
            trace!(self, "w{worker} wakes up");
            self.wakes_at[worker] = None;
            self.wake(worker);
        }
    }

    /// Nobody is there while the store is put back.
    fn restore(&mut self, to: u64) {
        let Some(backup) = self.backups.remove(&to) else { return };
        for server in 0..self.servers.len() {
            self.crash_server(server);
            let back = self.rng.between(1100, 3000);
            self.after(back, Happening::StartServer(server));
        }
        self.look_at_store();
        let Restored { logs, shards } = self.store.restore(backup);
        let checked = self.checker.restored(logs);
        for (shard, owner) in shards {
            self.checker.shard_is(shard, owner);
        }
        self.note_checked(checked);
        self.clients.restored();
    }

    /// From now on everything is there, and stays.
    pub(super) fn heal(&mut self) {
        trace!(self, "HEALS");
        self.healed = true;
        self.network.heal();
        (self.slow_until, self.slow_reads_until) = (0, 0);
        {
            let mut shared = self.store.held();
            shared.faults.clear();
            shared.failing_reads = 0;
        }
        self.store.arrive();
        for server in 0..self.servers.len() {
            (self.servers[server].frozen_until, self.servers[server].cut_until) = (None, 0);
            self.at(self.time.now(), Happening::StartServer(server));
        }
        for worker in 0..self.workers.len() {
            self.thaw(worker);
            self.after(15_000, Happening::StartWorker(worker));
            self.drain(worker, false);
            if !self.workers[worker].up {
                self.at(self.time.now(), Happening::StartWorker(worker));
            }
        }
        self.after(1000, Happening::ResumePaused);
    }
}

//! Turns of servers and workers: when each has one, and what comes of it.

use steadfast_engine::Stepped;

use super::super::check::{Attempts, Checked, REPLAY, violated};
use super::super::server::{Did as ServerDid, Phase};
use super::super::worker::Did as WorkerDid;
use super::{Happening, POLL_MS, World, trace};

/// Reads that are late; no more are begun then.
const UNDELIVERED_MOST: usize = 50;

impl World {
    pub(super) fn start_server(&mut self, server: usize) {
        if self.servers[server].phase != Phase::Down {
            return;
        }
        self.servers[server].start();
        let life = self.servers[server].life;
        trace!(self, "s{server} starts as {:?}", self.servers[server].owner);
        (self.decides_at[server], self.writes_at[server]) = (None, None);
        (self.loads_at[server], self.delivers_at[server]) = (None, None);
        self.after(1, Happening::Renew(server, life));
        if self.polls {
            self.after(POLL_MS, Happening::Poll(server, life));
        }
        self.decide_soon(server);
    }

    /// Something has come for its engine.
    pub(super) fn decide_soon(&mut self, server: usize) {
        let at = self.time.now() + self.rng.below(3);
        self.decide_at(server, at);
    }

    pub(super) fn decide_at(&mut self, server: usize, at: u64) {
        if self.servers[server].stepped().is_some()
            && self.decides_at[server].is_none_or(|before| before > at)
        {
            self.decides_at[server] = Some(at);
            let life = self.servers[server].life;
            self.at(at, Happening::Decide(server, life));
        }
    }

    pub(super) fn load_soon(&mut self, server: usize, ms: u64) {
        if self.loads_at[server].is_none() {
            let at = self.time.now() + ms;
            self.loads_at[server] = Some(at);
            let life = self.servers[server].life;
            self.at(at, Happening::Load(server, life));
        }
    }

    /// What was read arrives: at once, or one after the other while reads are slow and the server goes on.
    pub(super) fn deliver(&mut self, server: usize, most: usize) {
        self.servers[server].deliver(most);
        self.decide_soon(server);
        if self.undelivered(server) > 0 {
            self.deliver_later(server);
        }
        self.server_did(server);
    }

    fn undelivered(&self, server: usize) -> usize {
        self.servers[server].stepped().map_or(0, Stepped::undelivered)
    }

    fn deliver_later(&mut self, server: usize) {
        let is_slow = self.slow_reads_until > self.time.now();
        let at = self.time.now() + if is_slow { self.rng.between(50, 2000) } else { 1 };
        self.delivers_at[server] = Some(at);
        let life = self.servers[server].life;
        self.at(at, Happening::Deliver(server, life));
    }

    pub(super) fn load(&mut self, server: usize) {
        self.loads_at[server] = None;
        if !self.servers[server].can_reach_store() || self.undelivered(server) > UNDELIVERED_MOST {
            return self.load_soon(server, 250);
        }
        if self.servers[server].load() {
            if self.delivers_at[server].is_some() {
                self.checker.seen("read arrived late");
            } else if self.slow_reads_until > self.time.now() {
                self.deliver_later(server);
            } else {
                self.deliver(server, usize::MAX);
            }
        }
        if self.servers[server].stepped().is_some_and(Stepped::has_unread) {
            self.load_soon(server, 1);
        }
        self.server_did(server);
    }

    pub(super) fn write_soon(&mut self, server: usize) {
        let has_unwritten = self.servers[server].stepped().is_some_and(Stepped::has_unwritten);
        if self.writes_at[server].is_none() && has_unwritten {
            let slow = self.slow_until > self.time.now();
            let takes = if slow { self.rng.between(500, 3000) } else { self.rng.between(1, 8) };
            let at = self.time.now() + takes;
            self.writes_at[server] = Some(at);
            let life = self.servers[server].life;
            self.at(at, Happening::Write(server, life));
        }
    }

    /// The deciding thread sleeps again; the others have something to do.
    pub(super) fn after_turn(&mut self, server: usize) {
        let Some(stepped) = self.servers[server].stepped() else { return };
        let sleeps = stepped.sleeps().as_millis() as u64;
        let has_unread = stepped.has_unread();
        self.write_soon(server);
        if has_unread {
            self.load_soon(server, 1);
        }
        self.decide_at(server, self.time.now() + sleeps.max(1));
        self.server_did(server);
    }

    pub(super) fn write(&mut self, server: usize) {
        self.writes_at[server] = None;
        if !self.servers[server].can_reach_store() {
            let (at, life) = (self.time.now() + 250, self.servers[server].life);
            self.writes_at[server] = Some(at);
            return self.at(at, Happening::Write(server, life));
        }
        let written = self.servers[server].write();
        self.look_at_store();
        let is_dead = {
            let mut shared = self.store.held();
            let is_dead = shared.crashed.contains(&server);
            shared.crashed.clear();
            is_dead
        };
        match written {
            Err(why) => {
                trace!(self, "s{server} ends: {why}");
                // What it had let out before it noticed is on its way.
                if !is_dead {
                    self.server_did(server);
                }
                self.crash_server(server);
                let back = self.rng.between(100, 4000);
                self.after(back, Happening::StartServer(server));
            }
            Ok(true) => {
                self.server_did(server);
                self.decide_soon(server);
                self.write_soon(server);
            }
            Ok(false) => self.server_did(server),
        }
    }

    pub(super) fn server_did(&mut self, server: usize) {
        for did in std::mem::take(&mut self.servers[server].did) {
            match did {
                ServerDid::Send { worker, session, message } => {
                    self.send_to_worker(server, worker, session, message);
                }
                ServerDid::Answer { request, answer } => self.send_answer(request, answer),
                ServerDid::Judged { name, report, counted } => {
                    trace!(self, "s{server} says of {} that {report:?} counts: {counted}", name.id);
                    if counted {
                        let shared = self.store.held();
                        let log = shared.database.log(&name.id.job);
                        let checked = Attempts::judged(&name, &report, log);
                        drop(shared);
                        self.violation = self.violation.take().or(checked.err());
                    }
                }
                ServerDid::Parked { job, why } => {
                    let parked: Checked = violated(REPLAY, format!("{job} was parked: {why}"));
                    self.violation = self.violation.take().or(parked.err());
                }
                ServerDid::Loaded(job) => trace!(self, "s{server} has loaded {job}"),
                ServerDid::Slept(job) => {
                    trace!(self, "s{server} has {job} no more in memory");
                    self.checker.seen("job slept");
                }
                ServerDid::Detail(detail) => trace!(self, "s{server} {detail}"),
                ServerDid::Note(note) => {
                    trace!(self, "s{server} {note}");
                    self.checker.seen(&note);
                }
            }
        }
    }

    /// The worker does what is due.
    pub(super) fn wake(&mut self, worker: usize) {
        self.workers[worker].tick();
        self.worker_did(worker);
        let Some(at) = self.workers[worker].next_wake() else { return };
        let at = at.max(self.time.now() + 1);
        if self.wakes_at[worker].is_none_or(|before| before > at) {
            self.wakes_at[worker] = Some(at);
            let life = self.workers[worker].life;
            self.at(at, Happening::Wake(worker, life));
        }
    }

    pub(super) fn worker_did(&mut self, worker: usize) {
        for did in std::mem::take(&mut self.workers[worker].did) {
            match did {
                WorkerDid::Send { server, session, message } => {
                    self.send_to_server(worker, server, session, message);
                }
                WorkerDid::Began(name) => {
                    trace!(self, "w{worker} begins {}", name.id);
                    let checked = self.checker.attempts.began(worker, &name);
                    self.violation = self.violation.take().or(checked.err());
                }
                WorkerDid::Ended(id) => trace!(self, "w{worker} has ended {id}"),
                WorkerDid::Called { name, outcome, after_ms, times } => {
                    self.plan_callbacks(&name, &outcome, after_ms, times);
                }
                WorkerDid::Note(note) => {
                    trace!(self, "w{worker} {note}");
                    self.checker.seen(note);
                }
            }
        }
    }
}

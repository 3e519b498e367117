//! Messages between workers and servers. A session is a stream: what arrives of it arrives in order, and once something of it is lost
//! nothing more does. Reports and beats may be doubled and overtake each other all the same, as those of two sessions do.

use std::collections::{BTreeMap, BTreeSet};

use super::super::messages::{FromWorker, ToWorker};
use super::super::rng::Rng;
use super::super::scenario::Direction;
use super::{Happening, World};

/// A stream that waits longer than this for what was lost is given up.
const RETRANSMITS_MS: u64 = 4000;

pub(super) struct Network {
    pub(super) rng: Rng,
    /// Until when nothing passes, by server, worker and direction.
    pub(super) cut: BTreeMap<(usize, usize, bool), u64>,
    /// When the last message of a stream arrives.
    last: BTreeMap<(u64, bool), u64>,
    /// Streams with a hole in them.
    broken: BTreeSet<(u64, bool)>,
    pub(super) lossy_until: u64,
    pub(super) slow_until: u64,
}

/// What becomes of a message.
enum Passage {
    At(u64),
    Lost,
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, "network"),
            cut: BTreeMap::new(),
            last: BTreeMap::new(),
            broken: BTreeSet::new(),
            lossy_until: 0,
            slow_until: 0,
        }
    }

    pub(super) fn partition(&mut self, server: usize, worker: usize, how: Direction, until: u64) {
        if how != Direction::ToWorker {
            self.cut.insert((server, worker, true), until);
        }
        if how != Direction::ToServer {
            self.cut.insert((server, worker, false), until);
        }
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
        (self.lossy_until, self.slow_until) = (0, 0);
    }

    pub(super) fn delay(&mut self, now: u64) -> u64 {
        if self.slow_until > now { self.rng.between(100, 2500) } else { self.rng.between(1, 15) }
    }

    /// `to_server`: the direction. `in_order`: not before what was sent before it.
    fn pass(
        &mut self,
        now: u64,
        (server, worker, to_server): (usize, usize, bool),
        session: u64,
        in_order: bool,
    ) -> Passage {
        let stream = (session, to_server);
        if self.broken.contains(&stream) {
            return Passage::Lost;
        }
        let mut at = now + self.delay(now);
        if let Some(until) =
            self.cut.get(&(server, worker, to_server)).filter(|until| **until > now)
        {
            if until - now > RETRANSMITS_MS {
                self.broken.insert(stream);
                return Passage::Lost;
            }
            at = until + 1;
        }
        if in_order {
            let last = self.last.entry(stream).or_default();
            at = at.max(*last);
            *last = at;
        }
        Passage::At(at)
    }

    fn happens(&mut self, now: u64, percent: u64) -> bool {
        self.lossy_until > now && self.rng.percent(percent)
    }
}

impl World {
    pub(super) fn send_to_server(
        &mut self,
        worker: usize,
        server: usize,
        session: u64,
        message: FromWorker,
    ) {
        let now = self.time.now();
        let life = self.servers[server].life;
        if self.servers[server].phase == super::Phase::Down {
            // Nobody listens.
            if matches!(message, FromWorker::Hello(_)) {
                self.send_to_worker(server, worker, session, ToWorker::Closed);
            }
            return;
        }
        let may_move = matches!(
            message,
            FromWorker::Report(..) | FromWorker::Beat(_) | FromWorker::Progress(..)
        );
        if self.network.happens(now, 6) && !matches!(message, FromWorker::Closed) {
            self.checker.fault("message lost");
            return self.break_session(server, worker, session);
        }
        let is_moved = may_move && self.network.happens(now, 25);
        let is_doubled = may_move && self.network.happens(now, 25);
        let way = (server, worker, true);
        if is_moved {
            self.checker.fault("message reordered");
        }
        if is_doubled {
            self.checker.fault("message doubled");
            if let Passage::At(at) = self.network.pass(now, way, session, false) {
                let (at, message) = (at + self.network.rng.below(400), message.clone());
                self.at(at, Happening::ToServer { server, life, worker, session, message });
            }
        }
        if let Passage::At(at) = self.network.pass(now, way, session, !is_moved) {
            self.at(at, Happening::ToServer { server, life, worker, session, message });
        }
    }

    pub(super) fn send_to_worker(
        &mut self,
        server: usize,
        worker: usize,
        session: u64,
        message: ToWorker,
    ) {
        let (now, life) = (self.time.now(), self.workers[worker].life);
        if self.network.happens(now, 3) && !matches!(message, ToWorker::Closed) {
            self.checker.fault("message lost");
            return self.break_session(server, worker, session);
        }
        if let Passage::At(at) = self.network.pass(now, (server, worker, false), session, true) {
            self.at(at, Happening::ToWorker { worker, life, server, session, message });
        }
    }

    /// Both ends hear of it, each in its time, and nothing more of it arrives.
    pub(super) fn break_session(&mut self, server: usize, worker: usize, session: u64) {
        let (now, life) = (self.time.now(), self.servers[server].life);
        self.network.broken.insert((session, true));
        self.network.broken.insert((session, false));
        let at = now + self.network.delay(now);
        let message = FromWorker::Closed;
        self.at(at, Happening::ToServer { server, life, worker, session, message });
        let (at, life) = (now + self.network.delay(now), self.workers[worker].life);
        let message = ToWorker::Closed;
        self.at(at, Happening::ToWorker { worker, life, server, session, message });
    }
}

//! Faults that come together: each alone is in the mix, and would meet the others at the right moment once in thousands of seeds.

use super::{Direction, Fault, Scenario};
use crate::cluster::rng::Rng;
use crate::cluster::store::{CommitFault, Fate};

type Timed = (u64, Fault);
type Kind = fn(&Scenario, &mut Rng) -> Vec<Timed>;

/// Of all that this scenario has the servers for, one or two.
pub(super) fn combined(scenario: &Scenario, rng: &mut Rng) -> Vec<Timed> {
    let is_shared = scenario.shards > 0 && scenario.servers.len() > 1;
    let mut kinds: Vec<Kind> = vec![cut_off_worker];
    if is_shared {
        let some: [Kind; 4] = [old_owner, old_owner, lost_at_take_over, held_up_at_join];
        kinds.extend(some);
    }
    if is_shared && scenario.servers.len() > 2 {
        kinds.extend([given_while_held_up as Kind; 3]);
    }
    let times = rng.between(1, 2);
    (0..times).flat_map(|_| rng.pick(&kinds)(scenario, rng)).collect()
}

impl Scenario {
    /// A moment after which the faults have so long.
    fn moment(&self, rng: &mut Rng, lasts_ms: u64) -> u64 {
        rng.between(1500, self.heal_at.saturating_sub(lasts_ms).max(3000))
    }

    fn some_server(&self, rng: &mut Rng) -> usize {
        rng.below(self.servers.len() as u64) as usize
    }
}

/// A worker hears of no server, or none of it, for longer than its lease.
fn cut_off_worker(scenario: &Scenario, rng: &mut Rng) -> Vec<Timed> {
    let at = scenario.moment(rng, 12_000);
    let worker = rng.below(scenario.workers.len() as u64) as usize;
    let direction = *rng.pick(&[Direction::Both, Direction::ToServer, Direction::ToWorker]);
    let for_ms = rng.between(8000, 20_000);
    let servers = 0..scenario.servers.len();
    servers.map(|server| (at, Fault::Partition { server, worker, direction, for_ms })).collect()
}

/// A server is taken over and does not know it. Workers reach it, and not those who have what it had.
fn old_owner(scenario: &Scenario, rng: &mut Rng) -> Vec<Timed> {
    let at = scenario.moment(rng, 10_000);
    let old = scenario.some_server(rng);
    let for_ms = rng.between(4500, 8500);
    let mut all = vec![(at, Fault::CutStore { server: old, for_ms })];
    for worker in 0..scenario.workers.len() {
        let for_ms = for_ms + rng.between(500, 4000);
        let others = (0..scenario.servers.len()).filter(|server| *server != old);
        all.extend(others.map(|server| {
            let direction = Direction::Both;
            (at + 1, Fault::Partition { server, worker, direction, for_ms })
        }));
    }
    if rng.percent(50) {
        let at = (at + for_ms).saturating_sub(rng.between(0, 1000));
        all.push((at, Fault::BreakSessions { server: old }));
    }
    all
}

/// The answer to a server's commit is lost when it has just been taken over.
fn lost_at_take_over(scenario: &Scenario, rng: &mut Rng) -> Vec<Timed> {
    let at = scenario.moment(rng, 9000);
    let server = scenario.some_server(rng);
    let for_ms = rng.between(4500, 8500);
    let fate = *rng.pick(&[Fate::Committed, Fate::Lost, Fate::UnderWay]);
    let lost = Fault::Commit { server, fault: CommitFault::Unknown(fate) };
    vec![(at, Fault::CutStore { server, for_ms }), (at + for_ms - 20, lost)]
}

/// A server comes, and stands still before it has anything, until others take it for dead.
fn held_up_at_join(scenario: &Scenario, rng: &mut Rng) -> Vec<Timed> {
    let (down, for_ms) = (rng.between(100, 5000), rng.between(4500, 9000));
    let at = scenario.moment(rng, down + for_ms);
    let server = scenario.some_server(rng);
    let joined = at + down + rng.between(2, 200);
    vec![
        (at, Fault::CrashServer { server, for_ms: down }),
        (joined, Fault::FreezeServer { server, for_ms }),
    ]
}

/// A server comes, and stands still while it is given something and another one comes.
fn given_while_held_up(scenario: &Scenario, rng: &mut Rng) -> Vec<Timed> {
    let (down, for_ms) = (rng.between(5500, 8000), rng.between(1500, 3200));
    let at = scenario.moment(rng, down + for_ms);
    let servers = scenario.servers.len();
    let one = scenario.some_server(rng);
    let other = (one + 1 + rng.below(servers as u64 - 1) as usize) % servers;
    let joined = at + down + rng.between(2, 200);
    let later = down + rng.between(300, for_ms);
    vec![
        (at, Fault::CrashServer { server: one, for_ms: down }),
        (at, Fault::CrashServer { server: other, for_ms: later }),
        (joined, Fault::FreezeServer { server: one, for_ms }),
    ]
}

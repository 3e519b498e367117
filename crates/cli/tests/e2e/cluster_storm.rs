//! Servers that share a database are killed, stopped and cut off at random, and so is the database, while clients go to all of them. Afterwards
//! every word that a client was told is held against what is stored, and against what really ran.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use steadfast_store::testing::{TestCluster, query};

use super::clients::{Chance, Clients, from_env, settle};
use super::harness::{
    Place, Process, STORE_URL, Server, address_of_its_own, pass, unix_ms, wait_for,
};
use super::ledger::{Entry, Executions, judge, nothing_was_lost};
use super::wire::{Part, State, Wire};

const SECONDS: u64 = 60;
const SERVERS: usize = 3;
const WORKERS: usize = 6;
/// Longer than it takes until another server has what one had.
const LEASE_MS: u64 = 15_000;
/// Far longer than the term of a server.
const LONGEST_STOP_MS: u64 = 20_000;
/// Shorter than the lease: whoever cannot reach a server for longer has lost it.
const LONGEST_CUT_MS: u64 = 10_000;
const LONGEST_OUTAGE_MS: u64 = 30_000;
/// Longer than it takes until the jobs of a server that was killed go on.
const MISSED: Duration = Duration::from_secs(6);

/// What is struck, besides servers and the wires between all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Also {
    /// No attempt may be lost.
    Database,
    /// Who dies with a worker is lost; with it, nothing else is struck.
    Workers,
}

impl Also {
    /// A worker that dies with a server is waited for so much longer than its lease.
    fn tolerance(self) -> &'static str {
        match self {
            Self::Database => "60s",
            Self::Workers => "1s",
        }
    }
}

/// A server, and the wires to it and from it to the database.
struct Node {
    address: String,
    door: Wire,
    database: Wire,
    server: Server,
    /// Its name in the database.
    owner: String,
}

/// A server that was killed, and left to be missed.
struct Death {
    at_ms: u64,
    /// Jobs that were open and its own.
    had: Vec<String>,
}

struct Cluster<'a> {
    place: &'a Place,
    also: Also,
    postgres: TestCluster,
    url: String,
    nodes: Vec<Node>,
    workers: Vec<Process>,
    /// What processes said that are gone.
    said: String,
    strikes: Vec<&'static str>,
    deaths: Vec<Death>,
}

fn owners(url: &str) -> BTreeSet<String> {
    let rows = query(url, "SELECT id FROM steadfast.owners WHERE incarnation IS NOT NULL");
    rows.iter().map(|row| row.trim_matches(['(', ')', '"']).to_owned()).collect()
}

fn start(
    place: &Place,
    nth: usize,
    address: &str,
    database: &Wire,
    url: &str,
    also: Also,
) -> Server {
    let (user, rest) = url.rsplit_once('@').expect("a URL");
    let (_, name) = rest.rsplit_once('/').expect("a URL");
    let order = place.server().data(&format!("server-{nth}"));
    let order = order.set(STORE_URL, &format!("{user}@{}/{name}", database.address));
    let order = order.set("STEADFAST_STORE__OUTAGE_TOLERANCE", also.tolerance());
    order.lease(LEASE_MS).at(address).start()
}

impl<'a> Cluster<'a> {
    fn start(place: &'a Place, postgres: TestCluster, also: Also) -> Self {
        let url = postgres.database();
        let end =
            url.rsplit_once('@').and_then(|(_, rest)| rest.rsplit_once('/')).expect("a URL").0;
        let mut nodes: Vec<Node> = Vec::new();
        for nth in 0..SERVERS {
            let address = address_of_its_own();
            let (door, database) = (Wire::to(&address), Wire::to(end));
            let server = start(place, nth, &address, &database, &url, also);
            let known: BTreeSet<&String> = nodes.iter().map(|node| &node.owner).collect();
            let owner = owners(&url).into_iter().find(|owner| !known.contains(owner));
            let owner = owner.expect("it is there");
            nodes.push(Node { address, door, database, server, owner });
        }
        let (workers, strikes, deaths) = (vec![], vec![], vec![]);
        let said = String::new();
        let mut it = Self { place, also, postgres, url, nodes, workers, said, strikes, deaths };
        it.workers = (0..WORKERS).map(|nth| it.worker(nth)).collect();
        it
    }

    fn worker(&self, nth: usize) -> Process {
        let doors = self.nodes.iter().map(|node| format!("http://{}", node.door.address));
        let (urls, name) = (doors.collect::<Vec<_>>().join(","), format!("w{nth}"));
        self.place.worker(&urls, &name).folder(&name).slots(2).start()
    }

    fn strike(&mut self, chance: &mut Chance) {
        let nth = chance.below(SERVERS as u64) as usize;
        let node = &self.nodes[nth];
        let is_worker = self.also == Also::Workers && chance.below(3) == 0;
        let strike = match chance.below(100) {
            _ if is_worker => self.strike_worker(chance),
            0..30 => self.kill(nth, chance),
            30..38 => {
                node.server.process.signal(Signal::TERM);
                self.begin_again(nth);
                "ended"
            }
            38..50 => {
                node.server.process.signal(Signal::STOP);
                chance.pass_up_to(LONGEST_STOP_MS);
                node.server.process.signal(Signal::CONT);
                "stopped"
            }
            50..60 if node.database.catch("commit_v1", Part::Request) => {
                node.server.process.signal(Signal::STOP);
                node.database.release();
                chance.pass_up_to(LONGEST_STOP_MS);
                node.server.process.signal(Signal::CONT);
                "stopped in the middle of a group"
            }
            60..68 if node.database.catch("commit_v1", Part::Request) => {
                chance.pass_up_to(LONGEST_CUT_MS);
                node.database.release();
                "its group was delayed on the way"
            }
            68..76 if node.database.catch("commit_v1", Part::Answer) => {
                chance.pass_up_to(LONGEST_CUT_MS);
                node.database.release();
                "the answer to its group was delayed"
            }
            76..86 => {
                let state = if chance.below(2) == 0 { State::Cut } else { State::Silent };
                node.door.set(state);
                chance.pass_up_to(LONGEST_CUT_MS);
                node.door.set(State::Whole);
                "cut off from workers and clients"
            }
            86..96 => {
                let state = if chance.below(2) == 0 { State::Cut } else { State::Silent };
                node.database.set(state);
                chance.pass_up_to(LONGEST_CUT_MS);
                node.database.set(State::Whole);
                "cut off from the database"
            }
            96.. if self.also == Also::Database => {
                self.postgres.crash();
                let longest = if chance.below(3) == 0 { LONGEST_OUTAGE_MS } else { 3000 };
                chance.pass_up_to(longest);
                self.postgres.restart();
                "the database was killed"
            }
            _ => "nothing was to be struck",
        };
        self.strikes.push(strike);
    }

    fn strike_worker(&mut self, chance: &mut Chance) -> &'static str {
        let nth = chance.below(WORKERS as u64) as usize;
        if chance.below(3) == 0 {
            self.workers[nth].signal(Signal::STOP);
            chance.pass_up_to(1500);
            self.workers[nth].signal(Signal::CONT);
            return "a worker was stopped";
        }
        self.workers[nth].signal(Signal::KILL);
        self.workers[nth].ends();
        self.said.push_str(&self.workers[nth].said());
        self.workers[nth] = self.worker(nth);
        "a worker was killed"
    }

    fn kill(&mut self, nth: usize, chance: &mut Chance) -> &'static str {
        let node = &self.nodes[nth];
        let had = query(
            &self.url,
            &format!(
                "SELECT j.id FROM steadfast.jobs j JOIN steadfast.shards s USING (shard) \
                 WHERE NOT j.over AND j.state <> 'paused' AND s.owner = '{}'",
                node.owner
            ),
        );
        let had = had.iter().map(|row| row.trim_matches(['(', ')', '"']).to_owned()).collect();
        node.server.process.signal(Signal::KILL);
        let at_ms = unix_ms();
        if chance.below(3) == 0 {
            // It is back before it is missed.
            chance.pass_up_to(3000);
        } else {
            // Nothing else is struck until others have what it had.
            pass(MISSED);
            self.deaths.push(Death { at_ms, had });
        }
        self.begin_again(nth);
        "killed"
    }

    fn begin_again(&mut self, nth: usize) {
        self.nodes[nth].server.process.ends();
        self.said.push_str(&self.nodes[nth].server.process.said());
        let before = owners(&self.url);
        let node = &mut self.nodes[nth];
        let Node { address, database, .. } = &*node;
        node.server = start(self.place, nth, address, database, &self.url, self.also);
        node.owner = wait_for("the new owner", || {
            owners(&self.url).into_iter().find(|owner| !before.contains(owner))
        });
    }

    /// After how long the jobs of servers that were killed went on, in order.
    fn takeovers(&self) -> Vec<u64> {
        let mut after = Vec::new();
        for (death, job) in
            self.deaths.iter().flat_map(|it| it.had.iter().map(move |job| (it, job)))
        {
            let events = self.nodes[0].server.events(job);
            let mut times = events.iter().filter_map(|event| event["at"].as_u64());
            after.extend(times.find(|at| *at > death.at_ms).map(|at| at - death.at_ms));
        }
        after.sort_unstable();
        after
    }
}

fn storm(also: Also) {
    let Some(postgres) = TestCluster::start("") else { return };
    let seconds = from_env("STORM_SECONDS", SECONDS);
    let seed = from_env("STORM_SEED", unix_ms());
    eprintln!("a storm of {seconds} s, STORM_SEED={seed}");
    let place = Place::new();
    let mut chance = Chance(seed);
    let mut cluster = Cluster::start(&place, postgres, also);
    let doors: Vec<String> = cluster.nodes.iter().map(|node| node.door.address.clone()).collect();
    let (ledger, asked) = Clients::new(&place, &doors).while_struck(seconds, seed, || {
        chance.pass_up_to(1500);
        cluster.strike(&mut chance);
        !cluster.deaths.is_empty()
    });
    let jobs = settle(&cluster.nodes[0].server, Duration::from_mins(2));
    let executions = Executions::read(&place);
    let wrong = wrong(&cluster, &ledger, &jobs, &executions);
    let took = cluster.takeovers();
    let nth = |percent: usize| took.get((took.len() * percent / 100).min(took.len().max(1) - 1));
    eprintln!(
        "{} jobs of killed servers went on after: p50 {:?} ms, p99 {:?} ms, at most {:?} ms",
        took.len(),
        nth(50),
        nth(99),
        took.last()
    );
    let struck: BTreeSet<&str> = cluster.strikes.iter().copied().collect();
    for strike in struck {
        let times = cluster.strikes.iter().filter(|it| **it == strike).count();
        eprintln!("{times} × {strike}");
    }
    eprintln!(
        "{asked} requests, {} jobs acknowledged, {} processes",
        ledger.len(),
        executions.count()
    );
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!ledger.is_empty(), "there was no storm");
}

fn wrong(
    cluster: &Cluster<'_>,
    ledger: &[Entry],
    jobs: &[Value],
    executions: &Executions,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let stored: BTreeSet<&str> = jobs.iter().filter_map(|job| job["id"].as_str()).collect();
    if stored.len() != ledger.len() {
        wrong.push(format!("{} jobs are stored, {} were acknowledged", stored.len(), ledger.len()));
    }
    for (nth, entry) in ledger.iter().enumerate() {
        if !stored.contains(entry.id.as_str()) {
            wrong.push(format!("{} was acknowledged and is lost", entry.key));
            continue;
        }
        // Any of them answers.
        let status = cluster.nodes[nth % SERVERS].server.status(&entry.id);
        let found = judge(entry, &status, executions, LEASE_MS + LONGEST_STOP_MS);
        let is_lost = cluster.also == Also::Database && !nothing_was_lost(&status);
        if is_lost {
            wrong.push(format!("{} ({}): an attempt was lost", entry.id, entry.key));
        }
        if is_lost || !found.is_empty() {
            let events = cluster.nodes[0].server.get(&format!("/v1/jobs/{}/events", entry.id));
            eprintln!("{} {:#}", entry.id, events.json());
        }
        wrong.extend(found);
    }
    let servers = cluster.nodes.iter().map(|node| node.server.process.said());
    let said = servers.chain(cluster.workers.iter().map(Process::said)).collect::<String>();
    let lines = cluster.said.lines().chain(said.lines());
    wrong.extend(lines.filter(|line| line.contains("panicked")).map(str::to_owned));
    wrong
}

#[test]
#[ignore = "takes minutes: tests/storm --servers"]
fn a_storm_over_servers_that_share_a_database_breaks_no_word_and_loses_no_attempt() {
    storm(Also::Database);
}

#[test]
#[ignore = "takes minutes: tests/storm --workers"]
fn a_storm_over_servers_and_their_workers_breaks_no_word_that_a_client_was_given() {
    storm(Also::Workers);
}

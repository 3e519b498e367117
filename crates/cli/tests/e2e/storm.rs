//! Servers and workers are killed, stopped and ended at random while clients submit, cancel, pause and
//! repeat themselves. Afterwards every word that a client was told is held against what is stored.
//!
//! `tests/storm` runs it for minutes; the test command for seconds. A seed repeats the choices, though not
//! the moments at which the machine carries them out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::harness::{LONG, Place, Process, Server, ask, at_the_end, now, pass, unix_ms};
use super::ledger::{Entry, Executions, Kind, judge};

const SECONDS: u64 = 12;
const CLIENTS: u64 = 4;
const WORKERS: usize = 3;
const LEASE_MS: u64 = 2000;
const LONGEST_STOP_MS: u64 = 1500;
/// A client's patience: an outage of the longest kind, and what comes after it.
const LONGEST_WORD: Duration = Duration::from_secs(150);
/// A client's pause between two jobs: what a debug build on two cores can keep up with.
const PAUSE_MS: u64 = 150;

/// Choices from a seed (splitmix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(super) fn pass_up_to(&mut self, ms: u64) {
        pass(Duration::from_millis(self.below(ms)));
    }
}

pub(super) fn from_env(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number"))
    })
}

#[derive(Debug, Default)]
struct Faults {
    server_kills: u32,
    server_ends: u32,
    worker_kills: u32,
    worker_ends: u32,
    stops: u32,
}

/// Everything under test, and what is done to it.
struct Fleet<'a> {
    place: &'a Place,
    address: &'a str,
    server: Server,
    workers: Vec<Process>,
    faults: Faults,
    /// What processes said that are gone.
    said: String,
}

impl<'a> Fleet<'a> {
    fn start(place: &'a Place, address: &'a str) -> Self {
        let server = start_server(place, address);
        let workers = (0..WORKERS).map(|n| start_worker(place, address, n)).collect();
        Self { place, address, server, workers, faults: Faults::default(), said: String::new() }
    }

    fn strike(&mut self, chance: &mut Chance) {
        let worker = chance.below(WORKERS as u64) as usize;
        match chance.below(100) {
            0..45 => {
                self.faults.server_kills += 1;
                self.restart_server(Signal::KILL, chance.below(300));
            }
            45..50 => {
                self.faults.server_ends += 1;
                self.restart_server(Signal::TERM, 0);
            }
            50..70 => {
                self.faults.worker_kills += 1;
                self.restart_worker(worker, Signal::KILL, chance.below(500));
            }
            70..80 => {
                self.faults.worker_ends += 1;
                self.restart_worker(worker, Signal::TERM, 0);
            }
            nth => {
                self.faults.stops += 1;
                let process = if nth < 90 { &self.server.process } else { &self.workers[worker] };
                process.signal(Signal::STOP);
                chance.pass_up_to(LONGEST_STOP_MS);
                process.signal(Signal::CONT);
            }
        }
    }

    fn restart_server(&mut self, signal: Signal, away_ms: u64) {
        self.server.process.signal(signal);
        self.server.process.ends();
        self.said.push_str(&self.server.process.said());
        pass(Duration::from_millis(away_ms));
        self.server = start_server(self.place, self.address);
    }

    fn restart_worker(&mut self, worker: usize, signal: Signal, away_ms: u64) {
        self.workers[worker].signal(signal);
        self.workers[worker].ends();
        self.said.push_str(&self.workers[worker].said());
        pass(Duration::from_millis(away_ms));
        self.workers[worker] = start_worker(self.place, self.address, worker);
    }
}

fn start_server(place: &Place, address: &str) -> Server {
    place.server().lease(LEASE_MS).at(address).start()
}

fn start_worker(place: &Place, address: &str, nth: usize) -> Process {
    place.worker(&format!("http://{address}"), &format!("w{nth}")).slots(3).start()
}

/// Clients of some servers, and what these told them.
pub(super) struct Clients<'a> {
    place: &'a Place,
    addresses: &'a [String],
    over: AtomicBool,
    ledger: Mutex<Vec<Entry>>,
    asked: AtomicU64,
}

impl<'a> Clients<'a> {
    pub(super) fn new(place: &'a Place, addresses: &'a [String]) -> Self {
        let (over, ledger, asked) = (AtomicBool::new(false), Mutex::default(), AtomicU64::new(0));
        Self { place, addresses, over, ledger, asked }
    }

    /// They submit while `strike` is done, for so long. What they were told, and how often they asked.
    pub(super) fn while_struck(
        self,
        seconds: u64,
        seed: u64,
        mut strike: impl FnMut() -> bool,
    ) -> (Vec<Entry>, u64) {
        std::thread::scope(|scope| {
            let clients = &self;
            let threads: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let chance = Chance(seed ^ (client + 1));
                    scope.spawn(move || clients.run(client, chance))
                })
                .collect();
            let until = now() + Duration::from_secs(seconds);
            let mut is_enough = false;
            while (now() < until || !is_enough)
                && threads.iter().all(|thread| !thread.is_finished())
            {
                is_enough = strike();
            }
            self.over.store(true, Ordering::Relaxed);
        });
        (self.ledger.into_inner().expect("unpoisoned"), self.asked.into_inner())
    }

    /// Asks until there is an answer: whether one that never came was a yes, only the key tells.
    fn tell(&self, path: &str, key: Option<&str>, body: &str) -> (u16, Value) {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(key.map(|key| ("Idempotency-Key", key)));
        let until = now() + LONGEST_WORD;
        loop {
            assert!(now() < until, "no answer to {path} {key:?}");
            let nth = self.asked.fetch_add(1, Ordering::Relaxed) as usize;
            let address = &self.addresses[nth % self.addresses.len()];
            let reply = ask(address, "POST", path, &headers, body);
            // 202: whether it has happened is open.
            let is_open = |status| status >= 500 || matches!(status, 202 | 429);
            if let Some(reply) = reply.filter(|reply| !is_open(reply.status)) {
                return (reply.status, serde_json::from_str(&reply.body).unwrap_or_default());
            }
            pass(Duration::from_millis(20));
        }
    }

    fn run(&self, client: u64, mut chance: Chance) {
        let mut nth = 0;
        while !self.over.load(Ordering::Relaxed) {
            nth += 1;
            let kind = Kind::ALL[chance.below(Kind::ALL.len() as u64) as usize];
            let key = format!("c{client}-{nth}");
            let body = kind.job(self.place, &key);
            let (status, answer) = self.tell("/v1/jobs", Some(&key), &body);
            assert!(matches!(status, 200 | 201), "{key}: {status} {answer:#}");
            let id = answer["id"].as_str().expect("an id").to_owned();
            let mut entry = Entry { key: key.clone(), kind, id: id.clone(), cancelled_ms: None };
            match chance.below(20) {
                0..3 => {
                    let (status, again) = self.tell("/v1/jobs", Some(&key), &body);
                    assert_eq!(
                        (status, &again["id"]),
                        (200, &answer["id"]),
                        "{key} is one job: {again:#}"
                    );
                }
                3 => {
                    let other = kind.job(self.place, "another");
                    let (status, answer) = self.tell("/v1/jobs", Some(&key), &other);
                    assert_eq!(status, 409, "{key} with another body: {answer:#}");
                }
                4..6 => {
                    chance.pass_up_to(400);
                    let (status, answer) = self.tell(&format!("/v1/jobs/{id}/cancel"), None, "");
                    // It may have ended before.
                    assert!(matches!(status, 200 | 409), "{key}: {status} {answer:#}");
                    entry.cancelled_ms = Some(unix_ms());
                }
                6 => {
                    for word in ["pause", "resume"] {
                        let (status, answer) =
                            self.tell(&format!("/v1/jobs/{id}/{word}"), None, "");
                        assert!(matches!(status, 200 | 409), "{key}: {word}: {status} {answer:#}");
                        chance.pass_up_to(200);
                    }
                }
                _ => {}
            }
            self.ledger.lock().expect("unpoisoned").push(entry);
            chance.pass_up_to(2 * PAUSE_MS);
        }
    }
}

/// Everything that is stored, by id.
fn all_jobs(server: &Server) -> Vec<Value> {
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/jobs?limit=1000{cursor}")).json();
        jobs.extend(page["jobs"].as_array().expect("jobs").iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return jobs,
        }
    }
}

/// Waits for the end of all jobs, as long as some come to theirs, with no more than this between two.
pub(super) fn settle(server: &Server, longest: Duration) -> Vec<Value> {
    let (mut left, mut until) = (usize::MAX, now() + longest);
    loop {
        let jobs = all_jobs(server);
        let open: Vec<_> = jobs.iter().filter(|job| job["finished_at_ms"].is_null()).collect();
        if open.is_empty() {
            return jobs;
        }
        if open.len() < left {
            (left, until) = (open.len(), now() + longest);
        }
        if now() >= until {
            let id = open[0]["id"].as_str().expect("an id");
            let events = server.get(&format!("/v1/jobs/{id}/events")).json();
            panic!("{left} jobs never end: {:#} {events:#}", open[0]);
        }
        pass(Duration::from_millis(100));
    }
}

#[test]
fn a_storm_of_kills_and_stops_breaks_no_word_that_a_client_was_given() {
    let seconds = from_env("STORM_SECONDS", SECONDS);
    let seed = from_env("STORM_SEED", unix_ms());
    eprintln!("a storm of {seconds} s, STORM_SEED={seed}");
    let place = Place::new();
    let address = super::harness::address_of_its_own();
    let mut chance = Chance(seed);
    let mut fleet = Fleet::start(&place, &address);
    let addresses = [address.clone()];
    let (ledger, asked) = Clients::new(&place, &addresses).while_struck(seconds, seed, || {
        chance.pass_up_to(600);
        fleet.strike(&mut chance);
        // On a machine that has much else to do, a blow may take as long as the storm.
        fleet.faults.server_kills > 0
    });
    let jobs = settle(&fleet.server, LONG);
    let executions = Executions::read(&place);
    let mut wrong = Vec::new();
    let stored: std::collections::BTreeSet<&str> =
        jobs.iter().filter_map(|job| job["id"].as_str()).collect();
    assert_eq!(stored.len(), ledger.len(), "what is stored is what was acknowledged");
    for entry in &ledger {
        if !stored.contains(entry.id.as_str()) {
            wrong.push(format!("{} was acknowledged and is lost", entry.key));
            continue;
        }
        let status = fleet.server.status(&entry.id);
        wrong.extend(judge(entry, &status, &executions, LEASE_MS + LONGEST_STOP_MS));
    }
    fleet.said.push_str(&fleet.server.process.said());
    fleet.said.extend(fleet.workers.iter().map(Process::said));
    let panics = fleet.said.lines().filter(|line| line.contains("panicked"));
    wrong.extend(panics.map(str::to_owned));
    let [at, it] = at_the_end(&place, &mut fleet.server);
    for entry in &ledger {
        let replayed = place.call(&["replay", &entry.id, "-o", "json", &at, &it]);
        let replayed: Value = serde_json::from_str(&replayed).expect("JSON");
        if replayed["equal"] != true {
            wrong.push(format!("{}: the log folded again is another state: {replayed}", entry.id));
        }
    }
    let Faults { server_kills, server_ends, worker_kills, worker_ends, stops } = fleet.faults;
    eprintln!(
        "{server_kills} kills and {server_ends} ends of the server, {worker_kills} kills and {worker_ends} ends \
         of workers, {stops} stops; {} requests, {} jobs acknowledged, {} processes, {} replays",
        asked,
        ledger.len(),
        executions.count(),
        ledger.len(),
    );
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(server_kills > 0 && !ledger.is_empty(), "there was no storm");
}

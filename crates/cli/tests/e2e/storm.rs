//! Servers and workers are killed, stopped and ended at random while clients submit, cancel, pause and
//! repeat themselves. Afterwards every word that a client was told is held against what is stored.
//!
//! `tests/storm` runs it for minutes; the test command for seconds. A seed repeats the choices, though not
//! the moments at which the machine carries them out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::clients::{Chance, Clients, from_env, settle};
use super::harness::{LONG, Place, Process, STORE_URL, Server, at_the_end, pass, unix_ms};
use super::ledger::{Entry, Executions, judge};

const SECONDS: u64 = 12;
const WORKERS: usize = 3;
const LEASE_MS: u64 = 2000;
pub(super) const LONGEST_STOP_MS: u64 = 1500;

/// Everything under test, and what is done to it.
pub(super) struct Fleet<'a> {
    pub(super) place: &'a Place,
    /// Where the server listens.
    pub(super) address: String,
    /// Where workers find it, and where clients do.
    pub(super) doors: [String; 2],
    /// Of the server, beyond those of every storm.
    settings: Vec<(&'static str, String)>,
    pub(super) server: Server,
    pub(super) workers: Vec<Process>,
    /// What was struck, and how often.
    pub(super) strikes: BTreeMap<&'static str, u32>,
    /// What was submitted by the storm itself.
    pub(super) own_jobs: BTreeSet<String>,
    /// What processes said that are gone.
    said: String,
}

impl<'a> Fleet<'a> {
    pub(super) fn start(place: &'a Place, settings: Vec<(&'static str, String)>) -> Self {
        let address = super::harness::address_of_its_own();
        let doors = [address.clone(), address.clone()];
        Self::behind(place, address, doors, settings)
    }

    pub(super) fn behind(
        place: &'a Place,
        address: String,
        doors: [String; 2],
        settings: Vec<(&'static str, String)>,
    ) -> Self {
        let server = start_server(place, &address, &settings);
        let workers = (0..WORKERS).map(|n| start_worker(place, &doors[0], n)).collect();
        let (strikes, own_jobs, said) = (BTreeMap::new(), BTreeSet::new(), String::new());
        Self { place, address, doors, settings, server, workers, strikes, own_jobs, said }
    }

    pub(super) fn struck(&mut self, what: &'static str) {
        *self.strikes.entry(what).or_default() += 1;
    }

    fn strike(&mut self, chance: &mut Chance) {
        match chance.below(100) {
            0..45 => {
                self.struck("the server was killed");
                self.restart_server(Signal::KILL, chance.below(300));
            }
            45..50 => {
                self.struck("the server was ended");
                self.restart_server(Signal::TERM, 0);
            }
            50..70 => self.kill_a_worker(chance),
            70..80 => {
                self.struck("a worker was ended");
                let worker = chance.below(WORKERS as u64) as usize;
                self.restart_worker(worker, Signal::TERM, 0);
            }
            nth => {
                self.struck("a process was stopped");
                let worker = chance.below(WORKERS as u64) as usize;
                let process = if nth < 90 { &self.server.process } else { &self.workers[worker] };
                process.signal(Signal::STOP);
                chance.pass_up_to(LONGEST_STOP_MS);
                process.signal(Signal::CONT);
            }
        }
    }

    pub(super) fn kill_a_worker(&mut self, chance: &mut Chance) {
        self.struck("a worker was killed");
        let worker = chance.below(WORKERS as u64) as usize;
        self.restart_worker(worker, Signal::KILL, chance.below(500));
    }

    pub(super) fn restart_server(&mut self, signal: Signal, away_ms: u64) {
        self.end_server(signal);
        pass(Duration::from_millis(away_ms));
        self.start_server();
    }

    pub(super) fn end_server(&mut self, signal: Signal) {
        self.server.process.signal(signal);
        self.server.process.ends();
        self.gone();
    }

    /// The server has ended: what it said is kept.
    pub(super) fn gone(&mut self) {
        self.said.push_str(&self.server.process.said());
    }

    pub(super) fn start_server(&mut self) {
        self.server = start_server(self.place, &self.address, &self.settings);
    }

    fn restart_worker(&mut self, worker: usize, signal: Signal, away_ms: u64) {
        self.workers[worker].signal(signal);
        self.workers[worker].ends();
        self.said.push_str(&self.workers[worker].said());
        pass(Duration::from_millis(away_ms));
        self.workers[worker] = start_worker(self.place, &self.doors[0], worker);
    }

    /// Clients come while `strike` is done, at least until it says that it is enough. Then everything ends, and all that was told is
    /// held against it.
    ///
    /// A process of a cancelled job may begin until `withdrawn_ms` after a lease: a worker hears of it no sooner.
    pub(super) fn storm(
        mut self,
        seconds: u64,
        withdrawn_ms: u64,
        mut strike: impl FnMut(&mut Self, &mut Chance) -> bool,
    ) {
        let seconds = from_env("STORM_SECONDS", seconds);
        let seed = from_env("STORM_SEED", unix_ms());
        eprintln!("a storm of {seconds} s, STORM_SEED={seed}");
        let mut chance = Chance(seed);
        let doors = [self.doors[1].clone()];
        let (ledger, asked) = Clients::new(self.place, &doors).while_struck(seconds, seed, || {
            chance.pass_up_to(600);
            strike(&mut self, &mut chance)
        });
        let jobs = settle(&self.server, LONG);
        let executions = Executions::read(self.place);
        let wrong = self.wrong(&ledger, &jobs, &executions, LEASE_MS + withdrawn_ms);
        for (strike, times) in &self.strikes {
            eprintln!("{times} × {strike}");
        }
        eprintln!(
            "{asked} requests, {} jobs acknowledged, {} processes, {0} replays",
            ledger.len(),
            executions.count()
        );
        assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(!self.strikes.is_empty() && !ledger.is_empty(), "there was no storm");
    }

    fn wrong(
        &mut self,
        ledger: &[Entry],
        jobs: &[Value],
        executions: &Executions,
        withdrawn_ms: u64,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let stored: BTreeSet<&str> = jobs.iter().filter_map(|job| job["id"].as_str()).collect();
        let told: BTreeSet<&str> = ledger.iter().map(|entry| entry.id.as_str()).collect();
        let unheard = stored.difference(&told).filter(|id| !self.own_jobs.contains(**id));
        wrong.extend(unheard.map(|id| format!("{id} is stored, and no client has heard of it")));
        for entry in ledger {
            if !stored.contains(entry.id.as_str()) {
                wrong.push(format!("{} was acknowledged and is lost", entry.key));
                continue;
            }
            let status = self.server.status(&entry.id);
            wrong.extend(judge(entry, &status, executions, withdrawn_ms));
        }
        self.said.push_str(&self.server.process.said());
        self.said.extend(self.workers.iter().map(Process::said));
        let panics = self.said.lines().filter(|line| line.contains("panicked"));
        wrong.extend(panics.map(str::to_owned));
        let is_elsewhere = self.settings.iter().any(|(name, _)| *name == STORE_URL);
        let [at, it] = if is_elsewhere {
            ["--server".to_owned(), self.server.url()]
        } else {
            at_the_end(self.place, &mut self.server)
        };
        for id in told.intersection(&stored) {
            let replayed = self.place.call(&["replay", id, "-o", "json", &at, &it]);
            let replayed: Value = serde_json::from_str(&replayed).expect("JSON");
            if replayed["equal"] != true {
                wrong.push(format!("{id}: the log folded again is another state: {replayed}"));
            }
        }
        wrong
    }
}

fn start_server(place: &Place, address: &str, settings: &[(&'static str, String)]) -> Server {
    let order = place.server().lease(LEASE_MS).at(address);
    settings.iter().fold(order, |order, (name, value)| order.set(name, value)).start()
}

fn start_worker(place: &Place, door: &str, nth: usize) -> Process {
    place.worker(&format!("http://{door}"), &format!("w{nth}")).slots(3).start()
}

#[test]
fn a_storm_of_kills_and_stops_breaks_no_word_that_a_client_was_given() {
    let place = Place::new();
    Fleet::start(&place, vec![]).storm(SECONDS, LONGEST_STOP_MS, |fleet, chance| {
        fleet.strike(chance);
        // On a machine that has much else to do, a blow may take as long as the storm.
        fleet.strikes.contains_key("the server was killed")
    });
}

//! Clients of a storm, and what they were told: they submit, cancel, pause and repeat themselves, and ask until there is an answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::harness::{Place, Server, ask, now, pass, unix_ms};
use super::ledger::{Entry, Kind};

const CLIENTS: u64 = 4;
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
            // Also if a strike panics: the scope waits for them.
            let _end = SetOnDrop(&self.over);
            let until = now() + Duration::from_secs(seconds);
            let mut is_enough = false;
            while (now() < until || !is_enough)
                && threads.iter().all(|thread| !thread.is_finished())
            {
                is_enough = strike();
            }
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

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

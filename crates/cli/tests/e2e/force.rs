//! Storms of faults that a kill does not bring about: the power goes, a sync fails, the disk is full, wires are bad, the database
//! dies. The judge is the same as of every storm: what clients were told.
//!
//! `tests/storm --power`, `--disk`, `--wires` and `--database` run them for minutes; the test command for seconds.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use steadfast_store::testing::TestCluster;

use super::clients::Chance;
use super::harness::{Place, STORE_URL, address_of_its_own, ask, pass, wait_for};
use super::small_disk::SmallDisk;
use super::storm::{Fleet, LONGEST_STOP_MS};
use super::wire::{State, Wire};
use crate::disk::FailingDisk;

const SECONDS: u64 = 9;
const KIND: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn all(fleet: &Fleet<'_>, strikes: &[&str]) -> bool {
    strikes.iter().all(|strike| fleet.strikes.contains_key(strike))
}

/// The job of `gate`: it runs until that is opened.
fn held(place: &Place, gate: &str) -> String {
    let (begun, gate) = (place.text(&format!("{gate}-begun")), place.text(gate));
    let run = format!("touch {begun}; while [ ! -e {gate} ]; do sleep 0.1; done");
    // A loss costs it nothing, however often.
    json!({ "name": "held", "steps": { "s": { "run": run } } }).to_string()
}

const POWER_CUT: &str = "the power was cut, and what was not synced is lost";
const TORN: &str = "the power was cut, and some of what was not synced is lost";
const FAILED_SYNC: &str = "a sync failed, and its pages are lost";

fn strike_power(fleet: &mut Fleet<'_>, disk: &FailingDisk, chance: &mut Chance) {
    match chance.below(10) {
        0..3 => {
            fleet.struck(POWER_CUT);
            fleet.end_server(Signal::KILL);
            disk.lose_unsynced(|| false);
            fleet.start_server();
        }
        3..6 => {
            fleet.struck(TORN);
            fleet.end_server(Signal::KILL);
            disk.lose_unsynced(|| chance.below(2) == 0);
            fleet.start_server();
        }
        6..9 => {
            fleet.struck(FAILED_SYNC);
            disk.fail_next_sync();
            wait_for("a sync", || disk.has_failed().then_some(()));
            // The syncs after it succeed, and mean nothing: a word that were given now would be one that the judge finds to be broken.
            let ended = fleet.server.process.ends();
            assert_eq!(ended.code(), Some(1), "{}", fleet.server.process.said());
            fleet.server.process.says("StoreFailed");
            fleet.gone();
            disk.lose_unsynced(|| chance.below(2) == 0);
            fleet.start_server();
        }
        _ => fleet.kill_a_worker(chance),
    }
}

#[test]
fn a_storm_of_power_cuts_and_failed_syncs_loses_nothing_that_was_acknowledged() {
    let place = Place::with_data_folders();
    let database = place.path("data/steadfast.db");
    let Some(disk) = FailingDisk::below(&place.path(""), &database) else { return };
    let settings = Vec::from(disk.settings());
    Fleet::start(&place, settings).storm(SECONDS, LONGEST_STOP_MS, |fleet, chance| {
        strike_power(fleet, &disk, chance);
        all(fleet, &[FAILED_SYNC]) && (all(fleet, &[POWER_CUT]) || all(fleet, &[TORN]))
    });
}

/// What the storm would find of a server that acknowledges without a sync.
#[test]
fn a_power_cut_takes_what_was_acknowledged_without_a_sync() {
    let place = Place::with_data_folders();
    let database = place.path("data/steadfast.db");
    let Some(disk) = FailingDisk::below(&place.path(""), &database) else { return };
    let order =
        disk.settings().into_iter().fold(place.server(), |it, (name, value)| it.set(name, &value));
    let mut server = order.set("SYNC_SHIM_SWALLOW", "1").start();
    let id = server.submit(&held(&place, "never"));
    server.process.signal(Signal::KILL);
    server.process.ends();
    assert!(disk.lose_unsynced(|| false) > 0);
    assert_eq!(place.server().start().get(&format!("/v1/jobs/{id}")).status, 404);
}

const RESERVE_TAKEN: &str = "the disk was filled up to a part of its reserve";
const CANCELLED_FULL: &str = "the disk was filled to the last byte, and a cancel fitted";
const REFUSED_FULL: &str = "the disk was filled to the last byte, and a cancel was refused";
const KILLED_FULL: &str = "the server was killed on a full disk";

fn strike_disk(fleet: &mut Fleet<'_>, disk: &SmallDisk, chance: &mut Chance) {
    let place = fleet.place;
    let gate = format!("gate-{}", fleet.own_jobs.len());
    let id = wait_for("a job to be taken", || {
        let reply = fleet.server.ask("POST", "/v1/jobs", &KIND, &held(place, &gate))?;
        (reply.status == 201).then(|| reply.json()["id"].as_str().expect("an id").to_owned())
    });
    fleet.own_jobs.insert(id.clone());
    wait_for("it to begin", || place.path(&format!("{gate}-begun")).exists().then_some(()));
    // What was let go of the last time is there again.
    wait_for("the ballast", || place.path("data/ballast").exists().then_some(()));
    let is_reserve = chance.below(2) == 0;
    let filler = if is_reserve { disk.leave(5 << 20) } else { disk.fill() };
    let cancel = |fleet: &Fleet<'_>| {
        let path = format!("/v1/jobs/{id}/cancel");
        wait_for("the cancel", || {
            fleet.server.ask("POST", &path, &[], "").filter(|reply| reply.status != 503)
        })
    };
    let mut is_cancelled = false;
    if is_reserve {
        refuses_new_work(fleet);
        place.open(&gate);
        // The reserve is for this.
        let end = fleet.server.end(&id);
        assert_eq!(end["state"], "succeeded", "{end:#}");
        fleet.struck(RESERVE_TAKEN);
    } else {
        let reply = cancel(fleet);
        // What the others write on may have taken the ballast already: then it is said.
        is_cancelled = reply.status == 200;
        assert!(is_cancelled || reply.status == 507, "{reply:?}");
        fleet.struck(if is_cancelled { CANCELLED_FULL } else { REFUSED_FULL });
        refuses_new_work(fleet);
        if chance.below(2) == 0 {
            fleet.struck(KILLED_FULL);
            fleet.end_server(Signal::KILL);
        }
    }
    chance.pass_up_to(500);
    fs::remove_file(filler).expect("the operator makes room");
    if ask(&fleet.address, "GET", "/healthz", &[], "").is_none() {
        fleet.start_server();
    }
    wait_for("it to be ready", || (fleet.server.get("/readyz").status == 200).then_some(()));
    if !is_reserve {
        let state = if is_cancelled { fleet.server.status(&id) } else { cancel(fleet).json() };
        assert_eq!(state["state"], "cancelled", "{state:#}");
    }
}

/// From one moment to the next: until the server has looked at its disk again, which is so for 20 ms, there may be room for one.
fn refuses_new_work(fleet: &mut Fleet<'_>) {
    let job = json!({ "name": "new", "steps": { "s": { "run": "true" } } }).to_string();
    wait_for("new work to be refused", || {
        let reply = fleet.server.ask("POST", "/v1/jobs", &KIND, &job)?;
        if reply.status == 201 {
            fleet.own_jobs.insert(reply.json()["id"].as_str().expect("an id").to_owned());
        }
        (reply.status == 507).then_some(())
    });
}

#[test]
fn a_storm_on_a_disk_that_fills_up_breaks_no_word_and_cancels_and_completions_fit() {
    let place = Place::with_data_folders();
    let Some(disk) = SmallDisk::mount(place.path("data"), 48) else { return };
    let settings = vec![("STEADFAST_LIMITS__DISK_RESERVE", "12m".to_owned())];
    Fleet::start(&place, settings).storm(SECONDS, LONGEST_STOP_MS, |fleet, chance| {
        strike_disk(fleet, &disk, chance);
        all(fleet, &[RESERVE_TAKEN, CANCELLED_FULL])
    });
}

const LONGEST_CUT_MS: u64 = 1500;

#[test]
fn a_storm_over_wires_that_are_cut_slow_silent_and_half_open_breaks_no_word() {
    let place = Place::new();
    let address = address_of_its_own();
    let wires = [Wire::to(&address), Wire::to(&address)];
    let doors = wires.clone().map(|wire| wire.address);
    let fleet = Fleet::behind(&place, address, doors, vec![]);
    fleet.storm(SECONDS, LONGEST_CUT_MS, |fleet, chance| {
        let wire = &wires[chance.below(2) as usize];
        let (state, strike) = match chance.below(6) {
            0 => (State::Cut, "a wire was cut"),
            1 => (State::Silent, "a wire was silent"),
            2 => (State::Slow(Duration::from_millis(chance.below(100))), "a wire was slow"),
            3 => (State::Mute, "answers were lost on a wire"),
            4 => (State::Deaf, "requests were lost on a wire"),
            _ => {
                fleet.kill_a_worker(chance);
                return false;
            }
        };
        fleet.struck(strike);
        wire.set(state);
        chance.pass_up_to(LONGEST_CUT_MS);
        wire.set(State::Whole);
        fleet.strikes.len() > 3
    });
}

const DATABASE_KILLED: &str = "the database was killed";
const LONGEST_OUTAGE_MS: u64 = 1000;

#[test]
fn a_storm_over_a_database_that_dies_breaks_no_word() {
    let Some(postgres) = TestCluster::start("") else { return };
    let place = Place::with_data_folders();
    let settings = vec![
        (STORE_URL, postgres.database()),
        ("STEADFAST_STORE__OUTAGE_TOLERANCE", "60s".to_owned()),
    ];
    Fleet::start(&place, settings).storm(SECONDS, LONGEST_STOP_MS, |fleet, chance| {
        match chance.below(4) {
            0 => {
                fleet.struck("the server was killed");
                fleet.restart_server(Signal::KILL, chance.below(300));
            }
            1 => fleet.kill_a_worker(chance),
            _ => {
                fleet.struck(DATABASE_KILLED);
                postgres.crash();
                pass(Duration::from_millis(chance.below(LONGEST_OUTAGE_MS)));
                postgres.restart();
            }
        }
        all(fleet, &[DATABASE_KILLED])
    });
}

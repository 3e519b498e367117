//! Many workers at one server: nobody who beats is lost, nothing is done twice, and beats are not
//! written down. `benches/benches/fleet.rs` does the same with more, and measures.

mod common;
#[path = "scale/sessions.rs"]
mod sessions;

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use common::{Place, Process, is};
use rustix::process::Signal;
use sessions::{Sessions, request, submit};

const WORKERS: usize = 200;
const ITEMS: usize = 5000;
/// Short beside the time that the beats below take: whoever is not heard is lost.
const LEASE: &str = "5s";
const BEAT: &str = "250ms";
const BEATS: usize = 24;

/// A server of its own, and where it listens.
fn serve(place: &Place) -> (Process, String) {
    let mut command = place.command(&["server", "--listen", "127.0.0.1:0"]);
    command.env("STEADFAST_WORKERS__LEASE", LEASE).env("STEADFAST_WORKERS__BEAT", BEAT);
    let mut server = Process::start(command);
    let line = server.id();
    let address = line.rsplit_once("http://").expect("an address").1.to_owned();
    (server, address)
}

/// Beats write nothing in one of so many times.
const LOOKS: u32 = 4;

/// The files of the store, as they are on the disk.
fn stored(place: &Place) -> Vec<(u64, SystemTime)> {
    let of = |name: &str| {
        let data = fs::metadata(place.path("data").join(name)).expect("a file of the store");
        (data.len(), data.modified().expect("times are kept"))
    };
    ["steadfast.db", "steadfast.db-wal"].map(of).into()
}

#[test]
fn two_hundred_workers_are_heard_and_do_everything_once() {
    let place = Place::with_data_folder("");
    let (server, address) = serve(&place);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let job = runtime.expect("a runtime").block_on(async {
        let mut sessions = Sessions::open(&address, WORKERS, 2).await;
        let job = submit(&address, ITEMS);
        sessions.until("every item", |so_far| so_far.acknowledged.len() == ITEMS).await;
        // What is kept of a long job for those who look at it is written a moment after its events.
        let mut before;
        let mut looks = 0;
        loop {
            before = stored(&place);
            sessions.beat(BEATS).await;
            looks += 1;
            if stored(&place) == before {
                break;
            }
            assert!(looks < LOOKS, "beats are written down");
        }
        assert_eq!(sessions.acknowledged.len(), ITEMS, "something was done twice");
        job
    });
    let (status, body) = request(&address, &format!("GET /v1/jobs/{job}"), "").expect("a server");
    assert_eq!(status, 200, "{body}");
    let shown: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(shown["state"], "succeeded", "{shown}");
    server.signal(Signal::TERM);
    let ended = server.end();
    assert!(ended.status.success(), "{ended:?}");

    let mut items: BTreeMap<u64, [usize; 3]> = BTreeMap::new();
    for event in place.events(&job) {
        let told = ["AttemptStarted", "AttemptEnded", "ItemSucceeded"];
        if let Some(which) = told.iter().position(|name| is(&event, name)) {
            let index = event["item"]["index"].as_u64().expect("an index");
            items.entry(index).or_default()[which] += 1;
        }
    }
    assert_eq!(items.len(), ITEMS);
    let odd = items.iter().find(|(_, counts)| **counts != [1, 1, 1]);
    assert_eq!(odd, None, "starts, ends and successes of an item");
}

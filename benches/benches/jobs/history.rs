//! What a job costs behind many that have ended, and what is asked about them meanwhile.

use std::time::{Duration, Instant};

use steadfast::{Client, Query};
use steadfast_benches::{Measured, centiles, figure, millis, repeats};

use crate::rates::{alone, bulk, many};
use crate::setup::{Bench, Until, job};
use crate::{ALONE, BULK};

const KEY: &str = "asked-again";

/// The separate jobs, behind `finished` ones.
pub(crate) async fn history(finished: u32, jobs: u32) {
    let bench = Bench::start(256, 0, None).await;
    let before = bench.server.standing();
    bench.submit_chunks(finished, job, Until::Called).await;
    let mut filling = Measured::new("history", "job");
    filling.add(before, bench.server.standing(), finished);
    println!("history, {finished} jobs: {filling}");
    let first = bench.client.submit_with_key(&job(0), KEY).await.expect("taken");
    bench.done(finished + 1).await;
    let folder = bench.folder.clone();
    drop(bench);
    let folder = Some(&folder);
    alone(ALONE.min(jobs), folder).await;
    many(64, jobs, Until::Called, folder).await;
    many(256, jobs, Until::Called, folder).await;
    many(64, jobs, Until::Told, folder).await;
    bulk(BULK.min(jobs), folder).await;
    for _ in 0..repeats(3) {
        let bench = Bench::start(64, 0, folder).await;
        let mut asked = Asked::default();
        tokio::select! {
            () = bench.submit(64, jobs, Until::Called) => {}
            () = asked.ask(&bench.client, &first) => {}
        }
        asked.tell();
    }
}

/// How long the answers took, of requests that are made while jobs run.
#[derive(Default)]
struct Asked {
    lists: Vec<Duration>,
    statuses: Vec<Duration>,
    keyed: Vec<Duration>,
}

impl Asked {
    async fn ask(&mut self, client: &Client, known: &str) {
        let query = Query::new().name("separate").at_most(100);
        loop {
            let begun = Instant::now();
            client.list(&query).await.expect("listed");
            self.lists.push(begun.elapsed());
            let begun = Instant::now();
            client.status(known).await.expect("told");
            self.statuses.push(begun.elapsed());
            let begun = Instant::now();
            client.submit_with_key(&job(0), KEY).await.expect("known");
            self.keyed.push(begun.elapsed());
        }
    }

    fn tell(&mut self) {
        let all =
            [("list", &mut self.lists), ("status", &mut self.statuses), ("keyed", &mut self.keyed)];
        for (what, times) in all {
            let (p50, p99) = centiles(times);
            figure("queries_history", &format!("{what}_p99"), "ms", millis(p99));
            println!("{what} while they run: p50 {p50:?}, p99 {p99:?} of {}", times.len());
        }
    }
}

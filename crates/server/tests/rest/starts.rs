//! What a start waits for, and what it does not.

use std::sync::Arc;

use steadfast_server::config::{Auth, Config};
use steadfast_server::serve::{ServerOptions, start};

use super::server::{Answer, RealTime, Server};
use super::watched::WatchedStorage;

const HOLDS: &str = "name: h\nsteps:\n  a: { run: hold }\n";

#[tokio::test]
async fn metrics_do_not_wait_for_a_store_that_is_slow_to_count() {
    let before = Server::start().await;
    before.submit(HOLDS).await;
    let mut config = Config::default();
    "127.0.0.1:0".clone_into(&mut config.server.listen);
    config.server.auth = Some(Auth::None);
    let storage = WatchedStorage::new(before.folder.storage());
    let counts = storage.hold_count();
    let (storage, clock) = (Arc::new(storage), Arc::new(RealTime));
    let running = start(ServerOptions { config, storage, clock, inside: None });
    let running = running.await.expect("a server");
    let url = running.url();
    let serving = tokio::spawn(running.until(std::future::pending()));
    let ask = |path: &str| before.client.get(format!("{url}{path}")).send();
    let counted = async || {
        let page = ask("/metrics").await.unwrap().text().await.unwrap();
        let jobs = page.lines().filter(|line| line.starts_with("steadfast_jobs{"));
        let jobs = jobs.map(|line| line.rsplit(' ').next().expect("a value").parse::<u64>());
        jobs.sum::<Result<u64, _>>().expect("numbers")
    };
    assert_eq!(ask("/readyz").await.unwrap().status(), 200);
    let submission = before.client.post(format!("{url}/v1/jobs")).body(HOLDS);
    let taken = Answer::of(submission.header("content-type", "application/yaml")).await;
    assert_eq!(taken.status, 201, "{taken:?}");
    assert_eq!(counted().await, 0, "the store has not told yet");
    tokio::task::spawn_blocking(move || counts.wait()).await.unwrap();
    assert_eq!(counted().await, 2, "the one from before, and the one that was taken here");
    let told = Answer::of(before.client.get(format!("{url}/v1/jobs/counts"))).await.json;
    assert_eq!((&told["open"], &told["by_state"]["stuck"]), (&2.into(), &0.into()), "{told}");
    serving.abort();
}

//! Servers that share one `PostgreSQL`, which is as `initdb` makes it: synced, 128 MB of buffers.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use steadfast::{Client, Job, Step};
use steadfast_benches::{Folder, Server, TICKS, cpu_of, figure, median, repeats};
use steadfast_store::testing::{TestCluster, query};

use crate::setup::{Seen, Until, job, one, work};

struct Shared {
    servers: Vec<(Server, Folder)>,
    clients: Vec<Client>,
    seen: Arc<Seen>,
    working: tokio::task::JoinHandle<()>,
    _postgres: TestCluster,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.working.abort();
    }
}

impl Shared {
    /// Each with its part of the shards, and the worker with a session at each.
    async fn start(servers: u32, slots: u32) -> Self {
        let postgres = TestCluster::start("").expect("PostgreSQL");
        let url = postgres.database();
        let servers: Vec<_> = (0..servers)
            .map(|nth| {
                let folder = Folder::named(&nth.to_string());
                (Server::start("server", &folder, &["--store", &url]), folder)
            })
            .collect();
        let addresses: Vec<String> =
            servers.iter().map(|(server, _)| format!("http://{}", server.address)).collect();
        let mut clients = Vec::new();
        for address in &addresses {
            clients.push(Client::connect(&**address).await.expect("a server"));
        }
        let seen = Arc::new(Seen::default());
        let working = work(&addresses, &seen, slots, 0);
        let shared = Self { servers, clients, seen, working, _postgres: postgres };
        shared.until_spread(&url).await;
        for client in &shared.clients {
            let id = client.submit(&job(u32::MAX)).await.expect("taken");
            assert!(client.wait(&id).await.expect("ended").is_success());
        }
        shared.seen.done.store(0, Ordering::Relaxed);
        shared
    }

    async fn until_spread(&self, url: &str) {
        let owners = self.servers.len();
        let even = format!(
            "SELECT 1 FROM (SELECT count(*) AS n FROM steadfast.shards GROUP BY owner) s \
             HAVING count(*) = {owners} AND max(n) - min(n) <= 1"
        );
        while query(url, &even).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn cpu(&self) -> Cpu {
        let servers = self.servers.iter().map(|(server, _)| server.standing().cpu).sum();
        Cpu { all: cpu_of_all(), servers, here: cpu_of(std::process::id()) }
    }
}

/// Seconds.
struct Cpu {
    all: f64,
    servers: f64,
    here: f64,
}

/// Of all processes: user, nice and system time.
fn cpu_of_all() -> f64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc");
    let first = stat.lines().next().expect("a line").split_whitespace().skip(1).take(3);
    first.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Prints rates, and the CPU of a job by who spent it; what is neither the servers' nor ours is the database's, on a machine that does nothing else.
struct Figures {
    workload: String,
    rates: Vec<f64>,
}

impl Figures {
    fn add(&mut self, shared: &Shared, before: &Cpu, begun: Instant, count: u32) {
        let (took, after) = (begun.elapsed().as_secs_f64(), shared.cpu());
        let each = |seconds: f64| seconds * 1e6 / f64::from(count);
        let (servers, here) = (after.servers - before.servers, after.here - before.here);
        let database = (after.all - before.all - servers - here).max(0.0);
        let rate = f64::from(count) / took;
        figure(&self.workload, "rate", "jobs/s", rate);
        figure(&self.workload, "cpu", "µs", each(servers));
        figure(&self.workload, "database_cpu", "µs", each(database));
        println!(
            "{}: {rate:.0}/s; CPU of each: {:.0} µs servers, {:.0} µs database, {:.0} µs here",
            self.workload,
            each(servers),
            each(database),
            each(here)
        );
        self.rates.push(rate);
    }

    fn end(&self) {
        let (rate, low, high) = median(&self.rates);
        println!("{}: {rate:.0}/s ({low:.0}–{high:.0})", self.workload);
    }
}

/// One-call jobs, submitted to all servers in turn.
pub(crate) async fn separate(servers: u32, in_flight: u32, jobs: u32) {
    let workload = format!("postgres_{servers}_separate_{in_flight}");
    let mut figures = Figures { workload, rates: vec![] };
    for _ in 0..repeats(3) {
        let shared = Shared::start(servers, in_flight).await;
        let (before, begun) = (shared.cpu(), Instant::now());
        let next = Arc::new(AtomicU32::new(0));
        let tasks = (0..in_flight).map(|_| {
            let (next, seen, clients) = (next.clone(), shared.seen.clone(), shared.clients.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return;
                    }
                    let client = &clients[number as usize % clients.len()];
                    one(number, client, &seen, Until::Called).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        figures.add(&shared, &before, begun, jobs);
    }
    figures.end();
}

/// The items of one job.
pub(crate) async fn fan_out(in_flight: u32, items: u32) {
    let workload = format!("postgres_fan_out_{in_flight}");
    let mut figures = Figures { workload, rates: vec![] };
    for _ in 0..repeats(3) {
        let shared = Shared::start(1, in_flight).await;
        let (before, begun) = (shared.cpu(), Instant::now());
        let step = Step::call("s", "nothing").input(&0).expect("JSON").for_each_range(items);
        let id = shared.clients[0].submit(&Job::new("many").step(step)).await.expect("taken");
        assert!(shared.clients[0].wait(&id).await.expect("ended").is_success());
        figures.add(&shared, &before, begun, items);
    }
    figures.end();
}

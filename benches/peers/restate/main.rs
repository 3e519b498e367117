//! Restate: a server of its own, and a Rust service in this process that it calls. Jobs are sent through the ingress over
//! HTTP connections that are kept.
//!
//! Everything is as it comes (24 partitions, its log synced before it acknowledges, journals kept for a day) but: ports,
//! no telemetry, logs of warnings only, and retries after 100 ms each.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use measure::{Peer, Seen, Server, Stage, free_port};
use restate_sdk::prelude::*;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

struct Jobs(Arc<Seen>);

#[service]
impl Jobs {
    #[handler]
    async fn nothing(&self, _: Context<'_>, job: u32) -> Result<u32, HandlerError> {
        Ok(self.0.call(job)?)
    }
}

struct Restate {
    server: Server,
    service: JoinHandle<()>,
    client: reqwest::Client,
    ingress: String,
}

impl Restate {
    async fn post(&self, path: &str, body: String) {
        let request = self.client.post(format!("{}/{path}", self.ingress));
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        // To its end, so that the connection is free again.
        answer.bytes().await.expect("a body");
    }
}

impl Peer for Restate {
    const NAME: &'static str = "restate";

    async fn start(stage: Stage) -> Self {
        let (ingress, admin, node) = (free_port(), free_port(), free_port());
        let config = format!(
            r#"
            base-dir = "{folder}"
            node-name = "bench"
            listen-mode = "tcp"
            bind-ip = "127.0.0.1"
            bind-port = {node}
            advertised-host = "127.0.0.1"
            disable-telemetry = true
            log-filter = "warn"
            [default-retry-policy]
            initial-interval = "100ms"
            exponentiation-factor = 1.0
            max-interval = "100ms"
            [admin]
            bind-port = {admin}
            [ingress]
            bind-port = {ingress}
            "#,
            folder = stage.folder.display()
        );
        let file = stage.folder.join("restate.toml");
        fs::write(&file, config).expect("a file");
        let log = || File::create(stage.folder.join("log")).expect("a file");
        let program = std::env::var_os("RESTATE_SERVER").expect("RESTATE_SERVER, as `run` sets it");
        let mut command = Command::new(program);
        command.arg("--no-logo").arg("--config-file").arg(file).stdout(log()).stderr(log());
        let server = Server::start(&mut command);

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("an address");
        let endpoint = Endpoint::builder().bind(Jobs(stage.seen)).build();
        let service = tokio::spawn(HttpServer::new(endpoint).serve(listener));

        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let deployment = format!(r#"{{"uri": "http://{here}"}}"#);
        let deployments = format!("http://127.0.0.1:{admin}/deployments");
        let health = format!("http://127.0.0.1:{ingress}/restate/health");
        let registers = || client.post(&deployments).header("content-type", "application/json");
        while !registers()
            .body(deployment.clone())
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while !client.get(&health).send().await.is_ok_and(|answer| answer.status().is_success()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Self { server, service, client, ingress: format!("http://127.0.0.1:{ingress}") }
    }

    async fn submit(&self, job: u32) {
        self.post("Jobs/nothing/send", job.to_string()).await;
    }

    async fn submit_and_wait(&self, job: u32) {
        self.post("Jobs/nothing", job.to_string()).await;
    }

    async fn delay(&self, job: u32) {
        self.post("Jobs/nothing/send?delay=1h", job.to_string()).await;
    }

    fn server(&self) -> u32 {
        self.server.id()
    }

    async fn stop(&self) {
        self.service.abort();
    }
}

#[tokio::main]
async fn main() {
    measure::all::<Restate>().await;
}

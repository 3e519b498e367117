//! Whether the server is ready: for those who ask, and for the log when it changes.

use std::time::Duration;

use axum::http::StatusCode;
use steadfast_api::proto::jobs_server::JobsServer;
use tonic_health::server::HealthReporter;

use crate::grpc::JobsService;
use crate::health::{Health, Unready};
use crate::http::WorkerQueries as _;
use crate::sessions::FleetQueries;

/// An engine that does not answer for so long is not ready.
const READY_WITHIN: Duration = Duration::from_secs(1);
/// How often the server looks whether it is still ready, to say so when it is not.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn ready(readiness: Readiness) -> (StatusCode, String) {
    match readiness.look().await {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Whether the server can do its work: its folder, and its engine.
#[derive(Clone, Debug)]
pub(super) struct Readiness {
    pub(super) health: Health,
    pub(super) fleet: FleetQueries,
}

impl Readiness {
    async fn look(&self) -> Option<Unready> {
        let health = self.health.clone();
        let looking = async {
            match tokio::task::spawn_blocking(move || health.unready()).await {
                Ok(None) => self.fleet.list().await.err().map(|_| Unready::Silent),
                Ok(why) => why,
                Err(_) => Some(Unready::Silent),
            }
        };
        tokio::time::timeout(READY_WITHIN, looking).await.unwrap_or(Some(Unready::Silent))
    }

    /// Says in the log, and by gRPC's health, when it is not ready any more, and when it is again.
    pub(super) async fn tell(self, serving: HealthReporter) {
        let mut told: Option<&'static str> = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let why = self.look().await;
            let folder = self.health.place();
            match why {
                Some(why) if told != Some(why.code()) => {
                    tracing::error!(event = "NotReady", %folder, code = why.code(), reason = %why);
                    serving.set_not_serving::<JobsServer<JobsService>>().await;
                }
                None if told.is_some() => {
                    tracing::info!(event = "Ready", %folder, after = told);
                    serving.set_serving::<JobsServer<JobsService>>().await;
                }
                _ => {}
            }
            told = why.map(Unready::code);
            let health = self.health.clone();
            let _ = tokio::task::spawn_blocking(move || health.lay_ballast()).await;
        }
    }
}

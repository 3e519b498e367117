//! The operator's settings: a TOML file, and the environment over it.
//!
//! What can be set, how it is documented and what it defaults to is one table, in `table`. Settings
//! are read once, at the start; everything that is wrong is told at once, each with its place.
//! Nothing here opens a socket or acts on a setting.

mod check;
mod document;
mod read;
mod table;

use std::net::IpAddr;
use std::path::Path;

use steadfast_jobfile::Operator;
use steadfast_jobfile::fluster::FlusterDefaults;

pub use crate::observability::LogFormat;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub server: ServerSettings,
    pub store: StoreSettings,
    pub blobs: BlobSettings,
    /// `[retry]`, `[retry_budget]`, `[best_effort]`, and of `[limits]` the job file and its fan-out.
    pub operator: Operator,
    pub fluster: FlusterDefaults,
    pub limits: LimitSettings,
    pub retention: RetentionSettings,
    pub workers: WorkerSettings,
    pub callbacks: CallbackSettings,
    pub metrics: MetricSettings,
    pub log: LogSettings,
    pub otel: OtelSettings,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    pub listen: String,
    /// None: nobody said, so that the address decides; see [`Config::check_exposure`].
    pub auth: Option<Auth>,
    pub public_url: Option<String>,
    pub peers: Vec<String>,
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    pub tls_client_ca: Option<String>,
    pub tls_handshake_timeout_ms: u64,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub max_connections: u32,
    pub max_connections_per_address: u32,
    pub max_streams: u32,
    pub max_headers: u32,
    pub max_header_bytes: usize,
    pub max_body_bytes: usize,
    pub max_unread_bytes: usize,
    pub header_timeout_ms: u64,
    pub body_timeout_ms: u64,
    pub write_timeout_ms: u64,
    pub idle_timeout_ms: u64,
    pub shutdown_grace_ms: u64,
}

/// Whether requests need a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    Required,
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    pub output_bytes: usize,
    pub log_bytes: usize,
    pub jobs_per_page: u32,
    pub jobs_per_page_max: u32,
    pub items_per_page: u32,
    pub items_per_page_max: u32,
    pub attached_files: u32,
    pub attached_total_bytes: usize,
    pub disk_reserve_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// None: forever.
    pub finished_jobs_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    pub lease_ms: u64,
    pub beat_ms: u64,
    pub quarantine_after: u32,
    pub quarantine_not_begun: u32,
    pub quarantine_time_ms: u64,
    pub quarantine_time_max_ms: u64,
}

#[derive(Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// None: the data folder.
    pub url: Option<String>,
    /// How many shards it is made with. None: 64, or whatever it has.
    pub shards: Option<u32>,
    /// See [`steadfast_engine::FleetRules::tolerance_ms`].
    pub tolerance_ms: u64,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self { url: None, shards: None, tolerance_ms: 60_000 }
    }
}

/// A URL may have a password in it.
impl std::fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.url.is_some() { "a database" } else { "the data folder" };
        write!(f, "StoreSettings({place})")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobSettings {
    /// None: where jobs are. There are no keys in it.
    pub url: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct CallbackSettings {
    pub signing_secrets: Vec<String>,
}

impl std::fmt::Debug for CallbackSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallbackSettings({} secrets)", self.signing_secrets.len())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSettings {
    pub per_job: bool,
    pub per_job_max: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub format: LogFormat,
    pub level: tracing::Level,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtelSettings {
    pub endpoint: Option<String>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7117".to_owned(),
            auth: None,
            public_url: None,
            peers: Vec::new(),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_handshake_timeout_ms: 10_000,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_connections: 4096,
            max_connections_per_address: 512,
            max_streams: 256,
            max_headers: 100,
            max_header_bytes: 32 << 10,
            max_body_bytes: 64 << 20,
            max_unread_bytes: 64 << 20,
            header_timeout_ms: 10_000,
            body_timeout_ms: 120_000,
            write_timeout_ms: 60_000,
            idle_timeout_ms: 120_000,
            shutdown_grace_ms: 10_000,
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            output_bytes: 1 << 20,
            log_bytes: 64 << 20,
            jobs_per_page: 100,
            jobs_per_page_max: 1000,
            items_per_page: 100,
            items_per_page_max: 1000,
            attached_files: 1000,
            attached_total_bytes: 32 << 20,
            disk_reserve_bytes: 64 << 20,
        }
    }
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self { finished_jobs_ms: Some(30 * 86_400_000) }
    }
}

impl Default for WorkerSettings {
    fn default() -> Self {
        // Ten beats in a lease: with a third of them lost, a false loss is one in a hundred thousand.
        Self {
            lease_ms: 30_000,
            beat_ms: 3000,
            quarantine_after: 5,
            quarantine_not_begun: 3,
            quarantine_time_ms: 30_000,
            quarantine_time_max_ms: 600_000,
        }
    }
}

impl Default for MetricSettings {
    fn default() -> Self {
        Self { per_job: true, per_job_max: 1000 }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: tracing::Level::INFO }
    }
}

impl Config {
    /// The file's settings over the defaults, `STEADFAST_SECTION__KEY` over the file's, AD-44's names
    /// over both. `names` are those of all environment variables, so that a misspelled one is not
    /// silently ignored. The errors are all there are.
    pub fn load(
        path: Option<&Path>,
        env: impl Fn(&str) -> Option<String>,
        names: impl IntoIterator<Item = String>,
    ) -> Result<Self, Vec<String>> {
        let mut settings = read::Settings::default();
        if let Some(path) = path {
            settings.read_file(path);
        }
        settings.read_env(&env, names);
        let (mut config, mut errors) = settings.apply();
        match config.operator.clone().with_env(env) {
            Ok(operator) => config.operator = operator,
            Err(wrong) => errors.extend(wrong),
        }
        if errors.is_empty() {
            errors.extend(config.contradictions());
        }
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// A file that sets everything to its default, and says what it is.
    pub fn document() -> String {
        document::document()
    }

    /// Settings that are each possible, but not beside each other.
    fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let server = &self.server;
        if server.tls_cert.is_some() != server.tls_key.is_some() {
            let (there, missing) = match server.tls_cert {
                Some(_) => ("tls_cert", "tls_key"),
                None => ("tls_key", "tls_cert"),
            };
            wrong.push(format!("server.{there} is set without server.{missing}: TLS needs both"));
        }
        if server.tls_client_ca.is_some() && server.tls_cert.is_none() {
            wrong.push(
                "server.tls_client_ca is set without server.tls_cert: client certificates need TLS"
                    .to_owned(),
            );
        }
        if self.callbacks.signing_secrets.len() > 2 {
            wrong.push(
                "callbacks.signing_secrets has more than two: the new one, and the one before it"
                    .to_owned(),
            );
        }
        if self.workers.beat_ms.saturating_mul(2) > self.workers.lease_ms {
            wrong.push(
                "workers.beat must be half of workers.lease at most: one lost beat must not lose a worker"
                    .to_owned(),
            );
        }
        if self.workers.quarantine_time_ms > self.workers.quarantine_time_max_ms {
            wrong.push(
                "workers.quarantine_time is longer than workers.quarantine_time_max".to_owned(),
            );
        }
        let limits = &self.limits;
        for (what, given, most) in [
            ("jobs", limits.jobs_per_page, limits.jobs_per_page_max),
            ("items", limits.items_per_page, limits.items_per_page_max),
        ] {
            if given > most {
                wrong.push(format!(
                    "limits.{what}_per_page is {given}, more than limits.{what}_per_page_max, {most}"
                ));
            }
        }
        wrong
    }

    /// Whether requests to this address need a token, or why the server must not start: exit status 2.
    /// `tokens` is how many would be accepted now.
    pub fn check_exposure(&self, address: IpAddr, tokens: usize) -> Result<Auth, String> {
        let loopback = is_loopback(address);
        let auth = self.server.auth.unwrap_or(if loopback { Auth::None } else { Auth::Required });
        match auth {
            Auth::None if !loopback => Err(format!(
                "auth `none` is for loopback only, and {address} can be reached from elsewhere: \
                 make a token with `steadfast token create --scope admin`, and start with \
                 `--auth required`; or listen on 127.0.0.1"
            )),
            Auth::Required if tokens == 0 => {
                Err("auth is `required`, and there is no token yet: make one with \
                 `steadfast token create --scope admin`, with the same data folder"
                    .to_owned())
            }
            auth => Ok(auth),
        }
    }
}

/// Also of an IPv4 address in IPv6's clothes.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

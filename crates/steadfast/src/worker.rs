//! A worker within the program: it registers functions, and runs them for a server.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_api::WorkerReport;
use steadfast_core::outcome::Outcome;
use steadfast_worker::KILL_GRACE;
use steadfast_worker::http::{Allowed, Outbound};
use steadfast_worker::remote::{Call, Functions, Handle, RemoteConfig, RemoteError, Task, serve};

use crate::error::FunctionError;
use crate::{Context, Error, Server, temporary};

/// Functions wait more than they work, mostly.
const SLOTS_PER_CORE: u32 = 16;
const DRAIN_GRACE: Duration = Duration::from_secs(25);

/// Why a worker does not run, or not any more.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WorkerError(#[from] WorkerErrorKind);

#[derive(Debug, thiserror::Error)]
enum WorkerErrorKind {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("no folder for the worker: {0}; give it one with `processes`")]
    Folder(std::io::Error),
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

impl From<RemoteError> for WorkerError {
    fn from(error: RemoteError) -> Self {
        Self(error.into())
    }
}

type Function = Box<dyn Fn(Call) -> Task + Send + Sync>;

/// Runs functions for a server. Made by [`Worker::builder`].
#[derive(Debug)]
pub struct Worker(WorkerBuilder);

/// What a worker is called, and what it can do.
#[derive(Debug)]
#[must_use = "a worker does nothing until it runs"]
pub struct WorkerBuilder {
    name: Option<String>,
    datacenter: Option<String>,
    labels: BTreeMap<String, String>,
    slots: Option<u32>,
    cpu: Option<f64>,
    memory_bytes: Option<u64>,
    processes: Option<PathBuf>,
    services: Option<Outbound>,
    secrets: Vec<String>,
    grace: Duration,
    drain_grace: Duration,
    functions: Registered,
    servers: Vec<String>,
}

#[derive(Default)]
struct Registered(BTreeMap<String, Function>);

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Functions for Registered {
    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn call(&self, call: Call) -> Option<Task> {
        self.0.get(&call.name).map(|function| function(call))
    }
}

impl Worker {
    /// ```
    /// use steadfast::{Context, Error, Worker};
    ///
    /// async fn double(_: Context, number: u64) -> Result<u64, Error> {
    ///     number.checked_mul(2).ok_or_else(|| Error::permanent("too large to double"))
    /// }
    ///
    /// let worker = Worker::builder().name("mathematician").function("double", double).build();
    /// # drop(worker);
    /// ```
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder {
            name: None,
            datacenter: None,
            labels: BTreeMap::new(),
            slots: None,
            cpu: None,
            memory_bytes: None,
            processes: None,
            services: None,
            secrets: Vec::new(),
            grace: KILL_GRACE,
            drain_grace: DRAIN_GRACE,
            functions: Registered::default(),
            servers: Vec::new(),
        }
    }

    /// Runs what the server assigns, through restarts of the server, until the server drains this worker.
    /// If the future is dropped, so is what runs.
    pub async fn run(self, server: impl Into<Server>) -> Result<(), WorkerError> {
        self.run_until(server, std::future::pending::<()>()).await
    }

    /// The same until `stop`: functions that run are asked to end, have their grace, and are reported, so
    /// that the server gives them to others at once.
    ///
    /// ```no_run
    /// # async fn example(worker: steadfast::Worker) -> Result<(), steadfast::WorkerError> {
    /// worker.run_until("http://127.0.0.1:7117", tokio::signal::ctrl_c()).await
    /// # }
    /// ```
    pub async fn run_until<T>(
        self,
        server: impl Into<Server>,
        stop: impl Future<Output = T>,
    ) -> Result<(), WorkerError> {
        let (handle, orders) = Handle::new();
        let (config, _folder) = self.config(server.into())?;
        let mut working = std::pin::pin!(serve(config, orders));
        tokio::select! {
            ended = &mut working => return Ok(ended?),
            _ = stop => handle.drain(),
        }
        Ok(working.await?)
    }

    /// One without a name of its own has this one.
    #[cfg(feature = "embedded")]
    pub(crate) fn or_named(mut self, name: impl FnOnce() -> String) -> Self {
        self.0.name.get_or_insert_with(name);
        self
    }

    /// And its folder, if it is only for now.
    fn config(
        self,
        server: Server,
    ) -> Result<(RemoteConfig, Option<tempfile::TempDir>), WorkerError> {
        let builder = self.0;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let name = match builder.name {
            Some(name) => name,
            None => format!("rust-{:08x}", getrandom::u32().map_err(WorkerErrorKind::Random)?),
        };
        let (folder, temporary) = match builder.processes.clone() {
            Some(folder) => (folder, None),
            None => {
                let made = temporary::folder(&std::env::temp_dir());
                let made = made.map_err(WorkerErrorKind::Folder)?;
                (made.path().to_owned(), Some(made))
            }
        };
        let config = RemoteConfig {
            servers: std::iter::once(server.address).chain(builder.servers).collect(),
            token: server.token,
            tls: server.tls,
            door: server.door,
            name,
            datacenter: builder.datacenter,
            labels: builder.labels,
            slots: builder.slots.unwrap_or(SLOTS_PER_CORE.saturating_mul(cores)),
            cpu: builder.cpu,
            memory_bytes: builder.memory_bytes,
            processes: builder.processes.is_some(),
            functions: Some(Arc::new(builder.functions)),
            outbound: builder.services,
            pass_env: Vec::new(),
            folder,
            secrets: None,
            secrets_allowed: builder.secrets,
            users: None,
            grouped: false,
            drain_grace: builder.drain_grace,
            kill_grace: builder.grace,
            keep: false,
        };
        Ok((config, temporary))
    }
}

impl WorkerBuilder {
    /// Unique among the workers of the server. Otherwise something random.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Addresses of other servers than the one it [runs](Worker::run) for, which know it by the same token: it runs what
    /// any of them assigns, and has some of its slots for each.
    ///
    /// ```
    /// let worker = steadfast::Worker::builder().servers(["http://10.0.0.2:7117"]).build();
    /// # drop(worker);
    /// ```
    pub fn servers<T: Into<String>>(mut self, addresses: impl IntoIterator<Item = T>) -> Self {
        self.servers = addresses.into_iter().map(Into::into).collect();
        self
    }

    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// What steps can ask their worker to carry.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// How many attempts at once. Otherwise 16 for each core.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Cores that steps can ask for. Otherwise they are not counted.
    pub fn cpu(mut self, cores: f64) -> Self {
        self.cpu = Some(cores);
        self
    }

    /// Memory that steps can ask for. Otherwise it is not counted.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// It runs `http` steps too. Addresses that are not the internet's are called only if they are allowed:
    /// `loopback`, `private`, `link-local`, or a block as `10.0.0.0/8`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = steadfast::Worker::builder().services(["loopback".parse()?]).build();
    /// # let _ = worker;
    /// # Ok(())
    /// # }
    /// ```
    pub fn services(mut self, allow: impl IntoIterator<Item = Allowed>) -> Self {
        self.services =
            Some(Outbound { allow: allow.into_iter().collect(), ..Outbound::default() });
        self
    }

    /// Secrets that steps may have which name them, as names in which `*` stands for anything. The values are
    /// files in `secrets` of the folder for [processes](Self::processes), or variables `STEADFAST_SECRET_NAME`.
    /// Otherwise no step gets one.
    pub fn secrets<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.secrets = names.into_iter().map(Into::into).collect();
        self
    }

    /// It runs `run` and `argv` steps too, as processes, in this folder, which is its own.
    pub fn processes(mut self, folder: impl Into<PathBuf>) -> Self {
        self.processes = Some(folder.into());
        self
    }

    /// How long a function that [listens](Context::cancelled) has to end when its attempt is not wanted any
    /// more, and a process from SIGTERM to SIGKILL.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The same when the worker has to go. Otherwise 25 seconds.
    pub fn drain_grace(mut self, grace: Duration) -> Self {
        self.drain_grace = grace;
        self
    }

    /// What `call: NAME` runs. Input and output are JSON in the job, and types here: an input that does not
    /// fit is a permanent failure.
    ///
    /// A function must not keep its thread busy for long without waiting for something: it could not be
    /// ended. `tokio::task::spawn_blocking` is for that.
    pub fn function<I, O, E, How, F, R>(mut self, name: impl Into<String>, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        E: FunctionError<How>,
        F: Fn(Context, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
    {
        let function = Arc::new(function);
        let boxed = move |call: Call| -> Task {
            let function = function.clone();
            Box::pin(async move {
                let Call { input, assignment, control, .. } = call;
                let input = match serde_json::from_str(&input) {
                    Ok(input) => input,
                    Err(error) => {
                        let why = format!("the input does not fit the function: {error}");
                        let error = Error::permanent(why).kind("input");
                        return WorkerReport::Ended(error.outcome());
                    }
                };
                // The function itself may panic before its future exists; that is caught with the rest.
                let ended = function(Context::new(assignment, control), input).await;
                WorkerReport::Ended(outcome(ended.map_err(FunctionError::into_error)))
            })
        };
        self.functions.0.insert(name.into(), Box::new(boxed));
        self
    }

    pub fn build(self) -> Worker {
        Worker(self)
    }
}

fn outcome(ended: Result<impl Serialize, Error>) -> Outcome {
    let output = match ended {
        Ok(output) => serde_json::to_value(output),
        Err(error) => return error.outcome(),
    };
    match output {
        // `()` is no output.
        Ok(output) => {
            Outcome::Succeeded { output: Some(output).filter(|output| !output.is_null()) }
        }
        Err(error) => {
            let why = format!("the output cannot be written as JSON: {error}");
            Error::permanent(why).kind("output").outcome()
        }
    }
}

//! `server`, `worker` and `up`: what serves until it is told to stop.

mod own;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_server::config::{Auth, Config};
use steadfast_server::observability::{LogFormat, Metrics, ProcessFacts, init_stderr};
use steadfast_server::serve::{Running, ServerOptions, StartError, start};
use steadfast_store::{Storage, storage_with_shards, with_blobs_at};
use steadfast_worker::remote::{
    ClientTls, Handle, LocalTokens, RemoteConfig, RemoteError, Token, serve,
};
use steadfast_worker::{KILL_GRACE, Users};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::args::{AuthArg, Output, ServeArgs, ServerArgs, UpArgs, WorkerArgs};
use crate::clock::{self, SystemClock};
use crate::data::Data;
use crate::run::default_slots;
use crate::style::{BOLD, DIM, paint};
use crate::{Done, Exit, client, input, signals};
use own::{OwnTokens, WORKER_FOLDER, worker_name};

pub(crate) fn server(args: &ServerArgs) -> Done {
    if args.print_config {
        print!("{}", Config::document());
        return Ok(Exit::Ok);
    }
    until_it_ends(async {
        let opened = settings(&args.serve)
            .and_then(|config| Ok((storage(&config, args.serve.data.as_deref())?, config)));
        let (storage, config) = match opened {
            Ok(opened) => opened,
            Err(wrong) => return refuse(&wrong),
        };
        let running = match begin(config, storage).await {
            Ok(running) => running,
            Err(error) => return not_started(&error),
        };
        tell(&running, "listens on");
        end(running.until(asked_to_stop()).await)
    })
}

pub(crate) fn up(args: &UpArgs) -> Done {
    steadfast_worker::adopt_orphans();
    until_it_ends(async {
        let opened = settings(&args.serve).and_then(|config| {
            let data = args.serve.data.as_deref();
            Ok((storage(&config, data)?, Data::at(data)?, config))
        });
        let (storage, data, mut config) = match opened {
            Ok(opened) => opened,
            Err(wrong) => return refuse(&wrong),
        };
        if config.server.tls_cert.is_some() {
            return refuse(
                "`up` is for one machine, without TLS: start `steadfast server` and `steadfast \
                 worker` apart",
            );
        }
        let name = match worker_name(&config, &data) {
            Ok(name) => name,
            Err(wrong) => return refuse(&wrong),
        };
        // Other users of this machine come in only if the operator says so.
        let for_its_user = config.server.auth.is_none();
        config.server.auth.get_or_insert(Auth::Required);
        let own = match config.server.auth {
            Some(Auth::Required) => match OwnTokens::make(&*storage, &name) {
                Ok(own) => Some(own),
                Err(wrong) => return refuse(&wrong),
            },
            _ => None,
        };
        let running = match begin(config, storage).await {
            Ok(running) => running,
            Err(error) => return not_started(&error),
        };
        let left = own.as_ref().filter(|_| for_its_user).map(|own| {
            own.forget_earlier();
            LocalTokens::leave(running.address().port(), &own.client, &own.worker)
        });
        let _left = match left.transpose() {
            Ok(left) => left,
            Err(error) => return refuse(&error.to_string()),
        };
        let worker = RemoteConfig {
            servers: vec![running.url()],
            token: own.as_ref().map(|own| own.worker.clone()),
            secrets_allowed: vec!["*".to_owned()],
            datacenter: args.datacenter.clone(),
            slots: args.slots.unwrap_or_else(default_slots),
            outbound: Some(args.outbound.here()),
            ..remote_defaults(name, data.folder.root().join(WORKER_FOLDER))
        };
        tell(&running, "server and worker, on");
        let (handle, orders) = Handle::new();
        let (worked, well) = (Notify::new(), Cell::new(None));
        let working = async {
            let ended = serve(worker, orders).await;
            well.set(Some(ended.is_ok()));
            worked.notify_one();
            ended
        };
        let stopping = async {
            let mut asked = pin!(asked_to_stop());
            tokio::select! {
                () = &mut asked => {}
                () = worked.notified() => {
                    // One that was drained has left in order: the server goes on for others.
                    if well.get() == Some(true) {
                        asked.await;
                    }
                }
            }
            handle.drain();
            if well.get().is_none() {
                worked.notified().await;
            }
        };
        let serving = async {
            let ended = running.until(stopping).await;
            // A server that can go on no more leaves its worker no server to speak to.
            handle.kill();
            ended
        };
        let (ended, worked) = tokio::join!(serving, working);
        drop(own);
        match worked {
            Err(error) if ended.is_ok() => refuse(&error.to_string()),
            _ => end(ended),
        }
    })
}

pub(crate) fn worker(args: &WorkerArgs) -> Done {
    let name = args.name.clone().unwrap_or_else(host_name);
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => match Data::at(args.data.as_deref()) {
            Ok(data) => data.folder.root().join(format!("worker-{}", file_name(&name))),
            Err(wrong) => return refuse(&wrong),
        },
    };
    let token = match &args.token_file {
        Some(path) => client::Token::read(path).map(|token| Some(token.text())),
        None => Ok(args.token.clone()),
    };
    let slots = args.slots.unwrap_or_else(default_slots);
    let users = args.user.as_deref().map(|user| Users::parse(user, slots)).transpose();
    let (token, users) = match (token, users) {
        (Ok(token), Ok(users)) => (token, users),
        (Err(wrong), _) => return refuse(&wrong),
        (_, Err(wrong)) => return refuse(&wrong.to_string()),
    };
    steadfast_worker::adopt_orphans();
    let defaults = remote_defaults(name, folder);
    let identity = args.cert.clone().zip(args.key.clone());
    let is_secure = args.servers.iter().any(|server| server.starts_with("https"));
    let tls = (args.ca.is_some() || identity.is_some() || is_secure)
        .then(|| ClientTls { ca: args.ca.clone(), identity });
    let config = RemoteConfig {
        servers: args.servers.clone(),
        token: token.map(Token),
        tls,
        datacenter: args.datacenter.clone(),
        labels: args.labels.iter().cloned().collect(),
        slots,
        cpu: args.cpu.or(defaults.cpu),
        memory_bytes: args.memory.or(defaults.memory_bytes),
        pass_env: args.pass_env.clone(),
        secrets: args.secrets.clone(),
        secrets_allowed: args.secret_names.clone(),
        users: users.map(Arc::new),
        drain_grace: args.grace,
        keep: args.keep,
        outbound: Some(args.outbound.elsewhere()),
        ..defaults
    };
    let about = ProcessFacts {
        version: env!("CARGO_PKG_VERSION"),
        started_at: clock::now(),
        per_job_max: 0,
    };
    let filter = std::env::var("STEADFAST_LOG__LEVEL").unwrap_or_else(|_| "info".to_owned());
    let _log = match init_stderr(LogFormat::Text, &filter, &Metrics::new(&about)) {
        Ok(log) => log,
        Err(error) => return refuse(&error.to_string()),
    };
    runtime()?.block_on(async {
        let (handle, orders) = Handle::new();
        tokio::spawn(async move {
            asked_to_stop().await;
            handle.drain();
            asked_to_stop().await;
            handle.kill();
        });
        match serve(config, orders).await {
            Ok(()) => Ok(Exit::Ok),
            Err(error @ RemoteError::Leftovers(_)) => {
                refuse(&error.to_string()).map(|_| Exit::Failed)
            }
            Err(error) => refuse(&error.to_string()),
        }
    })
}

/// What still runs when it has ended is not waited for: a large file that a client sent and left, say.
fn until_it_ends(serving: impl Future<Output = Done>) -> Done {
    let runtime = runtime()?;
    let done = runtime.block_on(serving);
    runtime.shutdown_background();
    done
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// Settings of the file and the environment, or all that is wrong with them.
pub(crate) fn config(file: Option<&Path>) -> Result<Config, Vec<String>> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let env = |name: &str| std::env::var(name).ok();
    Config::load(file, env, names)
}

/// Settings of the file, the environment and the flags, in this order.
fn settings(args: &ServeArgs) -> Result<Config, String> {
    let mut config = config(args.config.as_deref()).map_err(|wrong| wrong.join("\n"))?;
    if let Some(listen) = &args.listen {
        config.server.listen.clone_from(listen);
    }
    if let Some(auth) = args.auth {
        config.server.auth = Some(match auth {
            AuthArg::Required => Auth::Required,
            AuthArg::None => Auth::None,
        });
    }
    if let Some(store) = args.place.url() {
        config.store.url = Some(store.to_owned());
    }
    if let Some(shards) = args.shards {
        config.store.shards = Some(shards.into());
    }
    if let Some(url) = &args.blobs.url {
        config.blobs.url = Some(url.clone());
    }
    Ok(config)
}

/// The database that the settings name, or the data folder; with files and logs where they say.
fn storage(config: &Config, data: Option<&Path>) -> Result<Arc<dyn Storage>, String> {
    let shards = config.store.shards.and_then(|shards| u16::try_from(shards).ok());
    let storage = match &config.store.url {
        Some(url) => storage_with_shards(url, shards).map_err(|error| error.to_string())?,
        None if shards.is_some() => {
            let wrong = "a data folder has no shards: leave --shards (store.shards) out, or give a database with --store";
            return Err(wrong.to_owned());
        }
        None => {
            let data = Data::at(data)?;
            data.create()?;
            data.folder.storage()
        }
    };
    with_blobs(storage, config.blobs.url.as_deref())
}

pub(crate) fn with_blobs(
    storage: Arc<dyn Storage>,
    url: Option<&str>,
) -> Result<Arc<dyn Storage>, String> {
    match url {
        Some(url) => with_blobs_at(storage, url).map_err(|error| error.to_string()),
        None => Ok(storage),
    }
}

async fn begin(config: Config, storage: Arc<dyn Storage>) -> Result<Running, StartError> {
    start(ServerOptions { config, storage, clock: Arc::new(SystemClock), inside: None }).await
}

fn remote_defaults(name: String, folder: PathBuf) -> RemoteConfig {
    RemoteConfig {
        servers: Vec::new(),
        token: None,
        tls: None,
        door: None,
        name,
        datacenter: None,
        labels: BTreeMap::new(),
        slots: 1,
        cpu: std::thread::available_parallelism().ok().map(|cores| cores.get() as f64),
        memory_bytes: memory(),
        processes: true,
        functions: None,
        outbound: None,
        pass_env: Vec::new(),
        folder,
        secrets: None,
        secrets_allowed: Vec::new(),
        users: None,
        grouped: true,
        drain_grace: Duration::from_secs(25),
        kill_grace: KILL_GRACE,
        keep: false,
    }
}

/// All of this machine's.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = read.trim();
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}

/// Only what every file system takes.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

/// One of the signals that end us.
async fn asked_to_stop() {
    let mut listening = JoinSet::new();
    for kind in signals::that_end_us().into_iter().map(SignalKind::from_raw) {
        listening.spawn(async move {
            match signal(kind) {
                Ok(mut signals) => drop(signals.recv().await),
                Err(_) => std::future::pending().await,
            }
        });
    }
    listening.join_next().await;
}

fn tell(running: &Running, what: &str) {
    let address = paint(BOLD, running.url());
    anstream::println!("steadfast {what} {address}");
    anstream::println!("{}", paint(DIM, "its dashboard is there too: `steadfast open`"));
    anstream::println!("{}", paint(DIM, "Ctrl-C stops it; jobs go on when it is started again"));
}

fn not_started(error: &StartError) -> Done {
    refuse(&error.to_string())
}

fn refuse(message: &str) -> Done {
    input::refuse("not_started", message, Output::Human).map(|()| Exit::Wrong)
}

fn end(ended: Result<(), steadfast_engine::Stopped>) -> Done {
    match ended {
        Ok(()) => Ok(Exit::Ok),
        Err(stopped) => {
            input::refuse("stopped", &stopped.to_string(), Output::Human).map(|()| Exit::Failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A file that a client sent is read on such a thread, which nobody can interrupt.
    #[test]
    fn the_end_does_not_wait_for_a_file_that_is_being_read() {
        let (begin, begun) = channel();
        let (go_on, gate) = channel::<()>();
        let (end, ended) = channel();
        std::thread::spawn(move || {
            let done = until_it_ends(async move {
                tokio::task::spawn_blocking(move || {
                    begin.send(()).expect("the test waits");
                    gate.recv()
                });
                begun.recv().expect("it begins");
                Ok(Exit::Ok)
            });
            end.send(done.is_ok()).expect("the test waits");
        });
        let ended = ended.recv_timeout(std::time::Duration::from_secs(20));
        drop(go_on);
        assert_eq!(ended, Ok(true), "the program waits for a reading that is not over");
    }
}

//! The worker of its servers: its executor, and the ways to them.

use std::ops::Deref;
use std::sync::Arc;

use steadfast_core::plan::milli_cpus;

use super::link::Link;
use super::server::Server;
use super::transport::SessionTransport;
use super::worker_dir::WorkerDir;
use super::{RemoteConfig, RemoteError};
use crate::executor::PREEMPTED;
use crate::resources::Capacity;
use crate::{Driver, Transport as _};

/// More than any installation has: a server that names more has gone wrong.
const MOST_SERVERS: usize = 64;

/// The worker of its servers: its executor, and the ways to them. Clones are the same worker.
#[derive(Clone, Debug)]
pub(super) struct Worker(pub(super) Driver<SessionTransport>);

impl Deref for Worker {
    type Target = SessionTransport;

    fn deref(&self) -> &SessionTransport {
        self.0.transport()
    }
}

impl Worker {
    pub(super) fn new(config: RemoteConfig, dir: WorkerDir) -> Result<Self, RemoteError> {
        let (path, slots) = (dir.root().to_owned(), config.slots);
        let cpu_milli = config.cpu.map(milli_cpus);
        let capacity = Capacity { cpu_milli, memory_bytes: config.memory_bytes };
        let runtime = tokio::runtime::Handle::current();
        let transport = SessionTransport::new(config, dir, &runtime)?;
        let driver = Driver::start(slots, capacity, transport, Some(runtime));
        let worker = driver.map(Self).map_err(|source| RemoteError::Folder { path, source })?;
        for _ in 1..worker.servers().len() {
            worker.0.with(crate::Executor::add_source);
        }
        Ok(worker)
    }

    pub(super) fn link(&self, server: &Arc<Server>) -> Link {
        Link::new(self, server)
    }

    /// A server has named others.
    pub(super) fn learn(&self, peers: &[String]) {
        for address in peers {
            if self.servers().len() >= MOST_SERVERS || self.knows(address) {
                continue;
            }
            let add = || self.0.with(crate::Executor::add_source);
            match self.add_learned(address, add) {
                Ok(()) => tracing::info!(server = %address, "learned of another server"),
                Err(error) => tracing::warn!(%error, "another server cannot be used"),
            }
        }
    }

    /// Every session there is may end.
    pub(super) fn say_goodbye(&self) {
        self.leave();
        self.changed();
    }

    /// All servers want nothing new taken.
    pub(super) fn is_drained(&self) -> bool {
        let servers = self.servers();
        let drained = self.0.with(|executor| {
            servers.iter().all(|server| executor.draining(server.source).is_some())
        });
        drained && self.is_idle() && self.is_heard()
    }

    /// At once, and nothing new.
    pub(super) fn kill_all(&self) {
        self.0.drain(PREEMPTED);
        self.0.preempt();
        self.0.kill_all();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

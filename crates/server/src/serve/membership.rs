//! A server's place in its storage: alone there, or one of those that share it.
//!
//! Once a second it says that it is there, and hears what has changed: shards that it has now, which the engine goes on with, shards that
//! it is to give away, and that others took it for dead, and with that everything it had.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::time::Timestamp;
use steadfast_engine::{Clock, Inbox};
use steadfast_store::{Claim, ClaimError, OwnedShards, Owner, Renewal, Storage, StoreError};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::StartError;
use crate::peers::PeerService;
use crate::sessions::SessionRegistry;

/// How often it says that it is there: so much of a downtime can go unnoticed.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Membership {
    claim: Arc<dyn Claim>,
    place: String,
    /// Renews it.
    alive: Option<(Arc<Notify>, JoinHandle<()>)>,
    /// Does what other servers ask.
    serving: Option<JoinHandle<()>>,
}

impl Membership {
    pub(super) async fn take(storage: &Arc<dyn Storage>) -> Result<Self, StartError> {
        let place = storage.place();
        let claiming = storage.clone();
        let claim = tokio::task::spawn_blocking(move || claiming.claim()).await;
        let claim = claim.map_err(|_| StartError::Stopped)?.map_err(|error| match error {
            ClaimError::Taken => StartError::Taken { place: place.clone() },
            ClaimError::Moved(why) => StartError::Storage { place: place.clone(), why },
            ClaimError::Io(error) => unusable(&place, &error),
        })?;
        Ok(Self { claim: claim.into(), place, alive: None, serving: None })
    }

    pub(super) fn owner(&self) -> Arc<str> {
        self.claim.owner()
    }

    /// When the one before was last there.
    pub(super) fn alive_at(&self) -> Option<Timestamp> {
        self.claim.alive_at()
    }

    pub(super) fn shards(&self) -> Arc<OwnedShards> {
        self.claim.shards()
    }

    /// Waits until there is something to serve. True: the epoch that was taken before is over.
    pub(super) async fn begin(&self, clock: &dyn Clock) -> Result<bool, StartError> {
        let (claim, now) = (self.claim.clone(), clock.now());
        let begun = tokio::task::spawn_blocking(move || claim.begin(now)).await;
        begun.map_err(|_| StartError::Stopped)?.map_err(|error| unusable(&self.place, &error))
    }

    /// From when on the time in which no server was there is kept.
    pub(super) fn keep(
        &mut self,
        inbox: Inbox,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        registry: SessionRegistry,
    ) {
        let ended = Arc::new(Notify::new());
        let renewing =
            Renewing { claim: self.claim.clone(), inbox, storage, clock, registry, is_told: false };
        self.alive = Some((ended.clone(), tokio::spawn(renewing.until(ended))));
    }

    pub(super) fn serve_others(&mut self, service: PeerService) {
        self.serving = Some(tokio::spawn(service.run()));
    }

    pub(super) async fn give_up(mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        if let Some((ended, renewing)) = self.alive.take() {
            ended.notify_one();
            let _ = renewing.await;
        }
        let claim = self.claim.clone();
        drop(self);
        // The database is told.
        let _ = tokio::task::spawn_blocking(move || drop(claim)).await;
    }
}

fn unusable(place: &str, error: &io::Error) -> StartError {
    StartError::Storage { place: place.to_owned(), why: error.to_string() }
}

/// Of one that did not start.
impl Drop for Membership {
    fn drop(&mut self) {
        let tasks = self.alive.take().map(|(_, renewing)| renewing);
        tasks.into_iter().chain(self.serving.take()).for_each(|task| task.abort());
    }
}

struct Renewing {
    claim: Arc<dyn Claim>,
    inbox: Inbox,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    registry: SessionRegistry,
    /// That it does not work.
    is_told: bool,
}

impl Renewing {
    async fn until(mut self, ended: Arc<Notify>) {
        loop {
            let (claim, now) = (self.claim.clone(), self.clock.now());
            let renewed = tokio::task::spawn_blocking(move || claim.renew(now)).await;
            match renewed {
                Ok(Ok(renewal)) => {
                    self.is_told = false;
                    self.registry.renewed();
                    self.heard(renewal).await;
                }
                Ok(Err(error)) if !self.is_told => {
                    tracing::warn!(event = "ClaimNotRenewed", %error);
                    self.is_told = true;
                }
                _ => {}
            }
            tokio::select! {
                () = ended.notified() => return,
                () = tokio::time::sleep(ALIVE_EVERY) => {}
            }
        }
    }

    async fn heard(&self, renewal: Renewal) {
        let Renewal { gained, give, lost, ended, is_ended } = renewal;
        for (owner, epoch) in ended {
            self.registry.server_ended(&owner, epoch);
        }
        for owner in lost {
            tracing::warn!(event = "ServerLost", %owner);
        }
        if is_ended {
            tracing::warn!(event = "ServerTakenOver", owner = %self.claim.owner());
            match self.epoch().await {
                Ok(owner) => {
                    let (tell, told) = oneshot::channel();
                    let (epoch, reply) =
                        (owner.epoch, Box::new(move |()| tell.send(()).unwrap_or_default()));
                    self.inbox.begin_anew(owner, reply);
                    // Before, the engine would take what workers hold for others for its own.
                    let _ = told.await;
                    self.registry.raise_epoch(epoch);
                }
                Err(error) => tracing::error!(event = "EpochNotTaken", %error),
            }
        }
        if !gained.is_empty() {
            tracing::info!(event = "ShardsGained", shards = gained.len());
            self.inbox.gain(gained);
        }
        for (to, shards) in give {
            tracing::info!(event = "ShardsGiven", shards = shards.len(), %to);
            self.inbox.give(shards, to);
        }
    }

    /// What it had is others' from now on; what comes is written in an epoch of its own.
    async fn epoch(&self) -> Result<Owner, StoreError> {
        loop {
            let (storage, owner) = (self.storage.clone(), self.claim.owner());
            let taken = tokio::task::spawn_blocking(move || {
                storage.journal()?.take(&owner, Timestamp(0), None)
            });
            match taken.await {
                Ok(Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. })) | Err(_) => {
                    tokio::time::sleep(ALIVE_EVERY).await;
                }
                Ok(taken) => return taken,
            }
        }
    }
}

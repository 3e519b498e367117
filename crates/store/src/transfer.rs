//! Moves all that a store has to another one: jobs that are over and jobs that are open, with their logs, files, keys, timers and
//! places in the queue, and what belongs to the installation: tokens, and the key that callbacks and workers are known by.
//!
//! Nobody serves either side meanwhile. The source is read, and marked as moved when all that came out at the target was read back and folded
//! to the same. Until then servers are kept out of the target by a [`MoveRecord`], also after a crash; the same move again
//! goes on where it was. One job after the other, page by page: memory is bounded by the state of one group of jobs.

mod blobs;
mod copy;
mod folder;
mod record;
mod verify;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use crate::{
    Blobs, Gap, IdempotencyKey, Journal, LogName, LogReader, Owner, Reader, Settings, Storage,
    StoreError,
};
use copy::{JobTransfer, Side, TransferRules};
use record::is_same_place;

pub(crate) use folder::FolderReservation;
pub use record::MoveRecord;
pub(crate) use record::NAME as MOVE_RECORD;

/// What a store must be able to do beside [`Storage`] to be moved, or moved to.
pub trait Movable: Storage {
    /// Keeps servers and other moves out until it is dropped.
    fn reserve(&self, side: MoveSide) -> Result<Box<dyn Reservation>, ReserveError>;

    fn transfer(&self) -> Result<Box<dyn Transfer>, StoreError>;

    /// Files and logs that are kept in it, and not elsewhere.
    fn own_blobs(&self) -> Arc<dyn MovableBlobs>;
}

pub trait MovableBlobs: Blobs {
    /// The logs of a job with these steps, in the order of their names.
    fn logs_of(&self, job: &str, steps: &BTreeSet<&str>) -> io::Result<Vec<LogAbout>>;

    /// A log as it is elsewhere, in place of what is here of it.
    fn put_log(&self, about: &LogAbout, content: &dyn LogReader) -> io::Result<()>;
}

/// What is known of a log beside what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAbout {
    pub log: LogName,
    pub length: u64,
    pub partial: bool,
    /// As [`Blobs::log_times`] tells them.
    pub times: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveSide {
    /// It must be there.
    Source,
    /// It is made.
    Target,
}

#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    #[error("there is nothing to move: no server was ever started there")]
    Nothing,
    #[error("a server has it. Stop it first, with all others that share it")]
    Served,
    #[error("another move of it is under way. Wait for its end")]
    Moving,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A store that nobody serves while this is held.
pub trait Reservation: Debug + Send {
    /// An error: others may have come in since, and nothing more may be done.
    fn check(&mut self) -> io::Result<()>;

    /// When a server last decided something there. None: none ever did.
    fn alive_at(&mut self) -> io::Result<Option<Timestamp>>;

    fn record(&mut self) -> io::Result<MoveRecord>;

    /// Durable when this returns; refused if the reservation is lost.
    fn mark(&mut self, record: &MoveRecord) -> io::Result<()>;

    /// All is here: synced, and as if the last server had been there then, so that the next one counts the time since.
    fn arrive(&mut self, alive_at: Option<Timestamp>) -> io::Result<()>;
}

/// Everything that is asked of a store's jobs by a move.
pub trait Transfer: Journal + Reader {
    /// Jobs with their numbers, in the order in which they were accepted, from the one after this number on.
    fn numbered(&mut self, after: i64, limit: usize) -> Result<Vec<(i64, JobId)>, StoreError>;

    /// Of whomever they are.
    fn count_all(&mut self) -> Result<u64, StoreError>;

    /// What the job was submitted with.
    fn key_of(&mut self, job: &str) -> Result<Option<IdempotencyKey>, StoreError>;

    /// That [`Owner::SHARD`] is in; 0: there is no such owner.
    fn epoch(&mut self) -> Result<u64, StoreError>;

    /// The gaps that a job was in and that ended after a moment, up to when the last server of all was there.
    fn downtime(
        &mut self,
        owner: &str,
        job: &str,
        after: Timestamp,
    ) -> Result<Vec<Gap>, StoreError>;

    /// From now on these are told of each job, beside those of its owner.
    fn keep_downtime(&mut self, jobs: &[(JobId, Vec<Gap>)]) -> Result<(), StoreError>;

    /// Makes [`Owner::SHARD`] the owner of all that is to come, in an epoch above that one, without any gaps.
    fn receive(&mut self, at: Timestamp, above: u64) -> Result<Owner, StoreError>;

    /// Whether no server has had it since it was received in this epoch.
    fn is_untouched(&mut self, epoch: u64) -> Result<bool, StoreError>;

    /// What servers have asked of each other, and nobody has answered yet.
    fn open_requests(&mut self) -> Result<u64, StoreError>;
}

#[derive(Clone, Copy, Debug)]
pub struct MoveOptions<'a> {
    /// The names of what [`Settings`] has.
    pub settings: &'a [&'a str],
    /// Jobs whose stored log cannot be read are left behind, instead of ending the move.
    pub skip_stuck: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveProgress {
    /// Moved and verified.
    pub jobs: u64,
    pub of: u64,
}

/// What was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    pub jobs: u64,
    /// Of these: not over, and go on at the target.
    pub open: u64,
    /// That came with jobs.
    pub files: u64,
    pub logs: u64,
    /// Open jobs of `run`, which stay where they are: a process of this machine goes on with them.
    pub left: Vec<JobId>,
    /// Jobs that cannot be read.
    pub skipped: Vec<JobId>,
}

#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("{place}: {why}")]
    Reserve { place: String, why: ReserveError },
    #[error("{0} and {1} are the same place")]
    Same(String, String),
    #[error(
        "{place}: its jobs are at {to}, where they were moved to. To take that back: `steadfast migrate --from {place} --to {to} --undo`"
    )]
    Gone { place: String, to: String },
    #[error(
        "{place}: a move of {from} to it is unfinished. Finish that first, with `steadfast migrate --from {from} --to {place}`"
    )]
    Unfinished { place: String, from: String },
    #[error("{place}: there are jobs already. Give a folder or a database without any")]
    NotEmpty { place: String },
    #[error("{setting} is another one already. Give a folder or a database that no server has had")]
    OwnSetting { setting: String },
    #[error(
        "{place}: {count} requests about its jobs are not answered yet. Start a server there until they are, stop it, and move then"
    )]
    Requests { place: String, count: u64 },
    #[error(
        "job {job} cannot be read: {why}. Nothing of it, nor of the others, was changed. Remove it with `steadfast purge {job}`, or leave \
         it behind with --skip-stuck"
    )]
    Unreadable { job: JobId, why: String },
    #[error(
        "job {job} is not the same at {place}: {why}. The source is as it was, and its server may be started again; nothing starts with the \
         target. Begin anew, with an empty one"
    )]
    Difference { job: JobId, place: String, why: String },
    #[error("{place}: {why}. The source is as it was; nothing starts with the target")]
    Wrong { place: String, why: String },
    #[error("{place} was not moved to {to}: there is nothing to take back")]
    NotMoved { place: String, to: String },
    #[error(
        "{to}: a server has had the jobs since they were moved, so that those of {place} are old. Move them back instead, to an empty \
         place: `steadfast migrate --from {to} --to …`"
    )]
    Served { place: String, to: String },
    #[error("stopped. The same command goes on from here")]
    Stopped,
    #[error("{place}: {error}. The same command goes on from here")]
    Io { place: String, error: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One side of a move, reserved.
struct Reserved<'a> {
    storage: &'a dyn Movable,
    place: String,
    reservation: Box<dyn Reservation>,
}

impl<'a> Reserved<'a> {
    fn new(storage: &'a dyn Movable, side: MoveSide) -> Result<Self, MoveError> {
        let place = storage.place();
        let reservation = storage
            .reserve(side)
            .map_err(|why| MoveError::Reserve { place: place.clone(), why })?;
        Ok(Self { storage, place, reservation })
    }

    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut (dyn Reservation + 'static)) -> io::Result<T>,
    ) -> Result<T, MoveError> {
        ask(&mut *self.reservation)
            .map_err(|error| MoveError::Io { place: self.place.clone(), error })
    }

    fn record(&mut self) -> Result<MoveRecord, MoveError> {
        self.ask(Reservation::record)
    }

    fn mark(&mut self, record: &MoveRecord) -> Result<(), MoveError> {
        self.ask(|reservation| reservation.mark(record))
    }
}

/// Moves everything. `progress` is told after each group of jobs, and may stop the move there.
pub fn move_jobs(
    from: &dyn Movable,
    to: &dyn Movable,
    options: &MoveOptions<'_>,
    now: Timestamp,
    progress: &mut dyn FnMut(MoveProgress) -> ControlFlow<()>,
) -> Result<Moved, MoveError> {
    if is_same_place(&from.place(), &to.place()) {
        return Err(MoveError::Same(from.place(), to.place()));
    }
    let mut source = Reserved::new(from, MoveSide::Source)?;
    let mut target = Reserved::new(to, MoveSide::Target)?;
    let mut reading = from.transfer()?;
    let mut writing = to.transfer()?;
    let is_resumed = may_begin(&mut source, &mut target, &mut *reading, &mut *writing, options)?;
    if !is_resumed {
        target.mark(&MoveRecord::Coming { from: source.place.clone() })?;
    }
    copy_settings(&*from.settings(), &*to.settings(), options.settings)
        .map_err(|error| MoveError::Io { place: to.place(), error })?;
    let owner = writing.receive(now, reading.epoch()?)?;
    let epoch = owner.epoch;
    let mut transfer = JobTransfer::new(
        Side { store: reading, blobs: from.own_blobs(), place: from.place() },
        Side { store: writing, blobs: to.own_blobs(), place: to.place() },
        owner,
        TransferRules { is_resumed, skip_stuck: options.skip_stuck },
    );
    let moved = transfer.all(&mut |at| {
        source.ask(Reservation::check)?;
        target.ask(Reservation::check)?;
        match progress(at) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MoveError::Stopped),
        }
    })?;
    let alive_at = source.ask(Reservation::alive_at)?;
    target.ask(|reservation| reservation.arrive(alive_at))?;
    // First: between the two nobody serves the jobs, and never two.
    source.mark(&MoveRecord::Gone { to: target.place.clone() })?;
    target.mark(&MoveRecord::Arrived { from: source.place.clone(), epoch })?;
    Ok(moved)
}

/// Whether it is begun already, and ended before its end.
fn may_begin(
    source: &mut Reserved<'_>,
    target: &mut Reserved<'_>,
    reading: &mut dyn Transfer,
    writing: &mut dyn Transfer,
    options: &MoveOptions<'_>,
) -> Result<bool, MoveError> {
    let (here, there) = (source.place.clone(), target.place.clone());
    let is_resumed = match target.record()? {
        MoveRecord::Coming { from } if is_same_place(&from, &here) => true,
        MoveRecord::Coming { from } => return Err(MoveError::Unfinished { place: there, from }),
        _ => false,
    };
    match source.record()? {
        MoveRecord::Coming { from } => return Err(MoveError::Unfinished { place: here, from }),
        // It was about to open the target.
        MoveRecord::Gone { to } if is_resumed && is_same_place(&to, &there) => {}
        MoveRecord::Gone { to } => return Err(MoveError::Gone { place: here, to }),
        MoveRecord::Open | MoveRecord::Arrived { .. } => {}
    }
    let count = reading.open_requests()?;
    if count > 0 {
        return Err(MoveError::Requests { place: here, count });
    }
    if is_resumed {
        return Ok(true);
    }
    if writing.count_all()? > 0 {
        return Err(MoveError::NotEmpty { place: there });
    }
    let (ours, theirs) = (source.storage.settings(), target.storage.settings());
    for name in options.settings {
        let get = |settings: &dyn Settings, place: &str| {
            let got = settings.get(name);
            got.map_err(|error| MoveError::Io { place: place.to_owned(), error })
        };
        if let (Some(ours), Some(other)) = (get(&*ours, &here)?.1, get(&*theirs, &there)?.1)
            && ours != other
        {
            return Err(MoveError::OwnSetting { setting: theirs.place(name) });
        }
    }
    Ok(false)
}

fn copy_settings(from: &dyn Settings, to: &dyn Settings, names: &[&str]) -> io::Result<()> {
    for name in names {
        let Some(bytes) = from.get(name)?.1 else { continue };
        if to.get(name)?.1.as_ref() != Some(&bytes) {
            to.change(name, &mut |_| Ok(bytes.clone()))?;
        }
    }
    Ok(())
}

/// The jobs are the source's again, as they were; the target waits for the same move, and for nothing else.
pub fn undo_move(from: &dyn Movable, to: &dyn Movable) -> Result<(), MoveError> {
    let mut source = Reserved::new(from, MoveSide::Source)?;
    let mut target = Reserved::new(to, MoveSide::Source)?;
    let (place, there) = (source.place.clone(), target.place.clone());
    match source.record()? {
        MoveRecord::Gone { to } if is_same_place(&to, &there) => {}
        _ => return Err(MoveError::NotMoved { place, to: there }),
    }
    match target.record()? {
        MoveRecord::Arrived { from, epoch } if is_same_place(&from, &place) => {
            if !to.transfer()?.is_untouched(epoch)? {
                return Err(MoveError::Served { place, to: there });
            }
        }
        MoveRecord::Coming { from } if is_same_place(&from, &place) => {}
        _ => return Err(MoveError::NotMoved { place, to: there }),
    }
    target.mark(&MoveRecord::Coming { from: place })?;
    source.mark(&MoveRecord::Open)
}

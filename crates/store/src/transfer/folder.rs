//! A data folder while its jobs are moved: its lock, as a server has it.

use std::fs::{File, FileTimes};
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use steadfast_core::time::Timestamp;

use super::record::NAME;
use super::{MoveRecord, MoveSide, Reservation, ReserveError};
use crate::folder::Folder;
use crate::settings::{FolderSettings, Settings as _};
use crate::storage::claim_folder;

#[derive(Debug)]
pub(crate) struct FolderReservation {
    folder: Folder,
    /// Locked.
    file: File,
    alive_at: Option<Timestamp>,
}

impl FolderReservation {
    pub(crate) fn new(folder: &Folder, side: MoveSide) -> Result<Self, ReserveError> {
        if side == MoveSide::Source && !folder.database().exists() {
            return Err(ReserveError::Nothing);
        }
        let (file, alive_at) = claim_folder(folder)?.ok_or(ReserveError::Served)?;
        Ok(Self { folder: folder.clone(), file, alive_at })
    }

    fn settings(&self) -> FolderSettings {
        FolderSettings::new(self.folder.root().to_owned())
    }
}

impl Reservation for FolderReservation {
    /// The lock is this process's until its end.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn alive_at(&mut self) -> io::Result<Option<Timestamp>> {
        Ok(self.alive_at)
    }

    fn record(&mut self) -> io::Result<MoveRecord> {
        MoveRecord::of(&self.settings())
    }

    fn mark(&mut self, record: &MoveRecord) -> io::Result<()> {
        self.settings().change(NAME, &mut |_| Ok(record.bytes()))
    }

    fn arrive(&mut self, alive_at: Option<Timestamp>) -> io::Result<()> {
        if let Some(Timestamp(ms)) = alive_at {
            let then = UNIX_EPOCH + Duration::from_millis(ms);
            self.file.set_times(FileTimes::new().set_modified(then))?;
        }
        // What attempts printed is not synced piece by piece.
        rustix::fs::syncfs(&self.file)?;
        Ok(())
    }
}

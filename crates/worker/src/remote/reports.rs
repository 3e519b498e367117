//! How attempts ended, kept on disk until the server has acknowledged it.
//!
//! One file for each, written and synced before the report is sent. It holds the report, which names the attempt as
//! the server has signed it: so the next life of this worker can say it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use steadfast_core::event::AttemptId;

use prost::Message as _;
use steadfast_api::proto;

use super::worker_dir;

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) report: proto::Report,
}

/// Where reports are written, apart from [`Reports`] so that syncing one holds nobody up.
#[derive(Clone, Debug)]
pub(super) struct ReportStore {
    folder: PathBuf,
}

/// Those that are not acknowledged, in the order of their jobs.
#[derive(Debug, Default)]
pub(super) struct Reports {
    kept: BTreeMap<AttemptId, Kept>,
}

impl ReportStore {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// What earlier lives left. A file that cannot be understood stays where it is, for people.
    pub(super) fn read(&self) -> io::Result<Reports> {
        let mut reports = Reports::default();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                worker_dir::remove(&path);
                continue;
            }
            match read(&path) {
                Ok((key, kept)) => reports.insert(key, kept),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a report cannot be read");
                }
            }
        }
        Ok(reports)
    }

    /// Returns when it is durable.
    pub(super) fn write(&self, key: &AttemptId, kept: &Kept) -> io::Result<()> {
        let bytes = kept.report.encode_to_vec();
        let path = self.folder.join(key.to_string());
        // A dot that no key ends with: keys end with a number.
        let temporary = self.folder.join(format!("{key}.tmp"));
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    pub(super) fn remove(&self, key: &AttemptId) {
        worker_dir::remove(&self.folder.join(key.to_string()));
    }
}

impl Reports {
    pub(super) fn insert(&mut self, key: AttemptId, kept: Kept) {
        self.kept.insert(key, kept);
    }

    pub(super) fn remove(&mut self, key: &AttemptId) -> bool {
        self.kept.remove(key).is_some()
    }

    pub(super) fn get(&self, key: &AttemptId) -> Option<&Kept> {
        self.kept.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&AttemptId, &Kept)> {
        self.kept.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

fn read(path: &Path) -> io::Result<(AttemptId, Kept)> {
    let report = proto::Report::decode(&fs::read(path)?[..])?;
    let attempt = report.attempt.as_ref().ok_or_else(|| io::Error::other("it names no attempt"))?;
    Ok((attempt.id(), Kept { report }))
}

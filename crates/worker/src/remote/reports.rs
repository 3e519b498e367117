//! How attempts ended, and how far others are, until the server that assigned them has acknowledged it.
//!
//! A process's report is first a file, written and synced before it is sent: it names the server, and the attempt as
//! that has signed it, so the next life of this worker can say it. Once it is acknowledged the file lies beside the
//! attempt's log, until the server has that too.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use prost::Message as _;
use proto::FromWorker;
use proto::from_worker::Kind;
use steadfast_api::proto;
use steadfast_core::event::AttemptId;
use tokio::sync::mpsc;
use tokio_stream::Stream;

use super::link::Link;
use super::logs::Logs;
use super::server::{Server, ServerName};
use super::worker_dir::{self, WorkerDir};

/// Taken together: enough to share the cost, few enough that a beat is not held up.
const TOGETHER: usize = 64;

/// Where reports are written, apart from [`Reports`] so that syncing one holds nobody up.
#[derive(Debug)]
pub(super) struct ReportStore {
    reports: PathBuf,
    logs: PathBuf,
}

impl ReportStore {
    pub(super) fn new(dir: &WorkerDir) -> Self {
        Self { reports: dir.reports(), logs: dir.logs() }
    }

    /// What earlier lives left: reports that are not acknowledged, and logs that no server has whole. A file that cannot
    /// be understood stays where it is, for people.
    pub(super) fn read(&self) -> io::Result<LeftBehind> {
        let is_report =
            |path: &Path| path.extension().is_some_and(|extension| extension == "report");
        let reports = read_all(&self.reports, |path| {
            path.extension().is_none_or(|extension| extension != "tmp")
        })?;
        let logs =
            read_all(&self.logs, is_report)?.into_iter().filter_map(|(server, _, report)| {
                let attempt = report.attempt?;
                let log = self.log(&attempt.id());
                Some((server, (attempt, log)))
            });
        Ok(LeftBehind { reports, logs: logs.collect() })
    }

    fn path(&self, id: &AttemptId) -> PathBuf {
        self.reports.join(id.to_string())
    }

    fn log(&self, id: &AttemptId) -> PathBuf {
        self.logs.join(format!("{id}.log"))
    }

    fn beside_log(&self, id: &AttemptId) -> PathBuf {
        self.logs.join(format!("{id}.report"))
    }

    /// Returns when it is durable.
    pub(super) fn write(
        &self,
        id: &AttemptId,
        server: &Server,
        report: &proto::Report,
    ) -> io::Result<()> {
        // A dot that no id ends with: ids end with a number.
        let temporary = self.reports.join(format!("{id}.tmp"));
        let mut file = File::create(&temporary)?;
        file.write_all(&encoded(server, report))?;
        file.sync_all()?;
        fs::rename(&temporary, self.path(id))?;
        File::open(&self.reports)?.sync_all()
    }

    pub(super) fn write_unsynced(
        &self,
        id: &AttemptId,
        server: &Server,
        report: &proto::Report,
    ) -> io::Result<()> {
        fs::write(self.path(id), encoded(server, report))
    }

    /// From now on it only says whose the log is.
    pub(super) fn acknowledged(&self, id: &AttemptId, log_follows: bool) {
        // An id that is no file name never had a file.
        if !worker_dir::is_plain(&id.job) {
            return;
        }
        if !(log_follows && fs::rename(self.path(id), self.beside_log(id)).is_ok()) {
            worker_dir::remove(&self.path(id));
        }
    }

    pub(super) fn remove_log(&self, id: &AttemptId) {
        if worker_dir::is_plain(&id.job) {
            worker_dir::remove(&self.log(id));
            worker_dir::remove(&self.beside_log(id));
        }
    }
}

/// A report as it lies on the disk.
#[derive(Clone, PartialEq, prost::Message)]
struct KeptReport {
    #[prost(message, optional, tag = "1")]
    server: Option<ServerName>,
    #[prost(message, optional, tag = "2")]
    report: Option<proto::Report>,
    /// The server's: another one that has taken it over is to hear it.
    #[prost(string, tag = "3")]
    scope: String,
}

fn encoded(server: &Server, report: &proto::Report) -> Vec<u8> {
    let (scope, name) = (server.scope().unwrap_or_default(), server.name.clone());
    KeptReport { server: Some(name), report: Some(report.clone()), scope }.encode_to_vec()
}

/// A report that an earlier life left.
type Left = (ServerName, String, proto::Report);

fn read_all(folder: &Path, wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<Left>> {
    let mut reports = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !wanted(&path) {
            if path.extension().is_some_and(|extension| extension == "tmp") {
                worker_dir::remove(&path);
            }
            continue;
        }
        match read(&path) {
            Ok(report) => reports.push(report),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "a report cannot be read");
            }
        }
    }
    Ok(reports)
}

fn read(path: &Path) -> io::Result<Left> {
    let kept = KeptReport::decode(&fs::read(path)?[..])?;
    match (kept.server, kept.report) {
        (Some(server), Some(report)) if report.attempt.is_some() => {
            Ok((server, kept.scope, report))
        }
        _ => Err(io::Error::other("it names no server or no attempt")),
    }
}

/// What earlier lives of the worker left for its servers.
#[derive(Debug)]
pub(super) struct LeftBehind {
    reports: Vec<Left>,
    logs: Vec<(ServerName, (proto::AttemptRef, PathBuf))>,
}

impl LeftBehind {
    /// What this server is to hear, and the scope that it had. What is left for servers that are not known stays on the disk.
    pub(super) fn take(
        &mut self,
        server: &ServerName,
        alone: bool,
    ) -> (Reports, Logs, Option<String>) {
        let is_its = |before: &ServerName| server.is_that_of(before, alone);
        let reports = self.reports.extract_if(.., |(before, _, _)| is_its(before));
        let reports: Vec<Left> = reports.collect();
        let scope = reports.last().map(|(_, scope, _)| scope.clone());
        let reports = Reports::new(reports.into_iter().map(|(_, _, report)| report).collect());
        let logs = self.logs.extract_if(.., |(before, _)| is_its(before));
        let logs = Logs::new(logs.map(|(_, log)| log).collect());
        (reports, logs, scope.filter(|scope| !scope.is_empty()))
    }

    /// For whom, and how many reports.
    pub(super) fn waiting(&self) -> BTreeMap<&str, usize> {
        let mut waiting = BTreeMap::new();
        for (server, _, _) in &self.reports {
            *waiting.entry(server.address.as_str()).or_default() += 1;
        }
        waiting
    }
}

#[derive(Debug)]
pub(super) struct Reports {
    /// Not acknowledged.
    kept: BTreeMap<AttemptId, Kept>,
    /// Made while there is a session, and not taken by it yet: no more than one for each attempt in hand and each
    /// second, as a session that does not take them ends with the lease.
    unsent: VecDeque<Kind>,
    /// How far those are that have not ended: what a session took may not have arrived.
    latest: HashMap<AttemptId, proto::Progress>,
    /// Of the session there is, or was.
    session: u64,
    /// There is one, and it has been welcomed.
    open: bool,
    waker: Option<Waker>,
}

/// Of one attempt.
#[derive(Debug)]
pub(super) struct Taken {
    kept: Option<Kept>,
    latest: Option<proto::Progress>,
}

#[derive(Debug)]
pub(super) struct Kept {
    /// Sent before the report, because it is how far the attempt got.
    last: Option<proto::Progress>,
    pub(super) report: proto::Report,
    pub(super) on_disk: bool,
    /// The server does not want to hear it: it is in hand only until its end is settled.
    withdrawn: bool,
}

impl Kept {
    fn messages(&self) -> impl Iterator<Item = Kind> {
        let last = self.last.clone().map(Kind::Progress);
        last.into_iter().chain([Kind::Report(self.report.clone())]).filter(|_| !self.withdrawn)
    }
}

impl Reports {
    /// With what earlier lives left.
    pub(super) fn new(kept: Vec<proto::Report>) -> Self {
        let kept = kept.into_iter().filter_map(|report| {
            let id = report.attempt.as_ref()?.id();
            Some((id, Kept { last: None, report, on_disk: true, withdrawn: false }))
        });
        Self {
            kept: kept.collect(),
            unsent: VecDeque::new(),
            latest: HashMap::new(),
            session: 0,
            open: false,
            waker: None,
        }
    }

    /// A session begins: what was not acknowledged is said again. Its number.
    fn begin(&mut self) -> u64 {
        self.session += 1;
        self.unsent.clear();
        self.unsent.extend(self.latest.values().cloned().map(Kind::Progress));
        self.unsent.extend(self.kept.values().flat_map(Kept::messages));
        self.open = true;
        self.waker = None;
        self.session
    }

    pub(super) fn disconnected(&mut self) {
        self.open = false;
        self.unsent.clear();
    }

    /// Whom to wake, once nothing is locked: it may speak now.
    #[must_use]
    pub(super) fn welcomed(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Likewise.
    #[must_use]
    pub(super) fn progress(&mut self, id: &AttemptId, progress: proto::Progress) -> Option<Waker> {
        self.latest.insert(id.clone(), progress.clone());
        if self.open {
            self.unsent.push_back(Kind::Progress(progress));
        }
        self.waker.take()
    }

    /// Likewise.
    #[must_use]
    pub(super) fn insert(
        &mut self,
        id: AttemptId,
        last: Option<proto::Progress>,
        report: proto::Report,
        on_disk: bool,
        withdrawn: bool,
    ) -> Option<Waker> {
        let before = self.latest.remove(&id);
        let mut kept = Kept { last, report, on_disk, withdrawn };
        if self.open {
            self.unsent.extend(kept.messages());
        }
        kept.last = kept.last.or(before);
        self.kept.insert(id, kept);
        self.waker.take()
    }

    /// What there is of an attempt that another server is to hear of from now on.
    pub(super) fn take(&mut self, id: &AttemptId) -> Taken {
        Taken { kept: self.kept.remove(id), latest: self.latest.remove(id) }
    }

    /// Whom to wake, once nothing is locked.
    #[must_use]
    pub(super) fn put(&mut self, id: &AttemptId, taken: Taken) -> Option<Waker> {
        let Taken { kept, latest } = taken;
        if let Some(progress) = latest {
            self.latest.insert(id.clone(), progress.clone());
            if self.open {
                self.unsent.push_back(Kind::Progress(progress));
            }
        }
        if let Some(kept) = kept {
            if self.open {
                self.unsent.extend(kept.messages());
            }
            self.kept.insert(id.clone(), kept);
        }
        self.waker.take()
    }

    /// None: it was not kept.
    pub(super) fn acknowledged(&mut self, id: &AttemptId) -> Option<Kept> {
        self.kept.remove(id)
    }

    pub(super) fn keeps(&self, id: &AttemptId) -> bool {
        self.kept.contains_key(id)
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = (AttemptId, proto::AttemptRef)> {
        let kept = self.kept.iter();
        kept.filter_map(|(id, kept)| Some((id.clone(), kept.report.attempt.clone()?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

/// Everything a session sends: beats and drains, one by one, and reports.
#[derive(Debug)]
pub(super) struct Outgoing {
    link: Link,
    first: mpsc::Receiver<FromWorker>,
    session: u64,
    taken: VecDeque<Kind>,
}

impl Outgoing {
    /// Takes the reports over from the session before.
    pub(super) fn new(link: &Link, first: mpsc::Receiver<FromWorker>) -> Self {
        let session = link.state().reports.begin();
        Self { link: link.clone(), first, session, taken: VecDeque::new() }
    }
}

impl Stream for Outgoing {
    type Item = FromWorker;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FromWorker>> {
        let this = self.get_mut();
        // First, because beats are among it; and hello is.
        let first = this.first.poll_recv(context);
        if let Poll::Ready(Some(_)) = first {
            return first;
        }
        if this.taken.is_empty() {
            let mut state = this.link.state();
            // Before the welcome nothing is said but hello.
            let is_ours = state.reports.session == this.session && state.client.is_some();
            let reports = &mut state.reports;
            if is_ours {
                let some = reports.unsent.len().min(TOGETHER);
                this.taken.extend(reports.unsent.drain(..some));
            }
            if this.taken.is_empty() {
                // What there was to report is on its way before our half of the stream is closed.
                if first.is_ready() {
                    return Poll::Ready(None);
                }
                if reports.session == this.session {
                    reports.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
        }
        let kind = this.taken.pop_front();
        Poll::Ready(Some(FromWorker { kind }))
    }
}

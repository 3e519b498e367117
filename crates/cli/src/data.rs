//! Where the jobs of this machine are: in the data folder, or in a database, with only the working folders in the data folder. And who may
//! write.
//!
//! `run` and `resume` share either and claim their job; a server wants a folder for itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use steadfast::run::RunPlace;
use steadfast_api::ShownState;
use steadfast_core::event::RecordedEvent;
use steadfast_core::job::Job;
use steadfast_store::{
    Filter, Folder, LogName, Reader, Row, Storage, StoreError, is_postgres, storage_at,
};
use steadfast_worker::STORE_VARIABLE;

use crate::args::LocalArgs;
use crate::client;
use crate::input::Wrong;
use crate::serve::with_blobs;

/// Events read at once.
const PAGE: usize = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) folder: Folder,
    /// As the user typed it.
    given: Option<PathBuf>,
    pub(crate) storage: Arc<dyn Storage>,
    /// The URL of the database, as the user typed it. None: jobs are in the folder.
    store: Option<String>,
}

/// How long a database may be away while something is done that is no run.
const TOLERANCE: Duration = Duration::from_mins(1);

impl Data {
    /// Of a command on jobs.
    pub(crate) fn of(args: &LocalArgs) -> Result<Self, String> {
        let data = Self::at(args.data.as_deref())?;
        match args.place.url() {
            None => Ok(data),
            Some(url) if !is_postgres(url) => Err(format!(
                "--store takes the URL of a PostgreSQL database, postgres://USER@HOST/NAME; give a folder with --data {}",
                quoted(Path::new(url))
            )),
            Some(url) => {
                let storage = storage_at(url).map_err(|error| error.to_string())?;
                Ok(Self { storage, store: Some(url.to_owned()), ..data })
            }
        }
    }

    /// The same, with files and logs in an object store.
    pub(crate) fn with_blobs(self, url: Option<&str>) -> Result<Self, String> {
        Ok(Self { storage: with_blobs(self.storage, url)?, ..self })
    }

    /// `--data`, or `STEADFAST_DATA`, or the user's data folder.
    pub(crate) fn at(given: Option<&Path>) -> Result<Self, String> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = match given {
            Some(path) => path.to_owned(),
            None => match (from("XDG_DATA_HOME"), from("HOME")) {
                (Some(data), _) => PathBuf::from(data).join("steadfast"),
                (None, Some(home)) => PathBuf::from(home).join(".local/share/steadfast"),
                (None, None) => {
                    return Err("there is no home folder to keep data in; give --data DIR".into());
                }
            },
        };
        let root = std::path::absolute(&root).unwrap_or(root);
        match fs::metadata(&root) {
            Ok(about) if !about.is_dir() => {
                return Err(format!("{} is not a folder", root.display()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("cannot use the data folder {}: {error}", root.display()));
            }
            _ => {}
        }
        let folder = Folder::new(root);
        let (given, storage) = (given.map(Path::to_owned), folder.storage());
        Ok(Self { folder, given, storage, store: None })
    }

    pub(crate) fn create(&self) -> Result<(), String> {
        self.folder.create().map_err(|error| {
            format!("cannot make the data folder {}: {error}", self.folder.root().display())
        })
    }

    /// For commands that run jobs.
    pub(crate) fn place(&self, tolerance: Option<Duration>) -> RunPlace {
        match self.store {
            None => RunPlace::in_folder(self.folder.clone()),
            Some(_) => {
                let tolerance = tolerance.unwrap_or(TOLERANCE);
                RunPlace::in_database(self.storage.clone(), self.folder.clone(), tolerance)
            }
        }
    }

    pub(crate) fn is_database(&self) -> bool {
        self.store.is_some()
    }

    /// What jobs are in, for messages.
    pub(crate) fn what(&self) -> &'static str {
        if self.is_database() { "database" } else { "data folder" }
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Reader>, Wrong> {
        self.storage.reader().map_err(Wrong::from)
    }

    /// For commands that only look. None: nothing was ever run with this folder.
    pub(crate) fn look(&self) -> Result<Option<Box<dyn Reader>>, Wrong> {
        if self.is_database() {
            return self.open().map(Some);
        }
        let database = self.folder.database();
        // Not being allowed to look is no reason to say that there is nothing.
        match fs::metadata(&database) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(format!("cannot read {}: {error}", database.display()).into());
            }
            Ok(_) => {}
        }
        self.open().map(Some)
    }

    /// Whether an attempt of the job has printed something.
    pub(crate) fn has_logs(&self, job: &Job) -> bool {
        if !self.is_database() {
            return self.folder.logs(&job.id).exists();
        }
        let blobs = self.storage.blobs();
        job.plan.steps().iter().any(|step| {
            let mut found = false;
            let listed = blobs.each_log(&job.id, &step.name, &mut |_| found = true);
            listed.is_ok() && found
        })
    }

    /// The last bytes that an attempt wrote.
    pub(crate) fn log_tail(&self, log: &LogName, most: u64) -> io::Result<Vec<u8>> {
        let blobs = self.storage.blobs();
        let size = blobs.log_size(log)?.unwrap_or(0);
        blobs.open_log(log)?.read(size.saturating_sub(most), most as usize)
    }

    /// Why nothing happens to a job that is not over; none: a process or a server is at it.
    pub(crate) fn rests(&self, job: &Job, owner: JobOwner) -> Option<String> {
        match owner {
            JobOwner::Server if self.storage.is_served() => None,
            JobOwner::Server => {
                Some(format!("it goes on when a server is started with this {}", self.what()))
            }
            JobOwner::Run if self.storage.is_run(&job.id) => None,
            JobOwner::Run => Some(format!("go on with {}", self.hint("resume", &job.id))),
        }
    }

    pub(crate) fn shown_state(&self, job: &Job, owner: JobOwner) -> ShownState {
        let local = owner == JobOwner::Run;
        ShownState::new(job.state(), local, local && self.storage.is_run(&job.id))
    }

    /// Jobs of a server are its own while it has the folder: two writers of one job would fence each
    /// other out.
    pub(crate) fn may_write(&self, job: &Job, owner: JobOwner) -> Result<(), String> {
        if owner == JobOwner::Server && self.is_database() {
            return Err(format!(
                "job {} was submitted to a server: ask one that has this database, with --server",
                job.id
            ));
        }
        if owner == JobOwner::Server && self.storage.is_served() {
            return Err(format!(
                "job {} belongs to the server that has this data folder; ask that, with --server \
                 instead of --data",
                job.id
            ));
        }
        let moved = self.folder.is_moved().map_err(|error| error.to_string())?;
        match moved.filter(|_| owner == JobOwner::Server) {
            Some(why) => Err(format!("the data folder {}: {why}", self.folder.root().display())),
            None => Ok(()),
        }
    }

    /// A command to paste, for a job of this folder or database. It names that where the command would go
    /// elsewhere without: to another one, or to a server.
    pub(crate) fn hint(&self, command: &str, job: &str) -> String {
        let named = std::env::var_os("STEADFAST_DATA").filter(|value| !value.is_empty());
        let from_env = named.is_some_and(|named| Some(Path::new(&named)) == self.given.as_deref());
        let path = match &self.given {
            _ if client::names_a_server() && !self.is_database() => Some(self.folder.root()),
            Some(given) if !from_env => Some(given.as_path()),
            _ => None,
        };
        let data = path.map(|path| format!(" --data {}", quoted(path))).unwrap_or_default();
        format!("steadfast {command} {job}{}{data}", self.store_flag())
    }

    /// Without a password, which is nothing for a screen.
    fn store_flag(&self) -> String {
        let Some(url) = &self.store else { return String::new() };
        if std::env::var(STORE_VARIABLE).as_ref() == Ok(url) {
            let is_needed = client::names_a_server();
            return if is_needed {
                format!(" --store \"${STORE_VARIABLE}\"")
            } else {
                String::new()
            };
        }
        let user = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
        let has_password =
            user.is_some_and(|(user, _)| user.contains(':')) || url.contains("password=");
        let shown = if has_password { self.storage.place() } else { url.clone() };
        format!(" --store {}", quoted(Path::new(&shown)))
    }
}

/// So that a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:@,%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Who goes on with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobOwner {
    /// The server of the data folder, or those of the database.
    Server,
    /// A process of `run`, which has this job alone: the job is its own owner.
    Run,
}

/// The job of a name: see [`JobRef`].
pub(crate) fn find(reader: &mut dyn Reader, name: &str) -> Result<Row, Wrong> {
    let mut newest = |filter: &Filter, limit: usize| {
        let page = reader.list(filter, None, limit).map_err(Wrong::from);
        page.map(|page| page.jobs)
    };
    let of_name = |name: &str| Filter { name: Some(name.to_owned()), ..Filter::default() };
    let found = match JobRef::read(name) {
        JobRef::Last => newest(&Filter::default(), 1)?.pop(),
        JobRef::LastOf(name) => newest(&of_name(name), 1)?.pop(),
        JobRef::Any(name) => {
            let named = newest(&of_name(name), 1)?.pop();
            let mut begin: Vec<Row> = if is_like_an_id(name) {
                newest(&Filter::default(), LOOKED_THROUGH)?
            } else {
                vec![]
            };
            begin.retain(|row| row.id.starts_with(name));
            match reader.row(name) {
                Ok(Some((row, _))) => Some(row),
                // One whose row is damaged is in the list all the same.
                Ok(None) | Err(StoreError::Corrupt { job: Some(_), .. }) => {
                    JobRef::one(name, named, begin, |row| &row.id)?
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    found.ok_or_else(|| {
        Wrong::no_job(format!("there is no job {name}; `steadfast list` shows those there are"))
    })
}

/// A beginning of an id is looked for among this many of the newest jobs.
const LOOKED_THROUGH: usize = 20_000;

/// How a job is named: by its id; by `last`, the newest; by its name, or `last NAME`, the newest of that
/// name; or by a beginning of its id. What is both one job's name and the beginning of another's id is
/// refused: `last NAME` and more of the id say which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobRef<'a> {
    Last,
    LastOf(&'a str),
    Any(&'a str),
}

impl<'a> JobRef<'a> {
    pub(crate) fn read(text: &'a str) -> Self {
        match text.split_once(' ') {
            Some(("last", name)) => Self::LastOf(name),
            _ if text == "last" => Self::Last,
            _ => Self::Any(text),
        }
    }

    /// Of the newest job of a name, and the jobs whose ids begin with it.
    pub(crate) fn one<T>(
        name: &str,
        named: Option<T>,
        begin: Vec<T>,
        id: impl Fn(&T) -> &str,
    ) -> Result<Option<T>, String> {
        let mut begin = begin.into_iter();
        match (named, begin.next(), begin.next()) {
            (Some(job), None, _) => Ok(Some(job)),
            (Some(job), Some(other), None) if id(&job) == id(&other) => Ok(Some(job)),
            (None, job, None) => Ok(job),
            (Some(_), Some(_), _) => Err(format!(
                "{name} is the name of a job and the beginning of another's id; write `last {name}` \
                 or more of the id"
            )),
            (None, _, Some(_)) => {
                Err(format!("{name} fits more than one job; give more of the id"))
            }
        }
    }
}

/// Ids are digits and small letters.
pub(crate) fn is_like_an_id(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase();
    !text.is_empty() && text.chars().all(fits)
}

/// Every event of a job, in order.
pub(crate) fn each_event<E: From<String>>(
    reader: &mut dyn Reader,
    job: &str,
    after: u64,
    mut see: impl FnMut(RecordedEvent) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = after;
    loop {
        let page = reader.events(job, after, PAGE).map_err(|error| error.to_string())?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for record in page {
            see(record)?;
        }
    }
}

/// The state of a stored job.
pub(crate) fn state(reader: &mut dyn Reader, job: &str) -> Result<Job, String> {
    owned(reader, job).map(|(job, _)| job)
}

/// The state of a stored job, and who goes on with it.
pub(crate) fn owned(reader: &mut dyn Reader, job: &str) -> Result<(Job, JobOwner), String> {
    let stored = reader.get(job).map_err(|error| error.to_string())?;
    let stored = stored.ok_or_else(|| format!("job {job} has no events"))?;
    let owner = if stored.owner == job { JobOwner::Run } else { JobOwner::Server };
    let state = steadfast_engine::state_of(reader, job, &stored);
    Ok((state.map_err(|error| error.to_string())?, owner))
}

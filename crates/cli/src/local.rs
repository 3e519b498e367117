//! Workers of this process: one thread per slot, each running one attempt at a time.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::JobId;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome, Permanence};
use steadfast_core::plan::{Action, Cwd};
use steadfast_engine::{Assignment, Inbox, Work, Workers, crash_point};
use steadfast_worker::{Attempt, Command, Ended, Port, Ports, Stop};

use crate::data::Data;

/// From SIGTERM to SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);
const LOG_CAP: u64 = 64 << 20;
const OUTPUT_CAP: u64 = 1 << 20;

type Running = Arc<Mutex<HashMap<(JobId, u64), Stop>>>;

/// The slots, and a hand on everything that runs in them.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    running: Running,
    /// From now on what is stopped was interrupted, and is a loss.
    interrupted: Arc<AtomicBool>,
    /// Folders of attempts whose success is durable. One that is empty is given to the next attempt:
    /// making a folder is the dearest thing that a tiny process asks of a disk.
    used: Arc<Mutex<HashMap<(JobId, u64), PathBuf>>>,
    spare: Arc<Mutex<Vec<PathBuf>>>,
    keep: bool,
}

#[derive(Debug)]
pub(crate) struct LocalWorkers {
    queue: Sender<(Work, Stop)>,
    slots: Slots,
    inbox: Inbox,
}

/// What all slots share.
struct Shop {
    data: Data,
    inbox: Inbox,
    ports: Ports,
    slots: Slots,
    queue: Mutex<Receiver<(Work, Stop)>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A slot that panicked left a plain map behind, which is still right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slots {
    /// `keep`: every attempt keeps its folder.
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            running: Arc::default(),
            interrupted: Arc::default(),
            used: Arc::default(),
            spare: Arc::default(),
            keep,
        }
    }

    /// Everything that runs is told to end; `at_once`: it is killed.
    pub(crate) fn interrupt(&self, at_once: bool) {
        self.interrupted.store(true, Ordering::SeqCst);
        for stop in held(&self.running).values() {
            if at_once { stop.kill() } else { stop.stop() }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        held(&self.running).is_empty()
    }
}

impl LocalWorkers {
    pub(crate) fn start(count: u32, data: Data, inbox: Inbox, slots: Slots) -> Self {
        let (queue, taken) = channel();
        let shop = Arc::new(Shop {
            data,
            inbox: inbox.clone(),
            ports: Ports::default(),
            slots: slots.clone(),
            queue: Mutex::new(taken),
        });
        for _ in 0..count {
            let shop = shop.clone();
            let slot = std::thread::Builder::new().name("slot".to_owned());
            slot.spawn(move || shop.slot()).expect("a process can have a thread for each slot");
        }
        Self { queue, slots, inbox }
    }
}

impl Workers for LocalWorkers {
    fn assign(&mut self, work: Work) {
        let key = (work.assignment.job.clone(), work.assignment.token);
        match Stop::new() {
            Ok(stop) => {
                held(&self.slots.running).insert(key, stop.clone());
                if self.slots.interrupted.load(Ordering::SeqCst) {
                    stop.stop();
                }
                let _ = self.queue.send((work, stop));
            }
            Err(error) => {
                let failed = not_run("spawn_failed", error.to_string(), Permanence::Open);
                report(&self.inbox, &work.assignment, failed);
            }
        }
    }

    fn withdraw(&mut self, over: Assignment) {
        if let Some(stop) = held(&self.slots.running).get(&(over.job, over.token)) {
            stop.stop();
        }
    }

    fn settled(&mut self, job: &JobId, token: u64) {
        if let Some(folder) = held(&self.slots.used).remove(&(job.clone(), token)) {
            held(&self.slots.spare).push(folder);
        }
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

fn report(inbox: &Inbox, assignment: &Assignment, outcome: Outcome) {
    let Assignment { job, item, token, .. } = assignment;
    inbox.report(job, Input::Report { item: *item, token: *token, outcome });
}

fn not_run(kind: &str, message: String, permanence: Permanence) -> Outcome {
    let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
    Outcome::Failed(Failure { error, permanence, ..Failure::new(FailureKind::NotCompleted) })
}

impl Shop {
    fn slot(&self) {
        loop {
            let next = held(&self.queue).recv();
            let Ok((work, stop)) = next else { return };
            let outcome = match self.attempt(&work) {
                Ok((attempt, ports)) => {
                    let ended = steadfast_worker::run_and_tell(&attempt, &stop, || {
                        crash_point("while-running");
                    });
                    drop(ports);
                    match ended {
                        Ended::Outcome(outcome) => Some(outcome),
                        // Withdrawn: the engine knows. Interrupted: the work is lost.
                        Ended::Stopped => {
                            let lost = self.slots.interrupted.load(Ordering::SeqCst);
                            lost.then_some(Outcome::LOST)
                        }
                    }
                }
                Err(outcome) => Some(outcome),
            };
            let key = (work.assignment.job.clone(), work.assignment.token);
            // Only the folder of a success is handed on.
            if !matches!(outcome, Some(Outcome::Succeeded { .. })) {
                held(&self.slots.used).remove(&key);
            }
            if let Some(outcome) = outcome {
                report(&self.inbox, &work.assignment, outcome);
            }
            held(&self.slots.running).remove(&key);
        }
    }

    fn make(&self, folder: &Path) -> std::io::Result<()> {
        let spare = held(&self.slots.spare).pop();
        if let Some(spare) = spare
            && is_empty(&spare)
            && fs::rename(&spare, folder).is_ok()
        {
            return Ok(());
        }
        fs::create_dir_all(folder)
    }

    /// The attempt as a process, with its own folder made.
    fn attempt(&self, work: &Work) -> Result<(Attempt, Vec<Port>), Outcome> {
        let Assignment { job, item, attempt, token, .. } = &work.assignment;
        let permanent = |kind: &str, message: String| not_run(kind, message, Permanence::Said);
        let command = match &work.action {
            Ok(Action::Run(command)) => Command::Shell(command.clone()),
            Ok(Action::Argv(argv)) => Command::Argv(argv.clone()),
            Ok(Action::Http(_) | Action::Call { .. }) => {
                return Err(permanent("unsupported", "this version runs processes only".into()));
            }
            Err(why) => return Err(permanent("template", why.clone())),
        };
        let name = item.attempt_name(&work.step, *attempt);
        let folder = self.data.folder.work(job).join(&name);
        let disk = |error: std::io::Error| {
            not_run("workdir", format!("{}: {error}", folder.display()), Permanence::Open)
        };
        self.make(&folder).map_err(disk)?;
        if !self.slots.keep {
            held(&self.slots.used).insert((job.clone(), *token), folder.clone());
        }
        let source = work.source.as_ref().map(|source| Path::new(&source.path));
        let source = source.and_then(Path::parent).unwrap_or(Path::new("."));
        let cwd = match work.cwd {
            Some(Cwd::Attempt) => {
                for file in &work.files {
                    copy_into(&source.join(file), &folder.join(file)).map_err(|error| {
                        not_run("files", format!("{file}: {error}"), Permanence::Open)
                    })?;
                }
                folder.clone()
            }
            Some(Cwd::Source) | None => source.to_owned(),
        };
        let mut ports = Vec::new();
        let mut env: Vec<(String, String)> = work.env.clone().into_iter().collect();
        let item_text = match &work.item {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let mark = format!("{job}.{token}");
        for (name, value) in [
            ("STEADFAST_JOB_ID", job.to_string()),
            ("STEADFAST_STEP", work.step.clone()),
            ("STEADFAST_ITEM", item_text),
            ("STEADFAST_ITEM_INDEX", item.index.to_string()),
            ("STEADFAST_ATTEMPT", attempt.to_string()),
            ("STEADFAST_DATACENTER", work.datacenter.clone().unwrap_or_default()),
            ("STEADFAST_WORKDIR", folder.display().to_string()),
        ] {
            env.push((name.to_owned(), value));
        }
        for name in &work.ports {
            let port = self.ports.take().map_err(disk)?;
            let name = name.to_ascii_uppercase().replace('-', "_");
            env.push((format!("STEADFAST_PORT_{name}"), port.number().to_string()));
            ports.push(port);
        }
        let attempt = Attempt {
            command,
            env,
            inherit_env: true,
            cwd,
            log: self.data.folder.log(job, &work.step, *item, *attempt),
            log_cap: LOG_CAP,
            output: folder.join("output.json"),
            output_cap: OUTPUT_CAP,
            timeout: work.timeout_ms.map(Duration::from_millis),
            kill_grace: KILL_GRACE,
            mark: ("STEADFAST_ATTEMPT_TOKEN".to_owned(), mark),
        };
        Ok((attempt, ports))
    }
}

fn copy_into(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}

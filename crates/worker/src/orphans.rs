//! Processes that an attempt left behind: looked for when it ends, and killed.
//!
//! Most carry the attempt's mark in their environment. One that dropped it is recognized as an orphan: with
//! [`adopt_orphans`] what loses its parent becomes a child of ours. Whose it is follows from when it began:
//! it can only be of an attempt that ran then. While another such attempt runs it is left alone, and looked at
//! again when that one ends.
//!
//! Only processes that began after the attempt are looked at, which of a short one are few; the system tells
//! which number it gave last.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper, waitid, waitpid,
};
use rustix::time::{ClockId, clock_gettime};

use crate::processes::{Stat, carried, kill_all, kill_found, told, wait_all};
use crate::{Attempt, now};

/// How often children that nobody waits for are let go of.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// Beyond so many numbers it is cheaper to look at the processes there are.
const NUMBERS_MOST: i32 = 2_000;
/// How long what is killed may leave others behind.
const PATIENCE: Duration = Duration::from_secs(5);

/// A number is not given again within so many ticks, of 10 ms: the system would have begun 30,000 processes.
const LATELY: u64 = 2;

static ATTEMPTS: Mutex<Attempts> =
    Mutex::new(Attempts { running: BTreeMap::new(), born: Vec::new(), gone: VecDeque::new() });
/// Read: a leader is being born, or let go of. Write: children are looked through for those that are no leaders.
static LEADERS: RwLock<()> = RwLock::new(());
static ADOPTS: OnceLock<bool> = OnceLock::new();

/// Those of this process.
struct Attempts {
    /// By the numbers of their leaders, until those are let go of.
    running: BTreeMap<i32, Running>,
    /// The numbers of leaders that are being born; 0 until they have one.
    born: Vec<Arc<AtomicI32>>,
    /// The numbers of leaders that were let go of lately, and when. Of attempts that are short, nearly every number there
    /// has been is among them, and need not be looked at.
    gone: VecDeque<(i32, u64)>,
}

impl Attempts {
    fn was_leader(&self, pid: Pid) -> bool {
        self.gone.iter().any(|(gone, _)| *gone == pid.as_raw_nonzero().get())
    }

    /// What was long ago may be others' numbers by now.
    fn forget(&mut self, now: u64) {
        while self.gone.front().is_some_and(|(_, when)| when + LATELY <= now) {
            self.gone.pop_front();
        }
    }

    fn has_leader(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().get();
        let is_born = || self.born.iter().any(|born| born.load(Ordering::Relaxed) == pid);
        self.running.contains_key(&pid) || is_born()
    }
}

struct Running {
    /// The value of its mark.
    mark: String,
    /// In ticks since the system began.
    began: u64,
    /// Its leader has: nothing new is of it.
    ended: bool,
}

/// From now on what attempts leave behind becomes a child of this process, which lets go of it when it ends, and
/// kills it when no attempt can have it. For programs whose only children are attempts: other children would
/// be taken for orphans. False: the system knows no such thing.
pub fn adopt_orphans() -> bool {
    *ADOPTS.get_or_init(|| {
        #[allow(
            clippy::disallowed_methods,
            reason = "nobody tells of a child that is only adopted"
        )]
        let reaper = || loop {
            std::thread::sleep(REAP_EVERY);
            reap();
        };
        set_child_subreaper(Some(getpid())).is_ok()
            && std::thread::Builder::new().name("orphans".to_owned()).spawn(reaper).is_ok()
    })
}

fn adopts() -> bool {
    ADOPTS.get().copied().unwrap_or(false)
}

fn attempts() -> MutexGuard<'static, Attempts> {
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a leader is born, until it is [known](Leader::new): until then it could be taken for an orphan.
pub(crate) struct Birth<'a> {
    mark: &'a str,
    pid: Arc<AtomicI32>,
    /// Not after the leader did.
    began: u64,
    _no_looking: RwLockReadGuard<'static, ()>,
}

impl<'a> Birth<'a> {
    pub(crate) fn new(attempt: &'a Attempt) -> Self {
        let no_looking = LEADERS.read().unwrap_or_else(PoisonError::into_inner);
        let pid = Arc::new(AtomicI32::new(0));
        attempts().born.push(Arc::clone(&pid));
        Self { mark: &attempt.mark.1, pid, began: ticks(), _no_looking: no_looking }
    }

    pub(crate) fn pid(&self) -> &AtomicI32 {
        &self.pid
    }
}

impl Drop for Birth<'_> {
    fn drop(&mut self) {
        let born = &mut attempts().born;
        born.retain(|pid| !Arc::ptr_eq(pid, &self.pid));
    }
}

/// Since the system began, as it counts them for processes.
fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let each_second = clock_ticks_per_second();
    now.tv_sec as u64 * each_second + now.tv_nsec as u64 * each_second / 1_000_000_000
}

/// An attempt that runs.
pub(crate) struct Leader {
    pid: Pid,
    began: u64,
}

impl Leader {
    /// Its process is unreaped, so that its number is its own.
    pub(crate) fn new(pid: Pid, birth: &Birth<'_>) -> Self {
        let began = birth.began;
        let running = Running { mark: birth.mark.to_owned(), began, ended: false };
        attempts().running.insert(pid.as_raw_nonzero().get(), running);
        Self { pid, began }
    }

    /// Kills what the attempt has left behind. Its leader has ended, and is not let go of yet.
    pub(crate) fn kill_rest(&self, attempt: &Attempt) -> io::Result<()> {
        self.ended();
        let (name, mark) = &attempt.mark;
        if let Some(user) = attempt.user.as_ref().filter(|user| user.is_own) {
            // Nobody else is that user, whatever became of the process.
            return kill_all(|pid| Stat::uid(pid) == Some(user.uid)).map(drop);
        }
        let until = now() + PATIENCE;
        // What they leave behind in turn becomes ours, and is found by the next look.
        loop {
            let mut found = since(self.pid)?;
            {
                // Most of what began since are leaders themselves.
                let mut attempts = attempts();
                attempts.forget(ticks());
                found.retain(|pid| !attempts.has_leader(*pid) && !attempts.was_leader(*pid));
            }
            found.retain(|pid| self.left(*pid, name, mark));
            if found.is_empty() || now() >= until {
                return Ok(());
            }
            let mut killed = Vec::new();
            {
                // A leader that has just been born is known once nobody is being born.
                let _no_births = LEADERS.write().unwrap_or_else(PoisonError::into_inner);
                for pid in found {
                    let process = kill_found(pid, |pid| self.left(pid, name, mark))?;
                    killed.extend(process.map(|process| (pid, process)));
                }
            }
            for (pid, process) in killed {
                if wait_all(vec![process], until)? == 0 && adopts() {
                    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                }
            }
        }
    }

    pub(crate) fn ended(&self) {
        if let Some(it) = attempts().running.get_mut(&self.pid.as_raw_nonzero().get()) {
            it.ended = true;
        }
    }

    fn left(&self, pid: Pid, name: &str, mark: &str) -> bool {
        let Some(stat) = Stat::of(pid).filter(|stat| !stat.has_ended) else { return false };
        // Whose parent lives is found when that is gone.
        let is_orphan = stat.parent == getpid().as_raw_nonzero().get();
        if adopts() && !is_orphan || attempts().has_leader(pid) {
            return false;
        }
        let carried = carried(pid, name);
        if carried.as_deref() == Some(mark.as_bytes()) {
            return true;
        }
        if !adopts() || stat.began < self.began {
            return false;
        }
        let attempts = attempts();
        // One that says whose it is, is that one's as long as it runs; of one that does not, nobody knows.
        let may_be_of = |other: &Running| match &carried {
            Some(carried) => carried == other.mark.as_bytes(),
            None => other.began <= stat.began,
        };
        !attempts.running.values().any(|other| !other.ended && may_be_of(other))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let (number, now) = (self.pid.as_raw_nonzero().get(), ticks());
        let mut attempts = attempts();
        attempts.running.remove(&number);
        attempts.forget(now);
        attempts.gone.push_back((number, now));
    }
}

/// The numbers of processes that may have begun since one did.
fn since(pid: Pid) -> io::Result<Vec<Pid>> {
    let first = pid.as_raw_nonzero().get();
    // `0.20 0.18 0.12 1/80 11206`
    let line = told("/proc/loadavg").ok();
    let line = line.as_deref().and_then(|line| std::str::from_utf8(line).ok());
    let last = line.and_then(|line| line.split_whitespace().last()?.parse::<i32>().ok());
    match last {
        Some(last) if last >= first && last - first <= NUMBERS_MOST => {
            Ok((first + 1..=last).filter_map(Pid::from_raw).collect())
        }
        // Many, or numbers were given anew from the beginning.
        _ => crate::processes::all(),
    }
}

/// Lets go of adopted children that have ended. Leaders are waited for by who watches them.
fn reap() {
    let _looking = LEADERS.write().unwrap_or_else(PoisonError::into_inner);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, look), Ok(Some(_))) {
        return;
    }
    let ours = getpid().as_raw_nonzero().get();
    for pid in crate::processes::all().unwrap_or_default() {
        let ended = Stat::of(pid).is_some_and(|stat| stat.has_ended && stat.parent == ours);
        if ended && !attempts().has_leader(pid) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

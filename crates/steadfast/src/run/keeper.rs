//! That this process has its job is said once a second, on a thread of its own: a database that is away is waited for there, and the view goes on.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, RunClaim, RunRenewal, StoreError};

use super::now;

const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Before a database that was away is asked again: others take the job for abandoned three seconds after it was last said.
const AGAIN_EVERY: Duration = Duration::from_millis(250);
/// How long its thread, which may wait for a database, is waited for at the end.
const LAST_WORD: Duration = Duration::from_secs(2);

/// The claim of a job, renewed until it is dropped.
#[derive(Debug)]
pub struct KeptClaim {
    claim: Arc<dyn RunClaim>,
    heard: Arc<Mutex<Heard>>,
    /// Dropped to end the thread, which drops the other's end.
    ends: Option<Sender<()>>,
    ended: Receiver<()>,
}

/// What was heard last.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// It is asked for until it has happened.
    pub(super) cancel: Option<Requester>,
    /// Who has the job now.
    pub(super) taken_by: Option<String>,
    /// Why it cannot be said that this process is alive.
    pub(super) away: Option<String>,
}

impl KeptClaim {
    pub(super) fn keep(claim: Box<dyn RunClaim>) -> Self {
        let (claim, heard): (Arc<dyn RunClaim>, _) = (claim.into(), Arc::default());
        let ((ends, ending), (end, ended)) = (channel(), channel());
        let kept = Self { claim: claim.clone(), heard, ends: Some(ends), ended };
        let heard = kept.heard.clone();
        // Without it others may take the job for abandoned, which is safe.
        let _ = std::thread::Builder::new().name("alive".to_owned()).spawn(move || {
            renew(&*claim, &heard, &ending);
            drop(claim);
            drop(end);
        });
        kept
    }

    pub(super) fn alive_at(&self) -> Option<Timestamp> {
        self.claim.alive_at()
    }

    pub(super) fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        self.claim.journal()
    }

    pub(super) fn forget(&self) {
        self.claim.forget();
    }

    /// Who has the job now, as far as that is known; none: this process, or nobody.
    pub(super) fn taken_by(&self) -> Option<String> {
        match self.claim.renew(now()) {
            Ok(RunRenewal::Taken { by }) => Some(by.unwrap_or_else(unknown)),
            _ => None,
        }
    }

    pub(super) fn heard(&self) -> Heard {
        locked(&self.heard).clone()
    }
}

/// Then the claim itself is, which gives the job back.
impl Drop for KeptClaim {
    fn drop(&mut self) {
        self.ends = None;
        let _ = self.ended.recv_timeout(LAST_WORD);
    }
}

fn unknown() -> String {
    "another process".to_owned()
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn renew(claim: &dyn RunClaim, heard: &Mutex<Heard>, ending: &Receiver<()>) {
    let mut pause = ALIVE_EVERY;
    while ending.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let renewed = claim.renew(now());
        let mut heard = locked(heard);
        pause = ALIVE_EVERY;
        match renewed {
            Ok(RunRenewal::Kept { cancel }) => {
                *heard = Heard { cancel, ..Heard::default() };
            }
            Ok(RunRenewal::Taken { by }) => {
                heard.taken_by = Some(by.unwrap_or_else(unknown));
                return;
            }
            Err(error) => {
                heard.away = Some(error.to_string());
                pause = AGAIN_EVERY;
            }
        }
    }
}

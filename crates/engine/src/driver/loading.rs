//! Reads stored jobs beside everything else. Only the callers that wait for one wait for this.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use super::{Clock, Signals};
use crate::inbox::{Adopted, Message};
use crate::load::{Loader, Unreadable};
use crate::mailbox::{Lane, Receiver, Sender};

/// Jobs whose ids, or entries of the queue, are read at once.
const PAGE: usize = 1000;
/// Loaded jobs that wait to be taken up: enough to keep the decider busy, few enough that reports and commands,
/// which come through the same lane, do not find it full.
pub(super) const AHEAD: usize = 256;
/// Before a store that could not be read is read again.
const PAUSE: Duration = Duration::from_millis(250);
/// However long there is nothing to read: whether the decider is gone.
const LOOK: Duration = Duration::from_mins(1);

/// What is to be read.
pub(super) enum Load {
    Job(JobId),
    /// Nothing: it is to be said that all before it has been.
    HowFar,
    /// The next of the queue.
    Turns(Vec<JobId>),
    /// Everything that is to be woken after one moment, up to another; none: from the beginning on, and the queue.
    Due {
        after: Option<Timestamp>,
        until: Timestamp,
    },
    /// The same, of shards that have become this server's.
    Gained {
        shards: Vec<u16>,
        until: Timestamp,
    },
}

/// Why nothing more is loaded.
enum Stop {
    /// The decider is gone.
    Gone,
    Unreadable(Unreadable),
}

pub(super) struct Loading {
    pub(super) loader: Loader,
    pub(super) loads: Receiver<Load>,
    pub(super) decider: Sender<Message>,
    /// What cannot be read is read again until it can: from the moment on that the one that started this was told how it began.
    pub(super) insists: bool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) signals: Arc<Signals>,
}

impl Loading {
    pub(super) fn run(mut self) {
        while !self.loads.is_abandoned() {
            self.loads.wait_for(1, Lane::Work, LOOK);
            for load in self.loads.take(1, Lane::Work) {
                if self.load(load).is_err() {
                    return;
                }
            }
        }
    }

    /// One of what is to be read. False: there is nothing, or nobody waits for it.
    pub(super) fn step(&mut self) -> bool {
        let load = self.loads.take(1, Lane::Work).pop_front();
        load.is_some_and(|load| self.load(load).is_ok())
    }

    fn load(&mut self, load: Load) -> Result<(), Stop> {
        match load {
            Load::Job(job) => {
                let as_of = self.as_of();
                let found = self.loader.load(&job);
                self.tell(job, found, as_of)
            }
            Load::HowFar => self.send(Message::ReadUpTo(self.as_of()), true),
            Load::Turns(jobs) => jobs.into_iter().try_for_each(|job| self.certainly(job)),
            Load::Due { after: Some(after), until } => self.due(None, Some(after), until),
            Load::Due { after: None, until } => self.begin(until),
            Load::Gained { shards, until } => self.gained(&shards, until),
        }
    }

    /// First what attempts are under way of, as their workers are to come back; then what is due, and the queue.
    fn begin(&mut self, until: Timestamp) -> Result<(), Stop> {
        let under_way = Timestamp(0);
        let recovered = match self.due(None, None, under_way) {
            Ok(()) => Ok(()),
            Err(Stop::Unreadable(why)) => Err(why),
            Err(Stop::Gone) => return Err(Stop::Gone),
        };
        self.insists = true;
        self.send(Message::Recovered(recovered), true)?;
        self.due(None, Some(under_way), until)?;
        self.queue(None)
    }

    /// The same, while everything else goes on.
    fn gained(&mut self, shards: &[u16], until: Timestamp) -> Result<(), Stop> {
        let under_way = Timestamp(0);
        self.due(Some(shards), None, under_way)?;
        self.send(Message::Gained(shards.to_vec()), true)?;
        self.due(Some(shards), Some(under_way), until)?;
        self.queue(Some(shards))
    }

    fn due(
        &mut self,
        shards: Option<&[u16]>,
        after: Option<Timestamp>,
        until: Timestamp,
    ) -> Result<(), Stop> {
        // After every id of that moment.
        let mut last = after.map(|after| (after, JobId::from("\u{10ffff}")));
        loop {
            let after = last.clone();
            let page = self.insist(|loader| loader.due(shards, after.clone(), until, PAGE))?;
            last = page.last().cloned().or(last);
            for (_, job) in page.iter().filter(|_| !is_on(Defect::DueJobNotLoaded)) {
                self.certainly(job.clone())?;
                self.urgent()?;
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    fn queue(&mut self, shards: Option<&[u16]>) -> Result<(), Stop> {
        let mut last = None;
        loop {
            let after = last.clone();
            let page = self.insist(|loader| loader.queued(shards, after.clone(), PAGE))?;
            let is_last = page.len() < PAGE;
            last = page.last().map(|entry| (entry.submitted_at, entry.job.clone()));
            self.send(Message::Queued(page), false)?;
            if is_last {
                return Ok(());
            }
            self.urgent()?;
        }
    }

    /// What callers and free slots wait for by now.
    fn urgent(&mut self) -> Result<(), Stop> {
        while let Some(load) = self.loads.take(1, Lane::Liveness).pop_front() {
            self.load(load)?;
        }
        Ok(())
    }

    fn certainly(&mut self, job: JobId) -> Result<(), Stop> {
        let as_of = self.as_of();
        let found = self.insist(|loader| match loader.load(&job) {
            Err(why) if !why.is_of_one_job() => Err(why),
            found => Ok(found),
        })?;
        self.tell(job, found, as_of)
    }

    /// What is read from now on is as of this departure, or a later one.
    fn as_of(&self) -> u64 {
        self.signals.departures.load(Ordering::SeqCst)
    }

    fn insist<T>(
        &mut self,
        mut read: impl FnMut(&mut Loader) -> Result<T, Unreadable>,
    ) -> Result<T, Stop> {
        loop {
            match read(&mut self.loader) {
                Ok(read) => return Ok(read),
                Err(why) if !self.insists => return Err(Stop::Unreadable(why)),
                Err(_) => self.clock.pause(PAUSE),
            }
            if self.loads.is_abandoned() {
                return Err(Stop::Gone);
            }
        }
    }

    fn tell(
        &self,
        job: JobId,
        found: Result<Option<Adopted>, Unreadable>,
        as_of: u64,
    ) -> Result<(), Stop> {
        let found = found.map(|found| found.map(Box::new));
        self.send(Message::Loaded { job, found, as_of }, false)
    }

    fn send(&self, message: Message, urgent: bool) -> Result<(), Stop> {
        self.decider.send_below(AHEAD, message, Lane::Work, urgent).map_err(|_| Stop::Gone)
    }
}

//! Decides: takes what has arrived, asks the controller, and hands groups on. Never waits for the store.

mod gathering;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use super::loading::Load;
use super::{Arrived, Clock, Sent, Signals, Then};
use crate::controller::{Controller, Group, ReplyId, Request};
use crate::crash::crash_point;
use crate::hash::HashMap;
use crate::inbox::{Answer, Message, Reply};
use crate::load::Unreadable;
use crate::mailbox::{Lane, NotSent, Receiver, Sender};
use gathering::LATELY;
use steadfast_core::decide::Input;
use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::JobId;
use steadfast_store::OwnedShards;

/// However long nothing is due: a clock that was set forward, or a machine that slept, is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Jobs that are due within this many milliseconds are in memory; the others are read in time.
const HORIZON_MS: u64 = 60_000;

pub(super) struct Decider {
    controller: Controller,
    clock: Arc<dyn Clock>,
    messages: Receiver<Message>,
    groups: SyncSender<Sent>,
    signals: Arc<Signals>,
    loads: Option<Sender<Load>>,
    /// The loader had no room for these.
    unsent_loads: VecDeque<Load>,
    recovered: SyncSender<Result<(), Unreadable>>,
    /// The writer had no room for it: the store stalls.
    unsent: Option<Sent>,
    replies: HashMap<ReplyId, Reply<Answer>>,
    last_reply_id: ReplyId,
    shards: Arc<OwnedShards>,
    /// Those of them of which everything that is under way is in memory: of their jobs, what is not known here is over.
    known_shards: BTreeSet<u16>,
    /// How often each is still to be read: one that went and came again is read anew.
    unread_shards: BTreeMap<u16, u32>,
    /// Of shards that were given away, and of all when it began anew: what was read before this departure is of the time before, also if
    /// the shard has come back.
    gone_since: BTreeMap<u16, u64>,
    all_gone_since: u64,
    /// To be done between two groups.
    changes: VecDeque<Then>,
    /// They wait for one of these.
    begun_anew: Vec<Reply<()>>,
    /// They wait for what was decided since the last group.
    arrived: Vec<Arrived>,
    /// The loader has been asked how far it is, and has not answered.
    asked_how_far: bool,
    /// Groups until attempts are not taken to end any more.
    ended_lately: u32,
    /// Groups that the writer was handed.
    pub(super) sent: u64,
}

/// From one sleep to the next.
#[derive(Debug)]
pub(super) struct Turn {
    lane: Lane,
    /// How long it sleeps, unless something comes.
    pub(super) wait: Duration,
}

impl Decider {
    pub(super) fn new(
        controller: Controller,
        clock: Arc<dyn Clock>,
        messages: Receiver<Message>,
        groups: SyncSender<Sent>,
        signals: Arc<Signals>,
        loads: Option<Sender<Load>>,
        recovered: SyncSender<Result<(), Unreadable>>,
    ) -> Self {
        Self {
            controller,
            clock,
            messages,
            groups,
            signals,
            loads,
            unsent_loads: VecDeque::new(),
            recovered,
            unsent: None,
            replies: HashMap::default(),
            last_reply_id: 0,
            shards: Arc::new(OwnedShards::all()),
            known_shards: BTreeSet::new(),
            unread_shards: BTreeMap::new(),
            gone_since: BTreeMap::new(),
            all_gone_since: 0,
            changes: VecDeque::new(),
            begun_anew: Vec::new(),
            arrived: Vec::new(),
            asked_how_far: false,
            ended_lately: 0,
            sent: 0,
        }
    }

    /// What there is of these is loaded first, and workers come in after that.
    pub(super) fn with_shards(self, shards: Arc<OwnedShards>) -> Self {
        Self { known_shards: shards.all_had(), shards, ..self }
    }

    /// What waits to be decided, of jobs that are there.
    pub(super) fn waiting(&self) -> usize {
        self.messages.len(Lane::Work)
    }

    /// Whether the job's attempts that are under way are all in memory.
    fn is_known(&self, job: &JobId) -> bool {
        self.shards.has(job)
            && (!self.shards.are_shared() || self.known_shards.contains(&self.shards.shard_of(job)))
    }

    /// Its shard is this server's, and was another's after the job was read.
    fn was_gone_since(&self, job: &JobId, as_of: u64) -> bool {
        let has_shard = self.shards.are_shared() && self.shards.has(job);
        let gone_since = || self.gone_since.get(&self.shards.shard_of(job)).copied();
        has_shard && as_of < gone_since().unwrap_or(0).max(self.all_gone_since)
    }

    pub(super) fn run(mut self) {
        while let Some(turn) = self.prepare() {
            self.messages.wait_for(1, turn.lane, turn.wait);
            // Attempts in this process are better begun at once.
            if turn.lane == Lane::NewJobs && self.controller.engine.is_fleet() {
                self.gather_beside_the_writer();
            }
            if !self.act(&turn, true) {
                break;
            }
        }
        if let Some(unsent) = self.unsent.take() {
            let _ = self.groups.send(unsent);
        }
    }

    /// What comes before it sleeps. None: the writer is gone.
    pub(super) fn prepare(&mut self) -> Option<Turn> {
        self.resend().ok()?;
        self.look_ahead();
        // Before it sleeps: at the start nobody else would wake it, and nobody is served until this is read.
        self.load();
        let lane = if self.unsent.is_some() { Lane::Liveness } else { Lane::NewJobs };
        self.controller.engine.hear(self.clock.monotonic_ms(), 0);
        Some(Turn { lane, wait: self.wait() })
    }

    /// What comes after. `may_wait`: for a little more, while much is under way. False: we are to stop.
    pub(super) fn act(&mut self, turn: &Turn, may_wait: bool) -> bool {
        let Turn { lane, wait } = *turn;
        self.controller.engine.hear(self.clock.monotonic_ms(), wait.as_millis() as u64);
        self.ended_lately = self.ended_lately.saturating_sub(1);
        let open = self.gather(lane, may_wait);
        if !open {
            // What was said before is decided, and its callers hear how it ended.
            let rest = self.messages.take(usize::MAX, Lane::NewJobs);
            self.take_all(rest);
        }
        if lane == Lane::NewJobs {
            let heard_all = self.messages.is_empty(Lane::Work);
            self.controller.due(self.clock.now(), heard_all);
        }
        self.load();
        if let Some(group) = self.controller.group() {
            crash_point("before-append");
            self.send(group);
        }
        self.change_owners();
        open
    }

    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Has what is due within `HORIZON_MS` loaded, in time.
    fn look_ahead(&mut self) {
        let now = self.clock.now();
        let horizon = self.controller.horizon();
        let is_near = horizon.is_none_or(|horizon| horizon.since(now) < HORIZON_MS / 2);
        if self.loads.is_some() && is_near {
            let until = now.plus(HORIZON_MS);
            self.controller.raise_horizon(until);
            self.unsent_loads.push_back(Load::Due { after: horizon, until });
        }
    }

    /// Lets go of jobs that are to be others', or are already. Between two groups, so that nothing that was decided about them
    /// is left, and not while one waits, as what comes after this must not be joined with what was before.
    fn change_owners(&mut self) {
        while self.unsent.is_none()
            && let Some(then) = self.changes.pop_front()
        {
            match &then {
                Then::Give { shards, .. } => {
                    self.known_shards.retain(|shard| !shards.contains(shard));
                    let owned = &self.shards;
                    if !is_on(Defect::TwoControllersOnOneShard) {
                        self.controller.let_go(|job| shards.contains(&owned.shard_of(job)));
                    }
                    let since = self.controller.departures();
                    self.gone_since.extend(shards.iter().map(|shard| (*shard, since)));
                }
                Then::Write(owner) => {
                    self.known_shards.clear();
                    self.controller.begin_anew(owner.epoch);
                    self.all_gone_since = self.controller.departures();
                    self.begun_anew.drain(..).for_each(|reply| reply(()));
                }
            }
            let group = self.controller.group().unwrap_or_default();
            let replies = self.taken_replies(&group);
            let arrived = std::mem::take(&mut self.arrived);
            self.unsent = Some(Sent { group, replies, arrived, then: Some(then) });
            if self.resend().is_err() {
                return;
            }
        }
    }

    /// Hands to the loader what it is to read. There is one word for each job that a caller waits for.
    fn load(&mut self) {
        let jobs = self.controller.take_loads().into_iter().map(Load::Job);
        self.unsent_loads.extend(jobs);
        let turns = self.controller.take_turns();
        if !turns.is_empty() {
            self.unsent_loads.push_back(Load::Turns(turns));
        }
        self.signals.departures.store(self.controller.departures(), Ordering::SeqCst);
        if self.controller.has_many_departures() && !self.asked_how_far {
            self.asked_how_far = true;
            self.unsent_loads.push_back(Load::HowFar);
        }
        let Some(loads) = &self.loads else { return };
        while let Some(load) = self.unsent_loads.pop_front() {
            // What a caller or a free slot waits for comes before what is due in a minute.
            let lane = match load {
                Load::Due { .. } | Load::Gained { .. } => Lane::Work,
                Load::Job(_) | Load::Turns(_) | Load::HowFar => Lane::Liveness,
            };
            match loads.try_send(load, lane, true) {
                Ok(()) => {}
                Err((NotSent::Full, load)) => return self.unsent_loads.push_front(load),
                // A loader that is gone has said why.
                Err((NotSent::Closed, _)) => return,
            }
        }
    }

    fn wait(&self) -> Duration {
        let engine = &self.controller.engine;
        let longest = engine.check_every().unwrap_or(LONGEST_WAIT);
        if self.unsent.is_some() {
            // Nothing that is due can be written now; the writer says when it can.
            return longest;
        }
        let timer = engine.next_due().map(|due| due.plus(1).since(self.clock.now()));
        let wake = engine.next_wake();
        let wake = wake.map(|wake| wake.saturating_sub(self.clock.monotonic_ms()));
        let look_ahead = self.controller.horizon().map(|_| HORIZON_MS / 4);
        let soonest = timer.into_iter().chain(wake).chain(look_ahead).min();
        soonest.map_or(longest, Duration::from_millis).min(longest)
    }

    fn take_all(&mut self, messages: VecDeque<Message>) -> bool {
        let mut open = true;
        for message in messages {
            open &= !matches!(message, Message::Stop);
            self.take(message);
        }
        open
    }

    fn take(&mut self, message: Message) {
        let now = self.clock.now();
        match message {
            Message::Request { request, reply } => {
                if matches!(request, Request::Input { input: Input::Report { .. }, .. }) {
                    self.ended_lately = LATELY;
                }
                let reply_id = reply.map(|reply| {
                    self.last_reply_id += 1;
                    self.replies.insert(self.last_reply_id, reply);
                    self.last_reply_id
                });
                self.controller.request(reply_id, request, now);
            }
            Message::Connect { arriving, reply } => {
                let arriving = arriving.at_one_that_knows(|job| self.is_known(job));
                match self.controller.connect(arriving, now) {
                    // Its arrival is news, so that there is a group to wait for.
                    Ok(arrival) if arrival.is_new => {
                        self.arrived.push(Arrived { arrival, reply });
                    }
                    answer => reply(answer),
                }
            }
            Message::Beat { worker, incarnation, reply } => {
                reply(self.controller.engine.beat(&worker, &incarnation));
            }
            Message::Away { worker, session } => self.controller.engine.away(&worker, session),
            Message::DrainWorker { worker, reply } => {
                reply(self.controller.engine.drain_worker(&worker));
            }
            Message::UndrainWorker { worker, reply } => {
                reply(self.controller.engine.undrain_worker(&worker));
            }
            Message::Undrained { worker } => self.controller.engine.undrained(&worker),
            Message::Credits { worker, session, credits } => {
                self.controller.engine.credits(&worker, session, credits);
            }
            Message::Look(look) => look(&self.controller.engine),
            Message::Refused { jobs, epoch } => {
                self.controller.fence_from(epoch);
                for (job, why) in &jobs {
                    self.controller.refused(job, why);
                }
                self.controller.heard_refusals();
            }
            Message::Ended(jobs) => jobs.iter().for_each(|job| self.controller.ended(job)),
            Message::Idle(jobs) => {
                for (job, seq) in &jobs {
                    self.controller.idle(job, *seq);
                }
            }
            // Shards may have gone while they were read.
            Message::Queued(mut entries) => {
                entries.retain(|entry| self.shards.has(&entry.job));
                self.controller.enqueue(entries);
            }
            Message::Loaded { job, as_of, .. } if self.was_gone_since(&job, as_of) => {
                self.controller.read_again(job);
            }
            Message::Loaded { job, found, as_of } => {
                let found = match found {
                    Ok(Some(_)) if !self.shards.has(&job) => {
                        let owner = "another server".to_owned();
                        Err(Unreadable::Elsewhere { job: job.clone(), owner })
                    }
                    found => found,
                };
                self.controller.loaded(&job, found, as_of, now);
            }
            Message::ReadUpTo(as_of) => {
                self.asked_how_far = false;
                self.controller.read_up_to(as_of);
            }
            Message::Recovered(result) => {
                self.controller.engine.recovered();
                let _ = self.recovered.send(result);
            }
            Message::GainShards(shards) => {
                // Without one, everything is still to be loaded.
                if let Some(until) = self.controller.horizon() {
                    self.controller.gaining();
                    for shard in &shards {
                        *self.unread_shards.entry(*shard).or_default() += 1;
                    }
                    self.unsent_loads.push_back(Load::Gained { shards, until });
                }
            }
            Message::Gained(shards) => {
                self.controller.gained();
                for shard in shards {
                    let unread = self.unread_shards.entry(shard).or_default();
                    *unread = unread.saturating_sub(1);
                    if *unread == 0 {
                        self.unread_shards.remove(&shard);
                        self.known_shards.insert(shard);
                    }
                }
            }
            Message::GiveShards { shards, to } => {
                self.changes.push_back(Then::Give { shards, to });
            }
            Message::BeginAnew { owner, reply } => {
                self.changes.push_back(Then::Write(owner));
                self.begun_anew.push(reply);
            }
            Message::Drain => self.controller.engine.drain(),
            Message::WriterReady | Message::Stop => {}
        }
    }

    fn send(&mut self, group: Group) {
        let replies = self.taken_replies(&group);
        let arrived = std::mem::take(&mut self.arrived);
        match &mut self.unsent {
            Some(unsent) => {
                unsent.group.join(group);
                unsent.replies.extend(replies);
                unsent.arrived.extend(arrived);
            }
            None => self.unsent = Some(Sent { group, replies, arrived, then: None }),
        }
    }

    fn taken_replies(&mut self, group: &Group) -> HashMap<ReplyId, Reply<Answer>> {
        let replies = group.reply_ids().filter_map(|reply_id| self.replies.remove_entry(&reply_id));
        replies.collect()
    }

    /// Err: the writer is gone.
    fn resend(&mut self) -> Result<(), ()> {
        // Asked for before the second try, so that the writer's word is not missed.
        for last in [false, true] {
            let Some(unsent) = self.unsent.take() else { return Ok(()) };
            match self.groups.try_send(unsent) {
                Ok(()) => {
                    self.sent += 1;
                    return Ok(());
                }
                Err(TrySendError::Disconnected(_)) => return Err(()),
                Err(TrySendError::Full(unsent)) => self.unsent = Some(unsent),
            }
            if !last {
                self.signals.wants_room.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

//! Whose the slots are while several servers assign: how many attempts each may have in hand.
//!
//! A plain value: what is said and the time go in, the next word for a server comes out. What is taken from one server
//! is another's only once the first has said that it counts by it, and what runs there by then has ended. So **the
//! slots of all servers together are never more than there are**, and two never race for one.

use std::time::Duration;

use steadfast_core::defects::{Defect, is_on};

use crate::resources::{Capacity, Resources};

/// Which of those who assign: the first has 0.
pub type Source = usize;

/// A server that wants more says so every 100 ms. One that has not for this long has enough.
const WANTS_FOR: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Credits {
    slots: u32,
    capacity: Capacity,
    accounts: Vec<Account>,
    /// How often more was granted.
    turns: u64,
}

/// One server's.
#[derive(Debug, Default)]
struct Account {
    session: Session,
    granted: u32,
    /// What it had, until it has taken the last word.
    before: Option<u32>,
    /// Of the last word.
    number: u64,
    /// Slots that its attempts are in, and what they take beside.
    busy: u32,
    taken: Resources,
    /// What it was told that the others leave. None: nothing yet, and it counts with all there is.
    left: Option<Capacity>,
    wanted_at: Option<Duration>,
    drains: bool,
    /// The turn in which it was last granted more.
    turn: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Session {
    #[default]
    None,
    /// Hello was said, and not answered yet.
    Greeted,
    Open,
}

/// A word for a server: so many from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub slots: u32,
    /// What the others leave.
    pub left: Capacity,
    pub number: u64,
}

impl Account {
    /// What no other may have. Without a session that is what its attempts are in.
    fn reserved(&self) -> u32 {
        let granted = match self.session {
            Session::None => 0,
            Session::Greeted | Session::Open => self.granted.max(self.before.unwrap_or(0)),
        };
        granted.max(self.busy)
    }

    fn left_told(&self, all: Capacity) -> Capacity {
        self.left.unwrap_or(all)
    }

    fn wants(&self, now: Duration) -> bool {
        let fresh = |at: Duration| now.saturating_sub(at) < WANTS_FOR;
        !self.drains && self.wanted_at.is_some_and(fresh)
    }
}

impl Credits {
    /// Of one server; others are [added](Self::add).
    pub fn new(slots: u32) -> Self {
        Self { slots, capacity: Capacity::default(), accounts: vec![Account::default()], turns: 0 }
    }

    /// There is no more of cpus and memory than this, for all servers together.
    #[must_use]
    pub fn within(self, capacity: Capacity) -> Self {
        Self { capacity, ..self }
    }

    pub fn add(&mut self) {
        self.accounts.push(Account::default());
    }

    fn free(&self) -> u32 {
        self.slots.saturating_sub(self.accounts.iter().map(Account::reserved).sum())
    }

    /// For a hello: what the server may use from the beginning. None: all there is, as there is no other server.
    pub fn greet(&mut self, source: Source) -> Option<u32> {
        let (free, servers) = (self.free(), self.accounts.len() as u32);
        let share = (self.slots / servers).max(1);
        let account = &mut self.accounts[source];
        (account.session, account.left) = (Session::Greeted, None);
        account.granted = share.min(account.busy + free).max(account.busy);
        if account.granted > 0 {
            self.turns += 1;
            account.turn = self.turns;
        }
        (servers > 1).then_some(account.granted)
    }

    pub fn welcomed(&mut self, source: Source) {
        self.accounts[source].session = Session::Open;
    }

    /// What it does not use is free.
    pub fn session_ended(&mut self, source: Source) {
        let account = &mut self.accounts[source];
        (account.session, account.before, account.wanted_at) = (Session::None, None, None);
    }

    /// It has something to run, and no credit left.
    pub fn wanted(&mut self, source: Source, now: Duration) {
        self.accounts[source].wanted_at = Some(now);
    }

    /// Some server waits for another's credits.
    pub fn is_wanted(&self, now: Duration) -> bool {
        self.accounts.iter().any(|account| account.wants(now))
    }

    /// Some server counts with more or less than the others leave it, and can be told.
    pub fn is_news(&self) -> bool {
        let is_open =
            |account: &Account| account.session == Session::Open && account.before.is_none();
        let mut all = self.accounts.iter().enumerate();
        self.accounts.len() > 1
            && all.any(|(source, account)| {
                is_open(account) && account.left_told(self.capacity) != self.left_to(source)
            })
    }

    /// The server gives nothing new, or does again.
    pub fn drains(&mut self, source: Source, drains: bool) {
        self.accounts[source].drains = drains;
    }

    /// The server counts by the word of this number.
    pub fn taken(&mut self, source: Source, number: u64) {
        let account = &mut self.accounts[source];
        if account.number == number {
            account.before = None;
        }
    }

    /// An attempt of it may have a slot: one of its own, or one that is nobody's. An attempt that has gone to another server took its slot
    /// along, and the one before has its credit until it is told: what is busy counts first.
    pub fn may_begin(&self, source: Source) -> bool {
        let account = &self.accounts[source];
        let busy: u32 = self.accounts.iter().map(|account| account.busy).sum();
        let has_slot = busy < self.slots || is_on(Defect::SlotsGivenTwice);
        has_slot && (account.busy < account.reserved() || self.free() > 0)
    }

    /// What it takes is free, whoever has the rest.
    pub fn has(&self, wanted: Resources) -> bool {
        let taken = self.accounts.iter().map(|account| account.taken);
        let taken = taken.fold(Resources::default(), Resources::plus);
        let is_nothing = wanted == Resources::default();
        is_nothing || is_on(Defect::ResourcesGivenTwice) || self.capacity.without(taken).has(wanted)
    }

    /// What the others leave to this server.
    fn left_to(&self, source: Source) -> Capacity {
        let others = self.accounts.iter().enumerate().filter(|(other, _)| *other != source);
        let taken = others.map(|(_, account)| account.taken);
        self.capacity.without(taken.fold(Resources::default(), Resources::plus))
    }

    pub fn began(&mut self, source: Source, takes: Resources) {
        let account = &mut self.accounts[source];
        account.busy += 1;
        account.taken = account.taken.plus(takes);
    }

    pub fn ended(&mut self, source: Source, takes: Resources) {
        let account = &mut self.accounts[source];
        account.busy -= 1;
        account.taken = account.taken.minus(takes);
    }

    /// An attempt of one is another's.
    pub fn moved(&mut self, from: Source, to: Source, takes: Resources) {
        self.ended(from, takes);
        self.began(to, takes);
    }

    /// What the server is to be told now. None: nothing, or not before it has taken the last word. `waiting`: how many
    /// of a server's attempts wait for a slot.
    pub fn next(
        &mut self,
        source: Source,
        waiting: impl Fn(Source) -> u32,
        now: Duration,
    ) -> Option<Grant> {
        let account = &self.accounts[source];
        if self.accounts.len() == 1 || account.session != Session::Open || account.before.is_some()
        {
            return None;
        }
        let (granted, target) = (account.granted, self.targets(waiting, now)[source]);
        // Of what it uses beyond its credits nothing is free to be granted.
        let most = account.reserved() + self.free();
        let slots = target.min(most.max(granted));
        let (left, told) = (self.left_to(source), account.left_told(self.capacity));
        if slots == granted && left == told {
            return None;
        }
        let account = &mut self.accounts[source];
        account.before = Some(granted);
        account.granted = slots;
        account.left = Some(left);
        account.number += 1;
        if slots > granted {
            self.turns += 1;
            account.turn = self.turns;
            account.wanted_at = None;
        }
        Some(Grant { slots, left, number: account.number })
    }

    /// How many each should have. First what each needs, one by one, to the one that has the least so far; what is left
    /// then stays where it is.
    fn targets(&self, waiting: impl Fn(Source) -> u32, now: Duration) -> Vec<u32> {
        let is_open = |account: &Account| account.session == Session::Open;
        let open = self.accounts.iter().filter(|account| is_open(account)).count() as u32;
        let others = self.accounts.iter().filter(|account| !is_open(account));
        let mut left = self.slots.saturating_sub(others.map(Account::reserved).sum());
        // With fewer slots than servers they take turns.
        let is_scarce = self.slots < open;
        let mut targets = vec![0; self.accounts.len()];
        let needs = |(source, account): (Source, &Account)| match account.session {
            Session::None | Session::Greeted => 0,
            Session::Open if account.wants(now) => self.slots,
            Session::Open if is_scarce || account.drains => account.busy + waiting(source),
            Session::Open => (account.busy + waiting(source)).max(1),
        };
        let needs: Vec<u32> = self.accounts.iter().enumerate().map(needs).collect();
        while left > 0 {
            let lacks = (0..targets.len()).filter(|&source| targets[source] < needs[source]);
            let rank = |source: &Source| {
                let account = &self.accounts[*source];
                let kept = if is_scarce { 0 } else { u32::MAX - account.granted };
                (targets[*source], kept, account.turn)
            };
            let Some(next) = lacks.min_by_key(rank) else { break };
            targets[next] += 1;
            left -= 1;
        }
        for (target, account) in targets.iter_mut().zip(&self.accounts) {
            let kept = account.granted.saturating_sub(*target).min(left);
            if is_open(account) && !account.drains {
                *target += kept;
                left -= kept;
            }
        }
        targets
    }
}

#[cfg(test)]
mod tests;

//! Capacity for attempts.

use std::collections::BTreeMap;

use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;

use crate::prefetch::Prefetch;

/// How many attempts may be under way.
#[derive(Clone, Debug)]
pub struct Slots {
    room: Capacity,
    used: BTreeMap<Option<String>, u32>,
}

#[derive(Clone, Debug)]
enum Capacity {
    Unlimited,
    Each(u32),
    /// And some ahead of what is free, while they are short.
    Shared(u32, Prefetch),
}

impl Slots {
    pub fn unlimited() -> Self {
        Self { room: Capacity::Unlimited, used: BTreeMap::new() }
    }

    pub fn per_datacenter(most: u32) -> Self {
        Self { room: Capacity::Each(most), used: BTreeMap::new() }
    }

    /// `most` that all datacenters share, and whose workers keep a queue: while attempts are very
    /// short, some more are handed out than there are slots. Workers hand back what waited too long.
    pub fn shared(most: u32) -> Self {
        Self { room: Capacity::Shared(most, Prefetch::default()), used: BTreeMap::new() }
    }

    /// `may_wait`: also where it must wait for a slot to be free.
    pub(crate) fn take(&mut self, datacenter: Option<&str>, may_wait: bool) -> bool {
        let most = match &self.room {
            Capacity::Unlimited => return true,
            Capacity::Each(most) => *most,
            Capacity::Shared(most, pace) => {
                let ahead = if may_wait { pace.ahead() } else { 0 };
                if self.in_use() >= (most + ahead) as usize {
                    return false;
                }
                u32::MAX
            }
        };
        let used = self.used.entry(datacenter.map(str::to_owned)).or_default();
        let free = *used < most;
        *used += u32::from(free);
        free
    }

    /// An attempt that is under way already has one, whether there are as many or not.
    pub(crate) fn hold(&mut self, datacenter: Option<&str>) {
        if !matches!(self.room, Capacity::Unlimited) {
            *self.used.entry(datacenter.map(str::to_owned)).or_default() += 1;
        }
    }

    /// Of those that are counted.
    pub(crate) fn in_use(&self) -> usize {
        self.used.values().map(|&used| used as usize).sum()
    }

    /// What those of a datacenter have taken from the others, if they share.
    pub(crate) fn taken_by(&self, datacenter: Option<&str>) -> u32 {
        match &self.room {
            Capacity::Shared(..) => {
                self.used.get(&datacenter.map(str::to_owned)).copied().unwrap_or_default()
            }
            Capacity::Unlimited | Capacity::Each(_) => 0,
        }
    }

    /// Attempts are short, and wait at the workers before they begin.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(&self.room, Capacity::Shared(_, pace) if pace.ahead() > 0)
    }

    pub(crate) fn started(&mut self, at: Timestamp) {
        if let Capacity::Shared(_, pace) = &mut self.room {
            pace.started(at);
        }
    }

    pub(crate) fn reported(&mut self, outcome: &Outcome, at: Timestamp) {
        if let Capacity::Shared(most, pace) = &mut self.room {
            pace.reported(*most, outcome, at);
        }
    }

    pub(crate) fn give_back(&mut self, datacenter: Option<&str>) {
        if !matches!(self.room, Capacity::Unlimited)
            && let Some(used) = self.used.get_mut(&datacenter.map(str::to_owned))
        {
            *used = used.saturating_sub(1);
        }
    }
}

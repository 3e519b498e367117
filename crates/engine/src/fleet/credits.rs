//! Workers that have other servers too: how much of them is for this one.

use std::sync::Arc;

use super::{CreditNotice, Credits, Fleet, Needs};

/// How often a worker is told that more of its slots are wanted.
const ASK_EVERY_MS: u64 = 100;

impl Fleet {
    /// The worker has so much for this server from now on. What it has in hand beyond that it keeps.
    pub(crate) fn credits(&mut self, name: &str, session: u64, credits: Credits) {
        let Credits { slots, cpu_milli, memory_bytes, number } = credits;
        let Some(member) = self.members.get_mut(name) else { return };
        if member.session != session {
            return;
        }
        let name = member.spec.name.clone();
        member.credits = slots.min(member.spec.slots);
        (member.cpu_left_milli, member.memory_left) = (cpu_milli, memory_bytes);
        self.credit_notices.push((name.clone(), CreditNotice::Taken(number)));
        self.keep_open(&name);
    }

    /// When workers are asked for more of their slots, if something waits that they could run.
    pub(crate) fn next_ask(&self) -> Option<u64> {
        let last = self.asked.filter(|_| !self.limited.is_empty())?;
        Some(last + ASK_EVERY_MS)
    }

    /// These wait, and no worker has a slot for them.
    pub(crate) fn ask_for_credits<'a>(
        &mut self,
        waiting: &(impl Iterator<Item = &'a Needs> + Clone),
        mono: u64,
    ) {
        let is_early = self.asked.is_some_and(|last| mono < last + ASK_EVERY_MS);
        if self.limited.is_empty() || is_early {
            return;
        }
        let members = self.limited.iter().filter_map(|name| self.members.get(name));
        let asked = members
            .filter(|member| waiting.clone().any(|needs| member.lacks_credit_for(needs)))
            .map(|member| (member.spec.name.clone(), CreditNotice::Wanted));
        let before = self.credit_notices.len();
        self.credit_notices.extend(asked);
        self.asked = (self.credit_notices.len() > before).then_some(mono);
    }

    pub(crate) fn take_credit_notices(&mut self) -> Vec<(Arc<str>, CreditNotice)> {
        std::mem::take(&mut self.credit_notices)
    }
}

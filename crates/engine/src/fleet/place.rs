//! Who takes an attempt.

use std::sync::Arc;

use super::{Fleet, Member, Needs};

impl Fleet {
    /// A worker that can take it now: rather not the one to avoid, and the least busy. `may_wait`: also
    /// where it must wait for a slot.
    pub(crate) fn place(
        &self,
        needs: &Needs,
        may_wait: bool,
        avoid: Option<&str>,
    ) -> Option<Arc<str>> {
        let open = self.open.iter().filter_map(|(_, name)| self.members.get(name));
        let mut can = open.filter(|member| member.can_now(needs, may_wait));
        let first = can.next()?;
        let other = if avoid == Some(&*first.spec.name) { can.next() } else { None };
        // A slot that is free comes before a queue elsewhere.
        let other = other.filter(|other| other.has_slot() || !first.has_slot());
        Some(other.unwrap_or(first).spec.name.clone())
    }

    /// An attempt that cannot wait found no slot. Workers that could run it are given nothing ahead until one is free:
    /// otherwise those who can wait would take them all.
    pub(crate) fn reserve(&mut self, needs: &Needs) {
        let could = |member: &&mut Member| {
            member.spec.queues && !member.has_slot() && member.fits_now(needs)
        };
        let members = self.members.values_mut().filter(could);
        let marked = members.map(|member| {
            member.wanted = true;
            member.spec.name.clone()
        });
        for name in marked.collect::<Vec<_>>() {
            self.keep_open(&name);
        }
    }

    /// Whether one of those that have become able to take more could take this, if it had a slot.
    pub(crate) fn newly_free_for(&self, needs: &Needs) -> bool {
        self.newly_free
            .iter()
            .filter_map(|name| self.members.get(name))
            .any(|member| member.has_room() && member.fits_now(needs))
    }

    pub(crate) fn forget_gained(&mut self) {
        self.newly_free.clear();
    }

    pub(crate) fn has_gained(&self) -> bool {
        !self.newly_free.is_empty()
    }
}

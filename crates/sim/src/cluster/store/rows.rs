//! The rows of servers and shards, as `PostgreSQL`'s functions change them (`members.sql`).

use std::convert::Infallible;
use std::sync::Arc;

use steadfast_core::time::Timestamp;
use steadfast_store::members::{Look, Member, MemberRows, TERM};

use super::{Connection, Observed, Shared};

/// Of the data: all servers of a simulation have the same.
pub(crate) const FORMAT: i32 = 1;

impl Shared {
    fn until(&self) -> i64 {
        (self.time.wall().0 * 1000) as i64 + TERM.as_micros() as i64
    }

    /// If it is still that one's.
    pub(super) fn move_shard(&mut self, shard: u16, from: Option<&Arc<str>>, to: &str) {
        let now = self.time.wall();
        let Some(row) = self.database.shards.get_mut(usize::from(shard)) else { return };
        if row.owner.as_ref() == from {
            row.owner = Some(to.into());
            row.term = (row.term + 1).max(now.0 / 1000);
            self.observed.push(Observed::Shard { shard, owner: to.into() });
        }
    }
}

impl Connection {
    /// A server comes, with a row of its own. Its incarnation.
    pub(crate) fn join(&mut self, id: &str) -> String {
        let mut shared = self.store.held();
        let (until, renewed_at) = (shared.until(), shared.time.wall());
        shared.database.last_incarnation += 1;
        let incarnation = format!("i{}", shared.database.last_incarnation);
        let row = shared.database.owners.entry(id.into()).or_default();
        (row.until, row.renewed_at) = (until, renewed_at);
        row.incarnation = Some(incarnation.clone());
        incarnation
    }

    /// A server goes in order.
    pub(crate) fn leave(&mut self, id: &str, incarnation: &str) {
        let mut shared = self.store.held();
        let now = shared.time.wall();
        if let Some(row) = shared.database.owners.get_mut(id)
            && row.incarnation.as_deref() == Some(incarnation)
        {
            (row.incarnation, row.renewed_at) = (None, now);
        }
    }
}

impl MemberRows for Connection {
    type Error = Infallible;

    fn keep(&mut self, id: &str, incarnation: &str) -> Result<bool, Infallible> {
        let mut shared = self.store.held();
        let (until, now) = (shared.until(), shared.time.wall());
        let row = shared.database.owners.get_mut(id);
        let row = row.filter(|row| row.incarnation.as_deref() == Some(incarnation));
        Ok(row.map(|row| (row.until, row.renewed_at) = (until, now)).is_some())
    }

    fn rejoin(&mut self, id: &str) -> Result<String, Infallible> {
        Ok(self.join(id))
    }

    fn look(&mut self) -> Result<Look, Infallible> {
        let shared = self.store.held();
        let mut look = Look { now: (shared.time.wall().0 * 1000) as i64, ..Look::default() };
        for (id, row) in &shared.database.owners {
            match &row.incarnation {
                Some(incarnation) => {
                    let (incarnation, until) = (incarnation.clone(), row.until);
                    let member = Member { incarnation, until, format: FORMAT };
                    look.members.insert(id.to_string(), member);
                }
                None => drop(look.ended.insert(id.clone(), row.epoch)),
            }
        }
        for (shard, row) in (0..).zip(&shared.database.shards) {
            look.shards.insert(shard, (row.owner.as_deref().map(str::to_owned), row.term));
        }
        Ok(look)
    }

    fn fence(&mut self, id: &str, member: &Member) -> Result<Option<u64>, Infallible> {
        let mut shared = self.store.held();
        let now = shared.time.wall();
        let Some(row) = shared.database.owners.get_mut(id) else { return Ok(None) };
        if row.incarnation.as_ref() != Some(&member.incarnation) || row.until != member.until {
            return Ok(None);
        }
        row.epoch = (row.epoch + 1).max(now.0 / 1000);
        row.incarnation = None;
        let epoch = row.epoch;
        shared.observed.push(Observed::Epoch { owner: id.into(), epoch });
        shared.observed.push(Observed::Fault("server fenced"));
        Ok(Some(epoch))
    }

    fn claim(
        &mut self,
        id: &str,
        incarnation: &str,
        shards: &[u16],
        now: Timestamp,
    ) -> Result<Vec<(u16, u64)>, Infallible> {
        let mut shared = self.store.held();
        let is_there = |row: &super::OwnerRow| row.incarnation.as_deref() == Some(incarnation);
        if !shared.database.owners.get(id).is_some_and(is_there) {
            return Ok(Vec::new());
        }
        let mut claimed = Vec::new();
        for shard in shards {
            let owner = shared.database.shards[usize::from(*shard)].owner.clone();
            let before = owner.as_ref().and_then(|owner| shared.database.owners.get(owner));
            if before.is_some_and(|row| row.incarnation.is_some()) {
                continue;
            }
            let down_since = before.map(|row| row.renewed_at);
            shared.move_shard(*shard, owner.as_ref(), id);
            claimed.push((*shard, shared.database.shards[usize::from(*shard)].term));
            if let Some(since) = down_since.filter(|since| *since < now) {
                shared.keep_gap(&shard.to_string(), since, now);
            }
        }
        Ok(claimed)
    }
}

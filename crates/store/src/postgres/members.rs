//! Which of the servers of one database are there, and which of its shards each should have.
//!
//! Every server decides for itself what it does about that, from what it sees in the database: the same rows lead all of them to the same
//! spread. What they do is checked there, so that a wrong guess is a wasted statement and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;
use super::schema;

/// Of all shards a server gives away an eighth at once, to one that came: each costs it what it has of them in memory, which is the less
/// the more there are.
const MOVED_PART: usize = 8;

/// The row of a server, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) incarnation: String,
    /// In microseconds.
    pub(super) until: i64,
    /// Of what it writes: nobody takes what a newer one has.
    format: i32,
}

/// What a server sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// By the database's clock, in microseconds.
    now: i64,
    members: BTreeMap<String, Member>,
    /// Those that were ended, or have given up, with the epoch that nothing more is written in.
    pub(super) ended: BTreeMap<Arc<str>, u64>,
    /// Who has each, and in which term.
    shards: BTreeMap<u16, (Option<String>, u64)>,
}

/// What a server is to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// To be ended.
    pub(super) dead: Vec<(String, Member)>,
    /// To be claimed, once those are.
    pub(super) claim: Vec<u16>,
    /// To be given to another one.
    pub(super) give: Vec<(u16, String)>,
}

impl Look {
    pub(super) fn take(connection: &mut Connection) -> Result<Self, Fault> {
        let rows = connection.read(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, s.shard, s.owner, NULL::text, 0::bigint, 0, s.term \
             FROM steadfast.shards s \
             UNION ALL \
             SELECT 0, NULL, o.id, o.incarnation, (extract(epoch FROM o.until) * 1000000)::bigint, o.format, o.epoch \
             FROM steadfast.owners o WHERE o.serves",
            &[],
        )?;
        let mut look = Self::default();
        for row in rows {
            match row.get::<_, Option<i16>>(1) {
                Some(shard) => {
                    look.now = row.get(0);
                    let term = row.get::<_, i64>(6) as u64;
                    look.shards.insert(shard as u16, (row.get(2), term));
                }
                None => match row.get::<_, Option<String>>(3).zip(row.get(4)) {
                    Some((incarnation, until)) => {
                        let format = row.get::<_, Option<i32>>(5).unwrap_or_default();
                        let member = Member { incarnation, until, format };
                        look.members.insert(row.get(2), member);
                    }
                    None => {
                        let epoch = row.get::<_, i64>(6) as u64;
                        look.ended.insert(row.get::<_, &str>(2).into(), epoch);
                    }
                },
            }
        }
        Ok(look)
    }

    /// With the term of each.
    pub(super) fn shards_of(&self, id: &str) -> BTreeMap<u16, u64> {
        let is_its = |owner: &Option<String>| owner.as_deref() == Some(id);
        let its = self.shards.iter().filter(|(_, (owner, _))| is_its(owner));
        its.map(|(shard, (_, term))| (*shard, *term)).collect()
    }

    /// `before`: what was seen one renewal ago or earlier, if this server has looked in time since: one that was held up itself
    /// cannot tell who is dead. A term that is over and a row that is as it was: then its server has not renewed it, though it had the
    /// time.
    pub(super) fn moves(&self, before: Option<&Self>, me: &str) -> Moves {
        let is_dead = |(id, member): &(&String, &Member)| {
            *id != me
                && member.until < self.now
                && member.format <= schema::VERSION as i32
                && before.is_some_and(|before| before.members.get(*id) == Some(member))
        };
        let dead: Vec<_> =
            self.members.iter().filter(is_dead).map(|(id, it)| (id.clone(), it.clone())).collect();
        let is_there = |id: &&str| !dead.iter().any(|(dead, _)| dead == *id);
        let there: Vec<&str> = self.members.keys().map(String::as_str).filter(is_there).collect();
        let spread = spread(self.shards.keys().copied(), &there);
        let most = (self.shards.len() / MOVED_PART).max(1);
        let mut moves = Moves { dead, ..Moves::default() };
        for (shard, (owner, _)) in &self.shards {
            let Some(wanted) = spread.get(shard) else { continue };
            match owner.as_deref() {
                Some(owner) if owner == me => {
                    // One that may be dead gets nothing.
                    let is_renewed =
                        self.members.get(*wanted).is_some_and(|it| it.until >= self.now);
                    if *wanted != me && is_renewed && moves.give.len() < most {
                        moves.give.push((*shard, (*wanted).to_owned()));
                    }
                }
                Some(owner) if there.contains(&owner) => {}
                _ if *wanted == me => moves.claim.push(*shard),
                _ => {}
            }
        }
        moves
    }
}

/// Who should have each shard: the one that ranks highest for it and does not have its part yet. With one server more or less, few
/// shards change hands.
fn spread<'a>(shards: impl Iterator<Item = u16>, there: &[&'a str]) -> BTreeMap<u16, &'a str> {
    let shards: Vec<u16> = shards.collect();
    let part = shards.len().div_ceil(there.len().max(1));
    let mut has: BTreeMap<&str, usize> = BTreeMap::new();
    let mut spread = BTreeMap::new();
    for shard in shards {
        let rank = |id: &str| {
            let mut hash = crc32fast::Hasher::new();
            hash.update(id.as_bytes());
            hash.update(&shard.to_le_bytes());
            // The checksum of ids that differ in little differs in little.
            u64::from(hash.finalize()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
        };
        let open = there.iter().filter(|id| has.get(**id).copied().unwrap_or(0) < part);
        if let Some(id) = open.max_by_key(|id| (rank(id), **id)) {
            *has.entry(id).or_default() += 1;
            spread.insert(shard, *id);
        }
    }
    spread
}

/// In which epoch nothing more of it is written. None: it lives.
pub(super) fn fence(
    connection: &mut Connection,
    id: &str,
    member: &Member,
) -> Result<Option<u64>, Fault> {
    let rows = connection.query(
        "SELECT steadfast.fence_v1($1, $2, $3)",
        &[(&id, Type::TEXT), (&member.incarnation, Type::TEXT), (&member.until, Type::INT8)],
    )?;
    Ok(rows[0].get::<_, Option<i64>>(0).map(|epoch| epoch as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn look(now: i64, members: &[(&str, i64)], shards: &[(u16, &str)]) -> Look {
        let member = |until| Member { incarnation: "i".to_owned(), until, format: 1 };
        Look {
            now: now * SECOND,
            members: (members.iter())
                .map(|(id, until)| ((*id).to_owned(), member(until * SECOND)))
                .collect(),
            ended: BTreeMap::new(),
            shards: shards
                .iter()
                .map(|(shard, id)| (*shard, (Some((*id).to_owned()), 1)))
                .collect(),
        }
    }

    fn all(owner: &'static str) -> Vec<(u16, &'static str)> {
        (0..64).map(|shard| (shard, owner)).collect()
    }

    #[test]
    fn shards_are_spread_evenly_and_few_move() {
        let ids = ["server-a", "server-b", "server-c", "server-d"];
        for there in 1..=4 {
            let spread = spread(0..64, &ids[..there]);
            let mut has = BTreeMap::<_, usize>::new();
            for id in spread.values() {
                *has.entry(*id).or_default() += 1;
            }
            assert_eq!(spread.len(), 64);
            assert!(has.len() == there && has.values().all(|has| *has <= 64_usize.div_ceil(there)));
        }
        let (three, two) = (spread(0..64, &ids[..3]), spread(0..64, &ids[..2]));
        let moved = three.iter().filter(|(shard, id)| **id != ids[2] && two[shard] != **id).count();
        assert!(moved < 20, "{moved} moved between those that stay");
    }

    #[test]
    fn one_that_has_not_renewed_its_row_in_its_term_and_one_more_look_is_dead() {
        let before = look(10, &[("a", 9), ("b", 13)], &all("a"));
        let now = look(11, &[("a", 9), ("b", 14)], &all("a"));
        let moves = now.moves(Some(&before), "b");
        assert_eq!(moves.dead.len(), 1);
        assert_eq!((moves.claim.len(), moves.give.len()), (64, 0));
        assert_eq!(now.moves(None, "b"), Moves::default(), "it was held up itself");
        let before = look(10, &[("a", 8), ("b", 13)], &all("a"));
        assert_eq!(now.moves(Some(&before), "b"), Moves::default(), "it has renewed its row since");
        let now = look(11, &[("a", 12), ("b", 14)], &all("a"));
        assert_eq!(now.moves(Some(&now), "b"), Moves::default(), "its term is not over");
    }

    #[test]
    fn one_of_a_newer_version_is_left_alone() {
        let mut now = look(11, &[("a", 9), ("b", 14)], &all("a"));
        now.members.get_mut("a").expect("put there").format = schema::VERSION as i32 + 1;
        assert_eq!(now.moves(Some(&now.clone()), "b"), Moves::default());
    }

    #[test]
    fn what_nobody_has_is_claimed_and_one_that_comes_is_given_its_part() {
        let mut now = look(11, &[("a", 14)], &[]);
        now.shards = (0..64).map(|shard| (shard, (None, 0))).collect();
        assert_eq!(now.moves(None, "a").claim.len(), 64);
        now.shards.values_mut().for_each(|(owner, _)| *owner = Some("gone".to_owned()));
        assert_eq!(now.moves(None, "a").claim.len(), 64, "its row was ended");

        let two = look(11, &[("a", 14), ("b", 14)], &all("a"));
        let give = two.moves(None, "a").give;
        assert_eq!(give.len(), 64 / MOVED_PART, "a few at a time");
        assert!(give.iter().all(|(_, to)| to == "b"));
        assert_eq!(two.moves(None, "b"), Moves::default(), "it waits for them");
        let late = look(15, &[("a", 18), ("b", 14)], &all("a"));
        assert_eq!(late.moves(None, "a").give, [], "it may be dead");
    }

    #[test]
    fn two_that_see_the_same_death_claim_each_their_part() {
        let now = look(11, &[("a", 14), ("b", 14), ("c", 9)], &all("c"));
        let [a, b] = ["a", "b"].map(|me| now.moves(Some(&now.clone()), me).claim);
        assert!(a.iter().all(|shard| !b.contains(shard)));
        assert_eq!((a.len(), b.len()), (32, 32));
    }
}

//! Which of the servers of one store are there, and which of its shards each should have.
//!
//! Every server decides for itself what it does about that, from what it sees in the store: the same rows lead all of them to the same
//! spread. What they do is checked there, so that a wrong guess is a wasted statement and nothing else. Where the rows are is a
//! [`MemberRows`]; no clock is asked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::time::Timestamp;

use crate::Renewal;

/// For so long the row of a server is good.
pub const TERM: Duration = Duration::from_secs(3);
/// How often a holder renews it, at least.
pub const RENEWAL: Duration = Duration::from_secs(1);
/// One that has looked this long ago was held up: who has not renewed since may have been, too.
pub(crate) const LATE: Duration = Duration::from_secs(2);
/// Of all shards a server gives away an eighth at once, to one that came: each costs it what it has of them in memory, which is the less
/// the more there are.
const MOVED_PART: usize = 8;

/// The row of a server, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub incarnation: String,
    /// In microseconds.
    pub until: i64,
    /// Of what it writes: nobody takes what a newer one has.
    pub format: i32,
}

/// What a server sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// By the store's clock, in microseconds.
    pub now: i64,
    pub members: BTreeMap<String, Member>,
    /// Those that were ended, or have given up, with the epoch that nothing more is written in.
    pub ended: BTreeMap<Arc<str>, u64>,
    /// Who has each, and in which term.
    pub shards: BTreeMap<u16, (Option<String>, u64)>,
}

/// What a server is to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Moves {
    /// To be ended.
    dead: Vec<(String, Member)>,
    /// To be claimed, once those are.
    claim: Vec<u16>,
    /// To be given to another one.
    give: Vec<(u16, String)>,
}

/// The rows of all servers, as one of them may change them.
pub trait MemberRows {
    type Error;

    /// Renews the row of this life of a server, also when its term is over: if nobody has ended it, nothing has happened. False: somebody
    /// has.
    fn keep(&mut self, id: &str, incarnation: &str) -> Result<bool, Self::Error>;

    /// Comes back after it was ended, with nothing. Its new incarnation.
    fn rejoin(&mut self, id: &str) -> Result<String, Self::Error>;

    fn look(&mut self) -> Result<Look, Self::Error>;

    /// Ends a server whose row is still as it was seen: in which epoch nothing more of it is written. None: it lives.
    fn fence(&mut self, id: &str, member: &Member) -> Result<Option<u64>, Self::Error>;

    /// Takes those of the shards that nobody has who is there: which they are, with their terms.
    fn claim(
        &mut self,
        id: &str,
        incarnation: &str,
        shards: &[u16],
        now: Timestamp,
    ) -> Result<Vec<(u16, u64)>, Self::Error>;
}

/// A server among those of its store, as far as it knows.
#[derive(Debug)]
pub struct Membership {
    pub id: Arc<str>,
    incarnation: String,
    /// Of the data that it understands.
    format: i32,
    /// The shards that the server knows it has, with their terms, and those of them that it is giving away.
    pub has: BTreeMap<u16, u64>,
    pub giving: BTreeSet<u16>,
    /// Servers that have ended, as the server knows.
    ended: BTreeMap<Arc<str>, u64>,
    /// What it saw, and when: one look for every renewal.
    seen: Option<(Look, Duration)>,
    looked: Option<Duration>,
}

impl Membership {
    pub fn new(id: Arc<str>, incarnation: String, format: i32) -> Self {
        let (has, giving, ended) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { id, incarnation, format, has, giving, ended, seen: None, looked: None }
    }

    pub fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// The server begins with what it has. What its looks until then came to was told nobody, and is told with the next renewal: servers
    /// that have ended, and shards to be given away, which it has until then.
    pub fn begun(&mut self) {
        self.ended.clear();
        if !is_on(Defect::GivesAwayUntold) {
            self.giving.clear();
        }
    }

    /// `at`: by a clock that cannot be set, as it says how long the server was held up.
    pub fn renew<R: MemberRows>(
        &mut self,
        rows: &mut R,
        at: Duration,
        now: Timestamp,
    ) -> Result<Renewal, R::Error> {
        let id = self.id.clone();
        if !rows.keep(&id, &self.incarnation)? {
            self.incarnation = rows.rejoin(&id)?;
            (self.seen, self.has, self.giving) = (None, BTreeMap::new(), BTreeSet::new());
            return Ok(Renewal { is_ended: true, ..Renewal::default() });
        }
        let passed = |since: Duration| at.saturating_sub(since);
        let is_late = self.looked.replace(at).is_some_and(|last| passed(last) > LATE);
        let look = rows.look()?;
        let before = self.seen.as_ref().filter(|(_, seen)| !is_late && passed(*seen) >= RENEWAL);
        let moves = look.moves(before.map(|(look, _)| look), &id, self.format);
        if self.seen.is_none() || is_late || before.is_some() {
            self.seen = Some((look.clone(), at));
        }
        let mut its = look.shards_of(&id);
        // What it gave away, and has again with this renewal, is gained.
        self.has.retain(|shard, term| its.get(shard) == Some(term));
        self.giving.retain(|shard| self.has.contains_key(shard));
        let mut ended = look.ended;
        let mut lost = Vec::new();
        for (dead, member) in moves.dead {
            if let Some(epoch) = rows.fence(&dead, &member)? {
                let dead: Arc<str> = dead.into();
                ended.insert(dead.clone(), epoch);
                lost.push(dead);
            }
        }
        let is_news = |(id, epoch): &(&Arc<str>, &u64)| self.ended.get(*id) != Some(*epoch);
        let news = ended.iter().filter(is_news).map(|(id, epoch)| (id.clone(), *epoch)).collect();
        self.ended = ended;
        if !moves.claim.is_empty() {
            its.extend(rows.claim(&id, &self.incarnation, &moves.claim, now)?);
        }
        let gained = its.keys().filter(|shard| !self.has.contains_key(shard)).copied().collect();
        self.has = its;
        let mut give = BTreeMap::<Arc<str>, Vec<u16>>::new();
        for (shard, to) in moves.give {
            if self.giving.insert(shard) {
                give.entry(to.into()).or_default().push(shard);
            }
        }
        Ok(Renewal { gained, give, lost, ended: news, is_ended: false })
    }
}

impl Look {
    /// With the term of each.
    fn shards_of(&self, id: &str) -> BTreeMap<u16, u64> {
        let is_its = |owner: &Option<String>| owner.as_deref() == Some(id);
        let its = self.shards.iter().filter(|(_, (owner, _))| is_its(owner));
        its.map(|(shard, (_, term))| (*shard, *term)).collect()
    }

    /// `before`: what was seen one renewal ago or earlier, if this server has looked in time since: one that was held up itself
    /// cannot tell who is dead. A term that is over and a row that is as it was: then its server has not renewed it, though it had the
    /// time.
    fn moves(&self, before: Option<&Self>, me: &str, format: i32) -> Moves {
        let is_dead = |(id, member): &(&String, &Member)| {
            *id != me
                && member.until < self.now
                && member.format <= format
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const FORMAT: i32 = 1;

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
        let moves = now.moves(Some(&before), "b", FORMAT);
        assert_eq!(moves.dead.len(), 1);
        assert_eq!((moves.claim.len(), moves.give.len()), (64, 0));
        assert_eq!(now.moves(None, "b", FORMAT), Moves::default(), "it was held up itself");
        let before = look(10, &[("a", 8), ("b", 13)], &all("a"));
        assert_eq!(
            now.moves(Some(&before), "b", FORMAT),
            Moves::default(),
            "it has renewed its row since"
        );
        let now = look(11, &[("a", 12), ("b", 14)], &all("a"));
        assert_eq!(now.moves(Some(&now), "b", FORMAT), Moves::default(), "its term is not over");
    }

    #[test]
    fn one_of_a_newer_version_is_left_alone() {
        let mut now = look(11, &[("a", 9), ("b", 14)], &all("a"));
        now.members.get_mut("a").expect("put there").format = FORMAT + 1;
        assert_eq!(now.moves(Some(&now.clone()), "b", FORMAT), Moves::default());
    }

    #[test]
    fn what_nobody_has_is_claimed_and_one_that_comes_is_given_its_part() {
        let mut now = look(11, &[("a", 14)], &[]);
        now.shards = (0..64).map(|shard| (shard, (None, 0))).collect();
        assert_eq!(now.moves(None, "a", FORMAT).claim.len(), 64);
        now.shards.values_mut().for_each(|(owner, _)| *owner = Some("gone".to_owned()));
        assert_eq!(now.moves(None, "a", FORMAT).claim.len(), 64, "its row was ended");

        let two = look(11, &[("a", 14), ("b", 14)], &all("a"));
        let give = two.moves(None, "a", FORMAT).give;
        assert_eq!(give.len(), 64 / MOVED_PART, "a few at a time");
        assert!(give.iter().all(|(_, to)| to == "b"));
        assert_eq!(two.moves(None, "b", FORMAT), Moves::default(), "it waits for them");
        let late = look(15, &[("a", 18), ("b", 14)], &all("a"));
        assert_eq!(late.moves(None, "a", FORMAT).give, [], "it may be dead");
    }

    /// Rows that stay as they are.
    struct Fixed(Look);

    impl MemberRows for Fixed {
        type Error = std::convert::Infallible;

        fn keep(&mut self, _: &str, _: &str) -> Result<bool, Self::Error> {
            Ok(true)
        }

        fn rejoin(&mut self, _: &str) -> Result<String, Self::Error> {
            Ok("i".to_owned())
        }

        fn look(&mut self) -> Result<Look, Self::Error> {
            Ok(self.0.clone())
        }

        fn fence(&mut self, _: &str, _: &Member) -> Result<Option<u64>, Self::Error> {
            Ok(None)
        }

        fn claim(
            &mut self,
            _: &str,
            _: &str,
            _: &[u16],
            _: Timestamp,
        ) -> Result<Vec<(u16, u64)>, Self::Error> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn what_a_server_is_to_give_away_before_it_has_begun_is_given_when_it_has() {
        let mut rows = Fixed(look(11, &[("a", 14), ("b", 14)], &all("a")));
        let mut member = Membership::new("a".into(), "i".to_owned(), FORMAT);
        let mut renew = |member: &mut Membership, at| {
            let Ok(renewal) = member.renew(&mut rows, Duration::from_secs(at), Timestamp(0));
            renewal.give.into_values().flatten().count()
        };
        assert_eq!(renew(&mut member, 0), 8, "nobody hears of it yet");
        member.begun();
        assert_eq!((member.giving.len(), renew(&mut member, 1)), (0, 8), "it is told again");
        assert_eq!(renew(&mut member, 2), 0, "once");
    }

    #[test]
    fn two_that_see_the_same_death_claim_each_their_part() {
        let now = look(11, &[("a", 14), ("b", 14), ("c", 9)], &all("c"));
        let [a, b] = ["a", "b"].map(|me| now.moves(Some(&now.clone()), me, FORMAT).claim);
        assert!(a.iter().all(|shard| !b.contains(shard)));
        assert_eq!((a.len(), b.len()), (32, 32));
    }
}

//! A group as the arrays of rows that `commit_v1` takes, and its answer.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::{Connection, Param};
use super::fault::Fault;
use super::param::{Text, ms};
use super::rows::Rows;
use crate::events::{Lines, Written, crc};
use crate::plans::Shape;
use crate::shards::shard_of;
use crate::{Owner, Refused, Write};

/// Where rounds of a group end, and its chains: see `commit.sql`. Writes are numbered from 1.
struct Order {
    rounds: Vec<i32>,
    chains: Vec<Chain>,
    /// By writes: their chain.
    chain_of: Vec<usize>,
    /// By writes: the one of the same job, in an earlier round, that it follows on, or 0.
    after: Vec<i32>,
}

struct Chain {
    first: usize,
    last: usize,
    /// The last write of it that has a snapshot: the one that stays.
    snapshot: Option<usize>,
}

impl Order {
    fn of(writes: &[Write]) -> Self {
        let (mut rounds, mut chains): (Vec<i32>, Vec<Chain>) = (vec![], vec![]);
        let mut chain_of = Vec::with_capacity(writes.len());
        let (mut of_job, mut keys) = (HashMap::new(), HashSet::new());
        let (mut after, mut latest) = (vec![0; writes.len()], HashMap::<&str, usize>::new());
        for (at, write) in writes.iter().enumerate() {
            let number = at + 1;
            let snapshot = write.snapshot.as_ref().map(|_| number);
            let before = latest.insert(&write.job, number);
            let known: Option<usize> = of_job.get(&*write.job).copied();
            if let Some(known) = known
                && writes[chains[known].last - 1].last_seq() == write.expected_seq
            {
                let chain: &mut Chain = &mut chains[known];
                chain.last = number;
                chain.snapshot = snapshot.or(chain.snapshot);
                chain_of.push(known);
                continue;
            }
            let key = write.key.as_ref().map(|key| &*key.key);
            if known.is_some() || key.is_some_and(|key| keys.contains(key)) {
                rounds.push(at as i32);
                of_job.clear();
                keys.clear();
            }
            if let Some(before) = before
                && writes[before - 1].last_seq() == write.expected_seq
            {
                after[at] = before as i32;
            }
            keys.extend(key);
            of_job.insert(&*write.job, chains.len());
            chain_of.push(chains.len());
            chains.push(Chain { first: number, last: number, snapshot });
        }
        rounds.push(writes.len() as i32);
        Self { rounds, chains, chain_of, after }
    }
}

pub(super) fn group(
    connection: &mut Connection,
    owner: &Owner,
    writes: &[Write],
    written: &[Written],
) -> Result<Vec<Result<(), Refused>>, Fault> {
    let shards = connection.database().shards()?;
    let order = Order::of(writes);
    let mut rows = GroupRows::default();
    for (at, (write, written)) in writes.iter().zip(written).enumerate() {
        rows.add_write(owner, writes, at, &order, shards);
        for lines in &written.rows {
            rows.add_events(at + 1, &write.job, lines);
        }
    }
    for chain in &order.chains {
        let shape = written[chain.first - 1].shape.as_deref();
        rows.add_chain(owner, chain, writes, shape, shards);
    }
    let (id, epoch) = (Text(&owner.id), owner.epoch as i64);
    let params: [Param<'_>; 10] = [
        (&id, Type::TEXT),
        (&epoch, Type::INT8),
        (&order.rounds, Type::INT4_ARRAY),
        (&rows.writes, Type::UNKNOWN),
        (&rows.chains, Type::UNKNOWN),
        (&rows.labels, Type::UNKNOWN),
        (&rows.events, Type::UNKNOWN),
        (&rows.snapshots, Type::UNKNOWN),
        (&rows.plan_digests, Type::TEXT_ARRAY),
        (&rows.plans, Type::TEXT_ARRAY),
    ];
    let sql = "SELECT write, why, found, who, same_body \
               FROM steadfast.commit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let refused = connection.query(sql, &params)?;
    Ok(answers(owner, writes, &refused))
}

fn answers(owner: &Owner, writes: &[Write], refused: &[Row]) -> Vec<Result<(), Refused>> {
    let mut answers = vec![Ok(()); writes.len()];
    for row in refused {
        let (write, why, found): (i32, &str, i64) = (row.get(0), row.get(1), row.get(2));
        let found = found as u64;
        let who = || row.get::<_, Option<String>>(3).unwrap_or_else(|| "nobody".to_owned());
        if why == "fenced" {
            let (owner, epoch) = (owner.id.clone(), owner.epoch);
            return vec![Err(Refused::Fenced { owner, epoch, current: found }); writes.len()];
        }
        let at = write as usize - 1;
        answers[at] = Err(match why {
            "key" => Refused::KeyTaken { job: who().into(), same_body: row.get(4) },
            "owner" => Refused::NotOurs { owner: who() },
            _ => Refused::Conflict { expected: writes[at].expected_seq, found },
        });
    }
    answers
}

/// As JSON, if a new job has any.
fn labels(write: &Write) -> Option<String> {
    if write.expected_seq > 0 || write.row.labels.is_empty() {
        return None;
    }
    let plain = |text: &str| text.replace('\0', "\u{fffd}");
    let has_nul = |(name, value): (&String, &String)| name.contains('\0') || value.contains('\0');
    let labels = if write.row.labels.iter().any(has_nul) {
        let labels = write.row.labels.iter();
        Cow::Owned(labels.map(|(name, value)| (plain(name), plain(value))).collect())
    } else {
        Cow::<BTreeMap<String, String>>::Borrowed(&write.row.labels)
    };
    Some(serde_json::to_string(&labels).expect("strings are JSON"))
}

/// What a group comes to, as the types in `commit.sql` have it.
#[derive(Default)]
struct GroupRows<'a> {
    writes: Rows,
    chains: Rows,
    labels: Rows,
    events: Rows,
    snapshots: Rows,
    plan_digests: Vec<Text<'a>>,
    plans: Vec<Text<'a>>,
}

impl<'a> GroupRows<'a> {
    fn add_write(
        &mut self,
        owner: &Owner,
        writes: &[Write],
        at: usize,
        order: &Order,
        shards: u16,
    ) {
        let (write, chain) = (&writes[at], &order.chains[order.chain_of[at]]);
        let begins = writes[chain.first - 1].expected_seq as i64;
        let is_counted = chain.last == at + 1 && *write.job != *owner.id;
        self.writes.add(&[
            (&(at as i32 + 1), Type::INT4),
            (&order.after[at], Type::INT4),
            (&begins, Type::INT8),
            (&(shard_of(&write.job, shards) as i16), Type::INT2),
            (&Text(&write.job), Type::TEXT),
            (&write.key.as_ref().map(|key| Text(&key.key)), Type::TEXT),
            (&write.key.as_ref().map(|key| Text(&key.digest)), Type::TEXT),
            (&is_counted.then(|| write.row.state.name()), Type::TEXT),
        ]);
    }

    /// What stays is that of the first write, if it is of a new job; what changes that of the last.
    fn add_chain(
        &mut self,
        owner: &Owner,
        chain: &Chain,
        writes: &'a [Write],
        shape: Option<&'a Shape>,
        shards: u16,
    ) {
        let (first, last) = (&writes[chain.first - 1], &writes[chain.last - 1]);
        let plan = shape.map(|shape| self.plan(shape));
        let new = (first.expected_seq == 0).then_some(first);
        let shard = (*first.job != *owner.id).then(|| shard_of(&first.job, shards) as i16);
        let labels = labels(first);
        self.chains.add(&[
            (&(chain.first as i32), Type::INT4),
            (&(chain.last as i32), Type::INT4),
            (&(last.last_seq() as i64), Type::INT8),
            (&last.row.finished_at.map(ms), Type::INT8),
            (&last.row.wake_at.map(ms), Type::INT8),
            (&last.row.over, Type::BOOL),
            (&Text(&first.job), Type::TEXT),
            (&last.row.state.name(), Type::TEXT),
            (&last.row.queued.as_deref().map(Text), Type::TEXT),
            (&last.readiness.as_deref().map(Text), Type::TEXT),
            (&plan, Type::INT4),
            (&new.map(|new| ms(new.row.submitted_at)), Type::INT8),
            (&shard, Type::INT2),
            (&new.map(|new| new.row.local), Type::BOOL),
            (&new.map(|new| Text(&new.row.name)), Type::TEXT),
            (&new.and_then(|new| Some(Text(&new.key.as_ref()?.key))), Type::TEXT),
            (&new.and_then(|new| new.row.retried_from.as_deref().map(Text)), Type::TEXT),
            (&labels.as_deref().map(Text), Type::TEXT),
        ]);
        for (name, value) in new.iter().flat_map(|new| &new.row.labels) {
            self.labels.add(&[
                (&(chain.first as i32), Type::INT4),
                (&Text(&first.job), Type::TEXT),
                (&Text(name), Type::TEXT),
                (&Text(value), Type::TEXT),
            ]);
        }
        let kept = chain.snapshot.map(|number| (number, &writes[number - 1]));
        if let Some((number, write)) = kept
            && let Some(state) = &write.snapshot
        {
            let seq = write.last_seq();
            self.snapshots.add(&[
                (&(number as i32), Type::INT4),
                (&Text(&write.job), Type::TEXT),
                (&(seq as i64), Type::INT8),
                (&i64::from(crc(seq, seq, state)), Type::INT8),
                (&&**state, Type::BYTEA),
            ]);
        }
    }

    /// The number of its place.
    fn plan(&mut self, shape: &'a Shape) -> i32 {
        let known = self.plan_digests.iter().position(|known| known.0 == shape.digest);
        let at = known.unwrap_or_else(|| {
            self.plan_digests.push(Text(&shape.digest));
            self.plans.push(Text(&shape.json));
            self.plans.len() - 1
        });
        at as i32 + 1
    }

    fn add_events(&mut self, number: usize, job: &str, lines: &Lines) {
        let (packed, crc) = lines.packed();
        self.events.add(&[
            (&(number as i32), Type::INT4),
            (&Text(job), Type::TEXT),
            (&(lines.first as i64), Type::INT8),
            (&(lines.last as i64), Type::INT8),
            (&i64::from(crc), Type::INT8),
            (&packed.is_compressed(), Type::BOOL),
            (&packed.bytes(), Type::BYTEA),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a job is found where another version of the program has put it.
    #[test]
    fn a_job_stays_in_its_shard() {
        let shards = ["01k", "01JABCDEFGHJKMNPQRSTVWXYZ0", ""].map(|job| shard_of(job, 64));
        assert_eq!(shards, [32, 30, 0]);
        assert_eq!(shard_of("any", 1), 0);
    }
}

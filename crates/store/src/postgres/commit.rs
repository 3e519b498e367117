//! A group as the arrays that `commit_v1` takes, and its answer.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::{Connection, Param};
use super::fault::Fault;
use super::param::{Text, ms};
use crate::events::{Lines, Written, crc};
use crate::packed::Packed;
use crate::plans::Shape;
use crate::shards::shard_of;
use crate::{Owner, Refused, Write};

/// Where rounds of a group end, and its chains: see `commit.sql`. Writes are numbered from 1.
struct Order {
    rounds: Vec<i32>,
    chains: Vec<Chain>,
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
        let (mut of_job, mut keys) = (HashMap::new(), HashSet::new());
        let (mut after, mut latest) = (vec![0; writes.len()], HashMap::<&str, usize>::new());
        for (at, write) in writes.iter().enumerate() {
            let number = at + 1;
            let snapshot = write.snapshot.as_ref().map(|_| number);
            let before = latest.insert(&write.job, number);
            let known = of_job.get(&*write.job).copied();
            if let Some(chain) = known.map(|chain: usize| &mut chains[chain])
                && writes[chain.last - 1].last_seq() == write.expected_seq
            {
                chain.last = number;
                chain.snapshot = snapshot.or(chain.snapshot);
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
            chains.push(Chain { first: number, last: number, snapshot });
        }
        rounds.push(writes.len() as i32);
        Self { rounds, chains, after }
    }
}

pub(super) fn group(
    connection: &mut Connection,
    owner: &Owner,
    writes: &[Write],
    written: &[Written],
) -> Result<Vec<Result<(), Refused>>, Fault> {
    let shards = connection.database().shards()?;
    let Order { rounds, chains, after } = Order::of(writes);
    let labels: Vec<_> = writes.iter().map(labels).collect();
    let packed: Vec<Vec<_>> =
        written.iter().map(|written| written.rows.iter().map(PackedLines::of).collect()).collect();
    let mut arrays = Arrays { rounds: &rounds, after: &after, ..Arrays::default() };
    for (at, (write, packed)) in writes.iter().zip(&packed).enumerate() {
        arrays.add_write(write, shards);
        for lines in packed {
            arrays.add_events(at + 1, &write.job, lines);
        }
    }
    for chain in &chains {
        let first = chain.first - 1;
        let shape = written[first].shape.as_deref();
        arrays.add_chain(owner, chain, writes, shape, labels[first].as_deref());
    }
    let (id, epoch) = (Text(&owner.id), owner.epoch as i64);
    let mut params: Vec<Param<'_>> = vec![(&id, Type::TEXT), (&epoch, Type::INT8)];
    params.extend(arrays.params());
    let numbers: Vec<_> = (1..=params.len()).map(|number| format!("${number}")).collect();
    let sql = format!(
        "SELECT write, why, found, who, same_body FROM steadfast.commit_v1({})",
        numbers.join(", ")
    );
    let refused = connection.query(&sql, &params)?;
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

/// What a group comes to, by columns. Each part has the numbers of its writes.
#[derive(Default)]
struct Arrays<'a> {
    rounds: &'a [i32],
    after: &'a [i32],
    writes: WriteColumns<'a>,
    chains: ChainColumns<'a>,
    labels: LabelColumns<'a>,
    events: EventColumns<'a>,
    snapshots: SnapshotColumns<'a>,
    plan_digests: Vec<Text<'a>>,
    plans: Vec<Text<'a>>,
}

#[derive(Default)]
struct WriteColumns<'a> {
    job: Vec<Text<'a>>,
    expected: Vec<i64>,
    shard: Vec<i16>,
    key: Vec<Option<Text<'a>>>,
    digest: Vec<Option<Text<'a>>>,
    /// Of the last write of a chain, if its job is a server's.
    state: Vec<Option<&'a str>>,
}

#[derive(Default)]
struct ChainColumns<'a> {
    first: Vec<i32>,
    last: Vec<i32>,
    job: Vec<Text<'a>>,
    seq: Vec<i64>,
    state: Vec<&'a str>,
    finished_at: Vec<Option<i64>>,
    wake_at: Vec<Option<i64>>,
    queued: Vec<Option<Text<'a>>>,
    over: Vec<bool>,
    readiness: Vec<Option<Text<'a>>>,
    name: Vec<Text<'a>>,
    submitted_at: Vec<i64>,
    labels: Vec<Option<Text<'a>>>,
    retried_from: Vec<Option<Text<'a>>>,
    local: Vec<bool>,
    shard: Vec<Option<i16>>,
    key: Vec<Option<Text<'a>>>,
    plan: Vec<Option<Text<'a>>>,
}

#[derive(Default)]
struct LabelColumns<'a> {
    write: Vec<i32>,
    job: Vec<Text<'a>>,
    name: Vec<Text<'a>>,
    value: Vec<Text<'a>>,
}

#[derive(Default)]
struct EventColumns<'a> {
    write: Vec<i32>,
    job: Vec<Text<'a>>,
    first: Vec<i64>,
    last: Vec<i64>,
    crc: Vec<i64>,
    compressed: Vec<bool>,
    lines: Vec<&'a [u8]>,
}

#[derive(Default)]
struct SnapshotColumns<'a> {
    write: Vec<i32>,
    job: Vec<Text<'a>>,
    seq: Vec<i64>,
    crc: Vec<i64>,
    state: Vec<&'a [u8]>,
}

impl<'a> Arrays<'a> {
    fn add_write(&mut self, write: &'a Write, shards: u16) {
        let columns = &mut self.writes;
        columns.job.push(Text(&write.job));
        columns.expected.push(write.expected_seq as i64);
        columns.shard.push(shard_of(&write.job, shards) as i16);
        columns.key.push(write.key.as_ref().map(|key| Text(&key.key)));
        columns.digest.push(write.key.as_ref().map(|key| Text(&key.digest)));
        columns.state.push(None);
    }

    /// What stays is that of the first write, if it is of a new job; what changes that of the last.
    fn add_chain(
        &mut self,
        owner: &Owner,
        chain: &Chain,
        writes: &'a [Write],
        shape: Option<&'a Shape>,
        labels: Option<&'a str>,
    ) {
        let (first, last) = (&writes[chain.first - 1], &writes[chain.last - 1]);
        let is_its_own = *first.job == *owner.id;
        self.writes.state[chain.last - 1] = (!is_its_own).then(|| last.row.state.name());
        let columns = &mut self.chains;
        columns.first.push(chain.first as i32);
        columns.last.push(chain.last as i32);
        columns.job.push(Text(&first.job));
        columns.seq.push(last.last_seq() as i64);
        columns.state.push(last.row.state.name());
        columns.finished_at.push(last.row.finished_at.map(ms));
        columns.wake_at.push(last.row.wake_at.map(ms));
        columns.queued.push(last.row.queued.as_deref().map(Text));
        columns.over.push(last.row.over);
        columns.readiness.push(last.readiness.as_deref().map(Text));
        columns.name.push(Text(&first.row.name));
        columns.submitted_at.push(ms(first.row.submitted_at));
        columns.labels.push(labels.map(Text));
        columns.retried_from.push(first.row.retried_from.as_deref().map(Text));
        columns.local.push(first.row.local);
        columns.shard.push((!is_its_own).then(|| self.writes.shard[chain.first - 1]));
        columns.key.push(first.key.as_ref().map(|key| Text(&key.key)));
        columns.plan.push(shape.map(|shape| Text(&shape.digest)));
        if let Some(shape) = shape
            && !self.plan_digests.iter().any(|known| known.0 == shape.digest)
        {
            self.plan_digests.push(Text(&shape.digest));
            self.plans.push(Text(&shape.json));
        }
        if first.expected_seq == 0 {
            for (name, value) in &first.row.labels {
                self.labels.write.push(chain.first as i32);
                self.labels.job.push(Text(&first.job));
                self.labels.name.push(Text(name));
                self.labels.value.push(Text(value));
            }
        }
        let kept = chain.snapshot.map(|number| (number, &writes[number - 1]));
        if let Some((number, write)) = kept
            && let Some(state) = &write.snapshot
        {
            let seq = write.last_seq();
            self.snapshots.write.push(number as i32);
            self.snapshots.job.push(Text(&write.job));
            self.snapshots.seq.push(seq as i64);
            self.snapshots.crc.push(crc(seq, seq, state).into());
            self.snapshots.state.push(state);
        }
    }

    fn add_events(&mut self, number: usize, job: &'a str, lines: &'a PackedLines<'_>) {
        let columns = &mut self.events;
        columns.write.push(number as i32);
        columns.job.push(Text(job));
        columns.first.push(lines.first as i64);
        columns.last.push(lines.last as i64);
        columns.crc.push(lines.crc.into());
        columns.compressed.push(lines.packed.is_compressed());
        columns.lines.push(lines.packed.bytes());
    }

    /// In the order of the parameters of `commit_v1`, after owner and epoch.
    fn params(&self) -> Vec<Param<'_>> {
        const NUMBERS: Type = Type::INT8_ARRAY;
        const WRITES: Type = Type::INT4_ARRAY;
        const TEXTS: Type = Type::TEXT_ARRAY;
        let Self { rounds, after, writes, chains, labels, events, snapshots, plan_digests, plans } =
            self;
        vec![
            (rounds, WRITES),
            (&writes.job, TEXTS),
            (&writes.expected, NUMBERS),
            (after, WRITES),
            (&writes.shard, Type::INT2_ARRAY),
            (&writes.key, TEXTS),
            (&writes.digest, TEXTS),
            (&writes.state, TEXTS),
            (&chains.first, WRITES),
            (&chains.last, WRITES),
            (&chains.job, TEXTS),
            (&chains.seq, NUMBERS),
            (&chains.state, TEXTS),
            (&chains.finished_at, NUMBERS),
            (&chains.wake_at, NUMBERS),
            (&chains.queued, TEXTS),
            (&chains.over, Type::BOOL_ARRAY),
            (&chains.readiness, TEXTS),
            (&chains.name, TEXTS),
            (&chains.submitted_at, NUMBERS),
            (&chains.labels, TEXTS),
            (&chains.retried_from, TEXTS),
            (&chains.local, Type::BOOL_ARRAY),
            (&chains.shard, Type::INT2_ARRAY),
            (&chains.key, TEXTS),
            (&chains.plan, TEXTS),
            (&labels.write, WRITES),
            (&labels.job, TEXTS),
            (&labels.name, TEXTS),
            (&labels.value, TEXTS),
            (&events.write, WRITES),
            (&events.job, TEXTS),
            (&events.first, NUMBERS),
            (&events.last, NUMBERS),
            (&events.crc, NUMBERS),
            (&events.compressed, Type::BOOL_ARRAY),
            (&events.lines, Type::BYTEA_ARRAY),
            (&snapshots.write, WRITES),
            (&snapshots.job, TEXTS),
            (&snapshots.seq, NUMBERS),
            (&snapshots.crc, NUMBERS),
            (&snapshots.state, Type::BYTEA_ARRAY),
            (plan_digests, TEXTS),
            (plans, TEXTS),
        ]
    }
}

/// A row of events as it is sent.
struct PackedLines<'a> {
    first: u64,
    last: u64,
    packed: Packed<'a>,
    crc: u32,
}

impl<'a> PackedLines<'a> {
    fn of(lines: &'a Lines) -> Self {
        let (packed, crc) = lines.packed();
        Self { first: lines.first, last: lines.last, packed, crc }
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

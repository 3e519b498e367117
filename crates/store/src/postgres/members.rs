//! The rows of the servers that share a database.

use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;
use super::reservation;
use crate::members::{Look, Member, MemberRows, TERM};

impl MemberRows for Connection {
    type Error = Fault;

    fn keep(&mut self, id: &str, incarnation: &str) -> Result<bool, Fault> {
        let kept = self.read(
            "UPDATE steadfast.owners SET until = clock_timestamp() + $3 * interval '1 millisecond', \
             renewed_at = clock_timestamp() WHERE id = $1 AND incarnation = $2 RETURNING 1",
            &[
                (&id, Type::TEXT),
                (&incarnation, Type::TEXT),
                (&(TERM.as_millis() as i64), Type::INT8),
            ],
        )?;
        Ok(!kept.is_empty())
    }

    fn rejoin(&mut self, id: &str) -> Result<String, Fault> {
        let closed = reservation::closed(self)?;
        if let Some(why) = closed.map_err(|error| Fault::Foreign(error.to_string()))? {
            return Err(Fault::Unsuitable(why));
        }
        let rows = self.query(
            "UPDATE steadfast.owners SET incarnation = gen_random_uuid()::text, renewed_at = clock_timestamp(), \
             until = clock_timestamp() + $2 * interval '1 millisecond' \
             WHERE id = $1 AND incarnation IS NULL RETURNING incarnation",
            &[(&id, Type::TEXT), (&(TERM.as_millis() as i64), Type::INT8)],
        )?;
        let gone = || Fault::Foreign(format!("the row of {id} is gone"));
        Ok(rows.first().ok_or_else(gone)?.get(0))
    }

    fn look(&mut self) -> Result<Look, Fault> {
        let rows = self.read(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, s.shard, s.owner, NULL::text, 0::bigint, 0, s.term \
             FROM steadfast.shards s \
             UNION ALL \
             SELECT 0, NULL, o.id, o.incarnation, (extract(epoch FROM o.until) * 1000000)::bigint, o.format, o.epoch \
             FROM steadfast.owners o WHERE o.serves",
            &[],
        )?;
        let mut look = Look::default();
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

    fn fence(&mut self, id: &str, member: &Member) -> Result<Option<u64>, Fault> {
        let rows = self.query(
            "SELECT steadfast.fence_v1($1, $2, $3)",
            &[(&id, Type::TEXT), (&member.incarnation, Type::TEXT), (&member.until, Type::INT8)],
        )?;
        Ok(rows[0].get::<_, Option<i64>>(0).map(|epoch| epoch as u64))
    }

    fn claim(
        &mut self,
        id: &str,
        incarnation: &str,
        shards: &[u16],
        now: Timestamp,
    ) -> Result<Vec<(u16, u64)>, Fault> {
        let wanted: Vec<i16> = shards.iter().map(|shard| *shard as i16).collect();
        let claimed = self.query(
            "SELECT claimed, its_term FROM steadfast.claim_v1($1, $2, $3, $4)",
            &[
                (&id, Type::TEXT),
                (&incarnation, Type::TEXT),
                (&wanted, Type::INT2_ARRAY),
                (&(now.0 as i64), Type::INT8),
            ],
        )?;
        let claimed = claimed.iter();
        Ok(claimed.map(|row| (row.get::<_, i16>(0) as u16, row.get::<_, i64>(1) as u64)).collect())
    }
}

-- Servers that share the database. Each has a row in `owners` that it renews; what one that is dead had is fenced first, so that nothing
-- more of it is written, and then claimed, shard by shard. Who claims which is decided by the servers, each for itself.

-- Ends an owner that was seen dead: what it still sends is refused from here on. Waits for a group of it that is under way. In which epoch
-- that is; null: it has renewed its row, or is ended.
CREATE FUNCTION steadfast.fence_v1(an_owner text, seen_incarnation text, seen_until bigint)
RETURNS bigint
LANGUAGE sql
SET search_path = steadfast, pg_temp
AS $$
    WITH fenced AS (
        UPDATE owners o
        SET epoch = greatest(o.epoch + 1, extract(epoch FROM clock_timestamp())::bigint),
            incarnation = NULL, until = NULL
        WHERE o.id = an_owner AND o.incarnation = seen_incarnation
          AND (extract(epoch FROM o.until) * 1000000)::bigint = seen_until
        RETURNING o.epoch
    )
    SELECT (SELECT epoch FROM fenced)
$$;

-- Gives an owner those of some shards that nobody has who is there: which they are. The time in which nobody had them is kept, from
-- when the one before was last there on.
CREATE FUNCTION steadfast.claim_v1(an_owner text, an_incarnation text, wanted smallint[], at_ms bigint)
RETURNS TABLE (claimed smallint, its_term bigint)
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
AS $$
DECLARE
    one record;
    oldest bigint;
BEGIN
    PERFORM FROM owners o WHERE o.id = an_owner AND o.incarnation = an_incarnation FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR one IN
        SELECT s.shard, (extract(epoch FROM o.renewed_at) * 1000)::bigint AS down_ms
        FROM shards s LEFT JOIN owners o ON o.id = s.owner
        WHERE s.shard = ANY (wanted) AND o.incarnation IS NULL
        ORDER BY s.shard FOR UPDATE OF s
    LOOP
        UPDATE shards s SET owner = an_owner, term = steadfast.next_term_v1(s.term)
        WHERE s.shard = one.shard RETURNING s.shard, s.term INTO claimed, its_term;
        IF one.down_ms < at_ms THEN
            SELECT j.submitted_at INTO oldest FROM jobs j
            WHERE j.shard = one.shard AND NOT j.over ORDER BY j.n LIMIT 1;
            PERFORM steadfast.keep_gap_v1(one.shard::text, one.down_ms, at_ms, oldest);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

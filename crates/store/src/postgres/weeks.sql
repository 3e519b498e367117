-- History in weeks: each of the tables that have a job's id, and much of it, is partitioned by the time that the id begins with, so that
-- a week of which all jobs are gone is dropped, and not deleted row by row. Ids are ULIDs in small letters, whose first ten characters are
-- milliseconds, and are ordered as these are.
--
-- Weeks are made ahead; who finds that there is none for a job makes it (weeks.rs). There is no partition for what fits no other one, as
-- that would fill unseen, and be in the way of those that are made later. What cannot be a time of a job is in two of their own: `early`,
-- before 2024, and `late`, from 2100 on.
--
-- Who made the schema has these tables, and servers may be somebody else: the functions that make and drop them run as their owner.

-- Ids from this on are of a moment or later.
CREATE FUNCTION steadfast.id_at_v1(ms bigint)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz',
                             ((ms >> (45 - 5 * place)) & 31)::integer + 1, 1), '' ORDER BY place)
    FROM generate_series(0, 9) AS place
$$;

-- The tables, how a partition of each is kept, and the columns that a plan is made by.
CREATE FUNCTION steadfast.history_tables_v1()
RETURNS TABLE (name text, options text, columns text)
LANGUAGE sql IMMUTABLE
AS $$
    VALUES ('events', '', 'job, last'),
           ('snapshots', 'WITH (fillfactor = 70)', 'job'),
           ('projections', 'WITH (fillfactor = 70)', 'job'),
           ('logs', 'WITH (fillfactor = 70)', 'job, step, name'),
           -- A log that trickles rewrites its last piece.
           ('log_pieces', 'WITH (autovacuum_vacuum_scale_factor = 0.05)', 'job, step, name, start'),
           ('log_times', '', 'job, step, name, start'),
           ('files', '', 'job, path'),
           ('file_pieces', '', 'job, path, piece')
$$;

-- Makes a partition of each table. It is attached when it is made, which lets others write meanwhile.
CREATE FUNCTION steadfast.make_partitions_v1(suffix text, low text, high text)
RETURNS void
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
AS $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT * FROM steadfast.history_tables_v1() LOOP
        EXECUTE format('CREATE TABLE steadfast.%I (LIKE steadfast.%I INCLUDING ALL) %s',
                       t.name || suffix, t.name, t.options);
        EXECUTE format('ALTER TABLE steadfast.%I ATTACH PARTITION steadfast.%I FOR VALUES FROM (%s) TO (%s)',
                       t.name, t.name || suffix,
                       coalesce(quote_literal(low), 'MINVALUE'), coalesce(quote_literal(high), 'MAXVALUE'));
    END LOOP;
END
$$;

-- Makes the week of a moment, if there is none yet and it can be one of a job. Whether it did.
CREATE FUNCTION steadfast.make_week_v1(at_ms bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = steadfast, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    week_ms CONSTANT bigint := 7 * 86400000;
    -- From Monday on, in UTC; the first day of all was a Thursday.
    starts bigint := (at_ms - 4 * 86400000) / week_ms * week_ms + 4 * 86400000;
    suffix text := to_char(to_timestamp(starts / 1000) AT TIME ZONE 'UTC', '"_"YYYYMMDD');
BEGIN
    IF starts < 1704067200000 OR starts >= 4102704000000 THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(1400136806, 3);
    IF to_regclass('steadfast.events' || suffix) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM steadfast.make_partitions_v1(
        suffix, steadfast.id_at_v1(starts), steadfast.id_at_v1(starts + week_ms));
    RETURN true;
END
$$;

-- The weeks that there are, the first one first.
CREATE VIEW steadfast.weeks AS
SELECT w.starts_ms, w.starts_ms + 7 * 86400000 AS ends_ms,
       steadfast.id_at_v1(w.starts_ms) AS low, steadfast.id_at_v1(w.starts_ms + 7 * 86400000) AS high
FROM (
    SELECT (extract(epoch FROM to_date(right(c.relname, 8), 'YYYYMMDD')) * 1000)::bigint AS starts_ms
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'steadfast.events'::regclass AND c.relname ~ '^events_[0-9]{8}$'
) w
ORDER BY w.starts_ms;

-- Drops a week that has no job any more. Whether it did. Whoever writes waits while this has the tables for itself, so this waits for nobody
-- for long: it fails instead, and is done another time. A job that comes into the week meanwhile finds it gone, and makes it again.
CREATE FUNCTION steadfast.drop_week_v1(week_starts_ms bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = steadfast, pg_temp
SET lock_timeout = '50ms'
AS $$
DECLARE
    week record;
    suffix text := to_char(to_timestamp(week_starts_ms / 1000) AT TIME ZONE 'UTC', '"_"YYYYMMDD');
    parents text;
    partitions text;
BEGIN
    PERFORM pg_advisory_xact_lock(1400136806, 3);
    SELECT * INTO week FROM weeks w WHERE w.starts_ms = week_starts_ms;
    -- Files are there a while before their job is.
    IF NOT FOUND OR week.ends_ms > extract(epoch FROM clock_timestamp()) * 1000 - 86400000 THEN
        RETURN false;
    END IF;
    SELECT string_agg(format('ONLY steadfast.%I', t.name), ', '),
           string_agg(format('steadfast.%I', t.name || suffix), ', ')
    INTO parents, partitions FROM steadfast.history_tables_v1() t;
    -- Only this week is kept from others while it is looked whether a job is in it, which takes long if a million just were. Who had
    -- written into it is done then, and seen.
    EXECUTE 'LOCK TABLE ' || partitions || ' IN ACCESS EXCLUSIVE MODE';
    IF EXISTS (SELECT FROM jobs j WHERE j.id > week.low AND j.id < week.high) THEN
        RETURN false;
    END IF;
    EXECUTE 'LOCK TABLE ' || parents || ' IN ACCESS EXCLUSIVE MODE';
    EXECUTE 'DROP TABLE ' || partitions;
    RETURN true;
END
$$;

-- What nobody else does: weeks are made for the next fortnight, and a partitioned table, which autovacuum leaves alone, is analyzed once a
-- day. Which was. The counts of owners that are gone come to those of nobody, so that there are not more of them with every start.
CREATE FUNCTION steadfast.maintain_v1()
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = steadfast, pg_temp
AS $$
DECLARE
    now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
    stale record;
BEGIN
    FOR day IN 0..14 BY 7 LOOP
        PERFORM steadfast.make_week_v1(now_ms + day * 86400000);
    END LOOP;
    WITH gone AS (
        DELETE FROM job_counts k
        WHERE k.writer <> '' AND NOT EXISTS (SELECT FROM owners o WHERE o.id = k.writer)
        RETURNING k.state, k.jobs
    )
    INSERT INTO job_counts AS k (writer, state, jobs)
    SELECT '', g.state, sum(g.jobs) FROM gone g GROUP BY g.state ORDER BY g.state
    ON CONFLICT (writer, state) DO UPDATE SET jobs = k.jobs + excluded.jobs;
    SELECT t.name, t.columns INTO stale
    FROM steadfast.history_tables_v1() t
    JOIN pg_stat_user_tables s ON s.relid = ('steadfast.' || t.name)::regclass
    WHERE s.last_analyze IS NULL OR s.last_analyze < clock_timestamp() - interval '1 day'
    ORDER BY s.last_analyze NULLS FIRST LIMIT 1;
    IF FOUND THEN
        EXECUTE format('ANALYZE steadfast.%I (%s)', stale.name, stale.columns);
    END IF;
    RETURN stale.name;
END
$$;

REVOKE ALL ON FUNCTION steadfast.make_week_v1, steadfast.drop_week_v1, steadfast.maintain_v1 FROM PUBLIC;

SELECT steadfast.make_partitions_v1('_early', NULL, steadfast.id_at_v1(1704067200000)),
       steadfast.make_partitions_v1('_late', steadfast.id_at_v1(4102704000000), NULL);
SELECT steadfast.make_week_v1((extract(epoch FROM now()) * 1000)::bigint + day * 86400000)
FROM generate_series(0, 1) AS day;

-- How jobs go, and how they are marked. Both change counts under '', last of all and in the order of states: who removes jobs waits for
-- who does the same, and no group waits for either.

-- Everything of jobs goes; which of them there were. `history`: what is in weeks, too; without, the week is to be dropped.
CREATE FUNCTION steadfast.remove_v1(ids text[], history boolean)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
-- Made for these jobs, a plan has their weeks in it alone.
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    gone text[];
    gone_keys text[];
    gone_plans bigint[];
    gone_labels jsonb[];
    gone_states text[];
    numbers bigint[];
BEGIN
    -- First, and in their order: a group that writes one of them is waited for, and what it wrote is seen below.
    PERFORM FROM jobs j WHERE j.id = ANY (ids) ORDER BY j.id FOR UPDATE;
    WITH deleted AS (DELETE FROM jobs j WHERE j.id = ANY (ids) RETURNING j.*)
    SELECT array_agg(d.id ORDER BY d.n), array_agg(d.key) FILTER (WHERE d.key IS NOT NULL),
           array_agg(DISTINCT d.plan) FILTER (WHERE d.plan IS NOT NULL),
           array_agg(d.labels::jsonb ORDER BY d.n), array_agg(d.n ORDER BY d.n),
           array_agg(CASE WHEN d.stuck IS NULL THEN d.state ELSE 'stuck' END)
               FILTER (WHERE d.shard IS NOT NULL)
    INTO gone, gone_keys, gone_plans, gone_labels, numbers, gone_states
    FROM deleted d;
    IF history THEN
        DELETE FROM events e WHERE e.job = ANY (gone);
        DELETE FROM snapshots s WHERE s.job = ANY (gone);
        DELETE FROM projections p WHERE p.job = ANY (gone);
    END IF;
    DELETE FROM keys k WHERE k.key = ANY (gone_keys);
    DELETE FROM labels l
    USING unnest(gone_labels, numbers) AS g(labels, n), jsonb_each_text(g.labels) AS pair
    WHERE l.name = pair.key AND l.value = pair.value AND l.job = g.n;
    -- A job of `run` is its own owner.
    DELETE FROM owners o WHERE o.id = ANY (gone);
    DELETE FROM gaps g WHERE g.scope = ANY (gone);
    -- The last job with a plan takes it along.
    IF gone_plans IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(1400136806, 2);
        DELETE FROM plans p WHERE p.id = ANY (gone_plans)
        AND NOT EXISTS (SELECT FROM jobs j WHERE j.plan = p.id);
    END IF;
    INSERT INTO job_counts AS k (writer, state, jobs)
    SELECT '', s.state, -count(*) FROM unnest(gone_states) AS s(state)
    GROUP BY s.state ORDER BY s.state
    ON CONFLICT (writer, state) DO UPDATE SET jobs = k.jobs + excluded.jobs;
    RETURN QUERY SELECT unnest(gone);
END
$$;

-- Some of the jobs of a range of ids that are over and finished before a moment go, from the one after an id on: which they were, and
-- where to go on. `until`: none, to the last one.
CREATE FUNCTION steadfast.purge_v1(
    finished_before bigint, after text, until text, looked_at integer, at_once integer, history boolean
) RETURNS TABLE (gone text[], next text)
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    ids text[];
    last_gone text;
    last_seen text;
    seen integer;
BEGIN
    SELECT array_agg(j.id) FILTER (WHERE j.old AND j.place <= at_once),
           max(j.id) FILTER (WHERE j.old AND j.place <= at_once), max(j.id), count(*)
    INTO ids, last_gone, last_seen, seen
    FROM (
        SELECT l.*, sum(l.old::integer) OVER (ORDER BY l.id) AS place
        FROM (
            SELECT j.id, j.over AND coalesce(j.finished_at < finished_before, false) AS old
            FROM jobs j WHERE j.id > after AND (until IS NULL OR j.id < until)
            ORDER BY j.id LIMIT looked_at
        ) l
    ) j;
    RETURN QUERY
        SELECT ARRAY(SELECT steadfast.remove_v1(ids, history)),
               CASE WHEN cardinality(ids) = at_once THEN last_gone
                    WHEN seen = looked_at THEN last_seen END;
END
$$;

-- Marks a job that cannot go on. Only the mark is written: what cannot be read is left as it is. Whether there is such a one.
CREATE FUNCTION steadfast.park_v1(a_job text, why text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
AS $$
DECLARE
    old jobs%ROWTYPE;
BEGIN
    SELECT j.* INTO old FROM jobs j WHERE j.id = a_job AND NOT j.over FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE jobs j SET stuck = why, wake_at = NULL, queued = NULL WHERE j.id = a_job;
    IF old.stuck IS NULL AND old.shard IS NOT NULL THEN
        INSERT INTO job_counts AS k (writer, state, jobs)
        SELECT '', s.state, s.change FROM (VALUES (old.state, -1), ('stuck', 1)) AS s(state, change)
        ORDER BY s.state
        ON CONFLICT (writer, state) DO UPDATE SET jobs = k.jobs + excluded.jobs;
    END IF;
    RETURN true;
END
$$;

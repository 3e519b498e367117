-- A group of decisions, all or nothing. What is refused comes out; what does not is written.
--
-- Writes are numbered from 1. Those of one job that follow on each other are a chain, and `rounds` says where in the group a
-- round ends: within one, a job has one chain, and a key is wanted once. So whatever refuses a write of a chain was there before the round,
-- and everything is asked and written by sets. Nearly every group is one round.
--
-- A group comes as arrays of rows: with an array for each column a statement would scan as many arrays as it takes columns, each into a
-- store of its own, which cost a quarter of the database's time. The columns of a type are in the order in which commit.rs sends them.
--
-- Arrays are made of rows that a subquery has put in order: an ORDER BY in each aggregate would sort them as often.
--
-- Plans are fixed to index scans: one that was made while the tables were empty is used until they are analyzed.

-- `begins`: what the first of its chain follows on. `after`: where its job has writes in several rounds, the one of an earlier round that it
-- follows on, or 0. `state`: that the last one of a chain leaves its job in, if it is one that is counted.
CREATE TYPE steadfast.commit_write_v1 AS (
    n integer, after integer, begins bigint, shard smallint, job text COLLATE "C",
    key text COLLATE "C", digest text, state text COLLATE "C"
);

-- `plan`: its place among those that come with the group. It and what is after it are a new job's.
CREATE TYPE steadfast.commit_chain_v1 AS (
    first integer, last integer, seq bigint, finished_at bigint, wake_at bigint, over boolean,
    job text COLLATE "C", state text COLLATE "C", queued text COLLATE "C", readiness text,
    plan integer, submitted_at bigint, shard smallint, local boolean, name text COLLATE "C",
    key text COLLATE "C", retried_from text COLLATE "C", labels text
);

CREATE TYPE steadfast.commit_label_v1 AS (
    write integer, job text COLLATE "C", name text COLLATE "C", value text COLLATE "C"
);

CREATE TYPE steadfast.commit_events_v1 AS (
    write integer, job text COLLATE "C", first bigint, last bigint, crc bigint, compressed boolean,
    lines bytea
);

CREATE TYPE steadfast.commit_snapshot_v1 AS (
    write integer, job text COLLATE "C", seq bigint, crc bigint, state bytea
);

CREATE FUNCTION steadfast.commit_v1(
    an_owner text, an_epoch bigint, rounds integer[],
    group_writes steadfast.commit_write_v1[], group_chains steadfast.commit_chain_v1[],
    group_labels steadfast.commit_label_v1[], group_events steadfast.commit_events_v1[],
    group_snapshots steadfast.commit_snapshot_v1[],
    plan_digests text[], plan_texts text[]
) RETURNS TABLE (write integer, why text, found bigint, who text, same_body boolean)
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    current_epoch bigint;
    low integer := 1;
    high integer;
    -- By the writes of a round: where the job's log ends, who may write it, in which state it is counted, who has the key, and whether the
    -- write is taken.
    ends bigint[];
    owners_of text[];
    states_before text[];
    were_stuck boolean[];
    holders text[];
    same boolean[];
    taken boolean[];
    whys text[];
    founds bigint[];
    whos text[];
    -- The write of an earlier round, refused there, that a chain follows on. The others are what became of the writes of those rounds.
    sources integer[];
    all_taken boolean[];
    all_whys text[];
    all_founds bigint[];
    all_whos text[];
    lost boolean;
    -- How many writes of a round want a key, and how many of these are of jobs that are there.
    keys_wanted bigint;
    keys_of_old bigint;
    plan_ids bigint[];
    new_jobs bigint;
    expected_rows bigint;
    changed_rows bigint;
BEGIN
    SELECT o.epoch INTO current_epoch FROM owners o WHERE o.id = an_owner FOR UPDATE;
    IF current_epoch IS DISTINCT FROM an_epoch THEN
        RETURN QUERY
            SELECT 0, 'fenced'::text, coalesce(current_epoch, 0), NULL::text, NULL::boolean;
        RETURN;
    END IF;

    FOREACH high IN ARRAY rounds LOOP
        holders := NULL;
        same := NULL;

        -- Numbers of a chain do not fall: all are taken if the first fits the end of the log. A later one that fits by its number alone was
        -- decided on others than those that are there.
        SELECT array_agg(a.ends), array_agg(a.owner), array_agg(a.state), array_agg(a.is_stuck),
               array_agg(a.begins = a.ends AND coalesce(a.owner = an_owner, false)),
               count(a.key), count(a.key) FILTER (WHERE a.ends > 0)
        INTO ends, owners_of, states_before, were_stuck, taken, keys_wanted, keys_of_old
        FROM (
            SELECT w.begins, w.key, coalesce(j.seq, 0) AS ends, j.stuck IS NOT NULL AS is_stuck,
                   CASE WHEN j.stuck IS NULL THEN j.state ELSE 'stuck' END AS state,
                   CASE WHEN CASE WHEN j.id IS NULL THEN w.job = an_owner ELSE j.shard IS NULL END
                        THEN w.job ELSE s.owner END AS owner
            FROM unnest(group_writes) AS w
            LEFT JOIN jobs j ON j.id = w.job
            LEFT JOIN shards s ON s.shard = coalesce(j.shard, w.shard)
            WHERE w.n BETWEEN low AND high
            ORDER BY w.n
        ) a;

        IF low > 1 THEN
            SELECT array_agg(a.source), array_agg(a.taken AND a.source IS NULL)
            INTO sources, taken
            FROM (
                SELECT taken[w.n - low + 1] AS taken,
                       max(CASE WHEN NOT all_taken[w.after] THEN w.after END)
                           OVER (PARTITION BY w.job) AS source
                FROM unnest(group_writes) AS w
                WHERE w.n BETWEEN low AND high
                ORDER BY w.n
            ) a;
        END IF;

        IF keys_wanted > 0 THEN
            -- In their order, so that two who want the same ones do not wait for each other.
            INSERT INTO keys (key, digest, job)
            SELECT w.key, w.digest, w.job
            FROM unnest(group_writes) AS w
            WHERE w.n BETWEEN low AND high AND w.key IS NOT NULL AND taken[w.n - low + 1]
            ORDER BY w.key
            ON CONFLICT (key) DO NOTHING;
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
        END IF;

        -- Where all have what they wanted, nobody else has it.
        IF keys_wanted > 0 AND (changed_rows < keys_wanted OR keys_of_old > 0) THEN
            -- A statement of its own sees the key of a rival that was waited for. A key of a job that was not there is this write's.
            -- What follows on a job that its key has refused is refused too, as one of the owner's that is not there.
            SELECT array_agg(b.holder), array_agg(b.same),
                   array_agg(CASE WHEN b.is_void THEN 0 ELSE b.ends END),
                   array_agg(CASE WHEN b.is_void THEN an_owner ELSE b.owner END),
                   array_agg(b.taken AND NOT b.is_void), bool_or(b.is_lost)
            INTO holders, same, ends, owners_of, taken, lost
            FROM (
                SELECT a.*, bool_or(a.holder IS NOT NULL) OVER (PARTITION BY a.job) AS is_void
                FROM (
                    SELECT w.n, w.job, o.ends, o.owner, o.taken, k.digest = w.digest AS same,
                           CASE WHEN k.job = w.job AND o.ends = 0 THEN NULL ELSE k.job END AS holder,
                           w.key IS NOT NULL AND o.taken AND k.key IS NULL AS is_lost
                    FROM unnest(group_writes) AS w
                    CROSS JOIN LATERAL (
                        SELECT ends[w.n - low + 1], owners_of[w.n - low + 1], taken[w.n - low + 1]
                    ) AS o(ends, owner, taken)
                    LEFT JOIN keys k ON k.key = w.key
                    WHERE w.n BETWEEN low AND high
                ) a
                ORDER BY a.n
            ) b;
            IF lost THEN
                RAISE serialization_failure USING MESSAGE = 'a key was given up meanwhile';
            END IF;
        END IF;

        IF false = ANY (taken) THEN
            SELECT array_agg(a.why),
                   array_agg(CASE WHEN a.why = 'key' THEN 0 ELSE coalesce(all_founds[a.source], a.ends) END),
                   array_agg(coalesce(all_whos[a.source], a.holder, a.owner))
            INTO whys, founds, whos
            FROM (
                SELECT w.*, CASE WHEN w.source IS NOT NULL
                                 THEN CASE all_whys[w.source] WHEN 'key' THEN 'sequence'
                                                              ELSE all_whys[w.source] END
                                 WHEN w.holder IS NOT NULL THEN 'key'
                                 WHEN w.owner IS DISTINCT FROM an_owner
                                      AND (w.ends > 0) = (w.begins > 0) THEN 'owner'
                                 ELSE 'sequence' END AS why
                FROM (
                    SELECT w.n, w.begins, ends[w.n - low + 1] AS ends, owners_of[w.n - low + 1] AS owner,
                           holders[w.n - low + 1] AS holder, sources[w.n - low + 1] AS source
                    FROM unnest(group_writes) AS w WHERE w.n BETWEEN low AND high
                ) w
                ORDER BY w.n
            ) a;
            RETURN QUERY
                SELECT (low + w.i - 1)::integer, w.why, w.found, w.who, w.same
                FROM unnest(whys, founds, whos, same, taken)
                     WITH ORDINALITY AS w(why, found, who, same, taken, i)
                WHERE NOT w.taken;
        END IF;

        IF cardinality(rounds) > 1 THEN
            IF true = ALL (taken) THEN
                whys := array_fill(NULL::text, ARRAY[cardinality(taken)]);
                founds := array_fill(NULL::bigint, ARRAY[cardinality(taken)]);
                whos := whys;
            END IF;
            all_taken := all_taken || taken;
            all_whys := all_whys || whys;
            all_founds := all_founds || founds;
            all_whos := all_whos || whos;
        END IF;

        IF cardinality(plan_digests) > 0 THEN
            -- Those who remove plans have it alone.
            PERFORM pg_advisory_xact_lock_shared(1400136806, 2);
            plan_ids := ARRAY(SELECT k.id FROM unnest(plan_digests) WITH ORDINALITY AS p(digest, i)
                              LEFT JOIN plans k ON k.digest = p.digest ORDER BY p.i);
            IF array_position(plan_ids, NULL) IS NOT NULL THEN
                INSERT INTO plans (digest, plan)
                SELECT p.digest, p.plan
                FROM unnest(plan_digests, plan_texts, plan_ids) WITH ORDINALITY AS p(digest, plan, id, i)
                WHERE p.id IS NULL
                  AND EXISTS (SELECT FROM unnest(group_chains) AS c
                              WHERE c.plan = p.i AND c.first BETWEEN low AND high
                                AND taken[c.first - low + 1])
                ORDER BY p.digest
                ON CONFLICT (digest) DO NOTHING;
                plan_ids := ARRAY(SELECT k.id FROM unnest(plan_digests) WITH ORDINALITY AS p(digest, i)
                                  LEFT JOIN plans k ON k.digest = p.digest ORDER BY p.i);
            END IF;
        END IF;

        new_jobs := 0;
        IF 0 = ANY (ends) THEN
            INSERT INTO jobs (seq, submitted_at, finished_at, wake_at, plan, shard, over, local, id,
                              state, name, queued, key, retried_from, labels, readiness)
            SELECT c.seq, c.submitted_at, c.finished_at, c.wake_at, plan_ids[c.plan], c.shard, c.over,
                   c.local, c.job, c.state, c.name, c.queued, c.key, c.retried_from, c.labels,
                   c.readiness
            FROM unnest(group_chains) AS c
            WHERE c.first BETWEEN low AND high
              AND taken[c.first - low + 1] AND ends[c.first - low + 1] = 0
            ORDER BY c.first;
            GET DIAGNOSTICS new_jobs = ROW_COUNT;

            IF cardinality(group_labels) > 0 THEN
                INSERT INTO labels (name, value, job)
                SELECT l.name, l.value, j.n
                FROM unnest(group_labels) AS l
                JOIN jobs j ON j.id = l.job
                WHERE l.write BETWEEN low AND high
                  AND taken[l.write - low + 1] AND ends[l.write - low + 1] = 0;
            END IF;
        END IF;

        IF 0 < ANY (ends) THEN
            UPDATE jobs j
            SET seq = c.seq, state = c.state, finished_at = c.finished_at, wake_at = c.wake_at,
                queued = c.queued, over = c.over, readiness = c.readiness
            FROM unnest(group_chains) AS c
            WHERE j.id = c.job AND c.last BETWEEN low AND high
              AND taken[c.last - low + 1] AND ends[c.last - low + 1] > 0
              AND j.seq = ends[c.last - low + 1]
              AND (j.stuck IS NOT NULL) = were_stuck[c.last - low + 1];
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
            IF cardinality(rounds) = 1 AND true = ALL (taken) THEN
                expected_rows := cardinality(group_chains) - new_jobs;
            ELSE
                SELECT count(*) INTO expected_rows FROM unnest(group_chains) AS c
                WHERE c.last BETWEEN low AND high AND taken[c.last - low + 1]
                  AND ends[c.last - low + 1] > 0;
            END IF;
            IF changed_rows <> expected_rows THEN
                RAISE serialization_failure USING MESSAGE = 'a job was removed or marked meanwhile';
            END IF;
        END IF;

        INSERT INTO events (job, last, first, epoch, crc, compressed, lines)
        SELECT e.job, e.last, e.first, an_epoch, e.crc, e.compressed, e.lines
        FROM unnest(group_events) AS e
        WHERE e.write BETWEEN low AND high AND taken[e.write - low + 1];

        IF cardinality(group_snapshots) > 0 THEN
            INSERT INTO snapshots (job, seq, crc, state)
            SELECT s.job, s.seq, s.crc, s.state
            FROM unnest(group_snapshots) AS s
            WHERE s.write BETWEEN low AND high AND taken[s.write - low + 1]
            ON CONFLICT (job) DO UPDATE
            SET seq = excluded.seq, crc = excluded.crc, state = excluded.state;
        END IF;

        INSERT INTO job_counts AS k (writer, state, jobs)
        SELECT an_owner, d.state, sum(d.change)
        FROM (
            SELECT w.before, w.after, count(*) AS jobs
            FROM (
                SELECT states_before[w.n - low + 1] AS before, w.state AS after
                FROM unnest(group_writes) AS w
                WHERE w.n BETWEEN low AND high AND w.state IS NOT NULL AND taken[w.n - low + 1]
            ) w
            WHERE w.after <> coalesce(w.before, '')
            GROUP BY w.before, w.after
        ) w
        CROSS JOIN LATERAL (VALUES (w.before, -w.jobs), (w.after, w.jobs)) AS d(state, change)
        WHERE d.state IS NOT NULL AND w.before IS DISTINCT FROM 'stuck'
        GROUP BY d.state HAVING sum(d.change) <> 0
        ORDER BY d.state
        ON CONFLICT (writer, state) DO UPDATE SET jobs = k.jobs + excluded.jobs;

        low := high + 1;
    END LOOP;
END
$$;

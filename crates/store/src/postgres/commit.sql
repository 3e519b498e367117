-- A group of decisions, all or nothing. What is refused comes out; what does not is written.
--
-- Writes (w_) are numbered from 1. Those of one job that follow on each other are a chain (c_), and `rounds` says where in the group a
-- round ends: within one, a job has one chain, and a key is wanted once. So whatever refuses a write of a chain was there before the round,
-- and everything is asked and written by sets. Nearly every group is one round. Where a job has writes in several, w_after is the one of an
-- earlier round that a write follows on; w_state is the state that the last write of a chain leaves its job in, if it is
-- one that is counted.
--
-- Arrays are made of rows that a subquery has put in order: an ORDER BY in each aggregate would sort them as often.
--
-- Plans are fixed to index scans: one that was made while the tables were empty is used until they are analyzed.
CREATE FUNCTION steadfast.commit_v1(
    an_owner text, an_epoch bigint, rounds integer[],
    w_job text[], w_expected bigint[], w_after integer[], w_shard smallint[], w_key text[],
    w_digest text[], w_state text[],
    c_first integer[], c_last integer[], c_job text[], c_seq bigint[], c_state text[],
    c_finished_at bigint[], c_wake_at bigint[], c_queued text[], c_over boolean[],
    c_readiness text[],
    c_name text[], c_submitted_at bigint[], c_labels text[], c_retried_from text[],
    c_local boolean[], c_shard smallint[], c_key text[], c_plan text[],
    l_write integer[], l_job text[], l_name text[], l_value text[],
    e_write integer[], e_job text[], e_first bigint[], e_last bigint[], e_crc bigint[],
    e_compressed boolean[], e_lines bytea[],
    s_write integer[], s_job text[], s_seq bigint[], s_crc bigint[], s_state bytea[],
    p_digest text[], p_plan text[]
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
    -- By the writes of a round: where their chain begins and where the job's log ends, who may write it, in which state it is counted, who
    -- has the key, and whether the write is taken.
    begins bigint[];
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
        SELECT array_agg(a.begins), array_agg(a.ends), array_agg(a.owner), array_agg(a.state),
               array_agg(a.is_stuck),
               array_agg(a.begins = a.ends AND coalesce(a.owner = an_owner, false))
        INTO begins, ends, owners_of, states_before, were_stuck, taken
        FROM (
            SELECT w.i, min(w.expected) OVER (PARTITION BY w.job) AS begins,
                   coalesce(j.seq, 0) AS ends, j.stuck IS NOT NULL AS is_stuck,
                   CASE WHEN j.stuck IS NULL THEN j.state ELSE 'stuck' END AS state,
                   CASE WHEN CASE WHEN j.id IS NULL THEN w.job = an_owner ELSE j.shard IS NULL END
                        THEN w.job ELSE s.owner END AS owner
            FROM unnest(w_job[low:high], w_expected[low:high], w_shard[low:high])
                 WITH ORDINALITY AS w(job, expected, shard, i)
            LEFT JOIN jobs j ON j.id = w.job
            LEFT JOIN shards s ON s.shard = coalesce(j.shard, w.shard)
            ORDER BY w.i
        ) a;

        IF low > 1 THEN
            SELECT array_agg(a.source), array_agg(a.taken AND a.source IS NULL)
            INTO sources, taken
            FROM (
                SELECT w.i, w.taken,
                       max(CASE WHEN NOT all_taken[w.after] THEN w.after END)
                           OVER (PARTITION BY w.job) AS source
                FROM unnest(w_job[low:high], w_after[low:high], taken)
                     WITH ORDINALITY AS w(job, after, taken, i)
                ORDER BY w.i
            ) a;
        END IF;

        IF EXISTS (SELECT FROM unnest(w_key[low:high]) AS k WHERE k IS NOT NULL) THEN
            -- In their order, so that two who want the same ones do not wait for each other.
            INSERT INTO keys (key, digest, job)
            SELECT w.key, w.digest, w.job
            FROM unnest(w_job[low:high], w_key[low:high], w_digest[low:high], taken)
                 AS w(job, key, digest, taken)
            WHERE w.key IS NOT NULL AND w.taken
            ORDER BY w.key
            ON CONFLICT (key) DO NOTHING;

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
                    SELECT w.i, w.job, w.ends, w.owner, w.taken, k.digest = w.digest AS same,
                           CASE WHEN k.job = w.job AND w.ends = 0 THEN NULL ELSE k.job END AS holder,
                           w.key IS NOT NULL AND w.taken AND k.key IS NULL AS is_lost
                    FROM unnest(w_job[low:high], w_key[low:high], w_digest[low:high], ends, owners_of,
                                taken)
                         WITH ORDINALITY AS w(job, key, digest, ends, owner, taken, i)
                    LEFT JOIN keys k ON k.key = w.key
                ) a
                ORDER BY a.i
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
                FROM unnest(begins, ends, owners_of, holders, sources)
                     WITH ORDINALITY AS w(begins, ends, owner, holder, source, i)
                ORDER BY w.i
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

        IF cardinality(p_digest) > 0 THEN
            -- Those who remove plans have it alone.
            PERFORM pg_advisory_xact_lock_shared(1400136806, 2);
            INSERT INTO plans (digest, plan)
            SELECT p.digest, p.plan
            FROM unnest(p_digest, p_plan) AS p(digest, plan)
            WHERE NOT EXISTS (SELECT FROM plans k WHERE k.digest = p.digest)
              AND EXISTS (SELECT FROM unnest(c_first, c_plan) AS c(first, plan)
                          WHERE c.plan = p.digest AND c.first BETWEEN low AND high
                            AND taken[c.first - low + 1])
            ORDER BY p.digest
            ON CONFLICT (digest) DO NOTHING;
        END IF;

        IF 0 = ANY (ends) THEN
            INSERT INTO jobs (seq, submitted_at, finished_at, wake_at, plan, shard, over, local, id,
                              state, name, queued, key, retried_from, labels, readiness)
            SELECT c.seq, c.submitted_at, c.finished_at, c.wake_at, p.id, c.shard, c.over, c.local,
                   c.job, c.state, c.name, c.queued, c.key, c.retried_from, c.labels,
                   c.readiness
            FROM unnest(c_first, c_job, c_seq, c_state, c_finished_at, c_wake_at, c_queued, c_over,
                        c_readiness, c_name, c_submitted_at, c_labels, c_retried_from, c_local, c_shard, c_key,
                        c_plan)
                 AS c(first, job, seq, state, finished_at, wake_at, queued, over, readiness, name, submitted_at,
                      labels, retried_from, local, shard, key, plan)
            LEFT JOIN plans p ON p.digest = c.plan
            WHERE c.first BETWEEN low AND high
              AND taken[c.first - low + 1] AND ends[c.first - low + 1] = 0
            ORDER BY c.first;

            IF cardinality(l_write) > 0 THEN
                INSERT INTO labels (name, value, job)
                SELECT l.name, l.value, j.n
                FROM unnest(l_write, l_job, l_name, l_value) AS l(write, job, name, value)
                JOIN jobs j ON j.id = l.job
                WHERE l.write BETWEEN low AND high
                  AND taken[l.write - low + 1] AND ends[l.write - low + 1] = 0;
            END IF;
        END IF;

        IF 0 < ANY (ends) THEN
            UPDATE jobs j
            SET seq = c.seq, state = c.state, finished_at = c.finished_at, wake_at = c.wake_at,
                queued = c.queued, over = c.over, readiness = c.readiness
            FROM unnest(c_last, c_job, c_seq, c_state, c_finished_at, c_wake_at, c_queued, c_over,
                        c_readiness)
                 AS c(last, job, seq, state, finished_at, wake_at, queued, over, readiness)
            WHERE j.id = c.job AND c.last BETWEEN low AND high
              AND taken[c.last - low + 1] AND ends[c.last - low + 1] > 0
              AND j.seq = ends[c.last - low + 1]
              AND (j.stuck IS NOT NULL) = were_stuck[c.last - low + 1];
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
            SELECT count(*) INTO expected_rows FROM unnest(c_last) AS last
            WHERE last BETWEEN low AND high AND taken[last - low + 1] AND ends[last - low + 1] > 0;
            IF changed_rows <> expected_rows THEN
                RAISE serialization_failure USING MESSAGE = 'a job was removed or marked meanwhile';
            END IF;
        END IF;

        INSERT INTO events (job, last, first, epoch, crc, compressed, lines)
        SELECT e.job, e.last, e.first, an_epoch, e.crc, e.compressed, e.lines
        FROM unnest(e_write, e_job, e_first, e_last, e_crc, e_compressed, e_lines)
             AS e(write, job, first, last, crc, compressed, lines)
        WHERE e.write BETWEEN low AND high AND taken[e.write - low + 1];

        IF cardinality(s_write) > 0 THEN
            INSERT INTO snapshots (job, seq, crc, state)
            SELECT s.job, s.seq, s.crc, s.state
            FROM unnest(s_write, s_job, s_seq, s_crc, s_state) AS s(write, job, seq, crc, state)
            WHERE s.write BETWEEN low AND high AND taken[s.write - low + 1]
            ON CONFLICT (job) DO UPDATE
            SET seq = excluded.seq, crc = excluded.crc, state = excluded.state;
        END IF;

        INSERT INTO job_counts AS k (writer, state, jobs)
        SELECT an_owner, d.state, sum(d.change)
        FROM (
            SELECT w.before, w.after, count(*) AS jobs
            FROM unnest(w_state[low:high], states_before, taken) AS w(after, before, taken)
            WHERE w.taken AND w.after <> coalesce(w.before, '')
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

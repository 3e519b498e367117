-- Which items may start, in SQL, as core's readiness.rs says it: Tasker's `step_readiness`. The write that changes a job leaves in
-- `jobs.readiness` what of it has not ended, and here only the time is added.

-- Whether an execution may begin, by count alone. The first one always may. NULL: none yet, 3, true.
CREATE FUNCTION steadfast.retry_eligible(attempts bigint, max_attempts bigint, retryable boolean)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT coalesce(attempts, 0) = 0
        OR coalesce(retryable, true) AND coalesce(attempts, 0) < coalesce(max_attempts, 3)
$$;

-- A moment, at most that of the year 9999: a delay may be longer than the calendar.
CREATE FUNCTION steadfast.moment_v1(ms numeric)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT to_timestamp(CASE WHEN ms < 253402300799999 THEN ms
                             WHEN ms IS NOT NULL THEN 253402300799999 END / 1000.0)
$$;

-- The items of one job, at a moment. An item without a number: how many the step has, a step that it needs will say.
CREATE FUNCTION steadfast.readiness_v1(kept jsonb, at_ms numeric)
RETURNS TABLE (
    datacenter text, step text, role text, item bigint, dependencies_satisfied boolean,
    attempts bigint, failures bigint, max_attempts bigint, retryable boolean, eligible boolean,
    next_retry_at timestamptz, ready boolean, reason text
)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10
-- The planner takes lists for long ones, and would compile for a second what is done in a millisecond.
SET jit = off
AS $$
    SELECT i.datacenter, i.step, i.role, n.item, NOT i.waiting, i.attempts, i.failures, i.max_attempts,
           i.retryable,
           -- The first attempt in this job counts as the first, also where failures are carried along.
           steadfast.retry_eligible(CASE WHEN i.attempts = 0 THEN 0 ELSE i.failures END,
                                    coalesce(i.max_attempts, 9223372036854775807), i.retryable),
           steadfast.moment_v1(i.due), i.reason IS NULL, i.reason
    FROM (
        SELECT s.*, r.*,
               -- A rule may retry what its step would not.
               s.policy_retryable OR r.attempts > 0 AND r.under_way IS NULL AS retryable,
               CASE WHEN r.under_way IS NOT NULL THEN r.under_way
                    WHEN (kept ->> 'times_out_at')::numeric <= at_ms THEN 'job_timed_out'
                    WHEN kept ? 'paused' THEN 'paused'
                    WHEN (kept ->> 'begins_at')::numeric > at_ms THEN 'pending'
                    WHEN s.waiting THEN 'waiting'
                    WHEN r.due > at_ms THEN 'backing_off'
                    WHEN s.full THEN 'parallelism' END AS reason
        FROM jsonb_array_elements(kept -> 'steps') WITH ORDINALITY AS e(kept_step, place)
        CROSS JOIN LATERAL (
            SELECT e.kept_step ->> 'datacenter' AS datacenter, e.kept_step ->> 'step' AS step,
                   coalesce(e.kept_step ->> 'role', 'item') AS role,
                   e.kept_step ? 'waiting' AS waiting, e.kept_step ? 'full' AS full,
                   (e.kept_step ->> 'max_attempts')::bigint AS max_attempts,
                   (e.kept_step ->> 'retryable')::boolean AS policy_retryable
        ) s
        CROSS JOIN LATERAL (
            SELECT (k.range ->> 0)::bigint AS first, (k.range ->> 1)::bigint AS items,
                   coalesce((k.range ->> 2)::bigint, 0) AS attempts,
                   coalesce((k.range ->> 3)::bigint, 0) AS failures,
                   k.range ->> 4 AS under_way, (k.range ->> 5)::numeric AS due
            FROM jsonb_array_elements(e.kept_step -> 'items') AS k(range)
        ) r
    ) i
    CROSS JOIN LATERAL (
        SELECT i.first + at FROM generate_series(0, i.items - 1) AS at
        UNION ALL SELECT NULL WHERE i.items IS NULL
    ) AS n(item)
$$;

-- Every item that has not ended, of every job that is open and can go on. A job of `run` whose process is gone is interrupted.
CREATE VIEW steadfast.step_readiness AS
SELECT j.id AS job, r.datacenter, r.step, r.role, r.item, r.dependencies_satisfied, r.attempts,
       r.failures, r.max_attempts, r.retryable, r.eligible, r.next_retry_at,
       r.ready AND NOT g.is_gone AS ready,
       CASE WHEN r.ready AND g.is_gone THEN 'interrupted' ELSE r.reason END AS reason
FROM steadfast.jobs j
CROSS JOIN LATERAL (
    SELECT j.shard IS NULL AND NOT EXISTS (
        SELECT FROM steadfast.owners o WHERE o.id = j.id AND o.until > clock_timestamp()
    ) AS is_gone
) g
CROSS JOIN LATERAL steadfast.readiness_v1(
    j.readiness::jsonb, extract(epoch FROM statement_timestamp()) * 1000
) r
WHERE NOT j.over AND j.stuck IS NULL AND j.readiness IS NOT NULL;

-- The term after another of a shard that changes hands, and the epoch after another of an owner. At least the second that it begins in, by the
-- clock that all servers share: of a database that was restored to an earlier moment, none of before is used twice.
CREATE FUNCTION steadfast.next_term_v1(term bigint) RETURNS bigint
LANGUAGE sql
RETURN greatest(term + 1, extract(epoch FROM clock_timestamp())::bigint);

-- Keeps the time in which nobody decided about the jobs of a scope: a shard, or a job of `run`. `oldest`: when the first of its open jobs
-- was submitted; none: there is none, and nothing that was before matters.
CREATE FUNCTION steadfast.keep_gap_v1(a_scope text, down_ms bigint, at_ms bigint, oldest bigint)
RETURNS void
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
AS $$
DECLARE
    since bigint;
BEGIN
    DELETE FROM gaps g WHERE g.scope = a_scope AND (oldest IS NULL OR g.up_at <= oldest);
    -- One who came up and went down again before it could say so was down all the time. To a job that knows of the first part, only
    -- what comes after its last event is new.
    SELECT least(min(g.down_since), down_ms) INTO since FROM gaps g
    WHERE g.scope = a_scope AND g.up_at >= down_ms;
    DELETE FROM gaps g WHERE g.scope = a_scope AND g.up_at >= down_ms;
    INSERT INTO gaps (scope, up_at, down_since) VALUES (a_scope, at_ms, since);
END
$$;

-- Takes an owner over, or makes it, and keeps the time in which it was down. One that serves has the shards that nobody else has.
-- `an_incarnation`: of the process of `run` that has the owner; once that is another one, nothing is taken, and the epoch is 0, in which
-- nothing is written.
CREATE FUNCTION steadfast.take_v1(
    an_owner text, at_ms bigint, down_ms bigint, serves boolean, an_incarnation text
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
AS $$
DECLARE
    new_epoch bigint;
BEGIN
    -- Waits for a group of the owner that is under way.
    IF an_incarnation IS NULL THEN
        INSERT INTO owners AS o (id, epoch) VALUES (an_owner, steadfast.next_term_v1(0))
        ON CONFLICT (id) DO UPDATE SET epoch = steadfast.next_term_v1(o.epoch)
        RETURNING o.epoch INTO new_epoch;
    ELSE
        UPDATE owners o SET epoch = steadfast.next_term_v1(o.epoch)
        WHERE o.id = an_owner AND o.incarnation = an_incarnation
        RETURNING o.epoch INTO new_epoch;
        IF new_epoch IS NULL THEN
            RETURN 0;
        END IF;
    END IF;
    IF serves THEN
        UPDATE shards SET owner = an_owner, term = steadfast.next_term_v1(term) WHERE owner IS NULL;
    END IF;
    IF down_ms < at_ms THEN
        IF serves THEN
            PERFORM steadfast.keep_gap_v1(s.shard::text, down_ms, at_ms, (
                SELECT j.submitted_at FROM jobs j
                WHERE j.shard = s.shard AND NOT j.over ORDER BY j.n LIMIT 1))
            FROM shards s WHERE s.owner = an_owner;
        ELSE
            PERFORM steadfast.keep_gap_v1(an_owner, down_ms, at_ms, (
                SELECT j.submitted_at FROM jobs j WHERE j.id = an_owner AND NOT j.over));
        END IF;
    END IF;
    RETURN new_epoch;
END
$$;

-- Puts a piece of a log in its place. `answer` is how far it is then, and whether it is whole.
CREATE FUNCTION steadfast.write_log_v1(
    a_job text, a_step text, a_name text, place bigint, piece bytea, is_last boolean, room boolean,
    cut_off bytea, tick interval, piece_max integer, joined_max integer
) RETURNS TABLE (length bigint, complete boolean)
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
-- Made for its job, a plan has one week in it; made for any, all of them, each to be locked.
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    log logs%ROWTYPE;
    ends bigint := place + octet_length(piece);
    noted_at timestamptz;
    noted_from bigint;
BEGIN
    SELECT l.* INTO log FROM logs l
    WHERE l.job = a_job AND l.step = a_step AND l.name = a_name FOR UPDATE;
    IF NOT FOUND THEN
        IF octet_length(piece) = 0 THEN
            RETURN QUERY SELECT 0::bigint, is_last;
            RETURN;
        END IF;
        INSERT INTO logs (job, step, name, length, partial, cut, written_at)
        VALUES (a_job, a_step, a_name, 0, NOT is_last, false, clock_timestamp())
        RETURNING * INTO log;
    END IF;
    IF log.cut THEN
        RETURN QUERY SELECT log.length, true;
        RETURN;
    END IF;
    -- A question, or what would leave a hole: it goes on from where this ends.
    IF (octet_length(piece) = 0 AND NOT is_last) OR place > log.length THEN
        RETURN QUERY SELECT log.length, NOT log.partial;
        RETURN;
    END IF;
    -- What is written over what is there takes no room.
    IF ends > log.length AND NOT room THEN
        INSERT INTO log_pieces (job, step, name, start, bytes)
        VALUES (a_job, a_step, a_name, log.length, cut_off);
        UPDATE logs l SET length = log.length + octet_length(cut_off), cut = true
        WHERE l.job = a_job AND l.step = a_step AND l.name = a_name;
        RETURN QUERY SELECT log.length + octet_length(cut_off), true;
        RETURN;
    END IF;
    PERFORM steadfast.put_log_bytes_v1(a_job, a_step, a_name, place, piece, log.length,
                                       is_last, piece_max, joined_max);
    -- What comes whole was printed when it was written.
    IF (place > 0 OR NOT is_last) AND ends > log.length THEN
        SELECT max(t.at) INTO noted_at FROM log_times t
        WHERE t.job = a_job AND t.step = a_step AND t.name = a_name;
        -- Of a log that was begun before anything was noted, the beginning has this time too.
        noted_from := CASE WHEN noted_at IS NULL THEN 0 ELSE greatest(place, log.length) END;
        IF noted_from = 0 OR clock_timestamp() >= noted_at + tick THEN
            INSERT INTO log_times (job, step, name, start, at)
            VALUES (a_job, a_step, a_name, noted_from, clock_timestamp())
            ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    UPDATE logs l
    SET length = CASE WHEN is_last THEN ends ELSE greatest(log.length, ends) END,
        written_at = CASE WHEN octet_length(piece) > 0 THEN clock_timestamp() ELSE l.written_at END
    WHERE l.job = a_job AND l.step = a_step AND l.name = a_name;
    RETURN QUERY SELECT ends, is_last;
END
$$;

-- The bytes themselves. Those that come at the end join the last piece while that is small, so that a log that trickles has few.
CREATE FUNCTION steadfast.put_log_bytes_v1(
    a_job text, a_step text, a_name text, place bigint, piece bytea, log_length bigint,
    is_last boolean, piece_max integer, joined_max integer
) RETURNS void
LANGUAGE plpgsql
SET search_path = steadfast, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    ends bigint := place + octet_length(piece);
    first_start bigint;
    whole bytea;
BEGIN
    -- From the piece on that has the first changed byte, or is joined.
    SELECT p.start INTO first_start FROM log_pieces p
    WHERE p.job = a_job AND p.step = a_step AND p.name = a_name AND p.start <= place
      AND (p.start + octet_length(p.bytes) > place
           OR p.start + octet_length(p.bytes) = place AND octet_length(p.bytes) < joined_max)
    ORDER BY p.start DESC LIMIT 1;
    first_start := coalesce(first_start, place);
    WITH old AS (
        DELETE FROM log_pieces p
        WHERE p.job = a_job AND p.step = a_step AND p.name = a_name
          AND p.start >= first_start AND (p.start < ends OR is_last OR p.start = first_start)
        RETURNING p.start, p.bytes
    )
    SELECT coalesce(string_agg(o.bytes, ''::bytea ORDER BY o.start), ''::bytea) INTO whole FROM old o;
    whole := substring(whole FOR (place - first_start)::integer) || piece
        || CASE WHEN is_last THEN ''::bytea
                ELSE substring(whole FROM (ends - first_start)::integer + 1) END;
    INSERT INTO log_pieces (job, step, name, start, bytes)
    SELECT a_job, a_step, a_name, first_start + at, substring(whole FROM at + 1 FOR piece_max)
    FROM generate_series(0, octet_length(whole) - 1, piece_max) AS at;
END
$$;

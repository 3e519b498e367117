-- A job's row is rewritten with every write, so it is narrow, and its pages have room for the next version: a write that changes nothing
-- that has an index touches none. `n` is the order in which jobs were accepted, and lists go by it. All other tables have the job's id,
-- which begins with its time: history is partitioned by it, into weeks (weeks.sql). Nothing refers to it by a foreign key, which would
-- keep a week from being dropped.
--
-- A job belongs to the owner of its shard; without a shard it is a job of `run`, and its own owner. A plan is kept once for all jobs of the
-- same shape. Events of one write share a row, packed, with the epoch that wrote them. Text is ordered by its bytes, as in SQLite.
CREATE SCHEMA steadfast;

CREATE TABLE steadfast.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    shards smallint NOT NULL CHECK (shards BETWEEN 1 AND 1024),
    made_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE steadfast.owners (
    id text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    incarnation text,
    until timestamptz,
    renewed_at timestamptz,
    format integer,
    address text,
    -- That a job of `run` is to be cancelled: by whom, and why.
    asked text,
    -- It is a server, and not a job of `run`.
    serves boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE steadfast.shards (
    shard smallint PRIMARY KEY,
    owner text COLLATE "C",
    -- Rises whenever it changes hands: by it workers tell who has it from who had it.
    term bigint NOT NULL DEFAULT 0
);

CREATE TABLE steadfast.jobs (
    n bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    seq bigint NOT NULL,
    submitted_at bigint NOT NULL,
    finished_at bigint,
    wake_at bigint,
    plan bigint,
    shard smallint,
    over boolean NOT NULL,
    local boolean NOT NULL,
    id text COLLATE "C" PRIMARY KEY,
    state text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    queued text COLLATE "C",
    key text COLLATE "C",
    retried_from text COLLATE "C",
    labels text,
    stuck text,
    -- See readiness.sql. Parsed when it is asked for, and not with every write.
    readiness text
) WITH (
    fillfactor = 70,
    -- By the defaults a million ended jobs would let 200,000 dead rows gather among the few that are open.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 2000
);

CREATE UNIQUE INDEX jobs_n ON steadfast.jobs (n);
CREATE INDEX jobs_live ON steadfast.jobs (n) WHERE NOT over;
CREATE INDEX jobs_by_name ON steadfast.jobs (name, n);
CREATE INDEX jobs_ended_badly ON steadfast.jobs (state, n) WHERE state IN ('failed', 'cancelled');
CREATE INDEX jobs_wake ON steadfast.jobs (wake_at, id) INCLUDE (shard) WHERE wake_at IS NOT NULL;
CREATE INDEX jobs_queued ON steadfast.jobs (submitted_at, id) INCLUDE (shard, queued)
    WHERE queued IS NOT NULL;
CREATE INDEX jobs_stuck ON steadfast.jobs (n) WHERE stuck IS NOT NULL;
CREATE INDEX jobs_by_plan ON steadfast.jobs (plan);

-- How many jobs of servers are in which state, or `stuck`: what each owner has changed of it in its groups, and under '' what purges
-- and marks have. Only the sum over all is a count. An owner's rows are its own, so that servers do not wait for each other.
CREATE TABLE steadfast.job_counts (
    writer text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    jobs bigint NOT NULL,
    PRIMARY KEY (writer, state)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Of no week: a key is one job's, whenever that was.
CREATE TABLE steadfast.keys (
    key text COLLATE "C" PRIMARY KEY,
    digest text NOT NULL,
    job text COLLATE "C" NOT NULL
);

CREATE TABLE steadfast.events (
    job text COLLATE "C" NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL,
    epoch bigint NOT NULL,
    crc bigint NOT NULL,
    compressed boolean NOT NULL,
    lines bytea NOT NULL,
    PRIMARY KEY (job, last)
) PARTITION BY RANGE (job);
-- It is compressed already, or was not worth it.
ALTER TABLE steadfast.events ALTER lines SET STORAGE EXTERNAL;

CREATE TABLE steadfast.snapshots (
    job text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    crc bigint NOT NULL,
    state bytea NOT NULL
) PARTITION BY RANGE (job);

-- Made of the log, and may be emptied at any time.
CREATE TABLE steadfast.projections (
    job text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    crc bigint NOT NULL,
    state bytea NOT NULL
) PARTITION BY RANGE (job);

CREATE TABLE steadfast.plans (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text COLLATE "C" NOT NULL UNIQUE,
    plan text NOT NULL
);

CREATE TABLE steadfast.labels (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    job bigint NOT NULL,
    PRIMARY KEY (name, value, job)
);

-- Of a shard, by its number, or of a job of `run`.
CREATE TABLE steadfast.gaps (
    scope text COLLATE "C" NOT NULL,
    up_at bigint NOT NULL,
    down_since bigint NOT NULL,
    PRIMARY KEY (scope, up_at)
);

-- What a server was asked about a job of another one's shard, and what that one answered.
CREATE TABLE steadfast.inputs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard smallint NOT NULL,
    job text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer bytea
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX inputs_open ON steadfast.inputs (id) WHERE answer IS NULL;

CREATE TABLE steadfast.settings (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    bytes bytea NOT NULL
);

CREATE TABLE steadfast.files (
    job text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    executable boolean NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, path)
) PARTITION BY RANGE (job);

CREATE TABLE steadfast.file_pieces (
    job text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    piece integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (job, path, piece)
) PARTITION BY RANGE (job);

-- `cut`: the disk had no room for the rest of it.
CREATE TABLE steadfast.logs (
    job text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    length bigint NOT NULL,
    partial boolean NOT NULL,
    cut boolean NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (job, step, name)
) PARTITION BY RANGE (job);

-- Pieces of a log do not overlap, and there is none missing between them.
CREATE TABLE steadfast.log_pieces (
    job text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (job, step, name, start)
) PARTITION BY RANGE (job);

CREATE TABLE steadfast.log_times (
    job text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (job, step, name, start)
) PARTITION BY RANGE (job);

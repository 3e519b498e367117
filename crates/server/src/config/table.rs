//! Every setting: its place in the file, what it means, its shape, and the field it fills.
//!
//! The reader refuses what is not in here, and the document is printed from it.

use std::ops::RangeInclusive;

use steadfast_core::plan::{LateResults, MAX_ITEMS};
use steadfast_core::policy::MAX_DURATION_MS;
use tracing::Level;

use super::check::{address, blobs, database, host, origin, signing_secret, url, written};
use super::{Auth, Config, LogFormat};

#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) settings: &'static [Setting],
}

#[derive(Debug)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) doc: &'static str,
    pub(super) shape: Shape,
}

type Field<T> = fn(&mut Config) -> &mut T;
type Check = fn(&str) -> Result<(), &'static str>;

#[derive(Debug)]
pub(super) enum Shape {
    Flag(Field<bool>),
    Count(RangeInclusive<u32>, Field<u32>),
    /// Written as `30s`, kept in milliseconds.
    Duration(RangeInclusive<u64>, Field<u64>),
    /// A duration, or `forever`.
    Forever(Field<Option<u64>>),
    /// Plain milliseconds, where another system's name says so.
    Milliseconds(Field<u64>),
    /// Written as `64MiB`, kept in bytes.
    Size(RangeInclusive<usize>, Field<usize>),
    /// One of these; the index of the one that is set, if any.
    Word(&'static [&'static str], fn(&Config) -> Option<usize>, fn(&mut Config, usize)),
    Text(Check, Field<String>),
    /// Unset unless written; the example shows how.
    Unset(&'static str, Check, Field<Option<String>>),
    Texts(&'static str, Check, Field<Vec<String>>),
    /// A count that is unset unless written; the example shows how.
    UnsetCount(u32, RangeInclusive<u32>, Field<Option<u32>>),
}

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        doc: "Where the server listens, whom it answers, and how long it waits.",
        settings: SERVER,
    },
    Section {
        name: "store",
        doc: "Where jobs, files, logs and tokens are kept, if not in the data folder.",
        settings: STORE,
    },
    Section {
        name: "blobs",
        doc: "Where files attached to jobs and logs of attempts are kept, if not where jobs are.",
        settings: BLOBS,
    },
    Section {
        name: "retry",
        doc: "Defaults for the retry policy of every step that does not say. A job's own block goes before.",
        settings: &[],
    },
    Section {
        name: "retry_budget",
        doc: "Retries that a whole job shares. Requests over a ceiling are clamped.",
        settings: RETRY_BUDGET,
    },
    Section {
        name: "best_effort",
        doc: "Jobs that succeed with some of their datacenters.",
        settings: BEST_EFFORT,
    },
    Section {
        name: "fluster",
        doc: "Defaults for jobs that come by LaunchJob and do not say.",
        settings: FLUSTER,
    },
    Section { name: "limits", doc: "How large things may be.", settings: LIMITS },
    Section { name: "retention", doc: "How long things are kept.", settings: RETENTION },
    Section {
        name: "workers",
        doc: "When a worker counts as lost, or as broken.",
        settings: WORKERS,
    },
    Section {
        name: "callbacks",
        doc: "What services say later, by POST /v1/callbacks/{token}.",
        settings: CALLBACKS,
    },
    Section { name: "metrics", doc: "What /metrics tells.", settings: METRICS },
    Section { name: "log", doc: "What the server writes to stderr.", settings: LOG },
    Section { name: "otel", doc: "OpenTelemetry: a span for each attempt.", settings: OTEL },
];

/// The defaults of `[retry]`, whose keys are the job file's. They are shown and not set: a key that is
/// set here is the operator's word, and `plan` says so.
pub(super) const RETRY_EXAMPLES: &[(&str, &str)] = &[
    ("max_attempts", "3"),
    ("retryable", "true"),
    ("backoff", "\"exponential\""),
    ("initial_delay", "\"1s\""),
    ("max_delay", "\"1m\""),
    ("multiplier", "2.0"),
    ("increment", "\"1s\""),
    ("jitter", "\"none\""),
    ("max_retry_after", "\"1h\""),
    ("delay_budget", "\"10m\""),
    ("window", "\"1h\""),
    ("max_preemptions", "100"),
    ("max_deferrals", "100"),
    ("exit_codes", "{ retry = [], stop = [] }"),
    ("rules", "[]"),
];

const SOME_MS: RangeInclusive<u64> = 1..=MAX_DURATION_MS;
const ANY_MS: RangeInclusive<u64> = 0..=MAX_DURATION_MS;
const SOME: RangeInclusive<u32> = 1..=u32::MAX;
const ANY: RangeInclusive<u32> = 0..=u32::MAX;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

const fn setting(key: &'static str, doc: &'static str, shape: Shape) -> Setting {
    Setting { key, doc, shape }
}

use Shape::{
    Count, Duration, Flag, Forever, Milliseconds, Size, Text, Texts, Unset, UnsetCount, Word,
};

const SERVER: &[Setting] = &[
    setting(
        "listen",
        "Address and port for REST, gRPC and the dashboard.",
        Text(address, |c| &mut c.server.listen),
    ),
    setting(
        "auth",
        "\"required\": a token for everything but health, callbacks and the dashboard's files.\n\
         \"none\": for loopback only. Unset: none on loopback, required elsewhere.",
        Word(
            &["required", "none"],
            |c| c.server.auth.map(|auth| usize::from(auth == Auth::None)),
            |c, word| c.server.auth = Some([Auth::Required, Auth::None][word]),
        ),
    ),
    setting(
        "public_url",
        "How others reach this server, for the callback URLs of HTTP steps. Its host is allowed.",
        Unset("https://steadfast.example.com", url, |c| &mut c.server.public_url),
    ),
    setting(
        "peers",
        "Addresses of other servers, for workers that come to this one: they work for those too, and know them\n\
         by the same token.",
        Texts("[\"https://steadfast-2.example.com\"]", url, |c| &mut c.server.peers),
    ),
    setting(
        "tls_cert",
        "PEM file with the server's certificate and what it is signed by. With tls_key: TLS is on.",
        Unset("/etc/steadfast/server.pem", written, |c| &mut c.server.tls_cert),
    ),
    setting(
        "tls_key",
        "PEM file with the certificate's private key.",
        Unset("/etc/steadfast/server.key", written, |c| &mut c.server.tls_key),
    ),
    setting(
        "tls_client_ca",
        "PEM file: clients and workers must have a certificate signed by one of these (mTLS).",
        Unset("/etc/steadfast/clients.pem", written, |c| &mut c.server.tls_client_ca),
    ),
    setting(
        "tls_handshake_timeout",
        "Longest TLS handshake.",
        Duration(SOME_MS, |c| &mut c.server.tls_handshake_timeout_ms),
    ),
    setting(
        "allowed_hosts",
        "Names in a request's Host beside loopback's and that of `listen`, without a port. Others are\n\
         refused, so that no web page can give this server a name of its own (DNS rebinding).",
        Texts("[\"steadfast.example.com\"]", host, |c| &mut c.server.allowed_hosts),
    ),
    setting(
        "allowed_origins",
        "Web pages of other origins that may use the API.",
        Texts("[\"https://ops.example.com\"]", origin, |c| &mut c.server.allowed_origins),
    ),
    setting(
        "max_connections",
        "Connections at once; more wait until one is closed. Fewer if the limit of open files is too low:\n\
         it is raised as far as it can be, and 256 of them are kept for the store and logs.",
        Count(SOME, |c| &mut c.server.max_connections),
    ),
    setting(
        "max_connections_per_address",
        "Of one address (of IPv6: of one /64); further ones are closed at once. Behind a proxy all come from\n\
         the proxy's.",
        Count(SOME, |c| &mut c.server.max_connections_per_address),
    ),
    setting(
        "max_streams",
        "Requests at once on one HTTP/2 connection.",
        Count(SOME, |c| &mut c.server.max_streams),
    ),
    setting(
        "max_headers",
        "Headers of a request.",
        Count(10..=1000, |c| &mut c.server.max_headers),
    ),
    setting(
        "max_header",
        "All headers of a request together.",
        Size(8 * KIB..=KIB * KIB, |c| &mut c.server.max_header_bytes),
    ),
    setting(
        "max_body",
        "Body of a REST request; files attached to a job are in it, a third larger than they are.",
        Size(KIB..=GIB, |c| &mut c.server.max_body_bytes),
    ),
    setting(
        "max_unread",
        "Answers that were made and that one client (a token, or an address without one) has not taken yet.\n\
         What it asks for beyond is refused; so is what all clients together have beyond four times as much.",
        Size(MIB..=64 * GIB, |c| &mut c.server.max_unread_bytes),
    ),
    setting(
        "header_timeout",
        "Longest time from connecting to the first whole request header.",
        Duration(SOME_MS, |c| &mut c.server.header_timeout_ms),
    ),
    setting(
        "body_timeout",
        "Longest time for the body of a request; for callbacks and health, which need no token, 10s at most.",
        Duration(SOME_MS, |c| &mut c.server.body_timeout_ms),
    ),
    setting(
        "write_timeout",
        "A client that takes nothing of its answer for so long is cut off.",
        Duration(SOME_MS, |c| &mut c.server.write_timeout_ms),
    ),
    setting(
        "idle_timeout",
        "A connection without a request for so long is closed. Streams are requests.",
        Duration(SOME_MS, |c| &mut c.server.idle_timeout_ms),
    ),
    setting(
        "shutdown_grace",
        "How long requests may go on when the server stops.",
        Duration(ANY_MS, |c| &mut c.server.shutdown_grace_ms),
    ),
];

const RETRY_BUDGET: &[Setting] = &[
    setting(
        "default_total",
        "Retries of a job that has a budget and does not say (RETRY_BUDGET_DEFAULT).",
        Count(ANY, |c| &mut c.operator.budget_total.default),
    ),
    setting(
        "max_total",
        "The most that a job gets (RETRY_BUDGET_MAX).",
        Count(ANY, |c| &mut c.operator.budget_total.max),
    ),
    setting(
        "default_per_step",
        "The same for one of its steps (RETRY_BUDGET_PER_WORKFLOW_DEFAULT).",
        Count(ANY, |c| &mut c.operator.budget_per_step.default),
    ),
    setting(
        "max_per_step",
        "The most that a step gets (RETRY_BUDGET_PER_WORKFLOW_MAX).",
        Count(ANY, |c| &mut c.operator.budget_per_step.max),
    ),
    setting(
        "required",
        "Every job has a budget, whether it asks for one or not.",
        Flag(|c| &mut c.operator.budget_required),
    ),
];

const BEST_EFFORT: &[Setting] = &[
    setting(
        "default_min_datacenters",
        "Datacenters that must succeed, where the job does not say (BEST_EFFORT_DEFAULT_MIN_DCS).",
        Count(SOME, |c| &mut c.operator.best_effort_min_datacenters),
    ),
    setting(
        "default_deadline",
        "Deadline from acceptance, likewise (BEST_EFFORT_DEFAULT_DEADLINE_SECONDS).",
        Duration(SOME_MS, |c| &mut c.operator.best_effort_deadline_ms),
    ),
    setting(
        "check_interval",
        "How often completion is checked at least (BEST_EFFORT_CHECK_INTERVAL_SECONDS).",
        Duration(SOME_MS, |c| &mut c.operator.best_effort_check_interval_ms),
    ),
    setting(
        "late_results",
        "What becomes of results after completion (BEST_EFFORT_LATE_RESULT_POLICY):\n\
         \"log_only\" or \"update_result\".",
        Word(
            &["log_only", "update_result"],
            |c| Some(usize::from(c.operator.late_results == LateResults::UpdateResult)),
            |c, word| {
                c.operator.late_results = [LateResults::LogOnly, LateResults::UpdateResult][word];
            },
        ),
    ),
];

const FLUSTER: &[Setting] = &[
    setting(
        "default_max_retries_failure",
        "Retries after failures.",
        Count(ANY, |c| &mut c.fluster.max_retries_failure),
    ),
    setting(
        "default_max_retries_preemption",
        "Retries after losses of the worker.",
        Count(ANY, |c| &mut c.fluster.max_retries_preemption),
    ),
    setting(
        "default_retry_delay_ms",
        "The first delay, in milliseconds.",
        Milliseconds(|c| &mut c.fluster.retry_delay_ms),
    ),
];

const LIMITS: &[Setting] = &[
    setting("fan_out", "Items of one step.", Count(1..=MAX_ITEMS, |c| &mut c.operator.max_items)),
    setting("job_file", "A job file.", Size(KIB..=GIB, |c| &mut c.operator.max_file_bytes)),
    setting(
        "output",
        "The output of one attempt.",
        Size(KIB..=2 * MIB, |c| &mut c.limits.output_bytes),
    ),
    setting(
        "log",
        "What is kept of what one attempt writes, head and tail.",
        Size(KIB..=64 * GIB, |c| &mut c.limits.log_bytes),
    ),
    setting(
        "jobs_per_page",
        "Jobs in one answer, where the request does not say.",
        Count(SOME, |c| &mut c.limits.jobs_per_page),
    ),
    setting("jobs_per_page_max", "And at most.", Count(SOME, |c| &mut c.limits.jobs_per_page_max)),
    setting(
        "items_per_page",
        "Items or attempts in one answer, where the request does not say.",
        Count(SOME, |c| &mut c.limits.items_per_page),
    ),
    setting(
        "items_per_page_max",
        "And at most.",
        Count(SOME, |c| &mut c.limits.items_per_page_max),
    ),
    setting("attached_files", "Files of one job.", Count(ANY, |c| &mut c.limits.attached_files)),
    setting(
        "attached_total",
        "All files of a job together.",
        Size(KIB..=GIB, |c| &mut c.limits.attached_total_bytes),
    ),
    setting(
        "disk_reserve",
        "With less free on the disk of the data folder no new job is taken and logs are cut off:\n\
         the rest is for the events of jobs that run. A quarter more is held by the file `ballast`.",
        Size(0..=64 * GIB, |c| &mut c.limits.disk_reserve_bytes),
    ),
];

const STORE: &[Setting] = &[
    setting(
        "url",
        "A PostgreSQL database, in which the server makes a schema `steadfast`; unset: the data folder.",
        Unset("postgres://steadfast@127.0.0.1/steadfast", database, |c| &mut c.store.url),
    ),
    setting(
        "shards",
        "How many parts jobs are in, of which each server has some: fixed when the schema is made, and another number is refused\n\
         later. At least as many as there will be servers.",
        UnsetCount(64, 1..=1024, |c| &mut c.store.shards),
    ),
    setting(
        "outage_tolerance",
        "How long the database may be away before workers are left to their leases. So much longer than its\n\
         lease a worker that is gone is waited for, after its server was lost too.",
        Duration(0..=MAX_DURATION_MS, |c| &mut c.store.tolerance_ms),
    ),
];

const BLOBS: &[Setting] = &[setting(
    "url",
    "An object store: s3://BUCKET/PREFIX, with ?region=, &endpoint= and the like behind it and the keys in the environment\n\
     (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or file:///FOLDER, which all servers have. What was kept elsewhere before stays there.",
    Unset("s3://steadfast/blobs?region=eu-central-1", blobs, |c| &mut c.blobs.url),
)];

const RETENTION: &[Setting] = &[setting(
    "finished_jobs",
    "Jobs that ended longer ago are removed, with their logs; or \"forever\".",
    Forever(|c| &mut c.retention.finished_jobs_ms),
)];

const WORKERS: &[Setting] = &[
    setting(
        "lease",
        "A worker that is silent for so long is lost, and what it ran is run elsewhere.",
        Duration(100..=MAX_DURATION_MS, |c| &mut c.workers.lease_ms),
    ),
    setting(
        "beat",
        "How often workers are heard of; half the lease at most.",
        Duration(10..=MAX_DURATION_MS, |c| &mut c.workers.beat_ms),
    ),
    setting(
        "quarantine_after",
        "A worker gets no work for a while if it fails far more of the same steps than the other workers do at\n\
         the same time: by more than chance allows in one of ten million cases, and so many at least;",
        Count(SOME, |c| &mut c.workers.quarantine_after),
    ),
    setting(
        "quarantine_not_begun",
        "or if it could not even begin so many attempts in a row. Never if nobody else could run what is wanted.",
        Count(SOME, |c| &mut c.workers.quarantine_not_begun),
    ),
    setting(
        "quarantine_time",
        "For how long the first time; twice as long each further time without a success,",
        Duration(SOME_MS, |c| &mut c.workers.quarantine_time_ms),
    ),
    setting(
        "quarantine_time_max",
        "up to this.",
        Duration(SOME_MS, |c| &mut c.workers.quarantine_time_max_ms),
    ),
];

const CALLBACKS: &[Setting] = &[setting(
    "signing_secrets",
    "If set, callbacks must be signed with one of these, as Standard Webhooks has it: whsec_ and 24 to\n\
     64 bytes in base64. Two while one takes over from the other.",
    Texts("[\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]", signing_secret, |c| {
        &mut c.callbacks.signing_secrets
    }),
)];

const METRICS: &[Setting] = &[
    setting(
        "per_job",
        "Retry budgets and best-effort ratios carry the job's id while it is not over.",
        Flag(|c| &mut c.metrics.per_job),
    ),
    setting("per_job_max", "For so many jobs at most.", Count(ANY, |c| &mut c.metrics.per_job_max)),
];

const LOG: &[Setting] = &[
    setting(
        "format",
        "\"text\" for people, \"json\" for programs.",
        Word(
            &["text", "json"],
            |c| Some(usize::from(c.log.format == LogFormat::Json)),
            |c, word| c.log.format = [LogFormat::Text, LogFormat::Json][word],
        ),
    ),
    setting(
        "level",
        "\"error\", \"warn\", \"info\", \"debug\" or \"trace\".",
        Word(
            &["error", "warn", "info", "debug", "trace"],
            |c| LEVELS.iter().position(|level| *level == c.log.level),
            |c, word| c.log.level = LEVELS[word],
        ),
    ),
];

const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

const OTEL: &[Setting] = &[setting(
    "endpoint",
    "Where spans are sent, by OTLP over HTTP; unset: nowhere.",
    Unset("http://127.0.0.1:4318", url, |c| &mut c.otel.endpoint),
)];

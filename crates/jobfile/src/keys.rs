//! Every key that a job file may hold, with what it means and the shape of its value.
//!
//! One table per block. The reader refuses what is not in them, guesses from them what was meant,
//! and the JSON Schema is written from them, so that the three cannot disagree.

/// The keys of one kind of map.
#[derive(Debug)]
pub(crate) struct Table {
    /// As in "`x` is not a key of …".
    pub(crate) title: &'static str,
    pub(crate) keys: &'static [Key],
    /// With an example of each.
    pub(crate) required: &'static [(&'static str, &'static str)],
    /// Alternatives of which one must be there.
    pub(crate) exactly_one: &'static [&'static str],
    /// Pairs that say the same thing twice, or contradict each other.
    pub(crate) exclusive: &'static [(&'static str, &'static str)],
}

impl Table {
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }

    pub(crate) fn requires(&self, name: &str) -> bool {
        self.required.iter().any(|(required, _)| *required == name)
    }
}

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) shape: Shape,
}

/// What a value looks like, as far as a schema can say.
#[derive(Debug)]
pub(crate) enum Shape {
    Any,
    Text,
    Name,
    FunctionName,
    EnvName,
    JobName,
    Flag,
    True,
    Duration,
    Size,
    NotBefore,
    Url,
    File,
    Percent,
    /// A whole number, this or more.
    Count(i64),
    Number(f64, f64),
    /// A whole number, this or more, or `unlimited`.
    Limit(i64),
    Word(&'static [&'static str]),
    Range,
    ListOf(&'static Shape),
    /// A map from names that the file's author chooses.
    MapOf(&'static Shape, &'static Shape),
    /// Text, a number, true or false: kept as written.
    Written,
    Block(&'static Table),
    OneOf(&'static [Shape]),
}

use Shape::{
    Any, Block, Count, Duration, EnvName, File, Flag, FunctionName, JobName, Limit, ListOf, MapOf,
    Name, NotBefore, Number, OneOf, Percent, Range, Size, Text, True, Url, Word, Written,
};

const fn key(name: &'static str, doc: &'static str, shape: Shape) -> Key {
    Key { name, doc, shape }
}

const fn table(title: &'static str, keys: &'static [Key]) -> Table {
    Table { title, keys, required: &[], exactly_one: &[], exclusive: &[] }
}

const ENV: Shape = MapOf(&EnvName, &Written);
const LABELS: Shape = MapOf(&Text, &Written);
const ENV_DOC: &str = "environment variables of its processes";
const CWD: Shape = Word(&["source", "attempt"]);
const CWD_DOC: &str = "where its processes start: the job file's folder, or the attempt's own";
const FILES_DOC: &str =
    "files copied into each attempt's folder on workers elsewhere, relative to the job file";
const SECRETS_DOC: &str = "names resolved at the worker and never printed";
const CODES: Shape = OneOf(&[Count(0), ListOf(&Count(0))]);

pub(crate) static JOB: Table = Table {
    required: &[("name", "name: my-job"), ("steps", "steps: { hello: { run: echo hello } }")],
    exclusive: &[],
    ..table(
        "a job",
        &[
            key("name", "what the job is called", JobName),
            key("retry", "the retry policy of all steps, key by key", Block(&RETRY)),
            key(
                "retry_budget",
                "retries shared by the whole job: a map, or AD-44's number of retries in all",
                OneOf(&[Block(&BUDGET), Count(0)]),
            ),
            key(
                "retry_budget_per_workflow",
                "AD-44: retries of one step at most; 0 is the default",
                Count(0),
            ),
            key("timeout", "longest time of the whole job; default none", Duration),
            key(
                "goals",
                "steps that decide whether the job succeeds; default: those nothing else needs",
                ListOf(&Name),
            ),
            key("datacenters", "where the job runs, once in each", ListOf(&Name)),
            key(
                "best_effort",
                "succeed with some of the datacenters: a map, or AD-44's true or false",
                OneOf(&[Block(&BEST_EFFORT), Flag]),
            ),
            key("best_effort_min_dcs", "AD-44: datacenters that must succeed", Count(1)),
            key(
                "best_effort_deadline_seconds",
                "AD-44: seconds from acceptance",
                Number(0.0, f64::INFINITY),
            ),
            key("files", FILES_DOC, ListOf(&File)),
            key("env", ENV_DOC, ENV),
            key("cwd", CWD_DOC, CWD),
            key("secrets", SECRETS_DOC, ListOf(&EnvName)),
            key("not_before", "the earliest start: a time, or `in 1h`", NotBefore),
            key("priority", "higher goes first; default 0", Count(i32::MIN as i64)),
            key("labels", "free words to find the job by", LABELS),
            key("steps", "what the job does, by name", MapOf(&Name, &Block(&STEP))),
        ],
    )
};

const ACTIONS: &[&str] = &["run", "argv", "http", "call"];
const RUN: Key = key("run", "a command for /bin/sh -c; never templated", Text);
const ARGV: Key = key("argv", "a program and its arguments, without a shell", ListOf(&Written));
const HTTP_KEY: Key = key("http", "a request to a handler", Block(&HTTP));
const CALL: Key = key("call", "a function that a worker registered", FunctionName);
const INPUT: Key = key("input", "what the function is given", Any);

pub(crate) static STEP: Table = Table {
    exactly_one: ACTIONS,
    exclusive: &[
        ("retry", "retry_config"),
        ("retry", "work_config"),
        ("retry_config", "work_config"),
    ],
    ..table(
        "a step",
        &[
            RUN,
            ARGV,
            HTTP_KEY,
            CALL,
            INPUT,
            key("needs", "steps that must have succeeded before", ListOf(&Name)),
            key(
                "for_each",
                "one work item for each: a list, `{ range: N }`, or `{ output: STEP.path }`",
                OneOf(&[ListOf(&Any), Block(&FOR_EACH)]),
            ),
            key(
                "parallelism",
                "items that run at once; default: as many as there are slots",
                Count(1),
            ),
            key(
                "max_failed",
                "items that may fail without failing the step: a count, or `5%`",
                OneOf(&[Count(0), Percent]),
            ),
            key("timeout", "the longest attempt", Duration),
            key("heartbeat", "the longest silence of a handler or function", Duration),
            key(
                "scheduling_timeout",
                "how long an item may wait for a worker; default 24h, `0s` is forever",
                Duration,
            ),
            key("resources", "what its worker must have", Block(&RESOURCES)),
            key("labels", "what its worker must carry", LABELS),
            key("ports", "ports allocated for each attempt, by name", ListOf(&Name)),
            key(
                "on_failure",
                "a fallback, or what becomes of the steps that need this one",
                OneOf(&[Block(&ON_FAILURE), Word(&["stop", "continue"])]),
            ),
            key("compensate", "undoes the step when the run fails later", Block(&COMPENSATE)),
            key("env", ENV_DOC, ENV),
            key("cwd", CWD_DOC, CWD),
            key("files", FILES_DOC, ListOf(&File)),
            key("secrets", SECRETS_DOC, ListOf(&EnvName)),
            key(
                "retry",
                "the retry policy; what it leaves out comes from the job's",
                Block(&RETRY),
            ),
            key("retry_config", "Prodigy's spelling of a retry policy", Block(&PRODIGY)),
            key("work_config", "Argyll's spelling of a retry policy", Block(&ARGYLL)),
        ],
    )
};

pub(crate) static FOR_EACH: Table = Table {
    exactly_one: &["range", "output"],
    ..table(
        "`for_each`",
        &[
            key("range", "the numbers from 0, this many", Range),
            key("output", "the output of an earlier step, or a part of it: `STEP.path`", Text),
        ],
    )
};

pub(crate) static RESOURCES: Table = table(
    "`resources`",
    &[key("cpu", "cores", Number(0.0, f64::INFINITY)), key("memory", "as `512m` or `2GiB`", Size)],
);

pub(crate) static HTTP: Table = Table {
    required: &[("url", "url: http://127.0.0.1:9000/path")],
    ..table(
        "`http`",
        &[
            key("method", "default POST", Word(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])),
            key("url", "http or https", Url),
            key("headers", "sent with the request", MapOf(&Text, &Written)),
            key("query", "added to the URL", MapOf(&Text, &Written)),
            key("body", "sent as JSON", Any),
            key(
                "mode",
                "sync: the answer is the result; async: a callback brings it",
                Word(&["sync", "async"]),
            ),
            key("timeout", "the longest attempt; default 30s, async 1h", Duration),
            key("redirects", "how many are followed, 0 to 10; default 0", Count(0)),
            key(
                "expect",
                "envelope: a 2xx without `success` in its body is not completed",
                Word(&["any", "envelope"]),
            ),
        ],
    )
};

pub(crate) static ON_FAILURE: Table = Table {
    exclusive: &[
        ("run", "argv"),
        ("run", "http"),
        ("run", "call"),
        ("argv", "http"),
        ("argv", "call"),
        ("http", "call"),
        ("run", "fallback"),
        ("argv", "fallback"),
        ("http", "fallback"),
        ("call", "fallback"),
        ("then", "fallback"),
    ],
    ..table(
        "`on_failure`",
        &[
            RUN,
            ARGV,
            HTTP_KEY,
            CALL,
            INPUT,
            key(
                "then",
                "fail (default), or continue with what needs the step",
                Word(&["fail", "continue"]),
            ),
            key("fallback", "Prodigy: a command that rescues the step", Block(&FALLBACK)),
        ],
    )
};

pub(crate) static FALLBACK: Table = Table {
    required: &[("command", "command: ./rescue.sh")],
    ..table("`fallback`", &[key("command", "for /bin/sh -c", Text)])
};

pub(crate) static COMPENSATE: Table =
    Table { exactly_one: ACTIONS, ..table("`compensate`", &[RUN, ARGV, HTTP_KEY, CALL, INPUT]) };

const BACKOFFS: &[&str] = &["fixed", "linear", "exponential", "fibonacci"];

const A_RULE: Shape = Block(&RULE);
const RULES: Key =
    key("rules", "what certain outcomes lead to; the first match wins", ListOf(&A_RULE));

pub(crate) static RETRY: Table = Table {
    exclusive: &[("initial_delay", "backoff_base_ms"), ("max_delay", "max_backoff_ms")],
    ..table(
        "`retry`",
        &[
            key(
                "max_attempts",
                "executions charged to failures, the first included; default 3",
                Limit(1),
            ),
            key("retryable", "false: never again after a failure; default true", Flag),
            key(
                "backoff",
                "how delays grow, or a list of them; default exponential",
                OneOf(&[Word(BACKOFFS), ListOf(&Duration)]),
            ),
            key("initial_delay", "default 1s", Duration),
            key("max_delay", "default 1m, or the longest first delay if that is longer", Duration),
            key("multiplier", "of exponential backoff; default 2.0", Number(1.0, f64::INFINITY)),
            key("increment", "of linear backoff; default: the initial delay", Duration),
            key(
                "jitter",
                "none (default), full, equal, decorrelated, or a factor from 0 to 1",
                OneOf(&[Word(&["none", "full", "equal", "decorrelated"]), Number(0.0, 1.0)]),
            ),
            key(
                "max_retry_after",
                "cap of a delay that a server or a rule asks for; default 1h",
                Duration,
            ),
            key("delay_budget", "the sum of an item's backoff delays; default none", Duration),
            key("window", "wall clock since the first failure; default none", Duration),
            key("max_preemptions", "losses of the worker that are survived; default 100", Limit(0)),
            key("max_deferrals", "deferrals that are survived; default 100", Limit(0)),
            key("exit_codes", "which exit codes are retried", Block(&EXIT_CODES)),
            RULES,
            key("backoff_base_ms", "Tasker: the initial delay", Count(0)),
            key("max_backoff_ms", "Tasker: the longest delay", Count(0)),
        ],
    )
};

pub(crate) static EXIT_CODES: Table = table(
    "`exit_codes`",
    &[key("retry", "only these", CODES), key("stop", "never these; wins", CODES)],
);

pub(crate) static RULE: Table = Table {
    required: &[("then", "then: stop")],
    ..table(
        "a rule",
        &[
            key("exit", "exit codes", CODES),
            key("signal", "signals", CODES),
            key("http_status", "HTTP status codes", CODES),
            key("error", "an error's type, or a regular expression on its text", Text),
            key("timeout", "true: an attempt that took too long", True),
            key("then", "what follows", Word(&["retry", "stop", "defer"])),
            key("delay", "instead of the computed one", Duration),
        ],
    )
};

pub(crate) static BUDGET: Table = table(
    "`retry_budget`",
    &[
        key("total", "retries of the whole job", Count(0)),
        key("per_step", "retries of one step", Count(0)),
        key("ratio", "retries in proportion to the items started", Number(0.0, f64::INFINITY)),
        key("floor", "with `ratio`: never fewer than this; default 10", Count(0)),
        key(
            "counts",
            "failures (default), or all: retries after losses and failed dispatches spend it too",
            Word(&["failures", "all"]),
        ),
    ],
);

pub(crate) static BEST_EFFORT: Table = table(
    "`best_effort`",
    &[
        key("min_datacenters", "how many must succeed", Count(1)),
        key("deadline", "from acceptance", Duration),
        key("grace", "how long to wait for more once there are enough; default 0s", Duration),
        key(
            "late_results",
            "what becomes of results after the end",
            Word(&["log_only", "update_result"]),
        ),
    ],
);

pub(crate) static PRODIGY: Table = table(
    "`retry_config`",
    &[
        key("attempts", "executions, the first included", Limit(1)),
        key(
            "backoff",
            "fixed, linear, exponential or fibonacci",
            OneOf(&[Word(BACKOFFS), Block(&PRODIGY_BACKOFF)]),
        ),
        key("initial_delay", "the first delay", Duration),
        key("max_delay", "the longest delay", Duration),
        key("jitter", "whether delays vary", Flag),
        key("jitter_factor", "by how much; default 0.3", Number(0.0, 1.0)),
        key("retry_budget", "the sum of all delays", Duration),
    ],
);

pub(crate) static PRODIGY_BACKOFF: Table = Table {
    exactly_one: &["linear", "exponential"],
    ..table(
        "`backoff`",
        &[
            key("linear", "grows by an increment", Block(&PRODIGY_LINEAR)),
            key("exponential", "grows by a factor", Block(&PRODIGY_EXPONENTIAL)),
        ],
    )
};

pub(crate) static PRODIGY_LINEAR: Table =
    table("`linear`", &[key("increment", "added each time", Duration)]);

pub(crate) static PRODIGY_EXPONENTIAL: Table =
    table("`exponential`", &[key("base", "multiplied each time", Number(1.0, f64::INFINITY))]);

pub(crate) static ARGYLL: Table = table(
    "`work_config`",
    &[
        key("max_retries", "retries after the first execution; −1 is unlimited", Count(-1)),
        key("backoff", "the first delay in milliseconds", Count(0)),
        key("max_backoff", "the longest delay in milliseconds", Count(0)),
        key("backoff_type", "how delays grow", Word(&["fixed", "linear", "exponential"])),
        key("parallelism", "items that run at once", Count(1)),
        RULES,
    ],
);

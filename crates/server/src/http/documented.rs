//! The routes, each with its description: what is served and what is described are one list.

mod views;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use serde_json::{Value, json};
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem, Paths,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{
    Content, InfoBuilder, OpenApiBuilder, Ref, RefOr, Required, ResponseBuilder, Schema,
};

use super::{App, Limits, PageLimit, bulk, callbacks, events, jobs, logs, schemas, workers};
use crate::job_changes::AsOf;

/// What the guard answers in front of every route, and what a defect and a server that has no room are.
const ANYWHERE: [u16; 6] = [401, 403, 415, 429, 500, 503];
/// Of what is with the store when the caller has waited long enough.
const OPEN: &str = "The store has not confirmed it yet: the outcome is open. Look at the job in a moment, or send the same again.";

pub(super) struct Routes {
    router: Router<App>,
    paths: Paths,
}

pub(super) fn routes(limits: Limits) -> Routes {
    let integer =
        |least: u64, most: u64| json!({"type": "integer", "minimum": least, "maximum": most});
    let text = || json!({"type": "string"});
    let limit =
        |page: PageLimit| query("limit", "How many at most.", &integer(1, page.most as u64));
    let number = || integer(0, i64::MAX as u64);
    let key = || {
        let pattern = json!({"type": "string", "pattern": "^[!-~]{1,255}$"});
        let about = "The same key with the same body is the same job; with another body, 409.";
        parameter("Idempotency-Key", ParameterIn::Header, about, &pattern)
    };
    let states = schemas::job_states();
    let label = json!({"type": "string", "pattern": "^[^=]+="});
    let job_cursor = json!({"type": "string", "pattern": "^[0-9]{1,18}$"});
    let log_cursor = json!({"type": "string", "pattern": "^[A-Za-z0-9_-]+/[A-Za-z0-9_-]+$"});
    let event_cursor = json!({"type": "string", "pattern": "^[0-9]{1,18}$"});
    let output_cursor =
        json!({"type": "string", "pattern": r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$"});
    let item_cursor =
        json!({"type": "string", "pattern": r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-2]\.[0-9]{1,9}$"});
    let (get, post) = (HttpMethod::Get, HttpMethod::Post);

    let waits =
        "Answer once the job has ended, with its status as `job`; without, if it takes over 8 s.";
    let submit = Described::new("submitJob", "Submit a job")
        .parameter(key())
        .parameter(query("wait", waits, &json!({"type": "boolean"})))
        .job_file()
        .answer(201, "The job is accepted, and durable.", "Created")
        .answer(200, "It was submitted before, with the same key and body.", "Created")
        .answer(202, OPEN, "Unconfirmed")
        .problems(&[400, 409, 413, 507]);
    let submit_many = Described::new("submitJobs", "Submit many jobs, in lines or in an array")
        .many_jobs()
        .answer(200, "One for each, in order: `{\"id\", \"existing\", \"warnings\"}` of a job that is accepted, and durable; a problem, as it would be alone, of one that is not.", "ManyAnswers")
        .also(bulk::LINES)
        .problems(&[400, 413]);
    let list = Described::new("listJobs", "List jobs, the newest first")
        .parameter(query(
            "state",
            "Only jobs in this state; given several times, in any of them.",
            &json!({"type": "array", "items": states}),
        ))
        .parameter(query("name", "Only jobs with this name.", &text()))
        .parameter(query("label", "Only jobs with this label: NAME=VALUE.", &label))
        .parameter(query(
            "text",
            "Only jobs with this in their name, in whatever case, or whose ids begin with it.",
            &text(),
        ))
        .parameter(query("since_ms", "Only jobs submitted then or later.", &number()))
        .parameter(query("until_ms", "Only jobs submitted then or sooner.", &number()))
        .parameter(query(
            "reason",
            "Only jobs that ended for this: why the job did, or why one of its items was given up.",
            &schemas::end_reasons(),
        ))
        .parameter(query("cursor", "The `next` of the page before.", &job_cursor))
        .parameter(limit(limits.jobs))
        .parameter(query(
            "as_of",
            "The `as_of` of a message of `/v1/jobs/changes`: an answer will do that others were given since then, up to 2 s ago. \
             Without it, or of another server, the answer is from now.",
            &json!({"type": "string", "pattern": AsOf::PATTERN}),
        ))
        .answer(
            200,
            "A page of jobs. A request looks through at most 20,000 jobs, and into the logs of 2,000: the page may be short, or \
             empty, with `next`.",
            "JobsPage",
        )
        .problems(&[400]);
    let status = Described::of_job("getJob", "Where a job is")
        .answer(200, "Its status.", "JobStatus")
        .problems(&[404]);
    let log_of_job = Described::of_job("getEvents", "The events of a job, or a stream of them")
        .parameter(query("after", "Only events after this one.", &number()))
        .parameter(limit(limits.items))
        .parameter(parameter(
            "Last-Event-ID",
            ParameterIn::Header,
            "Of a stream: only events after this one. Wins over `after`.",
            &event_cursor,
        ))
        .answer(200, "A page of events, or with `Accept: text/event-stream` all of them as they come, and `end` once the job is over.", "EventsPage")
        .also("text/event-stream")
        .problems(&[400, 404]);
    let explain = Described::of_job("explainJob", "Why a job is where it is")
        .parameter(query(
            "step",
            "Only this step, or item: fetch, index[2], eu-west/index[2], publish!.",
            &text(),
        ))
        .answer(200, "What it waits for, and each verdict with its accounts.", "Explanation")
        .problems(&[400, 404]);
    let command = |id, about| {
        Described::of_job(id, about)
            .body("application/json", "Command", false)
            .answer(200, "The status after it.", "JobStatus")
            .answer(202, OPEN, "Unconfirmed")
            .problems(&[400, 404, 409, 413, 507])
    };
    let retry = Described::of_job("retryJob", "Run an ended job again, keeping what succeeded")
        .parameter(key())
        .body("application/json", "Again", false)
        .answer(201, "The new job is accepted, and durable.", "Created")
        .answer(200, "It was asked for before, with the same key.", "Created")
        .answer(202, OPEN, "Unconfirmed")
        .problems(&[400, 404, 409, 413, 507]);
    let attempts = Described::of_job("listAttempts", "All attempts, in the order they began")
        .parameter(query("cursor", "The `next` of the page before.", &event_cursor))
        .parameter(limit(limits.items))
        .answer(200, "A page of attempts.", "AttemptsPage")
        .problems(&[400, 404]);
    let outputs = Described::of_job("listOutputs", "All outputs, by datacenter, step and item")
        .parameter(query("step", "Only of this step or item, named as in explanations.", &text()))
        .parameter(query("cursor", "The `next` of the page before.", &output_cursor))
        .parameter(limit(limits.items))
        .answer(
            200,
            "A page of outputs: as many as were asked for, or fewer if they are large.",
            "OutputsPage",
        )
        .problems(&[400, 404]);
    let readiness = Described::of_job(
        "listReadiness",
        "Which items may start now, and what keeps the others",
    )
    .parameter(query("cursor", "The `next` of the page before.", &item_cursor))
    .parameter(limit(limits.items))
    .answer(
        200,
        "A page of items, by datacenter, step and item; those in a row that are alike are one.",
        "ReadinessPage",
    )
    .problems(&[400, 404]);
    let list_logs = Described::of_job("listLogs", "Which logs there are")
        .parameter(query("step", "Only of this step or item, named as in explanations.", &text()))
        .parameter(query("cursor", "The `next` of the page before.", &log_cursor))
        .parameter(limit(limits.items))
        .answer(200, "A page of logs, by step and name.", "LogsPage")
        .problems(&[400, 404]);
    let log = Described::of_job("getLog", "What an attempt has printed")
        .parameter(path("step", "The name of the step.", &text()))
        .parameter(path("name", "Of the log, as the list has it.", &text()))
        .parameter(query("offset", "From this byte on.", &number()))
        .parameter(query("follow", "Go on until the job is over.", &json!({"type": "boolean"})))
        .answer_text(200, "The bytes as they were printed.")
        .problems(&[400, 404]);
    let log_times = Described::of_job("getLogTimes", "When an attempt has printed what")
        .parameter(path("step", "The name of the step.", &text()))
        .parameter(path("name", "Of the log, as the list has it.", &text()))
        .answer(200, "By place in the log, to a tenth of a second.", "LogTimes")
        .problems(&[404]);
    let counts = Described::new("countJobs", "How many jobs of servers are in which state")
        .answer(200, "As of now, whichever server has them.", "JobCounts")
        .problems(&[]);
    let list_workers = Described::new("listWorkers", "The workers, by name")
        .answer(200, "All that are known.", "Workers")
        .problems(&[]);
    let drain = Described::new("drainWorker", "Give a worker nothing new")
        .parameter(path("name", "Of the worker.", &text()))
        .answer(200, "The worker after it.", "Worker")
        .problems(&[404]);

    let undrain = Described::new("undrainWorker", "Give a worker that drains new work again")
        .parameter(path("name", "Of the worker.", &text()))
        .answer(200, "The worker after it.", "Worker")
        .problems(&[404, 409]);

    let token = json!({"type": "string", "pattern": "^[0-9A-Za-z._-]+$"});
    let callback = Described::new(
        "callback",
        "Say how an attempt of an asynchronous step ended, or how far it is",
    )
    .parameter(path("token", "Of the attempt, from its `Steadfast-Callback-Url`.", &token))
    .with_its_own_token()
    .body("application/json", "Callback", true)
    .answer(200, "It is durable. Said again, the answer is the same.", "CallbackTaken")
    .problems(&[400, 413]);

    Routes { router: Router::new(), paths: Paths::new() }
        .add(&post, "/v1/jobs", jobs::submit, submit)
        .add(&get, "/v1/jobs", jobs::list, list)
        .add(&post, "/v1/jobs/bulk", bulk::submit_many, submit_many)
        .add(&get, "/v1/jobs/counts", jobs::counts, counts)
        .add(&get, "/v1/jobs/{id}", jobs::status, status)
        .add(&get, "/v1/jobs/{id}/events", events::events, log_of_job)
        .add(&get, "/v1/jobs/{id}/explain", jobs::explain, explain)
        .add(&post, "/v1/jobs/{id}/cancel", jobs::cancel, command("cancelJob", "Cancel a job"))
        .add(
            &post,
            "/v1/jobs/{id}/pause",
            jobs::pause,
            command("pauseJob", "Start nothing new of it"),
        )
        .add(&post, "/v1/jobs/{id}/resume", jobs::resume, command("resumeJob", "Go on with it"))
        .add(&post, "/v1/jobs/{id}/retry", jobs::retry, retry)
        .add(&get, "/v1/jobs/{id}/attempts", jobs::attempts, attempts)
        .add(&get, "/v1/jobs/{id}/outputs", jobs::outputs, outputs)
        .add(&get, "/v1/jobs/{id}/readiness", jobs::readiness, readiness)
        .add(&get, "/v1/jobs/{id}/logs", logs::list, list_logs)
        .add(&get, "/v1/jobs/{id}/logs/{step}/{name}", logs::log, log)
        .add(&get, "/v1/jobs/{id}/logs/{step}/{name}/times", logs::times, log_times)
        .add(&post, "/v1/callbacks/{token}", callbacks::callback, callback)
        .add(&get, "/v1/workers", workers::list, list_workers)
        .add(&post, "/v1/workers/{name}/drain", workers::drain, drain)
        .add(&post, "/v1/workers/{name}/undrain", workers::undrain, undrain)
        .with_views(limits)
}

impl Routes {
    fn add<H, T>(
        mut self,
        method: &HttpMethod,
        path: &str,
        handler: H,
        described: Described,
    ) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let filter =
            if *method == HttpMethod::Post { MethodFilter::POST } else { MethodFilter::GET };
        self.router = self.router.route(path, on(filter, handler));
        let item = PathItem::new(method.clone(), described.0);
        match self.paths.paths.get_mut(path) {
            Some(known) => known.merge_operations(item),
            None => drop(self.paths.paths.insert(path.to_owned(), item)),
        }
        self
    }

    pub(super) fn finish(self) -> (Router<App>, Value) {
        let info = InfoBuilder::new()
            .title("Steadfast")
            .version("v1")
            .description(Some("Durable jobs with flaky steps. Times are Unix milliseconds."));
        let api = OpenApiBuilder::new().info(info).paths(self.paths).build();
        // Made of strings, maps and numbers: there is nothing in it that is not JSON.
        let mut document = serde_json::to_value(&api).expect("a description is JSON");
        document["components"] = json!({ "schemas": schemas::schemas(), "securitySchemes": { "token": schemas::token() } });
        // Without one where the server has `auth = "none"`.
        document["security"] = json!([{ "token": [] }, {}]);
        (self.router, document)
    }
}

/// One operation.
struct Described(OperationBuilder);

impl Described {
    fn new(id: &str, summary: &str) -> Self {
        Self(OperationBuilder::new().operation_id(Some(id)).summary(Some(summary)))
    }

    fn of_job(id: &str, summary: &str) -> Self {
        let job = json!({"type": "string", "pattern": "^[0-9a-z]{26}$"});
        Self::new(id, summary).parameter(path("id", "Of the job.", &job))
    }

    fn parameter(self, parameter: ParameterBuilder) -> Self {
        Self(self.0.parameter(parameter))
    }

    /// Needs no other.
    fn with_its_own_token(self) -> Self {
        Self(self.0.securities(Some([])))
    }

    fn body(self, content_type: &str, name: &str, required: bool) -> Self {
        let required = if required { Required::True } else { Required::False };
        let body = RequestBodyBuilder::new()
            .content(content_type, Content::new(Some(component(name))))
            .required(Some(required));
        Self(self.0.request_body(Some(body.build())))
    }

    fn many_jobs(self) -> Self {
        let about = "Each `{\"job\": JOB FILE, \"idempotency_key\": KEY}`, a line or an element; the key may be left out. At most 100,000; an array has at most 16 MiB.";
        let text = Content::new(Some(schema(&json!({"type": "string"}))));
        let body = RequestBodyBuilder::new()
            .description(Some(about))
            .content("application/json", Content::new(Some(component("ManyJobs"))))
            .content(bulk::LINES, text)
            .required(Some(Required::True));
        Self(self.0.request_body(Some(body.build())))
    }

    fn job_file(self) -> Self {
        let file = || Content::new(Some(component("JobFile")));
        let body = RequestBodyBuilder::new()
            .description(Some("A job file, or one with the files that it names."))
            .content("application/json", file())
            .content("application/yaml", file())
            .content(jobs::SUBMISSION, Content::new(Some(component("Submission"))))
            .required(Some(Required::True));
        Self(self.0.request_body(Some(body.build())))
    }

    fn answer(self, status: u16, about: &str, name: &str) -> Self {
        let content = Content::new(Some(component(name)));
        self.respond(status, about, "application/json", content)
    }

    fn answer_text(self, status: u16, about: &str) -> Self {
        let content = Content::new(Some(schema(&json!({"type": "string"}))));
        self.respond(status, about, "text/plain", content)
    }

    /// Server-sent events, whose `data` is JSON: `name` says of what shape.
    fn stream(self, about: &str, name: &str) -> Self {
        let data = json!({"type": "string", "description": format!("{name}, as JSON.")});
        let event = json!({"type": "object", "required": ["event", "data"], "properties": {"event": {"type": "string"}, "data": data}});
        self.respond(200, about, "text/event-stream", Content::new(Some(schema(&event))))
    }

    /// The answer before may come in another content type, as text.
    fn also(self, content_type: &str) -> Self {
        let mut operation = self.0.build();
        if let Some(RefOr::T(response)) = operation.responses.responses.get_mut("200") {
            let text = Content::new(Some(schema(&json!({"type": "string"}))));
            response.content.insert(content_type.to_owned(), text.into());
        }
        Self(operation.into())
    }

    fn problems(self, statuses: &[u16]) -> Self {
        let all = statuses.iter().chain(&ANYWHERE);
        all.fold(self, |described, &status| {
            let content = Content::new(Some(component("Problem")));
            let about = schemas::problem_title(status);
            described.respond(status, about, "application/problem+json", content)
        })
    }

    fn respond(self, status: u16, about: &str, content_type: &str, content: Content) -> Self {
        let response = ResponseBuilder::new().description(about).content(content_type, content);
        Self(self.0.response(status.to_string(), response.build()))
    }
}

fn component(name: &str) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

fn schema(value: &Value) -> RefOr<Schema> {
    serde_json::from_value(value.clone()).expect("the schemas in this file are schemas")
}

fn parameter(name: &str, place: ParameterIn, about: &str, value: &Value) -> ParameterBuilder {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(about))
        .schema(Some(schema(value)))
}

fn query(name: &str, about: &str, value: &Value) -> ParameterBuilder {
    parameter(name, ParameterIn::Query, about, value)
}

fn path(name: &str, about: &str, value: &Value) -> ParameterBuilder {
    parameter(name, ParameterIn::Path, about, value)
}

//! OpenTelemetry: a span for each job and one for each attempt, sent over OTLP/HTTP.
//!
//! Ids follow from the job's id and the attempt's fence token, so that a restart, or a second
//! controller, goes on with the same trace. Whoever makes a span puts it into a bounded queue and
//! goes on; a thread of its own sends, and what it cannot send in time is dropped and counted.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use sha2::{Digest, Sha256};
use steadfast_core::event::{ItemId, JobState};
use steadfast_core::job::Completion;
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;

use super::job::ObservedJob;
use super::log_events::{codes, error_of, index, role, step_name};
use super::metrics::{EXPORT_FAILED, Metrics, QUEUE_FULL};
use super::queue::Bounded;

/// Spans that wait for the collector: seconds of a busy server, a few megabytes.
const SPANS: usize = 8192;
/// Sent in one request.
const AT_ONCE: usize = 512;
/// How long a request waits to become that large.
const GATHER: Duration = Duration::from_millis(500);
/// For one request, its repetitions included.
const REQUEST: Duration = Duration::from_secs(10);
/// Bytes of an error text in a span.
const ERROR: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(
        "traces cannot be sent to `{endpoint}`: {why}; give the collector's OTLP/HTTP address, \
         such as http://127.0.0.1:4318"
    )]
    Endpoint { endpoint: String, why: String },
    #[error("the thread that sends traces cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Where spans go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spans {
    queue: Arc<Bounded<SpanData>>,
    metrics: Metrics,
    scope: InstrumentationScope,
}

impl Spans {
    /// None: neither `endpoint` nor OpenTelemetry's own variables name a collector.
    pub fn start(
        endpoint: Option<&str>,
        version: &'static str,
        metrics: &Metrics,
    ) -> Result<Option<Self>, TraceError> {
        crate::tls::use_ring();
        let variables = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let (builder, shown) = match endpoint.filter(|endpoint| !endpoint.is_empty()) {
            Some(endpoint) => (builder.with_endpoint(traces_path(endpoint)), endpoint.to_owned()),
            None => match variables.into_iter().find_map(named) {
                Some(endpoint) => (builder, endpoint),
                None => return Ok(None),
            },
        };
        let mut exporter = builder
            .with_timeout(REQUEST)
            .build()
            .map_err(|why| TraceError::Endpoint { endpoint: shown, why: why.to_string() })?;
        let mut resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", version));
        if named("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("steadfast");
        }
        exporter.set_resource(&resource.build());
        let spans = Self {
            queue: Arc::new(Bounded::new(SPANS)),
            metrics: metrics.clone(),
            scope: InstrumentationScope::builder("steadfast").with_version(version).build(),
        };
        let (queue, metrics) = (spans.queue.clone(), metrics.clone());
        let send = move || {
            while let Some(batch) = queue.take(AT_ONCE, GATHER) {
                send(&exporter, batch, &metrics);
            }
        };
        std::thread::Builder::new().name("traces".to_owned()).spawn(send)?;
        Ok(Some(spans))
    }

    /// Sends what is left, for at most `wait`. False: something is left all the same.
    pub fn stop(&self, wait: Duration) -> bool {
        self.queue.close(wait)
    }

    pub(super) fn job(&self, job: &ObservedJob, state: JobState, end: Completion, at: Timestamp) {
        let mut attributes = vec![
            KeyValue::new("steadfast.job.id", job.id.to_string()),
            KeyValue::new("steadfast.job.name", job.plan.name().to_owned()),
            KeyValue::new("steadfast.job.state", state.name()),
            KeyValue::new("steadfast.job.reason", end.reason.name()),
            KeyValue::new("steadfast.job.attempts", job.attempts as i64),
        ];
        if job.plan.best_effort().is_some() {
            attributes.push(KeyValue::new("steadfast.job.completion_ratio", end.ratio()));
        }
        let status = match state {
            JobState::Failed | JobState::Cancelled => Status::error(end.reason.name()),
            _ => Status::Ok,
        };
        let links = job.retried_from.iter().map(|before| Link::with_context(job_span(before)));
        self.put(SpanData {
            name: Cow::from(job.plan.name().to_owned()),
            links: linked(links.collect()),
            status,
            ..self.span(job_span(&job.id), SpanId::INVALID, (job.accepted_at, at), attributes)
        });
    }

    pub(super) fn attempt(&self, job: &ObservedJob, attempt: &Attempt) {
        let Attempt { item, number, token, worker, .. } = *attempt;
        let (exit_code, signal) = codes(attempt.outcome);
        let step = step_name(&job.plan, item.step);
        let mut attributes = vec![
            KeyValue::new("steadfast.job.id", job.id.to_string()),
            KeyValue::new("steadfast.job.name", job.plan.name().to_owned()),
            KeyValue::new("steadfast.step", step.to_owned()),
            KeyValue::new("steadfast.attempt", i64::from(number)),
            KeyValue::new("steadfast.worker", worker.to_string()),
            KeyValue::new("steadfast.outcome", attempt.name),
        ];
        let mut also = |key: &'static str, value: Option<opentelemetry::Value>| {
            attributes.extend(value.map(|value| KeyValue::new(key, value)));
        };
        also("steadfast.item", index(&job.plan, item).map(|index| i64::from(index).into()));
        also("steadfast.role", role(item).map(Into::into));
        let datacenter = job.plan.datacenter(item.run);
        also("steadfast.datacenter", datacenter.map(|datacenter| datacenter.to_owned().into()));
        also("steadfast.exit_code", exit_code.map(|code| i64::from(code).into()));
        also("steadfast.signal", signal.map(|signal| i64::from(signal).into()));
        let status = match attempt.outcome {
            Some(Outcome::Succeeded { .. }) => Status::Ok,
            Some(failed) => Status::error(clipped(error_of(failed).unwrap_or_default())),
            None => Status::error("killed"),
        };
        let parent = job_span(&job.id);
        let before = attempt.retries.map(|token| attempt_span(&job.id, token));
        let links = std::iter::once(parent.clone()).chain(before).map(Link::with_context);
        let times = (attempt.since, attempt.at);
        self.put(SpanData {
            name: Cow::from(format!("{step} attempt {number}")),
            links: linked(links.collect()),
            status,
            ..self.span(attempt_span(&job.id, token), parent.span_id(), times, attributes)
        });
    }

    fn span(
        &self,
        span_context: SpanContext,
        parent_span_id: SpanId,
        (start, end): (Timestamp, Timestamp),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        SpanData {
            span_context,
            parent_span_id,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::default(),
            start_time: system_time(start),
            end_time: system_time(end),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }

    fn put(&self, span: SpanData) {
        if !self.queue.put(span) {
            self.metrics.counted().spans_dropped(QUEUE_FULL, 1);
        }
    }
}

/// An attempt that is over.
pub(super) struct Attempt<'a> {
    pub(super) item: ItemId,
    pub(super) number: u32,
    pub(super) token: u64,
    pub(super) worker: &'a Arc<str>,
    pub(super) since: Timestamp,
    pub(super) at: Timestamp,
    pub(super) name: &'static str,
    /// None: it was cut off.
    pub(super) outcome: Option<&'a Outcome>,
    /// The token of the attempt before it.
    pub(super) retries: Option<u64>,
}

fn send(exporter: &SpanExporter, batch: Vec<SpanData>, metrics: &Metrics) {
    let spans = batch.len();
    match block_on(exporter.export(batch)) {
        Ok(()) => drop(metrics.counted().spans_exported.inc_by(spans as u64)),
        Err(why) => {
            metrics.counted().spans_dropped(EXPORT_FAILED, spans);
            tracing::debug!(target: "steadfast::trace", spans, error = %why, "SpansNotSent");
        }
    }
}

/// The exporter's requests block this thread, which is for that; there is no runtime to drive it.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The endpoint is the collector's; where it takes traces is OTLP's to say.
fn traces_path(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.ends_with("/v1/traces") {
        endpoint.to_owned()
    } else {
        format!("{endpoint}/v1/traces")
    }
}

fn job_span(job: &str) -> SpanContext {
    attempt_span(job, 0)
}

/// Tokens count from 1; 0 is the job's own span.
fn attempt_span(job: &str, token: u64) -> SpanContext {
    let trace: [u8; 32] = Sha256::digest(job.as_bytes()).into();
    let span: [u8; 32] = Sha256::new()
        .chain_update(job.as_bytes())
        .chain_update(token.to_be_bytes())
        .finalize()
        .into();
    let trace_id = TraceId::from_bytes(first(&trace));
    let span_id = SpanId::from_bytes(first(&span));
    SpanContext::new(trace_id, span_id, TraceFlags::SAMPLED, false, TraceState::NONE)
}

fn first<const N: usize>(of: &[u8; 32]) -> [u8; N] {
    std::array::from_fn(|i| of[i])
}

fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(at.0))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn linked(links: Vec<Link>) -> SpanLinks {
    let mut of = SpanLinks::default();
    of.links = links;
    of
}

fn clipped(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(ERROR));
    text
}

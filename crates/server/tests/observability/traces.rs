use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_engine::Observer;
use steadfast_server::observability::{Metrics, Observability, Spans};

use crate::page::Page;
use crate::world::{BUDGET, events, metrics, plan};

/// Long enough for any machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_mins(1);

/// A collector on loopback: its address, and what it was sent.
fn collector() -> (String, Receiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || serve(&stream, &tell));
        }
    });
    (address, told)
}

fn serve(stream: &TcpStream, tell: &Sender<ExportTraceServiceRequest>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
        assert!(line.starts_with("POST /v1/traces HTTP/1.1"), "{line}");
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        tell.send(ExportTraceServiceRequest::decode(&body[..]).ok()?).ok()?;
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn spans_to(endpoint: &str, metrics: &Metrics) -> Spans {
    Spans::start(Some(endpoint), "1.2.3", metrics).expect("a valid address").expect("it is named")
}

fn attributes(of: &[KeyValue]) -> BTreeMap<String, String> {
    of.iter()
        .filter_map(|attribute| {
            let value = match attribute.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) => text.clone(),
                Value::IntValue(number) => number.to_string(),
                Value::DoubleValue(number) => number.to_string(),
                other => panic!("{other:?}"),
            };
            Some((attribute.key.clone(), value))
        })
        .collect()
}

/// Tells of one job and gives what arrived of it.
fn arrived(id: &str, log: Vec<RecordedEvent>) -> (Vec<Span>, BTreeMap<String, String>) {
    let (address, told) = collector();
    let metrics = metrics(true);
    let spans = spans_to(&address, &metrics);
    let mut watch = Observability::new(metrics.clone(), Some(spans.clone()));
    watch.committed(&JobId::from(id), log);
    assert!(spans.stop(PATIENCE), "the collector answers");
    let requests: Vec<_> = told.try_iter().flat_map(|request| request.resource_spans).collect();
    let resource = requests.first().and_then(|of| of.resource.as_ref()).expect("a resource");
    let resource = attributes(&resource.attributes);
    let scopes = requests.into_iter().flat_map(|of| of.scope_spans);
    let spans: Vec<Span> = scopes.flat_map(|scope| scope.spans).collect();
    let page = Page::read(&metrics.render());
    assert_eq!(page.get("steadfast_spans_exported_total"), spans.len() as f64);
    assert_eq!(page.sum("steadfast_spans_dropped_total"), 0.0);
    (spans, resource)
}

#[test]
fn every_attempt_is_a_span_of_its_jobs_trace() {
    let log = events("j1", &plan(BUDGET), "fetch: [\"exit:3@2s\", \"lost@1s\", \"ok@4s\"]");
    let attempts: Vec<(u64, u64)> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::AttemptEnded { started_at, .. } => Some((started_at.0, record.at.0)),
            _ => None,
        })
        .collect();
    let (spans, resource) = arrived("j1", log.clone());
    assert_eq!(resource["service.name"], "steadfast");
    assert_eq!(resource["service.version"], "1.2.3");
    let (roots, children): (Vec<&Span>, Vec<&Span>) =
        spans.iter().partition(|span| span.parent_span_id.is_empty());
    let [root] = roots[..] else { panic!("{roots:?}") };
    assert_eq!(root.name, "budget");
    assert_eq!(attributes(&root.attributes)["steadfast.job.state"], "succeeded");
    assert_eq!(children.len(), 3);
    let mut before: Option<&Span> = None;
    for (i, (span, (start, end))) in children.iter().zip(&attempts).enumerate() {
        assert_eq!(span.trace_id, root.trace_id);
        assert_eq!(span.parent_span_id, root.span_id);
        assert_eq!(span.start_time_unix_nano, start * 1_000_000);
        assert_eq!(span.end_time_unix_nano, end * 1_000_000);
        let links: Vec<&[u8]> = span.links.iter().map(|link| &link.span_id[..]).collect();
        let job = &root.span_id[..];
        match before {
            None => assert_eq!(links, [job]),
            Some(before) => assert_eq!(links, [job, &before.span_id[..]], "it retries that one"),
        }
        let said = attributes(&span.attributes);
        assert_eq!(said["steadfast.job.id"], "j1");
        assert_eq!(said["steadfast.step"], "fetch");
        assert_eq!(said["steadfast.attempt"], (i + 1).to_string());
        assert_eq!(said["steadfast.worker"], "rehearsal");
        before = Some(span);
    }
    let outcome = |i: usize| attributes(&children[i].attributes)["steadfast.outcome"].clone();
    assert_eq!([outcome(0), outcome(1), outcome(2)], ["failed", "worker_lost", "succeeded"]);
    assert_eq!(attributes(&children[0].attributes)["steadfast.exit_code"], "3");
    let status = |i: usize| children[i].status.clone().unwrap_or_default();
    assert_eq!((status(0).code, status(0).message.as_str()), (2, "exit code 3"));
    assert_eq!(status(2).code, 1);

    let (again, _) = arrived("j1", log);
    assert_eq!(again, spans, "another process tells the same trace");
}

#[test]
fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let metrics = metrics(true);
    // Bound and let go: nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let spans = spans_to(&address, &metrics);
    let mut watch = Observability::new(metrics.clone(), Some(spans.clone()));
    watch.committed(&JobId::from("j1"), events("j1", &plan(BUDGET), "fetch: [ok]"));
    assert!(spans.stop(PATIENCE), "it gives up by itself");
    let page = Page::read(&metrics.render());
    assert_eq!(page.get("steadfast_spans_dropped_total{cause=\"export_failed\"}"), 2.0);
    assert_eq!(page.get("steadfast_jobs_ended_total{state=\"succeeded\"}"), 1.0);
}

#[test]
fn a_collector_that_does_not_answer_fills_the_queue_and_the_rest_is_counted() {
    let metrics = metrics(false);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    let spans = spans_to(&address, &metrics);
    let mut watch = Observability::new(metrics.clone(), Some(spans.clone()));
    let log = events("j", &plan(BUDGET), "fetch: [ok]");
    let jobs = 10_000;
    for i in 0..jobs {
        watch.committed(&JobId::from(format!("j{i}")), log.clone());
    }
    // One span for the job and one for the attempt; the queue holds less than half of them.
    let page = Page::read(&metrics.render());
    let dropped = page.get("steadfast_spans_dropped_total{cause=\"queue_full\"}");
    assert!(dropped > f64::from(jobs), "{dropped}");
    assert!(dropped < 2.0 * f64::from(jobs), "{dropped}");
    assert_eq!(page.get("steadfast_jobs_accepted_total"), f64::from(jobs));
    assert!(!spans.stop(Duration::from_millis(1)), "what cannot be sent does not hold the end up");
    drop(listener);
}

#[test]
fn nothing_is_started_where_nobody_names_a_collector() {
    let named = |name| std::env::var_os(name).is_some();
    let environment = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let spans = Spans::start(None, "1.2.3", &metrics(true)).expect("nothing to go wrong");
    assert_eq!(spans.is_some(), environment.into_iter().any(named));
}

#[test]
fn an_address_that_is_none_is_refused_with_what_to_write() {
    let refused = Spans::start(Some("not an address"), "1.2.3", &metrics(true));
    let said = refused.expect_err("it is no address").to_string();
    assert!(said.contains("not an address") && said.contains("4318"), "{said}");
}

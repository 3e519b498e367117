//! Structured logs: one line for each event, as JSON or for the eye, written by a thread of its own.
//!
//! Nobody who logs waits for the disk or the terminal; lines that do not fit are dropped and counted.
//! Whatever a job's author wrote stays inside its field: no line break, no escape sequence and no
//! text that turns direction leaves it.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use super::lines::Lines;
use super::metrics::Metrics;
use super::queue::Bounded;

pub use super::lines::LogFormat;

/// Lines that wait to be written: some seconds of a busy server, a few megabytes.
const LINES: usize = 16 * 1024;
/// Written in one go.
const AT_ONCE: usize = 256;
/// How long the end of the program waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "the log filter `{filter}` is not understood: {why}; write a level (`info`), or targets \
         with levels (`info,steadfast::attempt=debug`)"
    )]
    Filter { filter: String, why: String },
    #[error("the log has been set up before in this process: {0}")]
    SetBefore(String),
    #[error("the log's thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// How to log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub format: LogFormat,
    /// A level, or targets with levels, as `RUST_LOG` has them.
    pub filter: String,
    /// Only the text format has colours.
    pub colour: bool,
}

/// Writes the last lines when it is dropped: keep it until the program ends.
#[derive(Debug)]
#[must_use = "dropped, it ends the log"]
pub struct Log {
    lines: Arc<Bounded<Vec<u8>>>,
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.close(LAST_LINES);
    }
}

/// Logs of the whole process go to `writer` from now on.
pub fn init(
    options: &LogOptions,
    writer: Box<dyn Write + Send>,
    metrics: &Metrics,
) -> Result<Log, LogError> {
    let (subscriber, log) = subscriber(options, writer, metrics)?;
    subscriber.try_init().map_err(|why| LogError::SetBefore(why.to_string()))?;
    Ok(log)
}

/// The usual place: the error output, in colour if a person looks at it and does not mind.
pub fn init_stderr(format: LogFormat, filter: &str, metrics: &Metrics) -> Result<Log, LogError> {
    let minds = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = std::io::stderr().is_terminal() && !minds;
    let options = LogOptions { format, filter: filter.to_owned(), colour };
    init(&options, Box::new(std::io::stderr()), metrics)
}

/// The same for a part of the process, or for a test.
pub fn subscriber(
    options: &LogOptions,
    mut writer: Box<dyn Write + Send>,
    metrics: &Metrics,
) -> Result<(impl Subscriber + Send + Sync + use<>, Log), LogError> {
    let filter = EnvFilter::try_new(&options.filter)
        .map_err(|why| LogError::Filter { filter: options.filter.clone(), why: why.to_string() })?;
    let lines = Arc::new(Bounded::<Vec<u8>>::new(LINES));
    let taken = lines.clone();
    std::thread::Builder::new().name("log".to_owned()).spawn(move || {
        while let Some(some) = taken.take(AT_ONCE, Duration::ZERO) {
            // There is nowhere to say that the log cannot be written.
            let _ = writer.write_all(&some.concat());
            let _ = writer.flush();
        }
    })?;
    let log = Log { lines: lines.clone() };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .event_format(Lines { format: options.format, colour: options.colour })
        .with_writer(Queue { lines, metrics: metrics.clone() })
        .finish();
    Ok((subscriber, log))
}

struct Queue {
    lines: Arc<Bounded<Vec<u8>>>,
    metrics: Metrics,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if !self.lines.put(line.to_vec()) {
            self.metrics.counted().lines_dropped.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use steadfast_core::time::Timestamp;

    use super::*;
    use crate::observability::ProcessFacts;

    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_is_stuck_keeps_nobody_waiting_and_what_is_lost_is_counted() {
        let about = ProcessFacts { version: "0", started_at: Timestamp(0), per_job_max: 1 };
        let metrics = Metrics::new(&about);
        let (go, stuck) = sync_channel(0);
        let options =
            LogOptions { format: LogFormat::Json, filter: "info".to_owned(), colour: false };
        let (subscriber, log) =
            subscriber(&options, Box::new(Stuck(stuck)), &metrics).expect("a valid filter");
        tracing::subscriber::with_default(subscriber, || {
            for i in 0..LINES + AT_ONCE + 10 {
                tracing::info!(i, "Line");
            }
        });
        let dropped = metrics.counted().lines_dropped.get();
        assert!((10..=10 + AT_ONCE as u64).contains(&dropped), "{dropped}");
        drop(go);
        drop(log);
    }

    #[test]
    fn a_filter_that_is_not_understood_is_refused_with_what_to_write() {
        let about = ProcessFacts { version: "0", started_at: Timestamp(0), per_job_max: 1 };
        let options =
            LogOptions { format: LogFormat::Text, filter: "a=b=c".to_owned(), colour: false };
        let refused = subscriber(&options, Box::new(std::io::sink()), &Metrics::new(&about)).err();
        let said = refused.expect("it means nothing").to_string();
        assert!(said.contains("`a=b=c`") && said.contains("steadfast::attempt=debug"), "{said}");
    }
}

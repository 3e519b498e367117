//! Files in, and what is wrong with them out.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast_jobfile::{JobFile, Operator, Problem, Warning, load};
use steadfast_store::StoreError;

use crate::Exit;
use crate::args::Output;
use crate::style::{BOLD, WAIT, error_prefix, inert, paint};

/// A line longer than this is shown from near the mistake only.
const SHOWN_CHARS: usize = 160;

/// A file that was read, under the name that messages give it.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
}

/// A problem of a file, found here or by a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mistake {
    pub(crate) code: String,
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Characters; a server does not say.
    #[serde(skip)]
    pub(crate) length: u32,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) help: Option<String>,
}

impl From<&Problem> for Mistake {
    fn from(problem: &Problem) -> Self {
        Self {
            code: problem.code.to_owned(),
            path: problem.path.clone(),
            line: problem.line,
            column: problem.column,
            length: problem.length,
            message: problem.message.clone(),
            help: problem.help.clone(),
        }
    }
}

impl From<&Self> for Mistake {
    fn from(mistake: &Self) -> Self {
        mistake.clone()
    }
}

impl Mistake {
    pub(crate) fn made_inert(self) -> Self {
        let made = |text: String| inert(&text).into_owned();
        Self {
            code: made(self.code),
            path: made(self.path),
            message: made(self.message),
            help: self.help.map(made),
            ..self
        }
    }
}

/// Reads a file, or standard input for `-`, up to a little more than what may be used of it, so that
/// one too large is refused by its reader without being held here.
pub(crate) fn read(path: &Path, max_bytes: usize) -> Result<Source, String> {
    let name = if path == Path::new("-") { "<stdin>".into() } else { path.display().to_string() };
    let why = |error: io::Error| format!("cannot read {name}: {}", plain(&error));
    let mut text = Vec::new();
    let most = max_bytes as u64 + 1;
    if path == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut text).map_err(why)?;
    } else {
        let file = File::open(path).map_err(why)?;
        let about = file.metadata().map_err(why)?;
        if about.is_dir() {
            return Err(format!("cannot read {name}: it is a folder; name a file in it"));
        }
        if about.len() > max_bytes as u64 {
            return Err(format!("{name} has {} bytes; at most {max_bytes} are read", about.len()));
        }
        file.take(most).read_to_end(&mut text).map_err(why)?;
    }
    Ok(Source { name, text })
}

fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// The operator's settings, as far as this machine's environment has any.
pub(crate) fn operator() -> Result<Operator, String> {
    let env = |name: &str| std::env::var(name).ok();
    Operator::from_env(env).map_err(|wrong| wrong.join("\n"))
}

/// How a program is told what is wrong. `plan` answers whether a file is valid; whatever else cannot do what
/// it was asked to has an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `{"error": {"code", "message", …}}`
    Error,
    /// `{"valid": false, "errors": […]}`
    Validity,
}

/// A job file, read and checked; or None, with everything wrong said.
pub(crate) fn job(path: &Path, output: Output) -> io::Result<Option<(JobFile, Source)>> {
    job_or(path, output, Shape::Error)
}

pub(crate) fn job_or(
    path: &Path,
    output: Output,
    shape: Shape,
) -> io::Result<Option<(JobFile, Source)>> {
    let loaded = operator().and_then(|operator| {
        let source = read(path, operator.max_file_bytes)?;
        Ok((load(&source.name, &source.text, &operator), source))
    });
    match loaded {
        Err(message) if shape == Shape::Validity => {
            if output == Output::Json {
                let error = json!({"code": "unreadable", "path": "", "line": null, "column": null,
                                   "message": message});
                print_json(&json!({"valid": false, "errors": [error]}))?;
            }
            refuse("unreadable", &message, Output::Human).map(|()| None)
        }
        Err(message) => refuse("unreadable", &message, output).map(|()| None),
        Ok((Ok(job), source)) => Ok(Some((job, source))),
        Ok((Err(problems), source)) => {
            refuse_file("invalid_job", &problems, &source, output, shape).map(|()| None)
        }
    }
}

/// Something is wrong that has no place in a file.
pub(crate) fn refuse(code: &str, message: &str, output: Output) -> io::Result<()> {
    if output == Output::Json {
        print_json(&json!({"error": {"code": code, "message": message}}))?;
    }
    anstream::eprintln!("{}{message}", error_prefix());
    Ok(())
}

pub(crate) fn refuse_file<'a, P>(
    code: &str,
    problems: &'a [P],
    source: &Source,
    output: Output,
    shape: Shape,
) -> io::Result<()>
where
    Mistake: From<&'a P>,
{
    let problems: Vec<Mistake> = problems.iter().map(Mistake::from).collect();
    let count = problems.len();
    let plural = if count == 1 { "problem" } else { "problems" };
    let message = format!("{count} {plural} in {}", source.name);
    match (output, shape) {
        (Output::Human, _) => {}
        (Output::Json, Shape::Validity) => {
            print_json(&json!({"valid": false, "errors": problems}))?;
        }
        (Output::Json, Shape::Error) => {
            let error = json!({"code": code, "message": message, "errors": problems});
            print_json(&json!({ "error": error }))?;
        }
    }
    let text = String::from_utf8_lossy(&source.text);
    let lines: Vec<&str> = text.lines().collect();
    for problem in &problems {
        anstream::eprintln!("{}\n", render(problem, &source.name, &lines));
    }
    anstream::eprintln!("{}{message}", error_prefix());
    Ok(())
}

/// Why a command about a job here could not do what it was asked to.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    /// Stable, for programs.
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The code of a job, step or item that is not there.
pub(crate) const NOT_FOUND: &str = "not_found";

/// The code of a database that cannot be reached.
pub(crate) const NO_DATABASE: &str = "no_database";

impl Wrong {
    pub(crate) fn no_job(message: String) -> Self {
        Self { code: NOT_FOUND, message }
    }
}

impl Wrong {
    /// A database that may be back in a moment.
    pub(crate) fn exit(&self) -> Exit {
        if self.code == NO_DATABASE { Exit::NoServer } else { Exit::Wrong }
    }
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { store, why } => {
                Self { code: NO_DATABASE, message: format!("{store} cannot be used now: {why}") }
            }
            error => error.to_string().into(),
        }
    }
}

impl From<String> for Wrong {
    fn from(message: String) -> Self {
        Self { code: "not_possible", message }
    }
}

impl From<&str> for Wrong {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl From<steadfast_engine::CommandError> for Wrong {
    fn from(why: steadfast_engine::CommandError) -> Self {
        why.to_string().into()
    }
}

fn render(problem: &Mistake, name: &str, lines: &[&str]) -> String {
    let title = Level::ERROR.primary_title(&problem.message).id(problem.code.as_str());
    let line = lines.get((problem.line as usize).saturating_sub(1)).copied().unwrap_or_default();
    let (shown, column) = window(line, (problem.column as usize).saturating_sub(1));
    let start: usize = shown.chars().take(column).map(char::len_utf8).sum();
    let length: usize =
        shown.chars().skip(column).take(problem.length.max(1) as usize).map(char::len_utf8).sum();
    let snippet = Snippet::source(shown.as_str())
        .path(name)
        .line_start(problem.line as usize)
        .annotation(AnnotationKind::Primary.span(start..start + length));
    let mut group = Group::with_title(title).element(snippet);
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(help));
    }
    let text = Renderer::styled().render(&[group]);
    // It counts in what is shown of the line; people look for the place in their file.
    let place = |column: usize| format!("{name}:{}:{column}", problem.line);
    text.replacen(&place(column + 1), &place(problem.column as usize), 1)
}

/// The part of a line around a column, and where the column is in it.
fn window(line: &str, column: usize) -> (String, usize) {
    let from = if line.chars().count() <= SHOWN_CHARS { 0 } else { column.saturating_sub(40) };
    (line.chars().skip(from).take(SHOWN_CHARS).collect(), column - from)
}

pub(crate) fn warn(warnings: &[Warning], source: &Source) {
    for Warning { code, path, line, message } in warnings {
        warn_one(code, path, *line, message, source);
    }
}

/// `code` and the rest as this program or the server that has read the file says it.
pub(crate) fn warn_one(code: &str, path: &str, line: u32, message: &str, source: &Source) {
    let head = paint(WAIT.bold(), format!("warning[{code}]"));
    anstream::eprintln!("{head}{}", paint(BOLD, format!(": {message}")));
    anstream::eprintln!("  --> {}:{line} ({})", source.name, inert(path));
}

/// JSON as a server wrote it, on a line.
pub(crate) fn print_text(text: &str) -> io::Result<()> {
    use io::Write;
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// One line, so that a program can read it as one; large answers are written as they are made.
pub(crate) fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    use io::Write;
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

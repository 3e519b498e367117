//! A server as those see it who ask it by REST.

use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::harness::{LONG, Process, wait_for, wait_or};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: String,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// None: nobody answers.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Reply> {
    let mut answer = Vec::new();
    let ended = send(address, method, path, headers, body)?.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    // Who is refused before all is sent is cut off after the answer; an answer that is cut off is none.
    if ended.is_err() {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        let length: usize = length.parse().ok()?;
        if body.len() < length {
            return None;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, body: body.to_owned() })
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    // Of HTTP/1.0 the answer is what comes until the end.
    let mut request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n",
        address,
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    match stream.write_all(format!("{request}\r\n{body}").as_bytes()) {
        // It may have answered all the same.
        Err(error) if !matches!(error.kind(), BrokenPipe | ConnectionReset) => None,
        _ => Some(stream),
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// None: nobody answers.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Reply> {
        ask(&self.address, method, path, headers, body)
    }

    /// The answer is to be read from what this returns.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<TcpStream> {
        send(&self.address, method, path, headers, body)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").expect("an answer")
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str) -> Reply {
        self.ask("POST", path, &[], "").expect("an answer")
    }

    #[track_caller]
    pub(crate) fn submit(&self, job: &str) -> String {
        let kind = if job.starts_with('{') { "application/json" } else { "application/yaml" };
        let kind = [("Content-Type", kind)];
        let reply = self.ask("POST", "/v1/jobs", &kind, job).expect("an answer");
        assert_eq!(reply.status, 201, "{}", reply.body);
        reply.json()["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    pub(crate) fn status(&self, job: &str) -> Value {
        let reply = self.get(&format!("/v1/jobs/{job}"));
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    #[track_caller]
    pub(crate) fn events(&self, job: &str) -> Vec<Value> {
        let reply = self.get(&format!("/v1/jobs/{job}/events?limit=1000"));
        reply.json()["events"].as_array().expect("events").clone()
    }

    pub(crate) fn event_names(&self, job: &str) -> Vec<String> {
        let name = |event: &Value| event["event"].as_str().expect("a name").to_owned();
        self.events(job).iter().map(name).collect()
    }

    /// Waits until the job is as wanted.
    #[track_caller]
    pub(crate) fn until(&self, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_or(
            || Some(self.status(job)).filter(|status| wanted(status)),
            || panic!("the job never comes there: {:#}", self.status(job)),
        )
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(&self, job: &str) -> Value {
        self.until(job, |status| !status["finished_at_ms"].is_null())
    }

    #[track_caller]
    pub(crate) fn until_item(&self, job: &str, state: &str) -> Value {
        let status = self.until(job, |status| item(status)["state"] == state);
        item(&status).clone()
    }

    #[track_caller]
    pub(crate) fn workers(&self) -> Vec<Value> {
        self.get("/v1/workers").json()["workers"].as_array().expect("workers").clone()
    }

    #[track_caller]
    pub(crate) fn worker(&self, name: &str) -> Option<Value> {
        self.workers().into_iter().find(|worker| worker["name"] == name)
    }

    /// Waits until a worker is in that state.
    #[track_caller]
    pub(crate) fn until_worker(&self, name: &str, state: &str) -> Value {
        wait_or(
            || self.worker(name).filter(|worker| worker["state"] == state),
            || panic!("{name} is never {state}: {:#?}", self.workers()),
        )
    }

    #[track_caller]
    pub(crate) fn until_gone(&self, name: &str) {
        wait_for(&format!("{name} to be gone"), || self.worker(name).is_none().then_some(()));
    }
}

/// The first item of the first step of the first run.
pub(crate) fn item(status: &Value) -> &Value {
    &step(status, 0)["items"][0]
}

/// The first step of a run.
pub(crate) fn step(status: &Value, run: usize) -> &Value {
    let steps = status["runs"][run]["steps"].as_object().expect("steps");
    steps.values().next().expect("a step")
}

/// The states of an item's attempts.
pub(crate) fn attempt_states(item: &Value) -> Vec<&str> {
    let attempts = item["attempts"].as_array().expect("attempts").iter();
    attempts.map(|attempt| attempt["state"].as_str().expect("a state")).collect()
}

/// Which workers they ran on.
pub(crate) fn attempt_workers(item: &Value) -> Vec<&str> {
    let attempts = item["attempts"].as_array().expect("attempts").iter();
    attempts.map(|attempt| attempt["worker"].as_str().expect("a name")).collect()
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

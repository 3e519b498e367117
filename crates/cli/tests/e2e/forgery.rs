//! What a worker's token may not do to others: take their sessions, end their attempts, write their logs, read the
//! files of their jobs. A real server, a victim, and an attacker with a token of scope `worker`.

use std::path::Path;

use serde_json::json;
use steadfast_api::proto;
use steadfast_api::proto::{from_worker, to_worker};
use tonic::{Code, Status};

use super::harness::{Place, Server, gated, item, wait_for};
use super::played::{Played, client, hello, with_token};

/// A server with tokens, and those of the worker and of who asks.
struct Scene {
    place: Place,
    server: Server,
    work: String,
    admin: String,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        Self::with_lease(30_000)
    }

    fn with_lease(lease_ms: u64) -> Self {
        Self::at(Place::new(), lease_ms)
    }

    /// For who looks into the data folder, or counts beats until the server has seen a change of it.
    fn with_a_data_folder() -> Self {
        Self::at(Place::with_data_folders(), 30_000)
    }

    fn at(place: Place, lease_ms: u64) -> Self {
        let (work, admin) = (token(&place, &["worker"]), token(&place, &["admin"]));
        let server = place.server().auth_required().lease(lease_ms).start();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        Self { place, server, work, admin, runtime }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> serde_json::Value {
        let bearer = format!("Bearer {}", self.admin);
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
        let reply = self.server.ask(method, path, &headers, body).expect("an answer");
        assert!(reply.status < 300, "{}: {}", reply.status, reply.body);
        reply.json()
    }

    fn submit(&self, steps: &serde_json::Value) -> String {
        let job = json!({ "name": "j", "steps": steps }).to_string();
        self.ask("POST", "/v1/jobs", &job)["id"].as_str().expect("an id").to_owned()
    }

    fn status(&self, job: &str) -> serde_json::Value {
        self.ask("GET", &format!("/v1/jobs/{job}"), "")
    }

    fn end(&self, job: &str) -> serde_json::Value {
        wait_for("the job's end", || {
            Some(self.status(job)).filter(|status| !status["finished_at_ms"].is_null())
        })
    }

    fn until_worker(&self, name: &str, state: &str) {
        wait_for("the worker", || {
            let workers = self.ask("GET", "/v1/workers", "");
            let workers = workers["workers"].as_array().expect("workers").clone();
            workers.into_iter().find(|it| it["name"] == name && it["state"] == state)
        });
    }

    async fn tries(&self, hello: proto::Hello) -> Result<Played, Status> {
        Played::tries(&self.server.url(), &self.work, hello).await
    }

    async fn comes(&self, name: &str) -> Played {
        self.tries(hello(name)).await.expect("a session")
    }

    /// An answered beat is the proof that all before it was heard.
    async fn has_heard(&self, played: &mut Played, number: u64) {
        played.beats(number).await;
        while !matches!(played.hears().await, to_worker::Kind::Beat(beat) if beat.number == number)
        {
        }
    }

    async fn file(&self, attempt: &proto::AttemptRef, worker: &str) -> Result<Vec<u8>, Status> {
        let request = proto::GetFileRequest {
            attempt: Some(attempt.clone()),
            path: "key.txt".to_owned(),
            worker: worker.to_owned(),
        };
        let mut client = client(&self.server.url()).await;
        let mut chunks = client.get_file(with_token(&self.work, request)).await?.into_inner();
        Ok(chunks.message().await?.expect("a chunk").bytes)
    }

    /// All that an attempt printed.
    async fn prints(
        &self,
        worker: &str,
        attempt: &proto::AttemptRef,
        text: &str,
    ) -> Result<proto::LogAck, Status> {
        let chunk = proto::LogChunk {
            attempt: Some(attempt.clone()),
            worker: worker.to_owned(),
            offset: 0,
            bytes: text.as_bytes().to_vec().into(),
            last: true,
        };
        let mut client = client(&self.server.url()).await;
        Ok(client.send_log(with_token(&self.work, chunk)).await?.into_inner())
    }
}

fn token(place: &Place, scope: &[&str]) -> String {
    let data = place.text("data");
    let args = [&["token", "create", "--data", &data, "--scope"], scope].concat();
    place.call(&args).trim().to_owned()
}

/// The attack that once worked: a refused hello told the victim's incarnation, with it the session was taken over,
/// its assignments were read, and its job ended as the attacker liked.
#[test]
fn a_workers_token_does_not_take_another_workers_session_over() {
    let scene = Scene::new();
    let victim = scene.place.worker(&scene.server.url(), "victim");
    let _victim = victim.env("STEADFAST_TOKEN", &scene.work).start();
    scene.until_worker("victim", "connected");
    let job = scene.submit(&json!({ "s": {
        "run": gated(&scene.place, "gate"), "env": { "PASSWORD": "hunter2" },
    } }));
    scene.place.has_lines("ran", 1);
    scene.runtime.block_on(async {
        for (incarnation, proof, returning) in
            [("guessed", vec![], false), ("played", vec![0; 32], true), ("victim", vec![1], true)]
        {
            let incarnation = incarnation.to_owned();
            let hello = proto::Hello { incarnation, proof, returning, ..hello("victim") };
            let refused = scene.tries(hello).await.err().expect("it is another's name");
            assert_eq!(refused.code(), Code::AlreadyExists);
            let told = refused.message();
            assert!(told.starts_with("a worker named victim is connected already"), "{told}");
            assert!(!told.contains("incarnation"), "{told}");
        }
    });
    scene.server.process.says("WorkerRefused");
    let said = scene.server.process.said();
    assert!(!said.contains("WorkerAway"), "the victim was disturbed: {said}");
    scene.place.open("gate");
    let status = scene.end(&job);
    assert_eq!(
        (&status["state"], &item(&status)["attempts"][0]["worker"]),
        (&json!("succeeded"), &json!("victim"))
    );
    assert_ne!(item(&status)["output"], "forged");
}

#[test]
fn after_a_restart_of_the_server_a_name_is_still_its_workers() {
    let mut scene = Scene::new();
    let job = scene.submit(&json!({ "s": { "run": "true", "env": { "PASSWORD": "hunter2" } } }));
    let (attempt, proof) = scene.runtime.block_on(async {
        let mut victim = scene.comes("victim").await;
        (victim.is_assigned().await, victim.welcome.proof.clone())
    });
    scene.server.process.signal(rustix::process::Signal::TERM);
    scene.server.process.ends();
    scene.server = scene.place.server().auth_required().lease(30_000).start();
    scene.runtime.block_on(async {
        let thief = proto::Hello { secret: vec![7; 32], returning: true, ..hello("victim") };
        for proof in [vec![], proof.clone(), vec![0; 32]] {
            for holds in [vec![], vec![attempt.clone()]] {
                let thief = proto::Hello { proof: proof.clone(), holds, ..thief.clone() };
                let refused = scene.tries(thief).await.err().expect("it is another's name");
                assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
            }
        }
        let (returning, holds) = (true, vec![attempt.clone()]);
        let back = proto::Hello { proof, returning, holds, ..hello("victim") };
        let mut victim = scene.tries(back).await.expect("its own name");
        assert!(victim.reports(&attempt, r#""its own""#).await, "its report counts");
    });
    let status = scene.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
}

#[test]
fn a_report_counts_only_from_the_worker_that_the_attempt_was_assigned_to() {
    let scene = Scene::new();
    let job = scene.submit(&json!({ "s": { "run": "true" } }));
    scene.runtime.block_on(async {
        let mut victim = scene.comes("victim").await;
        let attempt = victim.is_assigned().await;
        let mut attacker = scene.comes("attacker").await;
        // Fences are small numbers: guessed, and even with the proof of the victim.
        let guessed = proto::AttemptRef { proof: vec![], ..attempt.clone() };
        let stolen = attempt.clone();
        let random = proto::AttemptRef { proof: vec![0; 16], ..attempt.clone() };
        for forged in [&guessed, &stolen, &random] {
            assert!(!attacker.reports_success(forged).await, "{forged:?}");
        }
        for changed in [
            proto::AttemptRef { index: 1, ..attempt.clone() },
            proto::AttemptRef { attempt: 2, ..attempt.clone() },
            proto::AttemptRef { job_id: "other".to_owned(), ..attempt.clone() },
        ] {
            assert!(!victim.reports_success(&changed).await, "{changed:?}");
        }
        // What it says that it holds is not believed either.
        let claims = proto::Hello {
            holds: vec![stolen],
            returning: true,
            name: "claims".to_owned(),
            ..hello("attacker")
        };
        let mut claims = scene.tries(claims).await.expect("a name of its own");
        assert!(matches!(claims.hears().await, to_worker::Kind::Withdrawal(_)));
        scene.server.process.says("the attempt was not assigned to this worker");
        assert_eq!(scene.status(&job)["state"], "running");
        assert!(victim.reports(&attempt, r#""its own""#).await);
    });
    let status = scene.end(&job);
    assert_eq!(
        (&status["state"], &item(&status)["output"]),
        (&json!("succeeded"), &json!("its own"))
    );
}

#[test]
fn a_worker_writes_the_logs_of_its_own_attempts_and_nothing_else() {
    let scene = Scene::with_a_data_folder();
    let job = scene.submit(&json!({ "ours": { "run": "true" }, "theirs": { "run": "true" } }));
    let log = |step: &str| {
        scene.place.path("data").join(format!("logs/{job}/{step}/{step}_0_attempt_1.log"))
    };
    scene.runtime.block_on(async {
        let (mut one, mut other) = (scene.comes("one").await, scene.comes("other").await);
        let (mine, theirs) = (one.is_assigned().await, other.is_assigned().await);
        assert_ne!(mine.step_name, theirs.step_name);
        let whole = proto::LogAck { length: 7, complete: true };
        assert_eq!(scene.prints("other", &theirs, "theirs\n").await.expect("is its own"), whole);
        let odd = [
            proto::AttemptRef { job_id: "z/../../../pwned".to_owned(), ..mine.clone() },
            proto::AttemptRef { step_name: "../../../../pwned".to_owned(), ..mine.clone() },
            proto::AttemptRef { step_name: theirs.step_name.clone(), ..mine.clone() },
            proto::AttemptRef { attempt: 9, ..mine.clone() },
            theirs.clone(),
        ];
        for forged in &odd {
            let refused = scene.prints("one", forged, "pwned\n").await.expect_err("not its own");
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        }
        // Nor under another's name, nor under one that is not here.
        let refused = scene.prints("other", &mine, "pwned\n").await.expect_err("not that one's");
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let refused = scene.prints("nobody", &mine, "pwned\n").await.expect_err("nobody");
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        // Also after its end: a log follows the report.
        assert!(one.reports_success(&mine).await);
        scene.prints("one", &mine, "mine\n").await.expect("its own");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(read(&log(&mine.step_name)), "mine\n");
        assert_eq!(read(&log(&theirs.step_name)), "theirs\n");
    });
    let mut all = Vec::new();
    every_file(scene.place.path("").as_path(), &mut all);
    let named = |name: &String| name.contains("pwned") || name.contains("attempt_9");
    assert!(!all.iter().any(named), "{all:?}");
    scene.server.process.says("OutputRefused");
}

fn every_file(folder: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        all.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            every_file(&entry.path(), all);
        }
    }
}

#[test]
fn the_files_of_a_job_are_for_workers_that_have_an_attempt_of_it() {
    let scene = Scene::new();
    let folder = scene.place.path("with-file");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("key.txt"), "secret").expect("writes");
    let job = "name: j\nfiles: [key.txt]\nsteps: { s: { run: 'true' } }\n";
    std::fs::write(folder.join("job.yaml"), job).expect("writes");
    let file = folder.join("job.yaml").display().to_string();
    let url = scene.server.url();
    scene.place.call(&["submit", &file, "--server", &url, "--token", &scene.admin]);
    scene.runtime.block_on(async {
        let mut victim = scene.comes("victim").await;
        let attempt = victim.is_assigned().await;
        let _attacker = scene.comes("attacker").await;
        let guessed = proto::AttemptRef { proof: vec![], ..attempt.clone() };
        let named = proto::AttemptRef { job_id: attempt.job_id.clone(), ..Default::default() };
        for (forged, worker) in [
            (&guessed, "victim"),
            (&guessed, "attacker"),
            (&attempt, "attacker"),
            (&named, "victim"),
            (&named, ""),
        ] {
            let refused = scene.file(forged, worker).await.expect_err("it is not theirs");
            assert_eq!(refused.code(), Code::PermissionDenied, "{worker}: {refused}");
        }
        assert_eq!(scene.file(&attempt, "victim").await.expect("its own"), b"secret");
        assert!(victim.reports(&attempt, "null").await);
        let over = scene.file(&attempt, "victim").await.expect_err("it holds it no more");
        assert_eq!(over.code(), Code::PermissionDenied);
    });
}

#[test]
fn a_bound_token_lets_in_no_other_name_datacenter_or_labels() {
    let scene = Scene::new();
    let bound = token(
        &scene.place,
        &["worker", "--worker", "rack-3", "--datacenter", "eu", "--label", "pool=gpu"],
    );
    let labels = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let right = proto::Hello {
        datacenter: "eu".to_owned(),
        labels: labels(&[("pool", "gpu")]),
        ..hello("rack-3")
    };
    let wrong = [
        (proto::Hello { name: "rack-4".to_owned(), ..right.clone() }, "another worker"),
        (proto::Hello { datacenter: "us".to_owned(), ..right.clone() }, "another datacenter"),
        (proto::Hello { labels: labels(&[]), ..right.clone() }, "other labels"),
        (
            proto::Hello { labels: labels(&[("pool", "gpu"), ("secure", "1")]), ..right.clone() },
            "other labels",
        ),
    ];
    let url = scene.server.url();
    scene.runtime.block_on(async {
        for (hello, why) in wrong {
            let refused = Played::tries(&url, &bound, hello).await.err().expect("refused");
            assert_eq!(refused.code(), Code::PermissionDenied);
            assert!(refused.message().contains(why), "{refused}");
        }
        // A next life without the secret of the first is let in by the token, once the first is gone.
        drop(Played::tries(&url, &bound, right.clone()).await.expect("as it is bound"));
        scene.until_worker("rack-3", "away");
        let next = proto::Hello { secret: vec![9; 32], incarnation: "2".to_owned(), ..right };
        Played::tries(&url, &bound, next).await.expect("it is its name");
    });
    let data = scene.place.text("data");
    let listed = scene.place.call(&["token", "list", "--data", &data]);
    assert!(listed.contains("worker rack-3, datacenter eu, pool=gpu"), "{listed}");
    let mut refused = scene
        .place
        .command(&["token", "create", "--scope", "read", "--worker", "w", "--data", &data]);
    let refused = refused.output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn a_token_that_is_revoked_or_expires_ends_the_sessions_that_it_began() {
    let scene = Scene::with_a_data_folder();
    let data = scene.place.text("data");
    let short = token(&scene.place, &["worker", "--expires", "3s"]);
    let url = scene.server.url();
    let id = scene.work.split('_').nth(1).expect("an id").to_owned();
    scene.runtime.block_on(async {
        let mut revoked = scene.comes("revoked").await;
        let mut unbeating = scene.comes("unbeating").await;
        let mut expired = Played::tries(&url, &short, hello("expired")).await.expect("a session");
        scene.has_heard(&mut revoked, 1).await;
        scene.place.call(&["token", "revoke", &id, "--data", &data]);
        revoked.beats(2).await;
        let ended = revoked.hears_or_ends().await.expect_err("it is over");
        assert_eq!(ended.code(), Code::Unauthenticated);
        assert!(ended.message().contains("the token was revoked"), "{ended}");
        let ended = loop {
            expired.beats(1).await;
            match expired.hears_or_ends().await {
                Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                Err(ended) => break ended,
            }
        };
        assert!(ended.message().contains("the token has expired"), "{ended}");
        // One that has not beaten since gets no job either: the session ends instead.
        scene.submit(&json!({ "s": { "run": "true" } }));
        let ended = unbeating.hears_or_ends().await.expect_err("no assignment");
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
        let refused = scene.tries(hello("revoked")).await.err().expect("a wrong token");
        assert_eq!(refused.code(), Code::Unauthenticated);
    });
    scene.server.process.says("WorkerSessionEnded");
}

/// It once took the server to 9.6 GiB.
#[test]
fn a_worker_that_beats_without_reading_loses_its_session() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        let deaf = scene.comes("deaf").await;
        let mut number = 0;
        // Without a pause, until nobody takes them any more: not `deaf.hears()`.
        loop {
            number += 1;
            let kind = Some(from_worker::Kind::Beat(proto::Beat { number }));
            if deaf.say.send(proto::FromWorker { kind }).await.is_err() {
                break;
            }
            if number % 1000 == 0 && scene.server.process.said().contains("WorkerSessionEnded") {
                break;
            }
        }
    });
    scene.server.process.says("the worker does not read what it is told");
    let bearer = format!("Bearer {}", scene.admin);
    let page = scene.server.ask("GET", "/metrics", &[("Authorization", &bearer)], "");
    let page = page.expect("an answer").body;
    let counted = r#"steadfast_worker_sessions_ended_total{reason="unread"} 1"#;
    assert!(page.contains(counted), "{page}");
}

#[test]
fn a_worker_that_is_silent_for_two_leases_loses_its_session() {
    let scene = Scene::with_lease(1000);
    scene.runtime.block_on(async {
        let mut silent = scene.comes("silent").await;
        scene.has_heard(&mut silent, 1).await;
        let ended = silent.hears_or_ends().await.expect_err("nothing was said to it");
        assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended}");
        assert!(ended.message().contains("silent for longer than its lease"), "{ended}");
        // It may come again, and speaks for itself then.
        let mut again = scene.comes("silent").await;
        scene.has_heard(&mut again, 1).await;
    });
    scene.server.process.says("WorkerSessionEnded");
}

#[test]
fn a_worker_has_as_many_labels_as_a_step_and_no_more() {
    let scene = Scene::new();
    let labelled = |count: usize| {
        let labels = (0..count).map(|n| (format!("l{n}"), "x".to_owned())).collect();
        proto::Hello { labels, ..hello("labelled") }
    };
    scene.runtime.block_on(async {
        let refused = scene.tries(labelled(65)).await.err().expect("one too many");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert_eq!(refused.message(), "a worker has at most 64 labels, not 65");
        scene.tries(labelled(64)).await.expect("a session");
    });
}

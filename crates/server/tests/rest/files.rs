//! Files that come with a job.

use super::*;

fn with_files(file: &str, files: &[(&str, &str)]) -> Value {
    let files: Vec<Value> = (files.iter())
        .map(|(path, content)| {
            json!({"path": path, "content_base64": STANDARD.encode(content), "executable": true})
        })
        .collect();
    json!({"file": file, "files": files})
}

#[tokio::test]
async fn files_are_there_before_the_job_is_and_stay_inside_its_folder() {
    let server = Server::start().await;
    let submit = |body: Value| {
        let request = server.client.post(format!("{}/v1/jobs", server.url));
        let request = request.header("content-type", "application/vnd.steadfast.submission+json");
        Answer::of(request.body(body.to_string()))
    };
    let file = "name: f\nfiles: [a.sh]\nsteps: { a: { run: ok, files: [lib] } }";
    let answer = submit(with_files(file, &[("./a.sh", "echo"), ("lib/x/y", "data")])).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let kept = server.folder.files(answer.json["id"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(kept.join("a.sh")).unwrap(), "echo");
    assert_eq!(std::fs::read_to_string(kept.join("lib/x/y")).unwrap(), "data");

    let missing = submit(with_files(file, &[("a.sh", "echo")])).await;
    missing.is_problem(400, "bad_request");
    assert!(missing.json["detail"].as_str().unwrap().contains("lib"), "{missing:?}");
    assert_eq!(missing.json["missing"], json!(["lib"]));
    for hostile in ["../a.sh", "/etc/a.sh", "lib/../../a", "lib/\0", "", "lib/", "other"] {
        let files = [("a.sh", "x"), ("lib/x", "y"), (hostile, "z")];
        submit(with_files(file, &files)).await.is_problem(400, "bad_request");
    }
    let twice = [("a.sh", "x"), ("lib/x", "y"), ("lib/x/z", "z")];
    submit(with_files(file, &twice)).await.is_problem(400, "bad_request");
    let folders = std::fs::read_dir(server.folder.root().join("files")).unwrap();
    assert_eq!(folders.count(), 1, "nothing stays of what was refused");

    let source = Answer::of(server.submission("name: f\ncwd: source\nsteps: { a: { run: ok } }"));
    let source = source.await;
    source.is_problem(400, "bad_request");
    assert!(source.json["detail"].as_str().unwrap().contains("cwd"), "{source:?}");
}

#[tokio::test]
async fn an_ended_job_is_run_again_as_a_new_one_with_its_files() {
    let server = Server::start().await;
    let file = "name: f\nfiles: [a.sh]\nretry: { max_attempts: 1 }\nsteps: { a: { run: fail } }";
    let request = server.client.post(format!("{}/v1/jobs", server.url));
    let request = request.header("content-type", "application/vnd.steadfast.submission+json");
    let body = with_files(file, &[("a.sh", "echo")]).to_string();
    let answer = Answer::of(request.body(body)).await;
    let id = answer.json["id"].as_str().unwrap();
    server.until_over(id).await;
    let retry = |body: Value, key: &str| {
        let request = server.client.post(format!("{}/v1/jobs/{id}/retry", server.url));
        Answer::of(request.json(&body).header("idempotency-key", key.to_owned()))
    };
    let again = retry(json!({"grant": 2}), "r").await;
    assert_eq!(again.status, 201, "{again:?}");
    let new = again.json["id"].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(server.folder.files(new).join("a.sh")).unwrap(), "echo");
    let told = server.until_over(new).await;
    assert_eq!(told.iter().filter(|told| told.event == "AttemptStarted").count(), 2);
    let status = server.get(&format!("/v1/jobs/{new}")).await;
    assert_eq!(status.json["retried_from"], id);
    let same = retry(json!({"grant": 2}), "r").await;
    assert_eq!((same.status, &same.json["id"]), (200, &again.json["id"]));
    retry(json!({"grant": 3}), "r").await.is_problem(409, "idempotency_conflict");
    retry(json!({"from": "zzz"}), "s").await.is_problem(404, "not_found");
    retry(json!({"grand": 1}), "s").await.is_problem(400, "bad_request");
    let slow = server.submit(HOLD).await;
    server.post(&format!("/v1/jobs/{slow}/retry")).await.is_problem(409, "not_possible");
}

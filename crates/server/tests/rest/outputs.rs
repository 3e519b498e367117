//! Bodies and answers that are too large to be held.

use serde_json::{Value, json};
use steadfast_server::unread::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{Answer, LARGE, Server, UNREAD};

#[tokio::test]
async fn a_callback_with_a_token_that_is_none_is_refused_before_its_body_comes() {
    let server = Server::start().await;
    let address = server.url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = "POST /v1/callbacks/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    let patience = std::time::Duration::from_secs(20);
    let answered = tokio::time::timeout(patience, stream.read_exact(&mut status)).await;
    answered.expect("it does not wait for the body").unwrap();
    assert_eq!(&status, b"HTTP/1.1 401");
}

#[tokio::test]
async fn outputs_that_are_too_large_for_a_status_are_read_page_by_page() {
    let server = Server::start().await;
    let job =
        "name: large\nsteps:\n  each: { for_each: { range: 12 }, run: large }\n  one: { run: ok }";
    let id = server.submit(job).await;
    server.until_over(&id).await;
    let status = server.get(&format!("/v1/jobs/{id}")).await.json;
    let text = status.to_string();
    assert!(text.len() < 4 << 20, "{} bytes", text.len());
    let items = status["runs"][0]["steps"]["each"]["items"].as_array().unwrap();
    let (shown, left_out): (Vec<&Value>, Vec<&Value>) =
        items.iter().partition(|item| item["output_left_out"].is_null());
    assert_eq!((shown.len(), left_out.len()), (1, 11));
    assert!(shown[0]["output"].is_string() && left_out.iter().all(|item| item["output"].is_null()));
    let result = &status["result"];
    assert_eq!(result["outputs"]["each"].as_array().unwrap().len(), 1);
    assert_eq!(result["left_out"]["each"], 11);
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/jobs/{id}/outputs?limit=50{cursor}")).await;
        assert_eq!(page.status, 200);
        assert!(page.json.to_string().len() < 6 << 20);
        all.extend(page.json["outputs"].as_array().unwrap().clone());
        let Some(next) = page.json["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let places: Vec<(&str, u64)> = (all.iter())
        .map(|row| (row["step"].as_str().unwrap(), row["item"].as_u64().unwrap()))
        .collect();
    let expected: Vec<(&str, u64)> =
        (0..12).map(|item| ("each", item)).chain([("one", 0)]).collect();
    assert_eq!(places, expected);
    assert!(all[..12].iter().all(|row| row["output"].as_str().unwrap().len() == LARGE));
    let one = server.get(&format!("/v1/jobs/{id}/outputs?step=one")).await.json;
    let row = json!({"datacenter": null, "step": "one", "item": 0, "output": "done"});
    assert_eq!(one, json!({"outputs": [row], "next": null}));
    for wrong in ["x", "1.2", "1.2.3.4", "-1.0.0", "0.0.99999999999"] {
        let path = format!("/v1/jobs/{id}/outputs?cursor={wrong}");
        server.get(&path).await.is_problem(400, "bad_cursor");
    }
    server.get(&format!("/v1/jobs/{id}/outputs?step=nowhere")).await.is_problem(404, "not_found");
}

/// 200 pages that were being made at the same time once took 1.9 GiB, before any of them could be refused.
#[tokio::test]
async fn events_count_as_unread_while_their_page_is_made() {
    let server = Server::start().await;
    let job = "name: large\nsteps: { each: { for_each: { range: 12 }, run: large } }";
    let id = server.submit(job).await;
    let count = server.until_over(&id).await.len() - 1;
    let page = async |after: u64| {
        let url = format!("{}/v1/jobs/{id}/events?limit=1000&after={after}", server.url);
        Answer::of(server.client.get(url).header("as-token", "reader")).await
    };
    let unread = server.unread.allowance(Client::Token("reader".to_owned())).hold(UNREAD);
    page(0).await.is_problem(429, "too_much_unread");
    drop(unread);
    // Each is as much as may be unread, and together they are all.
    let (mut after, mut seen) = (0, 0);
    loop {
        let answer = page(after).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.text.len() < UNREAD + (1 << 20), "{} bytes", answer.text.len());
        seen += answer.json["events"].as_array().unwrap().len();
        let Some(next) = answer.json["next"].as_u64() else { break };
        after = next;
    }
    assert_eq!(seen, count);
}

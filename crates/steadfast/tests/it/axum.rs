//! The example of a web service, served.

use serde_json::{Value, json};
use steadfast::Embedded;

use crate::server::{LONG, wait};

#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../../examples/axum.rs"]
mod example;

#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_axum_submit_look_and_cancel() {
    let folder = tempfile::tempdir().unwrap();
    let steadfast =
        Embedded::open(folder.path()).worker(example::worker()).start().await.expect("an engine");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let orders = format!("http://{}/orders", listener.local_addr().unwrap());
    let serving = axum::serve(listener, example::app(steadfast.client().clone()));
    let serving = tokio::spawn(serving.into_future());

    let http = reqwest::Client::builder().no_proxy().timeout(LONG).build().unwrap();
    let placed = http.post(&orders).json(&json!({ "item": "book", "count": 2 })).send().await;
    let placed = placed.unwrap().error_for_status().unwrap();
    assert_eq!(placed.status(), 201);
    let id = placed.text().await.unwrap();
    wait(steadfast.client(), &id).await;
    let looked = http.get(format!("{orders}/{id}")).send().await.unwrap();
    let looked: Value = looked.json().await.unwrap();
    assert_eq!(
        looked,
        json!({
            "state": "succeeded",
            "shipped": "2 × book shipped",
            "failures": 1,
            "log": "attempt 1 to ship 2 × book\nattempt 2 to ship 2 × book\n",
        })
    );
    let late = http.delete(format!("{orders}/{id}")).send().await.unwrap();
    assert_eq!(late.status(), 409, "it has ended");
    let none = http.get(format!("{orders}/01ARZ3NDEKTSV4RRFFQ69G5FAV")).send().await.unwrap();
    assert_eq!(none.status(), 404);
    serving.abort();
    steadfast.stop().await.unwrap();
}

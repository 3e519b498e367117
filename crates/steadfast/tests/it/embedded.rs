//! The engine inside the program.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{
    AttemptStatus, Client, Context, Embedded, EmbeddedError, Error, Http, Job, Retry, Step, Worker,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::server::{LONG, wait};

async fn open(folder: &Path, worker: Worker) -> Embedded {
    Embedded::open(folder).worker(worker).start().await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_on_when_the_folder_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Arc::new(Notify::new());
    let tell = begun.clone();
    let hangs = Worker::builder().function("slow", move |ctx: Context, (): ()| {
        let tell = tell.clone();
        async move {
            ctx.heartbeat("begun")?;
            tell.notify_one();
            std::future::pending::<()>().await;
            Ok::<_, Error>(String::new())
        }
    });
    let hangs = hangs.drain_grace(Duration::from_millis(10)).build();
    let steadfast = open(folder.path(), hangs).await;
    let once = Retry::new().max_attempts(1);
    let job = Job::new("resumed").step(Step::call("s", "slow").retry(once));
    let id = steadfast.client().submit(&job).await.unwrap();
    tokio::time::timeout(LONG, begun.notified()).await.expect("it begins");
    steadfast.stop().await.unwrap();

    let ends = Worker::builder().function("slow", |ctx: Context, (): ()| async move {
        Ok::<_, Error>((ctx.attempt(), ctx.previous_progress::<String>()?))
    });
    let steadfast = open(folder.path(), ends.build()).await;
    let status = wait(steadfast.client(), &id).await;
    let given = status.output::<(u32, Option<String>)>("s").unwrap();
    assert_eq!(given, Some((2, Some("begun".to_owned()))), "{status:?}");
    assert_eq!((status.failures, status.preemptions), (0, 1));
    steadfast.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_has_one_engine_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = Embedded::open(folder.path()).start().await.unwrap();
    match Embedded::open(folder.path()).start().await {
        Err(EmbeddedError::Start(why)) => assert!(why.contains("another server"), "{why}"),
        other => panic!("{other:?}"),
    }
    first.stop().await.unwrap();
    Embedded::open(folder.path()).start().await.unwrap().stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_further_clients_and_workers_work_within_too() {
    let folder = tempfile::tempdir().unwrap();
    let worker = Worker::builder().processes(folder.path().join("worker")).name("shell").build();
    let steadfast = open(&folder.path().join("data"), worker).await;
    let further = Worker::builder()
        .name("further")
        .function(
            "shout",
            |_: Context, text: String| async move { Ok::<_, Error>(text.to_uppercase()) },
        )
        .build();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(further.run_until(steadfast.server(), stopped));
    let client = Client::connect(steadfast.server()).await.unwrap();
    let job =
        Job::new("both").step(Step::run("say", r#"echo '"hello"' > "$STEADFAST_OUTPUT""#)).step(
            Step::call("shout", "shout").needs(["say"]).input(&"{{ steps.say.output }}").unwrap(),
        );
    let id = client.submit(&job).await.unwrap();
    let status = wait(&client, &id).await;
    assert_eq!(status.output::<String>("shout").unwrap().as_deref(), Some("HELLO"));
    let by =
        |step: &str| -> Vec<AttemptStatus> { status.step(step).unwrap().items[0].attempts.clone() };
    assert_eq!((&*by("say")[0].worker, &*by("shout")[0].worker), ("shell", "further"));
    drop((client, stop));
    tokio::time::timeout(LONG, working).await.expect("it leaves").unwrap().unwrap();
    steadfast.stop().await.unwrap();
}

/// Answers one request.
async fn service(answer: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        stream.write_all(head.as_bytes()).await.unwrap();
    });
    format!("http://{address}/")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_may_calls_web_services() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = "loopback".parse().unwrap();
    let steadfast = open(folder.path(), Worker::builder().services([allowed]).build()).await;
    let url = service(r#"{"success": true, "output": 7}"#).await;
    let job = Job::new("service").step(Step::http("call", Http::new(url)));
    let id = steadfast.client().submit(&job).await.unwrap();
    let status = wait(steadfast.client(), &id).await;
    assert_eq!(status.output::<u32>("call").unwrap(), Some(7), "{status:?}");

    let later = Http::new("http://127.0.0.1:1/").answers_later();
    let job = Job::new("later").step(Step::http("call", later));
    let refused = steadfast.client().submit(&job).await;
    let why = refused.expect_err("nobody could call back").to_string();
    assert!(why.contains("mode: async"), "{why}");
    steadfast.stop().await.unwrap();
}

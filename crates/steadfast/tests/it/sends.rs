//! Every future of the library can be awaited in a task of its own, and in a handler of a web server. That it
//! compiles is the test.

use steadfast::{
    Client, ClientError, Context, Embedded, EmbeddedBuilder, Job, LogQuery, Query, RetryOptions,
    Worker,
};

fn can_be_sent<T: Send>(value: T) -> T {
    value
}

#[allow(dead_code, reason = "compiled, never called")]
async fn of_a_client(client: &Client, job: &Job) -> Result<(), ClientError> {
    can_be_sent(Client::connect("http://127.0.0.1:1")).await?;
    can_be_sent(client.submit(job)).await?;
    can_be_sent(client.submit_with_key(job, "key")).await?;
    can_be_sent(client.submit_file("steps: {}", "key")).await?;
    can_be_sent(client.status("id")).await?;
    can_be_sent(client.wait("id")).await?;
    drop(can_be_sent(client.watch("id")));
    can_be_sent(client.list(&Query::new())).await?;
    can_be_sent(client.cancel("id")).await?;
    can_be_sent(client.pause("id")).await?;
    can_be_sent(client.resume("id")).await?;
    can_be_sent(client.retry("id", &RetryOptions::new())).await?;
    can_be_sent(client.logs("id", &LogQuery::new())).await?;
    can_be_sent(client.explain("id")).await?;
    Ok(())
}

#[allow(dead_code, reason = "compiled, never called")]
async fn of_the_rest(
    ctx: Context,
    [one, two]: [Worker; 2],
    builder: EmbeddedBuilder,
    embedded: Embedded,
) {
    can_be_sent(ctx.cancelled()).await;
    let _ = can_be_sent(one.run("http://127.0.0.1:1")).await;
    let _ = can_be_sent(two.run_until("http://127.0.0.1:1", std::future::ready(()))).await;
    let _ = can_be_sent(builder.start()).await;
    let _ = can_be_sent(embedded.stop()).await;
}

/// As a user would write it, with what it borrows inside.
#[tokio::test]
async fn a_client_works_in_a_task_of_its_own() {
    let server = crate::server::Server::start().await;
    let client = server.client().await;
    let tasks = (0..2).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let job = Job::new(format!("j{number}")).step(steadfast::Step::run("s", "true"));
            let id = client.submit(&job).await?;
            client.status(&id).await?;
            client.cancel(&id).await?;
            client.list(&Query::new()).await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert!(!task.await.expect("no panic").expect("a server").is_empty());
    }
}

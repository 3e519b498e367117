//! Two functions, a flaky one among them, in a program that needs nothing else.
//!
//!     cargo run -p steadfast --example hello

use std::time::Duration;

use steadfast::{Context, Embedded, Error, Job, Retry, Step, Worker};

/// Fails twice, as downloads do.
async fn fetch(ctx: Context, (): ()) -> Result<Vec<String>, Error> {
    println!("fetch: attempt {}", ctx.attempt());
    if ctx.attempt() < 3 {
        return Err(Error::new("connection reset by peer"));
    }
    Ok(vec!["Ada".to_owned(), "Grace".to_owned(), "Barbara".to_owned()])
}

async fn greet(_: Context, name: String) -> Result<String, Error> {
    Ok(format!("Hello, {name}!"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // What was accepted is in this folder, and goes on after a crash.
    let data = std::env::temp_dir().join("steadfast-hello");
    let worker = Worker::builder().function("fetch", fetch).function("greet", greet).build();
    let steadfast = Embedded::open(data).worker(worker).start().await?;

    let patient = Retry::new().max_attempts(5).initial_delay(Duration::from_millis(100));
    let job = Job::new("hello").step(Step::call("fetch", "fetch").retry(patient)).step(
        Step::call("greet", "greet")
            .needs(["fetch"])
            .for_each_output("fetch")
            .input(&"{{ item }}")?,
    );
    let id = steadfast.client().submit(&job).await?;
    let status = steadfast.client().wait(&id).await?;
    for greeting in status.outputs::<String>("greet")?.into_iter().flatten() {
        println!("{greeting}");
    }
    println!("{:?} after {} failures", status.state, status.failures);
    steadfast.stop().await?;
    Ok(())
}

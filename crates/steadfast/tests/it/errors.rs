//! What functions may fail with.

use std::error::Error as StdError;
use std::num::ParseIntError;

use steadfast::{Context, Error, Job, Retry, Step, Worker};

use crate::server::{Server, ended};

fn standard() -> Result<u32, ParseIntError> {
    "x".parse()
}

fn of_anyhow() -> anyhow::Result<u32> {
    use anyhow::Context as _;
    standard().context("the rows are no number")
}

fn boxed() -> Result<u32, Box<dyn StdError + Send + Sync>> {
    Ok(standard()?)
}

fn boxed_here() -> Result<u32, Box<dyn StdError>> {
    Ok(standard()?)
}

#[test]
fn any_error_becomes_one_with_its_causes() {
    fn all(which: u32) -> Result<u32, Error> {
        match which {
            0 => Ok(standard()?),
            1 => Ok(of_anyhow()?),
            2 => Ok(boxed()?),
            3 => Ok(boxed_here().map_err(Error::boxed)?),
            4 => Err("said so")?,
            _ => Err(format!("number {which}"))?,
        }
    }
    let digit = "invalid digit found in string";
    let said: Vec<String> = (0..6).map(|which| all(which).unwrap_err().to_string()).collect();
    let anyhow = format!("the rows are no number: {digit}");
    assert_eq!(said, [digit, &anyhow, digit, digit, "said so", "number 5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_return_whatever_error_they_like() {
    let server = Server::start().await;
    let worker = Worker::builder()
        .function("standard", |_: Context, (): ()| async { standard() })
        .function("anyhow", |_: Context, (): ()| async { of_anyhow() })
        .function("boxed", |_: Context, (): ()| async { boxed() })
        .function("boxed_here", |_: Context, (): ()| async { boxed_here() })
        .function("text", |_: Context, (): ()| async { Err::<(), _>("no rows") });
    let _working = server.work(worker.build());
    let client = server.client().await;
    for (function, said) in [
        ("standard", "invalid digit"),
        ("anyhow", "the rows are no number: invalid digit"),
        ("boxed", "invalid digit"),
        ("boxed_here", "invalid digit"),
        ("text", "no rows"),
    ] {
        let once = Retry::new().max_attempts(1);
        let job = Job::new("errors").step(Step::call("s", function).retry(once));
        let error = ended(&client, &job).await.error.expect("an error");
        assert!(error.contains(said), "{function}: {error}");
    }
}

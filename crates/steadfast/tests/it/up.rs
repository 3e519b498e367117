//! A program of the user who has started `steadfast up` is let in without being given a token.

use std::process::Command;

use steadfast::{ClientError, Context, Error, Job, Step, Worker};
use steadfast_core::time::Timestamp;
use steadfast_server::tokens::{Scope, Tokens};
use steadfast_worker::remote::{LocalTokens, Token};

use crate::server::{Server, ended, wait};

/// Set where the test runs alone in a process: the folder in which `up` leaves its tokens is the environment's.
const ALONE: &str = "STEADFAST_TEST_ALONE";
const NAME: &str = "up::a_program_of_the_same_user_finds_the_token_of_up";

/// What an `up` at this port leaves, and the ids of its tokens.
fn leave(server: &Server, tokens: &Tokens) -> (LocalTokens, [String; 2]) {
    let created = [Scope::Admin, Scope::Worker]
        .map(|scope| tokens.create(scope, None, None, Timestamp(0)).expect("a token"));
    let port = server.address.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let [client, worker] = created.each_ref().map(|token| Token(token.text.clone()));
    let left = LocalTokens::leave(port, &client, &worker).expect("left");
    (left, created.map(|token| token.id))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_same_user_finds_the_token_of_up() {
    if std::env::var_os(ALONE).is_none() {
        let state = tempfile::tempdir().expect("a folder");
        let mut alone = Command::new(std::env::current_exe().expect("a path"));
        alone.args(["--exact", NAME, "--nocapture"]);
        alone.env(ALONE, "1").env("XDG_STATE_HOME", state.path());
        let output = alone.output().expect("starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        return;
    }
    let (server, tokens) = Server::with_tokens().await;
    let job = Job::new("j").step(Step::call("s", "nothing"));
    let refused = server.client().await.submit(&job).await;
    assert!(matches!(refused, Err(ClientError::NotAllowed(_))), "{refused:?}");

    let (left, ids) = leave(&server, &tokens);
    let client = server.client().await;
    let nothing = |_: Context, (): ()| async { Ok::<_, Error>(()) };
    let working = server.work(Worker::builder().function("nothing", nothing).build());
    assert!(ended(&client, &job).await.is_success());
    working.stop().await;

    // Another `up` at the same port has tokens of its own, and the same client goes on with them.
    drop(left);
    for id in &ids {
        tokens.revoke(id).expect("there");
    }
    let refused = client.submit(&job).await;
    assert!(matches!(refused, Err(ClientError::NotAllowed(_))), "{refused:?}");
    let _left = leave(&server, &tokens);
    let id = client.submit(&job).await.expect("let in again");
    let working = server.work(Worker::builder().function("nothing", nothing).build());
    assert!(wait(&client, &id).await.is_success());
    working.stop().await;
}

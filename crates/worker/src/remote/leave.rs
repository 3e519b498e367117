//! Leaving: when all servers want us to, once what runs has ended; when we are told to go, within a grace.

use std::time::Duration;

use tokio::time::timeout;

use super::worker::Worker;
use super::{ShutdownRequest, ShutdownSignal, blocking};
use crate::executor::PREEMPTED;
use crate::prepare::MARK;
use crate::processes::terminate_marked;

/// How long killed processes may take to be gone, and the server to acknowledge the last reports. What it has
/// not acknowledged by then is on disk, for the next life.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// How long the end of the session may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// Returns when it is time to go.
pub(super) async fn leave(worker: &Worker, ShutdownSignal(mut orders): ShutdownSignal) {
    let told = tokio::select! {
        told = at_least(&mut orders, ShutdownRequest::Drain) => told,
        () = drained(worker) => return goodbye(worker).await,
    };
    if told == ShutdownRequest::Drain {
        worker.0.drain(PREEMPTED);
        let marks = worker.0.preempt();
        tracing::info!(running = marks.len(), "told to go: what runs is asked to end");
        let asked = blocking(move || terminate_marked(MARK, &marks)).await;
        if let Err(error) = asked {
            tracing::warn!(%error, "what runs cannot be asked to end");
        }
        tokio::select! {
            () = until(worker, Worker::is_idle) => {}
            () = tokio::time::sleep(worker.config.drain_grace) => {}
            _ = at_least(&mut orders, ShutdownRequest::Kill) => {}
        }
    }
    worker.kill_all();
    if timeout(LAST_WAIT, until(worker, Worker::is_idle)).await.is_err() {
        tracing::error!("processes that were killed are still there");
    }
    tokio::select! {
        heard = timeout(LAST_WAIT, until(worker, |worker| worker.is_heard())) => if heard.is_err() {
            tracing::warn!("the server has not taken the last reports; they are kept for the next time");
        },
        _ = at_least(&mut orders, ShutdownRequest::Kill) => {}
    }
    goodbye(worker).await;
}

/// Ends the sessions in order, so that no server need wait for our lease to end.
async fn goodbye(worker: &Worker) {
    worker.say_goodbye();
    let is_gone =
        |worker: &Worker| worker.servers().iter().all(|server| server.state().client.is_none());
    let _ = timeout(GOODBYE, until(worker, is_gone)).await;
}

/// All servers want us gone, and nothing is left.
async fn drained(worker: &Worker) {
    until(worker, Worker::is_drained).await;
}

async fn until(worker: &Worker, what: impl Fn(&Worker) -> bool) {
    let mut changes = worker.changes();
    while !what(worker) {
        // The sender is in the worker.
        let _ = changes.changed().await;
    }
}

async fn at_least(
    orders: &mut tokio::sync::watch::Receiver<ShutdownRequest>,
    least: ShutdownRequest,
) -> ShutdownRequest {
    let told = orders.wait_for(|told| *told >= least).await.map(|told| *told);
    match told {
        Ok(told) => told,
        // Nobody is left who could tell us anything.
        Err(_) => std::future::pending().await,
    }
}

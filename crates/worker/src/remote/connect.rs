//! Reaching each server, again and again, and saying once what is in the way.

use std::panic::resume_unwind;
use std::time::Duration;

use steadfast_api::proto::workers_client::WorkersClient;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::dial::{Connected, Dialer};
use super::link::Link;
use super::worker::Worker;
use super::{PATIENCE, RemoteError, session};

/// Pauses between tries: the first ones short, because a server that restarts is back soon. With a lease none
/// is longer than a tenth of it: what runs has one lease to be saved in, and a server that is back should
/// see us at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const PAUSES_PER_LEASE: u32 = 10;
/// The shortest lease that a server gives has pauses of this.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// The same of one try: on a machine that is not there it would take ten seconds to be noticed.
const TRIES_PER_LEASE: u32 = 5;
/// An assignment carries what earlier steps printed out; the server's own limits are far below.
const LARGEST_MESSAGE: usize = 64 << 20;

pub(super) type Client = WorkersClient<Connected>;

async fn connect(server: &Dialer) -> Result<Client, Status> {
    let client = WorkersClient::new(server.connect().await?);
    Ok(client.max_decoding_message_size(LARGEST_MESSAGE))
}

/// Sessions with all servers, also with those that are learned of meanwhile. Returns when the last of them does not let us
/// in.
pub(super) async fn all(worker: &Worker) -> RemoteError {
    let mut sessions = JoinSet::new();
    let mut changes = worker.changes();
    let mut begun = 0;
    loop {
        changes.mark_unchanged();
        for server in &worker.servers()[begun..] {
            let link = worker.link(server);
            sessions.spawn(async move { one(&link).await });
            begun += 1;
        }
        tokio::select! {
            Some(ended) = sessions.join_next() => {
                let refused = ended.unwrap_or_else(|error| resume_unwind(error.into_panic()));
                if sessions.is_empty() {
                    return refused;
                }
                tracing::error!("{refused}; the worker goes on with its other servers");
            }
            _ = changes.changed() => {}
        }
    }
}

/// One session after the other, for ever; returns what no further try can heal.
async fn one(link: &Link) -> RemoteError {
    let server = &link.server.dialer;
    let mut tries = 0;
    let mut said = String::new();
    loop {
        idle_beside_twin(link).await;
        let lease = link.lease_length();
        let ended = match timeout(longest_try(lease), connect(server)).await {
            Ok(Ok(client)) => session::hold(link, client).await,
            Ok(Err(status)) => session::Ended { answered: false, welcomed: false, status },
            Err(_) => {
                let status = Status::deadline_exceeded("the connection takes too long");
                session::Ended { answered: false, welcomed: false, status }
            }
        };
        if link.is_leaving() {
            return std::future::pending().await;
        }
        let status = ended.status;
        if !link.server.is_welcomed() && will_not_heal(status.code()) {
            let message = status.message().to_owned();
            return RemoteError::Refused { server: server.address().to_owned(), message };
        }
        if ended.welcomed {
            said.clear();
        }
        let reason = reason(link, &status, ended.welcomed);
        if said != reason {
            tracing::warn!(server = server.address(), "{reason}");
            said = reason;
        }
        tries = if ended.answered { 0 } else { tries + 1 };
        link.server.set_tries(tries);
        tokio::time::sleep(pause(tries, longest_pause(link.lease_length()))).await;
    }
}

/// The server is in reach under another of its addresses: a second session would end that one.
async fn idle_beside_twin(link: &Link) {
    loop {
        let twin = link.state().twin.clone();
        if twin.is_none_or(|twin| twin.is_out_of_reach()) {
            return;
        }
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

fn will_not_heal(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument)
}

fn reason(link: &Link, status: &Status, welcomed: bool) -> String {
    let message = status.message();
    match status.code() {
        Code::AlreadyExists => format!(
            "another worker is connected under the name {:?}: {message}. Each worker needs its own \
             name; trying on in case the other one goes",
            link.config.name
        ),
        code if will_not_heal(code) => {
            format!("the server does not let this worker in any more: {message}; trying on")
        }
        Code::Aborted => format!("{message}: this address stays idle while that one is in reach"),
        _ if welcomed => format!("the connection was lost: {message}; what runs goes on"),
        _ => format!("the server cannot be reached: {message}; trying on"),
    }
}

fn longest_pause(lease: Option<Duration>) -> Duration {
    let of_lease = lease.map_or(LONGEST_PAUSE, |lease| lease / PAUSES_PER_LEASE);
    of_lease.clamp(LEAST_PAUSE, LONGEST_PAUSE)
}

fn longest_try(lease: Option<Duration>) -> Duration {
    lease.map_or(PATIENCE, |lease| (lease / TRIES_PER_LEASE).clamp(LONGEST_PAUSE, PATIENCE))
}

/// Doubled with every try, and drawn from its upper half, so that workers who lost the same server do not
/// come back all at once.
fn pause(tries: u32, longest: Duration) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << tries.min(16)).min(longest);
    let half = longest.as_millis() as u64 / 2;
    let draw = getrandom::u64().unwrap_or_default() % (half + 1);
    Duration::from_millis(half + draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 20 s of downtime and pauses of up to 15 s one worker of three came back after its lease.
    #[test]
    fn tries_are_never_further_apart_than_a_second_or_a_tenth_of_the_lease() {
        let ms = Duration::from_millis;
        let cases =
            [(None, 1000), (Some(ms(30_000)), 1000), (Some(ms(3000)), 300), (Some(ms(100)), 10)];
        for (lease, most) in cases {
            let longest = longest_pause(lease);
            for tries in (0..100).chain([u32::MAX]) {
                let pause = pause(tries, longest);
                assert!(!pause.is_zero() && pause <= ms(most), "{lease:?}, {tries}: {pause:?}");
            }
            assert!(pause(u32::MAX, longest) >= longest / 2);
        }
        assert!(longest_try(Some(ms(30_000))) <= ms(6000));
        assert_eq!(longest_try(None), PATIENCE);
    }
}

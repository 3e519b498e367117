//! Reaching the server, again and again, and saying once what is in the way.

use std::sync::Arc;
use std::time::Duration;

use steadfast_api::proto::workers_client::WorkersClient;
use tonic::{Code, Status};

use super::dial::{Connected, Dialer};
use super::hand::Hand;
use super::{RemoteError, session};

/// Pauses between tries: the first ones short, because a server that restarts is back soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// An assignment carries what earlier steps printed out; the server's own limits are far below.
const LARGEST_MESSAGE: usize = 64 << 20;

pub(super) type Client = WorkersClient<Connected>;

async fn connect(server: &Dialer) -> Result<Client, Status> {
    let client = WorkersClient::new(server.connect().await?);
    Ok(client.max_decoding_message_size(LARGEST_MESSAGE))
}

/// One session after the other, for ever; returns what no further try can heal.
pub(super) async fn sessions(hand: &Arc<Hand>, server: Dialer) -> RemoteError {
    let mut tries = 0;
    let mut said = String::new();
    loop {
        let ended = match connect(&server).await {
            Ok(client) => session::hold(hand, client).await,
            Err(status) => session::Ended { answered: false, welcomed: false, status },
        };
        if hand.state().leaving {
            return std::future::pending().await;
        }
        let status = ended.status;
        if !hand.is_welcomed() && will_not_heal(status.code()) {
            let message = status.message().to_owned();
            return RemoteError::Refused { server: server.address().to_owned(), message };
        }
        if ended.welcomed {
            said.clear();
        }
        let reason = reason(hand, &status, ended.welcomed);
        if said != reason {
            tracing::warn!(server = server.address(), "{reason}");
            said = reason;
        }
        tries = if ended.answered { 0 } else { tries + 1 };
        tokio::time::sleep(pause(tries)).await;
    }
}

fn will_not_heal(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument)
}

fn reason(hand: &Hand, status: &Status, welcomed: bool) -> String {
    let message = status.message();
    match status.code() {
        Code::AlreadyExists => format!(
            "another worker is connected under the name {:?}: {message}. Each worker needs its own \
             name; trying on in case the other one goes",
            hand.config.name
        ),
        code if will_not_heal(code) => {
            format!("the server does not let this worker in any more: {message}; trying on")
        }
        _ if welcomed => format!("the connection was lost: {message}; what runs goes on"),
        _ => format!("the server cannot be reached: {message}; trying on"),
    }
}

/// Doubled with every try, and drawn from its upper half, so that workers who lost the same server do not
/// come back all at once.
fn pause(tries: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE);
    let half = longest.as_millis() as u64 / 2;
    let draw = getrandom::u64().unwrap_or_default() % (half + 1);
    Duration::from_millis(half + draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_are_never_none() {
        for tries in 0..100 {
            let pause = pause(tries);
            assert!(pause >= FIRST_PAUSE / 2 && pause <= LONGEST_PAUSE, "{tries}: {pause:?}");
        }
        assert!(pause(u32::MAX) >= LONGEST_PAUSE / 2);
    }
}

//! Requests on their way to the engine. While the store stalls, the engine takes no more than its lane of work holds:
//! a request waits for room up to [`HAND_OVER`], and once handed over for its confirmation up to [`CONFIRM`]. It
//! waits as a task, never on a thread.

use std::time::Duration;

use steadfast_engine::{Answer, CommandError, Reply, SendError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::error::ApiError;

/// After this a request that the engine had no room for is refused: nothing of it has happened.
pub(crate) const HAND_OVER: Duration = Duration::from_secs(5);
/// After this a caller is told that the outcome is open. Together with [`HAND_OVER`] less than clients wait for an answer.
pub(crate) const CONFIRM: Duration = Duration::from_secs(10);
/// Between two tries while the lane is full.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Comes when what was asked is durable or refused.
pub(crate) type Confirmation = oneshot::Receiver<Answer>;

/// `send` is called again while the engine has no room.
pub(crate) async fn hand_over(
    mut send: impl FnMut(Reply<Answer>) -> Result<(), SendError>,
) -> Result<Confirmation, ApiError> {
    let mut deadline = None;
    loop {
        let (confirm, confirmation) = oneshot::channel();
        match send(Box::new(move |answer| drop(confirm.send(answer)))) {
            Ok(()) => return Ok(confirmation),
            Err(SendError::Full)
                if Instant::now() < *deadline.get_or_insert(Instant::now() + HAND_OVER) =>
            {
                // Seldom, and not to be moved along with every request.
                Box::pin(sleep(TRY_EVERY)).await;
            }
            Err(why) => return Err(ApiError::Overloaded(why.to_string())),
        }
    }
}

/// None: not within [`CONFIRM`]. The outcome is open.
pub(crate) async fn confirmed(confirmation: Confirmation) -> Option<Answer> {
    let answer = timeout(CONFIRM, confirmation).await.ok()?;
    Some(answer.unwrap_or(Err(CommandError::Stopped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_without_room_is_asked_until_it_has_some_or_the_time_is_over() {
        let began = Instant::now();
        let refused = hand_over(|_| Err(SendError::Full)).await.expect_err("there is never room");
        assert!(matches!(refused, ApiError::Overloaded(_)), "{refused:?}");
        assert_eq!(refused.http(), 503);
        assert!(began.elapsed() >= HAND_OVER);
        let mut tries = 0;
        let send = |reply: Reply<Answer>| {
            tries += 1;
            if tries < 3 {
                return Err(SendError::Full);
            }
            reply(Ok(()));
            Ok(())
        };
        let confirmation = hand_over(send).await.expect("the third time there is room");
        assert_eq!(confirmed(confirmation).await, Some(Ok(())));
        let stopped = hand_over(|_| Err(SendError::Stopped)).await;
        assert!(matches!(stopped, Err(ApiError::Overloaded(_))), "at once");
    }

    #[tokio::test]
    async fn what_is_not_confirmed_in_time_is_open_and_what_the_engine_drops_is_not() {
        let mut kept = None;
        let send = |reply| {
            kept = Some(reply);
            Ok(())
        };
        let confirmation = hand_over(send).await.expect("handed over");
        assert_eq!(confirmed(confirmation).await, None);
        let dropped = hand_over(|_| Ok(())).await.expect("handed over");
        assert_eq!(confirmed(dropped).await, Some(Err(CommandError::Stopped)));
    }
}

//! Equal questions have one answer, made and encoded once: a thousand pages that are told of the same change ask for the same list at
//! the same moment.
//!
//! Who asks gets an answer that was begun after the question came, so that everybody reads what they have written: who comes while
//! one is being made waits for the next, and all who do share that. Who says as of which [message](crate::job_changes) will do, may
//! have one from before.
//!
//! What is asked for here looks the same to all who may ask at all, which the guard has seen to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::job_changes::JobChanges;

/// Enough for what the pages of one server show.
const MOST: usize = 64;
/// Of all answers that are kept, with their questions.
const MOST_BYTES: usize = 8 << 20;
/// Nobody gets an older one: not all that is shown is told of when it changes.
const OLDEST: Duration = Duration::from_secs(2);

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct SharedAnswers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Counts questions that came and answers that were begun, in their order.
    order: AtomicU64,
    entries: Mutex<HashMap<Question, Entry>>,
}

/// The route, and what of the request makes a difference.
type Question = (&'static str, String);

#[derive(Debug, Default)]
struct Entry {
    /// When it was asked for last.
    asked: u64,
    bytes: usize,
    latest: Arc<tokio::sync::Mutex<Option<Latest>>>,
}

#[derive(Debug)]
struct Latest {
    began: u64,
    /// The last message that was told when it was begun.
    told: u64,
    at: Instant,
    answer: Result<Bytes, ApiError>,
}

impl Latest {
    fn is_as_of(&self, message: u64) -> bool {
        self.told >= message && self.at.elapsed() < OLDEST && self.answer.is_ok()
    }

    fn response(&self) -> Response {
        match &self.answer {
            Ok(bytes) => ([("content-type", "application/json")], bytes.clone()).into_response(),
            Err(trouble) => trouble.response(),
        }
    }
}

impl SharedAnswers {
    /// `as_of`: the message of `changes` that the answer must not be from before; None: it must be from now.
    pub(crate) async fn answer<T: Serialize>(
        &self,
        changes: &JobChanges,
        question: Question,
        as_of: Option<u64>,
        answer: impl Future<Output = Result<T, ApiError>>,
    ) -> Response {
        let came = self.next();
        let entry = self.entry(&question, came);
        let mut latest = entry.lock().await;
        if let Some(latest) = &*latest
            && (latest.began > came || as_of.is_some_and(|message| latest.is_as_of(message)))
        {
            return latest.response();
        }
        let (began, told, at) = (self.next(), changes.last(), Instant::now());
        let answer = answer.await.and_then(|answer| {
            serde_json::to_vec(&answer).map(Bytes::from).map_err(ApiError::internal)
        });
        if let Err(trouble) = &answer {
            trouble.log();
        }
        self.keep(&question, answer.as_ref().map_or(0, Bytes::len));
        latest.insert(Latest { began, told, at, answer }).response()
    }

    fn next(&self) -> u64 {
        self.0.order.fetch_add(1, Ordering::SeqCst)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Question, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, question: &Question, asked: u64) -> Arc<tokio::sync::Mutex<Option<Latest>>> {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(question) {
            entry.asked = asked;
            return entry.latest.clone();
        }
        if entries.len() >= MOST {
            forget_oldest(&mut entries);
        }
        let entry = Entry { asked, ..Entry::default() };
        let latest = entry.latest.clone();
        entries.insert(question.clone(), entry);
        latest
    }

    /// If that is too much with the others, those go that nobody has asked for lately. Who waits for one gets it all the same.
    fn keep(&self, question: &Question, bytes: usize) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(question) {
            entry.bytes = bytes + question.1.len();
        }
        while entries.values().map(|entry| entry.bytes).sum::<usize>() > MOST_BYTES {
            forget_oldest(&mut entries);
        }
    }
}

fn forget_oldest(entries: &mut HashMap<Question, Entry>) {
    let oldest = entries.iter().min_by_key(|(_, entry)| entry.asked);
    if let Some(oldest) = oldest.map(|(question, _)| question.clone()) {
        entries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use axum::body::to_bytes;
    use futures_util::future::lazy;
    use tokio::sync::oneshot;

    use super::*;

    /// Says how often it was made.
    struct Made(AtomicUsize);

    impl Made {
        fn again(&self) -> impl Future<Output = Result<usize, ApiError>> {
            lazy(|_| Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1))
        }
    }

    fn question(text: &str) -> Question {
        ("/v1/jobs", text.to_owned())
    }

    async fn text(response: Response) -> String {
        let bytes = to_bytes(response.into_body(), 1 << 20).await.expect("all there");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_before_is_for_those_alone_who_take_it_and_not_for_long() {
        let (shared, changes, made) =
            (SharedAnswers::default(), JobChanges::default(), Made(AtomicUsize::new(0)));
        let ask = async |as_of| {
            text(shared.answer(&changes, question(""), as_of, made.again()).await).await
        };
        assert_eq!(ask(None).await, "1");
        assert_eq!(ask(Some(0)).await, "1");
        assert_eq!(ask(None).await, "2", "it may have written something");
        assert_eq!(ask(Some(1)).await, "3", "nothing was told when the last one was begun");
        tokio::time::advance(OLDEST).await;
        assert_eq!(ask(Some(0)).await, "4");
        let other = shared.answer(&changes, question("other"), Some(0), made.again()).await;
        assert_eq!(text(other).await, "5", "it is another question");
    }

    #[tokio::test]
    async fn who_comes_while_one_is_made_shares_the_next() {
        let (shared, changes) = (SharedAnswers::default(), JobChanges::default());
        let made = Arc::new(Made(AtomicUsize::new(0)));
        let (go, waits) = oneshot::channel::<()>();
        let (begun, has_begun) = oneshot::channel::<()>();
        let (all, of) = (shared.clone(), changes.clone());
        let first = tokio::spawn(async move {
            let held = async {
                let _ = begun.send(());
                let _ = waits.await;
                Ok("first")
            };
            text(all.answer(&of, question(""), None, held).await).await
        });
        has_begun.await.expect("it is being made");
        let others: Vec<_> = (0..100)
            .map(|_| {
                let (shared, changes, made) = (shared.clone(), changes.clone(), made.clone());
                tokio::spawn(async move {
                    text(shared.answer(&changes, question(""), None, made.again()).await).await
                })
            })
            .collect();
        // All have asked.
        while shared.0.order.load(Ordering::Relaxed) < 102 {
            tokio::task::yield_now().await;
        }
        go.send(()).expect("it waits");
        assert_eq!(first.await.expect("no panic"), "\"first\"");
        for other in others {
            assert_eq!(other.await.expect("no panic"), "1");
        }
    }

    #[tokio::test]
    async fn who_goes_away_while_theirs_is_made_leaves_it_to_the_next() {
        let (shared, changes) = (SharedAnswers::default(), JobChanges::default());
        let never = std::future::pending::<Result<(), ApiError>>();
        let goes = shared.answer(&changes, question(""), None, never);
        assert!(tokio::time::timeout(Duration::from_millis(1), goes).await.is_err());
        let made = Made(AtomicUsize::new(0));
        assert_eq!(
            text(shared.answer(&changes, question(""), None, made.again()).await).await,
            "1"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_shared_with_who_waits_and_kept_for_nobody() {
        let (shared, changes) = (SharedAnswers::default(), JobChanges::default());
        let refused = async { Err::<(), _>(ApiError::Overloaded("not now".to_owned())) };
        let answer = shared.answer(&changes, question(""), Some(0), refused).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        let made = Made(AtomicUsize::new(0));
        assert_eq!(
            text(shared.answer(&changes, question(""), Some(0), made.again()).await).await,
            "1"
        );
    }

    #[tokio::test]
    async fn few_are_kept_and_small_ones() {
        let (shared, changes) = (SharedAnswers::default(), JobChanges::default());
        for n in 0..MOST * 2 {
            let answer = async { Ok(n) };
            shared.answer(&changes, question(&n.to_string()), None, answer).await;
        }
        assert_eq!(shared.entries().len(), MOST);
        let large = "x".repeat(MOST_BYTES / 3);
        for n in 0..4 {
            let answer = async { Ok(&large) };
            shared.answer(&changes, question(&format!("large {n}")), None, answer).await;
        }
        assert_eq!(shared.entries().len(), 2);
        let larger = "x".repeat(MOST_BYTES);
        let answer = shared.answer(&changes, question("larger"), None, async { Ok(larger) }).await;
        assert_eq!((answer.status().as_u16(), shared.entries().len()), (200, 0));
    }
}

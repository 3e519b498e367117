//! A job's events as they happen.

use super::*;

#[tokio::test]
async fn a_stream_goes_on_where_it_was_cut_without_gap_or_repetition() {
    let server = Server::start().await;
    let id = server.submit(FAILS).await;
    let whole = server.until_over(&id).await;
    for cut in 1..whole.len() {
        let mut first = server.stream(&id, None).await;
        let mut seen = vec![];
        for _ in 0..cut {
            seen.push(first.next().await.unwrap());
        }
        drop(first);
        let mut second = server.stream(&id, seen.last().unwrap().id).await;
        while let Some(told) = second.next().await {
            seen.push(told);
        }
        assert_eq!(seen, whole);
    }
    let beyond = server.stream(&id, Some(99)).await.next().await.unwrap();
    assert_eq!(beyond.event, "end");
}

#[tokio::test]
async fn a_stream_that_nobody_reads_holds_up_nobody_and_misses_nothing() {
    let server = Server::start().await;
    let wide = "name: wide\nsteps: { a: { run: ok, for_each: { range: 2000 } } }";
    let id = server.submit(wide).await;
    let mut unread = server.stream(&id, None).await;
    let read = server.until_over(&id).await;
    let mut late = vec![];
    while let Some(told) = unread.next().await {
        late.push(told);
    }
    assert!(read.len() > 4000);
    assert_eq!(late, read);
}

#[tokio::test]
async fn a_stream_ends_without_a_last_word_when_the_server_does() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    let mut stream = server.stream(&id, None).await;
    while stream.next().await.unwrap().event != "AttemptStarted" {}
    server.notifications.close();
    assert_eq!(stream.next().await, None);
}

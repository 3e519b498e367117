//! A worker that a test plays itself, to say what no real one would.

use std::time::Duration;

use steadfast_api::proto;
use steadfast_api::proto::workers_client::WorkersClient;
use steadfast_api::proto::{from_worker, report, to_worker};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Nothing here takes as long unless it hangs.
const LONG: Duration = Duration::from_secs(30);

/// Of what a test says at once, more.
const AHEAD: usize = 16;

pub(crate) struct Played {
    pub(crate) say: mpsc::Sender<proto::FromWorker>,
    pub(crate) told: tonic::Streaming<proto::ToWorker>,
    pub(crate) welcome: proto::Welcome,
}

/// Who it says it is. A secret of its own unless said otherwise.
pub(crate) fn hello(name: &str) -> proto::Hello {
    proto::Hello {
        name: name.to_owned(),
        incarnation: "played".to_owned(),
        slots: 1,
        processes: true,
        secret: format!("{name:-<32}").into_bytes(),
        ..proto::Hello::default()
    }
}

pub(crate) fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        let bearer = format!("Bearer {token}").parse().expect("plain");
        request.metadata_mut().insert("authorization", bearer);
    }
    request
}

pub(crate) async fn client(server: &str) -> WorkersClient<Channel> {
    WorkersClient::connect(server.to_owned()).await.expect("a connection")
}

impl Played {
    pub(crate) async fn comes(server: &str, name: &str) -> Self {
        Self::tries(server, "", hello(name)).await.expect("a session")
    }

    /// With a token, if it is not empty. Ended if the server says so before it says welcome.
    pub(crate) async fn tries(
        server: &str,
        token: &str,
        hello: proto::Hello,
    ) -> Result<Self, Status> {
        let (say, said) = mpsc::channel(AHEAD);
        let hello = proto::FromWorker { kind: Some(from_worker::Kind::Hello(hello)) };
        say.send(hello).await.expect("open");
        let opened =
            client(server).await.session(with_token(token, ReceiverStream::new(said))).await;
        let mut told = opened?.into_inner();
        match told.message().await?.and_then(|message| message.kind) {
            Some(to_worker::Kind::Welcome(welcome)) => Ok(Self { say, told, welcome }),
            other => panic!("no welcome, but {other:?}"),
        }
    }

    pub(crate) async fn hears(&mut self) -> to_worker::Kind {
        self.hears_or_ends().await.expect("the session is on")
    }

    /// The next that it is told, or why it is told no more.
    pub(crate) async fn hears_or_ends(&mut self) -> Result<to_worker::Kind, Status> {
        let next = tokio::time::timeout(LONG, self.told.message());
        let message = next.await.expect("the server says something")?;
        let kind = message.map(|message| message.kind.expect("something that is known"));
        kind.ok_or_else(|| Status::ok("the server ended the session"))
    }

    pub(crate) async fn says(&self, kind: from_worker::Kind) {
        self.say.send(proto::FromWorker { kind: Some(kind) }).await.expect("open");
    }

    pub(crate) async fn beats(&self, number: u64) {
        self.says(from_worker::Kind::Beat(proto::Beat { number })).await;
    }

    /// Whether it counted.
    pub(crate) async fn reports_success(&mut self, attempt: &proto::AttemptRef) -> bool {
        self.reports(attempt, r#""forged""#).await
    }

    pub(crate) async fn reports(&mut self, attempt: &proto::AttemptRef, output: &str) -> bool {
        let output_json = output.to_owned();
        let outcome = report::Outcome::Succeeded(proto::Succeeded { output_json });
        let (attempt_ref, outcome) = (Some(attempt.clone()), Some(outcome));
        let report = proto::Report { attempt: attempt_ref, outcome, log_follows: false };
        self.says(from_worker::Kind::Report(report)).await;
        loop {
            if let to_worker::Kind::Acknowledgement(answer) = self.hears().await {
                assert_eq!(answer.attempt.as_ref().map(|it| it.token), Some(attempt.token));
                return answer.counted;
            }
        }
    }

    pub(crate) async fn is_assigned(&mut self) -> proto::AttemptRef {
        loop {
            if let to_worker::Kind::Assignment(assignment) = self.hears().await {
                return assignment.attempt.expect("it is named");
            }
        }
    }
}

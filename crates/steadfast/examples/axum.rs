//! A web service that takes orders as durable jobs: what it has answered for is done, whatever happens.
//!
//!     cargo run -p steadfast --example axum
//!     curl -X POST http://127.0.0.1:8080/orders -H 'content-type: application/json' -d '{"item": "book", "count": 2}'
//!     curl http://127.0.0.1:8080/orders/ID

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use steadfast::{Client, ClientError, Context, Embedded, Job, LogQuery, Step, Worker};

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

/// Any error becomes a failure of the attempt with `?`; here those of `anyhow`.
async fn ship(ctx: Context, order: Order) -> anyhow::Result<String> {
    ctx.log(format_args!("attempt {} to ship {} × {}", ctx.attempt(), order.count, order.item));
    anyhow::ensure!(ctx.attempt() > 1, "the van has not come");
    Ok(format!("{} × {} shipped", order.count, order.item))
}

pub(crate) fn worker() -> Worker {
    Worker::builder().function("ship", ship).build()
}

/// Its handlers run wherever axum runs them: all futures of the client can.
pub(crate) fn app(client: Client) -> Router {
    Router::new()
        .route("/orders", post(place))
        .route("/orders/{id}", get(look).delete(cancel))
        .with_state(client)
}

async fn place(
    State(client): State<Client>,
    Json(order): Json<Order>,
) -> Result<(StatusCode, String), Failed> {
    let ship = Step::call("ship", "ship").input(&order).map_err(anyhow::Error::from)?;
    // Durable when this returns.
    let id = client.submit(&Job::new("order").step(ship)).await?;
    Ok((StatusCode::CREATED, id))
}

#[derive(Serialize)]
struct Look {
    state: &'static str,
    shipped: Option<String>,
    failures: u32,
    log: String,
}

async fn look(State(client): State<Client>, Path(id): Path<String>) -> Result<Json<Look>, Failed> {
    let status = client.status(&id).await?;
    let logs = client.logs(&id, &LogQuery::new()).await?;
    Ok(Json(Look {
        state: status.state.name(),
        shipped: status.output("ship").map_err(anyhow::Error::from)?,
        failures: status.failures,
        log: logs.into_iter().map(|log| log.text).collect(),
    }))
}

async fn cancel(
    State(client): State<Client>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failed> {
    client.cancel(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let code = match self.0.downcast_ref::<ClientError>() {
            Some(ClientError::NotFound(_)) => StatusCode::NOT_FOUND,
            Some(ClientError::Conflict(_)) => StatusCode::CONFLICT,
            Some(ClientError::Invalid(_)) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (code, self.0.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let data = std::env::temp_dir().join("steadfast-orders");
    let steadfast = Embedded::open(data).worker(worker()).start().await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}", listener.local_addr()?);
    let serving = axum::serve(listener, app(steadfast.client().clone()));
    serving.with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) }).await?;
    steadfast.stop().await?;
    Ok(())
}

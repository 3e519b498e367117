//! Bodies, read up to what may be used of them, and only of content types that were asked for.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use tokio_stream::StreamExt as _;

use crate::error::ApiError;

/// Without parameters, in lower case. None: not said, or said twice.
pub(super) fn content_type(headers: &HeaderMap) -> Option<String> {
    let mut said = content_types(headers);
    said.next().filter(|_| said.next().is_none())
}

fn content_types(headers: &HeaderMap) -> impl Iterator<Item = String> {
    headers.get_all(CONTENT_TYPE).iter().map(|value| {
        let text = value.to_str().unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    })
}

/// A form is what a web page can send without being asked whether it may.
pub(super) fn refuse_forms(headers: &HeaderMap) -> Result<(), ApiError> {
    const FORMS: [&str; 2] = ["application/x-www-form-urlencoded", "multipart/form-data"];
    match content_types(headers).find(|said| FORMS.contains(&said.as_str())) {
        None => Ok(()),
        Some(form) => Err(ApiError::UnsupportedMedia(format!(
            "{form} is not accepted; nothing here is a form"
        ))),
    }
}

/// Who is cut off while it sends may not hear why: so much of what is refused is heard out, and thrown away.
const HEARD_OUT: usize = 16 << 20;

/// Refused before it is held, if its length is said, and as soon as it is too long otherwise.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Vec<u8>, ApiError> {
    let said: Option<u64> =
        headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut is_taken = said.is_none_or(|said| said <= most as u64);
    let mut heard = 0;
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while heard <= HEARD_OUT.max(most)
        && said.is_none_or(|said| is_taken || said <= HEARD_OUT as u64)
        && let Some(chunk) = chunks.next().await
    {
        let chunk = chunk.map_err(|error| {
            ApiError::BadRequest(format!("the body could not be read to its end: {error}"))
        })?;
        heard += chunk.len();
        is_taken &= heard <= most;
        if is_taken {
            bytes.extend_from_slice(&chunk);
        } else {
            bytes = Vec::new();
        }
    }
    if is_taken {
        Ok(bytes)
    } else {
        Err(ApiError::TooLarge(format!("at most {most} bytes are taken")))
    }
}

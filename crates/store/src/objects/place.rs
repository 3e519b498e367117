//! The object store that a URL names, and who may use it: what the URL does not say is asked of the environment, as AWS names it.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

/// Before a store that cannot be connected to counts as unavailable.
const CONNECT: Duration = Duration::from_secs(5);
/// A request with all that it sends and brings: up to the files of a job, at once.
const REQUEST: Duration = Duration::from_mins(2);
/// A request that failed in passing is sent again so often, and not after so long.
const RETRIES: usize = 3;
const RETRIED_FOR: Duration = Duration::from_secs(10);

/// What may stand behind the `?`: nothing that is secret.
const OPTIONS: [(&str, AmazonS3ConfigKey); 6] = [
    ("region", AmazonS3ConfigKey::Region),
    ("endpoint", AmazonS3ConfigKey::Endpoint),
    ("virtual_hosted_style_request", AmazonS3ConfigKey::VirtualHostedStyleRequest),
    ("conditional_put", AmazonS3ConfigKey::ConditionalPut),
    ("disable_bulk_delete", AmazonS3ConfigKey::DisableBulkDelete),
    ("checksum_algorithm", AmazonS3ConfigKey::Checksum),
];

const EXPECTED: &str = "write s3://BUCKET/PREFIX?region=REGION&endpoint=URL, or file:///FOLDER with the folder's whole path";

/// A store, and its name for messages: the URL without what stands behind the `?`.
pub(super) struct Place {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) name: String,
}

/// Whether it can be such a URL. Nothing is opened.
pub fn check_blobs_url(url: &str) -> Result<(), String> {
    let parsed = Url::parse(url).map_err(|error| format!("{error}; {EXPECTED}"))?;
    match parsed.scheme() {
        "file" => folder(&parsed).map(drop),
        "s3" => s3(&parsed, AmazonS3Builder::new()).map(drop),
        _ => Err(EXPECTED.to_owned()),
    }
}

pub(super) fn open(url: &str) -> Result<Place, String> {
    let parsed = Url::parse(url).map_err(|error| format!("{error}; {EXPECTED}"))?;
    match parsed.scheme() {
        "file" => {
            let folder = folder(&parsed)?;
            // A folder that is missing may be one that is not mounted: it is not made.
            if !FilePath::new(&folder).is_dir() {
                return Err(format!(
                    "there is no folder {folder}: make it, or mount what belongs there"
                ));
            }
            let store =
                LocalFileSystem::new_with_prefix(&folder).map_err(|error| error.to_string())?;
            let store = store.with_fsync(true).with_automatic_cleanup(true);
            Ok(Place { store: Arc::new(store), name: format!("file://{folder}") })
        }
        "s3" => {
            // What signs and seals is the rest of the program's; an error says that there is one already.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let (builder, prefix) = s3(&parsed, AmazonS3Builder::from_env())?;
            let store = builder.build().map_err(|error| error.to_string())?;
            let bucket = parsed.host_str().unwrap_or_default();
            let name = format!("s3://{bucket}/{prefix}");
            let store: Arc<dyn ObjectStore> = if prefix.is_root() {
                Arc::new(store)
            } else {
                Arc::new(PrefixStore::new(store, prefix))
            };
            Ok(Place { store, name })
        }
        _ => Err(EXPECTED.to_owned()),
    }
}

fn folder(url: &Url) -> Result<String, String> {
    let path = url.to_file_path().map_err(|()| EXPECTED.to_owned())?;
    match path.to_str() {
        Some(path) if path != "/" && url.query().is_none() => Ok(path.to_owned()),
        _ => Err(EXPECTED.to_owned()),
    }
}

fn s3(url: &Url, builder: AmazonS3Builder) -> Result<(AmazonS3Builder, Path), String> {
    let bucket = url.host_str().filter(|bucket| !bucket.is_empty()).ok_or(EXPECTED)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SECRET.to_owned());
    }
    let prefix = Path::from_url_path(url.path()).map_err(|error| format!("{error}; {EXPECTED}"))?;
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            ..BackoffConfig::default()
        },
        max_retries: RETRIES,
        retry_timeout: RETRIED_FOR,
    };
    let mut client = ClientOptions::new().with_connect_timeout(CONNECT).with_timeout(REQUEST);
    let mut builder = builder.with_retry(retry);
    for (key, value) in url.query_pairs() {
        let Some((_, known)) = OPTIONS.iter().find(|(name, _)| *name == key) else {
            if ["access_key_id", "secret_access_key", "session_token", "token"]
                .iter()
                .any(|secret| key.ends_with(secret))
            {
                return Err(SECRET.to_owned());
            }
            let known = OPTIONS.map(|(name, _)| name).join(", ");
            return Err(format!("{key:?} is none of {known}"));
        };
        builder = builder.with_config(*known, value);
    }
    // Whoever writes http:// means it; nothing else goes out unsealed.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
    let endpoint = endpoint.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        client = client.with_allow_http(true);
    }
    Ok((builder.with_bucket_name(bucket).with_client_options(client), prefix))
}

const SECRET: &str = "keys do not belong into a URL: give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the server";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_never_who() {
        for right in [
            "s3://bucket",
            "s3://bucket/a/b?region=eu-central-1&endpoint=http://127.0.0.1:9000",
            "file:///var/lib/steadfast/blobs",
        ] {
            assert_eq!(check_blobs_url(right), Ok(()), "{right}");
        }
        for wrong in
            ["blobs", "/var", "file://host/x", "file:///", "s3:///x", "https://x", "s3://b?regio=x"]
        {
            assert!(check_blobs_url(wrong).is_err(), "{wrong}");
        }
        for secret in [
            "s3://key:hunter2@bucket",
            "s3://b?secret_access_key=hunter2",
            "s3://b?aws_session_token=hunter2",
        ] {
            let refused = check_blobs_url(secret).unwrap_err();
            assert!(
                refused.contains("AWS_SECRET_ACCESS_KEY") && !refused.contains("hunter2"),
                "{refused}"
            );
        }
    }
}

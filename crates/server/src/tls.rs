//! TLS from PEM files, and who may connect by certificate. Files are read once, at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::ServerSettings;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{setting}: cannot read {path}: {error}")]
    Read { setting: &'static str, path: PathBuf, error: std::io::Error },
    #[error(
        "{setting}: there is no {what} in {path}; it must be a PEM file with `-----BEGIN …-----`"
    )]
    Missing { setting: &'static str, what: &'static str, path: PathBuf },
    #[error("{setting}: {path} is not valid PEM: {error}")]
    Malformed { setting: &'static str, path: PathBuf, error: String },
    #[error("the certificate in {cert} and the key in {key} do not belong together")]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error("{setting}: {path}: {error}")]
    Refused { setting: &'static str, path: PathBuf, error: String },
}

const CERT: &str = "server.tls_cert";
const KEY: &str = "server.tls_key";
const CLIENT_CA: &str = "server.tls_client_ca";

/// What signs and seals for clients of this process that do not say: the same as for the server. To be
/// called before one is made, any number of times.
pub fn use_ring() {
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// None: TLS is off. With a client CA, whoever connects must have a certificate that it signed.
pub fn server_config(settings: &ServerSettings) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (Some(cert), Some(key)) = (&settings.tls_cert, &settings.tls_key) else {
        return Ok(None);
    };
    let (cert, key) = (Path::new(cert), Path::new(key));
    let chain = certificates(CERT, cert)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| pem_error(KEY, "key", key, e))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(CERT, cert, &error))?;
    let builder = match &settings.tls_client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let path = Path::new(path);
            let mut roots = RootCertStore::empty();
            for root in certificates(CLIENT_CA, path)? {
                roots.add(root).map_err(|error| refused(CLIENT_CA, path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().map_err(|error| refused(CLIENT_CA, path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
        }
        error => refused(CERT, cert, &error),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| pem_error(setting, "certificate", path, error);
    let all = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if all.is_empty() {
        return Err(wrong(PemError::NoItemsFound));
    }
    Ok(all)
}

fn pem_error(setting: &'static str, what: &'static str, path: &Path, error: PemError) -> TlsError {
    let path = path.to_owned();
    match error {
        PemError::Io(error) => TlsError::Read { setting, path, error },
        PemError::NoItemsFound => TlsError::Missing { setting, what, path },
        // A private key is not for messages, in no part.
        _ if setting == KEY => {
            TlsError::Malformed { setting, path, error: "broken PEM section".to_owned() }
        }
        error => TlsError::Malformed { setting, path, error: error.to_string() },
    }
}

fn refused(setting: &'static str, path: &Path, error: &dyn std::error::Error) -> TlsError {
    TlsError::Refused { setting, path: path.to_owned(), error: error.to_string() }
}

//! TLS: whom we believe, and HTTP/2 where the service speaks it.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use steadfast_core::outcome::{Outcome, Permanence};
use steadfast_worker::http::{Allowed, Caller, Outbound};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::{Server, Then, answer};
use crate::{ended, error, failure, order, post};

/// A service's side of TLS, and the file of whoever vouches for it.
fn sealed(folder: &Path, name: &str, protocols: &[&[u8]]) -> (TlsAcceptor, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let issuer = issuer.expect("signed");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate");
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let root = folder.join("root.pem");
    fs::write(&root, issuer.pem()).expect("written");
    (TlsAcceptor::from(Arc::new(config)), root)
}

fn trusting(more_roots: Vec<PathBuf>) -> Caller {
    let allow = vec![Allowed::Loopback];
    Caller::new(&Outbound { allow, more_roots, ..Outbound::default() }).expect("a caller")
}

#[tokio::test]
async fn a_service_is_believed_if_somebody_vouches_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tls, root) = sealed(folder.path(), "localhost", &[b"http/1.1"]);
    let server = Server::start_tls(tls, |_, _| (answer("200 OK", "", "1"), Then::Keep)).await;
    let port = server.address.port();
    let http = post(format!("https://localhost:{port}/"));

    let caller = trusting(vec![root.clone()]);
    for _ in 0..3 {
        let outcome = ended(caller.call(&order(&http)).await);
        assert_eq!(outcome, Outcome::Succeeded { output: Some(1.into()) });
    }
    assert_eq!(server.connections(), 1);

    let stranger = failure(ended(trusting(vec![]).call(&order(&http)).await));
    assert_eq!(error(&stranger).0, "tls", "{stranger:?}");
    assert!(error(&stranger).1.contains("UnknownIssuer"), "{stranger:?}");
    assert_eq!(stranger.permanence, Permanence::Open);

    let other_name = post(format!("https://127.0.0.1:{port}/"));
    let not_it = failure(ended(trusting(vec![root]).call(&order(&other_name)).await));
    assert_eq!(error(&not_it).0, "tls", "{not_it:?}");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_service_without_tls_is_not_spoken_to_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let http = post(format!("https://{}/", listener.local_addr().expect("an address")));
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut heard = Vec::new();
        stream.read_buf(&mut heard).await.expect("something");
        stream.write_all(answer("400 x", "", "speak up").as_bytes()).await.expect("written");
        heard
    });
    let failure = failure(ended(trusting(vec![]).call(&order(&http)).await));
    assert_eq!(error(&failure).0, "tls", "{failure:?}");
    let heard = heard.await.expect("no panic");
    assert!(!heard.windows(4).any(|window| window == b"POST"), "{heard:?}");
}

#[tokio::test]
async fn http_2_is_spoken_where_it_is_offered_over_one_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tls, root) = sealed(folder.path(), "localhost", &[b"h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let stream = tls.accept(stream).await.expect("TLS");
        let tell = service_fn(|request: Request<_>| async move {
            let told = format!("{:?}", request.version());
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(told))))
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        // How the other side leaves does not matter.
        let _ = builder.serve_connection(TokioIo::new(stream), tell).await;
    });
    let caller = trusting(vec![root]);
    let http = post(format!("https://localhost:{port}/"));
    for _ in 0..3 {
        let outcome = ended(caller.call(&order(&http)).await);
        assert_eq!(outcome, Outcome::Succeeded { output: Some("HTTP/2.0".into()) });
    }
    serving.abort();
}

#[test]
fn roots_that_are_none_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "nothing").expect("written");
    for path in [empty, folder.path().join("missing.pem")] {
        let outbound = Outbound { more_roots: vec![path.clone()], ..Outbound::default() };
        let error = Caller::new(&outbound).expect_err("refused").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

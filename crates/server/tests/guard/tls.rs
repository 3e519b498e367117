//! TLS, and certificates of clients.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::{Certificate, Client, Identity};
use steadfast_api::proto::ListJobsRequest;
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_server::config::{Auth, ServerSettings};
use steadfast_server::tls::server_config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Identity as GrpcIdentity;
use tonic::transport::{Certificate as GrpcCertificate, ClientTlsConfig, Endpoint};

use crate::support::{PATIENCE, Running};

type Change = fn(&mut ServerSettings) -> &mut Option<String>;
type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("signed")
}

/// Certificate and key, in PEM.
fn signed(issuer: &Issuer, names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let params = CertificateParams::new(names).expect("names");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("signed");
    (certificate.pem(), key.serialize_pem())
}

fn settings(folder: &Path, issuer: &Issuer, clients: Option<&Issuer>) -> ServerSettings {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("written");
        Some(path.display().to_string())
    };
    let (cert, key) = signed(issuer, &["127.0.0.1", "localhost"]);
    ServerSettings {
        tls_cert: write("cert.pem", &cert),
        tls_key: write("key.pem", &key),
        tls_client_ca: clients.and_then(|clients| write("clients.pem", &clients.pem())),
        ..ServerSettings::default()
    }
}

fn client(roots: &Issuer, own: Option<&(String, String)>) -> Client {
    let root = Certificate::from_pem(roots.pem().as_bytes()).expect("PEM");
    let mut builder = Client::builder().tls_certs_only([root]);
    if let Some((cert, key)) = own {
        let identity = Identity::from_pem(format!("{cert}{key}").as_bytes()).expect("PEM");
        builder = builder.identity(identity);
    }
    builder.build().expect("a client")
}

async fn asked(server: &Running, client: Client) -> Option<String> {
    let url = format!("https://{}/healthz", server.address);
    let response = client.get(url).timeout(PATIENCE).send().await.ok()?;
    response.text().await.ok()
}

async fn asked_by_grpc(server: &Running, tls: ClientTlsConfig) -> Option<String> {
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address)).expect("a URL");
    let channel =
        endpoint.tls_config(tls).expect("valid").timeout(PATIENCE).connect().await.ok()?;
    let answer = JobsClient::new(channel).list_jobs(ListJobsRequest::default()).await;
    Some(answer.expect_err("only a route").message().to_owned())
}

#[tokio::test]
async fn both_versions_come_over_tls_and_plain_text_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = issuer();
    let settings = ServerSettings {
        tls_handshake_timeout_ms: 2000,
        ..settings(folder.path(), &authority, None)
    };
    let server = Running::start(Auth::None, settings).await;
    assert_eq!(asked(&server, client(&authority, None)).await.as_deref(), Some("reached"));
    assert_eq!(asked(&server, client(&issuer(), None)).await, None, "of another authority");
    let root = GrpcCertificate::from_pem(authority.pem());
    let tls = ClientTlsConfig::new().ca_certificate(root);
    assert_eq!(asked_by_grpc(&server, tls).await.as_deref(), Some("reached"));
    for said in [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice(), b""] {
        let mut stream = TcpStream::connect(server.address).await.expect("connected");
        stream.write_all(said).await.expect("written");
        let mut answer = Vec::new();
        let closed = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let _ = closed.expect("no handshake, no connection");
        assert!(!String::from_utf8_lossy(&answer).contains("reached"));
    }
}

#[tokio::test]
async fn with_a_client_authority_only_its_clients_get_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, clients) = (issuer(), issuer());
    let server =
        Running::start(Auth::None, settings(folder.path(), &authority, Some(&clients))).await;
    let (known, stranger) = (signed(&clients, &["worker"]), signed(&authority, &["worker"]));
    let reached = asked(&server, client(&authority, Some(&known))).await;
    assert_eq!(reached.as_deref(), Some("reached"));
    assert_eq!(asked(&server, client(&authority, None)).await, None, "without a certificate");
    assert_eq!(asked(&server, client(&authority, Some(&stranger))).await, None, "of another");
    let root = GrpcCertificate::from_pem(authority.pem());
    let tls = ClientTlsConfig::new().ca_certificate(root);
    let tls = tls.identity(GrpcIdentity::from_pem(&known.0, &known.1));
    assert_eq!(asked_by_grpc(&server, tls).await.as_deref(), Some("reached"));
}

#[test]
fn files_that_are_missing_or_do_not_fit_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let good = settings(folder.path(), &issuer(), Some(&issuer()));
    assert!(server_config(&good).expect("valid").is_some());
    assert!(server_config(&ServerSettings::default()).expect("off").is_none());
    fs::write(path("other.pem"), signed(&issuer(), &["localhost"]).1).expect("written");
    fs::write(path("empty.pem"), "nothing").expect("written");
    let broken = "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----\n";
    fs::write(path("broken.pem"), broken).expect("written");
    let none = path("none.pem");
    let cert: Change = |settings| &mut settings.tls_cert;
    let key: Change = |settings| &mut settings.tls_key;
    let clients: Change = |settings| &mut settings.tls_client_ca;
    for (field, file, said) in [
        (cert, &none, "server.tls_cert: cannot read"),
        (cert, &path("empty.pem"), "server.tls_cert: there is no certificate in"),
        (key, &none, "server.tls_key: cannot read"),
        (key, &path("empty.pem"), "server.tls_key: there is no key in"),
        (key, &path("other.pem"), "do not belong together"),
        (key, &path("broken.pem"), "server.tls_key: "),
        (clients, &none, "server.tls_client_ca: cannot read"),
        (clients, &path("empty.pem"), "server.tls_client_ca: there is no certificate in"),
    ] {
        let mut settings = good.clone();
        *field(&mut settings) = Some(file.clone());
        let error = server_config(&settings).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}

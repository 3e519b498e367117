//! TLS to a database: who may be it is what `sslmode` says, as to `libpq`.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use steadfast_store::testing::{TestCluster, query};
use steadfast_store::{StoreError, storage_at};

/// An authority, what it says of a host, and the key of that.
struct Signed {
    authority: String,
    certificate: String,
    key: String,
}

fn signed(host: &str) -> Signed {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(params, authority_key);
    let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Signed { authority, certificate, key: key.serialize_pem() }
}

/// As a database is told to make its own: an authority's by its form, with nobody above it.
fn self_signed(host: &str) -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    Signed { authority: certificate.clone(), certificate, key: key.serialize_pem() }
}

/// Whether the connection is inside TLS, or why there is none.
fn connect(url: &str) -> Result<bool, StoreError> {
    storage_at(url)?.reader()?;
    Ok(query(url, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == ["(t)"])
}

struct Database {
    url: String,
    folder: tempfile::TempDir,
}

impl Database {
    fn new(cluster: &TestCluster) -> Self {
        // With a password, which nobody is to read anywhere.
        let url = cluster.database().replace("steadfast@", "steadfast:hunter2@");
        Self { url, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, pem: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    }

    fn with(&self, options: &str) -> Result<bool, StoreError> {
        connect(&format!("{}?{options}", self.url))
    }

    #[track_caller]
    fn refuses(&self, options: &str, because: &str) {
        let error = self.with(options).expect_err(options);
        let text = format!("{error} {error:?}");
        assert!(text.contains(because), "{options}: {text}");
        assert!(!text.contains("hunter2"), "{options}: {text}");
    }

    /// The same by the name that is in the certificate.
    fn by_name(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url: self.url.replace("127.0.0.1", "localhost"), folder }
    }
}

/// One test, because a cluster takes long to start and each test may be a process.
#[test]
fn who_may_be_the_database_is_what_the_url_says() {
    let signed = signed("localhost");
    let Some(cluster) = TestCluster::start_with_tls(&signed.certificate, &signed.key) else {
        return;
    };
    a_database_with_tls_is_believed_as_far_as_is_asked_for(&cluster, &signed);
    let own = self_signed("localhost");
    let cluster = TestCluster::start_with_tls(&own.certificate, &own.key).expect("as before");
    a_certificate_that_is_named_itself_is_believed(&cluster, &own);
    let plain = TestCluster::shared().expect("as before");
    a_database_without_tls_is_spoken_to_only_where_that_will_do(plain);
}

fn a_database_with_tls_is_believed_as_far_as_is_asked_for(cluster: &TestCluster, its: &Signed) {
    let database = Database::new(cluster);
    let root = database.file("root.pem", &its.authority);
    let other = database.file("other.pem", &signed("localhost").authority);
    let by_name = database.by_name();
    assert!(connect(&database.url).unwrap(), "it is preferred");
    assert!(!database.with("sslmode=disable").unwrap());
    assert!(database.with("sslmode=prefer").unwrap());
    assert!(database.with("sslmode=require").unwrap(), "by anybody");
    database.refuses(&format!("sslmode=require&sslrootcert={other}"), "invalid peer certificate");
    assert!(database.with(&format!("sslmode=verify-ca&sslrootcert={root}")).unwrap());
    database.refuses(&format!("sslmode=verify-ca&sslrootcert={other}"), "invalid peer certificate");
    database.refuses("sslmode=verify-ca", "invalid peer certificate");
    let full = format!("sslmode=verify-full&sslrootcert={root}");
    assert!(by_name.with(&full).unwrap());
    database.refuses(&full, "not valid for name");
    by_name
        .refuses(&format!("sslmode=verify-full&sslrootcert={other}"), "invalid peer certificate");
    by_name.refuses("sslmode=verify-full&sslrootcert=system", "invalid peer certificate");
    database.refuses("sslmode=verify-ca&sslrootcert=nothing.pem", "nothing.pem cannot be read");
    let empty = database.file("empty.pem", "");
    database
        .refuses(&format!("sslmode=verify-ca&sslrootcert={empty}"), "there is no certificate in");
    database
        .refuses("sslmode=verify", "not one of disable, prefer, require, verify-ca, verify-full");
}

fn a_certificate_that_is_named_itself_is_believed(cluster: &TestCluster, its: &Signed) {
    let database = Database::new(cluster);
    let root = database.file("root.pem", &its.authority);
    let other = database.file("other.pem", &self_signed("localhost").authority);
    assert!(database.with(&format!("sslmode=verify-ca&sslrootcert={root}")).unwrap());
    let full = format!("sslmode=verify-full&sslrootcert={root}");
    assert!(database.by_name().with(&full).unwrap());
    database.refuses(&full, "not valid for name");
    database.refuses(&format!("sslmode=verify-ca&sslrootcert={other}"), "invalid peer certificate");
}

fn a_database_without_tls_is_spoken_to_only_where_that_will_do(cluster: &TestCluster) {
    let database = Database::new(cluster);
    let root = database.file("root.pem", &signed("localhost").authority);
    assert!(!connect(&database.url).unwrap() && !database.with("sslmode=prefer").unwrap());
    database.refuses("sslmode=require", "server does not support TLS");
    database
        .refuses(&format!("sslmode=verify-full&sslrootcert={root}"), "server does not support TLS");
}

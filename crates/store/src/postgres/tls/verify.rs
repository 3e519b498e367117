//! Whether a certificate is believed.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

#[derive(Debug)]
pub(super) struct Verify {
    provider: Arc<CryptoProvider>,
    /// None: anybody may be the database.
    chain: Option<Chain>,
}

#[derive(Debug)]
struct Chain {
    verifier: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    /// It is made out for the host, too.
    host: bool,
}

impl Verify {
    pub(super) fn nothing(provider: &Arc<CryptoProvider>) -> Self {
        Self { provider: provider.clone(), chain: None }
    }

    /// Signed by one of those in a file, or of those whom the system trusts.
    pub(super) fn chain(
        provider: &Arc<CryptoProvider>,
        file: Option<&str>,
        host: bool,
    ) -> Result<Self, String> {
        let (of, roots) = match file {
            None => {
                ("the certificates of this system", rustls_native_certs::load_native_certs().certs)
            }
            Some(file) => {
                let wrong = |error| format!("sslrootcert: {file} cannot be read: {error}");
                let all = CertificateDer::pem_file_iter(file).map_err(wrong)?;
                (file, all.collect::<Result<Vec<_>, _>>().map_err(wrong)?)
            }
        };
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        if store.is_empty() {
            return Err(format!("sslrootcert: there is no certificate in {of}"));
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone());
        let verifier = verifier.build().map_err(|error| format!("sslrootcert: {error}"))?;
        // Only one that an operator has named is believed for being itself.
        let roots = if file.is_some() { roots } else { vec![] };
        Ok(Self { provider: provider.clone(), chain: Some(Chain { verifier, roots, host }) })
    }
}

impl Chain {
    fn check(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        // A database's own certificate that nobody else has signed is an authority's by its form, which the verifier
        // refuses. Named in `sslrootcert`, it is this one and no other.
        if self.roots.iter().any(|root| root == end) {
            return if self.host {
                verify_server_name(&ParsedCertificate::try_from(end)?, host)
            } else {
                Ok(())
            };
        }
        match self.verifier.verify_server_cert(end, between, host, stapled, now) {
            // Told only of a certificate whose chain is good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.host => Ok(()),
            checked => checked.map(drop),
        }
    }
}

impl ServerCertVerifier for Verify {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.check(end, between, host, stapled, now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

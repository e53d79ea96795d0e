//! TLS to the database: the system's certificates, and one's own.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::open::OpenError;

/// A connector that verifies the server, by the system's roots and those in `file`.
pub(super) fn connector(file: Option<&Path>) -> Result<MakeRustlsConnect, OpenError> {
    let mut roots = RootCertStore::empty();
    // A system certificate that cannot be read is not trusted, and that is all.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = file {
        let fail = |why: String| OpenError::Address(format!("{}: {why}", path.display()));
        let found = CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| fail(error.to_string()))?;
            roots.add(certificate).map_err(|error| fail(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Address(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

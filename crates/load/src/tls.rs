//! TLS of the client, for targets that speak TLS themselves. It is rustls's state machine, driven by the loop of a run. It does
//! not see the TLS of a mesh below a target.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// The user's options of TLS.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Trust these certificates (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The client's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of the client's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Take any certificate of the server's
    #[arg(long, short = 'k')]
    insecure: bool,
    /// The name to ask the server for, and to expect in its certificate, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

impl Options {
    /// The first option that says something about TLS which must not be passed over. Taking any
    /// certificate is none: who speaks no TLS needs none.
    pub fn first(&self) -> Option<&'static str> {
        let cert = self.cert.as_ref().map(|_| "--cert");
        let cacert = self.cacert.as_ref().map(|_| "--cacert");
        let name = self.server_name.as_ref().map(|_| "--server-name");
        cert.or(cacert).or(name)
    }
}

/// A reason why TLS cannot be set up, with its fix.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be used; its path and the fault.
    #[error("read {0}: {1}")]
    File(String, String),
    /// The options do not fit together.
    #[error("tls: {0}")]
    Options(String),
    /// The handshake or a record failed.
    #[error("{0}{fix}", fix = fix(.0))]
    Failed(#[from] rustls::Error),
    /// The server did not agree to the protocol that was offered; the protocol that it chose.
    #[error(
        "the server does not agree to speak {0} (ALPN); it speaks {1}: {fix}",
        fix = if *.0 == "h2" { "leave --http2 out" } else { "use --http2" }
    )]
    Protocol(&'static str, String),
}

fn fix(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    match error {
        // The second where the issuer has the name of one that is trusted, and another key.
        Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "; name its issuer with --cacert, or take any with --insecure"
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "; say which name to expect with --server-name, or take any with --insecure",
        Error::AlertReceived(Alert::CertificateRequired) => {
            "; give the client one with --cert and --key"
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            // Where its issuer has the name of one that is trusted, and another key.
            | Alert::DecryptError,
        ) => {
            "; the server does not take the client's certificate: look at the issuer, the dates and the use of --cert, and whether those between it and the root are in its file"
        }
        Error::InvalidMessage(_) => "; does the server speak TLS on this port?",
        Error::NoApplicationProtocol
        | Error::AlertReceived(Alert::NoApplicationProtocol) => {
            "; try with or without --http2"
        }
        _ => "",
    }
}

/// Makes sessions with one server.
#[derive(Debug, Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    alpn: &'static str,
}

impl Connector {
    /// A connector to `host` that offers one protocol, `http/1.1` or `h2`. Sessions are never resumed:
    /// each is a handshake in full, so that a new connection always costs the same.
    pub fn new(options: &Options, host: &str, alpn: &'static str) -> Result<Connector, TlsError> {
        let builder = ClientConfig::builder();
        let any = Arc::new(AnyCertificate(Arc::clone(builder.crypto_provider())));
        let builder = match options.insecure {
            true => builder.dangerous().with_custom_certificate_verifier(any),
            false => builder.with_root_certificates(trusted(options.cacert.as_deref())?),
        };
        // The command line demands both or none.
        let mut config = match options.cert.as_ref().zip(options.key.as_ref()) {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|error| unfit("--cert", "--key", &error))?,
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        config.resumption = Resumption::disabled();
        let name = options.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            TlsError::Options(format!("{name:?} is no name; write one with --server-name"))
        })?;
        Ok(Connector {
            config: Arc::new(config),
            name,
            alpn,
        })
    }

    /// A session that has sent nothing.
    pub fn session(&self) -> Result<ClientConnection, TlsError> {
        let mut tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        // A run bounds the bytes that it sends at once; the session does not.
        tls.set_buffer_limit(None);
        Ok(tls)
    }

    /// Whether the server agreed to the protocol. One that knows no ALPN speaks HTTP/1.1.
    pub fn check_protocol(&self, tls: &ClientConnection) -> Result<(), TlsError> {
        match tls.alpn_protocol() {
            Some(agreed) if agreed == self.alpn.as_bytes() => Ok(()),
            None if self.alpn == "http/1.1" => Ok(()),
            other => {
                let name = other.unwrap_or(b"something without a name");
                let spoken = String::from_utf8_lossy(name).into_owned();
                Err(TlsError::Protocol(self.alpn, spoken))
            }
        }
    }
}

fn trusted(cacert: Option<&Path>) -> Result<RootCertStore, TlsError> {
    if let Some(path) = cacert {
        return roots(path);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsError::Options(
            "this system has no certificates to trust; name some with --cacert, or take any with --insecure".to_owned(),
        ));
    }
    Ok(roots)
}

/// Reads the certificates of issuers in a file.
pub fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let unfit = |error| unusable(path, &error, "certificates of issuers in PEM");
        roots.add(certificate).map_err(unfit)?;
    }
    Ok(roots)
}

/// The error of a file that cannot be used, with the content that it must hold.
pub fn unusable(path: &Path, reason: &dyn fmt::Display, content: &str) -> TlsError {
    let reason = format!("{reason}; it must hold {content}");
    TlsError::File(path.display().to_string(), reason)
}

/// Reads the certificates of a file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = "certificates in PEM";
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(path, &error, content))?;
    if certificates.is_empty() {
        return Err(unusable(path, &"no certificate in it", content));
    }
    Ok(certificates)
}

/// Reads the private key of a file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let content = "the private key, not encrypted, in PEM";
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, &error, content))
}

/// The error of a certificate of one option that cannot be used with the key of another.
pub fn unfit(cert: &str, key: &str, error: &rustls::Error) -> TlsError {
    let (option, cure) = match error {
        rustls::Error::InconsistentKeys(_) => {
            let reason = format!("{cert} and {key} do not belong together: {error}");
            return TlsError::Options(reason);
        }
        rustls::Error::InvalidCertificate(_) => {
            (cert, "it must begin with an X.509 certificate of version 3")
        }
        _ => (key, "it must be an RSA, ECDSA or Ed25519 key"),
    };
    TlsError::Options(format!("{option} cannot be used: {error}; {cure}"))
}

/// Takes the server's bytes, and adds the clear text to `plain`.
pub fn read(
    tls: &mut ClientConnection,
    mut input: &[u8],
    plain: &mut Vec<u8>,
) -> Result<(), TlsError> {
    while !input.is_empty() {
        // Reading from a slice fails only where too much is held back, which what follows empties.
        if tls.read_tls(&mut input).is_err() {
            return Err(rustls::Error::General("too much at once".to_owned()).into());
        }
        let waiting = tls.process_new_packets()?.plaintext_bytes_to_read();
        plain.reserve(waiting);
        let read = tls.reader().take(waiting as u64).read_to_end(plain);
        read.map_err(|error| rustls::Error::General(error.to_string()))?;
    }
    Ok(())
}

/// Sends what a session holds, as far as the kernel takes it.
pub fn flush(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes any certificate, but only from who has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

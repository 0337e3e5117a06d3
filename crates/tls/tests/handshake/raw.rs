//! Peers that do not behave as ours do.

use std::io;
use std::sync::Arc;

use lateen_testkit::Bundle;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn chain(bundle: &Bundle) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let leaf = CertificateDer::from_pem_slice(bundle.chain[0].as_bytes()).unwrap();
    (
        vec![leaf],
        PrivateKeyDer::from_pem_slice(bundle.key.as_bytes()).unwrap(),
    )
}

async fn connect(
    bundle: Option<&Bundle>,
    version: &'static SupportedProtocolVersion,
    alpn: bool,
    io: DuplexStream,
) -> io::Result<()> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    let mut config = match bundle {
        None => config.with_no_client_auth(),
        Some(bundle) => {
            let (chain, key) = chain(bundle);
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    if alpn {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let name = ServerName::try_from("b.example").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, io)
        .await?;
    let mut end = [0];
    stream.read(&mut end).await.map(|_| ())
}

pub async fn client(bundle: Option<&Bundle>, io: DuplexStream) -> io::Result<()> {
    connect(bundle, &TLS13, true, io).await
}

pub async fn client_12(bundle: &Bundle, io: DuplexStream) -> io::Result<()> {
    connect(Some(bundle), &TLS12, true, io).await
}

pub async fn client_without_alpn(bundle: &Bundle, io: DuplexStream) -> io::Result<()> {
    connect(Some(bundle), &TLS13, false, io).await
}

async fn serve(
    bundle: &Bundle,
    version: &'static SupportedProtocolVersion,
    io: DuplexStream,
) -> io::Result<()> {
    let (chain, key) = chain(bundle);
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
        .accept(io)
        .await
        .map(|_| ())
}

pub async fn server(bundle: &Bundle, io: DuplexStream) -> io::Result<()> {
    serve(bundle, &TLS13, io).await
}

pub async fn server_12(bundle: &Bundle, io: DuplexStream) -> io::Result<()> {
    serve(bundle, &TLS12, io).await
}

/// Believes every server: it is the other side that is tested.
#[derive(Debug)]
struct Anyone;

impl rustls::client::danger::ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

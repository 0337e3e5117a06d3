//! TLS with peers outside of the mesh: clients of a listener, and servers of an upstream.

use std::sync::Arc;

use lateen_testkit::{Bundle, Ca, identity};
use lateen_tls::{
    Alpn, AltName, CertificateStore, Certificates, Compliance, ForeignError, ListenerSession,
    ListenerTls, Roots, ServerCertificate, UpstreamError, UpstreamSettings, UpstreamTls,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

fn for_names(ca: &Ca, names: &[&str]) -> Bundle {
    let leaf = ca.leaf(&identity("server")).uris(&[]);
    names.iter().fold(leaf, |leaf, name| leaf.dns(name)).issue()
}

fn certificate(bundle: &Bundle) -> ServerCertificate {
    let chain = bundle.chain[..bundle.chain.len() - 1].concat();
    ServerCertificate::from_pem(&chain, &bundle.key).unwrap()
}

/// A certificate for each name, from `ca`.
fn store(ca: &Ca, names: &[&str]) -> Arc<CertificateStore> {
    CertificateStore::new(certificates(ca, names))
}

fn certificates(ca: &Ca, names: &[&str]) -> Certificates {
    let mut certificates = Certificates::default();
    for name in names {
        let certificate = certificate(&for_names(ca, &[name]));
        certificates.insert(name, certificate).unwrap();
    }
    certificates
}

fn listener(certificates: &Arc<CertificateStore>) -> ListenerTls {
    let protocols = [Alpn::Http2, Alpn::Http1];
    ListenerTls::new(certificates, &protocols, Compliance::default())
}

/// A client that is no part of the mesh: rustls with its own cryptography and verifier.
struct Client<'a> {
    root: &'a str,
    name: &'static str,
    sends_name: bool,
    protocols: &'a [&'a [u8]],
    versions: &'static [&'static SupportedProtocolVersion],
}

impl<'a> Client<'a> {
    fn new(ca: &'a Ca, name: &'static str) -> Self {
        Client {
            root: ca.root(),
            name,
            sends_name: true,
            protocols: &[],
            versions: rustls::ALL_VERSIONS,
        }
    }

    async fn connect(
        &self,
        io: DuplexStream,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<DuplexStream>> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.root.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.enable_sni = self.sends_name;
        config.alpn_protocols = self.protocols.iter().map(|one| one.to_vec()).collect();
        let name = ServerName::try_from(self.name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, io).await
    }
}

/// Has both shake hands. The client sends a byte, and the server answers it: in TLS 1.3 a client learns of a refusal with its
/// first read (RFC 8446 §4.4.2).
async fn meet(
    listener: &ListenerTls,
    client: Client<'_>,
) -> (Result<ListenerSession, ForeignError>, std::io::Result<()>) {
    let (near, far) = duplex(1 << 16);
    let server = async {
        let (mut stream, session) = listener.accept(far).await?;
        assert_eq!(stream.read_u8().await.map_err(ForeignError::Io)?, 7);
        stream.write_u8(8).await.map_err(ForeignError::Io)?;
        stream.flush().await.map_err(ForeignError::Io)?;
        Ok((stream, session))
    };
    let client = async {
        let mut stream = client.connect(near).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 8);
        Ok(stream)
    };
    // Both streams live until both sides are done.
    let (server, client) = tokio::join!(server, client);
    (server.map(|(_, session)| session), client.map(drop))
}

#[tokio::test]
async fn each_name_is_served_its_own_certificate() {
    let ca = Ca::new();
    let listener = listener(&store(&ca, &["a.example.com", "*.example.com"]));
    for name in ["a.example.com", "b.example.com"] {
        // The client verifies that the certificate is for the name.
        let (session, client) = meet(&listener, Client::new(&ca, name)).await;
        client.unwrap();
        assert_eq!(session.unwrap().server_name.as_deref(), Some(name));
    }
    let (session, client) = meet(&listener, Client::new(&ca, "A.Example.com")).await;
    client.unwrap();
    assert_eq!(
        session.unwrap().server_name.as_deref(),
        Some("a.example.com")
    );
}

#[tokio::test]
async fn a_name_without_a_certificate_is_refused_unless_there_is_a_default() {
    let ca = Ca::new();
    let served = store(&ca, &["a.example.com"]);
    let listener = listener(&served);
    for sends_name in [true, false] {
        let client = Client {
            sends_name,
            ..Client::new(&ca, "b.example.com")
        };
        let (session, client) = meet(&listener, client).await;
        let refused = session.unwrap_err();
        assert!(
            matches!(refused, ForeignError::UnknownServerName),
            "{refused}"
        );
        assert!(client.is_err());
    }
    let mut with_default = certificates(&ca, &["a.example.com"]);
    with_default.set_default(certificate(&for_names(&ca, &["b.example.com"])));
    // The listener stays; the certificates are other ones from the next handshake on.
    served.replace(with_default);
    for sends_name in [true, false] {
        let client = Client {
            sends_name,
            ..Client::new(&ca, "b.example.com")
        };
        let (session, client) = meet(&listener, client).await;
        client.unwrap();
        assert_eq!(session.unwrap().server_name.is_some(), sends_name);
    }
}

#[tokio::test]
async fn the_listeners_preference_decides_the_protocol() {
    let ca = Ca::new();
    let served = store(&ca, &["a.example.com"]);
    let both = listener(&served);
    let only_http1 = ListenerTls::new(&served, &[Alpn::Http1], Compliance::default());
    let (h2, http1): (&[u8], &[u8]) = (b"h2", b"http/1.1");
    let cases = [
        (&both, vec![http1, h2], Some(Alpn::Http2)),
        (&both, vec![http1], Some(Alpn::Http1)),
        (&both, vec![], None),
        (&only_http1, vec![h2, http1], Some(Alpn::Http1)),
    ];
    for (listener, protocols, expected) in cases {
        let client = Client {
            protocols: &protocols,
            ..Client::new(&ca, "a.example.com")
        };
        let (session, client) = meet(listener, client).await;
        client.unwrap();
        assert_eq!(session.unwrap().protocol, expected, "{protocols:?}");
    }
    let client = Client {
        protocols: &[h2],
        ..Client::new(&ca, "a.example.com")
    };
    let (session, client) = meet(&only_http1, client).await;
    let refused = session.unwrap_err();
    assert!(matches!(refused, ForeignError::Protocol), "{refused}");
    assert!(client.is_err());
}

#[tokio::test]
async fn clients_of_tls_1_2_are_served_unless_key_exchange_must_be_post_quantum() {
    let ca = Ca::new();
    let served = store(&ca, &["a.example.com"]);
    static TLS12: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
    let old = || Client {
        versions: &TLS12,
        ..Client::new(&ca, "a.example.com")
    };
    let (session, client) = meet(&listener(&served), old()).await;
    client.unwrap();
    session.unwrap();
    let strict = ListenerTls::new(&served, &[], Compliance::PostQuantum);
    let (session, _) = meet(&strict, old()).await;
    let refused = session.unwrap_err();
    assert!(matches!(refused, ForeignError::Version), "{refused}");
}

fn settings(roots: Vec<Roots>, server_name: &str) -> UpstreamSettings {
    UpstreamSettings {
        roots,
        server_name: server_name.to_owned(),
        alt_names: Vec::new(),
        protocols: vec![Alpn::Http2, Alpn::Http1],
        compliance: Compliance::default(),
    }
}

fn pem(ca: &Ca) -> Roots {
    Roots::Pem(ca.root().to_owned())
}

/// Connects to a server with `bundle` for every name; answers the client's outcome and the name that it sent.
async fn dial(
    bundle: &Bundle,
    settings: &UpstreamSettings,
) -> (Result<Option<Alpn>, ForeignError>, Option<String>) {
    let mut certificates = Certificates::default();
    certificates.set_default(certificate(bundle));
    let listener = listener(&CertificateStore::new(certificates));
    let upstream = UpstreamTls::new(settings).unwrap();
    let (near, far) = duplex(1 << 16);
    // Both streams live until both sides are done.
    let (client, server) = tokio::join!(upstream.connect(near), listener.accept(far));
    let sent = server.ok().and_then(|(_, session)| session.server_name);
    (client.map(|(_, protocol)| protocol), sent)
}

#[tokio::test]
async fn a_server_is_verified_by_the_roots_of_the_upstream_and_by_its_name() {
    let (ca, other) = (Ca::new(), Ca::new());
    let bundle = for_names(&ca, &["api.example.com"]);
    let (protocol, sent) = dial(&bundle, &settings(vec![pem(&ca)], "api.example.com")).await;
    assert_eq!(protocol.unwrap(), Some(Alpn::Http2));
    assert_eq!(sent.as_deref(), Some("api.example.com"));
    // Bundles add up.
    let both = settings(vec![pem(&other), pem(&ca)], "api.example.com");
    dial(&bundle, &both).await.0.unwrap();

    let (refused, _) = dial(&bundle, &settings(vec![pem(&other)], "api.example.com")).await;
    assert!(
        matches!(refused, Err(ForeignError::UnknownAuthority)),
        "{refused:?}"
    );
    let (refused, _) = dial(&bundle, &settings(vec![], "api.example.com")).await;
    assert!(
        matches!(refused, Err(ForeignError::UnknownAuthority)),
        "{refused:?}"
    );
    let (refused, _) = dial(&bundle, &settings(vec![pem(&ca)], "www.example.com")).await;
    assert!(
        matches!(refused, Err(ForeignError::WrongName(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn alternative_names_stand_in_for_the_server_name() {
    let ca = Ca::new();
    let id = "spiffe://cluster.local/ns/default/sa/api";
    let bundle = ca
        .leaf(&identity("api"))
        .uris(&[id])
        .dns("internal.example.com")
        .dns("*.wild.example.com")
        .issue();
    let with = |alt_names: &[AltName]| UpstreamSettings {
        alt_names: alt_names.to_vec(),
        ..settings(vec![pem(&ca)], "api.example.com")
    };
    let dns = |name: &str| AltName::Dns(name.to_owned());
    let uri = |name: &str| AltName::Uri(name.to_owned());
    for names in [
        vec![dns("internal.example.com")],
        vec![dns("a.wild.example.com")],
        vec![uri(id)],
        vec![dns("nowhere.example.com"), uri(id)],
    ] {
        let (outcome, sent) = dial(&bundle, &with(&names)).await;
        outcome.unwrap();
        assert_eq!(sent.as_deref(), Some("api.example.com"), "{names:?}");
    }
    for names in [
        vec![],
        vec![dns("api.example.com")],
        vec![dns("a.b.wild.example.com")],
        vec![uri("spiffe://cluster.local/ns/default/sa/ap")],
    ] {
        let (refused, _) = dial(&bundle, &with(&names)).await;
        assert!(
            matches!(refused, Err(ForeignError::WrongName(_))),
            "{names:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn an_expired_server_is_refused() {
    let ca = Ca::new();
    let now = std::time::SystemTime::now();
    let hours = |hours: u64| std::time::Duration::from_secs(3600 * hours);
    let bundle = ca
        .leaf(&identity("api"))
        .dns("api.example.com")
        .valid(now - hours(2), now - hours(1))
        .issue();
    let (refused, _) = dial(&bundle, &settings(vec![pem(&ca)], "api.example.com")).await;
    assert!(
        matches!(refused, Err(ForeignError::Expired { .. })),
        "{refused:?}"
    );
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let ca = Ca::new();
    let refused = |settings: &UpstreamSettings| UpstreamTls::new(settings).unwrap_err();
    assert!(matches!(
        refused(&settings(vec![Roots::Pem("none".to_owned())], "a")),
        UpstreamError::Roots(_)
    ));
    assert!(matches!(
        refused(&settings(vec![Roots::File("/no/such/file".into())], "a")),
        UpstreamError::Roots(_)
    ));
    assert!(matches!(
        refused(&settings(vec![pem(&ca)], "no name")),
        UpstreamError::Name(_)
    ));
    let with_alternative = UpstreamSettings {
        alt_names: vec![AltName::Dns("no name".to_owned())],
        ..settings(vec![pem(&ca)], "a")
    };
    assert!(matches!(refused(&with_alternative), UpstreamError::Name(_)));
    UpstreamTls::new(&settings(vec![Roots::System, pem(&ca)], "10.0.0.1")).map_or_else(
        // A machine without roots of its own says so.
        |error| assert!(matches!(error, UpstreamError::Roots(_)), "{error}"),
        drop,
    );
}

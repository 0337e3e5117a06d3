//! Connections to the control plane, to a real socket.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::Uri;
use lateen_testkit::{Bundle, Ca, identity};
use lateen_tls::{Called, ControlConnector, ControlError, Roots, TlsError};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server with this certificate, for one connection.
async fn serve(bundle: &Bundle) -> SocketAddr {
    let leaf = CertificateDer::from_pem_slice(bundle.chain[0].as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(bundle.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        // The client's verdict is what is tested.
        let _ = TlsAcceptor::from(Arc::new(config)).accept(tcp).await;
    });
    address
}

async fn call(mut connector: ControlConnector, uri: &str) -> Result<(), ControlError> {
    connector
        .call(uri.parse::<Uri>().unwrap())
        .await
        .map(|_| ())
}

fn for_ip(ca: &Ca) -> Bundle {
    ca.leaf(&identity("control"))
        .uris(&[])
        .ip(LOCALHOST)
        .issue()
}

#[tokio::test]
async fn a_server_certified_for_its_address_is_believed() {
    let ca = Ca::new();
    let address = serve(&for_ip(&ca)).await;
    let connector = ControlConnector::new(Roots::Pem(ca.root().to_owned()), None);
    call(connector, &format!("https://{address}"))
        .await
        .unwrap();
}

#[tokio::test]
async fn another_name_is_believed_only_if_told() {
    let ca = Ca::new();
    let named = ca
        .leaf(&identity("control"))
        .uris(&[])
        .dns("istiod.istio-system.svc")
        .issue();
    let roots = Roots::Pem(ca.root().to_owned());
    let uri = format!("https://{}", serve(&named).await);
    let refused = call(ControlConnector::new(roots.clone(), None), &uri)
        .await
        .unwrap_err();
    assert!(matches!(refused, ControlError::Tls { .. }), "{refused}");
    let uri = format!("https://{}", serve(&named).await);
    let connector = ControlConnector::new(roots, Some("istiod.istio-system.svc"));
    call(connector, &uri).await.unwrap();
}

#[tokio::test]
async fn roots_in_a_file_are_read_for_every_connection() {
    let (old, new) = (Ca::new(), Ca::new());
    let path = std::env::temp_dir().join(format!("lateen-roots-{}.pem", std::process::id()));
    std::fs::write(&path, old.root()).unwrap();
    let connector = ControlConnector::new(Roots::File(path.clone()), None);
    let uri = format!("https://{}", serve(&for_ip(&new)).await);
    let refused = call(connector.clone(), &uri).await.unwrap_err();
    let unknown = matches!(
        &refused,
        ControlError::Tls {
            source: TlsError::UnknownCa,
            ..
        }
    );
    std::fs::write(&path, new.root()).unwrap();
    let uri = format!("https://{}", serve(&for_ip(&new)).await);
    let accepted = call(connector.clone(), &uri).await;
    std::fs::remove_file(&path).unwrap();
    let missing = call(connector, &uri).await.unwrap_err();
    assert!(unknown, "{refused}");
    accepted.unwrap();
    assert!(matches!(missing, ControlError::Roots { .. }), "{missing}");
    assert!(missing.to_string().contains("lateen-roots"), "{missing}");
}

#[tokio::test]
async fn addresses_without_tls_are_refused() {
    let ca = Ca::new();
    let connector = ControlConnector::new(Roots::Pem(ca.root().to_owned()), None);
    for uri in ["http://127.0.0.1:1", "127.0.0.1:1", "/path"] {
        let refused = call(connector.clone(), uri).await.unwrap_err();
        assert!(
            matches!(refused, ControlError::Address { .. }),
            "{uri}: {refused}"
        );
    }
}

#[tokio::test]
async fn nobody_listening_is_said_with_the_address() {
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ca = Ca::new();
    let connector = ControlConnector::new(Roots::Pem(ca.root().to_owned()), None);
    let refused = call(connector, &format!("https://{address}"))
        .await
        .unwrap_err();
    assert!(matches!(refused, ControlError::Connect { .. }), "{refused}");
    assert!(
        refused.to_string().contains(&address.to_string()),
        "{refused}"
    );
}

#[tokio::test]
async fn every_error_names_who_was_called_and_where_its_roots_are_set() {
    let ca = Ca::new();
    let (known, unknown) = (
        Roots::Pem(ca.root().to_owned()),
        Roots::Pem(Ca::new().root().to_owned()),
    );
    for (called, name, variable) in [
        (Called::ControlPlane, "control plane", "XDS_ROOT_CA"),
        (Called::Authority, "certificate authority", "CA_ROOT_CA"),
        (
            Called::Collector,
            "OpenTelemetry collector",
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
        ),
    ] {
        let there = format!("https://{}", serve(&for_ip(&ca)).await);
        let nothing = Roots::Pem(String::new());
        for (uri, roots) in [
            (&*there, &unknown),
            ("https://127.0.0.1:1", &known),
            ("http://127.0.0.1:1", &known),
            ("https://127.0.0.1:1", &nothing),
        ] {
            let connector = ControlConnector::new(roots.clone(), None).to(called);
            let error = call(connector, uri).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(name), "{text} lacks {name}");
            if matches!(error, ControlError::Roots { .. }) {
                assert!(text.ends_with(&format!("check {variable}")), "{text}");
            }
        }
    }
}

#[test]
fn the_three_spellings_of_roots() {
    assert_eq!(Roots::parse("SYSTEM"), Roots::System);
    assert_eq!(
        Roots::parse("/etc/ca.pem"),
        Roots::File("/etc/ca.pem".into())
    );
    let pem = Ca::new().root().to_owned();
    assert_eq!(Roots::parse(&pem), Roots::Pem(pem));
}

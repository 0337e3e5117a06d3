//! Two peers meet over an in-memory connection: who gets through, and what is said to whom who does not.

mod raw;
mod svid;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lateen_testkit::{Ca, identity};
use lateen_tls::{Credentials, Session, TlsError, TlsStream, accept, connect};
use lateen_types::Identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

type End = Result<(TlsStream<DuplexStream>, Session), TlsError>;

/// Both sides at once. The client's refusal by the server shows at its first read, which is awaited here.
async fn meet(
    client: &Arc<Credentials>,
    server: &Arc<Credentials>,
    expected: &[Identity],
) -> (End, End) {
    let (near, far) = duplex(64 * 1024);
    let connecting = async {
        let (mut stream, peer) = connect(client, near, expected).await?;
        let mut greeting = [0; 2];
        match stream.read_exact(&mut greeting).await {
            Ok(_) => Ok((stream, peer)),
            Err(e) => match e.into_inner().and_then(|e| e.downcast::<TlsError>().ok()) {
                Some(error) => Err(*error),
                None => panic!("the refusal is not a TLS error"),
            },
        }
    };
    let accepting = async {
        let (mut stream, peer) = accept(server, far).await?;
        stream.write_all(b"hi").await.expect("the client reads");
        stream.flush().await.expect("the client reads");
        Ok((stream, peer))
    };
    tokio::join!(connecting, accepting)
}

fn error(end: End) -> TlsError {
    match end {
        Ok((_, peer)) => panic!("{peer} got through"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn peers_of_one_mesh_learn_each_others_identity() {
    let ca = Ca::new();
    let (a, b) = (identity("a"), identity("b"));
    let expected = [identity("other"), b.clone()];
    let (client, server) = meet(&ca.credentials(&a), &ca.credentials(&b), &expected).await;
    assert_eq!(client.unwrap().1.identity(), &b);
    assert_eq!(server.unwrap().1.identity(), &a);
}

#[tokio::test]
async fn an_expired_server_is_refused_and_told() {
    let ca = Ca::new();
    let b = identity("b");
    let past = SystemTime::now() - Duration::from_secs(3600);
    // A server whose own clock is behind does not know that it is expired: play it with raw rustls.
    let expired = ca
        .leaf(&b)
        .valid(past - Duration::from_secs(60), past)
        .issue();
    let (near, far) = duplex(64 * 1024);
    let serving = raw::server(&expired, far);
    let client = ca.credentials(&identity("a"));
    let (client, server) = tokio::join!(connect(&client, near, std::slice::from_ref(&b)), serving);
    let client = client.expect_err("an expired server got through");
    assert!(matches!(client, TlsError::Expired { .. }), "{client}");
    assert!(
        client.to_string().contains("expired 60 min ago"),
        "{client}"
    );
    assert!(
        server
            .unwrap_err()
            .to_string()
            .contains("CertificateExpired")
    );
}

#[tokio::test]
async fn an_expired_client_is_refused_and_told() {
    let ca = Ca::new();
    let past = SystemTime::now() - Duration::from_secs(3600);
    let expired = ca
        .leaf(&identity("a"))
        .valid(past - Duration::from_secs(60), past)
        .issue();
    let (near, far) = duplex(64 * 1024);
    let server = ca.credentials(&identity("b"));
    let (client, server) = tokio::join!(raw::client(Some(&expired), near), accept(&server, far));
    assert!(
        matches!(server, Err(TlsError::Expired { .. })),
        "{server:?}"
    );
    assert!(
        client
            .unwrap_err()
            .to_string()
            .contains("CertificateExpired")
    );
}

#[tokio::test]
async fn own_expired_credentials_are_not_used() {
    let ca = Ca::new();
    let past = SystemTime::now() - Duration::from_secs(3600);
    let leaf = ca
        .leaf(&identity("a"))
        .valid(past - Duration::from_secs(60), past);
    let own = leaf.issue().credentials();
    let (near, far) = duplex(1024);
    let refused = connect(&own, near, &[identity("b")])
        .await
        .expect_err("expired");
    assert!(matches!(refused, TlsError::OwnExpired { .. }), "{refused}");
    let refused = accept(&own, far).await.expect_err("expired");
    assert!(matches!(refused, TlsError::OwnExpired { .. }), "{refused}");
}

#[tokio::test]
async fn a_certificate_from_the_future_is_refused() {
    let ca = Ca::new();
    let soon = SystemTime::now() + Duration::from_secs(3600);
    let early = ca
        .leaf(&identity("b"))
        .valid(soon, soon + Duration::from_secs(60))
        .issue();
    let (client, _) = meet(
        &ca.credentials(&identity("a")),
        &early.credentials(),
        &[identity("b")],
    )
    .await;
    assert!(matches!(error(client), TlsError::NotYetValid));
}

#[tokio::test]
async fn a_client_of_another_trust_domain_is_refused_by_name() {
    let ca = Ca::new();
    let stranger = Identity::new("other.example", "default", "a").unwrap();
    let (client, server) = meet(
        &ca.credentials(&stranger),
        &ca.credentials(&identity("b")),
        &[identity("b")],
    )
    .await;
    let server = error(server);
    assert!(
        matches!(server, TlsError::WrongTrustDomain { .. }),
        "{server}"
    );
    for part in ["spiffe://other.example/ns/default/sa/a", "cluster.local"] {
        assert!(server.to_string().contains(part), "{server}");
    }
    let client = error(client);
    assert!(matches!(client, TlsError::Refused { .. }), "{client}");
    assert!(client.to_string().contains("trust domain"), "{client}");
}

#[tokio::test]
async fn another_server_than_expected_is_refused_by_name() {
    let ca = Ca::new();
    let (client, _) = meet(
        &ca.credentials(&identity("a")),
        &ca.credentials(&identity("evil")),
        &[identity("b")],
    )
    .await;
    let client = error(client);
    assert!(matches!(client, TlsError::WrongIdentity { .. }), "{client}");
    for part in ["sa/evil", "sa/b"] {
        assert!(client.to_string().contains(part), "{client}");
    }
}

#[tokio::test]
async fn expecting_nobody_accepts_nobody() {
    let ca = Ca::new();
    let (client, _) = meet(
        &ca.credentials(&identity("a")),
        &ca.credentials(&identity("b")),
        &[],
    )
    .await;
    assert!(matches!(error(client), TlsError::WrongIdentity { .. }));
}

#[tokio::test]
async fn a_certificate_without_identity_is_refused() {
    let ca = Ca::new();
    let nameless = ca.leaf(&identity("b")).uris(&["https://b.example"]).issue();
    let (near, far) = duplex(64 * 1024);
    let client = ca.credentials(&identity("a"));
    let expected = [identity("b")];
    let (client, _) = tokio::join!(
        connect(&client, near, &expected),
        raw::server(&nameless, far)
    );
    assert!(matches!(client, Err(TlsError::NoIdentity)), "{client:?}");

    let (near, far) = duplex(64 * 1024);
    let server = ca.credentials(&identity("b"));
    let (_, server) = tokio::join!(raw::client(Some(&nameless), near), accept(&server, far));
    assert!(matches!(server, Err(TlsError::NoIdentity)), "{server:?}");
}

#[tokio::test]
async fn another_authority_is_refused_on_both_sides() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let (client, server) = meet(
        &ours.credentials(&identity("a")),
        &theirs.credentials(&identity("b")),
        &[identity("b")],
    )
    .await;
    assert!(matches!(error(client), TlsError::UnknownCa));
    let server = error(server);
    assert!(matches!(server, TlsError::Refused { .. }), "{server}");
    assert!(server.to_string().contains("roots may differ"), "{server}");

    // The client that believes the server is told by the server.
    let stranger = theirs.leaf(&identity("a")).issue();
    let (near, far) = duplex(64 * 1024);
    let server = ours.credentials(&identity("b"));
    let (client, server) = tokio::join!(raw::client(Some(&stranger), near), accept(&server, far));
    assert!(matches!(server, Err(TlsError::UnknownCa)), "{server:?}");
    assert!(client.unwrap_err().to_string().contains("UnknownCA"));
}

#[tokio::test]
async fn a_client_without_certificate_is_refused() {
    let ca = Ca::new();
    let (near, far) = duplex(64 * 1024);
    let server = ca.credentials(&identity("b"));
    let (client, server) = tokio::join!(raw::client(None, near), accept(&server, far));
    assert!(matches!(server, Err(TlsError::NoCertificate)), "{server:?}");
    assert!(
        client
            .unwrap_err()
            .to_string()
            .contains("CertificateRequired")
    );
}

#[tokio::test]
async fn tls_1_2_is_refused_on_both_sides() {
    let ca = Ca::new();
    let (a, b) = (
        ca.credentials(&identity("a")),
        ca.credentials(&identity("b")),
    );
    let bundle = ca.leaf(&identity("b")).issue();

    let (near, far) = duplex(64 * 1024);
    let (_, server) = tokio::join!(raw::client_12(&bundle, near), accept(&b, far));
    assert!(matches!(server, Err(TlsError::Version)), "{server:?}");

    let (near, far) = duplex(64 * 1024);
    let expected = [identity("b")];
    let (client, _) = tokio::join!(connect(&a, near, &expected), raw::server_12(&bundle, far));
    let client = client.expect_err("TLS 1.2 got through");
    assert!(
        matches!(client, TlsError::Version | TlsError::Refused { alert: 70 }),
        "{client}"
    );
    assert!(client.to_string().contains("TLS 1.3"), "{client}");
}

#[tokio::test]
async fn a_peer_that_speaks_no_tls_is_named_so() {
    let ca = Ca::new();
    let (mut near, far) = duplex(1024);
    near.write_all(b"GET / HTTP/1.1\r\nhost: b\r\n\r\n")
        .await
        .unwrap();
    let refused = accept(&ca.credentials(&identity("b")), far)
        .await
        .expect_err("plaintext");
    assert!(matches!(refused, TlsError::NotTls), "{refused}");
}

#[tokio::test]
async fn a_peer_that_leaves_is_no_tls_error() {
    let ca = Ca::new();
    let (near, far) = duplex(1024);
    drop(near);
    let refused = accept(&ca.credentials(&identity("b")), far)
        .await
        .expect_err("nobody");
    assert!(matches!(refused, TlsError::Io(_)), "{refused}");
}

#[tokio::test]
async fn a_peer_without_http2_is_refused() {
    let ca = Ca::new();
    let bundle = ca.leaf(&identity("a")).issue();
    let (near, far) = duplex(64 * 1024);
    let server = ca.credentials(&identity("b"));
    let (_, server) = tokio::join!(
        raw::client_without_alpn(&bundle, near),
        accept(&server, far)
    );
    assert!(matches!(server, Err(TlsError::Protocol)), "{server:?}");
}

#[tokio::test]
async fn both_ends_of_one_connection_have_its_binding_and_no_other_has() {
    let ca = Ca::new();
    let (a, b) = (
        ca.credentials(&identity("a")),
        ca.credentials(&identity("b")),
    );
    let expected = [identity("b")];
    let mut bindings = Vec::new();
    for _ in 0..2 {
        let (client, server) = meet(&a, &b, &expected).await;
        let (client, server) = (client.unwrap().1, server.unwrap().1);
        assert_eq!(client.binding(), server.binding());
        assert_eq!(format!("{:?}", client.binding()), "Binding(..)");
        bindings.push(client.binding().clone());
    }
    assert_ne!(
        bindings[0], bindings[1],
        "the same ends, another connection"
    );
}

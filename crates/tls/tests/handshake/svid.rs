//! The form that a peer's certificate must have to name a workload.

use std::time::Duration;

use lateen_testkit::{Bundle, Ca, identity};
use lateen_tls::{Credentials, CredentialsError, KeyPair, NotSvid, TlsError, accept, connect};
use proptest::prelude::*;
use tokio::io::duplex;

use crate::raw;

const A: &str = "spiffe://cluster.local/ns/default/sa/a";
const B: &str = "spiffe://cluster.local/ns/default/sa/b";

/// Returns the errors with which both sides refuse a peer with this certificate: first as a server that was dialled as `b`,
/// then as a client.
async fn refused(peer: &Bundle) -> [TlsError; 2] {
    let ca_of_peer = |name: &str| Ca::new().leaf(&identity(name)).issue();
    let own = ca_of_peer("own").trusting(peer.chain.last().expect("there is a root"));
    let own = own.credentials();
    let expected = [identity("a"), identity("b")];
    let both = async {
        let (near, far) = duplex(64 * 1024);
        let (client, _) = tokio::join!(connect(&own, near, &expected), raw::server(peer, far));
        let (near, far) = duplex(64 * 1024);
        let (_, server) = tokio::join!(raw::client(Some(peer), near), accept(&own, far));
        (client, server)
    };
    // A peer that gets through waits for what it is never sent.
    let both = tokio::time::timeout(Duration::from_secs(10), both).await;
    let (client, server) = both.expect("it got through");
    let error = |end: Result<_, TlsError>| end.map(|_| ()).expect_err("it got through");
    [error(client.map(drop)), error(server.map(drop))]
}

fn own(bundle: &Bundle) -> Result<Credentials, CredentialsError> {
    let key = KeyPair::from_pem(&bundle.key).expect("the key is one of ours");
    Credentials::from_issued(key, &bundle.chain)
}

#[tokio::test]
async fn a_certificate_with_several_uris_is_refused() {
    let ca = Ca::new();
    for uris in [
        &[A, B][..],
        &[B, A],
        &[B, B],
        &["https://b.example", B],
        &[B, "https://b.example"],
        &[B, "spiffe://other.example/ns/default/sa/b"],
        &[A, B, "spiffe://cluster.local/ns/default/sa/c"],
    ] {
        let several = ca.leaf(&identity("b")).uris(uris).issue();
        let count = uris.len();
        for error in refused(&several).await {
            assert!(
                matches!(error, TlsError::NotSvid(NotSvid::SeveralUris { uris }) if uris == count),
                "{error}"
            );
            assert!(
                error
                    .to_string()
                    .contains("URI names; an X.509-SVID has exactly one"),
                "{error}"
            );
        }
        assert!(matches!(
            own(&several),
            Err(CredentialsError::NotSvid(NotSvid::SeveralUris { .. }))
        ));
    }
}

/// SubjectAltName of one URI.
fn one_uri(uri: &str) -> Vec<u8> {
    let length = |n: usize| u8::try_from(n).expect("a short name");
    // RFC 5280 §4.2.1.6: a sequence of names, a URI's tag is 6.
    let mut name = vec![0x86, length(uri.len())];
    name.extend(uri.as_bytes());
    let mut names = vec![0x30, length(name.len())];
    names.extend(name);
    names
}

/// rustls itself does not serve with such a certificate.
#[test]
fn a_second_extension_of_names_is_refused() {
    let ca = Ca::new();
    let two = ca.leaf(&identity("b")).more_names(&one_uri(A)).issue();
    let refused = own(&two).expect_err("it was taken");
    assert!(
        matches!(refused, CredentialsError::Malformed { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn a_second_uri_that_is_no_text_counts() {
    let ca = Ca::new();
    let mut names = vec![0x30, 0, 0x86, 2, 0xff, 0xfe];
    names.extend(&one_uri(B)[2..]);
    names[1] = u8::try_from(names.len() - 2).unwrap();
    let two = ca.leaf(&identity("b")).uris(&[]).more_names(&names).issue();
    for error in refused(&two).await {
        assert!(
            matches!(error, TlsError::NotSvid(_) | TlsError::BadCertificate(_)),
            "{error:?}"
        );
    }
    assert!(own(&two).is_err());
}

#[tokio::test]
async fn other_names_may_stand_beside_the_uri() {
    let ca = Ca::new();
    let more = ca.leaf(&identity("b")).dns("b.example");
    let more = more.ip("192.0.2.1".parse().unwrap()).issue();
    let b = more.credentials();
    let expected = [identity("b")];
    let (client, server) = super::meet(&ca.credentials(&identity("a")), &b, &expected).await;
    assert_eq!(client.unwrap().1.identity(), &identity("b"));
    assert_eq!(server.unwrap().1.identity(), &identity("a"));
    let (client, server) = super::meet(&b, &b, &expected).await;
    assert!(client.is_ok());
    assert_eq!(server.unwrap().1.identity(), &identity("b"));
}

#[tokio::test]
async fn an_authority_is_no_workload() {
    let ca = Ca::new();
    let authority = ca.leaf(&identity("b")).authority().issue();
    for error in refused(&authority).await {
        assert!(
            matches!(error, TlsError::NotSvid(NotSvid::Authority)),
            "{error:?}"
        );
    }
    assert!(matches!(
        own(&authority),
        Err(CredentialsError::NotSvid(NotSvid::Authority))
    ));
}

#[tokio::test]
async fn a_key_that_may_sign_certificates_is_no_workloads() {
    let ca = Ca::new();
    for signing in [
        ca.leaf(&identity("b")).signing_certificates().issue(),
        ca.leaf(&identity("b")).signing_lists().issue(),
    ] {
        for error in refused(&signing).await {
            assert!(
                matches!(error, TlsError::NotSvid(NotSvid::Signs)),
                "{error:?}"
            );
        }
        assert!(matches!(
            own(&signing),
            Err(CredentialsError::NotSvid(NotSvid::Signs))
        ));
    }
}

#[tokio::test]
async fn a_name_of_another_form_is_no_identity() {
    let ca = Ca::new();
    let long = format!("spiffe://cluster.local/ns/default/sa/{}", "b".repeat(2048));
    for uri in [
        "spiffe://cluster.local/ns/default/sa/b/",
        "spiffe://cluster.local//ns/default/sa/b",
        "spiffe://cluster.local/ns/default/sa/b?x=y",
        "spiffe://cluster.local/ns/default/sa/b#x",
        "spiffe://cluster.local/ns/default/sa/%62",
        "spiffe://cluster.local:443/ns/default/sa/b",
        "spiffe://user@cluster.local/ns/default/sa/b",
        "spiffe://cluster.local/ns/./sa/b",
        "spiffe://cluster.local/ns/../sa/b",
        "spiffe://cluster.local/ns/default/sa/b ",
        "spiffe:///ns/default/sa/b",
        &long,
    ] {
        let odd = ca.leaf(&identity("b")).uris(&[uri]).issue();
        for error in refused(&odd).await {
            assert!(
                matches!(error, TlsError::NotSvid(NotSvid::Id { .. })),
                "{uri}: {error:?}"
            );
        }
    }
    // SPIFFE IDs, but no workload's of a mesh.
    for uri in [
        "spiffe://cluster.local",
        "spiffe://cluster.local/ns/default/sa/b/x",
        "spiffe://cluster.local/ns/default/b",
        "spiffe://cluster.local/sa/default/ns/b",
        "spiffe://cluster.local/NS/default/sa/b",
        "SPIFFE://cluster.local/ns/default/sa/b",
        "https://cluster.local/ns/default/sa/b",
    ] {
        let odd = ca.leaf(&identity("b")).uris(&[uri]).issue();
        for error in refused(&odd).await {
            assert!(matches!(error, TlsError::NoIdentity), "{uri}: {error:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A certificate is somebody's exactly if it has one URI and that is a workload's.
    #[test]
    fn a_certificate_is_whom_its_only_uri_names(
        uris in proptest::collection::vec(
            prop_oneof![
                "spiffe://[a-z.]{1,8}/ns/[a-z0-9-]{1,5}/sa/[a-z0-9.-]{1,5}",
                "spiffe://[a-z.%:]{0,4}/[a-z/.?]{0,8}",
                "https://[a-z.]{1,9}",
            ],
            0..4,
        ),
        dns in proptest::option::of("[a-z]{1,5}\\.example"),
    ) {
        let ca = Ca::new();
        let texts: Vec<&str> = uris.iter().map(String::as_str).collect();
        let leaf = ca.leaf(&identity("x")).uris(&texts);
        let bundle = match &dns {
            Some(name) => leaf.dns(name).issue(),
            None => leaf.issue(),
        };
        match (own(&bundle), &texts[..]) {
            (Ok(credentials), [only]) => prop_assert_eq!(&credentials.identity().uri(), only),
            (Ok(credentials), _) => prop_assert!(false, "{} of {:?}", credentials.identity(), texts),
            (Err(CredentialsError::NotSvid(NotSvid::SeveralUris { uris })), _) => prop_assert_eq!(uris, texts.len()),
            (Err(_), [] | [_]) => {}
            (Err(error), _) => prop_assert!(false, "{} of {:?}", error, texts),
        }
    }
}

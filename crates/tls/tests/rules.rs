//! What an operator decides about handshakes: certificates taken back, aliases of the trust domain, key exchange.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lateen_testkit::{Bundle, Ca, identity};
use lateen_tls::{
    Compliance, Credentials, RevocationError, RevocationLists, Revocations, Rules, Session,
    TlsError, accept, connect,
};
use lateen_types::Identity;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

type End = Result<Session, TlsError>;

/// Both sides at once; the client waits for a word of the server, or for its refusal.
async fn meet(client: &Arc<Credentials>, server: &Arc<Credentials>) -> (End, End) {
    let (near, far) = duplex(64 * 1024);
    let expected = [server.identity().clone()];
    let connecting = async {
        let (mut stream, session) = connect(client, near, &expected).await?;
        match stream.read_u8().await {
            Ok(_) => Ok(session),
            Err(e) => match e.into_inner().and_then(|e| e.downcast::<TlsError>().ok()) {
                Some(error) => Err(*error),
                None => panic!("the refusal is not a TLS error"),
            },
        }
    };
    let accepting = async {
        let (mut stream, session) = accept(server, far).await?;
        stream.write_u8(1).await.expect("the client reads");
        stream.flush().await.expect("the client reads");
        Ok(session)
    };
    tokio::join!(connecting, accepting)
}

fn soon() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

fn lists(pem: &str) -> RevocationLists {
    RevocationLists::parse(pem.as_bytes()).expect("the list is one of ours")
}

/// Rules whose lists are `pem`.
fn revoking(pem: &str) -> Rules {
    let rules = Rules::default();
    rules.revocations.replace(lists(pem));
    rules
}

fn leaf(ca: &Ca, name: &str) -> Bundle {
    ca.leaf(&identity(name)).issue()
}

#[tokio::test]
async fn a_revoked_client_is_refused_and_told() {
    let ca = Ca::new();
    let client = leaf(&ca, "a");
    let rules = revoking(&ca.revoke(&[client.serial], soon()));
    let server = leaf(&ca, "b").credentials_under(&rules);
    let (told, refused) = meet(&client.credentials(), &server).await;
    assert!(matches!(refused, Err(TlsError::Revoked)), "{refused:?}");
    let told = told.expect_err("it got through").to_string();
    assert!(told.contains("our certificate is revoked"), "{told}");
    // Another one of the same authority is as good as ever.
    let (client, server) = meet(&ca.credentials(&identity("a")), &server).await;
    client.and(server).expect("nobody took it back");
}

#[tokio::test]
async fn a_revoked_server_is_refused() {
    let ca = Ca::new();
    let server = leaf(&ca, "b");
    let rules = revoking(&ca.revoke(&[server.serial], soon()));
    let client = leaf(&ca, "a").credentials_under(&rules);
    let (refused, _) = meet(&client, &server.credentials()).await;
    assert!(matches!(refused, Err(TlsError::Revoked)), "{refused:?}");
}

#[tokio::test]
async fn all_that_a_revoked_intermediate_signed_is_refused() {
    let root = Ca::named("root");
    let (good, bad) = (root.intermediate("good"), root.intermediate("bad"));
    let rules = revoking(&root.revoke(&[bad.serial()], soon()));
    let server = leaf(&good, "b").credentials_under(&rules);
    let (_, refused) = meet(&leaf(&bad, "a").credentials(), &server).await;
    assert!(matches!(refused, Err(TlsError::Revoked)), "{refused:?}");
    let (_, accepted) = meet(&leaf(&good, "a").credentials(), &server).await;
    accepted.expect("its intermediate is good");
}

#[tokio::test]
async fn a_list_takes_effect_without_new_credentials_and_on_open_sessions() {
    let ca = Ca::new();
    let client = leaf(&ca, "a");
    let rules = Rules::default();
    let server = leaf(&ca, "b").credentials_under(&rules);
    let (near, far) = meet(&client.credentials(), &server).await;
    let (near, far) = (near.unwrap(), far.unwrap());
    assert!(!far.revoked(&rules.revocations));
    rules
        .revocations
        .replace(lists(&ca.revoke(&[client.serial], soon())));
    assert!(far.revoked(&rules.revocations), "the client was taken back");
    assert!(!near.revoked(&rules.revocations), "and the server was not");
    let (_, refused) = meet(&client.credentials(), &server).await;
    assert!(matches!(refused, Err(TlsError::Revoked)), "{refused:?}");
    rules.revocations.replace(RevocationLists::default());
    assert!(!far.revoked(&rules.revocations));
}

#[tokio::test]
async fn two_authorities_of_one_name_have_a_list_each() {
    let (first, second) = (Ca::named("same"), Ca::named("same"));
    let both = format!("{}{}", first.root(), second.root());
    let bad = leaf(&second, "a").trusting(&both);
    let pem = [
        first.revoke(&[], soon()),
        second.revoke(&[bad.serial], soon()),
    ]
    .concat();
    let rules = revoking(&pem);
    let server = leaf(&first, "b").trusting(&both).credentials_under(&rules);
    let (_, refused) = meet(&bad.credentials(), &server).await;
    assert!(matches!(refused, Err(TlsError::Revoked)), "{refused:?}");
    for ca in [&first, &second] {
        let good = leaf(ca, "c").trusting(&both).credentials();
        let (_, accepted) = meet(&good, &server).await;
        accepted.expect("it is on no list");
    }
}

#[tokio::test]
async fn a_stale_list_says_so_and_still_holds() {
    let ca = Ca::new();
    let client = leaf(&ca, "a");
    let past = SystemTime::now() - Duration::from_secs(60);
    let pem = ca.revoke(&[client.serial], past);
    let info = lists(&pem).infos()[0].clone();
    assert!(info.stale_at(SystemTime::now()) && !info.stale_at(past - Duration::from_secs(60)));
    assert_eq!(
        (info.issuer.as_str(), info.revoked),
        ("CN=rcgen self signed cert, O=test mesh", 1)
    );
    let server = leaf(&ca, "b").credentials_under(&revoking(&pem));
    let (_, refused) = meet(&client.credentials(), &server).await;
    assert!(matches!(refused, Err(TlsError::Revoked)), "{refused:?}");
}

#[test]
fn a_file_is_read_whole_or_not_at_all() {
    let ca = Ca::new();
    let pem = ca.revoke(&[7, 8], soon());
    for nothing in ["", "\n\n"] {
        assert!(lists(nothing).infos().is_empty());
    }
    // Blocks of other kinds are passed over.
    let mixed = format!("# comment\n{}{pem}{pem}", ca.root());
    assert_eq!(
        (lists(&mixed).infos().len(), lists(&mixed).revoked()),
        (2, 4)
    );
    assert!(matches!(
        RevocationLists::parse(ca.root().as_bytes()),
        Err(RevocationError::NoList)
    ));
    let broken = pem.replacen(
        "-----BEGIN X509 CRL-----\n",
        "-----BEGIN X509 CRL-----\nAAAA",
        1,
    );
    let error = RevocationLists::parse(format!("{pem}{broken}").as_bytes()).unwrap_err();
    assert!(error.to_string().contains("list 2"), "{error}");
    assert!(RevocationLists::parse(&pem.as_bytes()[..pem.len() / 2]).is_err());
}

/// What openssl makes when its configuration says nothing of extensions: version 1, and version 2 because of a reason.
const WITHOUT_EXTENSIONS: [&str; 2] = [
    "\
-----BEGIN X509 CRL-----
MIHSMHowCgYIKoZIzj0EAwIwIjEQMA4GA1UECgwHZXhhbXBsZTEOMAwGA1UEAwwF
bGlzdHMXDTI2MTEyMTAyMjYzM1oXDTM2MTExODAyMjYzM1owKjASAgEKFw0yNjAx
MDEwMDAwMDBaMBQCAwD/ARcNMjYwMTAxMDAwMDAwWjAKBggqhkjOPQQDAgNIADBF
AiBllOxrlFrn/Dtbs1csA1HRrOeImAwL9mfcrvzfYk3dZAIhAJ5CbMlQ9pYcvc+M
ak8A3QnA48v2N8zKFMRkKR+MKBO7
-----END X509 CRL-----",
    "\
-----BEGIN X509 CRL-----
MIHlMIGLAgEBMAoGCCqGSM49BAMCMCIxEDAOBgNVBAoMB2V4YW1wbGUxDjAMBgNV
BAMMBWxpc3RzFw0yNjExMjEwMjI1MzdaFw0zNjExMTgwMjI1MzdaMDgwEgIBChcN
MjYwMTAxMDAwMDAwWjAiAgMA/wEXDTI2MDEwMTAwMDAwMFowDDAKBgNVHRUEAwoB
ATAKBggqhkjOPQQDAgNJADBGAiEAiOs8oO9v4u6jF5NuK0vV/dQgXCQ7VAQM3m9J
cbQsunMCIQDU0q+HvKrK+ngfOWqsv636cXV867yPgl/pEH6g/hTrlg==
-----END X509 CRL-----",
];

#[test]
fn a_list_without_extensions_is_refused_with_the_cure() {
    for pem in WITHOUT_EXTENSIONS {
        let error = RevocationLists::parse(pem.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("crl_extensions"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_lists_or_an_error(bytes: Vec<u8>, cut in 0usize..600, flip: u8) {
        let _ = RevocationLists::parse(&bytes);
        let mut pem = Ca::new().revoke(&[1], soon()).into_bytes();
        let at = cut.min(pem.len() - 1);
        pem[at] ^= flip;
        let _ = RevocationLists::parse(&pem);
    }
}

fn under(compliance: Compliance) -> Rules {
    Rules {
        compliance,
        ..Rules::default()
    }
}

#[tokio::test]
async fn post_quantum_peers_agree_and_say_on_what() {
    let ca = Ca::new();
    let (a, b) = (leaf(&ca, "a"), leaf(&ca, "b"));
    use Compliance::{Classical, PostQuantum, Preferred};
    for (ours, theirs, group) in [
        (Preferred, Preferred, "X25519MLKEM768"),
        (PostQuantum, PostQuantum, "X25519MLKEM768"),
        (Preferred, PostQuantum, "X25519MLKEM768"),
        (PostQuantum, Preferred, "X25519MLKEM768"),
        (Preferred, Classical, "X25519"),
        (Classical, Preferred, "X25519"),
        (Classical, Classical, "X25519"),
    ] {
        let (a, b) = (
            a.credentials_under(&under(ours)),
            b.credentials_under(&under(theirs)),
        );
        let (client, server) = meet(&a, &b).await;
        assert_eq!(client.unwrap().key_exchange(), group, "{ours:?} {theirs:?}");
        assert_eq!(server.unwrap().key_exchange(), group, "{ours:?} {theirs:?}");
    }
    // What nobody asked for is the hybrid.
    let (client, _) = meet(&a.credentials(), &b.credentials()).await;
    assert_eq!(client.unwrap().key_exchange(), "X25519MLKEM768");
}

#[tokio::test]
async fn a_post_quantum_peer_and_a_classical_one_part_with_the_reason() {
    let ca = Ca::new();
    let (classical, quantum) = (
        leaf(&ca, "a").credentials_under(&under(Compliance::Classical)),
        leaf(&ca, "b").credentials_under(&under(Compliance::PostQuantum)),
    );
    for (client, server) in [(&classical, &quantum), (&quantum, &classical)] {
        let (told, refused) = meet(client, server).await;
        assert!(matches!(refused, Err(TlsError::KeyExchange)), "{refused:?}");
        for text in [
            told.unwrap_err().to_string(),
            refused.unwrap_err().to_string(),
        ] {
            assert!(text.contains("COMPLIANCE_POLICY"), "{text}");
        }
    }
}

#[tokio::test]
async fn peers_of_an_aliased_trust_domain_are_accepted() {
    let ca = Ca::new();
    let old: Identity = "spiffe://old.example/ns/default/sa/a".parse().unwrap();
    let client = ca.credentials(&old);
    let (_, refused) = meet(&client, &ca.credentials(&identity("b"))).await;
    assert!(
        matches!(refused, Err(TlsError::WrongTrustDomain { .. })),
        "{refused:?}"
    );
    let rules = Rules {
        trust_domain_aliases: ["older.example".into(), "old.example".into()].into(),
        ..Rules::default()
    };
    let (_, accepted) = meet(&client, &leaf(&ca, "b").credentials_under(&rules)).await;
    // It keeps its own name: policies that mean it must name it.
    assert_eq!(accepted.unwrap().identity(), &old);
    // And another mesh that has our alias for its name is still another mesh.
    let stranger = Ca::new().leaf(&old).issue().trusting(ca.root());
    let server = leaf(&ca, "b").credentials_under(&rules);
    let (_, refused) = meet(&stranger.credentials(), &server).await;
    assert!(matches!(refused, Err(TlsError::UnknownCa)), "{refused:?}");
}

#[test]
fn revocations_start_empty_and_clones_share_them() {
    let one = Revocations::default();
    let other = one.clone();
    assert!(other.lists().infos().is_empty());
    one.replace(lists(&Ca::new().revoke(&[1], soon())));
    assert_eq!(other.lists().revoked(), 1);
}

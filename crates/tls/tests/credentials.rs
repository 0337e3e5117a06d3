//! What an authority's answer may look like, and what a request to it holds.

use std::time::{Duration, SystemTime};

use lateen_testkit::{Ca, identity};
use lateen_tls::{Credentials, CredentialsError, KeyPair};
use proptest::prelude::*;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509CertificationRequest};

#[test]
fn a_request_names_the_identity_and_nothing_else() {
    let pem = KeyPair::generate()
        .unwrap()
        .csr_pem(&identity("web"))
        .unwrap();
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let (_, csr) = X509CertificationRequest::from_der(&block.contents).unwrap();
    let info = &csr.certification_request_info;
    assert_eq!(info.subject.iter().count(), 0);
    let names: Vec<_> = csr
        .requested_extensions()
        .unwrap()
        .filter_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        })
        .flatten()
        .collect();
    let [GeneralName::URI(uri)] = names[..] else {
        panic!("{names:?}");
    };
    assert_eq!(*uri, "spiffe://cluster.local/ns/default/sa/web");
    let curve = info
        .subject_pki
        .algorithm
        .parameters
        .as_ref()
        .unwrap()
        .as_oid()
        .unwrap();
    // prime256v1
    assert_eq!(curve.to_id_string(), "1.2.840.10045.3.1.7");
}

#[test]
fn an_answer_to_a_request_becomes_credentials() {
    let ca = Ca::new();
    let key = KeyPair::generate().unwrap();
    let csr = key.csr_pem(&identity("web")).unwrap();
    let from = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    let to = from + Duration::from_secs(86_400);
    let chain = ca.sign(&csr, from, to).unwrap();
    let credentials = Credentials::from_issued(key, &chain).unwrap();
    assert_eq!(credentials.identity(), &identity("web"));
    assert_eq!(&**credentials.trust_domain(), "cluster.local");
    assert_eq!(
        (credentials.not_before(), credentials.not_after()),
        (from, to)
    );
    assert!(credentials.valid_at(from) && credentials.valid_at(to));
    assert!(!credentials.valid_at(from - Duration::from_secs(1)));
    assert!(!credentials.valid_at(to + Duration::from_secs(1)));
    assert!(credentials.serial().bytes().all(|b| b.is_ascii_digit()));
    let unwrapped = |pem: &str| pem.replace(['\r', '\n'], "");
    assert_eq!(
        unwrapped(&credentials.chain()[0].pem()),
        unwrapped(&chain[0])
    );
    assert_eq!(
        unwrapped(&credentials.roots()[0].pem()),
        unwrapped(&chain[1])
    );
}

#[test]
fn a_root_bundle_may_hold_several_roots() {
    let (old, new) = (Ca::new(), Ca::new());
    let mut bundle = new.leaf(&identity("web")).issue();
    bundle.chain[1] = format!("{}{}", old.root(), new.root());
    assert_eq!(bundle.credentials().roots().len(), 2);
}

#[test]
fn unusable_answers_are_refused_with_a_reason() {
    let ca = Ca::new();
    let good = ca.leaf(&identity("web")).issue();
    let refuse = |chain: &[String]| {
        let key = KeyPair::from_pem(&good.key).unwrap();
        Credentials::from_issued(key, chain).expect_err("it was accepted")
    };
    let [leaf, root] = &good.chain[..] else {
        panic!("{:?}", good.chain);
    };
    assert!(matches!(
        refuse(&[]),
        CredentialsError::Incomplete { elements: 0 }
    ));
    assert!(matches!(
        refuse(std::slice::from_ref(leaf)),
        CredentialsError::Incomplete { elements: 1 }
    ));
    for chain in [
        [leaf.clone(), String::new()],
        [String::new(), root.clone()],
        [leaf.replace('A', "*"), root.clone()],
        [
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            root.clone(),
        ],
    ] {
        assert!(matches!(refuse(&chain), CredentialsError::Malformed { .. }));
    }
    let nameless = ca
        .leaf(&identity("web"))
        .uris(&["https://web"])
        .issue()
        .chain;
    assert!(matches!(refuse(&nameless), CredentialsError::NoIdentity));
    let another = ca.leaf(&identity("web")).issue().chain;
    assert!(matches!(refuse(&another), CredentialsError::Key(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_answers_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        flip in 0usize..2000,
        text in "\\PC{0,100}",
    ) {
        let ca = Ca::new();
        let good = ca.leaf(&identity("web")).issue();
        let key = || KeyPair::from_pem(&good.key).unwrap();
        // Any text, any bytes in a PEM block, and a good certificate with one character changed.
        let _ = Credentials::from_issued(key(), &[text.clone(), text]);
        let block = pem_block(&bytes);
        let _ = Credentials::from_issued(key(), &[block.clone(), block]);
        let mut leaf = good.chain[0].clone().into_bytes();
        let at = flip % leaf.len();
        leaf[at] = if leaf[at] == b'A' { b'B' } else { b'A' };
        let leaf = String::from_utf8(leaf).unwrap();
        let _ = Credentials::from_issued(key(), &[leaf, good.chain[1].clone()]);
    }
}

fn pem_block(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

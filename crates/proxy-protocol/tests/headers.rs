//! Headers as the specification spells them, and whatever else somebody may send.

use std::net::SocketAddr;

use lateen_proxy_protocol::{
    Addresses, Command, EncodeError, FIXED, Header, MAX_HEADER, ParseError, Parsed, SIGNATURE, Tlv,
    encode, parse,
};
use proptest::prelude::*;

fn bytes(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn complete(bytes: &[u8]) -> Header {
    match parse(bytes) {
        Ok(Parsed::Complete { header, length }) => {
            assert_eq!(length, bytes.len());
            header
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tcp4_header_is_spelt_byte_for_byte() {
    let mut header = Header::relayed(
        "10.0.0.1:4660".parse().unwrap(),
        "10.0.0.2:80".parse().unwrap(),
    );
    header.tlvs.push(Tlv::source_identity("spiffe://a"));
    let expected = bytes(
        0x21,
        0x11,
        b"\x0a\0\0\x01\x0a\0\0\x02\x12\x34\0\x50\xd0\0\x0aspiffe://a",
    );
    assert_eq!(encode(&header).unwrap(), expected);
    assert_eq!(complete(&expected), header);
    assert_eq!(header.value(Tlv::SOURCE_IDENTITY), Some(&b"spiffe://a"[..]));
    assert_eq!(header.value(Tlv::HOSTNAME), None);
}

#[test]
fn two_families_meet_in_ipv6() {
    let header = Header::relayed(
        "10.0.0.1:1".parse().unwrap(),
        "[fd00::2]:2".parse().unwrap(),
    );
    let read = complete(&encode(&header).unwrap());
    assert_eq!(
        read.addresses,
        Addresses::Tcp {
            source: "[::ffff:10.0.0.1]:1".parse().unwrap(),
            destination: "[fd00::2]:2".parse().unwrap()
        }
    );
}

#[test]
fn local_and_foreign_families_say_nothing_about_addresses() {
    for (command, family, length) in [
        (0x20, 0x11, 12),
        (0x20, 0x00, 0),
        (0x21, 0x00, 0),
        (0x21, 0x12, 12),
        (0x21, 0x22, 36),
        (0x21, 0x31, 216),
    ] {
        let mut body = vec![7; length];
        body.extend([0xEE, 0, 1, 9]);
        let header = complete(&bytes(command, family, &body));
        assert_eq!(header.addresses, Addresses::Unspecified);
        assert_eq!(header.value(0xEE), Some(&[9][..]), "{family:#x}");
    }
}

#[test]
fn what_is_no_header_is_told_at_its_first_wrong_byte() {
    let cases: [(Vec<u8>, ParseError); 8] = [
        (b"GET".to_vec(), ParseError::Signature),
        (b"PROXY TCP4".to_vec(), ParseError::Signature),
        (
            bytes(0x11, 0x11, &[])[..13].to_vec(),
            ParseError::Version(1),
        ),
        (
            bytes(0x22, 0x11, &[])[..13].to_vec(),
            ParseError::Command(2),
        ),
        (
            bytes(0x21, 0x41, &[])[..14].to_vec(),
            ParseError::Family(0x41),
        ),
        (
            bytes(0x21, 0x11, &[0; 11]),
            ParseError::Addresses {
                length: 11,
                needed: 12,
            },
        ),
        (
            bytes(0x21, 0x00, &[5, 0, 2, 1]),
            ParseError::Field { kind: 5 },
        ),
        (bytes(0x21, 0x00, &[5, 0]), ParseError::Field { kind: 5 }),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse(&bytes), Err(error));
    }
}

#[test]
fn a_header_that_does_not_fit_is_not_cut_short() {
    let mut header = Header::relayed("1.1.1.1:1".parse().unwrap(), "2.2.2.2:2".parse().unwrap());
    let room = MAX_HEADER - FIXED - 12 - 3;
    let filler = |length| Tlv {
        kind: 0xE0,
        value: vec![1; length],
    };
    header.tlvs = vec![filler(room)];
    assert_eq!(encode(&header).unwrap().len(), MAX_HEADER);
    for tlvs in [
        vec![filler(room + 1)],
        vec![filler(room), filler(0)],
        vec![filler(70_000)],
    ] {
        header.tlvs = tlvs;
        assert!(matches!(encode(&header), Err(EncodeError::TooLong(_))));
    }
}

fn headers() -> impl Strategy<Value = Header> {
    let addresses = prop_oneof![
        Just(Addresses::Unspecified),
        any::<([u8; 4], u16, [u8; 4], u16)>().prop_map(|(a, p, b, q)| Addresses::Tcp {
            source: (a, p).into(),
            destination: (b, q).into()
        }),
        any::<([u8; 16], u16, [u8; 16], u16)>().prop_map(|(a, p, b, q)| Addresses::Tcp {
            source: SocketAddr::from((a, p)),
            destination: SocketAddr::from((b, q))
        }),
    ];
    let tlv = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(kind, value)| Tlv { kind, value });
    (any::<bool>(), addresses, prop::collection::vec(tlv, 0..5)).prop_map(
        |(local, addresses, tlvs)| Header {
            command: if local {
                Command::Local
            } else {
                Command::Proxy
            },
            addresses: if local {
                Addresses::Unspecified
            } else {
                addresses
            },
            tlvs,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same_whatever_follows(header in headers(), after: Vec<u8>) {
        let mut bytes = encode(&header).unwrap();
        let length = bytes.len();
        bytes.extend(after);
        prop_assert_eq!(parse(&bytes), Ok(Parsed::Complete { header, length }));
    }

    #[test]
    fn a_part_of_a_header_asks_for_more_and_never_for_too_much(header in headers(), at: prop::sample::Index) {
        let bytes = encode(&header).unwrap();
        let part = &bytes[..at.index(bytes.len())];
        match parse(part) {
            Ok(Parsed::Incomplete { needed }) => {
                prop_assert!(needed > part.len() && needed <= bytes.len());
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(junk: Vec<u8>, command: u8, family: u8) {
        let _ = parse(&junk);
        if let Ok(Parsed::Complete { header, length }) = parse(&bytes(command, family, &junk)) {
            prop_assert_eq!(length, FIXED + junk.len());
            // Only what is skipped may differ.
            if header.addresses != Addresses::Unspecified {
                prop_assert_eq!(encode(&header).unwrap(), bytes(command, family, &junk));
            }
        }
    }
}

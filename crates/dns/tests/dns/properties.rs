//! Whatever arrives: no panic, and a reply is a reply to what was asked.

use std::sync::{Arc, OnceLock};

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use lateen_config::Snapshot;
use lateen_dns::{
    Answer, Code, Family, Transport, Unusable, answer, find, fit, matches, read, serv_fail,
};
use proptest::prelude::*;

use crate::support::{mesh, question, view};

fn shared() -> &'static Arc<Snapshot> {
    static MESH: OnceLock<Arc<Snapshot>> = OnceLock::new();
    MESH.get_or_init(mesh)
}

/// What holds for every message that arrives on a socket.
fn holds(bytes: &[u8], transport: Transport) {
    match read(bytes, transport) {
        Ok(query) => {
            if let Answer::Reply { message, .. } = answer(&query, &view(shared()), |_| {}) {
                assert!(message.len() <= query.limit());
                assert!(matches(bytes, &message));
                Message::from_vec(&message).expect("a reply is a message");
            }
            assert!(matches(bytes, &serv_fail(&query, bytes)));
        }
        Err(Unusable::Refused { reply, code }) => {
            assert_eq!(reply[..2], bytes[..2]);
            assert_ne!(code, 0);
            Message::from_vec(&reply).expect("a refusal is a message");
        }
        Err(Unusable::Ignored) => assert!(bytes.len() < 12 || bytes[2] & 0x80 != 0),
    }
}

fn transport() -> impl Strategy<Value = Transport> {
    prop_oneof![Just(Transport::Udp), Just(Transport::Tcp)]
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600), transport in transport()) {
        holds(&bytes, transport);
        let _ = (find(&bytes, Family::V4), find(&bytes, Family::V6), Code::of(&bytes));
    }

    #[test]
    fn any_damage_to_a_question(
        name in "(web|headless|many\\.example\\.net|[a-z]{1,9}\\.example\\.com|[A-Za-z0-9]{1,20}(\\.[a-z]{1,5}){0,4})",
        kind in prop_oneof![Just(RecordType::A), Just(RecordType::AAAA), Just(RecordType::SRV)],
        payload in proptest::option::of(any::<u16>()),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        transport in transport(),
    ) {
        let mut bytes = question(&name, kind, payload);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        holds(&bytes, transport);
    }

    #[test]
    fn any_response_fits(response in proptest::collection::vec(any::<u8>(), 0..1500), transport in transport()) {
        let asked = question("www.example.org", RecordType::A, None);
        let query = read(&asked, transport).unwrap();
        let whole = response.len() >= query.question_end();
        let back = fit(&query, &asked, response);
        prop_assert!(back.len() <= query.limit());
        if whole {
            prop_assert_eq!(&back[..2], &asked[..2]);
            prop_assert_eq!(&back[12..query.question_end()], &asked[12..query.question_end()]);
        }
    }
}

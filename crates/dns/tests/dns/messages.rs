//! Sizes, refusals, and what passes between a client and a resolver.

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use lateen_dns::{
    Answer, Code, Family, Transport, Unusable, answer, find, fit, matches, read, serv_fail, set_id,
    truncated,
};

use crate::support::{ip, many, mesh, question, view};

fn reply(payload: Option<u16>, transport: Transport) -> (Vec<u8>, Message) {
    let mesh = mesh();
    let bytes = question("many.example.net", RecordType::A, payload);
    let query = read(&bytes, transport).unwrap();
    let Answer::Reply { message, .. } = answer(&query, &view(&mesh), |_| {}) else {
        panic!("the mesh has the name");
    };
    let parsed = Message::from_vec(&message).unwrap();
    (message, parsed)
}

#[test]
fn an_answer_is_no_longer_than_the_client_takes() {
    for (payload, limit, answers) in [
        (None, 512, 29),
        (Some(100), 512, 29),
        (Some(1232), 1232, 73),
        (Some(1600), 1600, 96),
        (Some(4096), 4096, many().len()),
    ] {
        let (bytes, message) = reply(payload, Transport::Udp);
        assert!(bytes.len() <= limit, "{payload:?}: {}", bytes.len());
        assert_eq!(
            message.metadata.truncation,
            answers < many().len(),
            "{payload:?}"
        );
        assert_eq!(message.edns.is_some(), payload.is_some());
        // One more would not fit.
        assert!(
            message.answers.len() >= answers - 1,
            "{payload:?}: {}",
            message.answers.len()
        );
        assert!(bytes.len() + 16 > limit || message.answers.len() == many().len());
    }
    let (_, message) = reply(None, Transport::Tcp);
    assert!(!message.metadata.truncation);
    assert_eq!(message.answers.len(), many().len());
}

#[test]
fn a_later_edns_is_refused() {
    let mesh = mesh();
    let mut bytes = question("web", RecordType::A, Some(1232));
    // RFC 6891 §6.1.3: the version is the second byte of the OPT record's TTL, whose length follows.
    let version = bytes.len() - 5;
    bytes[version] = 1;
    let query = read(&bytes, Transport::Udp).unwrap();
    let Answer::Reply { message, .. } = answer(&query, &view(&mesh), |_| {}) else {
        panic!("the mesh has the name");
    };
    let message = Message::from_vec(&message).unwrap();
    assert_eq!(
        message.metadata.response_code.high(),
        ResponseCode::BADVERS.high()
    );
    assert!(message.answers.is_empty());
}

fn refusal(bytes: &[u8]) -> (u16, ResponseCode, OpCode) {
    match read(bytes, Transport::Udp) {
        Err(Unusable::Refused { reply, .. }) => {
            let message = Message::from_vec(&reply).unwrap();
            assert_eq!(
                message.metadata.message_type,
                hickory_proto::op::MessageType::Response
            );
            (
                message.metadata.id,
                message.metadata.response_code,
                message.metadata.op_code,
            )
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_query_is_refused_with_the_reason() {
    let good = question("web", RecordType::A, None);
    for (opcode, expected) in [
        (1, OpCode::Unknown(1)),
        (2, OpCode::Status),
        (4, OpCode::Notify),
        (5, OpCode::Update),
    ] {
        let mut bytes = good.clone();
        bytes[2] |= opcode << 3;
        assert_eq!(refusal(&bytes), (4711, ResponseCode::NotImp, expected));
    }
    let transfer = question("web", RecordType::AXFR, None);
    assert_eq!(
        refusal(&transfer),
        (4711, ResponseCode::NotImp, OpCode::Query)
    );

    let mut two = good.clone();
    two[5] = 2;
    two.extend_from_slice(&good[12..]);
    let mut none = good.clone();
    none[5] = 0;
    none.truncate(12);
    let mut loops = good[..12].to_vec();
    loops.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
    for malformed in [&two, &none, &loops, &good[..20].to_vec()] {
        assert_eq!(
            refusal(malformed),
            (4711, ResponseCode::FormErr, OpCode::Query),
            "{malformed:?}"
        );
    }
}

#[test]
fn a_response_is_never_answered() {
    let mut bytes = question("web", RecordType::A, None);
    bytes[2] |= 0x80;
    assert_eq!(read(&bytes, Transport::Udp).unwrap_err(), Unusable::Ignored);
    assert_eq!(
        read(&bytes[..11], Transport::Udp).unwrap_err(),
        Unusable::Ignored
    );
}

fn response(question: &[u8]) -> Message {
    Message::from_vec(question).unwrap().into_response()
}

#[test]
fn a_response_must_be_to_the_question() {
    let asked = question("www.example.org", RecordType::A, None);
    let good = response(&asked).to_vec().unwrap();
    assert!(matches(&asked, &good));
    let lower = response(&question("WWW.example.ORG", RecordType::A, None))
        .to_vec()
        .unwrap();
    assert!(matches(&asked, &lower));

    let mut id = good.clone();
    set_id(&mut id, 1);
    let kind = response(&question("www.example.org", RecordType::AAAA, None))
        .to_vec()
        .unwrap();
    let name = response(&question("wwv.example.org", RecordType::A, None))
        .to_vec()
        .unwrap();
    let mut opcode = good.clone();
    opcode[2] |= 0x20;
    for wrong in [
        &id,
        &kind,
        &name,
        &opcode,
        &asked,
        &good[..20].to_vec(),
        &Vec::new(),
    ] {
        assert!(!matches(&asked, wrong), "{wrong:?}");
    }
}

#[test]
fn a_client_gets_its_own_number_and_letters_back_and_what_it_can_take() {
    let asked = question("wWw.Example.org", RecordType::TXT, None);
    let query = read(&asked, Transport::Udp).unwrap();
    let mut theirs = response(&question("www.example.org", RecordType::TXT, None));
    let mut bytes = theirs.to_vec().unwrap();
    set_id(&mut bytes, 99);
    let back = fit(&query, &asked, bytes);
    assert!(matches(&asked, &back));
    assert_eq!(
        back[12..query.question_end()],
        asked[12..query.question_end()]
    );
    assert!(!truncated(&back));

    for i in 0..60 {
        theirs.add_answer(Record::from_rdata(
            Name::root(),
            1,
            RData::A(A::new(10, 0, 0, i)),
        ));
    }
    let long = fit(&query, &asked, theirs.to_vec().unwrap());
    assert!(truncated(&long) && long.len() <= 512);
    assert!(Message::from_vec(&long).unwrap().answers.is_empty());
    let tcp = read(&asked, Transport::Tcp).unwrap();
    let whole = fit(&tcp, &asked, theirs.to_vec().unwrap());
    assert_eq!(Message::from_vec(&whole).unwrap().answers.len(), 60);

    let failed = serv_fail(&query, &asked);
    assert!(matches(&asked, &failed));
    assert!(Code::of(&failed).is_failure());
}

#[test]
fn addresses_are_found_at_the_end_of_a_chain() {
    let bytes = lateen_dns::question("www.example.org", Family::V4).unwrap();
    let name = |name: &str| Name::from_ascii(name).unwrap();
    let mut message = response(&bytes);
    message.add_answer(Record::from_rdata(
        name("b.example."),
        20,
        RData::A(A::new(10, 0, 0, 1)),
    ));
    message.add_answer(Record::from_rdata(
        name("www.example.org."),
        9,
        RData::CNAME(CNAME(name("A.example."))),
    ));
    message.add_answer(Record::from_rdata(
        name("a.example."),
        30,
        RData::CNAME(CNAME(name("b.example."))),
    ));
    message.add_answer(Record::from_rdata(
        name("unasked.example."),
        5,
        RData::A(A::new(10, 0, 0, 9)),
    ));
    message.add_answer(Record::from_rdata(
        name("b.example."),
        20,
        RData::AAAA("fd00::1".parse::<std::net::Ipv6Addr>().map(AAAA).unwrap()),
    ));
    let found = find(&message.to_vec().unwrap(), Family::V4).unwrap();
    assert_eq!(found.addresses, [ip("10.0.0.1")]);
    assert_eq!(found.ttl, 9);

    message.answers.clear();
    message.add_answer(Record::from_rdata(
        name("www.example.org."),
        9,
        RData::CNAME(CNAME(name("www.example.org."))),
    ));
    let looped = find(&message.to_vec().unwrap(), Family::V4).unwrap();
    assert!(looped.addresses.is_empty());

    let mut failed = message.clone();
    failed.metadata.response_code = ResponseCode::ServFail;
    assert_eq!(find(&failed.to_vec().unwrap(), Family::V4), None);
    failed.metadata.response_code = ResponseCode::NXDomain;
    assert!(
        find(&failed.to_vec().unwrap(), Family::V4)
            .unwrap()
            .addresses
            .is_empty()
    );
}

#[test]
fn not_every_text_is_a_hostname() {
    for good in ["db", "db.example.com", "db.example.com."] {
        assert!(lateen_dns::question(good, Family::V6).is_some(), "{good}");
    }
    let long = "a".repeat(64);
    for bad in ["", ".", "a..b", long.as_str()] {
        assert!(lateen_dns::question(bad, Family::V6).is_none(), "{bad}");
    }
}

#[test]
fn of_an_answer_with_thousands_of_addresses_few_are_used() {
    let bytes = lateen_dns::question("many.example", Family::V4).unwrap();
    let name = Name::from_ascii("many.example.").unwrap();
    let mut message = response(&bytes);
    for number in 0..2000_u16 {
        let [a, b] = number.to_be_bytes();
        let address = RData::A(A::new(10, 0, a, b));
        message.add_answer(Record::from_rdata(name.clone(), 9, address));
    }
    let found = find(&message.to_vec().unwrap(), Family::V4).unwrap();
    assert_eq!(found.addresses.len(), 64);
    assert_eq!(found.addresses[63], ip("10.0.0.63"));
}

//! Questions to a resolver for a host's addresses, and its answers to them.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::reply::Code;

/// RFC 1034 §3.6.2 asks to beware of loops; no honest chain is longer.
const LONGEST_CHAIN: usize = 16;
/// Addresses of one answer that are used. An answer over TCP has room for thousands, and nobody needs so many for one name.
const MOST: usize = 64;
/// The datagram that is least likely to be fragmented, which DNS servers agreed on in 2020.
const PAYLOAD: u16 = 1232;

/// Which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a resolver knows about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its addresses of the family, in the order of the answer; none if the name does not exist or has none.
    pub addresses: Vec<IpAddr>,
    /// For how long that holds, in seconds; 0 without addresses.
    pub ttl: u32,
}

/// A question for the addresses of a host, with the number 0. `None` if DNS cannot have such a name.
pub fn question(hostname: &str, family: Family) -> Option<Vec<u8>> {
    let mut name = Name::from_ascii(hostname).ok()?;
    if name.num_labels() == 0 {
        return None;
    }
    name.set_fqdn(true);
    let mut message = Message::new(0, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name, kind(family)));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    message.edns = Some(edns);
    message.to_vec().ok()
}

/// Reads the response to such a question. `None` if the server could not answer it, or if the message is malformed.
pub fn find(response: &[u8], family: Family) -> Option<Found> {
    let message = Message::from_vec(response).ok()?;
    let code = Code::of(response);
    if code != Code::NO_ERROR && code != Code::NO_SUCH_NAME {
        return None;
    }
    let mut owner = message.queries.first()?.name();
    let mut ttl = u32::MAX;
    for _ in 0..LONGEST_CHAIN {
        let alias = message
            .answers
            .iter()
            .find_map(|record| match &record.data {
                RData::CNAME(target) if record.name == *owner => Some((&target.0, record.ttl)),
                _ => None,
            });
        let Some((target, until)) = alias else { break };
        owner = target;
        ttl = ttl.min(until);
    }
    let mut addresses = Vec::new();
    for record in &message.answers {
        if record.name == *owner
            && record.record_type() == kind(family)
            && let Some(address) = record.data.ip_addr()
        {
            ttl = ttl.min(record.ttl);
            if addresses.len() == MOST {
                break;
            }
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    let ttl = if addresses.is_empty() { 0 } else { ttl };
    Some(Found { addresses, ttl })
}

fn kind(family: Family) -> RecordType {
    match family {
        Family::V4 => RecordType::A,
        Family::V6 => RecordType::AAAA,
    }
}

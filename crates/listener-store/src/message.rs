//! Messages between the listener store and its client, checked: one packet with its descriptors becomes one answer.

use std::os::fd::OwnedFd;

use lateen_netns::{Named, Netns};
use lateen_proto::listener_store::agent_message::Payload;
use lateen_proto::listener_store::proxy_message;
use lateen_proto::listener_store::{
    AgentMessage, Draining, Give, Hello, ProxyMessage, Release, Take, Version,
};
use lateen_types::WorkloadUid;
use prost::Message as _;

/// Longest packet that the protocol allows, in bytes.
pub(crate) const PACKET: usize = 4096;

/// Most sockets of one pod.
pub(crate) const SOCKETS: usize = 16;

/// What the agent says.
#[derive(Debug)]
pub enum Answer {
    /// The last request was carried out, or not, with the reason.
    Done(Result<(), String>),
    /// Done, and this agent never makes ledgers shorter.
    KeepsLength,
    /// What the agent holds of the pod that was asked for.
    Held(Vec<Named>),
    /// Unasked: this pod is being deleted.
    Terminating(WorkloadUid),
}

/// A packet that is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The kernel cut the packet.
    #[error("the agent's packet is longer than {PACKET} bytes")]
    Truncated,
    /// Not a protobuf message of this kind.
    #[error("the agent's packet cannot be decoded: {0}")]
    Undecodable(String),
    /// A message of a newer protocol, or none.
    #[error(
        "the agent's packet has no payload that this proxy knows; the agent may be newer than the proxy"
    )]
    Unknown,
    /// A field that must be there is not.
    #[error("the agent's packet lacks {0}")]
    Missing(&'static str),
    /// Names and descriptors do not fit together.
    #[error("the agent's packet names {0} sockets and carries {1}")]
    Descriptors(usize, usize),
}

impl Answer {
    /// Reads a packet and the descriptors that came with it; whatever is not used is closed.
    pub fn decode(packet: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, Malformed> {
        let message = AgentMessage::decode(packet)
            .map_err(|error| Malformed::Undecodable(error.to_string()))?;
        let payload = message.payload.ok_or(Malformed::Unknown)?;
        let named = match &payload {
            Payload::Held(held) => held.names.len(),
            _ => 0,
        };
        if named != descriptors.len() || named > SOCKETS {
            return Err(Malformed::Descriptors(named, descriptors.len()));
        }
        match payload {
            Payload::Ack(ack) if ack.error.is_empty() && ack.keeps_length => Ok(Self::KeepsLength),
            Payload::Ack(ack) if ack.error.is_empty() => Ok(Self::Done(Ok(()))),
            Payload::Ack(ack) => Ok(Self::Done(Err(ack.error))),
            Payload::Held(held) => {
                if held.names.iter().any(String::is_empty) {
                    return Err(Malformed::Missing("a socket's name"));
                }
                let sockets = held.names.into_iter().zip(descriptors);
                Ok(Self::Held(
                    sockets
                        .map(|(name, socket)| Named { name, socket })
                        .collect(),
                ))
            }
            Payload::Terminating(pod) if pod.uid.is_empty() => Err(Malformed::Missing("uid")),
            Payload::Terminating(pod) => Ok(Self::Terminating(pod.uid.as_str().into())),
        }
    }
}

fn encode(payload: proxy_message::Payload) -> Vec<u8> {
    ProxyMessage {
        payload: Some(payload),
    }
    .encode_to_vec()
}

pub(crate) fn hello(ledgers: usize) -> Vec<u8> {
    encode(proxy_message::Payload::Hello(Hello {
        version: Version::V1.into(),
        ledgers: u32::try_from(ledgers).unwrap_or(u32::MAX),
    }))
}

pub(crate) fn take(uid: &WorkloadUid, netns: &Netns) -> Vec<u8> {
    encode(proxy_message::Payload::Take(Take {
        uid: uid.to_string(),
        netns_inode: netns.inode(),
    }))
}

pub(crate) fn give(uid: &WorkloadUid, netns: &Netns, sockets: &[Named]) -> Vec<u8> {
    encode(proxy_message::Payload::Give(Give {
        uid: uid.to_string(),
        netns_inode: netns.inode(),
        names: sockets.iter().map(|named| named.name.clone()).collect(),
    }))
}

pub(crate) fn release(uid: &WorkloadUid) -> Vec<u8> {
    encode(proxy_message::Payload::Release(Release {
        uid: uid.to_string(),
    }))
}

pub(crate) fn draining() -> Vec<u8> {
    encode(proxy_message::Payload::Draining(Draining {}))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use lateen_proto::listener_store::{Ack, Held, Terminating};
    use proptest::prelude::*;

    use super::*;

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count)
            .map(|_| File::open("/dev/null").unwrap().into())
            .collect()
    }

    fn packet(payload: Payload) -> Vec<u8> {
        AgentMessage {
            payload: Some(payload),
        }
        .encode_to_vec()
    }

    proptest! {
        #[test]
        fn any_packet_is_read_or_refused(packet in proptest::collection::vec(any::<u8>(), 0..=512), count in 0usize..20) {
            match Answer::decode(&packet, descriptors(count)) {
                Ok(Answer::Held(sockets)) => {
                    prop_assert_eq!(sockets.len(), count);
                    prop_assert!(count <= SOCKETS);
                }
                Ok(Answer::Terminating(uid)) => prop_assert!(!uid.as_str().is_empty() && count == 0),
                Ok(Answer::Done(_) | Answer::KeepsLength) => prop_assert_eq!(count, 0),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn every_descriptor_has_a_name_and_every_name_a_descriptor(names in proptest::collection::vec("[a-z0-9-]{0,12}", 0..20), count in 0usize..20) {
            let good = names.len() == count && count <= SOCKETS && names.iter().all(|name| !name.is_empty());
            let read = Answer::decode(&packet(Payload::Held(Held { names: names.clone() })), descriptors(count));
            prop_assert_eq!(read.is_ok(), good, "{:?}", read);
            if let Ok(Answer::Held(sockets)) = read {
                prop_assert_eq!(sockets.into_iter().map(|named| named.name).collect::<Vec<_>>(), names);
            }
        }
    }

    #[test]
    fn an_acknowledgement_carries_no_descriptor() {
        let ack = packet(Payload::Ack(Ack {
            error: String::new(),
            keeps_length: false,
        }));
        assert!(matches!(
            Answer::decode(&ack, Vec::new()),
            Ok(Answer::Done(Ok(())))
        ));
        assert_eq!(
            Answer::decode(&ack, descriptors(1)).unwrap_err(),
            Malformed::Descriptors(0, 1)
        );
    }

    #[test]
    fn an_agent_that_refuses_promises_nothing() {
        let answer = |error: &str| {
            let ack = Ack {
                error: error.to_owned(),
                keeps_length: true,
            };
            Answer::decode(&packet(Payload::Ack(ack)), Vec::new()).unwrap()
        };
        assert!(matches!(answer(""), Answer::KeepsLength));
        assert!(matches!(answer("no"), Answer::Done(Err(_))));
    }

    #[test]
    fn a_terminating_pod_has_a_name() {
        let named = |uid: &str| {
            packet(Payload::Terminating(Terminating {
                uid: uid.to_owned(),
            }))
        };
        assert!(
            matches!(Answer::decode(&named("a"), Vec::new()), Ok(Answer::Terminating(uid)) if uid.as_str() == "a")
        );
        assert!(Answer::decode(&named(""), Vec::new()).is_err());
    }
}

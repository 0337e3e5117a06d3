//! Messages of the agent, checked: one packet with at most one descriptor becomes one request.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use lateen_netns::Netns;
use lateen_proto::zds::workload_request::Payload;
use lateen_proto::zds::workload_response;
use lateen_proto::zds::{Ack, Version, WorkloadRequest, WorkloadResponse, ZdsHello};
use lateen_types::WorkloadUid;
use prost::Message as _;

/// Longest packet that the protocol allows, in bytes.
pub(crate) const PACKET: usize = 1024;

/// Whom a pod's namespace belongs to, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodInfo {
    /// The pod's name.
    pub name: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The service account that it runs as.
    pub service_account: Arc<str>,
}

/// One request of the agent; each is answered before the next one comes.
#[derive(Debug)]
pub enum Request {
    /// Serve this pod, whose network namespace came along.
    Add {
        /// What the agent calls the pod from now on.
        uid: WorkloadUid,
        /// Whose it is.
        info: PodInfo,
        /// Where its sockets live.
        netns: Netns,
    },
    /// Serve this pod; but its network namespace did not arrive, because this process has no descriptor left for it.
    Lost(WorkloadUid),
    /// Go on serving a pod whose namespace the agent cannot open any more.
    Keep(WorkloadUid),
    /// Stop serving a pod.
    Delete(WorkloadUid),
    /// Every pod of this node has been named on this connection.
    SnapshotSent,
}

/// A packet that is no request. The text goes back to the agent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The kernel cut the packet.
    #[error("the request is longer than {PACKET} bytes")]
    Truncated,
    /// Not a protobuf message of this kind.
    #[error("the request cannot be decoded: {0}")]
    Undecodable(String),
    /// A request of a newer protocol, or none.
    #[error(
        "the request has no payload that this proxy knows; the agent may be newer than the proxy"
    )]
    Unknown,
    /// A field that must be there is not.
    #[error("the request lacks {0}")]
    Missing(&'static str),
    /// A descriptor where none belongs, or more than one.
    #[error("the request carries {0} descriptors instead of {1}")]
    Descriptors(usize, usize),
    /// The descriptor is something else.
    #[error("the request's descriptor is no network namespace: {0}")]
    NoNamespace(String),
}

impl Request {
    /// Reads a packet and the descriptors that came with it; whatever is not used is closed. `lost` says that the kernel
    /// could not deliver all of them.
    pub fn decode(
        packet: &[u8],
        mut descriptors: Vec<OwnedFd>,
        lost: bool,
    ) -> Result<Self, Malformed> {
        let request = WorkloadRequest::decode(packet)
            .map_err(|error| Malformed::Undecodable(error.to_string()))?;
        let payload = request.payload.ok_or(Malformed::Unknown)?;
        if let (true, Payload::Add(add)) = (lost, &payload) {
            return Ok(Self::Lost(uid(&add.uid)?));
        }
        let expected = usize::from(matches!(payload, Payload::Add(_)));
        if descriptors.len() != expected {
            return Err(Malformed::Descriptors(descriptors.len(), expected));
        }
        match payload {
            Payload::Add(add) => {
                let info = add
                    .workload_info
                    .ok_or(Malformed::Missing("workload_info"))?;
                let fd = descriptors.pop().ok_or(Malformed::Descriptors(0, 1))?;
                Ok(Self::Add {
                    uid: uid(&add.uid)?,
                    info: PodInfo {
                        name: present(&info.name, "workload_info.name")?,
                        namespace: present(&info.namespace, "workload_info.namespace")?,
                        service_account: present(
                            &info.service_account,
                            "workload_info.service_account",
                        )?,
                    },
                    netns: Netns::from_fd(fd)
                        .map_err(|error| Malformed::NoNamespace(error.to_string()))?,
                })
            }
            Payload::Keep(keep) => Ok(Self::Keep(uid(&keep.uid)?)),
            Payload::Del(del) => Ok(Self::Delete(uid(&del.uid)?)),
            Payload::SnapshotSent(_) => Ok(Self::SnapshotSent),
        }
    }
}

fn uid(text: &str) -> Result<WorkloadUid, Malformed> {
    present(text, "uid").map(WorkloadUid)
}

fn present(text: &str, field: &'static str) -> Result<Arc<str>, Malformed> {
    if text.is_empty() {
        return Err(Malformed::Missing(field));
    }
    Ok(text.into())
}

/// The first packet of a connection, from the proxy.
pub(crate) fn hello() -> Vec<u8> {
    ZdsHello {
        version: Version::V1.into(),
    }
    .encode_to_vec()
}

/// The answer to a request; a refusal is cut to what a packet holds.
pub(crate) fn answer(outcome: Result<(), String>) -> Vec<u8> {
    let mut error = outcome.err().unwrap_or_default();
    let room = PACKET - 64;
    if error.len() > room {
        let end = (0..=room)
            .rev()
            .find(|&end| error.is_char_boundary(end))
            .unwrap_or(0);
        error.truncate(end);
    }
    WorkloadResponse {
        payload: Some(workload_response::Payload::Ack(Ack { error })),
    }
    .encode_to_vec()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use proptest::prelude::*;

    use super::*;

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count)
            .map(|_| File::open("/proc/self/ns/net").unwrap().into())
            .collect()
    }

    proptest! {
        #[test]
        fn any_packet_is_read_or_refused(packet in proptest::collection::vec(any::<u8>(), 0..=PACKET), count in 0usize..4, lost: bool) {
            // Returning at all is the property; a request that is read must have named its pod.
            match Request::decode(&packet, descriptors(count), lost) {
                Ok(Request::Add { uid, .. } | Request::Lost(uid) | Request::Keep(uid) | Request::Delete(uid)) => {
                    prop_assert!(!uid.as_str().is_empty());
                }
                Ok(Request::SnapshotSent) => prop_assert_eq!(count, 0),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn an_addition_comes_through_unchanged(
            uid in "[ -~]{1,60}", name in "[a-z0-9.-]{1,63}", namespace in "[a-z0-9-]{1,63}", account in "[a-z0-9.-]{1,63}",
        ) {
            let packet = WorkloadRequest {
                payload: Some(Payload::Add(lateen_proto::zds::AddWorkload {
                    uid: uid.clone(),
                    workload_info: Some(lateen_proto::zds::WorkloadInfo {
                        name: name.clone(),
                        namespace: namespace.clone(),
                        service_account: account.clone(),
                    }),
                })),
            }
            .encode_to_vec();
            let Ok(Request::Add { uid: read, info, netns }) = Request::decode(&packet, descriptors(1), false) else {
                panic!("refused");
            };
            prop_assert_eq!(read.as_str(), uid);
            prop_assert_eq!((&*info.name, &*info.namespace, &*info.service_account), (&*name, &*namespace, &*account));
            prop_assert_eq!(netns.id(), Netns::current().unwrap().id());
        }

        #[test]
        fn an_answer_fits_a_packet_and_keeps_what_it_can(error in ".{0,3000}") {
            let packet = answer(Err(error.clone()));
            prop_assert!(packet.len() <= PACKET);
            let Some(workload_response::Payload::Ack(ack)) = WorkloadResponse::decode(&*packet).unwrap().payload else {
                panic!("no acknowledgement");
            };
            prop_assert!(error.starts_with(&ack.error));
            prop_assert!(ack.error.len() >= error.len().min(900));
        }
    }

    #[test]
    fn the_hello_is_two_bytes_of_protobuf() {
        assert_eq!(hello(), [0x08, 0x01]);
    }
}

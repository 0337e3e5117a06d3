//! Passage of requests through a proxy's two connections in memory. What leaves as HTTP/1.1 is read by parsers of others, and must be
//! to each of them what it is to the message model. The test of this crate uses it, and so do fuzz targets.

mod carried;
mod message;
mod read;
mod rest;
pub mod written;

use lateen_exchange::Protocol;
use lateen_http::{Downstream, PathLevel, PathRules, PeerKind, Rules, Scheme, Trust};

use carried::{Left, carry};
use read::Reading;

/// The course of a passage: protocols, order, and the ways of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Course {
    /// The protocol of the client.
    pub protocol: Protocol,
    /// A request waits for the end of the one before, so that its connection is used again.
    pub one_by_one: bool,
    /// The endpoint answers a request that it has not read to its end.
    pub answers_early: bool,
    /// The client's bytes come in small pieces.
    pub in_pieces: bool,
    /// The client is outside of the mesh.
    pub is_edge: bool,
    /// The normalisation of paths.
    pub level: PathLevel,
}

impl Course {
    /// One bit for each choice. A digit stands for the normalisation that a mesh has by default.
    pub fn of(bits: u8, protocol: Protocol) -> Self {
        let levels = [
            PathLevel::None,
            PathLevel::MergeSlashes,
            PathLevel::DecodeAndMergeSlashes,
            PathLevel::Base,
        ];
        Course {
            protocol,
            one_by_one: bits & 1 != 0,
            answers_early: bits & 2 != 0,
            in_pieces: bits & 4 != 0,
            is_edge: bits & 8 != 0,
            level: levels[usize::from(bits >> 4 & 3)],
        }
    }

    fn rules(self) -> Rules {
        let path = PathRules {
            level: self.level,
            ..PathRules::default()
        };
        let trust = match self.is_edge {
            true => Trust::gateway(0),
            false => Trust::waypoint(),
        };
        Rules { path, trust }
    }

    fn downstream(self) -> Downstream {
        let kind = match self.is_edge {
            true => PeerKind::Edge,
            false => PeerKind::Mesh,
        };
        Downstream::new(kind, ([198, 51, 100, 7], 4711).into(), Scheme::Http)
    }
}

/// Passes the bytes of a client and has others read what leaves. Returns how many requests have left as a whole.
///
/// # Panics
/// If a reader sees anything else than the model's requests.
pub fn check(how: Course, client: &[u8]) -> usize {
    let carried = carry(how, client);
    for left in &carried.at_rest {
        judge(left, true);
    }
    for left in &carried.at_end {
        judge(left, false);
    }
    let messages = carried.at_rest.iter().flat_map(|left| &left.messages);
    messages.filter(|message| message.is_complete).count()
}

/// Compares what has left on one connection with the model. `is_whole` says that all complete requests have left; otherwise the last
/// one may have been cut off with its connection.
fn judge(left: &Left, is_whole: bool) {
    let Left { messages, bytes } = left;
    let Some((last, before)) = messages.split_last() else {
        return assert!(bytes.is_empty(), "bytes without a request left");
    };
    assert!(
        before.iter().all(|message| message.is_complete),
        "a connection was used again behind an incomplete request: {messages:#?}"
    );
    for (reader, read) in [
        ("httparse", read::by_httparse as fn(&[u8]) -> Reading),
        ("hyper", read::by_hyper),
        ("kawa", read::by_kawa),
    ] {
        let reading = read(bytes);
        let say = || {
            let text = String::from_utf8_lossy(bytes);
            format!("{reader} reads {reading:#?}, the model has {messages:#?}, and {text:?} left")
        };
        let mut read = reading.messages.iter();
        let mut is_cut = false;
        for message in messages.iter().filter(|message| message.is_complete) {
            match read.next().filter(|seen| seen.is_complete) {
                Some(seen) => {
                    let (seen, message) = (reading.scope(seen), reading.scope(message));
                    assert!(seen == message, "{}", say());
                }
                // A reader that refuses a request sees nothing behind it.
                None if reading.may_refuse(message) => is_cut = true,
                None => {
                    let is_last = std::ptr::eq(message, last);
                    assert!(is_last && !is_whole, "a request is missing: {}", say());
                    is_cut = true;
                }
            }
            if is_cut {
                break;
            }
        }
        if let Some(more) = read.next() {
            let is_part = !is_cut && !last.is_complete && last.has_begun_as(more);
            assert!(is_part, "there is one request too many: {}", say());
            assert!(read.next().is_none(), "there are two too many: {}", say());
        } else {
            let may_rest = is_cut || !last.is_complete;
            assert!(
                may_rest || !reading.has_rest,
                "bytes are left over: {}",
                say()
            );
        }
    }
}

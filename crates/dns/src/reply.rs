//! Replies of resolvers, kept as bytes. Record types that are unknown here pass unchanged.

use crate::query::{HEADER, Query, question_end};

/// A response code (RFC 1035 §4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(u8);

impl Code {
    /// The name exists.
    pub const NO_ERROR: Self = Self(0);
    /// The server could not find out.
    pub const SERVER_FAILURE: Self = Self(2);
    /// There is no such name.
    pub const NO_SUCH_NAME: Self = Self(3);
    /// The server does not want to.
    pub const REFUSED: Self = Self(5);

    /// The code of a message; that of a message without a whole header is a failure.
    pub fn of(message: &[u8]) -> Self {
        match message.get(3) {
            Some(byte) => Self(byte & 0x0f),
            None => Self::SERVER_FAILURE,
        }
    }

    /// Puts it into a message that has a header.
    pub fn put(self, message: &mut [u8]) {
        if let Some(byte) = message.get_mut(3) {
            *byte = (*byte & 0xf0) | self.0;
        }
    }

    /// Whether another resolver may know better.
    pub fn is_failure(self) -> bool {
        self == Self::SERVER_FAILURE || self == Self::REFUSED
    }
}

/// Gives a message another number.
pub fn set_id(message: &mut [u8], id: u16) {
    if let Some(place) = message.get_mut(..2) {
        place.copy_from_slice(&id.to_be_bytes());
    }
}

/// Whether a message is the response to a question with the same number and the same name, type and class. Letters may
/// differ in case: some servers do not keep it.
pub fn matches(question: &[u8], response: &[u8]) -> bool {
    const RESPONSE_AND_OPCODE: u8 = 0xf8;
    const RESPONSE: u8 = 0x80;
    const TYPE_AND_CLASS: usize = 4;
    let (Some(end), Some(other)) = (question_end(question), question_end(response)) else {
        return false;
    };
    let (name, kind) = question[HEADER..end].split_at(end - HEADER - TYPE_AND_CLASS);
    end == other
        && question[..2] == response[..2]
        && response[2] & RESPONSE_AND_OPCODE == RESPONSE
        && response[4..6] == [0, 1]
        && response[HEADER..end - TYPE_AND_CLASS].eq_ignore_ascii_case(name)
        && response[end - TYPE_AND_CLASS..end] == *kind
}

/// Whether a message says that it is not whole.
pub fn truncated(message: &[u8]) -> bool {
    const TRUNCATED: u8 = 0x02;
    message.get(2).is_some_and(|byte| byte & TRUNCATED != 0)
}

/// Makes a resolver's response one to this client's question: its number, its letters, and no longer than it can take. One
/// that is too long keeps its question alone, and says that it is not whole.
pub fn fit(query: &Query, question: &[u8], mut response: Vec<u8>) -> Vec<u8> {
    const TRUNCATED: u8 = 0x02;
    let end = query.question_end();
    if response.len() > query.limit() && response.len() >= end {
        response.truncate(end);
        response[2] |= TRUNCATED;
        response[6..HEADER].fill(0);
    }
    set_id(&mut response, query.id());
    if let (Some(theirs), Some(ours)) = (response.get_mut(HEADER..end), question.get(HEADER..end)) {
        theirs.copy_from_slice(ours);
    }
    response
}

/// The response to a question that nobody could answer: SERVFAIL.
pub fn serv_fail(query: &Query, question: &[u8]) -> Vec<u8> {
    const RESPONSE: u8 = 0x80;
    const RECURSION_AVAILABLE: u8 = 0x80;
    const RECURSION_DESIRED: u8 = 0x01;
    let end = query.question_end().min(question.len());
    let mut reply = question[..end].to_vec();
    if reply.len() >= HEADER {
        reply[2] = RESPONSE | (reply[2] & RECURSION_DESIRED);
        reply[3] = RECURSION_AVAILABLE;
        Code::SERVER_FAILURE.put(&mut reply);
        reply[6..HEADER].fill(0);
    }
    reply
}

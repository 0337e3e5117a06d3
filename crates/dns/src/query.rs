//! Parser of questions.

use hickory_proto::op::Message;
use hickory_proto::rr::{DNSClass, RecordType};

use crate::names;

/// RFC 1035 §4.1.1.
pub(crate) const HEADER: usize = 12;
/// RFC 1035 §4.2.1: what a client that says nothing can take over UDP.
const SMALLEST: usize = 512;

/// The longest question, in bytes, however it came: a name and what EDNS adds to it are far shorter, and questions are kept
/// while they wait.
const LONGEST: usize = 4096;

/// How a question came, which bounds its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// On a connection.
    Tcp,
}

/// A well-formed question.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) message: Message,
    pub(crate) transport: Transport,
    /// Where the question section ends.
    question_end: usize,
    host: Option<String>,
}

/// A message that is no question for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// To be answered with this, which says why.
    Refused {
        /// The reply.
        reply: Vec<u8>,
        /// Its response code.
        code: u8,
    },
    /// Not to be answered at all: too short to have an identity, or itself a response. Two servers that answer each
    /// other's responses never stop.
    Ignored,
}

/// Reads a message.
///
/// # Errors
/// FORMERR for what is malformed, longer than 4096 bytes or has not exactly one question, NOTIMP for every operation but a query (RFC 1035 §4.1.1)
/// and for zone transfers, which take more than one message.
pub fn read(bytes: &[u8], transport: Transport) -> Result<Query, Unusable> {
    const RESPONSE: u8 = 0x80;
    const OPCODE: u8 = 0x78;
    if bytes.len() < HEADER || bytes[2] & RESPONSE != 0 {
        return Err(Unusable::Ignored);
    }
    if bytes[2] & OPCODE != 0 {
        return Err(refuse(bytes, NOT_IMPLEMENTED));
    }
    let malformed = || refuse(bytes, MALFORMED);
    if bytes.len() > LONGEST {
        return Err(malformed());
    }
    let message = Message::from_vec(bytes).map_err(|_| malformed())?;
    let [question] = message.queries.as_slice() else {
        return Err(malformed());
    };
    let question_end = question_end(bytes).ok_or_else(malformed)?;
    if matches!(question.query_type(), RecordType::AXFR | RecordType::IXFR) {
        return Err(refuse(bytes, NOT_IMPLEMENTED));
    }
    let host = match question.query_class() {
        DNSClass::IN => names::host(question.name()),
        _ => None,
    };
    Ok(Query {
        message,
        transport,
        question_end,
        host,
    })
}

impl Query {
    /// The type asked for, such as `A`; all that are unknown here have one name, so that it is fit for a label.
    pub fn kind(&self) -> &'static str {
        self.kind_of_record().into()
    }

    pub(crate) fn kind_of_record(&self) -> RecordType {
        self.message.queries[0].query_type()
    }

    /// How it came.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The name asked for, for a log.
    pub fn name(&self) -> String {
        self.message.queries[0].name().to_ascii()
    }

    /// The client's number for it.
    pub fn id(&self) -> u16 {
        self.message.metadata.id
    }

    /// The name in lower case and without the dot at its end, if a host can have it.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Where its question ends: the same in every message that repeats it.
    pub fn question_end(&self) -> usize {
        self.question_end
    }

    /// The longest reply that the client can take, in bytes (RFC 6891 §6.2.3).
    pub fn limit(&self) -> usize {
        match self.transport {
            Transport::Tcp => crate::LONGEST,
            Transport::Udp => usize::from(self.message.max_payload()).max(SMALLEST),
        }
    }
}

/// RFC 1035 §4.1.1.
const MALFORMED: u8 = 1;
const NOT_IMPLEMENTED: u8 = 4;

/// A bare header with the client's number and flags.
fn refuse(bytes: &[u8], code: u8) -> Unusable {
    let mut reply = vec![0; HEADER];
    reply[..2].copy_from_slice(&bytes[..2]);
    const OPCODE_AND_RECURSION: u8 = 0x79;
    reply[2] = 0x80 | (bytes[2] & OPCODE_AND_RECURSION);
    reply[3] = code;
    Unusable::Refused { reply, code }
}

/// Where a message's only question ends. A question comes first, so there is nothing yet that its name could point to.
pub(crate) fn question_end(bytes: &[u8]) -> Option<usize> {
    const TYPE_AND_CLASS: usize = 4;
    let mut at = HEADER;
    loop {
        match *bytes.get(at)? {
            0 => break,
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
    let end = at + 1 + TYPE_AND_CLASS;
    (end <= bytes.len()).then_some(end)
}

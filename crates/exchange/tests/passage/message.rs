//! One request, as the message model has it or as a reader sees it.

use lateen_http::{Canonical, Fields, Length, Upgrade, WebSocketKey};

/// A name in lower case, and a value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Fields that the writer of HTTP/1 makes from the length and the persistence of a message.
const MADE: [&[u8]; 5] = [
    b"connection",
    b"content-length",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
];

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub host: Vec<u8>,
    /// Fields but the host and those for framing and persistence, sorted.
    pub fields: Vec<Pair>,
    pub content: Vec<u8>,
    /// Sorted.
    pub trailers: Vec<Pair>,
    /// The end of the message has been reached.
    pub is_complete: bool,
}

impl Message {
    /// The request that leaves with this head. `key` is for a WebSocket whose client sent none.
    pub fn of(head: &Canonical, key: &WebSocketKey) -> Self {
        let mut message = Message::default();
        let fields = match head {
            Canonical::Request(head) => {
                message.method = head.method().as_bytes().to_vec();
                message.target = head.path().target().to_vec();
                message.host = head.authority().as_bytes().to_vec();
                if let Some(Upgrade::WebSocket { key: own }) = head.upgrade() {
                    let key = own.as_ref().unwrap_or(key).as_bytes();
                    message.add(b"upgrade", b"websocket");
                    message.add(b"sec-websocket-key", key);
                }
                head.fields()
            }
            Canonical::Connect(head) => {
                message.method = b"CONNECT".to_vec();
                message.target = head.authority().as_bytes().to_vec();
                message.host = message.target.clone();
                head.fields()
            }
        };
        for (name, value) in pairs(fields) {
            message.add(&name, &value);
        }
        message
    }

    /// Takes a field of the head as it stands there. The order of fields is not kept.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let name = name.to_ascii_lowercase();
        if name == b"host" {
            self.host = value.to_vec();
        } else if !MADE.contains(&&name[..]) {
            self.fields.push((name, value.to_vec()));
            self.fields.sort();
        }
    }

    /// Takes a field of the trailers.
    pub fn add_trailer(&mut self, name: &[u8], value: &[u8]) {
        self.trailers
            .push((name.to_ascii_lowercase(), value.to_vec()));
        self.trailers.sort();
    }

    /// True if `part` may be the beginning of this message.
    pub fn has_begun_as(&self, part: &Message) -> bool {
        !part.is_complete
            && (&self.method, &self.target) == (&part.method, &part.target)
            && self.content.starts_with(&part.content)
    }

    /// All texts of the head and the trailers.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let fields = self.fields.iter().chain(&self.trailers);
        let fields = fields.flat_map(|(name, value)| [&name[..], &value[..]]);
        [&self.method[..], &self.target[..], &self.host[..]]
            .into_iter()
            .chain(fields)
    }
}

/// The fields of a list, with names in lower case.
pub fn pairs(fields: &Fields) -> impl Iterator<Item = Pair> {
    fields
        .iter()
        .map(|field| (field.name().to_ascii_lowercase(), field.value().to_vec()))
}

/// The length of the content.
pub fn length(head: &Canonical) -> Length {
    match head {
        Canonical::Request(head) => head.length(),
        Canonical::Connect(_) => Length::None,
    }
}

/// True if content comes before the answer.
pub fn has_content(head: &Canonical) -> bool {
    let is_upgrade = matches!(head, Canonical::Request(head) if head.upgrade().is_some());
    !is_upgrade && !matches!(length(head), Length::None | Length::Known(0))
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let list = |pairs: &[Pair]| -> Vec<String> {
            let lines = pairs.iter();
            lines
                .map(|(name, value)| format!("{}: {}", text(name), text(value)))
                .collect()
        };
        f.debug_struct("Message")
            .field("method", &text(&self.method))
            .field("target", &text(&self.target))
            .field("host", &text(&self.host))
            .field("fields", &list(&self.fields))
            .field("content", &text(&self.content))
            .field("trailers", &list(&self.trailers))
            .field("is_complete", &self.is_complete)
            .finish()
    }
}

//! Two ends of a connection joined by byte queues, with time and cuts as the test has them.
#![allow(dead_code)]

pub mod drive;

use std::collections::BTreeMap;

use lateen_h2::{
    Config, Connection, ConnectionError, Event, Field, Known, Prebuilt, SharedConfig, StreamId,
    Timestamp,
};

/// What an end has been told.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Heard {
    /// Data by stream, what was not consumed yet, and whether the end came.
    pub data: BTreeMap<u32, (Vec<u8>, usize, bool)>,
    /// Requests and responses: stream, and `:authority` or the status.
    pub heads: Vec<(StreamId, String)>,
    pub resets: Vec<(u32, u32)>,
    pub failed: Vec<String>,
    pub unprocessed: Vec<u32>,
    pub pongs: Vec<u32>,
    pub others: Vec<String>,
    /// Header blocks: stream, which one, and its fields.
    pub blocks: Vec<(u32, &'static str, List)>,
}

pub type List = Vec<(String, String)>;

pub struct End {
    pub connection: Connection,
    pub heard: Heard,
    /// Consume data as it comes.
    pub reads: bool,
    /// Most that the peer was ever lent.
    lent: u32,
    /// Written, and not yet delivered.
    pub wire: Vec<u8>,
}

impl End {
    pub fn new(connection: Connection) -> Self {
        End {
            connection,
            heard: Heard::default(),
            reads: true,
            lent: lateen_h2::FLOOR,
            wire: Vec::new(),
        }
    }

    /// Takes input and notes the events.
    pub fn receive(&mut self, mut input: &[u8], now: Timestamp) -> Result<(), ConnectionError> {
        // Credit cannot be called back.
        self.lent = self.lent.max(self.connection.credit().allowance);
        while let Some(event) = self.connection.receive(&mut input, now)? {
            let heard = &mut self.heard;
            let block = match event {
                Event::Request { stream, .. } => Some((stream, "request")),
                Event::TooLarge { stream, .. } => Some((stream, "too large")),
                Event::Response { stream, .. } => Some((stream, "response")),
                Event::Informational { stream, .. } => Some((stream, "informational")),
                Event::Trailers { stream } => Some((stream, "trailers")),
                _ => None,
            };
            if let Some((stream, what)) = block {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let fields = self.connection.fields();
                fields
                    .lines()
                    .for_each(|line| assert_eq!(line.known, Known::of(line.name)));
                let list = fields.iter().map(|(name, value)| (text(name), text(value)));
                heard.blocks.push((stream.get(), what, list.collect()));
            }
            match event {
                Event::Request { stream, .. } => {
                    let value = self
                        .connection
                        .fields()
                        .get(":authority")
                        .unwrap_or_default();
                    heard
                        .heads
                        .push((stream, String::from_utf8_lossy(value).into_owned()));
                }
                Event::Response {
                    stream,
                    status,
                    end,
                } => {
                    heard.heads.push((stream, status.to_string()));
                    if end {
                        heard.data.entry(stream.get()).or_default().2 = true;
                    }
                }
                Event::Data { stream, bytes, end } => {
                    let entry = heard.data.entry(stream.get()).or_default();
                    assert!(!entry.2, "nothing comes behind the end");
                    entry.0.extend_from_slice(bytes);
                    entry.2 |= end;
                    match self.reads {
                        true => self.connection.consumed(stream, bytes.len()),
                        false => entry.1 += bytes.len(),
                    }
                }
                Event::Reset { stream, code, .. } => heard.resets.push((stream.get(), code.0)),
                Event::Failed(error) => heard.failed.push(error.to_string()),
                Event::Unprocessed { stream } => heard.unprocessed.push(stream.get()),
                Event::Pong(number) => heard.pongs.push(number),
                other => heard.others.push(format!("{other:?}")),
            }
        }
        assert!(input.is_empty(), "all input is used");
        let credit = self.connection.credit();
        assert!(credit.credit + credit.held <= self.lent);
        Ok(())
    }

    /// Moves what there is to write to the wire, up to about so many bytes.
    pub fn write(&mut self, most: usize) {
        let before = self.wire.len();
        let mut left = most;
        for piece in self.connection.output() {
            let n = left.min(piece.len());
            self.wire.extend_from_slice(&piece[..n]);
            left -= n;
        }
        let written = self.wire.len() - before;
        self.connection.advance(written);
    }
}

pub struct Pair {
    pub client: End,
    pub server: End,
    pub now: Timestamp,
}

pub fn small() -> Config {
    Config {
        settings_timeout: std::time::Duration::from_secs(5),
        ..Config::tunnel()
    }
}

impl Pair {
    pub fn new(client: &SharedConfig, server: &SharedConfig) -> Self {
        let now = Timestamp::from_micros(1_000_000);
        Pair {
            client: End::new(Connection::client(client, now)),
            server: End::new(Connection::server(server, now)),
            now,
        }
    }

    pub fn usual() -> Self {
        let config = small().share();
        let mut pair = Pair::new(&config, &config);
        pair.settle();
        pair
    }

    /// Delivers so many bytes of what one end wrote.
    pub fn deliver(&mut self, to_server: bool, bytes: usize) -> Result<(), ConnectionError> {
        let (from, to) = match to_server {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        while from.connection.has_output() {
            from.write(usize::MAX);
        }
        let n = bytes.min(from.wire.len());
        let piece: Vec<u8> = from.wire.drain(..n).collect();
        to.receive(&piece, self.now)
    }

    /// Until nothing more is said.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            self.deliver(true, usize::MAX).expect("the client is good");
            self.deliver(false, usize::MAX).expect("the server is good");
            let quiet = |end: &mut End| end.wire.is_empty() && !end.connection.has_output();
            if quiet(&mut self.client) && quiet(&mut self.server) {
                return;
            }
        }
        panic!("they never stop talking");
    }

    /// Opens a tunnel and answers it.
    pub fn open(&mut self) -> StreamId {
        let stream = self
            .client
            .connection
            .request(None, &connect("10.0.0.7:80"), false)
            .expect("there is room");
        self.settle();
        self.server
            .connection
            .respond(stream, Some(&ok()), &[], false)
            .expect("it is open");
        self.settle();
        stream
    }
}

pub fn connect(authority: &str) -> [Field<'_>; 3] {
    [
        Field::new(":method", "CONNECT").kept(),
        Field::new(":authority", authority),
        Field::new("baggage", "k8s.namespace.name=default,service.name=client").kept(),
    ]
}

pub fn ok() -> Prebuilt {
    Prebuilt::new([Field::new(":status", "200")])
}

/// A frame as bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A server that has had the preface and SETTINGS of a client.
pub fn server(config: Config) -> End {
    let now = Timestamp::from_micros(1_000_000);
    let mut server = End::new(Connection::server(&config.share(), now));
    server.receive(PREFACE, now).expect("the preface");
    server.receive(&frame(4, 0, 0, &[]), now).expect("settings");
    server
        .receive(&frame(4, 1, 0, &[]), now)
        .expect("an acknowledgement");
    server
}

/// A client with so many tunnels, of which none is answered.
pub fn client(config: Config, tunnels: usize) -> End {
    let now = Timestamp::from_micros(1_000_000);
    let mut client = End::new(Connection::client(&config.share(), now));
    client.receive(&frame(4, 0, 0, &[]), now).expect("settings");
    client
        .receive(&frame(4, 1, 0, &[]), now)
        .expect("an acknowledgement");
    for _ in 0..tunnels {
        client
            .connection
            .request(None, &connect("a:1"), false)
            .expect("there is room");
    }
    client.write(usize::MAX);
    client.wire.clear();
    client
}

/// The header block of a CONNECT, with nothing kept.
pub const CONNECT: &[u8] = b"\x02\x07CONNECT\x01\x03a:1";

/// An ordinary request.
pub fn ordinary(method: &str) -> [Field<'_>; 5] {
    [
        Field::known(Known::Method, method),
        Field::known(Known::Scheme, "http"),
        Field::known(Known::Authority, "reviews:9080"),
        Field::known(Known::Path, "/reviews/1"),
        Field::new("x-request-id", "7f2c").kept(),
    ]
}

/// A client that made one ordinary request, of which nothing is answered.
pub fn asking(config: Config, method: &str) -> End {
    let mut client = client(config, 0);
    client
        .connection
        .request(None, &ordinary(method), true)
        .expect("there is room");
    client.write(usize::MAX);
    client.wire.clear();
    client
}

/// A header list as a test writes it.
pub fn list(pairs: &[(&str, &str)]) -> List {
    pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

//! The server name of a TLS client that is relayed: read from its first bytes, which pass on unchanged.

use std::io::{Cursor, Read as _};

use rustls::server::Acceptor;

/// The most bytes that a ClientHello may have. Those of browsers have less than 2 KiB, with keys of ML-KEM.
pub const LONGEST_HELLO: usize = 16 * 1024;

/// The type of records that carry the handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// Bytes of a record's head.
const RECORD_HEAD: usize = 5;

/// The type of a ClientHello (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;

/// Bytes of a handshake message's type and length.
const HEAD: usize = 4;

/// The extension that carries the server name (RFC 6066 §3).
const SERVER_NAME: [u8; 2] = [0, 0];

/// What the first bytes of a client say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// The ClientHello is not whole yet.
    Partial,
    /// The ClientHello is whole. The server name is in lower case and without a final dot (RFC 6066 §3); `None` if the client sends none.
    Whole(Option<String>),
    /// The bytes are no TLS.
    Invalid,
}

/// Reads the first bytes of one client, as they come.
#[derive(Debug, Default)]
pub struct HelloReader {
    /// Bytes of records that were read.
    at: usize,
    /// Bytes of the handshake in them, of which the first are the message's head.
    length: usize,
    head: [u8; HEAD],
}

impl HelloReader {
    /// Reads all bytes that have come so far: those of the call before, and more. Bytes of records that were whole are not looked at again,
    /// before the whole ClientHello has come.
    pub fn read(&mut self, bytes: &[u8]) -> Hello {
        match self.advance(bytes) {
            Progress::Partial => return unfinished(bytes),
            Progress::Invalid => return Hello::Invalid,
            Progress::Whole => {}
        }
        let mut acceptor = Acceptor::default();
        let mut rest = Cursor::new(bytes);
        loop {
            match acceptor.read_tls(&mut rest.by_ref()) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => return Hello::Invalid,
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    return Hello::Whole(match accepted.client_hello().server_name() {
                        Some(name) => Some(folded(name)),
                        None => address(bytes).as_deref().map(folded),
                    });
                }
                Ok(None) => {}
                Err(_) => return Hello::Invalid,
            }
        }
        unfinished(bytes)
    }

    /// Reads records that have become whole.
    fn advance(&mut self, bytes: &[u8]) -> Progress {
        loop {
            if self.length >= HEAD {
                let [kind, high, middle, low] = self.head;
                let message = u32::from_be_bytes([0, high, middle, low]) as usize;
                if kind != CLIENT_HELLO {
                    return Progress::Invalid;
                }
                if self.length >= HEAD + message {
                    return Progress::Whole;
                }
            }
            let payload = match records(bytes.get(self.at..).unwrap_or_default()).next() {
                Some(Record::Whole(payload)) if !payload.is_empty() => payload,
                Some(Record::Partial) | None => return Progress::Partial,
                Some(Record::Whole(_) | Record::Other) => return Progress::Invalid,
            };
            let known = self.length.min(HEAD);
            for (place, byte) in self.head[known..].iter_mut().zip(payload) {
                *place = *byte;
            }
            self.length += payload.len();
            self.at += RECORD_HEAD + payload.len();
        }
    }
}

/// A server name in lower case and without a final dot.
fn folded(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The part of a ClientHello that has come, by the lengths of its records and of its message alone. The TLS library would read all of it again for
/// each piece.
enum Progress {
    Partial,
    Whole,
    /// The records are none of a ClientHello.
    Invalid,
}

/// A record of TLS.
enum Record<'a> {
    /// One of the handshake, without its head.
    Whole(&'a [u8]),
    /// The bytes end within it.
    Partial,
    /// One of something else.
    Other,
}

/// The records that the bytes begin with, up to the first that is not whole.
fn records(bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (record, behind) = match rest {
            [] => return None,
            [HANDSHAKE, _, _, high, low, behind @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                match behind.split_at_checked(length) {
                    Some((payload, behind)) => (Record::Whole(payload), behind),
                    None => (Record::Partial, &[][..]),
                }
            }
            [HANDSHAKE, ..] => (Record::Partial, &[][..]),
            _ => (Record::Other, &[][..]),
        };
        rest = behind;
        Some(record)
    })
}

/// The server name of a ClientHello that is an IP address. RFC 6066 §3 does not permit it, so the TLS library counts it as none. Policies
/// compare it all the same, as those of Istio do.
fn address(bytes: &[u8]) -> Option<String> {
    let mut message = Vec::new();
    for record in records(bytes) {
        let Record::Whole(payload) = record else {
            break;
        };
        message.extend_from_slice(payload);
    }
    let mut message = &message[..];
    // Version and random follow the head.
    take(&mut message, HEAD + 2 + 32)?;
    // The session, cipher suites and compression methods.
    vector::<1>(&mut message)?;
    vector::<2>(&mut message)?;
    vector::<1>(&mut message)?;
    let mut extensions = vector::<2>(&mut message)?;
    loop {
        let kind = take(&mut extensions, 2)?;
        let mut extension = vector::<2>(&mut extensions)?;
        if kind != SERVER_NAME {
            continue;
        }
        let mut names = vector::<2>(&mut extension)?;
        // Its type: RFC 6066 §3 knows that of a host alone.
        take(&mut names, 1)?;
        let name = vector::<2>(&mut names)?;
        return String::from_utf8(name.to_vec()).ok();
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// A vector whose length has so many bytes (RFC 8446 §3.4).
fn vector<'a, const LENGTH: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(bytes, LENGTH)?;
    let length = length
        .iter()
        .fold(0, |all, byte| all << 8 | usize::from(*byte));
    take(bytes, length)
}

fn unfinished(bytes: &[u8]) -> Hello {
    match bytes.len() < LONGEST_HELLO {
        true => Hello::Partial,
        false => Hello::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;
    use crate::provider::{foreign, versions};
    use crate::rules::Compliance;

    /// The answer to bytes that come at once.
    fn read_hello(bytes: &[u8]) -> Hello {
        HelloReader::default().read(bytes)
    }

    /// The first bytes of a client that wants `name`.
    fn hello(name: &str) -> Vec<u8> {
        let compliance = Compliance::default();
        let config = ClientConfig::builder_with_provider(foreign(compliance))
            .with_protocol_versions(versions(compliance))
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_known_with_the_last_byte_and_not_before() {
        let bytes = hello("API.Example.com");
        for length in 0..bytes.len() {
            assert_eq!(read_hello(&bytes[..length]), Hello::Partial, "{length}");
        }
        let whole = Hello::Whole(Some("api.example.com".to_owned()));
        assert_eq!(read_hello(&bytes), whole);
        let more = [&bytes[..], b"early data"].concat();
        assert_eq!(read_hello(&more), whole);
    }

    #[test]
    fn a_final_dot_is_no_part_of_the_name() {
        let mut bytes = hello("a.examplex");
        let at = bytes.windows(10).position(|part| part == b"a.examplex");
        bytes[at.unwrap() + 9] = b'.';
        let whole = Hello::Whole(Some("a.example".to_owned()));
        assert_eq!(read_hello(&bytes), whole);
    }

    #[test]
    fn a_client_of_an_address_names_nobody() {
        assert_eq!(read_hello(&hello("192.0.2.1")), Hello::Whole(None));
    }

    #[test]
    fn an_address_that_is_sent_as_a_name_is_the_name() {
        for address in ["192.0.2.1", "2001:DB8::1"] {
            let name = format!("{}.x", "a".repeat(address.len() - 2));
            let mut bytes = hello(&name);
            let at = bytes
                .windows(name.len())
                .position(|part| part == name.as_bytes());
            bytes[at.unwrap()..][..name.len()].copy_from_slice(address.as_bytes());
            let whole = Hello::Whole(Some(address.to_ascii_lowercase()));
            assert_eq!(read_hello(&bytes), whole);
        }
    }

    #[test]
    fn a_hello_in_records_of_one_byte_is_read() {
        let bytes = hello("a.example");
        let pieces: Vec<u8> = bytes[5..]
            .iter()
            .flat_map(|byte| [22, 3, 1, 0, 1, *byte])
            .collect();
        let mut reader = HelloReader::default();
        for length in 1..pieces.len() {
            assert_eq!(reader.read(&pieces[..length]), Hello::Partial, "{length}");
            assert_eq!(read_hello(&pieces[..length]), Hello::Partial, "{length}");
        }
        let whole = Hello::Whole(Some("a.example".to_owned()));
        assert_eq!(reader.read(&pieces), whole);
        assert_eq!(read_hello(&pieces), whole);
    }

    #[test]
    fn other_records_and_messages_are_invalid_at_once() {
        let bytes = hello("a.example");
        for strange in [
            &[22, 3, 1, 0, 0][..],
            &[22, 3, 1, 0, 4, 2, 0, 0, 1],
            &[22, 3, 1, 0, 4, 1, 0, 0, 9, 23],
            &[21, 3, 1, 0, 2, 1, 0],
        ] {
            let bytes = [strange, &bytes].concat();
            assert_eq!(read_hello(&bytes), Hello::Invalid, "{strange:?}");
        }
    }

    #[test]
    fn the_head_of_a_record_is_not_judged_before_its_end() {
        let mut bytes = hello("a.example");
        bytes[1..3].copy_from_slice(&[2, 3]);
        for length in 1..bytes.len() {
            assert_eq!(read_hello(&bytes[..length]), Hello::Partial, "{length}");
        }
        assert_eq!(read_hello(&bytes), Hello::Invalid);
    }

    #[test]
    fn bytes_that_are_no_hello_are_invalid() {
        assert_eq!(read_hello(b"GET / HTTP/1.1\r\n\r\n"), Hello::Invalid);
        // A handshake record that goes on and on.
        let mut endless = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff];
        endless.resize(LONGEST_HELLO, 0);
        assert_eq!(read_hello(&endless), Hello::Invalid);
    }
}

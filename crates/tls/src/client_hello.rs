//! The server name of a TLS client that is relayed: read from its first bytes, which pass on unchanged.

use std::io::{Cursor, Read as _};

use rustls::server::Acceptor;

/// The most bytes that a ClientHello may have. Those of browsers have less than 2 KiB, with keys of ML-KEM.
pub const LONGEST_HELLO: usize = 16 * 1024;

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

/// Reads the first bytes of a client.
pub fn read_hello(bytes: &[u8]) -> Hello {
    // A record is looked into once it is whole, however many pieces it comes in.
    let is_partial = match bytes {
        [22, _, _, high, low, rest @ ..] => {
            rest.len() < usize::from(u16::from_be_bytes([*high, *low]))
        }
        [22, ..] => true,
        _ => false,
    };
    if is_partial {
        return unfinished(bytes);
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
                let name = accepted
                    .client_hello()
                    .server_name()
                    .map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
                return Hello::Whole(name);
            }
            Ok(None) => {}
            Err(_) => return Hello::Invalid,
        }
    }
    unfinished(bytes)
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

//! The first bytes of a client: its protocol where nobody names it, and the server name of TLS.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lateen_exchange::Hold;
use lateen_http::{Detected, Detector, detect_version};
use lateen_tls::{Hello, HelloReader};
use tokio::io::{self, AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, timeout_at};

/// How long the first line of a client may take.
const LINE: Duration = Duration::from_secs(10);

/// Room for a ClientHello; a longer one gets more.
const HELLO: usize = 4096;

/// The bytes that a client began with.
#[derive(Debug)]
pub(super) struct First {
    pub(super) detected: Detected,
    pub(super) bytes: Bytes,
}

/// The first bytes of a client; none if it has ended. It may be dropped before it is ready: then nothing was read.
///
/// # Errors
/// The stream broke.
pub(super) async fn begin<IO: AsyncRead + Unpin>(io: &mut IO) -> io::Result<BytesMut> {
    let mut bytes = BytesMut::new();
    io.read_buf(&mut bytes).await?;
    Ok(bytes)
}

/// Reads on behind the first bytes until the protocol is decided. A client that ends first, or takes too long with its first
/// line, speaks no HTTP. The protocol stays undecided if there is no room for the line, for which `hold` is charged.
///
/// # Errors
/// The stream broke.
pub(super) async fn decide<IO: AsyncRead + Unpin>(
    io: &mut IO,
    bytes: BytesMut,
    hold: &mut Hold,
) -> io::Result<First> {
    let mut detector = Detector::default();
    let judge = |bytes: &BytesMut| match hold.raise(bytes.capacity()) {
        true => decided(detector.judge(bytes)),
        false => Some(Detected::Undecided),
    };
    read_until(io, bytes, judge, Detected::Other).await
}

/// The same for a client that is known to speak HTTP. The preface of HTTP/2 decides its version, so no more bytes are collected:
/// the connection's reader charges and bounds the rest. A client of neither version counts as one of HTTP/1.
///
/// # Errors
/// The stream broke.
pub(super) async fn decide_version<IO: AsyncRead + Unpin>(
    io: &mut IO,
    bytes: BytesMut,
) -> io::Result<First> {
    let judge = |bytes: &BytesMut| decided(detect_version(bytes));
    read_until(io, bytes, judge, Detected::Http1).await
}

fn decided(detected: Detected) -> Option<Detected> {
    Some(detected).filter(|detected| *detected != Detected::Undecided)
}

/// Reads until `judge` has decided. At the end of the bytes or of the time for a first line the client speaks `otherwise`.
async fn read_until<IO: AsyncRead + Unpin>(
    io: &mut IO,
    mut bytes: BytesMut,
    mut judge: impl FnMut(&BytesMut) -> Option<Detected>,
    otherwise: Detected,
) -> io::Result<First> {
    let deadline = Instant::now() + LINE;
    let mut is_open = !bytes.is_empty();
    let detected = loop {
        match judge(&bytes) {
            Some(detected) => break detected,
            None if is_open => {}
            None => break otherwise,
        }
        match timeout_at(deadline, io.read_buf(&mut bytes)).await {
            Ok(read) => is_open = read? > 0,
            Err(_) => is_open = false,
        }
    };
    Ok(First {
        detected,
        bytes: bytes.freeze(),
    })
}

/// True if a lenient server may read bytes as a request that are none by the grammar: it skips white space, of whichever
/// alphabet, and takes any text for a method.
pub(super) fn may_be_request(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x09..=0x0d | 0x1c..=0x7e | 0x85 | 0xa0))
}

/// True if a server's first bytes may be the SETTINGS frame of HTTP/2, which needs no client (RFC 9113 §3.4).
pub(super) fn may_be_settings(bytes: &[u8]) -> bool {
    // A length below 256, the type, no flags, and the stream of the connection.
    const HEAD: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut pairs = bytes.iter().zip(HEAD).enumerate();
    !bytes.is_empty() && pairs.all(|(at, (byte, expected))| at == 2 || *byte == expected)
}

/// The server name that a TLS client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerName {
    /// In lower case.
    Known(String),
    /// There is none: the bytes are no TLS, they end before the name is known, or the client asks for none.
    Unnamed,
    /// Nobody knows: the bytes stop before the ClientHello is whole, or its records cannot be read. A server may still find a name.
    Unread,
    /// There is no room for the rest of the ClientHello.
    NoRoom,
}

/// True if a TLS server may read the bytes as its client's first record, which may be an alert, and whose version some ignore.
pub(super) fn may_be_tls(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(20..=23))
}

/// The first bytes of a TLS client, as far as its ClientHello goes, and the server name that it asks for. `bytes` are those that it has
/// sent already. `hold` is charged for all.
///
/// # Errors
/// The stream broke.
pub(super) async fn hello<IO: AsyncRead + Unpin>(
    io: &mut IO,
    mut bytes: BytesMut,
    hold: &mut Hold,
) -> io::Result<(Bytes, ServerName)> {
    let deadline = Instant::now() + LINE;
    let mut reader = HelloReader::default();
    if bytes.is_empty() {
        bytes.reserve(HELLO);
    }
    let name = loop {
        if !bytes.is_empty() {
            if !hold.raise(bytes.capacity()) {
                break ServerName::NoRoom;
            }
            match reader.read(&bytes) {
                Hello::Partial => {}
                Hello::Whole(Some(name)) => break ServerName::Known(name),
                Hello::Invalid if may_be_tls(&bytes) => break ServerName::Unread,
                Hello::Whole(None) | Hello::Invalid => break ServerName::Unnamed,
            }
        }
        match timeout_at(deadline, io.read_buf(&mut bytes)).await {
            Ok(read) => {
                if read? == 0 {
                    break ServerName::Unnamed;
                }
            }
            Err(_) => break ServerName::Unread,
        }
    };
    Ok((bytes.freeze(), name))
}

#[cfg(test)]
mod tests {
    use lateen_exchange::Account;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn first(io: &mut tokio::io::DuplexStream) -> io::Result<First> {
        let begun = begin(io).await?;
        let account = Account::new(64 * 1024);
        decide(io, begun, &mut Hold::new(&account)).await
    }

    #[tokio::test]
    async fn a_protocol_is_told_however_its_first_bytes_are_cut() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", Detected::Http1),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Detected::Http2),
            ("EHLO a\r\n", Detected::Other),
        ] {
            let (mut near, mut far) = tokio::io::duplex(64);
            let write = async {
                for byte in text.bytes() {
                    far.write_all(&[byte]).await.unwrap();
                    tokio::task::yield_now().await;
                }
                far
            };
            let (found, far) = tokio::join!(first(&mut near), write);
            let found = found.unwrap();
            assert_eq!(found.detected, expected, "{text:?}");
            drop(far);
            let mut rest = found.bytes.to_vec();
            near.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, text.as_bytes());
        }
    }

    #[test]
    fn only_bytes_that_no_server_takes_for_a_request_or_for_settings_are_clear() {
        for text in [
            "\r\nGET / HTTP/1.1\r\n",
            "GET /",
            " GET",
            "\u{b}GET",
            "PING\r\n",
        ] {
            assert!(may_be_request(text.as_bytes()), "{text:?}");
        }
        for bytes in [&b""[..], b"\x16\x03\x01", b"\0\0\0\x08", b"\x10\x20"] {
            assert!(!may_be_request(bytes), "{bytes:?}");
        }
        let settings = [0, 0, 18, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        for length in 1..settings.len() {
            assert!(may_be_settings(&settings[..length]), "{length}");
        }
        for greeting in [&b""[..], b"220 ready\r\n", b"\x4a\0\0\0\x0a8.0"] {
            assert!(!may_be_settings(greeting), "{greeting:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_without_end_and_an_early_end_are_no_http() {
        let (mut near, mut far) = tokio::io::duplex(64);
        far.write_all(b"GET /").await.unwrap();
        let found = first(&mut near).await.unwrap();
        assert_eq!(
            (found.detected, &found.bytes[..]),
            (Detected::Other, &b"GET /"[..])
        );
        let (mut near, far) = tokio::io::duplex(64);
        drop(far);
        let found = first(&mut near).await.unwrap();
        assert_eq!((found.detected, found.bytes.len()), (Detected::Other, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_known_to_speak_http_needs_no_whole_line() {
        for text in ["GET /", "P", "PRI * HTTP/1.1\r\n", "\u{16}\u{3}"] {
            let (mut near, mut far) = tokio::io::duplex(64);
            far.write_all(text.as_bytes()).await.unwrap();
            let begun = begin(&mut near).await.unwrap();
            let found = decide_version(&mut near, begun).await.unwrap();
            assert_eq!(
                (found.detected, &found.bytes[..]),
                (Detected::Http1, text.as_bytes())
            );
        }
        let (mut near, mut far) = tokio::io::duplex(64);
        far.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        let begun = begin(&mut near).await.unwrap();
        far.write_all(b"\r\nSM\r\n\r\n").await.unwrap();
        let found = decide_version(&mut near, begun).await.unwrap();
        assert_eq!(found.detected, Detected::Http2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_charged_and_ends_where_its_account_has_no_room() {
        let account = Account::new(128 * 1024);
        let (mut near, mut far) = tokio::io::duplex(64 * 1024);
        far.write_all(b"GET /").await.unwrap();
        far.write_all(&[b'a'; 8 * 1024]).await.unwrap();
        let begun = begin(&mut near).await.unwrap();
        let mut hold = Hold::new(&account);
        // Requests may hold 64 KiB, and one of them half of that.
        let (found, ()) = tokio::join!(decide(&mut near, begun, &mut hold), async {
            tokio::task::yield_now().await;
            assert!(account.held() >= 8 * 1024, "{}", account.held());
            far.write_all(&[b'a'; 48 * 1024]).await.unwrap();
        });
        let found = found.unwrap();
        assert_eq!(found.detected, Detected::Undecided);
        assert!(found.bytes.len() < 40 * 1024, "{}", found.bytes.len());
        drop(hold);
        assert_eq!(account.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_hello_is_charged_and_ends_where_its_account_has_no_room() {
        // A record of 16 KiB, of which the most is still to come.
        let mut begun = vec![22, 3, 1, 0x40, 0];
        begun.resize(6 * 1024, 0);
        for (limit, expected) in [(128, ServerName::Unread), (16, ServerName::NoRoom)] {
            let account = Account::new(limit * 1024);
            let (mut near, mut far) = tokio::io::duplex(64 * 1024);
            far.write_all(&begun).await.unwrap();
            let mut hold = Hold::new(&account);
            let (_, name) = hello(&mut near, BytesMut::new(), &mut hold).await.unwrap();
            assert_eq!(name, expected, "{limit} KiB");
            assert!(account.held() >= 6 * 1024, "{}", account.held());
            drop(hold);
            assert_eq!(account.held(), 0);
        }
    }
}

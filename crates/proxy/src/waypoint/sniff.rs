//! The first bytes of a client whose protocol nobody names.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lateen_http::{Detected, detect};
use tokio::io::{self, AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, timeout_at};

/// How long the first line of a client may take.
const LINE: Duration = Duration::from_secs(10);

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
/// line, speaks no HTTP.
///
/// # Errors
/// The stream broke.
pub(super) async fn decide<IO: AsyncRead + Unpin>(
    io: &mut IO,
    mut bytes: BytesMut,
) -> io::Result<First> {
    let deadline = Instant::now() + LINE;
    let mut is_open = !bytes.is_empty();
    let detected = loop {
        match detect(&bytes) {
            Detected::Undecided if is_open => {}
            Detected::Undecided => break Detected::Other,
            decided => break decided,
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn first(io: &mut tokio::io::DuplexStream) -> io::Result<First> {
        let begun = begin(io).await?;
        decide(io, begun).await
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
}

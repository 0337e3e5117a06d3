//! What two peers that met write arrives whole, and in few writes.

use std::pin::Pin;
use std::task::{Context, Waker};

use lateen_testkit::{Ca, identity};
use lateen_tls::{TlsStream, accept, connect};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};

type Pair = (
    TlsStream<counting::Writes<DuplexStream>>,
    TlsStream<DuplexStream>,
    counting::Count,
);

/// A client and a server, connected; the client's writes are counted, and none may be a list of one piece.
async fn pair() -> Pair {
    pair_over(64 * 1024).await
}

/// The same with so many bytes under way at most.
async fn pair_over(most: usize) -> Pair {
    let ca = Ca::new();
    let (client, server) = (
        ca.credentials(&identity("a")),
        ca.credentials(&identity("b")),
    );
    let (near, far) = duplex(most);
    let (near, counted) = counting::Writes::new(near);
    let expected = [identity("b")];
    let (client, server) = tokio::join!(connect(&client, near, &expected), accept(&server, far));
    (client.unwrap().0, server.unwrap().0, counted)
}

#[tokio::test]
async fn ten_megabytes_arrive_whole_in_both_directions() {
    let (mut client, mut server, _) = pair().await;
    let sent: Vec<u8> = (0..10 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let expected = sent.clone();
    let echo = async move {
        let mut got = vec![0; 10 << 20];
        server.read_exact(&mut got).await.unwrap();
        server.write_all(&got).await.unwrap();
        server.flush().await.unwrap();
        server
    };
    let talk = async {
        client.write_all(&sent).await.unwrap();
        client.flush().await.unwrap();
        let mut got = vec![0; 10 << 20];
        client.read_exact(&mut got).await.unwrap();
        got
    };
    let (_, got) = tokio::join!(echo, talk);
    assert!(got == expected, "bytes were changed on the way");
}

#[tokio::test]
async fn small_writes_leave_together_with_the_flush() {
    let (mut client, mut server, counted) = pair().await;
    let before = counted.get();
    for _ in 0..16 {
        client.write_all(&[7; 1000]).await.unwrap();
    }
    assert_eq!(counted.get(), before, "a write left before the flush");
    client.flush().await.unwrap();
    assert_eq!(counted.get(), before + 1);
    let mut got = vec![0; 16_000];
    server.read_exact(&mut got).await.unwrap();
    assert!(got.iter().all(|b| *b == 7));
}

/// A part of what waits leaves: the flush is not over, and yet it shows.
#[tokio::test]
async fn what_a_flush_sends_in_part_is_told() {
    let (mut client, mut server, _) = pair_over(1024).await;
    client.write_all(&[7; 8000]).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut before = client.sent();
    for _ in 0..4 {
        assert!(Pin::new(&mut client).poll_flush(&mut cx).is_pending());
        assert_eq!(client.sent(), before + 1024);
        before = client.sent();
        assert!(Pin::new(&mut client).poll_flush(&mut cx).is_pending());
        assert_eq!(client.sent(), before);
        // Makes room, of less than a record.
        let mut got = [0; 8000];
        let mut got = ReadBuf::new(&mut got);
        let read = Pin::new(&mut server).poll_read(&mut cx, &mut got);
        assert!(read.is_pending());
    }
}

/// A write of many records costs the kernel as much as one of few, and less for each.
#[tokio::test]
async fn a_quarter_of_a_mebibyte_leaves_in_one_write() {
    let (mut client, mut server, counted) = pair_over(1 << 20).await;
    let before = counted.get();
    for _ in 0..4 {
        client.write_all(&[7; 64 * 1024]).await.unwrap();
    }
    assert_eq!(counted.get(), before, "a write left before the flush");
    client.flush().await.unwrap();
    assert_eq!(counted.get(), before + 1);
    let mut got = vec![0; 256 * 1024];
    server.read_exact(&mut got).await.unwrap();
    assert!(got.iter().all(|b| *b == 7));
}

/// Counts the writes that reach a connection.
mod counting {
    use std::cell::Cell;
    use std::io::{self, IoSlice};
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    pub type Count = Rc<Cell<usize>>;

    pub struct Writes<IO>(IO, Rc<Cell<usize>>);

    impl<IO> Writes<IO> {
        pub fn new(io: IO) -> (Self, Rc<Cell<usize>>) {
            let count = Rc::new(Cell::new(0));
            (Writes(io, Rc::clone(&count)), count)
        }
    }

    impl<IO: AsyncRead + Unpin> AsyncRead for Writes<IO> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl<IO: AsyncWrite + Unpin> AsyncWrite for Writes<IO> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.1.set(self.1.get() + 1);
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            assert!(bufs.len() > 1, "one piece was written as a list");
            self.1.set(self.1.get() + 1);
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            Pin::new(&mut self.0).poll_write(cx, &all)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
}

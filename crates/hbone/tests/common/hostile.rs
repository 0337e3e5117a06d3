//! What hostile peers are set upon, and how.
#![allow(dead_code)]

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lateen_hbone::{Connection, Settings, Status, Stream, TunnelError, client};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::{JoinHandle, spawn_local};

use super::wire::{self, PREFACE, SETTINGS, frame};
use super::{echo, request, stream, tunnel};

/// What memory a flood may cost while it lasts: its tunnel's buffers and a few hundred streams.
pub const MODEST: usize = 8 << 20;

/// What a server does with requests.
#[derive(Clone, Copy)]
pub enum Serving {
    /// Echoes.
    Accepts,
    /// Answers 401.
    Refuses,
    /// Takes its time, as while an application is dialled, but notices who gives up.
    Ponders,
}

/// Takes all that is written to it, as TLS does, and passes it on when it is flushed.
pub struct Gathers {
    io: DuplexStream,
    waits: Vec<u8>,
    most: Rc<Cell<usize>>,
}

impl Gathers {
    /// It, and the most bytes that ever waited there.
    pub fn new(io: DuplexStream) -> (Self, Rc<Cell<usize>>) {
        let most = Rc::new(Cell::new(0));
        let gathers = Gathers {
            io,
            waits: Vec::new(),
            most: Rc::clone(&most),
        };
        (gathers, most)
    }
}

impl AsyncRead for Gathers {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gathers {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.waits.extend_from_slice(bytes);
        self.most.set(self.most.get().max(self.waits.len()));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.waits.is_empty() {
            let written = ready!(Pin::new(&mut this.io).poll_write(cx, &this.waits))?;
            this.waits.drain(..written);
        }
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A server; its task's result is how the tunnel ended.
pub fn server<IO>(far: IO, serving: Serving) -> JoinHandle<Result<(), TunnelError>>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
{
    spawn_local(async move {
        let mut connection = Connection::accept(far, Settings::server()).await?;
        while let Some(mut incoming) = connection.next().await? {
            match serving {
                Serving::Accepts => {
                    if let Ok(stream) = incoming.accept(None) {
                        spawn_local(frugal_echo(stream));
                    }
                }
                Serving::Refuses => incoming.refuse(Status::Unauthorized),
                Serving::Ponders => {
                    spawn_local(async move { incoming.cancelled().await });
                }
            }
        }
        Ok(())
    })
}

/// An echo that takes little memory of its own.
pub async fn frugal_echo(mut stream: Stream) {
    let mut buffer = [0; 512];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

/// A client of ours with one request under way.
pub fn our_client(near: DuplexStream) -> JoinHandle<Result<(), TunnelError>> {
    spawn_local(async move {
        let (tunnel, driver) = client::handshake(near, Settings::client()).await?;
        spawn_local(async move {
            // How it ends is the driver's to say.
            let _ = tunnel.connect(&request()).await;
            std::future::pending::<()>().await;
        });
        driver.await
    })
}

/// Sends `opening`, then `turn(n)` again and again while the tunnel stands; reads and drops what comes back if
/// `reads`. Returns how the tunnel ended, how many turns it took and how much memory grew meanwhile.
pub async fn flood(
    victim: JoinHandle<Result<(), TunnelError>>,
    mut hostile: DuplexStream,
    opening: &[u8],
    reads: bool,
    mut turn: impl FnMut(u32) -> Vec<u8>,
) -> (Result<(), TunnelError>, u32, usize) {
    let (bystander, mut incoming) = tunnel(Settings::client(), Settings::server()).await;
    let (mut near, far) = stream(&bystander, &mut incoming).await;
    spawn_local(echo(far));

    let before = super::heap::live();
    super::heap::mark();
    let mut turns = 0;
    wire::write(&mut hostile, opening).await;
    let mut rest = [0; 16 * 1024];
    while !victim.is_finished() && turns < 300_000 {
        let bytes = turn(turns);
        turns += 1;
        if reads {
            let (mut reader, mut writer) = tokio::io::split(&mut hostile);
            let write = async { writer.write_all(&bytes).await.is_ok() };
            tokio::pin!(write);
            let written = loop {
                tokio::select! {
                    biased;
                    read = reader.read(&mut rest) => if !matches!(read, Ok(n) if n > 0) { break false },
                    written = &mut write => break written,
                }
            };
            if !written {
                break;
            }
        } else {
            // A pipe that is full means that it waits for us to read.
            let write = tokio::time::timeout(Duration::from_secs(1), hostile.write_all(&bytes));
            if !matches!(write.await, Ok(Ok(()))) {
                break;
            }
        }
        if turns % 64 == 0 {
            tokio::task::yield_now().await;
        }
        if turns % 4096 == 0 {
            near.write_all(b"still there").await.unwrap();
            near.read_exact(&mut [0; 11]).await.unwrap();
        }
    }
    let ended = victim.await.unwrap();
    let grown = super::heap::peak().saturating_sub(before);
    near.write_all(b"still there").await.unwrap();
    near.read_exact(&mut [0; 11]).await.unwrap();
    bystander.close();
    (ended, turns, grown)
}

pub fn opening(settings: &[u8]) -> Vec<u8> {
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, settings)].concat()
}

pub fn odd(turn: u32) -> u32 {
    2 * turn + 1
}

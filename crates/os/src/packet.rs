//! The proxy's end of a SOCK_SEQPACKET unix socket on which packets carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    connect, recvmsg, sendmsg, socket,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connected socket.
#[derive(Debug)]
pub struct PacketSocket(AsyncFd<OwnedFd>);

/// One packet as it came; its bytes are in the reader's buffer.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the packet; 0 without descriptors is the end of the connection.
    pub length: usize,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// The packet was longer than the buffer.
    pub cut: bool,
    /// This process has no descriptor left for what came along.
    pub lost: bool,
}

impl Received {
    /// Whether the peer has closed the connection.
    pub fn is_end(&self) -> bool {
        self.length == 0 && self.descriptors.is_empty()
    }
}

impl PacketSocket {
    /// Connects at once or not at all.
    ///
    /// # Errors
    /// Nobody listens at `path`, or more wait there than its backlog has room for.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // unix(7): a non-blocking connect succeeds at once or fails, with EAGAIN while the agent's backlog is full.
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        // SAFETY: the descriptor is ours alone and is neither replaced nor closed before the AsyncFd is.
        Ok(Self(unsafe { AsyncFd::register(fd) }?))
    }

    /// The next packet, written to `packet`. Safe to drop and call again.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn receive(&self, packet: &mut [u8]) -> io::Result<Received> {
        self.0
            .async_io(Interest::READABLE, |fd| receive(fd, packet))
            .await
    }

    /// Sends a packet, with these descriptors.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&self, packet: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = with.iter().map(AsRawFd::as_raw_fd).collect();
        self.0
            .async_io(Interest::WRITABLE, |fd| {
                let rights = [ControlMessage::ScmRights(&raw)];
                let rights = if raw.is_empty() {
                    &rights[..0]
                } else {
                    &rights
                };
                let parts = [IoSlice::new(packet)];
                sendmsg::<()>(fd.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None)?;
                Ok(())
            })
            .await
    }
}

fn receive(fd: &OwnedFd, packet: &mut [u8]) -> io::Result<Received> {
    // unix(7): a message carries at most SCM_MAX_FD descriptors. With room for all of them none is lost track of, and a
    // packet with too many is seen as what it is.
    const SCM_MAX_FD: usize = 253;
    let mut space = nix::cmsg_space!([RawFd; SCM_MAX_FD]);
    let mut parts = [IoSliceMut::new(packet)];
    let message = recvmsg::<()>(
        fd.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut received = Received {
        length: message.bytes,
        descriptors: Vec::new(),
        cut: message.flags.contains(MsgFlags::MSG_TRUNC),
        // With room for all, the kernel drops descriptors only for want of a number for them: not even one was left.
        lost: message.flags.contains(MsgFlags::MSG_CTRUNC),
    };
    if received.lost {
        return Ok(received);
    }
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel opened these descriptors for us with this message; nobody else has them.
            let owned = descriptors
                .into_iter()
                .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            received.descriptors.extend(owned);
        }
    }
    Ok(received)
}

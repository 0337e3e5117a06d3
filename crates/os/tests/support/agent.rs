//! An agent's end of a SOCK_SEQPACKET socket.
#![allow(dead_code, missing_docs)]

use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    listen, recv, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// The agent's end; blocking, for a thread of its own.
pub struct Agent {
    listener: OwnedFd,
    pub path: PathBuf,
}

pub struct Conversation(OwnedFd);

impl Agent {
    pub fn listen(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("lateen-zds-{}-{name}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(4).unwrap()).unwrap();
        setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).unwrap();
        Self { listener, path }
    }

    pub fn accept(&self) -> Conversation {
        let fd = accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)
            .expect("the client connects in time");
        // SAFETY: accept4 has just opened it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).unwrap();
        Conversation(socket)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Conversation {
    /// Waits for what the client says next; descriptors with it are closed.
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; 2048];
        let length = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty())
            .expect("the client answers in time");
        packet.truncate(length);
        packet
    }

    pub fn send(&self, packet: &[u8], descriptors: &[RawFd]) {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() {
            &rights[..0]
        } else {
            &rights[..]
        };
        sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(packet)],
            control,
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }
}

//! Two applications, two connections of this process between them, and what becomes of what they say.
#![allow(dead_code, missing_docs)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use lateen_bpf_splice::{Accelerator, Declined, End, Joined};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Far longer than anything takes when it works.
const LONG: Duration = Duration::from_secs(20);

pub fn accelerator() -> Arc<Accelerator> {
    Accelerator::open().expect("this machine can join connections")
}

/// A connection of somebody who waits for it by poll(2) and not in its calls.
pub struct Stream(pub TcpStream);

impl Stream {
    pub fn patiently<T>(
        &self,
        what: PollFlags,
        mut once: impl FnMut(&TcpStream) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        loop {
            match once(&self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            let mut wait = [PollFd::new(self.0.as_fd(), what)];
            let ready = poll(&mut wait, PollTimeout::try_from(LONG).unwrap()).unwrap();
            assert_eq!(ready, 1, "nothing happens");
        }
    }

    pub fn try_clone(&self) -> std::io::Result<Self> {
        self.0.try_clone().map(Stream)
    }
}

impl std::ops::Deref for Stream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.0
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.patiently(PollFlags::POLLIN, |mut stream| stream.read(bytes))
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.patiently(PollFlags::POLLOUT, |mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        (&*self).read(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn pair_at(address: SocketAddr) -> (Stream, Stream) {
    let listener = TcpListener::bind(address).unwrap();
    let opened = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    for stream in [&opened, &accepted] {
        stream.set_nonblocking(true).unwrap();
    }
    (Stream(opened), Stream(accepted))
}

pub fn pair() -> (Stream, Stream) {
    pair_at("127.0.0.1:0".parse().unwrap())
}

/// An application, this process's two connections, the other application.
pub struct Four {
    pub client: Stream,
    pub near: Stream,
    pub far: Stream,
    pub server: Stream,
}

pub fn four() -> Four {
    let ((client, near), (far, server)) = (pair(), pair());
    Four {
        client,
        near,
        far,
        server,
    }
}

pub fn visit(joined: &Joined, end: End, application: &Stream) -> Result<(), Declined> {
    let (local, peer) = (
        application.local_addr().unwrap(),
        application.peer_addr().unwrap(),
    );
    joined.visit(end, local, peer).run()
}

impl Four {
    /// Joined, but not open.
    pub fn prepare(&self, accelerator: &Arc<Accelerator>) -> Joined {
        let joined = accelerator
            .join(self.near.as_fd(), self.far.as_fd())
            .unwrap();
        visit(&joined, End::Client, &self.client).unwrap();
        visit(&joined, End::Server, &self.server).unwrap();
        joined
    }

    pub fn join(&self, accelerator: &Arc<Accelerator>) -> Joined {
        let joined = self.prepare(accelerator);
        joined.open();
        joined
    }

    /// Copies what comes by TCP, both ways, as the process does meanwhile.
    pub fn relay(&self) -> [JoinHandle<u64>; 2] {
        let ends = [(&self.near, &self.far), (&self.far, &self.near)];
        ends.map(|(from, to)| {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            spawn(move || {
                let copied = std::io::copy(&mut from, &mut to).unwrap();
                to.shutdown(Shutdown::Write).unwrap();
                copied
            })
        })
    }
}

/// What a system call answered.
pub fn told(answer: libc::ssize_t) -> std::io::Result<usize> {
    usize::try_from(answer).map_err(|_| std::io::Error::last_os_error())
}

pub fn heard(mut stream: &Stream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes == expected, "these bytes in this order");
}

pub fn silent(stream: &Stream) -> bool {
    let mut inner: &TcpStream = stream;
    matches!(inner.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}

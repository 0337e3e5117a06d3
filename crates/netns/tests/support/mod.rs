//! A pod's network namespace for a test: made by a thread that never leaves it, gone with the last handle.
#![allow(dead_code, missing_docs)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc;

use lateen_netns::Netns;
use nix::sched::{CloneFlags, unshare};

type Work = Box<dyn FnOnce() + Send>;

pub struct TestPod {
    pub netns: Netns,
    work: mpsc::Sender<Work>,
}

impl TestPod {
    /// A namespace with a working loopback.
    pub fn new() -> Self {
        let (work, inbox) = mpsc::channel::<Work>();
        let (send, made) = mpsc::channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("this test needs root: it makes network namespaces");
            raise_loopback();
            let own: OwnedFd = File::open("/proc/thread-self/ns/net").unwrap().into();
            send.send(own).unwrap();
            while let Ok(work) = inbox.recv() {
                work();
            }
        });
        let fd = made
            .recv()
            .expect("this test needs root: it makes network namespaces");
        Self {
            netns: Netns::from_fd(fd).unwrap(),
            work,
        }
    }

    /// The namespace as a descriptor that can be sent away.
    pub fn fd(&self) -> OwnedFd {
        self.netns.as_fd().try_clone_to_owned().unwrap()
    }

    /// Runs inside the pod and waits for the result.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, done) = mpsc::channel();
        self.work
            .send(Box::new(move || {
                let _ = send.send(work());
            }))
            .unwrap();
        done.recv().expect("the work inside the pod ended")
    }

    /// What identifies this namespace on any of its sockets.
    pub fn cookie(&self) -> u64 {
        self.run(|| cookie(&std::net::UdpSocket::bind("127.0.0.1:0").unwrap()))
    }
}

/// SO_NETNS_COOKIE: which namespace a socket lives in.
pub fn cookie(socket: &impl AsFd) -> u64 {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the pointers describe `cookie` and `length`, which outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            71,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    cookie
}

fn raise_loopback() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: an all-zero ifreq is a valid one; the name fits and stays terminated.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

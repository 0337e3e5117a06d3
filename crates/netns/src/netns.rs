//! Network namespaces: holding one open, comparing two, and entering one for the time of a closure.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;

/// A network namespace that stays alive as long as this handle, or a socket made in it, does.
#[derive(Clone, Debug)]
pub struct Netns {
    fd: Arc<OwnedFd>,
    id: NetnsId,
}

/// Which namespace it is: equal ids mean the same namespace while either is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetnsId {
    device: u64,
    inode: u64,
}

impl Netns {
    /// Takes a descriptor that somebody passed to us, after checking that it is a network namespace.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        if namespace_type(fd.as_fd())? != libc::CLONE_NEWNET {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is a namespace, but not a network namespace",
            ));
        }
        Self::adopt(fd)
    }

    /// The calling thread's network namespace.
    pub fn current() -> io::Result<Self> {
        Self::adopt(File::open("/proc/thread-self/ns/net")?.into())
    }

    /// The namespace that a socket was made in, wherever it is used (SIOCGSKNS, ioctl_ns(2)).
    ///
    /// # Errors
    /// The descriptor is no socket, or this process lacks CAP_NET_ADMIN there.
    pub fn of_socket(socket: BorrowedFd<'_>) -> io::Result<Self> {
        const SIOCGSKNS: libc::Ioctl = 0x894c;
        // SAFETY: the descriptor is open for the time of the call, and this request takes no argument.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor for us; nobody else has it.
        Self::adopt(unsafe { OwnedFd::from_raw_fd(answer) })
    }

    /// What identifies this namespace among those alive.
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// The inode that `/proc/<pid>/ns/net` of a process in this namespace shows.
    pub fn inode(&self) -> u64 {
        self.id.inode
    }

    fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        Ok(Self {
            id: NetnsId {
                device: stat.st_dev,
                inode: stat.st_ino,
            },
            fd: Arc::new(fd),
        })
    }

    /// Runs `work` with the calling thread inside this namespace and brings the thread back to `home`.
    ///
    /// A thread that cannot come back would make every later socket in a tenant's namespace, so the process ends
    /// instead.
    pub(crate) fn within<T>(&self, home: &Netns, work: impl FnOnce() -> T) -> io::Result<T> {
        setns(self.fd.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let _way_back = WayBack(home);
        Ok(work())
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

struct WayBack<'a>(&'a Netns);

impl Drop for WayBack<'_> {
    fn drop(&mut self) {
        if let Err(error) = setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET) {
            // Straight out: lines of the log wait for others, and this process has no time left.
            let _ = writeln!(
                io::stderr(),
                "cannot return from a pod's network namespace: {error}; the process ends"
            );
            std::process::abort();
        }
    }
}

/// `ioctl_ns(2)`: NS_GET_NSTYPE answers the CLONE_NEW* flag of a namespace descriptor, and fails for anything else.
fn namespace_type(fd: BorrowedFd<'_>) -> io::Result<i32> {
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    // SAFETY: the descriptor is open for the time of the call, and this request takes no argument.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_current_namespace_equals_itself() {
        let (a, b) = (Netns::current().unwrap(), Netns::current().unwrap());
        assert_eq!(a.id(), b.id());
        assert!(a.inode() > 0);
    }

    /// This test's name, and the variable by which its child knows what to do.
    const LOST: (&str, &str) = (
        "netns::tests::a_thread_that_cannot_come_back_ends_the_process_and_says_so",
        "LATEEN_TEST_LOST",
    );

    #[test]
    fn a_thread_that_cannot_come_back_ends_the_process_and_says_so() {
        if std::env::var_os(LOST.1).is_some() {
            // No thread can enter that.
            let nowhere = Netns::adopt(File::open("/dev/null").unwrap().into()).unwrap();
            drop(WayBack(&nowhere));
            return;
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", LOST.0, "--nocapture"])
            .env(LOST.1, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(libc::SIGABRT));
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(
            said.contains("cannot return from a pod's network namespace"),
            "{said}"
        );
    }

    #[test]
    fn refuses_a_descriptor_that_is_no_namespace() {
        assert!(Netns::from_fd(File::open("/dev/null").unwrap().into()).is_err());
    }

    #[test]
    fn refuses_a_namespace_of_another_kind() {
        let uts = File::open("/proc/self/ns/uts").unwrap();
        let error = Netns::from_fd(uts.into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn knows_where_a_socket_was_made() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let made = Netns::of_socket(socket.as_fd()).expect("this test needs root");
        assert_eq!(made.id(), Netns::current().unwrap().id());
        let null = File::open("/dev/null").unwrap();
        assert!(Netns::of_socket(null.as_fd()).is_err());
    }

    #[test]
    fn takes_a_network_namespace() {
        let own = File::open("/proc/self/ns/net").unwrap();
        assert!(Netns::from_fd(own.into()).is_ok());
    }
}

//! The loaded BPF programs, and the connections that they join.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::btf::{BtfError, Types};
use crate::end::End;
use crate::programs::{Fields, LICENCE, Maps, answer, enter, verdict};
use crate::sys::{self, MapAttr, MapKind, ProgramKind};
use crate::table::{MOST, Table, key, order, own, shared};

const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Why this node has no accelerator.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel does not say where its fields are.
    #[error("read {TYPES}: {0}; the kernel has to be built with CONFIG_DEBUG_INFO_BTF")]
    Types(#[source] io::Error),
    /// The kernel's fields are not those that the programs look at.
    #[error("read {TYPES}: {0}; this kernel is not supported")]
    Fields(#[from] BtfError),
    /// The process may not do it.
    #[error("{0}: not permitted; the proxy needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN")]
    Forbidden(&'static str),
    /// The kernel does not do it.
    #[error(
        "{what}: {error}; the kernel has to be 5.10 or newer, with CONFIG_BPF_STREAM_PARSER{log}"
    )]
    Kernel {
        /// What was wanted.
        what: &'static str,
        /// What it answered.
        error: io::Error,
        /// Why it does not accept a program.
        log: Reasons,
    },
    /// It does it, but not as expected.
    #[error("join two connections of its own to try it: {0}")]
    Trial(String),
}

/// The end of what the kernel says about a program that it does not accept.
#[derive(Debug, Default)]
pub struct Reasons(String);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.lines().rev().take(4).collect();
        for line in lines.iter().rev() {
            write!(f, "; {line}")?;
        }
        Ok(())
    }
}

/// Why two connections are not joined. They go on through the process.
#[derive(Debug, thiserror::Error)]
pub enum Declined {
    /// As many are joined as can be.
    #[error("{MOST} connections are joined already")]
    Full,
    /// The kernel does not take this process's own socket.
    #[error("enter a socket of the proxy: {0}")]
    Own(#[source] io::Error),
    /// The application's socket could not be looked for.
    #[error("look for the application's socket: {0}")]
    Visit(#[source] io::Error),
    /// Nothing has these addresses: something between changes them, or it has ended.
    #[error("no socket of the application has these addresses")]
    NoSocket,
    /// It is not open in both directions.
    #[error("the application's socket is about to end")]
    NotOpen,
    /// This process's own end has ended.
    #[error("the connection has ended")]
    Ended,
    /// MPTCP, TLS in the kernel, zero copy: it would not be told what it waits for.
    #[error(
        "the application's socket is of a kind that cannot be joined (MPTCP, kTLS or zero copy)"
    )]
    Special,
    /// Its application waits in its system calls, which sockets in a map do not do well.
    #[error("the application's socket is not O_NONBLOCK")]
    Blocking,
    /// One with the same addresses, but not the other end of this connection.
    #[error("the socket with these addresses is not the connection's other end")]
    Another,
    /// The kernel does not take the application's socket; something else may have it in a map of its own.
    #[error("the kernel does not take the application's socket")]
    NoRoom,
}

impl Declined {
    /// It is worth another try later.
    pub fn may_change(&self) -> bool {
        match self {
            Declined::Full | Declined::Blocking => true,
            Declined::Visit(error) => error.kind() == io::ErrorKind::ResourceBusy,
            _ => false,
        }
    }
}

/// The programs in the kernel. They go with this, and with the process, however that ends; connections that were joined
/// go on through the process as long as it is there.
#[derive(Debug)]
pub struct Accelerator {
    targets: OwnedFd,
    applications: OwnedFd,
    enter: OwnedFd,
    table: Table,
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Unavailable {
    move |error| refused(what, error, String::new())
}

fn refused(what: &'static str, error: io::Error, log: String) -> Unavailable {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if log.is_empty() => Unavailable::Forbidden(what),
        _ => Unavailable::Kernel {
            what,
            error,
            log: Reasons(log),
        },
    }
}

/// Describes the key and the value of a socket's storage: `int` and an array of 64-bit words.
fn storage_types() -> Vec<u8> {
    const INT: u32 = 1 << 24;
    const ARRAY: u32 = 3 << 24;
    const STRINGS: &[u8] = b"\0int\0word\0";
    let words = (own::SIZE / 8) as u32;
    let types: [u32; 14] = [
        1, INT, 4, 32, // 1
        5, INT, 8, 64, // 2
        0, ARRAY, 0, 2, 1, words, // 3
    ];
    let length = size_of_val(&types) as u32;
    let mut blob = 0xeb9f_u16.to_ne_bytes().to_vec();
    blob.extend([1, 0]);
    for word in [24, 0, length, length, STRINGS.len() as u32] {
        blob.extend(u32::to_ne_bytes(word));
    }
    blob.extend(types.into_iter().flat_map(u32::to_ne_bytes));
    blob.extend(STRINGS);
    blob
}

impl Accelerator {
    /// Brings the programs into the kernel, and tries them on two connections of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel or the process's privileges do not allow it.
    pub fn open() -> Result<Arc<Self>, Unavailable> {
        let types = std::fs::read(TYPES).map_err(Unavailable::Types)?;
        let fields = Fields::find(&Types::parse(&types)?)?;
        let sockets = || {
            MapAttr::new(MapKind::SockHash, 8, 4, 2 * MOST)
                .create()
                .map_err(failed("make a map of sockets"))
        };
        let (targets, applications) = (sockets()?, sockets()?);
        let described =
            sys::load_types(&storage_types()).map_err(failed("describe sockets' storage"))?;
        let storage = MapAttr::new(MapKind::SocketStorage, 4, own::SIZE, 0)
            .described(described.as_fd(), 1, 3)
            .create()
            .map_err(failed("make sockets' storage"))?;
        let connections = MapAttr::new(MapKind::Array, 4, shared::SIZE, MOST)
            .mapped()
            .create()
            .map_err(failed("make a map of connections"))?;
        let table = Table::of(connections.as_fd()).map_err(failed("map the connections"))?;
        let maps = Maps {
            targets: targets.as_fd(),
            applications: applications.as_fd(),
            storage: storage.as_fd(),
            connections: connections.as_fd(),
        };
        let load = |kind, what, code: Vec<u64>| {
            sys::load(kind, &code, LICENCE).map_err(|(error, log)| refused(what, error, log))
        };
        let enter = load(
            ProgramKind::Classifier,
            "load the program that enters sockets",
            enter(maps, &fields),
        )?;
        let verdict = load(
            ProgramKind::Message,
            "load the program that joins connections",
            verdict(maps, &fields),
        )?;
        sys::attach(applications.as_fd(), verdict.as_fd())
            .map_err(failed("attach the program that joins connections"))?;
        let accelerator = Arc::new(Self {
            targets,
            applications,
            enter,
            table,
        });
        accelerator.clone().trial().map_err(Unavailable::Trial)?;
        Ok(accelerator)
    }

    /// Prepares to join the connection that a client's application has with this process to the one that this process has
    /// with a server's application. For each of the two, [`Joined::visit`] is to be run next, while this process neither reads
    /// from these connections nor writes to them, with everything written that was read.
    ///
    /// # Errors
    /// There is no room, or one of them has ended.
    pub fn join(
        self: &Arc<Self>,
        client: BorrowedFd<'_>,
        server: BorrowedFd<'_>,
    ) -> Result<Joined, Declined> {
        let (index, id) = self.table.take().ok_or(Declined::Full)?;
        let joined = Joined {
            accelerator: Arc::clone(self),
            index,
            id,
            ended: false,
        };
        for (end, socket) in [(End::Client, client), (End::Server, server)] {
            sys::number(socket).map_err(Declined::Own)?;
            sys::unlimit_unsent(socket).map_err(Declined::Own)?;
            sys::enter(self.targets.as_fd(), key(id, end), socket).map_err(Declined::Own)?;
        }
        Ok(joined)
    }

    /// Joins two connections of its own and looks whether bytes pass as they should.
    fn trial(self: Arc<Self>) -> Result<(), String> {
        let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let (client, near) = pair().map_err(step("connect"))?;
        let (far, server) = pair().map_err(step("connect"))?;
        let joined = self
            .join(near.as_fd(), far.as_fd())
            .map_err(|error| error.to_string())?;
        for (end, application) in [(End::Client, &client), (End::Server, &server)] {
            let addresses = application
                .peer_addr()
                .and_then(|peer| Ok((application.local_addr()?, peer)));
            let (local, peer) = addresses.map_err(step("look at a socket"))?;
            application
                .set_nonblocking(true)
                .map_err(step("prepare a socket"))?;
            joined
                .visit(end, local, peer)
                .run()
                .map_err(|error| error.to_string())?;
        }
        joined.open();
        const SAID: &[u8] = b"is it there?";
        for (mut from, mut to) in [(&client, &server), (&server, &client)] {
            from.write_all(SAID).map_err(step("write"))?;
            let (mut heard, mut tries) = (Vec::<u8>::new(), 0);
            while heard.len() < SAID.len() {
                let mut bytes = [0; SAID.len()];
                match to.read(&mut bytes) {
                    Ok(0) => return Err("it ends".into()),
                    Ok(n) => heard.extend(&bytes[..n]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < 1000 => {
                        tries += 1;
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Err(error) => return Err(format!("read: {error}")),
                }
            }
            if heard != SAID {
                return Err("what was read is not what was written".into());
            }
        }
        match joined.moved() {
            [12, 12] => Ok(()),
            moved => Err(format!("{moved:?} bytes are counted instead of 12 and 12")),
        }
    }
}

/// A connection to itself.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let opened = TcpStream::connect(listener.local_addr()?)?;
    let local = opened.local_addr()?;
    loop {
        let (accepted, peer) = listener.accept()?;
        // Anybody on this machine can connect.
        if peer == local {
            return Ok((opened, accepted));
        }
    }
}

/// Two connections that are joined, or about to be. They are no longer when this is dropped.
#[derive(Debug)]
pub struct Joined {
    accelerator: Arc<Accelerator>,
    index: u32,
    id: u64,
    ended: bool,
}

impl Joined {
    /// What is to be run in the network namespace of the application at this end, to find its socket: it has the
    /// connection from `local` to `peer`, as it sees it.
    pub fn visit(&self, end: End, local: SocketAddr, peer: SocketAddr) -> Visit {
        let mut packet = [0; order::SIZE];
        let mut put = |at: i16, bytes: &[u8]| {
            packet[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        put(order::ID, &self.id.to_ne_bytes());
        put(order::INDEX, &self.index.to_ne_bytes());
        put(order::END, &(end as u32).to_ne_bytes());
        put(order::OWN, &key(self.id, end).to_ne_bytes());
        put(order::TARGET, &key(self.id, end.other()).to_ne_bytes());
        let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()].concat();
        let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
        let (family, tuple) = match (peer, local) {
            (std::net::IpAddr::V4(peer), std::net::IpAddr::V4(local)) => {
                (4u32, [peer.octets(), local.octets()].concat())
            }
            (peer, local) => {
                let octets = |ip| match ip {
                    std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    std::net::IpAddr::V6(ip) => ip.octets(),
                };
                (6, [octets(peer), octets(local)].concat())
            }
        };
        put(order::FAMILY, &family.to_ne_bytes());
        put(order::TUPLE, &[tuple, ports].concat());
        Visit {
            accelerator: Arc::clone(&self.accelerator),
            packet,
        }
    }

    /// Lets bytes pass, once both applications' sockets are found.
    pub fn open(&self) {
        self.accelerator.table.open(self.index, true);
    }

    /// An application has begun to wait in its calls, and no more bytes pass: it is time to end this.
    pub fn left(&self) -> bool {
        self.accelerator.table.left(self.index)
    }

    /// Bytes that have passed, from the client and from the server.
    pub fn moved(&self) -> [u64; 2] {
        self.accelerator.table.moved(self.index)
    }

    /// Lets no more bytes pass, and says how many did. What the applications send from now on comes by TCP.
    pub fn end(&mut self) -> [u64; 2] {
        if !self.ended {
            self.ended = true;
            self.accelerator.table.open(self.index, false);
            for end in [End::Client, End::Server] {
                let key = key(self.id, end);
                sys::remove(self.accelerator.applications.as_fd(), key);
                sys::remove(self.accelerator.targets.as_fd(), key);
            }
        }
        self.moved()
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.end();
        self.accelerator.table.give_back(self.index);
    }
}

/// The search for an application's socket.
#[derive(Debug)]
pub struct Visit {
    accelerator: Arc<Accelerator>,
    packet: [u8; order::SIZE],
}

impl Visit {
    /// Finds the socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// It is not there, or not one that can be joined.
    pub fn run(&self) -> Result<(), Declined> {
        let answer = sys::run(self.accelerator.enter.as_fd(), &self.packet);
        match answer.map_err(Declined::Visit)? {
            answer::ENTERED => Ok(()),
            answer::NO_SOCKET => Err(Declined::NoSocket),
            answer::NOT_OPEN => Err(Declined::NotOpen),
            answer::ENDED => Err(Declined::Ended),
            answer::SPECIAL => Err(Declined::Special),
            answer::BLOCKING => Err(Declined::Blocking),
            answer::ANOTHER => Err(Declined::Another),
            _ => Err(Declined::NoRoom),
        }
    }
}

//! Listeners in a pod, on the ports of Istio's redirection.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use lateen_os::set_option;
use lateen_types::ports;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::dns::{BareDns, DnsSockets};
use crate::netns::Netns;
use crate::options::Options;
use crate::socket::{BACKLOG, dress, leave_unpaced, stream};

/// How the names of sockets for DNS begin.
const DNS_UDP: &str = "dns-udp-";
const DNS_TCP: &str = "dns-tcp-";

/// A pod's socket under the name that its next owner knows it by.
#[derive(Debug)]
pub struct Named {
    /// Such as `outbound`.
    pub name: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// A pod's listeners, on the in-pod ports of Istio's redirection.
#[derive(Debug)]
pub struct Listeners {
    /// 15001: what the pod's own processes dial.
    pub outbound: OwnedFd,
    /// 15006: plaintext that arrives for the pod.
    pub plaintext: OwnedFd,
    /// 15008: tunnels that arrive for the pod.
    pub hbone: OwnedFd,
    /// 15053: what the pod asks its resolver; none unless the options ask for it.
    pub dns: DnsSockets,
    /// True if another process already listened on one of the three ports when these listeners were opened. The kernel then gives that
    /// one every new connection, until [`Listeners::take_share`] or until it closes its own. It does not do so between listeners for IPv4
    /// alone and listeners for both families. Connections of a process without SO_REUSEADDR count as listeners.
    pub shared: bool,
}

impl Listeners {
    /// The names under which a node agent keeps them for the next process.
    const NAMES: [(&'static str, u16); 3] = [
        ("outbound", ports::OUTBOUND),
        ("plaintext", ports::INBOUND_PLAINTEXT),
        ("hbone", ports::HBONE),
    ];

    /// Duplicates of all, for a node agent to keep.
    ///
    /// # Errors
    /// The kernel has no descriptor to give.
    pub fn duplicates(&self) -> io::Result<Vec<Named>> {
        let listeners = [&self.outbound, &self.plaintext, &self.hbone];
        let names = Self::NAMES.map(|(name, _)| name.to_owned());
        let dns = [(DNS_UDP, &self.dns.udp), (DNS_TCP, &self.dns.tcp)];
        let dns = dns.into_iter().flat_map(|(kind, sockets)| {
            let numbered = sockets.iter().enumerate();
            numbered.map(move |(number, socket)| (format!("{kind}{number}"), socket))
        });
        let all = names.into_iter().zip(listeners).chain(dns);
        all.map(|(name, socket)| {
            let socket = socket.try_clone()?;
            Ok(Named { name, socket })
        })
        .collect()
    }

    /// Takes over what an earlier process listened on, if the three listeners are there and fit; for DNS whatever is
    /// there. The sockets are the very same, so what waits in them is not lost. They must be known to live in the pod's
    /// namespace: the client of the listener store sees to that.
    pub fn adopt(mut held: Vec<Named>, options: &Options) -> Option<Self> {
        let mut adopt = |(name, port): (&str, u16)| {
            let place = held.iter().position(|named| named.name == name)?;
            let socket = held.swap_remove(place).socket;
            match fit(&socket, port, options) {
                Ok(()) => Some(socket),
                Err(error) => {
                    tracing::warn!(socket = name, %error, "a listener of the process before is not taken over: a new one is opened");
                    None
                }
            }
        };
        let [outbound, plaintext, hbone] = Self::NAMES.map(&mut adopt);
        let mut dns = DnsSockets::default();
        held.sort_by(|a, b| a.name.cmp(&b.name));
        for Named { name, socket } in held {
            if options.dns.is_none() {
                break;
            }
            if name.starts_with(DNS_UDP) {
                dns.udp.push(socket);
            } else if name.starts_with(DNS_TCP) {
                dns.tcp.push(socket);
            }
        }
        Some(Self {
            outbound: outbound?,
            plaintext: plaintext?,
            hbone: hbone?,
            dns,
            shared: false,
        })
    }

    /// Has the kernel distribute new connections over all processes that listen on the ports of the three listeners. Without effect if
    /// it does so already.
    ///
    /// # Errors
    /// The kernel cannot take the rule back (before Linux 5.3). The process that listened first goes on getting all connections then.
    pub fn take_share(&self) -> io::Result<()> {
        for listener in [&self.outbound, &self.plaintext, &self.hbone] {
            match set_option(listener, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0) {
                Ok(()) => {}
                // There is no rule, or the socket has no SO_REUSEPORT and can have none.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                    ) => {}
                // An adopted socket is the predecessor's own. A kernel that cannot take a rule back matters beside another socket alone.
                Err(_) if !self.shared => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// True if a connection waits in one of the three listeners to be accepted.
    pub fn waiting(&self) -> bool {
        let listeners = [&self.outbound, &self.plaintext, &self.hbone];
        let mut polled = listeners.map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        let in_queue = |polled: &PollFd<'_>| {
            let found = polled.revents();
            found.is_some_and(|found| found.contains(PollFlags::POLLIN))
        };
        poll(&mut polled, PollTimeout::ZERO).is_ok() && polled.iter().any(in_queue)
    }

    /// Whether DNS is to be served and no socket for it was taken over.
    pub fn lacks_dns(&self, options: &Options) -> bool {
        options.dns.is_some() && (self.dns.udp.is_empty() || self.dns.tcp.is_empty())
    }
}

/// Whether a listener is what [`listen`] would have made, as far as that cannot be set any more; sets the rest.
fn fit(socket: &OwnedFd, port: u16, options: &Options) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return Err(odd("it does not listen"));
    }
    if socket
        .local_addr()?
        .as_socket()
        .map(|address| address.port())
        != Some(port)
    {
        return Err(odd("it listens on another port"));
    }
    if options.ipv6 && socket.domain()? == Domain::IPV4 && stream(Domain::IPV6).is_ok() {
        return Err(odd(
            "it does not listen on IPv6, which this process is to serve",
        ));
    }
    socket.set_nonblocking(true)?;
    dress_listener(&socket, port, options)
}

/// Sets what Linux hands on to every accepted socket.
fn dress_listener(socket: &Socket, port: u16, options: &Options) -> io::Result<()> {
    dress(socket, options)?;
    // What the other two accept comes over a network, whose congestion is the node's to judge.
    if port == ports::OUTBOUND {
        leave_unpaced(socket);
    }
    Ok(())
}

/// Bare sockets made inside a pod; options need no namespace and are set outside, so that the visit stays short.
pub(crate) struct BareListeners {
    streams: [(u16, Socket); 3],
    dns: BareDns,
}

impl BareListeners {
    /// Call inside the pod's namespace.
    pub(crate) fn make(options: &Options) -> io::Result<Self> {
        Ok(Self {
            streams: [
                (ports::OUTBOUND, bare_listener(options)?),
                (ports::INBOUND_PLAINTEXT, bare_listener(options)?),
                (ports::HBONE, bare_listener(options)?),
            ],
            dns: BareDns::make(options)?,
        })
    }

    pub(crate) fn listen(self, options: &Options) -> io::Result<Listeners> {
        let [outbound, plaintext, hbone] = self
            .streams
            .map(|(port, socket)| listen(socket, port, options));
        let (outbound, plaintext, hbone) = (outbound?, plaintext?, hbone?);
        Ok(Listeners {
            shared: outbound.shared || plaintext.shared || hbone.shared,
            outbound: outbound.socket,
            plaintext: plaintext.socket,
            hbone: hbone.socket,
            dns: self.dns.listen(options)?,
        })
    }
}

fn bare_listener(options: &Options) -> io::Result<Socket> {
    if options.ipv6 {
        match stream(Domain::IPV6) {
            Ok(socket) => return Ok(socket),
            // A pod without IPv6 in a mesh that allows it.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
            Err(error) => return Err(error),
        }
    }
    stream(Domain::IPV4)
}

/// A listener on one port.
struct Listener {
    socket: OwnedFd,
    /// True if another process listens on the port.
    shared: bool,
}

fn listen(socket: Socket, port: u16, options: &Options) -> io::Result<Listener> {
    let address: SocketAddr = match socket.domain()? {
        Domain::IPV6 => {
            socket.set_only_v6(false)?;
            (Ipv6Addr::UNSPECIFIED, port).into()
        }
        _ => (Ipv4Addr::UNSPECIFIED, port).into(),
    };
    socket.set_reuse_address(true)?;
    socket.set_ip_transparent_v4(true)?;
    dress_listener(&socket, port, options)?;
    let shared = bind(&socket, address, options).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("bind {address}: {error}; another proxy may be serving this pod"),
        )
    })?;
    socket.listen(BACKLOG)?;
    if shared {
        // The group of the port's listeners has the rule, and this socket joins the group as it listens. A connection that
        // arrives between the two calls may wait in this socket.
        if let Err(error) = leave_to_first(&socket) {
            tracing::warn!(port, %error, "some new connections of a pod wait in a listener that nothing accepts from yet");
        }
    }
    Ok(Listener {
        socket: socket.into(),
        shared,
    })
}

/// Takes the port. True if another process listens on it, because the kernel refuses a bind without SO_REUSEPORT then. SO_REUSEADDR
/// leaves out what does not listen, if that has the option as well.
fn bind(socket: &Socket, address: SocketAddr, options: &Options) -> io::Result<bool> {
    let address = SockAddr::from(address);
    match socket.bind(&address) {
        Ok(()) => {
            // For the next process. It must be set before the socket listens.
            socket.set_reuse_port(options.reuse_port)?;
            Ok(false)
        }
        Err(error) if options.reuse_port && error.kind() == io::ErrorKind::AddrInUse => {
            socket.set_reuse_port(true)?;
            socket.bind(&address)?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Has the kernel give every new connection of the port to the first socket of those that listen on it, in the order in which they
/// began. When one closes, the kernel puts the last one in its place (`reuseport_detach_sock`).
fn leave_to_first(listener: &Socket) -> io::Result<()> {
    let mut first = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut first,
    };
    Ok(setsockopt(
        listener,
        sockopt::AttachReusePortCbpf,
        &program,
    )?)
}

/// Makes a pod's sockets for DNS alone, by way of a visit of the calling thread.
pub(crate) fn open_dns(pod: &Netns, home: &Netns, options: &Options) -> io::Result<DnsSockets> {
    pod.within(home, || BareDns::make(options))??
        .listen(options)
}

/// Makes listeners in a namespace by way of a visit of the calling thread.
pub(crate) fn open_listeners(
    pod: &Netns,
    home: &Netns,
    options: &Options,
) -> io::Result<Listeners> {
    pod.within(home, || BareListeners::make(options))??
        .listen(options)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_waits_until_it_is_accepted() {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let duplicate = |at: usize| listeners[at].try_clone().unwrap().into();
        let held = Listeners {
            outbound: duplicate(0),
            plaintext: duplicate(1),
            hbone: duplicate(2),
            dns: DnsSockets::default(),
            shared: false,
        };
        assert!(!held.waiting());
        for listener in &listeners {
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert!(held.waiting());
            // Another process accepts from the same socket.
            listener.accept().unwrap();
            assert!(!held.waiting());
        }
    }
}

//! The options that the proxy's sockets carry, and where a redirected connection wanted to go.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use lateen_types::ports;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::dns::{BareDns, DnsAt, DnsSockets};
use crate::keeper::Named;
use crate::netns::Netns;
use crate::stock::Kind;

/// How many connections may wait for `accept` on one listener; the kernel caps it at `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;

/// Packets with this mark are the proxy's own and escape redirection (ztunnel's PACKET_MARK).
pub const DEFAULT_MARK: u32 = 0x539;

/// What every socket that the proxy makes in a pod is set up with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// SO_MARK of every socket; the in-pod rules let marked packets pass.
    pub mark: u32,
    /// Listen on IPv6 too, where the pod has it.
    pub ipv6: bool,
    /// SO_REUSEPORT on listeners, so that a new process can bind before the old one stops.
    pub reuse_port: bool,
    /// TCP keepalive; `None` leaves it off.
    pub keepalive: Option<Keepalive>,
    /// End a connection whose data stays unacknowledged for as long as keepalive would take.
    pub user_timeout: bool,
    /// Where the pod's DNS queries arrive; `None`: no sockets for them.
    pub dns: Option<DnsAt>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mark: DEFAULT_MARK,
            ipv6: false,
            reuse_port: true,
            keepalive: Some(Keepalive::default()),
            user_timeout: false,
            dns: None,
        }
    }
}

/// TCP keepalive of accepted and opened connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub time: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub retries: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(180),
            interval: Duration::from_secs(180),
            retries: 9,
        }
    }
}

impl Keepalive {
    fn patience(&self) -> Duration {
        self.time + self.interval * self.retries
    }
}

/// How the names of sockets for DNS begin.
const DNS_UDP: &str = "dns-udp-";
const DNS_TCP: &str = "dns-tcp-";

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
    /// namespace: [`Keeper::take`](crate::Keeper::take) sees to that.
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
        })
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
        Ok(Listeners {
            outbound: outbound?,
            plaintext: plaintext?,
            hbone: hbone?,
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

fn listen(socket: Socket, port: u16, options: &Options) -> io::Result<OwnedFd> {
    let address: SocketAddr = match socket.domain()? {
        Domain::IPV6 => {
            socket.set_only_v6(false)?;
            (Ipv6Addr::UNSPECIFIED, port).into()
        }
        _ => (Ipv4Addr::UNSPECIFIED, port).into(),
    };
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(options.reuse_port)?;
    socket.set_ip_transparent_v4(true)?;
    dress_listener(&socket, port, options)?;
    socket.bind(&address.into()).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("bind {address}: {error}; another proxy may be serving this pod"),
        )
    })?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Call inside the pod's namespace.
pub(crate) fn bare(kind: Kind) -> io::Result<Socket> {
    match kind {
        Kind::Outbound6 | Kind::Transparent6 => stream(Domain::IPV6),
        Kind::Outbound | Kind::Transparent => stream(Domain::IPV4),
        Kind::Datagram6 => datagram(Domain::IPV6),
        Kind::Datagram => datagram(Domain::IPV4),
    }
}

/// Gives a bare socket what connections of this kind need.
pub(crate) fn finish(socket: Socket, kind: Kind, options: &Options) -> io::Result<OwnedFd> {
    match kind {
        Kind::Datagram | Kind::Datagram6 => mark(&socket, options)?,
        _ => dress(&socket, options)?,
    }
    match kind {
        // Either option alone lets it bind any address: IP_FREEBIND besides would be a call for nothing.
        Kind::Transparent => {
            socket.set_ip_transparent_v4(true)?;
            leave_unpaced(&socket);
            leave_port_to_connect(&socket)?;
        }
        Kind::Transparent6 => {
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)?;
            leave_unpaced(&socket);
            leave_port_to_connect(&socket)?;
        }
        Kind::Outbound | Kind::Outbound6 | Kind::Datagram | Kind::Datagram6 => {}
    }
    Ok(socket.into())
}

pub(crate) fn datagram(domain: Domain) -> io::Result<Socket> {
    Socket::new(
        domain,
        Type::DGRAM.nonblocking().cloexec(),
        Some(Protocol::UDP),
    )
}

pub(crate) fn stream(domain: Domain) -> io::Result<Socket> {
    Socket::new(
        domain,
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )
}

pub(crate) fn mark(socket: &Socket, options: &Options) -> io::Result<()> {
    socket.set_mark(options.mark).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("set SO_MARK: {error}; the proxy needs CAP_NET_ADMIN"),
        )
    })
}

pub(crate) fn dress(socket: &Socket, options: &Options) -> io::Result<()> {
    mark(socket, options)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(keepalive) = options.keepalive {
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(keepalive.time)
                .with_interval(keepalive.interval)
                .with_retries(keepalive.retries),
        )?;
        if options.user_timeout {
            socket.set_tcp_user_timeout(Some(keepalive.patience()))?;
        }
    }
    Ok(())
}

/// Has a connection to an application of the pod sent as fast as it is written. Both ends are in one network namespace, and
/// no link between them can be congested; yet a congestion control that paces, such as a node's default of BBR, sends a
/// large write in packets of 64 KiB with a timer before each, and each wakes the reader. Reno paces nothing, and every kernel
/// has it. Where it is refused all the same, the connection works as the node would have it.
fn leave_unpaced(socket: &Socket) {
    let _ = socket.set_tcp_congestion(b"reno");
}

/// Binding an address then takes no port yet. One taken by `bind` serves a single connection, so that one client would
/// have no more connections to a pod than there are ephemeral ports, over all of its destinations; one taken by `connect`
/// must differ only among connections to the same address and port. ip(7): the option covers IPv6 as well.
fn leave_port_to_connect(socket: &Socket) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// Switches on an option that socket2 has no setter for.
fn set_option(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    set_number(socket, level, option, 1)
}

/// Has whoever reads `stream` woken by no fewer than so many bytes, by its end or its failure (socket(7), SO_RCVLOWAT). What is
/// there is read all the same.
pub fn wake_at(stream: &impl AsFd, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // It fails only on a dead socket, which the next read tells.
    let _ = set_number(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
}

fn set_number(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    number: libc::c_int,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and the pointer and length describe `number`, which outlives the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const number).cast(),
            size_of_val(&number) as libc::socklen_t,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Where the peer of a redirected connection wanted to go (SO_ORIGINAL_DST of netfilter's REDIRECT).
///
/// A connection that was not redirected has no such entry: the error is `NotFound`, and the local address is the
/// destination.
pub fn original_destination(stream: &impl AsFd) -> io::Result<SocketAddr> {
    let socket = SockRef::from(stream);
    // A dual-stack listener accepts IPv4 connections on IPv6 sockets: the socket's family does not say which to ask.
    let address = socket
        .original_dst_v4()
        .or_else(|_| socket.original_dst_v6())?;
    let address = address.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the original destination is no IP address",
        )
    })?;
    Ok(canonical(address))
}

/// IPv4 addresses that an IPv6 socket reports as `::ffff:a.b.c.d`, as the IPv4 addresses that they are.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
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

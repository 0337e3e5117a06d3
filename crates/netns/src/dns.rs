//! Sockets to which a pod's DNS queries are redirected. They are bound to loopback addresses only, so that nobody outside the
//! pod can ask in its name.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use socket2::{Domain, Socket};

use crate::options::{DnsAt, Options};
use crate::socket::{BACKLOG, datagram, dress, mark, stream};

/// A pod's sockets for DNS, one of either kind for each address; non-blocking and marked. The mark is what keeps the
/// replies on a UDP socket out of the connection tracking zone of the proxy's own questions.
#[derive(Debug, Default)]
pub struct DnsSockets {
    /// UDP.
    pub udp: Vec<OwnedFd>,
    /// TCP, listening.
    pub tcp: Vec<OwnedFd>,
}

/// The same before they are bound.
pub(crate) struct BareDns(Vec<(SocketAddr, Socket, Socket)>);

impl BareDns {
    /// Call inside the pod's namespace.
    pub(crate) fn make(options: &Options) -> io::Result<Self> {
        let mut bare = Vec::new();
        for (address, needed) in addresses(options) {
            let domain = Domain::for_address(address);
            match datagram(domain).and_then(|udp| Ok((udp, stream(domain)?))) {
                Ok((udp, tcp)) => bare.push((address, udp, tcp)),
                Err(error) if !needed && lacks_family(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(bare))
    }

    pub(crate) fn listen(self, options: &Options) -> io::Result<DnsSockets> {
        let mut sockets = DnsSockets::default();
        for (address, udp, tcp) in self.0 {
            for socket in [&udp, &tcp] {
                socket.set_reuse_address(true)?;
                socket.set_reuse_port(options.reuse_port)?;
                if address.is_ipv6() {
                    socket.set_only_v6(true)?;
                }
            }
            mark(&udp, options)?;
            dress(&tcp, options)?;
            let bound = udp
                .bind(&address.into())
                .and_then(|()| tcp.bind(&address.into()));
            match bound {
                Ok(()) => {}
                // The family is there and switched off (net.ipv6.conf.*.disable_ipv6).
                Err(error)
                    if error.kind() == io::ErrorKind::AddrNotAvailable
                        && second(address, options) =>
                {
                    continue;
                }
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!(
                            "bind {address} for DNS: {error}; the pod or another proxy may have taken it"
                        ),
                    ));
                }
            }
            tcp.listen(BACKLOG)?;
            sockets.udp.push(udp.into());
            sockets.tcp.push(tcp.into());
        }
        Ok(sockets)
    }
}

/// The addresses to serve, and whether the pod must have them.
fn addresses(options: &Options) -> Vec<(SocketAddr, bool)> {
    match options.dns {
        None => Vec::new(),
        Some(DnsAt::Exactly(address)) => vec![(address, true)],
        Some(DnsAt::Localhost(port)) => {
            let mut addresses = vec![((Ipv4Addr::LOCALHOST, port).into(), true)];
            if options.ipv6 {
                addresses.push(((Ipv6Addr::LOCALHOST, port).into(), false));
            }
            addresses
        }
    }
}

fn second(address: SocketAddr, options: &Options) -> bool {
    matches!(options.dns, Some(DnsAt::Localhost(_)))
        && address.ip() == IpAddr::from(Ipv6Addr::LOCALHOST)
}

fn lacks_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

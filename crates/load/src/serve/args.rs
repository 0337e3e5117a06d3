//! The command line of `lateen-load serve`, and the sockets that it names.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::runtime::{Builder, LocalOptions};

use super::reply::Setup;
use super::tls::Options;
use super::{Kind, ServeError, Timeouts, serve};
use crate::run::raise_descriptor_limit;
use crate::signals;

/// The text that `--help` shows below the options.
pub const HELP: &str = "\
The query of a request says how to answer it. Values with probabilities are Fortio's:
  size=1024           length of the body in bytes; without it the request's body comes back
  delay=5ms           wait first; delay=10ms:20,1s:1 waits 10 ms in 20 % and 1 s in 1 % of cases
  status=503:10       answer with 503 in 10 % of cases
  close=true          end the connection afterwards; close=5 does so in 5 % of cases
  gzip=true           compress the body if the client takes that; gzip=5 in 5 % of cases
  header=Name:value   add a field (repeatable)
  writes=2            write head and body apart; more writes cut the body further
  nodelay=0           leave TCP_NODELAY unset for this response
GET /health answers 200.

A port for HTTP takes HTTP/1.1, HTTP/2 and gRPC: fgrpc.PingServer and lateen.load.v1.Echo, which answer
each message of a call or a stream, and grpc.health.v1.Health. Ctrl-C ends the service once the answers under way have left, after 5 s at most;
a second one ends it at once.";

/// Where and how to serve.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port for HTTP and gRPC (repeatable); port 0 takes a free one and says which
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: Vec<SocketAddr>,
    /// Address and port where every byte comes back over TCP (repeatable)
    #[arg(long, value_name = "ADDRESS")]
    tcp_echo: Vec<SocketAddr>,
    /// Address and port where every datagram comes back over UDP (repeatable)
    #[arg(long, value_name = "ADDRESS")]
    udp_echo: Vec<SocketAddr>,
    #[command(flatten)]
    tls: Options,
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    timeouts: Timeouts,
}

impl ServeArgs {
    /// Serves until a signal arrives.
    pub fn serve(self) -> Result<(), ServeError> {
        let signals = signals::take_over()?;
        raise_descriptor_limit();
        let tls = self.tls.config()?;
        let mut sockets = Vec::new();
        for (addresses, kind, does) in [
            (self.listen, Kind::Http, "listening on"),
            (self.tcp_echo, Kind::Echo, "echoing TCP on"),
            (self.udp_echo, Kind::Datagrams, "echoing UDP on"),
        ] {
            for address in addresses {
                let failed = |source| ServeError::Listen(address, source);
                let socket = listen(address, kind).map_err(failed)?;
                let address = socket.local_addr()?.as_socket().unwrap_or(address);
                eprintln!("lateen-load: {does} {address}");
                sockets.push((socket, kind));
            }
        }
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(serve(sockets, tls, (self.setup, self.timeouts), signals))
    }
}

/// The time for which a connection without a packet is taken to be alive, and the probes after it, before it is closed.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(10))
    .with_retries(6);

/// A socket that takes what comes to an address.
fn listen(address: SocketAddr, kind: Kind) -> io::Result<Socket> {
    let (form, protocol) = match kind {
        Kind::Http | Kind::Echo => (Type::STREAM, Protocol::TCP),
        Kind::Datagrams => (Type::DGRAM, Protocol::UDP),
    };
    let form = form.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), form, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if kind == Kind::Datagrams {
        socket.bind(&address.into())?;
        return Ok(socket);
    }
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit both: fewer system calls per connection.
    socket.set_tcp_nodelay(true)?;
    // A host that is gone sends no goodbye.
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    const PAGE: &str = include_str!("../../../../docs/reference/echo-service.md");

    /// The last row of the page's tables whose first cell has the name in backquotes.
    fn row(name: &str) -> Option<&'static str> {
        let cell = |line: &'static str| line.strip_prefix('|')?.split('|').next();
        PAGE.lines()
            .rfind(|line| cell(line).is_some_and(|cell| cell.contains(&format!("`{name}`"))))
    }

    #[test]
    fn the_reference_page_has_every_option_with_its_default() {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let mut names = Vec::new();
        for option in command.get_arguments() {
            let Some(name) = option.get_long() else {
                continue;
            };
            names.push(name);
            let row = row(&format!("--{name}")).unwrap_or_else(|| panic!("--{name} is missing"));
            for default in option.get_default_values() {
                let default = default.to_str().unwrap();
                assert!(row.contains(&format!("`{default}`")), "{default}: {row}");
            }
        }
        let named = PAGE.split("`--").skip(1);
        let named: Vec<_> = named.filter_map(|rest| rest.split('`').next()).collect();
        assert!(names.len() >= 10 && named.len() >= names.len(), "{named:?}");
        for name in named {
            assert!(names.contains(&name), "--{name} is no option");
        }
    }

    #[test]
    fn the_reference_page_and_the_help_have_every_parameter() {
        for name in crate::serve::params::NAMES {
            assert!(row(name).is_some(), "{name} is missing on the page");
            assert!(
                HELP.contains(&format!("\n  {name}=")),
                "{name} is missing in the help"
            );
        }
    }
}

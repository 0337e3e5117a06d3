//! The command line of `lateen-load serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::params::Limits;
use super::reply::Setup;
use super::tls::{ClientCert, Options};
use super::{Kind, ServeError, Server, Timeouts};
use crate::run::raise_descriptor_limit;
use crate::signals::Signals;
use crate::text;

/// What stands below the list of options.
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
    /// Speak TLS on the ports for HTTP, with this certificate and those between it and the root, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Ask clients for certificates from these issuers, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Whether a client may come without one
    #[arg(long, value_enum, default_value_t = ClientCert::Require, requires = "client_ca")]
    client_cert: ClientCert,
    /// The query of requests that have none, for example status=404&delay=3s
    #[arg(long, value_name = "QUERY")]
    default_params: Option<String>,
    /// The largest body that size= gets, in bytes; Fortio's is 262144
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().size)]
    max_size: u64,
    /// The longest wait that delay= gets; Fortio's is 1.5s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = text::duration)]
    max_delay: Duration,
    /// Close connections on which nothing happens for so long; 0 never does
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = text::duration)]
    idle_timeout: Duration,
    /// Close connections whose request, or TLS handshake, takes longer to arrive; 0 never does
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = text::duration)]
    request_timeout: Duration,
}

impl ServeArgs {
    /// Serves until a signal arrives.
    pub fn serve(&self) -> Result<(), ServeError> {
        let signals = Signals::take_over()?;
        raise_descriptor_limit();
        let setup = Setup {
            limits: Limits {
                size: self.max_size,
                delay: self.max_delay,
            },
            default_params: self.default_params.clone(),
        };
        let timeouts = Timeouts {
            idle: self.idle_timeout,
            request: self.request_timeout,
        };
        let mut server = Server::new(setup, self.tls()?, timeouts)?;
        for address in &self.listen {
            let address = server.listen(*address, Kind::Http)?;
            eprintln!("lateen-load: listening on {address}");
        }
        for address in &self.tcp_echo {
            let address = server.listen(*address, Kind::Echo)?;
            eprintln!("lateen-load: echoing TCP on {address}");
        }
        for address in &self.udp_echo {
            let address = server.listen_udp(*address)?;
            eprintln!("lateen-load: echoing UDP on {address}");
        }
        server.run(signals)
    }

    fn tls(&self) -> Result<Option<std::sync::Arc<rustls::ServerConfig>>, ServeError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let options = Options {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: self.client_ca.clone(),
            client_cert: self.client_cert,
        };
        Ok(Some(options.config()?))
    }
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
        let mut count = 0;
        for option in command.get_arguments() {
            let Some(name) = option.get_long() else {
                continue;
            };
            count += 1;
            let row = row(&format!("--{name}")).unwrap_or_else(|| panic!("--{name} is missing"));
            for default in option.get_default_values() {
                let default = default.to_str().unwrap();
                assert!(row.contains(&format!("`{default}`")), "{default}: {row}");
            }
        }
        let named = PAGE.matches("`--").count();
        assert!(
            count >= 10 && named >= count,
            "{count} options, {named} names"
        );
        for name in PAGE
            .split("`--")
            .skip(1)
            .filter_map(|rest| rest.split('`').next())
        {
            let known = command
                .get_arguments()
                .any(|option| option.get_long() == Some(name));
            assert!(known, "--{name} is no option");
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

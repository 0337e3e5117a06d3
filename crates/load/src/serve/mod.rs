//! The compiled echo service: one thread that answers HTTP, gRPC, TCP and UDP as the request asks. It stands in for
//! applications, so it must cost little, and be slow or faulty on demand.

mod alarms;
pub mod args;
mod chance;
mod connection;
mod context;
mod echo;
mod error;
pub mod frames;
mod grpc;
mod http;
pub mod params;
mod reply;
mod response;
mod socket;
mod timeouts;
mod tls;
mod wire;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::signals::Signals;
pub use context::Kind;
use context::World;
pub use error::ServeError;
use reply::Setup;
use socket::listen;
pub use timeouts::Timeouts;

/// How long accepting pauses when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// The time in which connections read the requests that the kernel holds, before they take no more.
const SETTLE: Duration = Duration::from_millis(10);

/// How long responses under way may take after a signal.
const DRAIN: Duration = Duration::from_secs(5);

/// A place to listen.
#[derive(Debug)]
enum Listener {
    Tcp(std::net::TcpListener, Kind),
    Udp(std::net::UdpSocket),
}

/// The echo service.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    tls: Option<Arc<ServerConfig>>,
    world: Rc<World>,
    runtime: LocalRuntime,
}

impl Server {
    /// A service that listens nowhere yet. With `tls`, TLS is what its places for HTTP speak.
    ///
    /// # Errors
    /// The kernel gives no event loop or no timer.
    pub fn new(
        echo: Setup,
        tls: Option<Arc<ServerConfig>>,
        timeouts: Timeouts,
    ) -> Result<Server, ServeError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())?;
        let world = {
            let _entered = runtime.enter();
            World::new(echo, timeouts)?
        };
        Ok(Server {
            listeners: Vec::new(),
            tls,
            world: Rc::new(world),
            runtime,
        })
    }

    /// Listens on an address; port 0 lets the kernel choose. Returns the address.
    pub fn listen(&mut self, address: SocketAddr, kind: Kind) -> Result<SocketAddr, ServeError> {
        let failed = |source| ServeError::Listen { address, source };
        let socket = listen(address, kind).map_err(failed)?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        self.listeners.push(match kind {
            Kind::Datagrams => Listener::Udp(socket.into()),
            Kind::Http | Kind::Echo => Listener::Tcp(socket.into(), kind),
        });
        Ok(address)
    }

    /// Serves until a signal arrives and the responses under way have left.
    pub fn run(self, signals: Signals) -> Result<(), ServeError> {
        let tls = self.tls.map(TlsAcceptor::from);
        self.runtime
            .block_on(serve(self.listeners, tls, self.world, signals))
    }
}

async fn serve(
    places: Vec<Listener>,
    tls: Option<TlsAcceptor>,
    world: Rc<World>,
    signals: Signals,
) -> Result<(), ServeError> {
    let mut signals = UnixStream::from_std(signals.into_stream())?;
    let connections = TaskTracker::new();
    let mut listeners = JoinSet::new();
    for listener in places {
        let (world, connections, tls) = (Rc::clone(&world), connections.clone(), tls.clone());
        match listener {
            Listener::Udp(socket) => {
                let socket = UdpSocket::from_std(socket)?;
                listeners.spawn_local(async move { echo::datagrams(socket, &world).await });
            }
            Listener::Tcp(listener, kind) => {
                let listener = TcpListener::from_std(listener)?;
                listeners.spawn_local(async move {
                    let serve = |tcp, world| {
                        let tls = tls.clone();
                        connections.spawn_local(async move {
                            match kind {
                                Kind::Http => connection::encoded(tcp, tls, world).await,
                                _ => connection::raw(tcp, world).await,
                            }
                        });
                    };
                    accept(listener, world, serve).await;
                });
            }
        }
    }
    connections.close();
    tokio::select! {
        arrived = signals.read_u8() => drop(arrived?),
        failed = world.alarms.run() => failed?,
    }
    // Clients that have connected already may have asked already.
    world.closing.cancel();
    while listeners.join_next().await.is_some() {}
    let end = async {
        sleep(SETTLE).await;
        world.stop.cancel();
        let _ = timeout(DRAIN, connections.wait()).await;
    };
    tokio::select! {
        () = end => {}
        failed = world.alarms.run() => failed?,
        // A sender of a second signal does not want to wait.
        arrived = signals.read_u8() => drop(arrived?),
    }
    Ok(())
}

/// Accepts connections until nobody new is let in, and then those that the kernel holds.
async fn accept(listener: TcpListener, world: Rc<World>, serve: impl Fn(TcpStream, Rc<World>)) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = world.closing.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((tcp, _)) => serve(tcp, Rc::clone(&world)),
            Err(error) if is_passing(&error) => {}
            // No descriptor or memory: the connections wait in the kernel's queue.
            Err(_) => sleep(PAUSE).await,
        }
    }
    let Ok(listener) = listener.into_std() else {
        return;
    };
    loop {
        match listener.accept() {
            Ok((tcp, _)) => {
                if tcp.set_nonblocking(true).is_ok()
                    && let Ok(tcp) = TcpStream::from_std(tcp)
                {
                    serve(tcp, Rc::clone(&world));
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(_) => return,
        }
    }
}

/// True for the failure of one connection whose peer gave up before it was accepted.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
    )
}

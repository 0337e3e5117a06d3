//! The compiled echo service: one thread that answers HTTP, gRPC, TCP and UDP as the request asks. It stands in for
//! applications, so it must cost little, and be slow or faulty on demand.

mod alarms;
pub mod args;
mod chance;
mod connection;
mod context;
mod echo;
mod grpc;
mod http;
pub mod params;
mod reply;
mod response;
mod tls;
mod wire;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use socket2::Socket;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::tls::TlsError;
use context::{Kind, Session, Timeouts, World};
use reply::Setup;

/// The pause of accepting when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// The time in which connections read the requests that the kernel holds, before they take no more.
const SETTLE: Duration = Duration::from_millis(10);

/// The time that responses under way may take after a signal.
const DRAIN: Duration = Duration::from_secs(5);

/// A reason why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not to be had; the kernel's error.
    #[error("listen on {0}: {1}; is the port taken, and is the address one of this host?")]
    Listen(SocketAddr, #[source] io::Error),
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused something that the event loop cannot do without.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}

/// Serves what comes to these sockets until a signal arrives and the responses under way have left. With `tls`, TLS is
/// what those for HTTP speak. It needs a local runtime of tokio.
///
/// # Errors
/// The kernel gives no timer, or refuses a socket.
async fn serve(
    sockets: Vec<(Socket, Kind)>,
    tls: Option<Arc<ServerConfig>>,
    (setup, timeouts): (Setup, Timeouts),
    signals: StdUnixStream,
) -> Result<(), ServeError> {
    let world = Rc::new(World::new(setup, timeouts)?);
    let tls = tls.map(TlsAcceptor::from);
    let mut signals = UnixStream::from_std(signals)?;
    let connections = TaskTracker::new();
    let mut listeners = JoinSet::new();
    for (socket, kind) in sockets {
        let (world, connections, tls) = (Rc::clone(&world), connections.clone(), tls.clone());
        if kind == Kind::Datagrams {
            let socket = UdpSocket::from_std(socket.into())?;
            listeners.spawn_local(async move { echo::datagrams(socket, &world).await });
            continue;
        }
        let listener = TcpListener::from_std(socket.into())?;
        let serve = move |tcp, world| {
            let tls = tls.clone();
            connections.spawn_local(async move {
                match kind {
                    Kind::Http => connection::serve(tcp, tls, world).await,
                    _ => echo::stream(tcp, Session::new(world)).await,
                }
            });
        };
        listeners.spawn_local(accept(listener, world, serve));
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

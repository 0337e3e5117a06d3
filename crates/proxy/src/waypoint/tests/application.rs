//! Applications behind the waypoint: in plain text, or behind a proxy of the mesh.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lateen_exchange::{Config, Protocol, server};
use lateen_h2::Code;
use lateen_hbone::{Baggage, Connection, Incoming, Settings, Status};
use lateen_http::{FieldName, FieldValue, FramedRequest, Length};
use lateen_testkit::{Ca, identity};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};

use crate::testing::until;

/// An application, which ends with its owner.
#[derive(Default)]
pub struct Application {
    /// Connections that it accepted.
    pub connections: Rc<Cell<usize>>,
    /// Requests that it took.
    pub requests: Rc<Cell<usize>>,
    /// CONNECT requests that its proxy took: who asked, and for what.
    pub asked: Rc<RefCell<Vec<(String, String)>>>,
    /// Tunnels to its proxy, or to the gateway before it, that are open.
    pub tunnels: Rc<Cell<usize>>,
    /// Has these tunnels take no more streams.
    pub drain: Rc<Notify>,
    task: Option<AbortHandle>,
}

/// The next stream of a tunnel, which leaves once it is told to.
async fn next_stream<IO: AsyncRead + AsyncWrite + Unpin>(
    tunnel: &mut Connection<IO>,
    drain: &Notify,
) -> Option<Incoming> {
    loop {
        tokio::select! {
            next = tunnel.next() => return next.ok().flatten(),
            () = drain.notified() => tunnel.drain(),
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Serves the requests of one connection, each in a task of its own.
async fn serve<IO, H, F>(io: IO, config: Config, requests: Rc<Cell<usize>>, handler: H)
where
    IO: AsyncRead + AsyncWrite + Unpin,
    H: Fn(FramedRequest, server::Exchange) -> F,
    F: Future<Output = Result<(), lateen_exchange::Error>> + 'static,
{
    let config = Config {
        half_close: false,
        ..config
    };
    let mut connection = server::Connection::new(io, config);
    while let Ok(Some((request, exchange))) = connection.next().await {
        requests.set(requests.get() + 1);
        let answered = handler(request, exchange);
        spawn_local(async move {
            // A failure shows at the other end.
            let _ = answered.await;
        });
    }
}

/// A listener on an address that the application of a moment ago may still hold: its task ends when it is polled next.
async fn bound(address: SocketAddr) -> TcpListener {
    for _ in 0..100 {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                tokio::task::yield_now().await;
            }
            bound => return bound.unwrap(),
        }
    }
    panic!("{address} stays in use");
}

impl Application {
    /// Answers requests on `address` in plain text.
    pub async fn plain<H, F>(address: SocketAddr, protocol: Protocol, handler: H) -> Self
    where
        H: Fn(FramedRequest, server::Exchange) -> F + Clone + 'static,
        F: Future<Output = Result<(), lateen_exchange::Error>> + 'static,
    {
        Self::plain_with(address, Config::new(protocol), handler).await
    }

    /// The same with these parameters of its connections.
    pub async fn plain_with<H, F>(address: SocketAddr, config: Config, handler: H) -> Self
    where
        H: Fn(FramedRequest, server::Exchange) -> F + Clone + 'static,
        F: Future<Output = Result<(), lateen_exchange::Error>> + 'static,
    {
        let listener = bound(address).await;
        let mut application = Self::default();
        let (connections, requests) = (
            Rc::clone(&application.connections),
            Rc::clone(&application.requests),
        );
        let accepting = spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.set(connections.get() + 1);
                spawn_local(serve(
                    stream,
                    config.clone(),
                    Rc::clone(&requests),
                    handler.clone(),
                ));
            }
        });
        application.task = Some(accepting.abort_handle());
        application
    }

    /// The same behind a proxy of this service account.
    pub async fn in_mesh<H, F>(
        ca: &Ca,
        account: &str,
        address: SocketAddr,
        protocol: Protocol,
        handler: H,
    ) -> Self
    where
        H: Fn(FramedRequest, server::Exchange) -> F + Clone + 'static,
        F: Future<Output = Result<(), lateen_exchange::Error>> + 'static,
    {
        let credentials = ca.credentials(&identity(account));
        let listener = bound(SocketAddr::new(address.ip(), 15008)).await;
        let mut application = Self::default();
        let (connections, requests, asked) = (
            Rc::clone(&application.connections),
            Rc::clone(&application.requests),
            Rc::clone(&application.asked),
        );
        let (open, drain) = (
            Rc::clone(&application.tunnels),
            Rc::clone(&application.drain),
        );
        let accepting = spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (stream, session) = lateen_tls::accept(&credentials, stream).await.unwrap();
                let who = session.peer().to_string();
                let mut tunnel = Connection::accept(stream, Settings::server())
                    .await
                    .unwrap();
                let (connections, requests, asked, handler) = (
                    Rc::clone(&connections),
                    Rc::clone(&requests),
                    Rc::clone(&asked),
                    handler.clone(),
                );
                let (open, drain) = (Rc::clone(&open), Rc::clone(&drain));
                spawn_local(async move {
                    open.set(open.get() + 1);
                    while let Some(incoming) = next_stream(&mut tunnel, &drain).await {
                        let authority = incoming.authority.to_string();
                        asked.borrow_mut().push((who.clone(), authority.clone()));
                        if authority != address.to_string() {
                            incoming.refuse(Status::BadRequest);
                            continue;
                        }
                        connections.set(connections.get() + 1);
                        let Ok(stream) = incoming.accept(None) else {
                            continue;
                        };
                        spawn_local(serve(
                            stream,
                            Config::new(protocol),
                            Rc::clone(&requests),
                            handler.clone(),
                        ));
                    }
                    open.set(open.get() - 1);
                });
            }
        });
        application.task = Some(accepting.abort_handle());
        application
    }
}

/// A gateway to another network on `address`: whatever it is asked for, it leads to an application behind a proxy of the account
/// `behind`. Records the requests of both proxies.
pub async fn behind_gateway<H, F>(
    ca: &Ca,
    (gateway, behind): (&str, &str),
    address: SocketAddr,
    handler: H,
) -> Application
where
    H: Fn(FramedRequest, server::Exchange) -> F + Clone + 'static,
    F: Future<Output = Result<(), lateen_exchange::Error>> + 'static,
{
    let credentials = ca.credentials(&identity(gateway));
    let inner = ca.credentials(&identity(behind));
    let said = Baggage {
        namespace: Some("default".into()),
        workload: Some(behind.into()),
        ..Baggage::default()
    };
    let said: Rc<str> = said.to_string().into();
    let listener = bound(address).await;
    let mut application = Application::default();
    let (requests, asked) = (
        Rc::clone(&application.requests),
        Rc::clone(&application.asked),
    );
    let (open, drain) = (
        Rc::clone(&application.tunnels),
        Rc::clone(&application.drain),
    );
    let accepting = spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (stream, session) = lateen_tls::accept(&credentials, stream).await.unwrap();
            let who = session.peer().to_string();
            let mut outer = Connection::accept(stream, Settings::server())
                .await
                .unwrap();
            let (requests, asked, said) =
                (Rc::clone(&requests), Rc::clone(&asked), Rc::clone(&said));
            let (inner, handler) = (Arc::clone(&inner), handler.clone());
            let (open, drain) = (Rc::clone(&open), Rc::clone(&drain));
            spawn_local(async move {
                open.set(open.get() + 1);
                while let Some(incoming) = next_stream(&mut outer, &drain).await {
                    let authority = incoming.authority.to_string();
                    asked.borrow_mut().push((who.clone(), authority));
                    let stream = incoming.accept(None).unwrap();
                    let (requests, asked, said) =
                        (Rc::clone(&requests), Rc::clone(&asked), Rc::clone(&said));
                    let (inner, handler) = (Arc::clone(&inner), handler.clone());
                    spawn_local(async move {
                        // A client may not want whom it meets.
                        let Ok((stream, session)) = lateen_tls::accept(&inner, stream).await else {
                            return;
                        };
                        let who = session.peer().to_string();
                        let Ok(mut tunnel) = Connection::accept(stream, Settings::server()).await
                        else {
                            return;
                        };
                        while let Ok(Some(incoming)) = tunnel.next().await {
                            let network = incoming.network.clone().unwrap_or_default();
                            let authority = format!("{} from {network:?}", incoming.authority);
                            asked.borrow_mut().push((who.clone(), authority));
                            let stream = incoming.accept(Some(&*said)).unwrap();
                            spawn_local(serve(
                                stream,
                                Config::new(Protocol::Http1),
                                Rc::clone(&requests),
                                handler.clone(),
                            ));
                        }
                    });
                }
                open.set(open.get() - 1);
            });
        }
    });
    application.task = Some(accepting.abort_handle());
    application
}

/// Answers with the method and the target as text.
pub async fn tell(
    request: FramedRequest,
    exchange: server::Exchange,
) -> Result<(), lateen_exchange::Error> {
    let lateen_http::Canonical::Request(head) = super::canonical(request) else {
        panic!("no CONNECT is asked for")
    };
    let target = String::from_utf8_lossy(head.path().target()).into_owned();
    let text = format!("{:?} {target}", head.method());
    let version = format!("{:?}", head.version());
    let fields = [(
        FieldName::new("x-version").unwrap(),
        FieldValue::new(version).unwrap(),
    )];
    exchange.reply(
        lateen_http::Status::OK,
        &fields,
        Length::Known(text.len() as u64),
    )?;
    if *head.method() != lateen_http::Method::HEAD {
        exchange.send(text.into()).await?;
    }
    exchange.finish()
}

/// Answers with the content that it gets, and with its trailers.
pub async fn echo(
    _: FramedRequest,
    exchange: server::Exchange,
) -> Result<(), lateen_exchange::Error> {
    let fields = [(
        FieldName::new("content-type").unwrap(),
        FieldValue::new("application/grpc").unwrap(),
    )];
    exchange.reply(lateen_http::Status::OK, &fields, Length::Delimited)?;
    while let Some(bytes) = exchange.data().await? {
        exchange.send(bytes).await?;
    }
    match exchange.trailers() {
        Some(trailers) => exchange.finish_with(&trailers),
        None => exchange.finish(),
    }
}

/// Begins an answer with `some`, and resets it once `is_read`. A reset discards content that the client has not read.
pub async fn break_off(
    exchange: server::Exchange,
    is_read: Rc<Cell<bool>>,
    code: Code,
) -> Result<(), lateen_exchange::Error> {
    exchange.reply(lateen_http::Status::OK, &[], Length::Delimited)?;
    exchange.send("some".into()).await?;
    until("the client has the content", || is_read.get()).await;
    exchange.reset(code);
    Ok(())
}

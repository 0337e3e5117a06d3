//! A role in few lines: tunnels whose requests are answered with the bytes that come.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lateen_accept::{Accepted, Acceptor, FdQuota};
use lateen_config::{Snapshot, Store};
use lateen_hbone::{ConnectRequest, Connection, Incoming, Settings, Stream, client};
use lateen_runtime::{Role, UnstartedWorker, Worker, WorkerConfig};
use lateen_testkit::{Ca, identity};
use lateen_tls::Credentials;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

const SOON: Duration = Duration::from_secs(30);

/// Owners of listeners are named by a word.
struct Echo {
    own: Arc<Credentials>,
    worker: Rc<Worker<&'static str>>,
    installed: Cell<usize>,
}

/// Asks how many configurations were installed, and which owners have used the worker.
struct Ask(oneshot::Sender<(usize, Vec<&'static str>)>);

impl Role for Echo {
    type Config = Arc<Credentials>;
    type Listener = &'static str;
    type GroupKey = &'static str;
    type Request = Ask;

    fn start(own: Arc<Credentials>, worker: Rc<Worker<&'static str>>) -> Self {
        Self {
            own,
            worker,
            installed: Cell::new(0),
        }
    }

    fn group_key<'a>(listener: &'a &'static str) -> &'a &'static str {
        listener
    }

    fn serve(self: Rc<Self>, accepted: Accepted<&'static str>) {
        lateen_executor::spawn_local(async move {
            let stream = TcpStream::from_std(accepted.stream.into()).expect("it is a socket");
            self.requests(stream).await;
            drop(accepted.load);
        });
    }

    fn installed(&self, before: Option<&Snapshot>, _: &Snapshot) {
        assert_eq!(before.is_some(), self.installed.get() > 0);
        self.installed.set(self.installed.get() + 1);
    }

    fn handle(&self, Ask(answer): Ask) {
        let owners = self.worker.times_used().into_keys().collect();
        let _ = answer.send((self.installed.get(), owners));
    }
}

impl Echo {
    async fn requests(&self, stream: TcpStream) {
        let (stream, _) = lateen_tls::accept(&self.own, stream).await.expect("TLS");
        let tunnel = Connection::accept(stream, Settings::server()).await;
        let mut tunnel = tunnel.expect("HTTP/2");
        loop {
            tokio::select! {
                incoming = tunnel.next() => match incoming {
                    Ok(Some(incoming)) => self.answer(incoming).await,
                    _ => return,
                },
                () = self.worker.draining() => break,
            }
        }
        // Open streams go on.
        tunnel.drain();
        while let Ok(Some(_)) = tunnel.next().await {}
    }

    /// Answers once there is a configuration.
    async fn answer(&self, incoming: Incoming) {
        self.worker.find(SOON, Some).await.expect("a configuration");
        let stream = incoming.accept(None).expect("the client waits");
        lateen_executor::spawn_local(async {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        });
    }
}

async fn echoes(stream: &mut Stream) {
    let mut heard = [0; 4];
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"ping");
}

#[tokio::test]
async fn a_role_of_its_own_serves_tunnels_on_a_worker() {
    let ca = Ca::new();
    let (acceptor, queue) = Acceptor::without_thread().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let share = FdQuota::new("echo".to_owned(), 100);
    let _open = acceptor.register(listener.into(), "echo", &share, 1);
    let worker = UnstartedWorker::<Echo>::default();
    let handle = worker.handle();
    let config = WorkerConfig {
        index: 0,
        slice: None,
        acceptor: Some(queue),
        accept_failed: None,
        role: ca.credentials(&identity("echo")),
    };
    let thread = worker.start(config).unwrap();

    let (own, echo) = (ca.credentials(&identity("client")), [identity("echo")]);
    let serving = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (stream, _) = lateen_tls::connect(&own, tcp, &echo).await.unwrap();
        let http2 = client::handshake(stream, Settings::client());
        let (tunnel, driver) = http2.await.unwrap();
        spawn_local(driver);
        let request = ConnectRequest::new(SocketAddr::from(([10, 0, 0, 1], 80)));
        let installing = handle.install(Store::new("", None).snapshot());
        let (connected, installed) = tokio::join!(tunnel.connect(&request), installing);
        installed.expect("the worker runs");
        let (mut stream, _) = connected.expect("the worker answers");
        echoes(&mut stream).await;
        assert_eq!(handle.ask(Ask).await, Some((1, vec!["echo"])));
        handle.drain();
        echoes(&mut stream).await;
    };
    let serving = tokio::time::timeout(SOON, serving);
    let served = LocalSet::new().run_until(serving).await;
    served.expect("no hang");
    handle.stop();
    thread.join().expect("the worker ends in order");
    assert_eq!(handle.ask(Ask).await, None, "it has ended");
}

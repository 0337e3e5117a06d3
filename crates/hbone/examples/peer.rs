//! One end of a tunnel as a process, for tests that put another implementation at the other end.
//!
//! `peer serve KEY CHAIN` listens on a port of 127.0.0.1, says `listening ADDRESS`, and serves: `echo.test:80` sends back
//! what comes, `source.test:N` sends N KiB, `denied.test:80` is refused with 401 and any other target with 503.
//! `peer connect KEY CHAIN PEER TARGET IDENTITY...` opens one stream, says `connected IDENTITY BAGGAGE` and joins it
//! to standard input and output. Both end with `error: ...` on standard error when something is wrong.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use lateen_hbone::{
    Authority, Baggage, ConnectRequest, Connection, Forwarded, Incoming, Settings, Status, Stream,
    TraceParent, client,
};
use lateen_relay::{Counters, Socket, run};
use lateen_tls::{Credentials, KeyPair, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

type Failure = Box<dyn Error>;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = runtime.block_on(LocalSet::new().run_until(async {
        match arguments[..] {
            ["serve", key, chain] => serve(credentials(key, chain)?).await,
            ["connect", key, chain, peer, target, ref expected @ ..] => {
                connect(
                    credentials(key, chain)?,
                    peer.parse()?,
                    target.parse()?,
                    expected,
                )
                .await
            }
            _ => Err(
                "usage: peer serve KEY CHAIN | peer connect KEY CHAIN PEER TARGET IDENTITY..."
                    .into(),
            ),
        }
    }));
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// The chain's file holds the leaf and then the root.
fn credentials(key: &str, chain: &str) -> Result<Arc<Credentials>, Failure> {
    let chain = std::fs::read_to_string(chain)?;
    let blocks = chain.split_inclusive("-----END CERTIFICATE-----\n");
    let blocks: Vec<String> = blocks.map(str::to_owned).collect();
    let key = KeyPair::from_pem(&std::fs::read_to_string(key)?)?;
    Ok(Arc::new(Credentials::from_issued(key, &blocks)?))
}

async fn serve(own: Arc<Credentials>) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        let own = Arc::clone(&own);
        spawn_local(async move {
            if let Err(error) = tunnel(own, tcp).await {
                eprintln!("error: {error}");
            }
        });
    }
}

async fn tunnel(own: Arc<Credentials>, tcp: TcpStream) -> Result<(), Failure> {
    tcp.set_nodelay(true)?;
    let (stream, peer) = lateen_tls::accept(&own, tcp).await?;
    let mut connection = Connection::accept(stream, Settings::server()).await?;
    while let Some(incoming) = connection.next().await? {
        let baggage = incoming.baggage.clone().unwrap_or_default();
        println!("request {peer} {} {baggage}", incoming.authority);
        spawn_local(answer(incoming));
    }
    println!("closed {peer}");
    Ok(())
}

async fn answer(incoming: Incoming) {
    let Authority::Name { name, port } = incoming.authority.clone() else {
        return incoming.refuse(Status::Unavailable);
    };
    match name.as_str() {
        "echo.test" => {
            if let Ok(stream) = incoming.accept(Some("service.name=echo")) {
                echo(stream).await;
            }
        }
        "source.test" => {
            if let Ok(mut stream) = incoming.accept(None) {
                let block: Vec<u8> = (0..=255).cycle().take(1024).collect();
                for _ in 0..port {
                    if stream.write_all(&block).await.is_err() {
                        return;
                    }
                }
                // The peer may have left.
                let _ = stream.shutdown().await;
            }
        }
        "denied.test" => incoming.refuse(Status::Unauthorized),
        _ => incoming.refuse(Status::Unavailable),
    }
}

async fn echo(stream: Stream) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    // Whatever goes wrong shows at the other end.
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
    let _ = writer.shutdown().await;
}

async fn connect(
    own: Arc<Credentials>,
    peer: SocketAddr,
    target: Authority,
    expected: &[&str],
) -> Result<(), Failure> {
    let expected = expected
        .iter()
        .map(|identity| identity.parse())
        .collect::<Result<Vec<_>, _>>()?;
    let tcp = TcpStream::connect(peer).await?;
    tcp.set_nodelay(true)?;
    let local = tcp.local_addr()?;
    let (stream, identity): (TlsStream<TcpStream>, _) =
        lateen_tls::connect(&own, tcp, &expected).await?;
    let (tunnel, driver) = client::handshake(stream, Settings::client()).await?;
    let driver = spawn_local(driver);
    let baggage = Baggage {
        namespace: Some("default".into()),
        workload: Some("client".into()),
        ..Baggage::default()
    };
    let mut request = ConnectRequest::new(target);
    request.baggage = Some(baggage.to_string().into());
    request.forwarded = Some(Forwarded {
        client: Some(local),
        host: Some("service.test".to_owned()),
    });
    request.traceparent = Some(TraceParent::random());
    let (stream, info) = tunnel.connect(&request).await?;
    println!("connected {identity} {}", info.baggage.unwrap_or_default());
    tunnel.close();
    drop(tunnel);
    join(stream).await?;
    driver.await??;
    Ok(())
}

/// Joins a stream to standard input and output by way of a socket, so that the relay is what carries the bytes.
async fn join(stream: Stream) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    let (far, _) = listener.accept().await?;
    let relay = spawn_local(run(Socket::from(far), stream, Counters::default()));
    let (mut reader, mut writer) = near.into_split();
    let up = spawn_local(async move {
        let mut input = standard_input();
        while let Some(block) = input.recv().await {
            writer.write_all(&block).await?;
        }
        writer.shutdown().await
    });
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer).await? {
            0 => break,
            n => std::io::Write::write_all(&mut std::io::stdout(), &buffer[..n])?,
        }
    }
    std::io::Write::flush(&mut std::io::stdout())?;
    up.abort();
    let outcome = relay.await?;
    eprintln!(
        "relayed sent={} received={}",
        outcome.sent, outcome.received
    );
    match outcome.error {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Standard input, read on a thread of its own.
fn standard_input() -> tokio::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n) = std::io::Read::read(&mut std::io::stdin(), &mut buffer) {
            if n == 0 || sender.blocking_send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

//! Both ends of a tunnel in one process, over TCP on 127.0.0.1 and without TLS: one CONNECT that is accepted, whose stream is
//! echoed, and one that is refused.
//!
//! `cargo run -p lateen-hbone --example tunnel_hello`
//!
//! `peer` is either end in a process of its own, with TLS. `plain` is a server for h2spec.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::net::SocketAddr;

use lateen_hbone::{ConnectRequest, Connection, Settings, Status, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A tunnel and its streams stay on one thread.
    LocalSet::new()
        .run_until(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let server = spawn_local(serve(listener));
            connect(address).await?;
            server.await?.map_err(|error| error.to_string())?;
            Ok(())
        })
        .await
}

/// Serves the requests of one tunnel: those for port 80 are echoed, others are refused.
async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let (tcp, _) = listener.accept().await?;
    let mut connection = Connection::accept(tcp, Settings::server()).await?;
    while let Some(incoming) = connection.next().await? {
        println!("server: CONNECT {}", incoming.authority);
        if !incoming.authority.to_string().ends_with(":80") {
            incoming.refuse(Status::Unavailable);
            continue;
        }
        let stream = incoming.accept(None)?;
        spawn_local(async move {
            let (mut reader, mut writer) = tokio::io::split(stream);
            // A failure shows at the client's end.
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        });
    }
    Ok(())
}

/// Opens two streams on one tunnel.
async fn connect(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let tcp = TcpStream::connect(address).await?;
    let (tunnel, driver) = client::handshake(tcp, Settings::client()).await?;
    let driver = spawn_local(driver);

    let target: SocketAddr = "10.0.0.7:80".parse()?;
    let (mut stream, _) = tunnel.connect(&ConnectRequest::new(target)).await?;
    stream.write_all(b"hello").await?;
    stream.shutdown().await?;
    let mut echo = String::new();
    stream.read_to_string(&mut echo).await?;
    println!("client: {target} sent back {echo:?}");

    let target: SocketAddr = "10.0.0.7:81".parse()?;
    match tunnel.connect(&ConnectRequest::new(target)).await {
        Ok(_) => return Err("the server accepted a target that it does not serve".into()),
        Err(error) => println!("client: {target}: {error}"),
    }

    // The tunnel ends with its last stream.
    tunnel.close();
    drop((stream, tunnel));
    Ok(driver.await??)
}

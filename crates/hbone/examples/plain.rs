//! A tunnel server without TLS on a port of 127.0.0.1, for h2spec. It prints `listening ADDRESS`, has the settings of a proxy, and
//! echoes each CONNECT. The crate itself answers all other requests.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use lateen_hbone::{CloseReason, Connection, Settings, TunnelError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    LocalSet::new()
        .run_until(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("listening {}", listener.local_addr()?);
            loop {
                let (tcp, _) = listener.accept().await?;
                spawn_local(async move {
                    let ended = serve(tcp).await;
                    println!("closed {}", CloseReason::of(&ended).as_str());
                });
            }
        })
        .await
}

async fn serve(tcp: TcpStream) -> Result<(), TunnelError> {
    tcp.set_nodelay(true).map_err(TunnelError::Io)?;
    let mut connection = Connection::accept(tcp, Settings::server()).await?;
    while let Some(incoming) = connection.next().await? {
        if let Ok(stream) = incoming.accept(None) {
            spawn_local(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                // Whatever goes wrong shows at the other end.
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
            });
        }
    }
    Ok(())
}

//! Our connection over a pipe in memory, beside tasks of a peer.

use lateen_h2::{Connection, ConnectionError, Event, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::LocalSet;

/// Moves a connection's bytes until it is done or the pipe ends. `act` hears of events, and `None` after each turn.
pub async fn drive(
    io: DuplexStream,
    mut connection: Connection,
    mut act: impl FnMut(&mut Connection, Option<Event<'_>>),
) -> Result<Connection, ConnectionError> {
    let (mut reader, mut writer) = tokio::io::split(io);
    let mut buffer = vec![0; 5000];
    let start = tokio::time::Instant::now();
    let mut open = true;
    let mut pending: Vec<u8> = Vec::new();
    loop {
        act(&mut connection, None);
        // What is gathered is written before more is: a pipe that takes little would have it copied again and again.
        if pending.is_empty() {
            connection
                .output()
                .for_each(|piece| pending.extend_from_slice(piece));
        }
        if pending.is_empty() && (connection.is_done() || !open) {
            let _ = writer.shutdown().await;
            return Ok(connection);
        }
        tokio::select! {
            biased;
            read = reader.read(&mut buffer), if open => {
                let n = read.unwrap_or(0);
                open = n > 0;
                let now = Timestamp::from_micros(start.elapsed().as_micros() as u64);
                let mut input = &buffer[..n];
                while let Some(event) = connection.receive(&mut input, now)? {
                    act(&mut connection, Some(event));
                }
            }
            written = writer.write(&pending), if !pending.is_empty() => match written {
                Ok(n) => {
                    pending.drain(..n);
                    connection.advance(n);
                }
                Err(_) => return Ok(connection),
            },
        }
    }
}

/// Runs a test that must end.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    let timeout = std::time::Duration::from_secs(120);
    tokio::time::timeout(timeout, LocalSet::new().run_until(work))
        .await
        .expect("it ends in time")
}

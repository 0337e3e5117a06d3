//! Raw echo over TCP and UDP. A peer that does not read is not read from.

use std::io;
use std::pin::pin;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::context::{ECHO_BUFFER, Session, World};

/// Sends every byte back until the peer's direction or the connection ends.
pub async fn stream(mut tcp: TcpStream, session: Session) {
    let mut ending = pin!(session.clone().ending());
    loop {
        tokio::select! {
            biased;
            ready = tcp.readable() => if ready.is_err() {
                return;
            },
            _ = &mut ending => return,
        }
        let rest = match turn(&tcp, &session) {
            Ok(Some(rest)) => rest,
            Ok(None) | Err(_) => return,
        };
        if !rest.is_empty() {
            let idle = session.world.timeouts.idle;
            let Ok(Ok(())) = timeout(idle, tcp.write_all(&rest)).await else {
                return;
            };
            session.facts.moved.set(true);
        }
    }
}

/// Sends back bytes that are there. Gives those that the peer does not take yet; none at the end of the stream.
fn turn(tcp: &TcpStream, session: &Session) -> io::Result<Option<Vec<u8>>> {
    let buffer = &mut *session.world.buffer.borrow_mut();
    let count = match tcp.try_read(buffer) {
        Ok(0) => return Ok(None),
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(Vec::new())),
        Err(error) => return Err(error),
    };
    session.facts.moved.set(true);
    let written = match tcp.try_write(&buffer[..count]) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    Ok(Some(buffer[written..count].to_vec()))
}

/// Sends datagrams back to their senders until nobody new is let in. A datagram that cannot be sent is lost.
pub async fn datagrams(socket: UdpSocket, world: &World) {
    let mut buffer = vec![0; ECHO_BUFFER];
    let mut closing = pin!(world.closing.cancelled());
    loop {
        let received = tokio::select! {
            biased;
            received = socket.recv_from(&mut buffer) => received,
            () = &mut closing => return,
        };
        // An error reports that an earlier datagram found nobody.
        if let Ok((count, from)) = received {
            let _ = socket.try_send_to(&buffer[..count], from);
        }
    }
}

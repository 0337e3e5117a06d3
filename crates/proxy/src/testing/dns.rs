//! A resolver on loopback that answers from a table.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::spawn_local;

use crate::dns::Resolvers;

/// Where a question ends, and the name that it asks for.
fn read(question: &[u8]) -> (usize, String) {
    let (mut end, mut labels) = (12, Vec::new());
    while question[end] != 0 {
        let length = usize::from(question[end]);
        let label = &question[end + 1..end + 1 + length];
        labels.push(String::from_utf8_lossy(label).into_owned());
        end += 1 + length;
    }
    (end + 5, labels.join("."))
}

/// The reply to a question: these addresses of IPv4 and none of IPv6, for `ttl` seconds.
pub fn reply(question: &[u8], addresses: &[[u8; 4]], ttl: u8) -> Vec<u8> {
    let addresses: Vec<_> = addresses.iter().copied().map(IpAddr::from).collect();
    reply_of_both(question, &addresses, ttl)
}

/// The reply to a question: those of these addresses that are of its family, for `ttl` seconds.
fn reply_of_both(question: &[u8], addresses: &[IpAddr], ttl: u8) -> Vec<u8> {
    const A: u8 = 1;
    const AAAA: u8 = 28;
    let (end, _) = read(question);
    let kind = question[end - 3];
    let addresses: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(ip) => (kind == A).then(|| ip.octets().to_vec()),
            IpAddr::V6(ip) => (kind == AAAA).then(|| ip.octets().to_vec()),
        })
        .collect();
    let mut reply = question[..end].to_vec();
    reply[2] |= 0x80;
    reply[3] = 0x80;
    reply[6..12].fill(0);
    reply[7] = u8::try_from(addresses.len()).unwrap();
    for address in addresses {
        let length = u8::try_from(address.len()).unwrap();
        reply.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, ttl, 0, length]);
        reply.extend_from_slice(&address);
    }
    reply
}

/// Answers questions at `address` by `says`, which is asked for each name and family.
pub async fn serve(address: SocketAddr, says: impl Fn(&str) -> Vec<[u8; 4]> + 'static) {
    let says = move |name: &str| says(name).into_iter().map(IpAddr::from).collect::<Vec<_>>();
    serve_both(address, says).await;
}

/// The same with addresses of both families.
pub async fn serve_both(address: SocketAddr, says: impl Fn(&str) -> Vec<IpAddr> + 'static) {
    let socket = UdpSocket::bind(address).await.unwrap();
    let says = Rc::new(says);
    spawn_local(async move {
        let mut buffer = [0; 1024];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let question = &buffer[..length];
            let found = says(&read(question).1);
            let reply = reply_of_both(question, &found, 1);
            let _ = socket.send_to(&reply, peer).await;
        }
    });
}

/// The list of resolvers that has this one.
pub fn at(address: SocketAddr) -> Resolvers {
    Resolvers {
        servers: vec![address],
        // A busy machine may stop the thread that it runs on.
        timeout: Duration::from_secs(6),
        attempts: 1,
        useless: Vec::new(),
    }
}

//! The node role with everything real but redirection. Needs root: sockets are marked.

mod certificates;
mod demand;
mod ending;
mod fairness;
mod fixture;
mod lifecycle;
mod peer;
mod policy;
mod raw;
mod refused;
mod retried;
mod same_node;
mod same_node_ends;
mod same_node_network;
mod served;
mod through;
mod through_name;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use fixture::{Application, Mesh, soon, until};
use lateen_proto::security::string_match::MatchType;
use lateen_proto::security::{Action, Authorization, StringMatch};
use lateen_testkit::wds;
use lateen_types::Direction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CLIENT: &str = "spiffe://cluster.local/ns/default/sa/client";
const SERVER: &str = "spiffe://cluster.local/ns/default/sa/server";
const OPENED: &str = "istio_tcp_connections_opened_total";
const TUNNELS_OPENED: &str = "lateen_tunnels_opened_total";
const TUNNELS_CLOSED: &str = "lateen_tunnels_closed_total";
const FAILED: &str = "istio_tcp_connections_failed_total";

/// Opens a connection from the client to the server's service, and sends a word on it. Returns the client's end and the server's.
async fn open(mesh: &Mesh, application: &mut Application) -> (TcpStream, TcpStream) {
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
    (client, served)
}

async fn say(stream: &mut TcpStream, text: &str) {
    soon("a write", stream.write_all(text.as_bytes()))
        .await
        .unwrap();
}

async fn hear(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    soon(text, stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, text.as_bytes());
}

/// Waits for the end of a connection and asserts that nothing came before it.
async fn ends_silently(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // An end and a reset are both ends.
    let _ = soon("the end of a connection", stream.read_to_end(&mut rest)).await;
    assert_eq!(rest, b"");
}

/// Dials and asserts that nothing is answered but an end. A reset may overtake `connect` itself.
async fn refused(mesh: &Mesh, address: SocketAddr) {
    match mesh.dial(address).await {
        Ok(mut client) => ends_silently(&mut client).await,
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

/// What PeerAuthentication STRICT becomes: whoever has no identity is denied.
fn deny_without_identity(name: &str) -> Authorization {
    let mut policy = wds::policy(name, Action::Deny, &[]);
    let any = StringMatch {
        match_type: Some(MatchType::Presence(())),
    };
    policy.rules[0].clauses[0].matches[0].not_principals = vec![any];
    policy
}

/// A connection that only relays must stay small: there are many, and most of them wait. With the 72 bytes of a task these
/// fill what the allocator has for them, 448 bytes and 384.
#[test]
fn a_relaying_connection_is_small() {
    fn size<A, B, F>(_: impl FnOnce(A, B) -> F) -> usize {
        size_of::<F>()
    }
    let sizes = [
        ("outbound", size(super::outbound::serve), 376),
        ("plaintext", size(super::plaintext::serve), 312),
        ("inbound", size(super::inbound::connect), 376),
    ];
    assert!(
        sizes.iter().all(|(_, bytes, budget)| bytes <= budget),
        "{sizes:?}"
    );
}

//! Upgrades and CONNECT through the waypoint.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::talk;
use super::world::{World, local};

/// Reads a head.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_web_socket_is_accepted_by_the_endpoint_and_its_bytes_pass_until_both_sides_end() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        let served = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = read_head(&mut stream).await.to_ascii_lowercase();
            assert!(head.contains("upgrade: websocket"), "{head}");
            // RFC 6455 §1.3.
            stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello")
                .await
                .unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            said
        });
        let mut stream = world.stream().await;
        let request = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 101 Switching Protocols\r\n").await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        talk(&mut stream, "and good", "hello").await;
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(served.await.unwrap(), b"and goodbye");
        world.logged(&["/chat", "status=101", "flags=\"-\""]).await;
    });
}

#[test]
fn an_upgrade_that_the_endpoint_declines_is_an_ordinary_answer() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream
                .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
                .await
                .unwrap();
            let _ = stream.read_u8().await;
        });
        let mut stream = world.stream().await;
        let request = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 403 Forbidden\r\n").await;
    });
}

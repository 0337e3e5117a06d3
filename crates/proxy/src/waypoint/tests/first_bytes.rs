//! Connections that are relayed behind the bytes by which their protocol was detected.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::connections::greet_and_echo;
use super::world::{World, local};
use crate::testing::soon;

#[test]
fn first_bytes_of_any_length_are_relayed_as_a_whole() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        greet_and_echo(listener, "");
        for length in [64, 65, 517, 100_000] {
            let mut said = vec![0x16];
            said.extend((1..length).map(|n| n as u8));
            let mut stream = world.stream().await;
            stream.write_all(&said).await.unwrap();
            let mut heard = vec![0; length];
            soon("an echo", stream.read_exact(&mut heard))
                .await
                .unwrap();
            assert!(heard == said, "{length} bytes");
        }
    });
}

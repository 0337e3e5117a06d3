//! What a handshake costs, both sides together, with each key exchange:
//! `cargo run --release -p lateen-tls --example handshakes`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "what it measures goes to the terminal")]

use std::time::Instant;

use lateen_testkit::{Ca, identity};
use lateen_tls::{Compliance, Rules, accept, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const ROUNDS: u32 = 2000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let ca = Ca::new();
    // In turns, so that a busy machine burdens both alike; the first turn warms up.
    for turn in 0..4 {
        for compliance in [Compliance::Classical, Compliance::Preferred] {
            let rules = Rules {
                compliance,
                ..Rules::default()
            };
            let client = ca.leaf(&identity("a")).issue().credentials_under(&rules);
            let server = ca.leaf(&identity("b")).issue().credentials_under(&rules);
            let expected = [server.identity().clone()];
            let start = Instant::now();
            let mut group = "";
            for _ in 0..ROUNDS {
                let (near, far) = duplex(64 * 1024);
                let (near, far) = tokio::join!(connect(&client, near, &expected), async {
                    let (mut far, session) = accept(&server, far).await.expect("a handshake");
                    far.write_u8(1).await.expect("a byte");
                    far.flush().await.expect("a flush");
                    (far, session)
                });
                let (mut near, session) = near.expect("a handshake");
                near.read_u8().await.expect("a byte");
                group = session.key_exchange();
                drop(far);
            }
            if turn > 0 {
                let each = start.elapsed() / ROUNDS;
                println!("{group}: {} us a handshake", each.as_micros());
            }
        }
    }
}

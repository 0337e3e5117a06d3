//! Memory of streams on which nothing moves.

mod common;

use common::{local, settings, stream, tunnel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[global_allocator]
static COUNTED: common::heap::Counting = common::heap::Counting;

/// A large frame stays in the buffer that it was read into until its reader has taken it.
#[tokio::test]
async fn a_stream_whose_bytes_were_read_keeps_no_buffer() {
    local(async {
        const STREAMS: usize = 40;
        let (client, server) = settings();
        let (tunnel, mut incoming) = tunnel(client, server).await;
        let mut kept = Vec::new();
        for _ in 0..STREAMS {
            kept.push(stream(&tunnel, &mut incoming).await);
        }
        let before = common::heap::live();
        let (sent, mut read) = (vec![5; 16 * 1024], vec![0; 16 * 1024]);
        for (near, far) in &mut kept {
            near.write_all(&sent).await.unwrap();
            far.read_exact(&mut read).await.unwrap();
        }
        let grown = common::heap::live().saturating_sub(before);
        assert!(grown < STREAMS * 4096, "{grown} bytes");
    })
    .await;
}

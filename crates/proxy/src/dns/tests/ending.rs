//! The end of a pod's server: it answers the questions that it has read, and reads no further ones.

use super::*;
use crate::dns::{Dns, Parts};

/// A resolver that says nothing to the first question, so that the second try is answered.
async fn slow() -> Fake {
    let mute = Cell::new(true);
    Fake::start(move |question, _| match mute.replace(false) {
        true => vec![],
        false => vec![reply(question, 0, &[[10, 0, 0, 7]])],
    })
    .await
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SOON, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}: not soon"));
}

#[tokio::test]
async fn questions_that_were_read_are_answered_before_the_end() {
    local(async {
        let fake = slow().await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(served.address).await.unwrap();
        let asked = question(7, "slow.example", Family::V4);
        client.send(&asked).await.unwrap();
        until("the resolver is asked", || fake.asked().0 == 1).await;
        drop(served.stop);
        let mut buffer = vec![0; 512];
        let length = timeout(SOON, client.recv(&mut buffer))
            .await
            .expect("a reply")
            .expect("the socket is open as long as somebody waits");
        assert_eq!(addresses(&buffer[..length]), [ip(7)]);
        timeout(SOON, served.task).await.expect("an end").unwrap();
        client.send(&asked).await.unwrap();
        let refused = timeout(SOON, client.recv(&mut buffer)).await;
        assert!(refused.expect("an answer").is_err(), "the socket is closed");
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn questions_of_a_connection_are_answered_before_the_end() {
    local(async {
        let fake = slow().await;
        let rig = Rig::new(&[fake.address]);
        let served = rig.serve("a");
        let mut idle = TcpStream::connect(served.address).await.unwrap();
        idle.write_all(&framed(&question(1, "web", Family::V4)))
            .await
            .unwrap();
        assert_eq!(addresses(&hear(&mut idle).await), [ip(1)]);
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client
            .write_all(&framed(&question(7, "slow.example", Family::V4)))
            .await
            .unwrap();
        until("the resolver is asked", || fake.asked() != (0, 0)).await;
        drop(served.stop);
        let reply = timeout(SOON, hear(&mut client)).await.expect("a reply");
        assert_eq!(addresses(&reply), [ip(7)]);
        let ends = async {
            for client in [&mut client, &mut idle] {
                assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
            }
        };
        timeout(SOON, ends).await.expect("both connections end");
        timeout(SOON, served.task).await.expect("an end").unwrap();
        fake.stop();
    })
    .await;
}

#[tokio::test]
async fn the_end_of_all_servers_is_told() {
    let rig = Rig::new(&[]);
    let dns = Dns::start(Parts {
        current: rig.common.current.clone(),
        metrics: rig.common.metrics.clone(),
        naming: rig.common.naming.clone(),
        resolvers: "/dev/null".into(),
        slice: None,
    })
    .unwrap();
    timeout(SOON, dns.ended()).await.expect("nobody is served");
    let serving = dns.serve(&rig.pod("a"), sockets().0);
    let shortly = timeout(Duration::from_millis(50), dns.ended()).await;
    assert!(shortly.is_err(), "a pod is served");
    drop(serving);
    timeout(SOON, dns.ended()).await.expect("it ended");
}

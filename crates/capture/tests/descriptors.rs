//! A process without a free descriptor. The thread under test has a table of descriptors of its own, full to the brim.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use lateen_capture::{Accepted, Acceptor, Share, acceptor};
use nix::sched::{CloneFlags, unshare};

const SOON: Duration = Duration::from_secs(20);

/// Takes every descriptor that is left.
fn exhaust() -> Vec<OwnedFd> {
    let first: OwnedFd = File::open("/dev/null").unwrap().into();
    let mut taken = Vec::new();
    while let Ok(more) = first.try_clone() {
        taken.push(more);
    }
    taken.push(first);
    taken
}

#[test]
fn without_descriptors_connections_of_every_pod_are_reset_until_there_are_some() {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [0, 1].map(|pod| listeners[pod].local_addr().unwrap());
    let (ready, is_ready) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let proxy = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_FILES).unwrap();
        let (sender, accepted) = mpsc::channel();
        let sink: acceptor::Sink<usize> =
            Box::new(move |connection: Accepted<usize>| sender.send(connection).unwrap());
        let acceptor = Acceptor::start(vec![sink]).unwrap();
        let share = Share::new("pod".to_owned(), usize::MAX);
        let _registered: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(pod, listener)| {
                listener.set_nonblocking(true).unwrap();
                acceptor.register(listener.into(), pod, &share, 2).unwrap()
            })
            .collect();
        let taken = exhaust();
        ready.send(0).unwrap();
        may_go_on.recv().unwrap();
        let shed = acceptor.loads().shed();
        drop(taken);
        ready.send(shed).unwrap();
        let pods = [(); 2].map(|()| accepted.recv_timeout(SOON).unwrap().tag);
        may_go_on.recv().unwrap();
        pods
    });
    is_ready.recv_timeout(SOON).unwrap();
    for _ in 0..10 {
        for address in addresses {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(SOON)).unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
    go_on.send(()).unwrap();
    assert_eq!(is_ready.recv_timeout(SOON).unwrap(), 20);
    let _clients = addresses.map(|address| TcpStream::connect(address).unwrap());
    go_on.send(()).unwrap();
    let mut pods = proxy.join().unwrap();
    pods.sort_unstable();
    assert_eq!(pods, [0, 1]);
}

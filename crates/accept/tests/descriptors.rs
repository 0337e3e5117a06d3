//! A process without a free descriptor. The thread under test has a table of descriptors of its own, full to the brim.

#[path = "../../os/tests/support/descriptors.rs"]
mod descriptors;

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use descriptors::{exhaust, with_tokios_sockets};
use lateen_accept::{Accepted, Acceptor, FdQuota, acceptor};
use nix::sched::{CloneFlags, unshare};
use tokio::task::{LocalSet, spawn_local};

const SOON: Duration = Duration::from_secs(20);

/// Starts an acceptor and takes what it gives, until it is dropped.
type Start = fn() -> (Acceptor<usize>, mpsc::Receiver<Accepted<usize>>);

fn with_its_thread() -> (Acceptor<usize>, mpsc::Receiver<Accepted<usize>>) {
    let (sender, accepted) = mpsc::channel();
    let sink: acceptor::Sink<usize> =
        Box::new(move |connection: Accepted<usize>| sender.send(connection).unwrap());
    let acceptor = Acceptor::start(vec![sink], None, |error| panic!("{error}")).unwrap();
    (acceptor, accepted)
}

/// On a worker's thread, which ends with the test; it has the descriptors of the thread that starts it.
fn on_a_worker() -> (Acceptor<usize>, mpsc::Receiver<Accepted<usize>>) {
    let (sender, accepted) = mpsc::channel();
    let (acceptor, own) = Acceptor::without_thread().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let watching = {
        let _runtime = runtime.enter();
        own.watch().unwrap()
    };
    std::thread::spawn(move || {
        let accepting = watching.run(|waiting| {
            let sender = sender.clone();
            // The test may be over.
            spawn_local(waiting.accept(move |connection| drop(sender.send(connection))));
        });
        LocalSet::new().block_on(&runtime, accepting)
    });
    (acceptor, accepted)
}

#[test]
fn without_descriptors_connections_of_every_pod_are_reset_until_there_are_some() {
    for start in [with_its_thread as Start, on_a_worker] {
        connections_are_reset_until_there_are_descriptors(start);
    }
}

fn connections_are_reset_until_there_are_descriptors(start: Start) {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [0, 1].map(|pod| listeners[pod].local_addr().unwrap());
    let (ready, is_ready) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    with_tokios_sockets();
    let proxy = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_FILES).unwrap();
        let (acceptor, accepted) = start();
        let quota = FdQuota::new("pod".to_owned(), usize::MAX);
        let _registered: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(pod, listener)| {
                listener.set_nonblocking(true).unwrap();
                acceptor.register(listener.into(), pod, &quota, 2).unwrap()
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

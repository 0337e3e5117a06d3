use std::net::SocketAddr;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use socket2::SockRef;

use super::work::TURN;
use super::*;

pub(super) fn plenty() -> Arc<FdQuota> {
    FdQuota::new("pod".to_owned(), 1000)
}

pub(super) fn listener() -> (OwnedFd, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    // More than one turn's connections may wait.
    SockRef::from(&listener).listen(1000).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.into(), address)
}

fn two_workers() -> (
    Acceptor<&'static str>,
    mpsc::Receiver<Accepted<&'static str>>,
) {
    let (sender, accepted) = mpsc::channel();
    let sinks = (0..2)
        .map(|_| {
            let sender = sender.clone();
            Box::new(move |accepted| sender.send(accepted).unwrap()) as Sink<_>
        })
        .collect();
    (Acceptor::start(sinks, None, unheard).unwrap(), accepted)
}

fn unheard(error: io::Error) {
    panic!("it accepts no more: {error}");
}

#[test]
fn an_acceptor_that_can_wait_for_connections_no_more_says_why() {
    let (said, why) = mpsc::channel();
    let failed = move |error: io::Error| said.send(error).unwrap();
    let sink: Sink<_> = Box::new(drop);
    let (acceptor, mut work) = Acceptor::<&str>::new(1, EpollFlags::EPOLLIN).unwrap();
    // An eventfd in the place of the epoll instance: the kernel refuses to wait on it.
    work.shared = Arc::new(Shared {
        epoll: Epoll(acceptor.shared.wake.as_fd().try_clone_to_owned().unwrap()),
        events: EpollFlags::EPOLLIN,
        wake: EventFd::new().unwrap(),
        listeners: Mutex::new(Registered {
            next: 0,
            by_id: HashMap::new(),
        }),
    });
    let thread = spawn(work, vec![sink], None, failed).unwrap();
    let error = why.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    thread.join().unwrap();
}

#[test]
fn an_acceptor_that_is_dropped_has_nothing_to_say() {
    let (said, why) = mpsc::channel::<io::Error>();
    let sink: Sink<&str> = Box::new(drop);
    drop(Acceptor::start(vec![sink], None, move |error| said.send(error).unwrap()).unwrap());
    assert!(why.recv().is_err());
}

#[test]
fn sixteen_connections_through_four_listeners_load_two_workers_evenly() {
    let (acceptor, accepted) = two_workers();
    let listeners: Vec<_> = (0..4).map(|_| listener()).collect();
    let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
    let _registered: Vec<_> = listeners
        .into_iter()
        .map(|(socket, _)| acceptor.register(socket, "pod", &plenty(), 2).unwrap())
        .collect();
    // Unequal on purpose: one listener takes most of them.
    let clients: Vec<_> = (0..16)
        .map(|i| TcpStream::connect(addresses[if i < 10 { 0 } else { i % 4 }]).unwrap())
        .collect();
    let mut held: Vec<_> = (0..16).map(|_| accepted.recv().unwrap()).collect();
    assert_eq!(acceptor.loads().read(), [8, 8]);
    held.retain(|accepted| accepted.load.worker() == 1);
    assert_eq!(acceptor.loads().read(), [0, 8]);
    drop(clients);
}

#[test]
fn a_freed_worker_is_filled_first() {
    let (acceptor, accepted) = two_workers();
    let (socket, address) = listener();
    let _registered = acceptor.register(socket, "pod", &plenty(), 2).unwrap();
    let _clients: Vec<_> = (0..6)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut held: Vec<_> = (0..6).map(|_| accepted.recv().unwrap()).collect();
    held.retain(|accepted| accepted.load.worker() == 0);
    let _late: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let late: Vec<_> = (0..3).map(|_| accepted.recv().unwrap()).collect();
    assert!(late.iter().all(|accepted| accepted.load.worker() == 1));
    assert_eq!(acceptor.loads().read(), [3, 3]);
}

#[test]
fn a_listener_with_many_connections_waiting_delays_no_other_for_longer_than_its_turn() {
    let (go, wait) = mpsc::channel::<()>();
    let (sender, accepted) = mpsc::channel();
    let held = Mutex::new(Some(wait));
    let sink: Sink<_> = Box::new(move |accepted| {
        // The first connection holds the thread up until all others wait.
        if let Some(wait) = held.lock().unwrap().take() {
            let _ = wait.recv();
        }
        sender.send(accepted).unwrap();
    });
    let acceptor = Acceptor::start(vec![sink], None, unheard).unwrap();
    let ((many, at_many), (one, at_one)) = (listener(), listener());
    SockRef::from(&many).listen(1000).unwrap();
    let registered = [
        acceptor.register(many, "many", &plenty(), 1).unwrap(),
        acceptor.register(one, "one", &plenty(), 1).unwrap(),
    ];
    let dial = |address| TcpStream::connect(address).unwrap();
    let clients: Vec<_> = (0..400).map(|_| dial(at_many)).collect();
    let _one = dial(at_one);
    go.send(()).unwrap();
    let soon = Duration::from_secs(10);
    let order = (0..=clients.len()).map(|_| accepted.recv_timeout(soon).unwrap());
    let before = order.take_while(|accepted| accepted.tag == "many").count();
    // The rest of the turn that was under way, and one more if the kernel had the other order in mind.
    assert!(before <= 2 * TURN, "{before} came before it");
    drop(registered);
}

#[test]
fn a_connection_carries_its_peer_and_its_listeners_tag() {
    let (acceptor, accepted) = two_workers();
    let ((a, at_a), (b, at_b)) = (listener(), listener());
    let _a = acceptor.register(a, "a", &plenty(), 2).unwrap();
    let _b = acceptor.register(b, "b", &plenty(), 2).unwrap();
    for (address, tag) in [(at_b, "b"), (at_a, "a")] {
        let client = TcpStream::connect(address).unwrap();
        let got = accepted.recv().unwrap();
        assert_eq!(got.tag, tag);
        assert_eq!(got.peer, client.local_addr().unwrap());
    }
}

#[test]
fn a_dropped_registration_closes_its_listener() {
    let (acceptor, _accepted) = two_workers();
    let (socket, address) = listener();
    let registered = acceptor.register(socket, "pod", &plenty(), 2).unwrap();
    drop(registered);
    assert!(
        TcpStream::connect(address).is_err(),
        "the listener stays open"
    );
}

#[test]
fn once_its_registration_is_dropped_what_a_listener_gave_counts_and_it_gives_no_more() {
    let (entered, inside) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (sender, accepted) = mpsc::channel();
    let held = Mutex::new(Some(wait));
    let sink: Sink<_> = Box::new(move |accepted| {
        if let Some(wait) = held.lock().unwrap().take() {
            entered.send(()).unwrap();
            let _ = wait.recv();
        }
        sender.send(accepted).unwrap();
    });
    let acceptor = Acceptor::start(vec![sink], None, unheard).unwrap();
    let (socket, address) = listener();
    // As another process has it that is to take over.
    let duplicate = TcpListener::from(socket.try_clone().unwrap());
    let clients: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let registered = acceptor.register(socket, "pod", &plenty(), 2).unwrap();
    inside.recv().unwrap();
    let (said, dropped) = mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(registered);
        said.send(()).unwrap();
    });
    let early = dropped.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "a connection is on its way to its worker");
    go.send(()).unwrap();
    dropped.recv().unwrap();
    dropping.join().unwrap();
    let given: Vec<_> = accepted.try_iter().collect();
    assert_eq!(acceptor.loads().read(), [given.len()]);
    // The rest waits for the other process: whatever is not there was accepted by a thread that should not.
    for _ in given.len()..clients.len() {
        duplicate.accept().unwrap();
    }
    assert!(accepted.try_recv().is_err());
}

#[test]
fn a_pod_over_its_quota_is_reset_and_others_are_served() {
    use std::io::{ErrorKind, Read};
    let (acceptor, accepted) = two_workers();
    let ((out, at_out), (inb, at_inb), (other, at_other)) = (listener(), listener(), listener());
    let quota = FdQuota::new("greedy".to_owned(), 5);
    let _greedy = [
        acceptor.register(out, "greedy", &quota, 2).unwrap(),
        acceptor.register(inb, "greedy", &quota, 1).unwrap(),
    ];
    let _other = acceptor.register(other, "other", &plenty(), 2).unwrap();
    let soon = Duration::from_secs(10);
    let dial = |address| {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(soon)).unwrap();
        client
    };
    let first = (dial(at_out), accepted.recv_timeout(soon).unwrap());
    let _second = (dial(at_out), accepted.recv_timeout(soon).unwrap());
    let error = dial(at_out).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(acceptor.loads().shed(), 1);
    // One descriptor is left, whichever listener it goes to.
    let _third = (dial(at_inb), accepted.recv_timeout(soon).unwrap());
    let error = dial(at_inb).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let _elsewhere = dial(at_other);
    assert_eq!(accepted.recv_timeout(soon).unwrap().tag, "other");
    drop(first);
    let _again = dial(at_out);
    assert_eq!(accepted.recv_timeout(soon).unwrap().tag, "greedy");
    assert_eq!(acceptor.loads().shed(), 2);
}

//! A process without a free descriptor. The thread under test has a table of descriptors of its own, full to the brim.
//! Needs root for a pod's network namespace.

mod support;

use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use lateen_capture::zds::{self, PodInfo};
use lateen_capture::{Accepted, Acceptor, FdQuota, Netns, acceptor};
use lateen_proto::zds::SnapshotSent;
use lateen_proto::zds::workload_request::Payload;
use lateen_types::WorkloadUid;
use nix::sched::{CloneFlags, unshare};
use support::agent::{Agent, Recorder, Told, add, all, delete};
use support::{TestPod, exhaust};
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;
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

/// Has tokio open the sockets of its signal driver, of which a process has one pair, in the descriptors that all threads begin with. A
/// thread of descriptors of its own would otherwise be the first, and the next runtime would find other files at these numbers.
fn with_tokios_sockets() {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
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

/// Takes every descriptor when it is told to let `fill` go, and gives them back for `free`.
struct Hoarder {
    recorder: Recorder,
    taken: Vec<OwnedFd>,
    stop: Rc<Notify>,
}

impl zds::Pods for Hoarder {
    async fn add(&mut self, uid: WorkloadUid, info: PodInfo, netns: Netns) -> Result<(), String> {
        self.recorder.add(uid, info, netns).await
    }

    fn keep(&mut self, uid: &WorkloadUid) -> Result<(), String> {
        self.recorder.keep(uid)
    }

    fn delete(&mut self, uid: &WorkloadUid) {
        match uid.as_str() {
            "fill" => self.taken = exhaust(),
            "free" => self.taken.clear(),
            _ => self.stop.notify_one(),
        }
    }

    fn retain(&mut self, named: &HashSet<WorkloadUid>) {
        self.recorder.retain(named);
    }

    fn disconnected(&mut self) {
        self.recorder.disconnected();
    }
}

#[test]
fn an_addition_without_a_descriptor_left_is_refused_and_the_conversation_goes_on() {
    let agent = Agent::listen("exhausted");
    let path = agent.path.clone();
    let (told, heard) = unbounded_channel();
    with_tokios_sockets();
    let client = std::thread::spawn(move || {
        // Nothing outside may wake the runtime, and there may be no other one: both rest on numbers of descriptors.
        unshare(CloneFlags::CLONE_FILES).unwrap();
        let stop = Rc::new(Notify::new());
        let mut pods = Hoarder {
            recorder: Recorder(told),
            taken: Vec::new(),
            stop: Rc::clone(&stop),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = zds::run(&path, &mut pods) => unreachable!("the client runs for ever"),
                () = stop.notified() => {}
            }
        });
    });
    let pod = TestPod::new();
    let netns = pod.fd();
    let conversation = agent.accept();
    conversation.hello();
    assert_eq!(conversation.ask(delete("fill"), &[]), "");
    let error = conversation.ask(add("a", "one"), &[netns.as_raw_fd()]);
    assert!(error.contains("no descriptor left"), "{error}");
    let snapshot = Payload::SnapshotSent(SnapshotSent {});
    assert_eq!(conversation.ask(snapshot, &[]), "");
    assert_eq!(conversation.ask(delete("free"), &[]), "");
    assert_eq!(conversation.ask(add("a", "one"), &[netns.as_raw_fd()]), "");
    assert_eq!(conversation.ask(delete("stop"), &[]), "");
    client.join().unwrap();
    let told = all(heard);
    // A pod that could not be taken up anew is no pod that is gone.
    assert_eq!(told[0], Told::Retained(vec!["a".to_owned()]));
    assert!(
        matches!(&told[1..], [Told::Added(uid, ..)] if uid == "a"),
        "{told:?}"
    );
}

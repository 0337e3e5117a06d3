//! The acceptor: one thread that waits on every listener of every pod and gives each new connection to the least
//! loaded worker, so that the balance is exact whatever listener a connection came through.
//!
//! A connection that there is no room for, in its pod's share or in the whole process, is accepted and reset at once: left
//! in the listener's queue it would keep the others waiting.
//!
//! A process with one worker has nothing to balance: there the worker accepts by itself ([`OwnAcceptor`]).

mod own;

pub use own::{OwnAcceptor, Waiting, Watching};

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::{SockAddr, SockRef};

use crate::share::{Held, Share};
use crate::socket::canonical;

/// Connections taken from one listener before the next one has its turn.
const TURN: usize = 64;
/// The eventfd that ends the thread.
const WAKE: u64 = u64::MAX;
/// Rest when the kernel can give nothing at all: the listener stays readable, and asking again at once would spin.
const REST: Duration = Duration::from_millis(50);
/// Between two errors about descriptors in the log.
const QUIET: Duration = Duration::from_secs(10);

/// A connection on its way to a worker.
#[derive(Debug)]
pub struct Accepted<T> {
    /// Non-blocking, close-on-exec; carries the options of its listener.
    pub stream: OwnedFd,
    /// The client's address.
    pub peer: SocketAddr,
    /// What the listener was registered with.
    pub tag: T,
    /// Keep it as long as the connection lives: the worker counts as loaded until it is dropped.
    pub load: LoadGuard,
}

/// How many connections each worker has, and how many none got; only the acceptor adds to it.
#[derive(Debug)]
pub struct Loads {
    workers: Box<[AtomicUsize]>,
    shed: AtomicU64,
}

impl Loads {
    /// No load on `workers` workers.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            workers: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            shed: AtomicU64::new(0),
        })
    }

    /// Connections by worker.
    pub fn read(&self) -> Vec<usize> {
        self.workers
            .iter()
            .map(|load| load.load(Ordering::Relaxed))
            .collect()
    }

    /// Connections that were reset at once because there was no descriptor for them.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    /// Counts one more connection on the least loaded worker, the first among equals.
    fn charge(self: &Arc<Self>, held: Held) -> LoadGuard {
        let worker = (0..self.workers.len())
            .min_by_key(|&worker| self.workers[worker].load(Ordering::Relaxed))
            .expect("there is at least one worker");
        self.workers[worker].fetch_add(1, Ordering::Relaxed);
        LoadGuard {
            loads: Arc::clone(self),
            worker,
            _held: held,
        }
    }
}

/// One connection's part of a worker's load and of its pod's share.
#[derive(Debug)]
pub struct LoadGuard {
    loads: Arc<Loads>,
    worker: usize,
    _held: Held,
}

impl LoadGuard {
    /// The worker that was chosen.
    pub fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.loads.workers[self.worker].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes connections to one worker. Must not block, and must not register or drop a registration.
pub type Sink<T> = Box<dyn Fn(Accepted<T>) + Send>;

/// The running acceptor. Dropping it stops the thread and closes the listeners that are still registered.
#[derive(Debug)]
pub struct Acceptor<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    loads: Arc<Loads>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<T> {
    epoll: Epoll,
    /// How listeners are watched.
    events: EpollFlags,
    wake: EventFd,
    listeners: Mutex<Registered<T>>,
}

#[derive(Debug)]
struct Registered<T> {
    next: u64,
    by_id: HashMap<u64, Listener<T>>,
}

#[derive(Debug)]
struct Listener<T> {
    socket: OwnedFd,
    tag: T,
    share: Arc<Share>,
    /// Descriptors that one of its connections needs.
    cost: u32,
}

/// A listener that connections are accepted from until this is dropped, which closes it. What was accepted by then counts
/// as load, and nothing is accepted after: whoever reads no load from then on leaves nobody behind.
#[derive(Debug)]
pub struct Registration<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    id: u64,
}

impl<T: Clone + Send + Sync + 'static> Acceptor<T> {
    /// Starts the thread; `sinks[i]` takes the connections of worker `i`. `deaf` is told why if it ends because it can
    /// wait for connections no more: whoever is ready then would say so of a process that accepts none.
    ///
    /// # Errors
    /// The kernel has no descriptor or thread to give.
    ///
    /// # Panics
    /// Without any sink.
    pub fn start(
        sinks: Vec<Sink<T>>,
        deaf: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        assert!(!sinks.is_empty(), "an acceptor needs at least one worker");
        let (mut acceptor, mut work) = Self::new(sinks.len(), EpollFlags::EPOLLIN)?;
        let thread = std::thread::Builder::new()
            .name("acceptor".into())
            .spawn(move || {
                let give = |accepted: Accepted<T>| sinks[accepted.load.worker()](accepted);
                if let Err(error) = work.accept_all(&give) {
                    deaf(error);
                }
            })?;
        acceptor.thread = Some(thread);
        Ok(acceptor)
    }

    /// Without a thread, for a worker that is the only one: it accepts by itself, and nothing is handed from one thread to
    /// another.
    ///
    /// # Errors
    /// The kernel has no descriptor to give.
    pub fn without_thread() -> io::Result<(Self, OwnAcceptor<T>)> {
        // Told once of what has come: a listener that waits for its pod's turn is not looked at meanwhile.
        let (acceptor, work) = Self::new(1, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
        Ok((acceptor, OwnAcceptor::new(work)))
    }

    fn new(workers: usize, events: EpollFlags) -> io::Result<(Self, Work<T>)> {
        let shared = Arc::new(Shared {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            events,
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            listeners: Mutex::new(Registered {
                next: 0,
                by_id: HashMap::new(),
            }),
        });
        shared
            .epoll
            .add(&shared.wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let loads = Loads::new(workers);
        let work = Work {
            reserve: Some(shared.wake.as_fd().try_clone_to_owned()?),
            shared: Arc::clone(&shared),
            loads: Arc::clone(&loads),
            said: None,
        };
        let acceptor = Self {
            shared,
            loads,
            thread: None,
        };
        Ok((acceptor, work))
    }

    /// Accepts from `listener`, which must be non-blocking, and gives each connection `tag`. Each takes `cost`
    /// descriptors, its own among them, of `share`; those that find too few left there are reset.
    ///
    /// # Errors
    /// epoll refuses the descriptor.
    pub fn register(
        &self,
        listener: OwnedFd,
        tag: T,
        share: &Arc<Share>,
        cost: u32,
    ) -> io::Result<Registration<T>> {
        let mut listeners = self.shared.lock();
        let id = listeners.next;
        listeners.next += 1;
        let listener = Listener {
            socket: listener,
            tag,
            share: Arc::clone(share),
            cost,
        };
        self.shared.epoll.add(
            listener.socket.as_fd(),
            EpollEvent::new(self.shared.events, id),
        )?;
        listeners.by_id.insert(id, listener);
        drop(listeners);
        Ok(Registration {
            shared: Arc::clone(&self.shared),
            id,
        })
    }

    /// The load of each worker.
    pub fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }
}

impl<T: Send + 'static> Drop for Acceptor<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A full counter cannot be: it is written once.
            let _ = self.shared.wake.write(1);
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        self.shared.lock().by_id.clear();
    }
}

impl<T: Send + 'static> Drop for Registration<T> {
    fn drop(&mut self) {
        if let Some(listener) = self.shared.lock().by_id.remove(&self.id) {
            // Closing removes it only with the last duplicate, and others may have one.
            let _ = self.shared.epoll.delete(listener.socket.as_fd());
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Registered<T>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What accepting takes.
struct Work<T> {
    shared: Arc<Shared<T>>,
    loads: Arc<Loads>,
    /// Given up to accept, and reset, when no other descriptor is left.
    reserve: Option<OwnedFd>,
    said: Option<Instant>,
}

/// What a listener has after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// More connections, perhaps.
    More,
    /// Connections that the kernel has nothing to accept them with.
    Unable,
}

impl<T: Clone> Work<T> {
    /// Accepts until it is woken to end.
    fn accept_all(&mut self, give: &dyn Fn(Accepted<T>)) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let ready = match self.shared.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(ready) => ready,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..ready] {
                if event.data() == WAKE {
                    return Ok(());
                }
                if self.accept_turn(event.data(), TURN, give) == Left::Unable {
                    std::thread::sleep(REST);
                    self.refill();
                }
            }
        }
    }

    fn accept_turn(&mut self, id: u64, turn: usize, give: &dyn Fn(Accepted<T>)) -> Left {
        for _ in 0..turn {
            // Gone: deregistered between the wait and now, or during this turn.
            let Some(accepted) = self.accept_one(id, give) else {
                return Left::Nothing;
            };
            match accepted {
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Left::Nothing,
                    // accept(2): a connection that ended while it waited, and errors of the network passed on.
                    Some(
                        libc::EINTR
                        | libc::ECONNABORTED
                        | libc::ENETDOWN
                        | libc::EPROTO
                        | libc::ENOPROTOOPT
                        | libc::EHOSTDOWN
                        | libc::ENONET
                        | libc::EHOSTUNREACH
                        | libc::EOPNOTSUPP
                        | libc::ENETUNREACH,
                    ) => {}
                    Some(libc::EMFILE | libc::ENFILE) if self.reserve.is_some() => {
                        self.complain(&error);
                        if !self.shed_one(id) {
                            return Left::Nothing;
                        }
                    }
                    _ => {
                        self.complain(&error);
                        return Left::Unable;
                    }
                },
            }
        }
        Left::More
    }

    /// Takes one connection from a listener, if it is still registered. The lock is held until the connection counts: were it
    /// not, a process that has dropped all its listeners could end between the two, and take a connection along that nobody serves.
    fn accept_one(&self, id: u64, give: &dyn Fn(Accepted<T>)) -> Option<io::Result<()>> {
        let listeners = self.shared.lock();
        let listener = listeners.by_id.get(&id)?;
        let accepted = accept(&listener.socket);
        Some(accepted.map(|(stream, peer)| self.count(listener, stream, peer, give)))
    }

    fn count(
        &self,
        listener: &Listener<T>,
        stream: OwnedFd,
        peer: SocketAddr,
        give: &dyn Fn(Accepted<T>),
    ) {
        let Some(held) = listener.share.take(listener.cost) else {
            self.shed(stream);
            return;
        };
        give(Accepted {
            stream,
            peer,
            tag: listener.tag.clone(),
            load: self.loads.charge(held),
        });
    }

    /// Frees the listener's queue of one connection by way of the reserve; false if none waits any more. The kernel
    /// looks for a descriptor before it looks for a connection.
    fn shed_one(&mut self, id: u64) -> bool {
        self.reserve = None;
        let accepted = {
            let listeners = self.shared.lock();
            listeners
                .by_id
                .get(&id)
                .map(|listener| accept(&listener.socket))
        };
        let waited = match accepted {
            Some(Ok((stream, _))) => {
                self.shed(stream);
                true
            }
            Some(Err(error)) => error.raw_os_error() != Some(libc::EAGAIN),
            None => false,
        };
        self.refill();
        waited
    }

    /// Takes the reserve back, unless another thread was faster.
    fn refill(&mut self) {
        if self.reserve.is_none() {
            self.reserve = self.shared.wake.as_fd().try_clone_to_owned().ok();
        }
    }

    /// Resets a connection, so that its client neither waits nor takes the end for an empty answer.
    fn shed(&self, stream: OwnedFd) {
        // Without the option the client sees an orderly end, which is the best that is left.
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        self.loads.shed.fetch_add(1, Ordering::Relaxed);
    }

    fn complain(&mut self, error: &io::Error) {
        if self.said.is_none_or(|said| said.elapsed() >= QUIET) {
            self.said = Some(Instant::now());
            tracing::error!(
                %error,
                "accept a connection: connections are reset until descriptors are free; raise the limit of open files"
            );
        }
    }
}

fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    use std::os::fd::FromRawFd;
    let mut stream = -1;
    // SAFETY: accept4 writes a socket address of at most `length` bytes into `storage`, as `try_init` demands, and the
    // descriptor that it returns belongs to nobody else.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            stream = libc::accept4(
                listener.as_raw_fd(),
                storage.cast(),
                length,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            );
            if stream < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })?
    };
    // SAFETY: accept4 has just opened it for us.
    let stream = unsafe { OwnedFd::from_raw_fd(stream) };
    let peer = address
        .as_socket()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ECONNABORTED))?;
    Ok((stream, canonical(peer)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use super::*;

    pub(super) fn plenty() -> Arc<Share> {
        Share::new("pod".to_owned(), 1000)
    }

    pub(super) fn listener() -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        // More than one turn's connections may wait.
        socket2::SockRef::from(&listener).listen(1000).unwrap();
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
        (Acceptor::start(sinks, unheard).unwrap(), accepted)
    }

    fn unheard(error: io::Error) {
        panic!("it accepts no more: {error}");
    }

    #[test]
    fn an_acceptor_that_can_wait_for_connections_no_more_says_why() {
        let (said, why) = mpsc::channel();
        let deaf = move |error: io::Error| said.send(error).unwrap();
        let sink: Sink<_> = Box::new(drop);
        let acceptor = Acceptor::start(vec![sink], deaf).unwrap();
        let (socket, address) = listener();
        let _registered = acceptor.register(socket, "pod", &plenty(), 1).unwrap();
        // Nothing takes the place of the epoll instance under its number; a thread that waits on it already finds out when it
        // next waits, after a connection.
        let nothing = acceptor.shared.wake.as_raw_fd();
        // SAFETY: both descriptors are open, and belong to the acceptor for as long as this test has it.
        let replaced = unsafe {
            libc::dup3(
                nothing,
                acceptor.shared.epoll.0.as_raw_fd(),
                libc::O_CLOEXEC,
            )
        };
        assert_ne!(replaced, -1, "{}", io::Error::last_os_error());
        let _client = TcpStream::connect(address).unwrap();
        let error = why.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn an_acceptor_that_is_dropped_has_nothing_to_say() {
        let (said, why) = mpsc::channel::<io::Error>();
        let sink: Sink<&str> = Box::new(drop);
        drop(Acceptor::start(vec![sink], move |error| said.send(error).unwrap()).unwrap());
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
        let acceptor = Acceptor::start(vec![sink], unheard).unwrap();
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
        let acceptor = Acceptor::start(vec![sink], unheard).unwrap();
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
    fn a_pod_with_its_share_is_reset_and_others_are_served() {
        use std::io::{ErrorKind, Read};
        let (acceptor, accepted) = two_workers();
        let ((out, at_out), (inb, at_inb), (other, at_other)) =
            (listener(), listener(), listener());
        let share = Share::new("greedy".to_owned(), 5);
        let _greedy = [
            acceptor.register(out, "greedy", &share, 2).unwrap(),
            acceptor.register(inb, "greedy", &share, 1).unwrap(),
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
}

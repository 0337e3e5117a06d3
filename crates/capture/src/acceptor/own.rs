//! An acceptor without a thread: the one worker of a process accepts between two slices of its other work.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::epoll::{EpollEvent, EpollTimeout};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Accepted, Left, REST, Work};

/// Connections taken from one listener in a turn: the worker has others to serve meanwhile.
const TURN: usize = 8;
/// Listeners that are looked at in a turn. The kernel names those first that it has not named for longest.
const LISTENERS: usize = 4;

/// What waits on all listeners of a process with one worker, in that worker's hands.
pub struct OwnAcceptor<T>(Work<T>);

impl<T> fmt::Debug for OwnAcceptor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnAcceptor")
    }
}

impl<T> AsRawFd for OwnAcceptor<T> {
    /// Readable when connections wait.
    fn as_raw_fd(&self) -> RawFd {
        self.0.shared.epoll.0.as_raw_fd()
    }
}

impl<T: Clone> OwnAcceptor<T> {
    pub(super) fn new(work: Work<T>) -> Self {
        Self(work)
    }

    /// Accepts connections, for ever, and gives them away. `give` must not block, and must not register or drop a registration.
    ///
    /// # Errors
    /// The runtime cannot wait for connections, or ends.
    pub async fn run(self, give: impl Fn(Accepted<T>)) -> io::Result<()> {
        // SAFETY: the epoll instance is in `Shared`, which `self` keeps, and which never replaces it.
        let mut ready = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?;
        loop {
            let mut ready = ready.readable_mut().await?;
            match ready.get_inner_mut().turn(&give) {
                // What comes from now on is told.
                Left::Nothing => ready.clear_ready(),
                // Those that were accepted are to have a turn as well.
                Left::More => tokio::task::yield_now().await,
                Left::Unable => tokio::time::sleep(REST).await,
            }
        }
    }

    fn turn(&mut self, give: &dyn Fn(Accepted<T>)) -> Left {
        let Self(work) = self;
        work.refill();
        let mut events = [EpollEvent::empty(); LISTENERS];
        let Ok(waiting) = work.shared.epoll.wait(&mut events, EpollTimeout::ZERO) else {
            // A signal came.
            return Left::More;
        };
        let mut left = match waiting {
            LISTENERS => Left::More,
            _ => Left::Nothing,
        };
        for event in &events[..waiting] {
            match work.accept_turn(event.data(), TURN, give) {
                Left::Nothing => {}
                Left::More => left = Left::More,
                Left::Unable => return Left::Unable,
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    use socket2::SockRef;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::{Acceptor, Share};

    fn plenty() -> Arc<Share> {
        Share::new("pod".to_owned(), 1000)
    }

    fn listener() -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        // More than one turn's connections may wait.
        SockRef::from(&listener).listen(1000).unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into(), address)
    }

    #[test]
    fn a_listener_with_many_connections_waiting_delays_no_other_for_longer_than_its_turn() {
        let (acceptor, mut own) = Acceptor::without_thread().unwrap();
        let ((many, at_many), (one, at_one)) = (listener(), listener());
        let _registered = [
            acceptor.register(many, "many", &plenty(), 1).unwrap(),
            acceptor.register(one, "one", &plenty(), 1).unwrap(),
        ];
        let _many: Vec<_> = (0..4 * TURN)
            .map(|_| TcpStream::connect(at_many).unwrap())
            .collect();
        let _one = TcpStream::connect(at_one).unwrap();
        let given = std::cell::RefCell::new(Vec::new());
        let give = |accepted: Accepted<&'static str>| given.borrow_mut().push(accepted);
        assert_eq!(own.turn(&give), Left::More);
        let tags = |tag| given.borrow().iter().filter(|one| one.tag == tag).count();
        assert_eq!((tags("many"), tags("one")), (TURN, 1));
        while own.turn(&give) == Left::More {}
        assert_eq!(tags("many"), 4 * TURN);
        assert_eq!(acceptor.loads().read(), [4 * TURN + 1]);
        given.borrow_mut().clear();
        assert_eq!(acceptor.loads().read(), [0]);
    }

    #[test]
    fn however_many_listeners_have_connections_waiting_each_has_its_turn() {
        let (acceptor, mut own) = Acceptor::without_thread().unwrap();
        let listeners: Vec<_> = (0..3 * LISTENERS).map(|_| listener()).collect();
        let mut clients = Vec::new();
        let _registered: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(place, (socket, address))| {
                clients.extend((0..2 * TURN).map(|_| TcpStream::connect(address).unwrap()));
                acceptor.register(socket, place, &plenty(), 1).unwrap()
            })
            .collect();
        let given = std::cell::RefCell::new(vec![0; 3 * LISTENERS]);
        let give = |accepted: Accepted<usize>| given.borrow_mut()[accepted.tag] += 1;
        for _ in 0..3 {
            assert_eq!(own.turn(&give), Left::More);
        }
        assert_eq!(*given.borrow(), vec![TURN; 3 * LISTENERS]);
    }

    #[tokio::test]
    async fn a_runtime_hears_of_each_connection_and_none_comes_once_its_registration_is_dropped() {
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        let (sender, mut accepted) = mpsc::unbounded_channel();
        let accepting = own.run(|accepted| sender.send((accepted.tag, accepted.peer)).unwrap());
        let test = async {
            // A burst that takes several turns, and then one at a time.
            let (socket, address) = listener();
            let duplicate = TcpListener::from(socket.try_clone().unwrap());
            let registered = acceptor.register(socket, "pod", &plenty(), 1).unwrap();
            let mut clients = Vec::new();
            for burst in [5 * TURN, 1, 1] {
                let new = (0..burst).map(|_| TcpStream::connect(address).unwrap());
                let new: Vec<_> = new.collect();
                for client in &new {
                    let soon = timeout(Duration::from_secs(10), accepted.recv());
                    let (tag, peer) = soon.await.unwrap().unwrap();
                    assert_eq!((tag, peer), ("pod", client.local_addr().unwrap()));
                }
                clients.extend(new);
            }
            drop(registered);
            let _late = TcpStream::connect(address).unwrap();
            // Whoever has the listener as well takes what comes from now on.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(accepted.try_recv().is_err());
            duplicate.accept().unwrap();
        };
        tokio::select! {
            ended = accepting => panic!("{ended:?}"),
            () = test => {}
        }
    }
}

//! Acceptor without a thread, for a process with one worker: the worker accepts as a part of its other work.
//!
//! Its epoll says only which listeners have connections waiting. The accepting itself is handed out listener by listener, so
//! that its time is charged to the pod that the connections are for.

use std::cell::RefCell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lateen_os::Readiness;
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollTimeout};

use super::shared::Accepted;
use super::work::{Left, REST, Work};

/// Connections taken from one listener before other tasks have their turn: about as much work as a pod's turn has time for.
const TURN: usize = 16;
/// Listeners that one look at them names.
const LISTENERS: usize = 64;

/// What waits on all listeners of a process with one worker, for that worker's hands.
pub struct OwnAcceptor<T>(Work<T>);

impl<T> fmt::Debug for OwnAcceptor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnAcceptor")
    }
}

impl<T: Clone> OwnAcceptor<T> {
    pub(super) fn new(work: Work<T>) -> Self {
        Self(work)
    }

    /// Has the runtime that is entered watch the listeners.
    ///
    /// # Errors
    /// The kernel watches no more for this user (`fs.epoll.max_user_watches`), or has no memory to.
    pub fn watch(self) -> io::Result<Watching<T>> {
        let Self(work) = self;
        // Readable when connections wait.
        let epoll = Readiness::new(work.shared.epoll.0.as_fd().try_clone_to_owned()?)?;
        Ok(Watching { epoll, work })
    }
}

/// An [`OwnAcceptor`] whose listeners a runtime watches.
pub struct Watching<T> {
    epoll: Readiness,
    work: Work<T>,
}

impl<T> fmt::Debug for Watching<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}

impl<T: Clone> Watching<T> {
    /// Gives away each listener on which connections wait, for ever. One that was given away is not given again before
    /// its [`Waiting`] is done.
    ///
    /// # Errors
    /// The runtime cannot wait for connections, or ends.
    pub async fn run(self, serve: impl Fn(Waiting<T>)) -> io::Result<Infallible> {
        let Self { epoll, work } = self;
        let own = Own::new(work);
        loop {
            let mut ready = epoll.readable().await?;
            if own.look(&serve)? {
                tokio::task::yield_now().await;
            } else {
                // What comes from now on is told.
                ready.clear_ready();
            }
        }
    }
}

/// What accepting takes, and where it is under way.
struct Own<T> {
    work: RefCell<Work<T>>,
    given: RefCell<HashSet<u64>>,
}

impl<T: Clone> Own<T> {
    fn new(work: Work<T>) -> Rc<Self> {
        Rc::new(Self {
            work: RefCell::new(work),
            given: RefCell::default(),
        })
    }

    /// Gives away listeners on which connections have come since the last look. True if there may be more of them.
    ///
    /// The kernel names a listener once for what has come: whoever it was given to takes connections until none is left,
    /// and so takes those too that come meanwhile.
    fn look(self: &Rc<Self>, serve: &dyn Fn(Waiting<T>)) -> io::Result<bool> {
        let mut events = [EpollEvent::empty(); LISTENERS];
        let shared = Arc::clone(&self.work.borrow().shared);
        let named = match shared.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(named) => named,
            Err(Errno::EINTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for id in events[..named].iter().map(EpollEvent::data) {
            if self.given.borrow().contains(&id) {
                continue;
            }
            let tag = shared
                .lock()
                .by_id
                .get(&id)
                .map(|listener| listener.tag.clone());
            // Otherwise it was deregistered meanwhile.
            if let Some(tag) = tag {
                self.given.borrow_mut().insert(id);
                let own = Rc::clone(self);
                serve(Waiting { own, id, tag });
            }
        }
        Ok(named == LISTENERS)
    }
}

/// A listener on which connections wait. Dropped before [`Waiting::accept`] is done, it leaves them waiting until another
/// one comes.
pub struct Waiting<T> {
    own: Rc<Own<T>>,
    id: u64,
    tag: T,
}

impl<T: fmt::Debug> fmt::Debug for Waiting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiting").field(&self.tag).finish()
    }
}

impl<T: Clone> Waiting<T> {
    /// What the listener was registered with.
    pub fn tag(&self) -> &T {
        &self.tag
    }

    /// Accepts what waits, a few at each poll, and gives it away. `give` must not block, and must not register or drop a
    /// registration.
    pub async fn accept(self, give: impl Fn(Accepted<T>)) {
        loop {
            let left = {
                let mut work = self.own.work.borrow_mut();
                work.refill();
                work.accept_turn(self.id, TURN, &give)
            };
            match left {
                Left::Nothing => return,
                Left::More => again().await,
                Left::Unable => tokio::time::sleep(REST).await,
            }
        }
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        self.own.given.borrow_mut().remove(&self.id);
    }
}

/// Gives way to other tasks; unlike tokio's `yield_now` it does not wait for the runtime to look at its sockets.
async fn again() {
    let mut first = true;
    poll_fn(|cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollFlags};
    use tokio::sync::mpsc;
    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::timeout;

    use super::super::tests::{listener, plenty};
    use super::*;
    use crate::Acceptor;

    fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
        let connected = (0..count).map(|_| TcpStream::connect(address).unwrap());
        connected.collect()
    }

    /// What a look gives away, and whether there may be more.
    fn look<T: Clone>(own: &Rc<Own<T>>) -> (Vec<Waiting<T>>, bool) {
        let given = RefCell::new(Vec::new());
        let more = own.look(&|waiting| given.borrow_mut().push(waiting));
        (given.take(), more.unwrap())
    }

    #[test]
    fn whoever_is_given_a_listener_takes_one_turns_connections_at_a_time_until_none_is_left() {
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        let own = Own::new(own.0);
        let (socket, address) = listener();
        let _registered = acceptor.register(socket, "pod", &plenty(), 1).unwrap();
        let _clients = connect(address, 2 * TURN + 1);
        let (mut given, _) = look(&own);
        let held = RefCell::new(Vec::new());
        let waiting = given.pop().unwrap();
        assert_eq!(*waiting.tag(), "pod");
        let mut accepting = pin!(waiting.accept(|accepted| held.borrow_mut().push(accepted)));
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        while accepting.as_mut().poll(&mut cx).is_pending() {
            taken.push(held.borrow().len());
        }
        assert_eq!(taken, [TURN, 2 * TURN]);
        assert_eq!(held.borrow().len(), 2 * TURN + 1);
        assert_eq!(acceptor.loads().read(), [2 * TURN + 1]);
        held.borrow_mut().clear();
        assert_eq!(acceptor.loads().read(), [0]);
    }

    #[test]
    fn a_listener_is_given_to_one_at_a_time_and_again_for_what_comes_after() {
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        let own = Own::new(own.0);
        let (socket, address) = listener();
        let _registered = acceptor.register(socket, "pod", &plenty(), 1).unwrap();
        let _first = connect(address, 1);
        let (mut given, _) = look(&own);
        let _second = connect(address, 1);
        assert!(look(&own).0.is_empty(), "it is given away already");
        let held = RefCell::new(Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        for expected in [2, 3] {
            let waiting = given.pop().unwrap();
            let accepting = pin!(waiting.accept(|accepted| held.borrow_mut().push(accepted)));
            assert!(accepting.poll(&mut cx).is_ready());
            assert_eq!(held.borrow().len(), expected);
            let _third = connect(address, 1);
            given = look(&own).0;
        }
        assert_eq!(given.len(), 1);
    }

    #[test]
    fn however_many_listeners_have_connections_waiting_each_is_given_away() {
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        let own = Own::new(own.0);
        let mut clients = Vec::new();
        let _registered: Vec<_> = (0..LISTENERS + 1)
            .map(|place| {
                let (socket, address) = listener();
                clients.extend(connect(address, 1));
                acceptor.register(socket, place, &plenty(), 1).unwrap()
            })
            .collect();
        let (first, more) = look(&own);
        assert!(more);
        let (rest, more) = look(&own);
        assert!(!more);
        let mut places: Vec<_> = first.iter().chain(&rest).map(|one| *one.tag()).collect();
        places.sort_unstable();
        assert_eq!(places, (0..LISTENERS + 1).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn who_cannot_be_told_of_connections_learns_it_before_the_first() {
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        // As deep as the kernel lets epoll instances watch each other: the runtime's would be one too many.
        let epoll = || Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let mut chain = vec![epoll()];
        let mut registered = None;
        loop {
            let deepest = chain.last().unwrap();
            let socket = deepest.0.try_clone().unwrap();
            let Ok(done) = acceptor.register(socket, (), &plenty(), 1) else {
                break;
            };
            registered = Some(done);
            let outer = epoll();
            let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
            outer.add(&deepest.0, event).unwrap();
            chain.push(outer);
        }
        assert!(registered.is_some());
        let error = own.watch().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

    #[tokio::test]
    async fn a_runtime_hears_of_each_connection_and_none_comes_once_its_registration_is_dropped() {
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        let (sender, mut accepted) = mpsc::unbounded_channel();
        let accepting = own.watch().unwrap().run(|waiting| {
            let sender = sender.clone();
            spawn_local(waiting.accept(move |accepted| {
                sender.send((accepted.tag, accepted.peer)).unwrap();
            }));
        });
        let test = async {
            // A burst that takes several turns, and then one at a time.
            let (socket, address) = listener();
            let duplicate = TcpListener::from(socket.try_clone().unwrap());
            let registered = acceptor.register(socket, "pod", &plenty(), 1).unwrap();
            let mut clients = Vec::new();
            for burst in [256, 1, 1] {
                let new = connect(address, burst);
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
        let both = async {
            tokio::select! {
                ended = accepting => panic!("{ended:?}"),
                () = test => {}
            }
        };
        LocalSet::new().run_until(both).await;
    }
}

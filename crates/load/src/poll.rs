//! Waits until sockets are ready, with a deadline in nanoseconds. An ordinary event loop rounds its
//! timers to milliseconds, which is longer than the latencies to be measured.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

/// The most sockets that one wait reports.
const MOST: usize = 256;

/// A set of sockets and their readiness. Every socket is watched edge-triggered and in both
/// directions from the start, so that a connection costs one registration in its whole life.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    /// The findings of the last wait.
    ready: Vec<Ready>,
}

/// The readiness of one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token that the socket was added under.
    pub token: u64,
    /// There may be something to read, or an error to be found by reading.
    pub readable: bool,
    /// There may be room to write.
    pub writable: bool,
    /// The peer sent its last byte or the connection broke.
    pub ended: bool,
}

impl Poll {
    /// An empty set.
    pub fn new() -> io::Result<Poll> {
        Ok(Poll {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(MOST),
        })
    }

    /// Watches a socket for both directions. Closing it ends the watch.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            EventData::new_u64(token),
            flags,
        )?)
    }

    /// Watches for something to read as long as there is something: for listeners and signals.
    pub fn add_level(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, source, data, EventFlags::IN)?)
    }

    /// Waits until something happens or `timeout` passes, and returns how many sockets it happened to.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        // One that is too long for the kernel has no end.
        let timeout: Option<Timespec> = timeout.and_then(|timeout| timeout.try_into().ok());
        self.ready.clear();
        let mut events = [MaybeUninit::uninit(); MOST];
        match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok((events, _)) => self.ready.extend(events.iter().map(Ready::of)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.ready.len())
    }

    /// One finding of the last [`Poll::wait`]; `index` is less than the number that it returned.
    pub fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }
}

impl Ready {
    fn of(event: &epoll::Event) -> Ready {
        let (flags, broken) = (event.flags, EventFlags::ERR | EventFlags::HUP);
        Ready {
            token: event.data.u64(),
            readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken),
            writable: flags.intersects(EventFlags::OUT | broken),
            ended: flags.intersects(EventFlags::RDHUP | broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn reports_what_happened_under_its_token() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut poll = Poll::new().unwrap();
        poll.add(&far, 7).unwrap();
        assert_eq!(poll.wait(Some(Duration::ZERO)).unwrap(), 1);
        let first = poll.ready(0);
        assert!(first.token == 7 && first.writable, "{first:?}");
        assert!(!first.readable && !first.ended, "{first:?}");
        let again = poll.wait(Some(Duration::ZERO)).unwrap();
        assert_eq!(again, 0, "edges are reported once");
        near.write_all(b"x").unwrap();
        assert_eq!(poll.wait(None).unwrap(), 1);
        assert!(poll.ready(0).readable && !poll.ready(0).ended);
        drop(near);
        assert_eq!(poll.wait(None).unwrap(), 1);
        assert!(poll.ready(0).ended);
    }

    #[test]
    fn waits_for_less_than_a_millisecond() {
        let mut poll = Poll::new().unwrap();
        let waits = (0..50).map(|_| {
            let begin = Instant::now();
            poll.wait(Some(Duration::from_micros(100))).unwrap();
            begin.elapsed()
        });
        let fastest = waits.min().unwrap();
        let expected = Duration::from_micros(100)..Duration::from_micros(900);
        assert!(expected.contains(&fastest), "{fastest:?}");
    }
}

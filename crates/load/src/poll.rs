//! Waits until sockets are ready, with a deadline in nanoseconds. An ordinary event loop rounds its
//! timers to milliseconds, which is longer than the latencies to be measured.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// The most sockets that one wait reports.
const MOST: usize = 256;

/// A set of sockets and what happened to them. Every socket is watched edge-triggered and in both
/// directions from the start, so that a connection costs one registration in its whole life.
pub struct Poll {
    epoll: OwnedFd,
    batch: usize,
    /// What the last wait found.
    ready: Vec<Ready>,
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll")
            .field("epoll", &self.epoll)
            .finish_non_exhaustive()
    }
}

/// What happened to one socket.
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
    /// The connection broke: nothing that is written arrives any more.
    pub broken: bool,
}

impl Poll {
    /// An empty set that reports up to `batch` sockets at once, and never more than 256.
    pub fn new(batch: usize) -> io::Result<Poll> {
        Ok(Poll {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            batch: batch.clamp(1, MOST),
            ready: Vec::with_capacity(batch.clamp(1, MOST)),
        })
    }

    /// Watches a socket for both directions. Closing it ends the watch.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(token),
            flags,
        )?)
    }

    /// Watches for something to read as long as there is something: for listeners and signals.
    pub fn add_level(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            source,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        )?)
    }

    /// Waits until something happens or `timeout` passes, and returns how many sockets it happened to.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        self.ready.clear();
        let mut events = [MaybeUninit::uninit(); MOST];
        let events = &mut events[..self.batch];
        match epoll::wait(&self.epoll, events, timeout.as_ref()) {
            Ok((events, _)) => self.ready.extend(events.iter().map(Ready::of)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.ready.len())
    }

    /// What the last [`Poll::wait`] found, `index` being less than what it returned.
    pub fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }
}

impl Ready {
    fn of(event: &epoll::Event) -> Ready {
        let (flags, broken) = (event.flags, epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        Ready {
            token: event.data.u64(),
            readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP | broken),
            writable: flags.intersects(epoll::EventFlags::OUT | broken),
            ended: flags.intersects(epoll::EventFlags::RDHUP | broken),
            broken: flags.intersects(broken),
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
        let mut poll = Poll::new(8).unwrap();
        poll.add(&far, 7).unwrap();
        assert_eq!(poll.wait(Some(Duration::ZERO)).unwrap(), 1);
        assert_eq!(
            poll.ready(0),
            Ready {
                token: 7,
                readable: false,
                writable: true,
                ended: false,
                broken: false
            }
        );
        assert_eq!(
            poll.wait(Some(Duration::ZERO)).unwrap(),
            0,
            "edges are reported once"
        );
        near.write_all(b"x").unwrap();
        assert_eq!(poll.wait(None).unwrap(), 1);
        assert!(poll.ready(0).readable && !poll.ready(0).ended);
        drop(near);
        assert_eq!(poll.wait(None).unwrap(), 1);
        assert!(poll.ready(0).ended);
    }

    #[test]
    fn waits_for_less_than_a_millisecond() {
        let mut poll = Poll::new(1).unwrap();
        let fastest = (0..50)
            .map(|_| {
                let begin = Instant::now();
                poll.wait(Some(Duration::from_micros(100))).unwrap();
                begin.elapsed()
            })
            .min()
            .unwrap();
        assert!(
            (Duration::from_micros(100)..Duration::from_micros(900)).contains(&fastest),
            "{fastest:?}"
        );
    }
}

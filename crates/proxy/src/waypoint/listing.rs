//! Table of the clients' connections on a worker, for the page `/connections`.
//!
//! A connection is entered when it begins and leaves when it ends. Its numbers are copied once a turn, so a request costs nothing here.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lateen_types::{Identity, Strng};
use slab::Slab;

/// Places that one question looks at. A worker with many connections serves others between two questions.
const PLACES: usize = 256;

/// The clients' connections.
#[derive(Clone, Default)]
pub(super) struct Listing(Rc<RefCell<Slab<Rc<Entry>>>>);

/// The facts of a connection that hold for as long as it lives.
#[derive(Clone, Debug)]
pub struct About {
    /// The client's address.
    pub source: SocketAddr,
    /// The client's workload and its namespace, as far as they are known.
    pub workload: Option<Strng>,
    /// See `workload`.
    pub namespace: Option<Strng>,
    /// The identity that the client's proxy proved.
    pub identity: Identity,
    /// The address that was asked for.
    pub asked: SocketAddr,
    /// The destination.
    pub destination: Destination,
    /// The protocol that the client speaks.
    pub protocol: &'static str,
}

/// The destination of a connection.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The service of this host name.
    Service(Strng),
    /// A workload.
    Workload {
        /// Its namespace.
        namespace: Strng,
        /// Its name.
        name: Strng,
    },
}

/// A connection as operators see it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its facts.
    pub about: About,
    /// Requests under way; `None`: nobody reads its requests.
    pub requests: Option<usize>,
    /// Since it began.
    pub age: Duration,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
}

/// A part of a worker's connections.
#[derive(Debug, Default)]
pub struct Page {
    /// The connections.
    pub connections: Vec<Listed>,
    /// The place that the next part begins at; `None`: this is the last one.
    pub next: Option<usize>,
}

struct Entry {
    about: About,
    since: Instant,
    requests: Cell<Option<usize>>,
    received: Cell<u64>,
    sent: Cell<u64>,
}

/// The place of a connection, for as long as it lives.
pub(super) struct Seat {
    listing: Listing,
    key: usize,
    entry: Rc<Entry>,
}

impl Listing {
    /// Enters a connection.
    pub(super) fn enter(&self, about: About) -> Seat {
        let entry = Rc::new(Entry {
            about,
            since: Instant::now(),
            requests: Cell::new(None),
            received: Cell::new(0),
            sent: Cell::new(0),
        });
        let key = self.0.borrow_mut().insert(Rc::clone(&entry));
        Seat {
            listing: self.clone(),
            key,
            entry,
        }
    }

    /// The connections of the places behind `from`.
    pub(super) fn page(&self, from: usize) -> Page {
        let entries = self.0.borrow();
        let end = from.saturating_add(PLACES).min(entries.capacity());
        let taken = (from..end).filter_map(|key| entries.get(key));
        Page {
            connections: taken.map(|entry| entry.list()).collect(),
            next: (end < entries.capacity()).then_some(end),
        }
    }
}

impl Entry {
    fn list(&self) -> Listed {
        Listed {
            about: self.about.clone(),
            requests: self.requests.get(),
            age: self.since.elapsed(),
            received: self.received.get(),
            sent: self.sent.get(),
        }
    }
}

impl Seat {
    /// Notes the requests under way, and the bytes so far: received, then sent.
    pub(super) fn note(&self, requests: usize, (received, sent): (u64, u64)) {
        self.entry.requests.set(Some(requests));
        self.entry.received.set(received);
        self.entry.sent.set(sent);
    }

    /// Counts bytes from the client.
    pub(super) fn add_received(&self, bytes: u64) {
        let received = &self.entry.received;
        received.set(received.get() + bytes);
    }

    /// Counts bytes to the client.
    pub(super) fn add_sent(&self, bytes: u64) {
        let sent = &self.entry.sent;
        sent.set(sent.get() + bytes);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.listing.0.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(number: u16) -> About {
        About {
            source: ([127, 0, 0, 1], number).into(),
            workload: None,
            namespace: None,
            identity: Identity::new("cluster.local", "default", "client").unwrap(),
            asked: ([10, 96, 0, 1], 80).into(),
            destination: Destination::Service("server".into()),
            protocol: "HTTP/1.1",
        }
    }

    #[test]
    fn pages_have_each_connection_once_and_are_bounded() {
        let listing = Listing::default();
        let mut seats: Vec<_> = (0..1000).map(|n| listing.enter(about(n))).collect();
        seats.retain(|seat| seat.key % 3 == 0);
        let (mut ports, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let page = listing.page(place);
            assert!(page.connections.len() <= PLACES);
            let listed = page.connections.iter();
            ports.extend(listed.map(|listed| listed.about.source.port()));
            from = page.next;
        }
        let expected: Vec<u16> = (0..1000).filter(|n| n % 3 == 0).collect();
        assert_eq!(ports, expected);
        drop(seats);
        assert!(listing.page(0).connections.is_empty());
    }
}

//! Addresses of endpoints that are known by hostname, from the system's resolver, kept for a few seconds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use lateen_types::Strng;
use tokio::time::Instant;

/// How long addresses are used before the resolver is asked again: Envoy's default where a record has no TTL.
const KEPT: Duration = Duration::from_secs(5);

/// Names that are kept; with more, those that are out of date go.
const MOST: usize = 1024;

/// The addresses of a name, and until when they are used.
type Answer = (Rc<[IpAddr]>, Instant);

/// The names that were resolved on this worker.
#[derive(Debug, Default)]
pub(super) struct Names(RefCell<HashMap<Strng, Answer>>);

impl Names {
    /// The addresses of a hostname.
    ///
    /// # Errors
    /// The resolver has no answer.
    pub(super) async fn resolve(&self, hostname: &Strng) -> io::Result<Rc<[IpAddr]>> {
        let now = Instant::now();
        if let Some((addresses, until)) = self.0.borrow().get(hostname)
            && *until > now
        {
            return Ok(Rc::clone(addresses));
        }
        let found = tokio::net::lookup_host((&**hostname, 0)).await?;
        let addresses: Rc<[IpAddr]> = found.map(|address| address.ip()).collect();
        let mut names = self.0.borrow_mut();
        if names.len() >= MOST {
            names.retain(|_, (_, until)| *until > now);
        }
        if names.len() < MOST {
            let until = Instant::now() + KEPT;
            names.insert(hostname.clone(), (Rc::clone(&addresses), until));
        }
        Ok(addresses)
    }
}

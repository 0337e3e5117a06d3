//! Tunnels on the `h2` crate, behind the same interface as those on our own HTTP/2.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod stream;

use crate::headers::{self, Baggage};

/// What small DATA frames that nobody took yet may cost us, in the HTTP/2 layer's measure (a frame below
/// 256 bytes costs what it lacks); beyond it the connection ends. Readers take them as they come.
const SMALL_FRAMES: usize = 8 << 20;

fn read_baggage(headers: &http::HeaderMap) -> Option<Baggage> {
    let mut lines = headers
        .get_all(headers::BAGGAGE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let mut baggage = Baggage::parse(lines.next()?);
    lines.for_each(|line| baggage.read(line));
    Some(baggage)
}

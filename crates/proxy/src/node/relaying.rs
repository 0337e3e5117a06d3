//! Relay of a connection whose two ends are reached, until it ends or is cut. Each relay is one future that owns the whole
//! state of the connection. A second owner would reserve memory for that state again.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use lateen_relay::{Duplex, Limits, Meter, Outcome, Relay, RelayError, Side, Socket};
use lateen_runtime::{Turn, count_turn};
use lateen_telemetry::Connection;

use super::refusal::Refusal;
use crate::connection_table::{Cut, Tracked};
use crate::tunnels::Revoked;

/// What a connection leaves behind in counters and tables, as long as it lives.
pub(super) struct Records {
    pub(super) connection: Box<Connection>,
    pub(super) tracked: Tracked,
}

/// Counts a relay's bytes; `a` of the relay is the client.
impl Meter for Records {
    fn sent(&self, bytes: u64) {
        self.connection.add_received(bytes);
        self.tracked.add_received(bytes);
    }

    fn received(&self, bytes: u64) {
        self.connection.add_sent(bytes);
        self.tracked.add_sent(bytes);
    }
}

/// The records of a connection both of whose ends are here: the source's and the destination's.
pub(super) struct Both<R>(pub(super) R, pub(super) R);

impl<R: Meter> Meter for Both<R> {
    fn sent(&self, bytes: u64) {
        self.0.sent(bytes);
        self.1.sent(bytes);
    }

    fn received(&self, bytes: u64) {
        self.0.received(bytes);
        self.1.received(bytes);
    }
}

/// Relays a connection until it ends or is cut, and says how it ended. An async fn would have room for both ends twice, as
/// its arguments and in the relay.
pub(super) fn relay<A: Duplex, B: Duplex>(
    client: A,
    server: B,
    records: Records,
    limits: Limits,
) -> impl Future<Output = (Records, Result<(), Refusal>)> {
    records.tracked.opened();
    let mut relay = Relay::new(client, server, records).limited(limits);
    async move {
        let outcome = poll_fn(|cx| {
            count_turn(Turn::Other);
            match relay.meter().tracked.poll_cut(cx) {
                // First: a relay that ends because it was cut must say so.
                Poll::Ready(reason) => Poll::Ready(Err(reason)),
                Poll::Pending => Pin::new(&mut relay).poll(cx).map(Ok),
            }
        });
        let outcome = match outcome.await {
            Ok(Outcome { error: None, .. }) => Ok(()),
            Ok(Outcome {
                error: Some(error), ..
            }) if revoked(&error) => Err(Refusal::Cut(Cut::Revoked)),
            Ok(Outcome {
                error: Some(error), ..
            }) => Err(Refusal::Broken(error)),
            Err(reason) => {
                relay.abort();
                Err(Refusal::Cut(reason))
            }
        };
        (relay.into_meter(), outcome)
    }
}

/// How the two connections ended that a handed over one is to the counters: the source's and the destination's.
pub(super) type Ends = [Result<(), Refusal>; 2];

/// Relays a connection both of whose ends are here, until it ends or either of them is cut, and says how each ended.
pub(super) fn relay_both(
    client: Socket,
    application: Socket,
    records: Both<Records>,
    limits: Limits,
) -> impl Future<Output = (Both<Records>, Ends)> {
    let Both(source, destination) = &records;
    destination.tracked.opened();
    source.tracked.opened();
    let mut relay = Relay::new(client, application, records).limited(limits);
    async move {
        let outcome = poll_fn(|cx| {
            count_turn(Turn::WithinNode);
            let Both(source, destination) = relay.meter();
            for tracked in [&source.tracked, &destination.tracked] {
                if let Poll::Ready(reason) = tracked.poll_cut(cx) {
                    return Poll::Ready(Err(reason));
                }
            }
            Pin::new(&mut relay).poll(cx).map(Ok)
        });
        let outcome = outcome.await;
        if outcome.is_err() {
            relay.abort();
        }
        let records = relay.into_meter();
        let ends = ended(outcome, &records.0.tracked, &records.1.tracked);
        (records, ends)
    }
}

/// What the end of their relay, or what cut it, is to the source and the destination.
pub(super) fn ended(
    outcome: Result<Outcome, Cut>,
    source: &Tracked,
    destination: &Tracked,
) -> Ends {
    match outcome {
        Ok(Outcome { error: None, .. }) => [Ok(()), Ok(())],
        Ok(Outcome {
            error: Some(error), ..
        }) => {
            let again = error.again();
            [error, again].map(|error| Err(Refusal::Broken(error)))
        }
        Err(reason) => {
            // The end that was not cut sees what a peer's reset shows.
            let end = |tracked: &Tracked, other: Side| match tracked.was_cut() {
                Some(reason) => Err(Refusal::Cut(reason)),
                None => Err(Refusal::Broken(RelayError::Broken {
                    side: other,
                    source: io::Error::new(
                        io::ErrorKind::ConnectionReset,
                        format!("cut at the other end of this node ({})", reason.as_str()),
                    ),
                })),
            };
            [end(source, Side::Second), end(destination, Side::First)]
        }
    }
}

/// Whether a stream broke because its tunnel's peer was revoked.
fn revoked(error: &RelayError) -> bool {
    matches!(error, RelayError::Broken { source, .. } if Revoked::is(source))
}

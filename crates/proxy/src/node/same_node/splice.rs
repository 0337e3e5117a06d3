//! In-kernel relay of a connection between two pods of this process, once the connection has been used for a while.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use lateen_bpf_splice::{Accelerator, Declined, End, Joined};
use lateen_netns::original_destination;
use lateen_relay::{Meter, Outcome, Relay, Socket};
use lateen_runtime::{Turn, count_turn};
use tokio::time::Instant;

use super::handover::Near;
use crate::node::refusal::Refusal;
use crate::node::relaying::{Both, Records, ended};
use crate::node::state::Node;
use crate::pod::Pod;

/// Turns of a relay before it is worth the effort, which is that of two or three. A connection for one request has fewer.
const TURNS: u32 = 16;
/// How often the kernel's counts are read while it moves bytes, and how long what could not be joined is relayed before the
/// next try.
const SOON: Duration = Duration::from_secs(1);
/// How often they are read while it does not, and the longest between two tries.
const LATE: Duration = Duration::from_secs(16);

/// Tries of a connection whose application waits in its calls. Each holds its relay up for two visits, behind others, and an
/// application that has not set `O_NONBLOCK` by the last of them, seven seconds later, does not.
const BLOCKING: u32 = 4;

/// When a connection that could not be joined is tried again.
#[derive(Default)]
struct Retries {
    blocking: u32,
    pause: Duration,
}

impl Retries {
    /// How long it is relayed until the next try; `None` for good.
    fn after(&mut self, declined: &Declined) -> Option<Duration> {
        if matches!(declined, Declined::Blocking) {
            self.blocking += 1;
        }
        if !declined.may_change() || self.blocking == BLOCKING {
            return None;
        }
        self.pause = (self.pause * 2).clamp(SOON, LATE);
        Some(self.pause)
    }
}

/// How a connection gets past the process.
#[derive(Default)]
struct Splice {
    joined: RefCell<Option<Joined>>,
    /// What of it is in the counters, from the client and from the server.
    counted: Cell<[u64; 2]>,
}

impl Splice {
    /// Lets the bytes pass that the applications of the two pods send from now on. Nobody may relay meanwhile.
    async fn join(
        &self,
        accelerator: &Arc<Accelerator>,
        sockets: (&Socket, &Socket),
        pods: [&Arc<Pod>; 2],
    ) -> Result<(), Declined> {
        let (client, server) = sockets;
        // The client's application knows the one that it dialled, wherever it was led to.
        let (own, local) = client.addresses().map_err(Declined::Own)?;
        let dialled = original_destination(client).unwrap_or(own);
        let (source, serving) = server.addresses().map_err(Declined::Own)?;
        let joined = accelerator.join(client.as_fd(), server.as_fd())?;
        let visits = [
            joined.visit(End::Client, local, dialled),
            joined.visit(End::Server, serving, source),
        ];
        for (visit, pod) in visits.into_iter().zip(pods) {
            let found = pod.sockets.visit(move || visit.run()).await;
            found.map_err(Declined::Visit)??;
        }
        joined.open();
        self.joined.replace(Some(joined));
        Ok(())
    }

    /// How long the kernel's counts may wait to be read, after `last` was read a moment ago.
    fn pause(&self, last: &mut u64, before: Duration) -> Duration {
        let [forth, back] = self.counted.get();
        let moves = std::mem::replace(last, forth + back) != forth + back;
        if moves {
            SOON
        } else {
            (before * 2).clamp(SOON, LATE)
        }
    }

    /// Counts what has passed since the last time; how many bytes did in all.
    fn count(&self, meter: &impl Meter) -> u64 {
        let joined = self.joined.borrow();
        if let Some(joined) = &*joined {
            self.take(joined.moved(), meter);
        }
        let [forth, back] = self.counted.get();
        forth + back
    }

    fn take(&self, now: [u64; 2], meter: &impl Meter) {
        let before = self.counted.replace(now);
        let [forth, back] = [0, 1].map(|end| now[end].saturating_sub(before[end]));
        if forth > 0 {
            meter.sent(forth);
        }
        if back > 0 {
            meter.received(back);
        }
    }

    /// Whether the kernel lets nothing pass any more.
    fn left(&self) -> bool {
        self.joined.borrow().as_ref().is_some_and(Joined::left)
    }

    /// Lets nothing pass any more, and counts the rest. To be called before either socket is closed.
    fn end(&self, meter: &impl Meter) {
        if let Some(mut joined) = self.joined.take() {
            self.take(joined.end(), meter);
        }
    }
}

/// A relay's meter that counts what passes the relay by as well.
struct Beside<'a, M>(&'a M, &'a Splice);

impl<M: Meter> Meter for Beside<'_, M> {
    fn sent(&self, bytes: u64) {
        self.0.sent(bytes);
    }

    fn received(&self, bytes: u64) {
        self.0.received(bytes);
    }

    fn beside(&self) -> u64 {
        self.1.count(self.0)
    }
}

/// Relays as `relay_both`, and once the connection has shown that it is used its bytes pass in the kernel, if they can; the
/// end is told to the destination and given to the source. Boxed: connections that are not to be joined have no room for it.
pub(in crate::node) fn relay_joined(
    node: Rc<Node>,
    client: Socket,
    near: Box<Near>,
    pod: Arc<Pod>,
    source: Records,
) -> LocalBoxFuture<'static, (Records, Result<(), Refusal>)> {
    Box::pin(async move {
        let (application, destination, stay) = near.parts();
        destination.tracked.opened();
        source.tracked.opened();
        let meter = Both(&source, &destination);
        let splice = Splice::default();
        let beside = Beside(&meter, &splice);
        let mut relay = Relay::new(client, application, beside).limited(node.limits);
        let pods = [&pod, &destination.tracked.facts().pod];
        let outcome = tokio::select! {
            biased;
            reason = source.tracked.cut() => Err(reason),
            reason = destination.tracked.cut() => Err(reason),
            outcome = run(&node, &mut relay, &splice, &meter, pods) => Ok(outcome),
        };
        // Before either socket is closed: what is not allowed any more does not pass for another moment.
        splice.end(&meter);
        if outcome.is_err() {
            relay.abort();
        }
        drop(relay);
        let [ended, at_destination] = ended(outcome, &source.tracked, &destination.tracked);
        stay.finish(&node, destination, at_destination);
        (source, ended)
    })
}

/// Relays a connection that the kernel does not take.
fn in_this_process(
    mut relay: impl Future<Output = Outcome> + Unpin,
) -> impl Future<Output = Outcome> {
    poll_fn(move |context| {
        count_turn(Turn::WithinNode);
        Pin::new(&mut relay).poll(context)
    })
}

/// Relays; from some moment on what is left to relay is the connection's end, or what comes after an application has changed
/// its ways.
async fn run<M: Meter>(
    node: &Node,
    relay: &mut Relay<Socket, Socket, Beside<'_, M>>,
    splice: &Splice,
    meter: &M,
    pods: [&Arc<Pod>; 2],
) -> Outcome {
    let Some(accelerator) = &node.accelerator else {
        return in_this_process(relay).await;
    };
    let (mut turns, mut due, mut retries) = (0, None, Retries::default());
    loop {
        let used = poll_fn(|context| {
            count_turn(Turn::WithinNode);
            match Pin::new(&mut *relay).poll(context) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => {
                    turns = u32::saturating_add(turns, 1);
                    let now = turns >= TURNS && due.is_none_or(|due| Instant::now() >= due);
                    match now && relay.clear().is_some() {
                        true => Poll::Ready(None),
                        false => Poll::Pending,
                    }
                }
            }
        });
        if let Some(outcome) = used.await {
            return outcome;
        }
        let Some(sockets) = relay.clear() else {
            continue;
        };
        let Err(declined) = splice.join(accelerator, sockets, pods).await else {
            break;
        };
        tracing::debug!(error = %declined, "a connection between two pods of this node stays in the proxy");
        let Some(pause) = retries.after(&declined) else {
            return in_this_process(relay).await;
        };
        due = Some(Instant::now() + pause);
    }
    node.metrics.joined();
    let (mut last, mut pause) = (0, Duration::ZERO);
    loop {
        pause = splice.pause(&mut last, pause);
        let left = poll_fn(|context| match Pin::new(&mut *relay).poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if splice.left() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        tokio::select! {
            biased;
            left = left => match left {
                Some(outcome) => return outcome,
                None => break,
            },
            () = tokio::time::sleep(pause) => {}
        }
    }
    splice.end(meter);
    tracing::debug!(
        "a connection between two pods of this node goes through the proxy again: an application waits in its calls"
    );
    relay.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_waits_in_its_calls_is_tried_four_times() {
        let mut retries = Retries::default();
        let pauses: Vec<_> = std::iter::from_fn(|| retries.after(&Declined::Blocking))
            .take(10)
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4]);
    }

    #[test]
    fn what_found_no_room_is_tried_for_as_long_as_it_is_used() {
        let mut retries = Retries::default();
        let pauses: Vec<_> = std::iter::from_fn(|| retries.after(&Declined::Full))
            .take(7)
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn what_does_not_change_is_not_tried_again() {
        assert_eq!(Retries::default().after(&Declined::Special), None);
    }
}

//! State that the requests of one HTTP/2 connection share, and waits on its streams.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};

use super::alarms::Alarms;
use super::context::World;

/// What the requests of one connection share with it.
#[derive(Debug)]
pub struct Link {
    /// What all connections share.
    pub world: Rc<World>,
    /// Their delays.
    pub alarms: Alarms,
    /// When their bodies must have arrived.
    pub bodies: Alarms,
    /// Whether no further request shall be taken.
    stop: Cell<bool>,
    /// Who ends then, having nothing else to wait for.
    idle: RefCell<BTreeMap<u64, Waker>>,
    next: Cell<u64>,
}

impl Link {
    /// For a connection of the service.
    pub fn new(world: &Rc<World>) -> Link {
        Link {
            world: Rc::clone(world),
            alarms: Alarms::default(),
            bodies: Alarms::default(),
            stop: Cell::new(false),
            idle: RefCell::default(),
            next: Cell::default(),
        }
    }

    /// True once the connection takes no further request.
    pub fn is_stopped(&self) -> bool {
        self.stop.get()
    }

    /// Ends once the connection takes no further request.
    pub async fn stopped(&self) {
        let idle = Idle(self, self.next.get());
        self.next.set(idle.1 + 1);
        poll_fn(|context| {
            if self.stop.get() {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            self.idle.borrow_mut().insert(idle.1, waker);
            Poll::Pending
        })
        .await;
    }

    /// Takes no further request on the connection.
    pub fn stop(&self) {
        self.stop.set(true);
        self.idle.take().into_values().for_each(Waker::wake);
    }
}

/// Takes one who waits no more, for whatever reason, off the list.
struct Idle<'a>(&'a Link, u64);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.idle.borrow_mut().remove(&self.1);
    }
}

/// Waits for something, but no longer than for the client to give the request up: what nobody waits for
/// must not be held.
pub async fn unless_reset(
    mut poll_reset: impl FnMut(&mut Context<'_>) -> Poll<Result<Reason, h2::Error>>,
    something: impl Future<Output = ()>,
) -> Result<(), h2::Error> {
    let mut something = pin!(something);
    poll_fn(|context| {
        if something.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        poll_reset(context).map(|reset| Err(reset.map_or_else(|error| error, h2::Error::from)))
    })
    .await
}

/// Reads the next piece of a body.
pub async fn read(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let piece = poll_fn(|context| body.poll_data(context))
        .await
        .transpose()?;
    if let Some(piece) = &piece {
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(piece)
}

/// Waits until the peer takes some bytes, and returns how many; at least one unless `wanted` is none.
pub async fn reserve(stream: &mut SendStream<Bytes>, wanted: usize) -> Result<usize, h2::Error> {
    stream.reserve_capacity(wanted);
    if wanted == 0 {
        return Ok(0);
    }
    loop {
        if stream.capacity() > 0 {
            return Ok(stream.capacity().min(wanted));
        }
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(outcome) => {
                outcome?;
            }
            None => return Err(Reason::CANCEL.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_gave_up_is_not_waited_for() {
        let mut context = Context::from_waker(Waker::noop());
        let given_up = |_: &mut Context<'_>| Poll::Ready(Ok(Reason::CANCEL));
        let waits = |_: &mut Context<'_>| Poll::Pending;
        let mut outcome = pin!(unless_reset(given_up, std::future::pending()));
        let Poll::Ready(Err(error)) = outcome.as_mut().poll(&mut context) else {
            panic!("it waits");
        };
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        let mut outcome = pin!(unless_reset(waits, std::future::pending()));
        assert!(outcome.as_mut().poll(&mut context).is_pending());
        let mut outcome = pin!(unless_reset(waits, std::future::ready(())));
        assert!(matches!(
            outcome.as_mut().poll(&mut context),
            Poll::Ready(Ok(()))
        ));
    }
}

//! HTTP/1.1 on one connection: read a request, wait if it asks for that, and write the answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use lateen_exchange::Protocol;
use lateen_exchange::server::{Connection, Exchange};
use lateen_http::{FramedRequest, Length};
use tokio::time::timeout;

use super::context::{Ending, Session};
use super::params::Params;
use super::reply::{Course, Reply};
use super::wire::Wire;
use super::{request, response};

/// The server's side of HTTP/1.1.
struct Http1 {
    connection: Connection<Wire>,
    session: Session,
    /// None once the connection takes no further request.
    ending: Option<Pin<Box<dyn Future<Output = Ending>>>>,
}

/// Serves a connection until it is over.
pub async fn serve(wire: Wire, session: Session) {
    let mut http1 = Http1 {
        connection: Connection::new(wire, session.world.config(Protocol::Http1)),
        ending: Some(Box::pin(session.clone().ending())),
        session,
    };
    while let Some((request, exchange)) = http1.next().await {
        if http1.answer(request, exchange).await.is_none() {
            return;
        }
    }
}

/// Ends when the connection shall end, and never if it ends already.
async fn ended(ending: &mut Option<Pin<Box<dyn Future<Output = Ending>>>>) -> Ending {
    match ending {
        Some(ending) => ending.await,
        None => std::future::pending().await,
    }
}

impl Http1 {
    /// The next request; none when the connection is over.
    async fn next(&mut self) -> Option<(FramedRequest, Exchange)> {
        loop {
            tokio::select! {
                biased;
                next = self.connection.next() => return next.ok().flatten(),
                _ = ended(&mut self.ending) => self.drain(),
            }
        }
    }

    /// Takes no request after the one that is open.
    fn drain(&mut self) {
        self.ending = None;
        self.connection.drain();
    }

    /// Answers a request. None if the connection ends instead.
    async fn answer(&mut self, request: FramedRequest, exchange: Exchange) -> Option<()> {
        let persists = request.persists();
        let (reply, params) = self.decide(request, &exchange).await?;
        if !params.delay.is_zero() {
            let session = self.session.clone();
            let delay = session.delay(params.delay);
            self.along(persists, delay).await?;
        }
        let reply = reply.filter(|reply| reply.status >= 200)?;
        if params.close || self.session.world.closing.is_set() {
            self.drain();
        }
        self.session.facts.nodelay.set(params.nodelay);
        let date = self.session.world.date.borrow_mut().now();
        let sending = response::send(&exchange, reply, params.writes, date);
        self.along(false, sending).await?.ok()
    }

    /// Reads a request to its end and decides over it. None if the connection ends before.
    async fn decide(
        &mut self,
        request: FramedRequest,
        exchange: &Exchange,
    ) -> Option<(Option<Reply>, Params)> {
        let last = Params {
            close: true,
            ..Params::default()
        };
        let head = match request::head(request, &self.session.world) {
            Ok(head) => head,
            Err(reply) => return Some((Some(reply), last)),
        };
        let mut body = Some(Bytes::new());
        if head.length() != Length::None {
            let limit = self.session.world.timeouts.request();
            let reading = timeout(limit, request::body(exchange, false));
            body = self.along(false, reading).await?.ok()?.ok()?;
        }
        let Some(body) = body else {
            return Some((Some(request::too_large()), last));
        };
        Some(
            match self.session.world.course(request::asked(&head, body)) {
                Course::Answer(reply, params) => (Some(reply), params),
                Course::HangUp(params) => (None, params),
            },
        )
    }

    /// Moves the connection until `work` is done. None if the connection is over or idle before.
    ///
    /// With `leaves` a client that has sent its last byte has gone. Another one may wait with its half closed.
    async fn along<T>(&mut self, leaves: bool, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let (connection, facts) = (&mut self.connection, &self.session.facts);
            let over = poll_fn(|cx| {
                let is_over = connection.poll_next(cx).is_ready();
                let is_gone = facts.broken.get() || leaves && facts.ended.get();
                if is_over || is_gone {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = over => return None,
                ending = ended(&mut self.ending) => match ending {
                    Ending::Stopped => self.drain(),
                    Ending::Idle | Ending::Overdue => return None,
                },
            }
        }
    }
}

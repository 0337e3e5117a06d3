//! HTTP of either version on one connection: each request is read, held back if it asks for that, and answered.
//! `writes` and `nodelay` have no meaning over HTTP/2, on a connection that many requests share.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lateen_exchange::server::{Connection, Exchange};
use lateen_exchange::{Error, Protocol};
use lateen_h2::Code;
use lateen_http::{
    Canonical, FieldValue, FramedRequest, Known, Length, Method, RequestHead, Rules,
};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::context::{Ending, Link, Session, World, unless_gone};
use super::params::Params;
use super::reply::{Asked, Reply};
use super::wire::Wire;
use super::{grpc, response};

/// The largest body that is kept to be echoed, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// The end of a request other than by an answer.
#[derive(Debug)]
enum Unanswered {
    /// The stream or the connection is gone, and nobody waits for more.
    Gone,
    /// The client shall see the end of the request without an answer.
    HungUp,
}

impl From<Error> for Unanswered {
    fn from(_: Error) -> Unanswered {
        Unanswered::Gone
    }
}

/// Serves a connection until it is over.
pub async fn serve(wire: Wire, session: Session, protocol: Protocol) {
    let mut connection = Connection::new(wire, session.world.config(protocol));
    let link = Rc::new(Link {
        session: session.clone(),
        stop: CancellationToken::new(),
        protocol,
        leaves: Cell::default(),
    });
    let mut ending: Pin<Box<dyn Future<Output = Ending>>> = Box::pin(session.clone().ending());
    let mut answers = FuturesUnordered::new();
    let mut drains = false;
    loop {
        tokio::select! {
            biased;
            // A request of HTTP/1 that has no answer leaves the connection with nothing to go on.
            Some(goes_on) = answers.next() => match goes_on {
                true => {}
                false => return,
            },
            next = connection.next() => match next {
                Ok(Some((request, exchange))) => answers.push(answer(request, exchange, Rc::clone(&link))),
                Ok(None) | Err(_) => return,
            },
            why = &mut ending => {
                link.stop.cancel();
                ending = match why {
                    Ending::Stopped => Box::pin(pending()),
                    Ending::Idle if protocol == Protocol::Http1 && !answers.is_empty() => return,
                    // Clients learn that they may try elsewhere.
                    Ending::Idle => Box::pin(session.clone().overdue()),
                    Ending::Overdue => return,
                };
            }
            // The branches above alone set the state of both.
            () = when(|| link.is_left()) => return,
            () = when(|| link.stop.is_cancelled()), if !drains => {
                drains = true;
                connection.drain();
            }
        }
    }
}

/// Ready if something is so when it is polled.
async fn when(is: impl Fn() -> bool) {
    poll_fn(|_| if is() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Answers a request. False if the connection ends with it.
async fn answer(request: FramedRequest, exchange: Exchange, link: Rc<Link>) -> bool {
    let persists = request.persists();
    let answered = match canonical(request, &link.session.world) {
        // Boxed, so that a request pays for its own protocol alone.
        Ok(head) if link.is_http2() && grpc::is_grpc(&head) => {
            let call = grpc::answer(&head, &exchange, &link);
            Box::pin(call).await.map_err(Unanswered::from)
        }
        Ok(head) => link.echo(&head, &exchange, persists).await,
        Err(reply) => link.refuse(reply, &exchange).await,
    };
    if matches!(answered, Err(Unanswered::HungUp)) {
        exchange.reset(Code::INTERNAL_ERROR);
    }
    answered.is_ok() || link.is_http2()
}

impl Link {
    async fn echo(
        &self,
        head: &RequestHead,
        exchange: &Exchange,
        persists: bool,
    ) -> Result<(), Unanswered> {
        let world = &self.session.world;
        let mut content = Some(Bytes::new());
        if head.length() != Length::None {
            let reading = self.body(exchange);
            content = match timeout(world.timeouts.request, reading).await {
                Ok(content) => content?,
                Err(_) if self.is_http2() => {
                    let reply = Reply::text(408, "the body did not arrive in time");
                    return self.refuse(reply, exchange).await;
                }
                Err(_) => return Err(Unanswered::Gone),
            };
        }
        let Some(content) = content else {
            let reply = Reply::text(400, "body is larger than 1 MiB");
            return self.refuse(reply, exchange).await;
        };
        let (reply, params) = world.answer(asked(head, content));
        if !params.delay.is_zero() {
            self.leaves.set(persists && !self.is_http2());
            unless_gone(exchange, self.session.delay(params.delay)).await?;
            self.leaves.set(false);
        }
        // 101 changes the protocol of a connection, and nothing is spoken then.
        let reply = reply.filter(|reply| reply.status >= 200);
        if params.close {
            self.stop.cancel();
        }
        let reply = reply.ok_or(Unanswered::HungUp)?;
        self.send(reply, exchange, &params).await
    }

    /// Sends the refusal of a request, after which HTTP/1 does not go on.
    async fn refuse(&self, reply: Reply, exchange: &Exchange) -> Result<(), Unanswered> {
        if !self.is_http2() {
            self.stop.cancel();
        }
        self.send(reply, exchange, &Params::default()).await
    }

    async fn send(
        &self,
        reply: Reply,
        exchange: &Exchange,
        params: &Params,
    ) -> Result<(), Unanswered> {
        let world = &self.session.world;
        let mut writes = 1;
        if !self.is_http2() {
            if world.closing.is_cancelled() {
                self.stop.cancel();
            }
            // The connection learns that it ends before the head of the answer says so.
            if self.stop.is_cancelled() {
                yield_now().await;
            }
            self.session.facts.delays.set(!params.nodelay);
            writes = params.writes;
        }
        let date = world.date.borrow_mut().now();
        Ok(response::send(exchange, reply, writes, date).await?)
    }

    /// Reads a body that is held to be echoed; none if it is too long for that.
    async fn body(&self, exchange: &Exchange) -> Result<Option<Bytes>, Error> {
        let mut content = BytesMut::new();
        let mut fits = true;
        while let Some(piece) = exchange.data().await? {
            fits &= content.len() + piece.len() <= MAX_BODY;
            if fits {
                content.extend_from_slice(&piece);
            } else if !self.is_http2() {
                break;
            }
            // A client of HTTP/2 that is cut short would lose the answer, too.
        }
        Ok(fits.then(|| content.freeze()))
    }
}

/// The canonical head of a request, or the answer that refuses it.
fn canonical(request: FramedRequest, world: &World) -> Result<RequestHead, Reply> {
    let mut id = || world.request_id.clone();
    match request.canonical(&Rules::default(), &world.downstream, &mut id) {
        Ok(Canonical::Request(head)) => Ok(head),
        Ok(Canonical::Connect(_)) => Err(Reply::text(405, "no tunnels here")),
        Err(refusal) => Err(Reply::text(refusal.status().code(), &refusal.to_string())),
    }
}

/// The facts of a request on which its answer depends.
fn asked(head: &RequestHead, body: Bytes) -> Asked {
    let fields = head.fields();
    let content_type = fields.get(Known::ContentType);
    let mut encodings = fields.all(Known::AcceptEncoding);
    Asked {
        head: *head.method() == Method::HEAD,
        target: String::from_utf8_lossy(head.path().target()).into_owned(),
        content_type: content_type.and_then(|value| FieldValue::new(value.to_vec())),
        accepts_gzip: encodings.any(|value| value.windows(4).any(|part| part == b"gzip")),
        body,
    }
}

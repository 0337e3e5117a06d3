//! HTTP/2 on one connection. Its requests are answered as over HTTP/1.1, except that `writes` and `nodelay` have no meaning
//! on a connection that many share.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lateen_exchange::server::{Connection, Exchange};
use lateen_exchange::{Error, Protocol};
use lateen_h2::Code;
use lateen_http::{FramedRequest, RequestHead};
use tokio::time::timeout;

use super::context::{Ending, Session, Stop};
use super::link::{Link, unless_gone};
use super::reply::{Course, Reply};
use super::wire::Wire;
use super::{grpc, request, response};

/// Serves a connection until it is over.
pub async fn serve(wire: Wire, session: Session) {
    let mut connection = Connection::new(wire, session.world.config(Protocol::Http2));
    let mut ending: Pin<Box<dyn Future<Output = Ending>>> = Box::pin(session.clone().ending());
    let link = Rc::new(Link {
        session: session.clone(),
        stop: Stop::default(),
    });
    let mut answers = FuturesUnordered::new();
    let mut drains = false;
    loop {
        tokio::select! {
            biased;
            next = connection.next() => match next {
                Ok(Some((request, exchange))) => answers.push(answer(request, exchange, Rc::clone(&link))),
                Ok(None) | Err(_) => return,
            },
            Some(()) = answers.next() => {}
            why = &mut ending => {
                link.stop.set();
                ending = match why {
                    Ending::Stopped => Box::pin(std::future::pending()),
                    // Clients learn that they may try elsewhere.
                    Ending::Idle => Box::pin(session.clone().overdue()),
                    Ending::Overdue => return,
                };
            }
            // The flag is set by the branches above alone.
            () = poll_fn(|_| if link.stop.is_set() { Poll::Ready(()) } else { Poll::Pending }),
                if !drains =>
            {
                drains = true;
                connection.drain();
            }
        }
    }
}

async fn answer(request: FramedRequest, exchange: Exchange, link: Rc<Link>) {
    // A failure is the peer's: the stream or the connection is gone, and nobody waits for more.
    let _ = match request::head(request, &link.session.world) {
        Ok(head) if grpc::is_grpc(&head) => grpc::answer(&head, &exchange, &link).await,
        Ok(head) => echo(&head, &exchange, &link).await,
        Err(reply) => send(reply, &exchange, &link).await,
    };
}

async fn echo(head: &RequestHead, exchange: &Exchange, link: &Link) -> Result<(), Error> {
    let world = &link.session.world;
    let body = match timeout(world.timeouts.request(), request::body(exchange, true)).await {
        Ok(body) => body?,
        Err(_) => {
            let reply = Reply::text(408, "the body did not arrive in time");
            return send(reply, exchange, link).await;
        }
    };
    let Some(body) = body else {
        return send(request::too_large(), exchange, link).await;
    };
    let (reply, params) = match world.course(request::asked(head, body)) {
        Course::Answer(reply, params) => (Some(reply), params),
        Course::HangUp(params) => (None, params),
    };
    if !params.delay.is_zero() {
        unless_gone(exchange, link.session.delay(params.delay)).await?;
    }
    if params.close {
        link.stop.set();
    }
    match reply {
        // 101 changes the protocol of a connection, and HTTP/2 has no such thing.
        Some(reply) if reply.status >= 200 => send(reply, exchange, link).await,
        _ => {
            exchange.reset(Code::INTERNAL_ERROR);
            Ok(())
        }
    }
}

async fn send(reply: Reply, exchange: &Exchange, link: &Link) -> Result<(), Error> {
    let date = link.session.world.date.borrow_mut().now();
    response::send(exchange, reply, 1, date).await
}

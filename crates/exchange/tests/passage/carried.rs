//! A proxy in memory: a client's connection, one request after the other through the message model, and connections to endpoints
//! that are used again. Content moves by the calls that a waypoint makes, in their order. There is no runtime: everything is polled
//! until it comes to rest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use lateen_exchange::{Config, Error, Protocol, client, server};
use lateen_http::{Canonical, FieldValue, FramedRequest, Length, PeerKind, WebSocketKey};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf, duplex};

use super::Course;
use super::message::{Message, has_content, length, pairs};
use super::rest;

/// Bytes that a pipe holds: more than any test writes.
const PIPE: usize = 1 << 20;

/// Bytes of a small piece.
const PIECE: usize = 64;

/// An answer after which the connection may be used again. It opens no tunnel.
const ANSWER: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";

/// The requests that have left on a connection to an endpoint, as bytes and as the model has them.
#[derive(Debug, Clone)]
pub struct Left {
    pub messages: Vec<Message>,
    pub bytes: Vec<u8>,
}

/// The requests that have left, by connection.
pub struct Carried {
    /// When everything came to rest, with the client still there.
    pub at_rest: Vec<Left>,
    /// When the client had gone.
    pub at_end: Vec<Left>,
}

/// Passes the bytes of a client.
pub fn carry(how: Course, client: &[u8]) -> Carried {
    let (near, far) = duplex(PIPE);
    let mut proxy = Proxy {
        how,
        server: Some(server::Connection::new(near, config(how.protocol))),
        client: far,
        requests: VecDeque::new(),
        endpoints: Rc::default(),
    };
    let piece = match how.in_pieces {
        true => PIECE,
        false => PIPE,
    };
    for bytes in client.chunks(piece) {
        proxy.give(bytes);
        proxy.run();
    }
    let at_rest = proxy.left();
    proxy.leave();
    proxy.run();
    proxy.requests.clear();
    proxy.run();
    let at_end = proxy.left();
    Carried { at_rest, at_end }
}

/// Little is enough to reach the limits on heads.
fn config(protocol: Protocol) -> Config {
    Config {
        http2: lateen_h2::Config {
            max_header_list: 8 * 1024,
            ..lateen_h2::Config::requests()
        }
        .share(),
        half_close: false,
        timeouts: None,
        ..Config::new(protocol)
    }
}

type Request = Pin<Box<dyn Future<Output = ()>>>;

struct Proxy {
    how: Course,
    /// None once the connection is over.
    server: Option<server::Connection<DuplexStream>>,
    client: DuplexStream,
    requests: VecDeque<Request>,
    endpoints: Rc<Endpoints>,
}

impl Proxy {
    fn give(&mut self, bytes: &[u8]) {
        // A connection that is over takes nothing.
        let _ = rest::run(|cx| Pin::new(&mut self.client).poll_write(cx, bytes));
    }

    fn leave(&mut self) {
        let _ = rest::run(|cx| Pin::new(&mut self.client).poll_shutdown(cx));
    }

    /// Moves everything that can be moved.
    fn run(&mut self) {
        let _ = rest::settle(|cx| self.turn(cx));
    }

    /// One turn of everything. It is never ready.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.accept(cx);
        if self.how.one_by_one {
            while let Some(first) = self.requests.front_mut()
                && first.as_mut().poll(cx).is_ready()
            {
                self.requests.pop_front();
            }
        } else {
            self.requests
                .retain_mut(|request| request.as_mut().poll(cx).is_pending());
        }
        for endpoint in self.endpoints.all.borrow().iter() {
            endpoint.turn(cx, self.how.answers_early);
        }
        Poll::Pending
    }

    fn accept(&mut self, cx: &mut Context<'_>) {
        while let Some(server) = &mut self.server {
            match server.poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(Some((request, exchange)))) => {
                    let endpoints = Rc::clone(&self.endpoints);
                    let passing = pass(self.how, request, exchange, endpoints);
                    self.requests.push_back(Box::pin(passing));
                }
                Poll::Ready(_) => self.server = None,
            }
        }
    }

    fn left(&self) -> Vec<Left> {
        let endpoints = self.endpoints.all.borrow();
        endpoints.iter().map(|endpoint| endpoint.left()).collect()
    }
}

/// The connections to endpoints.
#[derive(Default)]
struct Endpoints {
    all: RefCell<Vec<Rc<Endpoint>>>,
}

impl Endpoints {
    /// A connection that takes a request.
    fn idle(&self) -> Rc<Endpoint> {
        let mut all = self.all.borrow_mut();
        if let Some(idle) = all.iter().find(|endpoint| endpoint.handle.is_ready()) {
            return Rc::clone(idle);
        }
        let endpoint = Rc::new(Endpoint::open());
        all.push(Rc::clone(&endpoint));
        endpoint
    }
}

/// A connection, and the endpoint behind it.
struct Endpoint {
    handle: client::Handle,
    /// None once it is over.
    driver: RefCell<Option<client::Connection<DuplexStream>>>,
    far: RefCell<DuplexStream>,
    bytes: RefCell<Vec<u8>>,
    messages: RefCell<Vec<Rc<RefCell<Message>>>>,
    answered: Cell<usize>,
}

impl Endpoint {
    fn open() -> Self {
        let (near, far) = duplex(PIPE);
        let (handle, driver) = client::open(near, config(Protocol::Http1));
        Endpoint {
            handle,
            driver: RefCell::new(Some(driver)),
            far: RefCell::new(far),
            bytes: RefCell::default(),
            messages: RefCell::default(),
            answered: Cell::default(),
        }
    }

    /// Writes, reads and answers.
    fn turn(&self, cx: &mut Context<'_>, answers_early: bool) {
        let driver = &mut *self.driver.borrow_mut();
        if let Some(open) = driver
            && Pin::new(open).poll(cx).is_ready()
        {
            *driver = None;
        }
        let (far, bytes) = (&mut *self.far.borrow_mut(), &mut *self.bytes.borrow_mut());
        let mut room = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            match Pin::new(&mut *far).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    bytes.extend_from_slice(buffer.filled());
                }
                _ => break,
            }
        }
        let messages = self.messages.borrow();
        if let Some(message) = messages.get(self.answered.get())
            && (answers_early || message.borrow().is_complete)
        {
            // The connection may be over.
            let _ = Pin::new(far).poll_write(cx, ANSWER);
            self.answered.set(self.answered.get() + 1);
        }
    }

    fn left(&self) -> Left {
        let messages = self.messages.borrow();
        Left {
            messages: messages
                .iter()
                .map(|message| message.borrow().clone())
                .collect(),
            bytes: self.bytes.borrow().clone(),
        }
    }
}

/// One request, from its head to its answer.
async fn pass(
    how: Course,
    request: FramedRequest,
    below: server::Exchange,
    endpoints: Rc<Endpoints>,
) {
    let mut id = || FieldValue::new("5b7f3c1e").expect("it is visible");
    let head = match request.canonical(&how.rules(), &how.downstream(), &mut id) {
        Ok(head) => head,
        Err(refusal) => {
            // The client may have left.
            let _ = below.reply(refusal.status(), &[], Length::None);
            return;
        }
    };
    let endpoint = endpoints.idle();
    let key = WebSocketKey::of([7; 16]);
    let above = match &head {
        Canonical::Request(head) => endpoint.handle.request(head, Some(&key)),
        Canonical::Connect(head) => endpoint.handle.connect(head),
    };
    let above = above.unwrap_or_else(|error| panic!("a canonical head is refused: {error}"));
    let message = Rc::new(RefCell::new(Message::of(&head, &key)));
    endpoint.messages.borrow_mut().push(Rc::clone(&message));
    tokio::select! {
        biased;
        // An answer that fails has lost its client or its endpoint.
        _ = answer(&below, &above) => {}
        _ = poll_fn(|cx| below.poll_gone(cx)) => {}
        () = upload(&below, &above, &head, &message) => {}
    }
}

/// Moves the request's content. It ends only if the client breaks off.
async fn upload(
    below: &server::Exchange,
    above: &client::Exchange,
    head: &Canonical,
    message: &RefCell<Message>,
) {
    if !has_content(head) {
        message.borrow_mut().is_complete = true;
        return pending().await;
    }
    let sent = loop {
        match below.data().await {
            Ok(Some(bytes)) => {
                message.borrow_mut().content.extend_from_slice(&bytes);
                if let Err(error) = above.send(bytes).await {
                    break Err(error);
                }
                let mut message = message.borrow_mut();
                let so_far = Length::Known(message.content.len() as u64);
                message.is_complete |= so_far == length(head);
            }
            Ok(None) => {
                let trailers = below.trailers();
                let finished = match &trailers {
                    Some(trailers) => above.finish_with(trailers),
                    None => above.finish(),
                };
                let mut message = message.borrow_mut();
                if finished.is_ok() {
                    message.is_complete = true;
                }
                if let Some(trailers) = &trailers
                    && length(head) == Length::Delimited
                {
                    for (name, value) in pairs(trailers.fields()) {
                        message.add_trailer(&name, &value);
                    }
                }
                break finished;
            }
            Err(_) => return,
        }
    };
    if let Err(Error::Write(error)) = sent {
        panic!("the content does not fit the head: {error}");
    }
    pending().await
}

async fn answer(below: &server::Exchange, above: &client::Exchange) -> Result<(), Error> {
    let head = above.answer().await?.canonical(None, PeerKind::Mesh)?;
    below.respond(&head, None)?;
    while let Some(bytes) = above.data().await? {
        below.send(bytes).await?;
    }
    below.finish()
}

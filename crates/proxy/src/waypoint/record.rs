//! The record of one request from its head to its end: counters with Istio's names, and a line of the access log.

pub(super) mod values;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lateen_config::Workload;
use lateen_exchange::Hold;
use lateen_http::{Canonical, FieldValue, Fields, Known, RequestHead, ResponseHead, Trailers};
use lateen_telemetry::{
    Finished, GrpcStatus, Key, Labels, Line, Part, Party, Protocol, Reporter, RequestFlags,
    ResponseFlags, Security,
};
use lateen_types::NamespacedName;

use super::access_log::LogFormat;
use super::endpoint::Endpoint;
use super::grpc::{self, MessageCounter};
use super::head;
use super::session::Session;
use super::upstream::{Ends, FarEnd, Upstream};
use crate::describe;

/// One request. Dropped, it is counted and logged; without an answer by then, the client has left.
pub(super) struct Record {
    session: Rc<Session>,
    start: Instant,
    head: OnceCell<Canonical>,
    served: RefCell<Option<Served>>,
    status: Cell<u16>,
    flags: Cell<RequestFlags>,
    /// The answer's head was sent.
    answered: Cell<Option<Duration>>,
    /// The request had come from the client as a whole. Without a format nobody asks for the time.
    received: Cell<Option<Duration>>,
    /// The request was given to the endpoint as a whole. Without a format the time is 0, which nobody asks for.
    sent: Cell<Option<Duration>>,
    /// The request was given to this many connections.
    attempts: Cell<u32>,
    /// Content or trailers of the request were taken from the client.
    is_begun: Cell<bool>,
    request: Weight,
    response: Weight,
    grpc: Cell<Option<Grpc>>,
    grpc_status: Cell<Option<u32>>,
    /// Why the request was not served, and the policy that decided.
    reason: RefCell<Option<(String, Option<NamespacedName>)>>,
    /// The format of the line; `None`: Lateen's own.
    format: Option<Arc<LogFormat>>,
    /// Envoy's word for how the answer came about.
    details: RefCell<Cow<'static, str>>,
    /// Why the last connection to an endpoint could not be opened.
    transport_failure: RefCell<Option<String>>,
    /// The answer, if the format reads it, with the charge for it. There is none if the client's account has no room.
    answer: OnceCell<(ResponseHead, Hold)>,
    /// The answer is an endpoint's.
    is_served: Cell<bool>,
    trailers: OnceCell<Trailers>,
}

/// Bytes of a message.
#[derive(Debug, Default)]
struct Weight {
    head: Cell<u64>,
    content: Cell<u64>,
    trailers: Cell<u64>,
}

impl Weight {
    fn total(&self) -> u64 {
        self.head.get() + self.content.get() + self.trailers.get()
    }
}

/// The endpoint of the last attempt.
struct Served {
    upstream: Rc<Upstream>,
    workload: Option<Arc<Workload>>,
    /// Its address. Of a host that has several, the one that the connection leads to.
    address: Cell<SocketAddr>,
    /// Our own end of a connection in plain text.
    local: Cell<Option<SocketAddr>>,
    /// The endpoint that the gateway of another network chose.
    far_end: OnceCell<Rc<FarEnd>>,
    /// When the attempt began; 0 without a format.
    begun: Duration,
}

impl Served {
    /// The endpoint, for counters.
    fn party(&self) -> Party {
        match (self.far_end.get(), &self.workload) {
            (Some(far_end), _) => far_end.party.clone(),
            (None, Some(workload)) => describe::party(workload, Some(workload.identity.clone())),
            (None, None) => Party::default(),
        }
    }

    /// The number by which counters of the endpoint are found.
    fn number(&self) -> u32 {
        let far_end = self.far_end.get();
        far_end.map_or_else(|| self.upstream.number(), |far_end| far_end.number)
    }

    /// The endpoint's name, for the log.
    fn name(&self) -> Option<&str> {
        match (self.far_end.get(), &self.workload) {
            (Some(far_end), _) => far_end.party.workload.as_deref(),
            (None, workload) => workload.as_ref().map(|workload| &*workload.name),
        }
    }
}

/// Messages of a call in both directions.
#[derive(Clone, Copy, Default)]
struct Grpc {
    request: MessageCounter,
    response: MessageCounter,
}

impl Record {
    /// The record of a request that begins now.
    pub(super) fn new(session: &Rc<Session>) -> Self {
        let format = session.waypoint.log_format();
        Self {
            session: Rc::clone(session),
            start: Instant::now(),
            head: OnceCell::new(),
            served: RefCell::new(None),
            status: Cell::new(0),
            flags: Cell::new(RequestFlags::DownstreamConnectionTermination),
            answered: Cell::new(None),
            received: Cell::new(None),
            sent: Cell::new(None),
            attempts: Cell::new(0),
            is_begun: Cell::new(false),
            request: Weight::default(),
            response: Weight::default(),
            grpc: Cell::new(None),
            grpc_status: Cell::new(None),
            reason: RefCell::new(None),
            format,
            details: RefCell::new(Cow::Borrowed(LEFT)),
            transport_failure: RefCell::new(None),
            answer: OnceCell::new(),
            is_served: Cell::new(false),
            trailers: OnceCell::new(),
        }
    }

    /// Notes the head, and returns it.
    pub(super) fn head(&self, head: Canonical) -> &Canonical {
        let line = match &head {
            Canonical::Request(head) => head.method().as_bytes().len() + head.path().target().len(),
            Canonical::Connect(_) => "CONNECT".len(),
        };
        let line = line + head::authority(&head).as_bytes().len();
        add(&self.request.head, line + head::fields(&head).lines_len());
        if head::is_grpc(&head) {
            self.grpc.set(Some(Grpc::default()));
        }
        if !head::has_content(&head) {
            self.received.set(Some(self.elapsed_for_format()));
        }
        self.head.get_or_init(|| head)
    }

    /// The head, if it was noted.
    pub(super) fn noted(&self) -> Option<&Canonical> {
        self.head.get()
    }

    /// Notes an attempt at an endpoint.
    pub(super) fn attempt(&self, upstream: &Rc<Upstream>, endpoint: &Endpoint) {
        self.attempts.set(self.attempts.get() + 1);
        self.served.replace(Some(Served {
            upstream: Rc::clone(upstream),
            workload: endpoint.workload.clone(),
            address: Cell::new(endpoint.hop.application()),
            local: Cell::new(None),
            far_end: OnceCell::new(),
            begun: self.elapsed_for_format(),
        }));
        self.sent.set(None);
        self.transport_failure.replace(None);
    }

    /// Notes the connection of the last attempt.
    pub(super) fn connected(&self, ends: Option<Ends>) {
        let served = self.served.borrow();
        match (served.as_ref(), ends) {
            (Some(served), Some(Ends::Addresses { local, remote })) => {
                served.local.set(Some(local));
                served.address.set(lateen_accept::canonical(remote));
            }
            (Some(served), Some(Ends::Chosen(far_end))) => {
                // An attempt has one connection.
                let _ = served.far_end.set(far_end);
            }
            _ => {}
        }
    }

    /// Notes that the last attempt found no connection.
    pub(super) fn unconnected(&self, reason: String) {
        self.transport_failure.replace(Some(reason));
    }

    /// Notes that the endpoint was given the whole request.
    pub(super) fn sent(&self) {
        self.sent.set(Some(self.elapsed_for_format()));
    }

    /// The time since the request began, if the format may ask for it: the clock is read several times for each request.
    fn elapsed_for_format(&self) -> Duration {
        match self.format {
            Some(_) => self.start.elapsed(),
            None => Duration::ZERO,
        }
    }

    /// True if the request began so long ago.
    pub(super) fn is_past(&self, limit: Duration) -> bool {
        self.start.elapsed() >= limit
    }

    /// Connections that the request was given to, or that could not be opened.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts.get()
    }

    /// True once the endpoint was given the whole request.
    pub(super) fn is_sent(&self) -> bool {
        self.sent.get().is_some()
    }

    /// Notes content of the request.
    pub(super) fn uploaded(&self, bytes: &[u8]) {
        self.is_begun.set(true);
        add(&self.request.content, bytes.len());
        if let Some(mut grpc) = self.grpc.get() {
            grpc.request.feed(bytes);
            self.grpc.set(Some(grpc));
        }
    }

    /// Notes the trailers of the request. They are given out once, as content is.
    pub(super) fn uploaded_trailers(&self, trailers: &Trailers) {
        self.is_begun.set(true);
        add(&self.request.trailers, trailers.fields().lines_len());
    }

    /// True once the end of a drain has cut the tunnels of clients.
    pub(super) fn is_cut(&self) -> bool {
        self.session.waypoint.has_cut()
    }

    /// True once content or trailers of the request were taken: it cannot be sent again.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.get()
    }

    /// Notes the head of an upstream's final answer, and the Date that it was sent with beside its fields.
    pub(super) fn answered(&self, mut head: ResponseHead, date: Option<&FieldValue>) {
        self.answered_with(head.status().code());
        self.is_served.set(true);
        let added = date.map_or(0, |date| "date: \r\n".len() + date.as_bytes().len());
        add(&self.response.head, head.fields().lines_len() + added);
        self.note_grpc_status(head.fields());
        if self
            .format
            .as_ref()
            .is_some_and(|format| format.reads_answer())
        {
            // It is kept until the answer or its tunnel ends, and the endpoint has chosen its size.
            head.detach();
            if let Some(date) = date {
                // Without room the log does without it.
                let _ = head.add(&Known::Date.into(), date);
            }
            let mut hold = Hold::new(&self.session.tunnel.account);
            if hold.raise(head.buffer_len()) {
                // There is one final answer.
                let _ = self.answer.set((head, hold));
            }
        }
    }

    /// Notes an answer of our own, its status of gRPC, and the length of its content.
    pub(super) fn replied(&self, status: u16, grpc_status: Option<u32>, content: usize) {
        self.answered_with(status);
        self.grpc_status.set(grpc_status);
        add(&self.response.content, content);
    }

    fn answered_with(&self, status: u16) {
        self.status.set(status);
        self.answered.set(Some(self.start.elapsed()));
    }

    /// True once the answer's head was sent.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.get().is_some()
    }

    /// Notes content of the answer.
    pub(super) fn downloaded(&self, bytes: &[u8]) {
        add(&self.response.content, bytes.len());
        if let Some(mut grpc) = self.grpc.get() {
            grpc.response.feed(bytes);
            self.grpc.set(Some(grpc));
        }
    }

    /// Notes bytes of a tunnel in both directions.
    pub(super) fn relayed(&self, up: usize, down: usize) {
        add(&self.request.content, up);
        add(&self.response.content, down);
    }

    /// Notes the trailers of the answer.
    pub(super) fn trailers(&self, trailers: Trailers) {
        add(&self.response.trailers, trailers.fields().lines_len());
        self.note_grpc_status(trailers.fields());
        if self
            .format
            .as_ref()
            .is_some_and(|format| format.reads_trailers())
        {
            // A message has them once.
            let _ = self.trailers.set(trailers);
        }
    }

    fn note_grpc_status(&self, fields: &Fields) {
        let status = fields.get(Known::GrpcStatus).and_then(grpc::status);
        if status.is_some() {
            self.grpc_status.set(status);
        }
    }

    /// Notes that the answer is complete.
    pub(super) fn complete(&self) {
        self.flags.set(RequestFlags::None);
        self.details.replace(Cow::Borrowed("via_upstream"));
    }

    /// Notes why the request was not served, or not to its end. `details` is Envoy's word for it.
    pub(super) fn fail(
        &self,
        flags: RequestFlags,
        details: impl Into<Cow<'static, str>>,
        reason: String,
    ) {
        self.flags.set(flags);
        self.details.replace(details.into());
        self.reason.replace(Some((reason, None)));
    }

    /// Notes that the client has left.
    pub(super) fn left(&self, reason: String) {
        let flags = RequestFlags::DownstreamConnectionTermination;
        self.fail(flags, LEFT, reason);
    }

    /// Notes the refusal of a policy.
    pub(super) fn deny(
        &self,
        policy: Option<NamespacedName>,
        details: impl Into<Cow<'static, str>>,
        reason: String,
    ) {
        self.flags.set(RequestFlags::None);
        self.details.replace(details.into());
        self.reason.replace(Some((reason, policy)));
    }

    /// The labels of the series that the request is counted in.
    fn labels(&self, served: Option<&Served>) -> Labels {
        let session = &self.session;
        Labels {
            reporter: Reporter::Waypoint,
            source: session.source.clone(),
            service: session
                .destination
                .target
                .service()
                .map(|service| describe::service(service)),
            destination: served.map(Served::party).unwrap_or_default(),
            flags: ResponseFlags::None,
            security: Security::MutualTls,
        }
    }

    fn count(&self, duration: Duration) {
        let served = self.served.borrow();
        let served = served.as_ref();
        let key = Key {
            route: self.session.service_number,
            destination: served.map_or(0, Served::number),
            source: self.session.source_number,
        };
        let mut cells = self.session.waypoint.cells.borrow_mut();
        let cell = cells.cell(key, || self.labels(served));
        let grpc = self.grpc.get();
        let messages = grpc.unwrap_or_default();
        cell.finish(&Finished {
            protocol: match grpc {
                Some(_) => Protocol::Grpc,
                None => Protocol::Http,
            },
            code: self.status.get(),
            grpc_status: grpc.and(self.grpc_status()).map(GrpcStatus::new),
            flags: self.flags.get(),
            duration,
            request_bytes: self.request.total(),
            response_bytes: self.response.total(),
            request_messages: messages.request.messages(),
            response_messages: messages.response.messages(),
        });
    }

    /// Writes the line of the access log. Nothing is spelled out unless the line is wanted.
    fn log(&self, duration: Duration) {
        if let Some(format) = &self.format {
            if tracing::event_enabled!(target: "access", tracing::Level::INFO) {
                let line = format.line(self);
                lateen_telemetry::log::line(&line, self.session.tunnel.log_share);
            }
            return;
        }
        let Some(mut line) = Line::begin("request complete") else {
            return;
        };
        let session = &self.session;
        let served = self.served.borrow();
        let served = served.as_ref();
        let [source, asked] = session.log_parts.get_or_init(|| parts(session));
        line.part(source);
        if let Some(served) = served {
            line.address("dst.addr", served.address.get());
        }
        let service = session.destination.target.service();
        text(
            &mut line,
            "dst.service",
            service.map(|service| &*service.hostname),
        );
        text(&mut line, "dst.workload", served.and_then(Served::name));
        line.part(asked);
        self.log_head(&mut line);
        self.log_outcome(&mut line, duration);
        line.write(session.tunnel.log_share);
    }

    fn log_head(&self, line: &mut Line) {
        let head = self.head.get();
        let (method, path, authority): (&[u8], &[u8], &[u8]) = match head {
            Some(Canonical::Request(head)) => (
                head.method().as_bytes(),
                head.path().target(),
                head.authority().as_bytes(),
            ),
            Some(Canonical::Connect(head)) => (b"CONNECT", b"-", head.authority().as_bytes()),
            None => (b"-", b"-", b"-"),
        };
        line.text("method", method);
        line.text("path", path);
        line.text("authority", authority);
        if let Some(Canonical::Request(head)) = head
            && let Some(id) = request_id(head)
        {
            line.text("request_id", id);
        }
    }

    fn log_outcome(&self, line: &mut Line, duration: Duration) {
        line.number("status", self.status.get().into());
        line.text("flags", self.flags.get().as_str());
        if let Some(status) = self.grpc_status() {
            line.number("grpc_status", status.into());
        }
        let reason = self.reason.borrow();
        let reason = reason.as_ref();
        if let Some(policy) = reason.and_then(|(_, policy)| policy.as_ref()) {
            line.bare("policy", policy.to_string());
        }
        line.number("attempts", self.attempts.get().into());
        line.number("bytes_recv", self.request.total());
        line.number("bytes_sent", self.response.total());
        line.micros("duration", duration);
        if let Some(first) = self.answered.get() {
            line.micros("first_byte", first);
        }
        text(line, "error", reason.map(|(reason, _)| reason.as_str()));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let duration = self.start.elapsed();
        self.count(duration);
        self.log(duration);
    }
}

/// Envoy's word for a client that has left.
const LEFT: &str = "downstream_remote_disconnect";

/// The fields of the source, and those of the address that was asked for.
fn parts(session: &Session) -> [Part; 2] {
    let source = Part::of(|line| {
        line.address("src.addr", session.tunnel.client);
        text(line, "src.workload", session.source_name.as_deref());
        text(line, "src.namespace", session.source.namespace.as_deref());
        line.identity("src.identity", session.tunnel.peer.identity());
    });
    let asked = Part::of(|line| {
        line.address("dst.asked", session.destination.address);
        line.text("direction", "inbound");
    });
    [source, asked]
}

fn text(line: &mut Line, name: &'static str, value: Option<&str>) {
    if let Some(value) = value {
        line.text(name, value);
    }
}

fn request_id(head: &RequestHead) -> Option<&[u8]> {
    head.fields().get(Known::XRequestId)
}

fn add(cell: &Cell<u64>, bytes: usize) {
    cell.set(cell.get() + bytes as u64);
}

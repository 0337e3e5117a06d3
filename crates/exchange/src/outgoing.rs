//! Fields of outgoing messages in the form of either codec, without a copy.

use lateen_h1::FieldWriter;
use lateen_h2::BlockWriter;
use lateen_http::{ConnectHead, FieldValue, Known, Line, RequestHead, ResponseHead, WebSocketKey};

use crate::lines::Lines;
use crate::names::kept;

/// The fields of one message that is being written.
pub(crate) trait Outgoing {
    /// Writes them for HTTP/1, without those that its writer makes.
    fn http1(&self, writer: &mut FieldWriter<'_>);

    /// Writes them for HTTP/2, pseudo-header fields first.
    fn http2(&self, writer: &mut BlockWriter<'_>);
}

/// The fields of an answer.
pub(crate) trait Answering: Outgoing {
    /// Their bytes, about as many as either codec writes.
    fn length(&self) -> usize;
}

impl Answering for Dated<'_> {
    fn length(&self) -> usize {
        self.head.fields().lines_len()
    }
}

impl Answering for &Lines {
    fn length(&self) -> usize {
        Lines::length(self)
    }
}

/// The fields of a request, and the key of its WebSocket handshake in HTTP/1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed<'h>(
    pub(crate) &'h RequestHead,
    pub(crate) Option<&'h WebSocketKey>,
);

impl Outgoing for Keyed<'_> {
    #[inline]
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        if self
            .0
            .http1_lines(self.1, |line| writer.line(line))
            .is_none()
        {
            writer.fail(lateen_h1::WriteError::Upgrade);
        }
    }

    #[inline]
    fn http2(&self, writer: &mut BlockWriter<'_>) {
        let names = &mut Vec::new();
        self.0.http2_with(names, |field| writer.field(kept(field)));
    }
}

/// The fields of an answer, the key of its WebSocket handshake in HTTP/1, and a Date that the head does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dated<'h> {
    pub(crate) head: &'h ResponseHead,
    pub(crate) key: Option<&'h WebSocketKey>,
    pub(crate) date: Option<&'h FieldValue>,
}

impl Dated<'_> {
    #[inline]
    fn added(&self) -> Option<lateen_http::Field<'_>> {
        let date = self.date?;
        Some(lateen_http::Field::numbered(Known::Date, date))
    }
}

impl Outgoing for Dated<'_> {
    #[inline]
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        self.head.http1_lines(self.key, |line| writer.line(line));
        if let Some(date) = self.added() {
            writer.line(Line::Field(date));
        }
    }

    #[inline]
    fn http2(&self, writer: &mut BlockWriter<'_>) {
        let names = &mut Vec::new();
        self.head
            .http2_with(names, |field| writer.field(kept(field)));
        if let Some(date) = self.added() {
            writer.field(kept(date));
        }
    }
}

impl Outgoing for &ConnectHead {
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        self.http1_lines(|line| writer.line(line));
    }

    fn http2(&self, writer: &mut BlockWriter<'_>) {
        let names = &mut Vec::new();
        self.http2_with(names, |field| writer.field(kept(field)));
    }
}

impl Outgoing for &Lines {
    fn http1(&self, writer: &mut FieldWriter<'_>) {
        match Lines::http1(self) {
            Ok(fields) => fields.into_iter().for_each(|field| writer.field(field)),
            Err(fault) => writer.fail(fault),
        }
    }

    fn http2(&self, writer: &mut BlockWriter<'_>) {
        let fields = Lines::http2(self);
        fields.for_each(|field| writer.field(field));
    }
}

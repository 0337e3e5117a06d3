//! Protocol clients, one file for each protocol: requests and bytes in, bytes and completions out, no socket and no clock. The
//! caller decides when a request is sent and what its times mean.

mod echo;
mod http1;
mod http2;
mod interface;

use std::sync::Arc;

pub use http2::Form;
pub use interface::{Answer, Client, Completion, Malformed, Output, Request, Start};

/// A protocol with its requests encoded, from which clients are made.
#[derive(Debug, Clone)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1(Arc<[http1::Message]>),
    /// HTTP/2, and gRPC upon it.
    Http2(Arc<http2::Requests>),
    /// Bytes that come back as they were sent.
    Echo(Arc<[u8]>),
}

impl Protocol {
    /// HTTP/1.1 with these requests.
    pub fn http1(requests: &[Request]) -> Protocol {
        Protocol::Http1(requests.iter().map(http1::Message::new).collect())
    }

    /// HTTP/2 with these requests, for URLs of `http` or `https`; or gRPC, whose requests carry one
    /// message each.
    pub fn http2(requests: &[Request], scheme: &str, form: Form) -> Protocol {
        Protocol::Http2(Arc::new(http2::Requests::new(requests, scheme, form)))
    }

    /// A client for a connection that has just been set up.
    pub fn client(&self) -> Box<dyn Client> {
        match self {
            Protocol::Http1(messages) => Box::new(http1::Http1::new(Arc::clone(messages))),
            Protocol::Http2(requests) => Box::new(http2::Http2::new(Arc::clone(requests))),
            Protocol::Echo(payload) => Box::new(echo::Echo::new(Arc::clone(payload))),
        }
    }
}

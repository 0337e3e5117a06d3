//! Requests of either protocol in the terms of the echo service.

use bytes::{Bytes, BytesMut};
use lateen_exchange::Error;
use lateen_exchange::server::Exchange;
use lateen_http::{Canonical, FramedRequest, Known, Method, RequestHead, Rules};

use super::context::World;
use super::reply::{Asked, Reply};

/// The largest body that is kept to be echoed, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// The canonical head of a request, or the answer that refuses it.
pub fn head(request: FramedRequest, world: &World) -> Result<RequestHead, Reply> {
    let mut id = || world.request_id.clone();
    match request.canonical(&Rules::default(), &world.downstream, &mut id) {
        Ok(Canonical::Request(head)) => Ok(head),
        Ok(Canonical::Connect(_)) => Err(Reply::text(405, "no tunnels here")),
        Err(refusal) => Err(Reply::text(refusal.status().code(), &refusal.to_string())),
    }
}

/// The facts of a request on which its answer depends.
pub fn asked(head: &RequestHead, body: Bytes) -> Asked {
    let fields = head.fields();
    let content_type = fields.get(Known::ContentType);
    Asked {
        head: *head.method() == Method::HEAD,
        target: String::from_utf8_lossy(head.path().target()).into_owned(),
        content_type: content_type.map(|value| String::from_utf8_lossy(value).into_owned()),
        accepts_gzip: fields
            .all(Known::AcceptEncoding)
            .any(|value| value.windows(4).any(|part| part == b"gzip")),
        body,
    }
}

/// The answer to a body that is too long to be echoed.
pub fn too_large() -> Reply {
    Reply::text(400, "body is larger than 1 MiB")
}

/// Reads a body that is held to be echoed; none if it is too long for that.
///
/// With `to_its_end` a body that is too long is read all the same: a client that is cut short would lose the answer, too.
///
/// # Errors
/// The exchange failed.
pub async fn body(exchange: &Exchange, to_its_end: bool) -> Result<Option<Bytes>, Error> {
    let mut content = BytesMut::new();
    let mut fits = true;
    while let Some(piece) = exchange.data().await? {
        fits &= content.len() + piece.len() <= MAX_BODY;
        if fits {
            content.extend_from_slice(&piece);
        } else if !to_its_end {
            break;
        }
    }
    Ok(fits.then(|| content.freeze()))
}

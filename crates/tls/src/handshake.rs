//! The two handshakes of a tunnel.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use lateen_types::Identity;
use rustls::CommonState;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::credentials::Credentials;
use crate::error::TlsError;
use crate::provider::ALPN;
use crate::session::{Binding, Session};
use crate::stream::{ReadAhead, TlsStream};
use crate::verify::Check;

/// Stands where rustls wants a server name: peers are verified by identity, and no name is sent.
fn nobody() -> ServerName<'static> {
    ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into())
}

/// Connects as `own` to a peer that must be one of `expected`. Bound it by a timeout.
///
/// With TLS 1.3 a server checks us after our handshake is complete: its refusal shows as an error of
/// the first read, whose text is that of [`TlsError::Refused`].
///
/// # Errors
/// See [`TlsError`]; an empty `expected` accepts nobody.
pub async fn connect<IO>(
    own: &Arc<Credentials>,
    io: IO,
    expected: &[Identity],
) -> Result<(TlsStream<IO>, Session), TlsError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    refuse_expired(own)?;
    let check = Arc::new(Check::of_server(Arc::clone(&own.trust), expected));
    let stream = TlsConnector::from(own.client_config(Arc::clone(&check)))
        .connect(nobody(), ReadAhead::new(io))
        .await
        .map_err(TlsError::from_io)?;
    let state = stream.get_ref().1;
    require_alpn(state)?;
    let session = Session::of(own, &check, state, bind(state)?)?;
    Ok((TlsStream::new(stream.into()), session))
}

/// Accepts as `own` a peer of the same trust domain or one of its aliases. Bound it by a timeout.
///
/// # Errors
/// See [`TlsError`].
pub async fn accept<IO>(
    own: &Arc<Credentials>,
    io: IO,
) -> Result<(TlsStream<IO>, Session), TlsError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    refuse_expired(own)?;
    let stream = TlsAcceptor::from(own.server_config())
        .accept(ReadAhead::new(io))
        .await
        .map_err(TlsError::from_io)?;
    let state = stream.get_ref().1;
    require_alpn(state)?;
    let session = Session::of(own, own.clients(), state, bind(state)?)?;
    Ok((TlsStream::new(stream.into()), session))
}

/// Fails closed: a workload whose renewal failed for too long has no identity any more.
fn refuse_expired(own: &Credentials) -> Result<(), TlsError> {
    let not_after = own.not_after();
    match SystemTime::now() > not_after {
        true => Err(TlsError::OwnExpired { not_after }),
        false => Ok(()),
    }
}

/// What both ends of a connection derive from its secrets, and nobody else can (RFC 8446 §7.5).
fn bind<Data>(state: &rustls::ConnectionCommon<Data>) -> Result<Binding, TlsError> {
    const LABEL: &[u8] = b"EXPORTER-lateen-both-ends";
    let bytes = state.export_keying_material([0; Binding::LENGTH], LABEL, None);
    bytes
        .map(Binding::new)
        .map_err(|error| TlsError::from_rustls(&error))
}

fn require_alpn(state: &CommonState) -> Result<(), TlsError> {
    match state.alpn_protocol() {
        Some(ALPN) => Ok(()),
        _ => Err(TlsError::Protocol),
    }
}

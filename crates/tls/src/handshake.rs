//! The two handshakes of a tunnel.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use lateen_types::{Identity, VerifiedPeer};
use rustls::CommonState;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use webpki::EndEntityCert;

use crate::credentials::Credentials;
use crate::error::TlsError;
use crate::provider::ALPN;
use crate::stream::{ReadAhead, TlsStream};
use crate::verify::{ServerCheck, identity_of};

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
) -> Result<(TlsStream<IO>, VerifiedPeer), TlsError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    refuse_expired(own)?;
    let check = Arc::new(ServerCheck::new(Arc::clone(&own.trust), expected));
    let stream = TlsConnector::from(own.client_config(Arc::clone(&check)))
        .connect(nobody(), ReadAhead::new(io))
        .await
        .map_err(TlsError::from_io)?;
    require_alpn(stream.get_ref().1)?;
    let Some(identity) = check.verified() else {
        return Err(TlsError::NoIdentity);
    };
    let peer = VerifiedPeer::by_certificate(identity.clone());
    Ok((TlsStream::new(stream.into()), peer))
}

/// Accepts as `own` a peer of the same trust domain. Bound it by a timeout.
///
/// # Errors
/// See [`TlsError`].
pub async fn accept<IO>(
    own: &Arc<Credentials>,
    io: IO,
) -> Result<(TlsStream<IO>, VerifiedPeer), TlsError>
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
    let peer = verified_client(own, state)?;
    Ok((TlsStream::new(stream.into()), peer))
}

/// Who the client is that the handshake has verified. The verifier is shared by all connections and
/// cannot keep it; finding the name again is a walk over the DER without any cryptography.
fn verified_client(own: &Credentials, state: &CommonState) -> Result<VerifiedPeer, TlsError> {
    let leaf = state
        .peer_certificates()
        .and_then(|chain| chain.first())
        .ok_or(TlsError::NoCertificate)?;
    let leaf = EndEntityCert::try_from(leaf).map_err(|_| TlsError::NoIdentity)?;
    let identity = identity_of(&leaf, own.trust_domain()).map_err(|_| TlsError::NoIdentity)?;
    Ok(VerifiedPeer::by_certificate(identity))
}

/// Fails closed: a workload whose renewal failed for too long has no identity any more.
fn refuse_expired(own: &Credentials) -> Result<(), TlsError> {
    let not_after = own.not_after();
    match SystemTime::now() > not_after {
        true => Err(TlsError::OwnExpired { not_after }),
        false => Ok(()),
    }
}

fn require_alpn(state: &CommonState) -> Result<(), TlsError> {
    match state.alpn_protocol() {
        Some(ALPN) => Ok(()),
        _ => Err(TlsError::Protocol),
    }
}

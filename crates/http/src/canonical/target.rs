//! Forms of a request target (RFC 9112 §3.2), and the authority that it or the host field names.

use crate::authority::Authority;
use crate::known::Known;
use crate::method::Method;
use crate::path::{Path, PathRules};
use crate::raw::{Raw, Version};
use crate::refusal::Cause;
use crate::scheme::Scheme;

/// What a request is for.
pub(super) struct Target {
    pub(super) authority: Authority,
    pub(super) path: Path,
    /// The target spells the scheme https.
    pub(super) is_https: bool,
}

/// Reads the target of a request that is no CONNECT for a tunnel.
#[inline]
pub(super) fn parse(raw: &Raw, method: &Method, rules: PathRules) -> Result<Target, Cause> {
    let buffer = raw.fields.bytes();
    let target = raw
        .text(raw.pseudo.path)
        .ok_or(Cause::PseudoMissing(":path"))?;
    let mut is_https = false;
    if raw.version == Version::Http2 {
        let scheme = raw.text(raw.pseudo.scheme).unwrap_or_default();
        is_https = Scheme::parse(scheme).ok_or(Cause::Scheme)? == Scheme::Https;
    }
    match target {
        [b'/', ..] => Ok(Target {
            authority: authority(raw, raw.text(raw.pseudo.authority))?,
            path: Path::parse(buffer, target, rules)?,
            is_https,
        }),
        b"*" if *method == Method::OPTIONS => Ok(Target {
            authority: authority(raw, raw.text(raw.pseudo.authority))?,
            path: Path::asterisk(),
            is_https,
        }),
        _ if raw.version == Version::Http2 => Err(Cause::Target),
        absolute => of_absolute(raw, absolute, method, rules),
    }
}

/// Reads a target that is a whole URI (RFC 9112 §3.2.2).
fn of_absolute(
    raw: &Raw,
    target: &[u8],
    method: &Method,
    rules: PathRules,
) -> Result<Target, Cause> {
    let buffer = raw.fields.bytes();
    let colon = target.windows(3).position(|window| window == b"://");
    let (scheme, rest) = target.split_at(colon.ok_or(Cause::Target)?);
    let scheme = Scheme::parse(scheme).ok_or(Cause::Scheme)?;
    let rest = &rest[3..];
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\'));
    let (host, path) = rest.split_at(end.unwrap_or(rest.len()));
    let path = match path {
        [] if *method == Method::OPTIONS => Path::asterisk(),
        [] | [b'?', ..] => Path::rootless(path)?,
        [b'#', ..] => return Err(Cause::Fragment),
        [b'/', ..] => Path::parse(buffer, path, rules)?,
        _ => return Err(Cause::HostCharacter),
    };
    Ok(Target {
        authority: authority(raw, Some(host))?,
        path,
        is_https: scheme == Scheme::Https,
    })
}

/// Reads the authority of a CONNECT, which has a port (RFC 9110 §9.3.6).
pub(super) fn of_connect(raw: &Raw) -> Result<Authority, Cause> {
    let named = match raw.version {
        Version::Http2 => raw.text(raw.pseudo.authority),
        _ => raw.text(raw.pseudo.path),
    };
    let buffer = raw.fields.bytes();
    let authority = Authority::parse(buffer, named.unwrap_or_default())?;
    if authority.port().is_none() {
        return Err(Cause::PortMissing);
    }
    // Clients leave the port out of the host field of a CONNECT, as the RFC's example does.
    if let Some(host) = raw.fields.get(Known::Host) {
        let host = Authority::parse(buffer, host)?;
        let is_same_port = host.port().is_none() || host.port() == authority.port();
        if host.host() != authority.host() || !is_same_port {
            return Err(Cause::HostDiffers);
        }
    }
    Ok(authority)
}

/// The authority that the target and the host field name: at least one of them does, and both name the same.
///
/// RFC 9112 §3.2.2 lets a proxy ignore a host field that differs from an absolute target. Applications behind it read
/// either, so the request is refused.
#[inline]
fn authority(raw: &Raw, named: Option<&[u8]>) -> Result<Authority, Cause> {
    let buffer = raw.fields.bytes();
    match (named, raw.fields.get(Known::Host)) {
        (None, None) => Err(Cause::HostMissing),
        (Some(one), None) | (None, Some(one)) => Authority::parse(buffer, one),
        (Some(named), Some(host)) => {
            let authority = Authority::parse(buffer, named)?;
            if named != host && Authority::parse(buffer, host)? != authority {
                return Err(Cause::HostDiffers);
            }
            Ok(authority)
        }
    }
}

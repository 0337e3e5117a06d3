//! The grammar and the one form of hosts.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::refusal::Cause;

/// The longest host name, without a trailing dot (RFC 1035 §2.3.4).
const MAX: usize = 253;

/// The length of the leading part that consists of lower-case letters, digits, hyphens, underscores and dots.
#[inline]
pub(super) fn plain(authority: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = authority.get(at..at + 16) {
        if chunk
            .iter()
            .fold(false, |any, &byte| any | is_unusual(byte))
        {
            break;
        }
        at += 16;
    }
    while at < authority.len() && PLAIN[authority[at] as usize] {
        at += 1;
    }
    at
}

/// True for all but lower-case letters, digits, hyphen and dot: the class without branches that `plain` skips by.
const fn is_unusual(byte: u8) -> bool {
    (byte.wrapping_sub(b'a') >= 26) & ((byte.wrapping_sub(b'-') >= 13) | (byte == b'/'))
}

static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        byte += 1;
    }
    table
};

/// True if a host of plain bytes may not have the one form: an empty label, a trailing dot, a number at its end, great length.
#[inline]
pub(super) fn is_suspicious(host: &[u8]) -> bool {
    let ends = matches!(host, [b'.', ..] | [.., b'.']) || host.len() > MAX;
    ends || has_empty_label(host) || last_label(host).first().is_some_and(u8::is_ascii_digit)
}

/// True if two dots stand side by side.
#[inline]
fn has_empty_label(host: &[u8]) -> bool {
    let (left, right) = (host, host.get(1..).unwrap_or_default());
    let mut at = 0;
    while let (Some(a), Some(b)) = (left.get(at..at + 16), right.get(at..at + 16)) {
        let pairs = a.iter().zip(b);
        if pairs.fold(false, |any, (&a, &b)| any | ((a == b'.') & (b == b'.'))) {
            return true;
        }
        at += 16;
    }
    host.get(at..)
        .unwrap_or_default()
        .windows(2)
        .any(|pair| pair == b"..")
}

fn last_label(host: &[u8]) -> &[u8] {
    let dot = host.iter().rposition(|&byte| byte == b'.');
    &host[dot.map_or(0, |dot| dot + 1)..]
}

/// The one form of a host.
pub(super) fn canonical(host: &[u8]) -> Result<String, Cause> {
    if let [b'[', literal @ .., b']'] = host {
        // Zones are local to the client, and IPvFuture does not exist.
        let text = std::str::from_utf8(literal).map_err(|_| Cause::HostLiteral)?;
        let address: Ipv6Addr = text.parse().map_err(|_| Cause::HostLiteral)?;
        return Ok(format!("[{address}]"));
    }
    // One trailing dot makes a name absolute, which it is here in any case.
    let host = host.strip_suffix(b".").unwrap_or(host);
    if host.is_empty() {
        return Err(Cause::HostEmpty);
    }
    let lower = host.to_ascii_lowercase();
    if !lower.iter().all(|&byte| PLAIN[byte as usize]) {
        return Err(Cause::HostCharacter);
    }
    if lower.len() > MAX || lower.split(|&byte| byte == b'.').any(<[u8]>::is_empty) {
        return Err(Cause::HostLabel);
    }
    let text = String::from_utf8(lower).map_err(|_| Cause::HostCharacter)?;
    // Resolvers read `127.1`, `0x7f.0.0.1` and `2130706433` as addresses, policies as names.
    if ends_in_number(last_label(text.as_bytes())) && text.parse::<Ipv4Addr>().is_err() {
        return Err(Cause::HostNumber);
    }
    Ok(text)
}

fn ends_in_number(label: &[u8]) -> bool {
    match label {
        [b'0', b'x', digits @ ..] => digits.iter().all(u8::is_ascii_hexdigit),
        digits => digits.iter().all(u8::is_ascii_digit),
    }
}

//! `x-forwarded-client-cert`, as Envoy and Istio write it.

use super::settings::{CertDetails, ForwardClientCert, Trust};
use crate::downstream::ClientCertificate;
use crate::fields::Fields;
use crate::known::Known;
use crate::refusal::Cause;

/// Applies the setting.
#[inline]
pub(super) fn apply(
    fields: &mut Fields,
    trust: &Trust,
    certificate: Option<&ClientCertificate>,
) -> Result<(), Cause> {
    let (Some(certificate), true) = (
        certificate,
        trust.client_cert != ForwardClientCert::Sanitize,
    ) else {
        fields.remove(Known::XForwardedClientCert);
        return Ok(());
    };
    let name = Known::XForwardedClientCert;
    match trust.client_cert {
        ForwardClientCert::AppendForward if fields.has(name) => {
            let element = element(certificate, trust.cert_details);
            fields.join(name, b",", element.as_bytes())
        }
        ForwardClientCert::AppendForward | ForwardClientCert::SanitizeSet => {
            let element = element(certificate, trust.cert_details);
            fields.set(name, &[element.as_bytes()])
        }
        _ => Ok(()),
    }
}

/// One element: `Key=value` pairs with semicolons between.
fn element(certificate: &ClientCertificate, details: CertDetails) -> String {
    let mut out = String::new();
    for uri in &certificate.local_uris {
        pair(&mut out, "By", uri, Quote::IfNeeded);
    }
    pair(&mut out, "Hash", &certificate.hash, Quote::IfNeeded);
    if details.cert {
        pair(
            &mut out,
            "Cert",
            &url_encoded(&certificate.pem),
            Quote::Always,
        );
    }
    if details.chain {
        pair(
            &mut out,
            "Chain",
            &url_encoded(&certificate.chain),
            Quote::Always,
        );
    }
    if details.subject {
        pair(&mut out, "Subject", &certificate.subject, Quote::Always);
    }
    if details.uri {
        // An empty URI tells applications that the certificate has none.
        match certificate.uris.as_slice() {
            [] => pair(&mut out, "URI", "", Quote::IfNeeded),
            uris => uris
                .iter()
                .for_each(|uri| pair(&mut out, "URI", uri, Quote::IfNeeded)),
        }
    }
    if details.dns {
        certificate
            .dns
            .iter()
            .for_each(|dns| pair(&mut out, "DNS", dns, Quote::IfNeeded));
    }
    out
}

#[derive(PartialEq)]
enum Quote {
    Always,
    IfNeeded,
}

/// Writes a pair. Text of a certificate is the client's: no byte of it may end the value, the element or the field
/// (GHSA-w5w5-487h-qv8q).
fn pair(out: &mut String, key: &str, value: &str, quote: Quote) {
    if !out.is_empty() {
        out.push(';');
    }
    out.push_str(key);
    out.push('=');
    let is_delimiter = |c: char| matches!(c, ',' | ';' | '=' | '"' | '\\' | ' ');
    let quoted = quote == Quote::Always || value.contains(is_delimiter);
    if quoted {
        out.push('"');
    }
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => encode(out, c),
            c => out.push(c),
        }
    }
    if quoted {
        out.push('"');
    }
}

/// The text with all but unreserved characters as escapes.
fn url_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3 / 2);
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(byte) if crate::scan::is_unreserved(byte) => out.push(c),
            _ => encode(&mut out, c),
        }
    }
    out
}

fn encode(out: &mut String, c: char) {
    let mut buffer = [0; 4];
    for byte in c.encode_utf8(&mut buffer).bytes() {
        out.push_str(&format!("%{byte:02X}"));
    }
}

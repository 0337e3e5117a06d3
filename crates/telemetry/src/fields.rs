//! Fields of the access log, each declared once: a line with an undeclared field fails every test that writes it.

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// When a line has it.
    pub when: &'static str,
    /// What it holds.
    pub meaning: &'static str,
}

const fn field(name: &'static str, when: &'static str, meaning: &'static str) -> Field {
    Field {
        name,
        when,
        meaning,
    }
}

/// All of them, in the order of a line.
pub const FIELDS: &[Field] = &[
    field("src.addr", "always", "the client's address and port"),
    field("src.workload", "if known", "the client's pod"),
    field("src.namespace", "if known", "the client's namespace"),
    field(
        "src.identity",
        "if TLS proved it",
        "the client's SPIFFE identity",
    ),
    field("src.cluster", "if known", "the client's cluster"),
    field(
        "dst.addr",
        "always",
        "where the connection went: with a tunnel, the tunnel's address and port",
    ),
    field(
        "dst.hbone_addr",
        "in a tunnel",
        "what the tunnel was asked for: an address and port, or a host name",
    ),
    field(
        "dst.service",
        "if a service was addressed",
        "the service's host name",
    ),
    field("dst.workload", "if known", "the server's pod"),
    field("dst.namespace", "if known", "the server's namespace"),
    field(
        "dst.identity",
        "if TLS proved it",
        "the server's SPIFFE identity",
    ),
    field("dst.cluster", "if known", "the server's cluster"),
    field(
        "direction",
        "always",
        "`outbound` at the client's proxy, `inbound` at the server's",
    ),
    field(
        "bytes_sent",
        "if it was opened",
        "bytes that this proxy sent to the other one or, at the server's side, back to the client",
    ),
    field(
        "bytes_recv",
        "if it was opened",
        "bytes that this proxy received from there",
    ),
    field(
        "duration",
        "if it was opened",
        "how long it lived, in whole milliseconds with the unit: `8ms`",
    ),
    field(
        "policy.dry_run",
        "if a policy in dry run has a say",
        "what policies in dry run would have done, by name",
    ),
    field("error", "if it failed", "why it failed, or was refused"),
];

/// Fails a debug build that writes a field which nobody can look up.
pub(crate) fn expect_declared(name: &str) {
    debug_assert!(
        FIELDS.iter().any(|field| field.name == name),
        "{name} is logged and not declared: add it to FIELDS in crates/telemetry/src/fields.rs and run `make reference`"
    );
}

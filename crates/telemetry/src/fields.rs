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

/// Those of a request's line, in its order.
pub const REQUEST_FIELDS: &[Field] = &[
    field("src.addr", "always", "the client's address and port"),
    field("src.workload", "if known", "the client's pod"),
    field("src.namespace", "if known", "the client's namespace"),
    field("src.identity", "always", "the client's SPIFFE identity"),
    field(
        "dst.addr",
        "if an endpoint was chosen",
        "the address and port of the last endpoint",
    ),
    field(
        "dst.service",
        "if a service was addressed",
        "the service's host name",
    ),
    field("dst.workload", "if known", "the endpoint's pod"),
    field(
        "dst.asked",
        "always",
        "what the client's tunnel was asked for",
    ),
    field("direction", "always", "`inbound`"),
    field("method", "always", "the method; `-` without a valid head"),
    field(
        "path",
        "always",
        "the path as the endpoint gets it, with its query",
    ),
    field("authority", "always", "the host that the request names"),
    field("request_id", "if the request has one", "its `x-request-id`"),
    field(
        "status",
        "always",
        "the status of the answer; 0 without one. A call of gRPC that is refused gets 200, and `grpc_status` says why",
    ),
    field("flags", "always", "Envoy's flags; `-` for none"),
    field(
        "grpc_status",
        "if it is a call of gRPC that was answered",
        "its status. Where the endpoint gave none, it follows from `status`, as in Envoy: 14 for 503, 2 for 200",
    ),
    field(
        "policy",
        "if a policy refused it",
        "the policy, by namespace and name",
    ),
    field(
        "attempts",
        "always",
        "how many connections the request was given to, or could not be opened",
    ),
    field(
        "bytes_recv",
        "always",
        "bytes of the request, its head included",
    ),
    field(
        "bytes_sent",
        "always",
        "bytes of the answer, its head included",
    ),
    field(
        "duration",
        "always",
        "from the head of the request to the end of the answer, in microseconds: `830us`",
    ),
    field(
        "first_byte",
        "if it was answered",
        "the same until the head of the answer",
    ),
    field(
        "error",
        "if it was not served to its end",
        "why it was refused, or failed",
    ),
];

/// Fails a debug build that writes a field which nobody can look up.
pub(crate) fn expect_declared(name: &str) {
    debug_assert!(
        [FIELDS, REQUEST_FIELDS]
            .iter()
            .any(|fields| fields.iter().any(|field| field.name == name)),
        "{name} is logged and not declared: add it to FIELDS in crates/telemetry/src/fields.rs and run `make reference`"
    );
}

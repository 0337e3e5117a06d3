//! Labels that are known at a request's end: protocol, response code, gRPC status, and Envoy's response flags.

use std::fmt;

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP of any version.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }
}

/// The status of a gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrpcStatus(u8);

impl GrpcStatus {
    /// gRPC's code for what nobody knows.
    const UNKNOWN: u8 = 2;
    /// The highest code that gRPC declares, UNAUTHENTICATED.
    const HIGHEST: u8 = 16;

    /// The status of this code. A code that gRPC does not declare is UNKNOWN, as gRPC clients treat it.
    pub fn new(code: u32) -> Self {
        let known = u8::try_from(code)
            .ok()
            .filter(|code| *code <= Self::HIGHEST);
        Self(known.unwrap_or(Self::UNKNOWN))
    }
}

/// Declares flags with their values once.
macro_rules! flags {
    ($($(#[$doc:meta])* $flag:ident = $value:literal,)*) => {
        /// How a proxy had a part in a request's end, in Envoy's words.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum RequestFlags {
            $($(#[$doc])* $flag,)*
        }

        impl RequestFlags {
            const ALL: &[Self] = &[$(Self::$flag),*];

            /// The label's value.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$flag => $value,)*
                }
            }
        }
    };
}

flags! {
    /// None: the response is the server's.
    #[default]
    None = "-",
    /// No route leads to a destination.
    NoRoute = "NR",
    /// No endpoint of the destination is healthy.
    NoHealthyUpstream = "UH",
    /// The connection to the server could not be opened.
    UpstreamConnectionFailure = "UF",
    /// The server's connection ended before the response did.
    UpstreamConnectionTermination = "UC",
    /// The server reset the stream.
    UpstreamRemoteReset = "UR",
    /// The server broke its protocol.
    UpstreamProtocolError = "UPE",
    /// The response did not come in time.
    UpstreamRequestTimeout = "UT",
    /// The destination takes no more requests.
    UpstreamOverflow = "UO",
    /// All attempts failed.
    UpstreamRetryLimitExceeded = "URX",
    /// All attempts failed, the last one because no connection could be opened. Envoy joins flags in the order in which they are set.
    RetriedConnectionFailure = "URX,UF",
    /// All attempts failed, the last one because the connection ended.
    RetriedConnectionTermination = "URX,UC",
    /// All attempts failed, the last one because the server reset the stream.
    RetriedRemoteReset = "URX,UR",
    /// All attempts failed, the last one because the response did not come in time.
    RetriedRequestTimeout = "URX,UT",
    /// The client's connection ended before the response did.
    DownstreamConnectionTermination = "DC",
    /// The client reset the stream.
    DownstreamRemoteReset = "DR",
    /// The client broke its protocol.
    DownstreamProtocolError = "DPE",
    /// The stream was idle for too long.
    StreamIdleTimeout = "SI",
    /// The request was one too many for a rate limit.
    RateLimited = "RL",
    /// An external authorizer denied the request.
    UnauthorizedExternalService = "UAEX",
}

impl RequestFlags {
    /// The flags of a request whose last attempt failed for this reason and that is not attempted again.
    pub fn exhausted(self) -> Self {
        match self {
            Self::UpstreamConnectionFailure => Self::RetriedConnectionFailure,
            Self::UpstreamConnectionTermination => Self::RetriedConnectionTermination,
            Self::UpstreamRemoteReset => Self::RetriedRemoteReset,
            Self::UpstreamRequestTimeout => Self::RetriedRequestTimeout,
            // The fault is the request's.
            Self::DownstreamProtocolError => self,
            _ => Self::UpstreamRetryLimitExceeded,
        }
    }
}

/// The end of a request in one word, which is compared in place of its labels: flags, gRPC status, protocol, and response
/// code, from high bits to low ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outcome(u32);

impl Outcome {
    const CODE: u32 = 0xffff;
    const GRPC: u32 = 1 << 16;
    const STATUS: u32 = 17;
    const FLAGS: u32 = 24;

    /// An outcome; code 0 means that there was no response. A code without three digits is 0, too.
    pub(super) fn new(
        protocol: Protocol,
        code: u16,
        status: Option<GrpcStatus>,
        flags: RequestFlags,
    ) -> Self {
        let code = if (100..=999).contains(&code) { code } else { 0 };
        let protocol = match protocol {
            Protocol::Http => 0,
            Protocol::Grpc => Self::GRPC,
        };
        let status = status.map_or(0, |status| u32::from(status.0) + 1);
        Self(u32::from(code) | protocol | status << Self::STATUS | (flags as u32) << Self::FLAGS)
    }

    /// The outcome under which a cell counts what has no row of its own: only the class of the code is left. Codes from 600 are of
    /// class 5 (RFC 9110 §15).
    pub(super) fn folded(self) -> Self {
        let class = ((self.0 & Self::CODE) / 100).min(5);
        let code = class * 100;
        Self(code | self.0 & Self::GRPC)
    }

    /// The outcome without the labels that are not shown.
    pub(super) fn shown(self, protocol: bool, flags: bool) -> Self {
        let mut mask = u32::MAX;
        if !protocol {
            mask &= !Self::GRPC;
        }
        if !flags {
            mask &= (1 << Self::FLAGS) - 1;
        }
        Self(self.0 & mask)
    }

    pub(super) fn protocol(self) -> Protocol {
        Protocol::ALL[usize::from(self.0 & Self::GRPC != 0)]
    }

    pub(super) fn code(self) -> u32 {
        self.0 & Self::CODE
    }

    /// The gRPC status; none is an empty label.
    pub(super) fn status(self) -> Option<u32> {
        ((self.0 >> Self::STATUS) & 0x7f).checked_sub(1)
    }

    pub(super) fn flags(self) -> RequestFlags {
        RequestFlags::ALL[(self.0 >> Self::FLAGS) as usize]
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("protocol", &self.protocol())
            .field("code", &self.code())
            .field("status", &self.status())
            .field("flags", &self.flags())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_keeps_its_labels() {
        for flags in RequestFlags::ALL {
            for status in [None, Some(0), Some(16)] {
                for protocol in Protocol::ALL {
                    let outcome = Outcome::new(protocol, 503, status.map(GrpcStatus::new), *flags);
                    assert_eq!(outcome.code(), 503);
                    assert_eq!(outcome.protocol(), protocol);
                    assert_eq!(outcome.status(), status);
                    assert_eq!(outcome.flags(), *flags);
                }
            }
        }
    }

    #[test]
    fn codes_of_three_digits_become_labels_and_others_do_not() {
        let status = Some(GrpcStatus::new(77));
        for (code, label) in [(99, 0), (100, 100), (600, 600), (999, 999), (1000, 0)] {
            let outcome = Outcome::new(Protocol::Grpc, code, status, RequestFlags::None);
            assert_eq!((outcome.code(), outcome.status()), (label, Some(2)));
        }
    }
}

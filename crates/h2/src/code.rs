//! Error codes as RST_STREAM and GOAWAY carry them.

use std::fmt;

/// An error code (RFC 9113 §7); peers may use others than those named here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// Not an error.
    pub const NO_ERROR: Code = Code(0x0);
    /// The rules were broken.
    pub const PROTOCOL_ERROR: Code = Code(0x1);
    /// The sender's own fault.
    pub const INTERNAL_ERROR: Code = Code(0x2);
    /// More was sent than the window allows, or the window became too large.
    pub const FLOW_CONTROL_ERROR: Code = Code(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Code = Code(0x4);
    /// A frame came on a stream that was over.
    pub const STREAM_CLOSED: Code = Code(0x5);
    /// A frame's length is not what its kind allows.
    pub const FRAME_SIZE_ERROR: Code = Code(0x6);
    /// The request was not processed.
    pub const REFUSED_STREAM: Code = Code(0x7);
    /// The stream is no longer wanted.
    pub const CANCEL: Code = Code(0x8);
    /// A header block cannot be read; the connection's compression state is lost.
    pub const COMPRESSION_ERROR: Code = Code(0x9);
    /// The connection behind a CONNECT was reset or broke.
    pub const CONNECT_ERROR: Code = Code(0xa);
    /// The peer costs too much.
    pub const ENHANCE_YOUR_CALM: Code = Code(0xb);
    /// The layer below is not safe enough.
    pub const INADEQUATE_SECURITY: Code = Code(0xc);
    /// HTTP/1.1 is wanted.
    pub const HTTP_1_1_REQUIRED: Code = Code(0xd);

    /// The RFC's name; `None` for codes that it does not define.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

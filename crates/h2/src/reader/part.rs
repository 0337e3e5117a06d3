//! Output of the reader: one part of a frame.

use crate::code::Code;

/// What comes out, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Some of a DATA frame. The first piece has `begins`, the last one `over`; lengths are the whole frame's.
    Data {
        stream: u32,
        begins: bool,
        /// Everything that counts against windows.
        length: u32,
        /// What of it is padding, with its length.
        padding: u32,
        bytes: &'a [u8],
        over: bool,
        end_stream: bool,
    },
    /// Some of a header block; `over` is set on the last piece of the last frame.
    Block {
        stream: u32,
        /// First piece of a HEADERS frame.
        begins: bool,
        /// First piece of any frame of the block.
        frame: bool,
        bytes: &'a [u8],
        over: bool,
        end_stream: bool,
    },
    /// RST_STREAM.
    Reset { stream: u32, code: Code },
    /// One entry of SETTINGS.
    Setting { id: u16, value: u32 },
    /// SETTINGS are over.
    Settings,
    /// Ours were acknowledged.
    Acknowledged,
    /// PING or its answer.
    Ping { ack: bool, payload: [u8; 8] },
    /// GOAWAY.
    GoAway { last: u32, code: Code },
    /// WINDOW_UPDATE.
    Window { stream: u32, increment: u32 },
    /// PRIORITY or a frame of an unknown kind begins.
    Useless,
}

//! State flags of a stream, one bit each.

/// Nothing more of ours goes out: END_STREAM was framed, or the stream was reset.
pub(crate) const SENT: u16 = 1 << 0;
/// Nothing more comes: END_STREAM came, or the stream was reset.
pub(crate) const HEARD: u16 = 1 << 1;
/// END_STREAM is to follow what is queued.
pub(crate) const ENDING: u16 = 1 << 2;
/// It waits for its turn.
pub(crate) const READY: u16 = 1 << 3;
/// The caller waits for room.
pub(crate) const WAITING: u16 = 1 << 4;
/// The request's method is CONNECT.
pub(crate) const CONNECT: u16 = 1 << 5;
/// The response's header block was sent or came.
pub(crate) const ANSWERED: u16 = 1 << 6;
/// We opened it.
pub(crate) const OURS: u16 = 1 << 7;
/// We reset it: what still comes is no fault of the peer's.
pub(crate) const RESET: u16 = 1 << 8;
/// The caller has let it go, and what it said before is still to be sent.
pub(crate) const LET_GO: u16 = 1 << 9;
/// It was let go before the last call of `Connection::expire_let_go`.
pub(crate) const AGED: u16 = 1 << 15;
/// The length of the peer's content is known, see `Stream::left`.
pub(crate) const COUNTED: u16 = 1 << 10;
/// The request's method is HEAD.
pub(crate) const HEAD: u16 = 1 << 11;
/// The request is an extended CONNECT (RFC 8441 §4).
pub(crate) const EXTENDED: u16 = 1 << 12;
/// Trailers are to follow what is queued.
pub(crate) const TRAILERS: u16 = 1 << 13;
/// It waits for room and is in the line of those that may have some.
pub(crate) const LISTED: u16 = 1 << 14;

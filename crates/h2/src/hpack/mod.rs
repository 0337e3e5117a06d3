//! Header compression (RFC 7541): a decoder for any valid encoding, and an encoder that refers to fields that it sent before.
//! Integers, the Huffman code and the static table are there for other readers of header blocks, too.

mod decoder;
mod encoder;
mod fields;
pub mod huffman;
pub mod integer;
mod names;
pub mod statics;
mod table;

pub use decoder::Decoder;
pub(crate) use encoder::Encoder;
pub use encoder::{BlockWriter, Field, Keep, Prebuilt};
pub use fields::{FieldLine, FieldPlace, Fields, Limits};
pub use names::Known;

/// The size of both dynamic tables, in bytes (RFC 9113 §6.5.2): we announce no other, and use no more of a peer's.
pub(crate) const TABLE: u32 = 4096;

/// What an entry takes beyond its name and value (RFC 7541 §4.1), in bytes; a header list is counted alike.
pub(crate) const OVERHEAD: usize = 32;

/// A header block that cannot be read, and why.
pub type Unreadable = &'static str;

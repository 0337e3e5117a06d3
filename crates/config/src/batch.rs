//! Content of one xDS response, in the form that the store takes.

use bytes::Bytes;
use lateen_types::Strng;

use crate::Kind;

/// The content of one xDS response.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The kind of its resources.
    pub kind: &'static Kind,
    /// Name and encoded message of what is new or changed.
    pub upserts: Vec<(Strng, Bytes)>,
    /// Names of what is gone.
    pub removals: Vec<Strng>,
    /// Where resources are sent on demand: names that were asked for and are hereby answered, whatever the answer.
    pub answered: Vec<Strng>,
    /// Names whose answer is no longer believed: whoever needs one asks again.
    pub forgotten: Vec<Strng>,
    /// The first push is not whole yet: others of its kind follow, and what is not known may be among them.
    pub more: bool,
}

impl Batch {
    /// One of this kind that says nothing.
    pub fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            upserts: Vec::new(),
            removals: Vec::new(),
            answered: Vec::new(),
            forgotten: Vec::new(),
            more: false,
        }
    }
}

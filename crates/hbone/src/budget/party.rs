//! Parties that have a share of a ledger.

use lateen_types::{Identity, Strng};

/// The holder of an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Party {
    /// A trust domain and a namespace in it.
    Tenant(Strng, Strng),
    Peer(Identity),
    Pod(Box<str>),
    /// All peers of a tenant with one pod.
    Visit(Strng, Strng, Box<str>),
    Pair(Identity, Box<str>),
}

impl Party {
    /// How many times what is free it may have.
    pub(super) fn multiple(&self) -> usize {
        match self {
            Party::Tenant(..) => 4,
            Party::Peer(_) | Party::Pod(_) | Party::Visit(..) => 3,
            Party::Pair(..) => 2,
        }
    }
}

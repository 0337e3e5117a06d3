//! Key of a pool's tunnels, and the connections that its dials return.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_types::{Identity, WorkloadUid};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::budget::Budget;
use crate::driver::Below;

/// Properties that connections must share to use one tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// The client's identity, whose certificate the tunnel was set up with.
    pub source: Identity,
    /// Identities that the peer may have. Its certificate was verified against this list.
    pub destinations: Arc<[Identity]>,
    /// The peer's tunnel port.
    pub address: SocketAddr,
    /// The client's pod. The tunnel is dialled in the pod's network namespace, and its memory counts for the pod alone.
    /// Identity and address do not identify a pod: replicas share an identity, and every pod has the loopback addresses.
    pub pod: WorkloadUid,
    /// The sources whose streams share the tunnels.
    pub users: Users,
}

/// The number of sources whose streams share the tunnels of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Users {
    /// Any number. If unread streams fill a tunnel, another one is opened for the other sources.
    All,
    /// Several of one namespace. No tunnel is opened beside a filled one: each would take 64 KiB beside the budget.
    Few,
    /// One. The tunnels take the turns of this source, and none is opened beside a filled one.
    One,
}

/// A connection, and the budget of its peer, which the handshake has identified.
#[derive(Debug)]
pub struct Budgeted<IO> {
    /// The connection's bytes.
    pub io: IO,
    /// See [`Budget::between`].
    pub budget: Budget,
    /// See [`Driver::ask`].
    pub below: Below<IO>,
}

/// Budget and probe of a connection, if its peer is known.
pub type Known<IO> = Option<(Budget, Below<IO>)>;

/// Result of a dial: a connection whose window comes from [`Settings::budget`], or [`Budgeted`].
pub trait Dialled: 'static {
    /// The connection's bytes.
    type Io: AsyncRead + AsyncWrite + Unpin + 'static;

    /// The byte stream, with its budget and probe.
    fn parts(self) -> (Self::Io, Known<Self::Io>);
}

impl<IO: AsyncRead + AsyncWrite + Unpin + 'static> Dialled for IO {
    type Io = IO;

    fn parts(self) -> (IO, Known<IO>) {
        (self, None)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin + 'static> Dialled for Budgeted<IO> {
    type Io = IO;

    fn parts(self) -> (IO, Known<IO>) {
        (self.io, Some((self.budget, self.below)))
    }
}

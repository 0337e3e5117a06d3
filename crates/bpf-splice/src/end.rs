//! The two ends of a joined connection.

/// One of the two applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one that opened the connection.
    Client = 0,
    /// The one that serves.
    Server = 1,
}

impl End {
    pub(crate) fn other(self) -> Self {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

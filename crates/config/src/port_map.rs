//! Mapping of a service's port to the port of an endpoint.

/// A port of a service and the port that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortMap {
    /// The service's port, never 0.
    pub service: u16,
    /// The port that the application listens on; 0 where the owner leaves it open.
    pub target: u16,
}

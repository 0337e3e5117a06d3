//! Sockets in pods' network namespaces: listeners, original destinations, the acceptor, ZDS.

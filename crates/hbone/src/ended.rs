//! End of a tunnel, as its streams see it.

use std::io;
use std::rc::Rc;

/// The reason for which a tunnel ended. Each of its streams reports it.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    kind: io::ErrorKind,
    why: Rc<str>,
}

impl Ended {
    /// In order, as far as the tunnel is concerned.
    pub(crate) fn closed() -> Self {
        Ended {
            kind: io::ErrorKind::ConnectionAborted,
            why: "tunnel closed under the stream".into(),
        }
    }

    /// By an error of this kind.
    pub(crate) fn by(kind: io::ErrorKind, error: &dyn std::fmt::Display) -> Self {
        Ended {
            kind,
            why: error.to_string().into(),
        }
    }

    /// As an error of a stream.
    pub(crate) fn to_io(&self) -> io::Error {
        io::Error::new(self.kind, self.why.to_string())
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

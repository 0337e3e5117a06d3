//! Metadata of a stream: the fields of its CONNECT request with which the source's proxy describes the connection.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use lateen_hbone::{Baggage, Forwarded};

/// The description of a stream by the source's proxy. Relayed connections carry it on.
#[derive(Debug)]
pub(super) struct StreamMetadata {
    pub(super) baggage: Option<Baggage>,
    /// The service's host name, if the application addressed a service.
    pub(super) host: Option<String>,
}

/// The metadata of the newest stream that a tunnel has opened to a destination, as long as a stream has them. The source's proxy says
/// the same of all connections to a service, so that those share one copy.
#[derive(Debug, Default)]
pub(super) struct NewestMetadata(RefCell<Weak<StreamMetadata>>);

impl NewestMetadata {
    /// Returns the metadata of a stream, which are shared with the stream before if they are equal.
    pub(super) fn of(
        &self,
        baggage: Option<&Baggage>,
        forwarded: Option<&Forwarded>,
    ) -> Rc<StreamMetadata> {
        let host = forwarded.and_then(|forwarded| forwarded.host.as_ref());
        let newest = self.0.borrow().upgrade();
        if let Some(newest) = newest
            && (newest.baggage.as_ref(), newest.host.as_ref()) == (baggage, host)
        {
            return newest;
        }
        let own = Rc::new(StreamMetadata {
            baggage: baggage.cloned(),
            host: host.cloned(),
        });
        self.0.replace(Rc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Forwarded {
        Forwarded {
            client: None,
            host: Some(name.to_owned()),
        }
    }

    #[test]
    fn streams_share_metadata_that_are_equal() {
        let newest = NewestMetadata::default();
        let web = Baggage::parse("service.name=web");
        let first = newest.of(Some(&web), Some(&host("a")));
        assert!(Rc::ptr_eq(&first, &newest.of(Some(&web), Some(&host("a")))));
        assert_eq!(first.baggage, Some(web));
        assert_eq!(first.host.as_deref(), Some("a"));
    }

    #[test]
    fn a_stream_has_its_own_metadata_where_they_differ() {
        let newest = NewestMetadata::default();
        let (web, api) = (
            Baggage::parse("service.name=web"),
            Baggage::parse("service.name=api"),
        );
        let cases = [
            (Some(&web), Some("a")),
            (Some(&api), Some("a")),
            (Some(&api), Some("b")),
            (None, Some("b")),
            (None, None),
            (Some(&web), None),
            (Some(&web), Some("a")),
            (Some(&web), None),
        ];
        for (baggage, name) in cases {
            let forwarded = name.map(host);
            let metadata = newest.of(baggage, forwarded.as_ref());
            assert_eq!(metadata.baggage.as_ref(), baggage);
            assert_eq!(metadata.host.as_deref(), name);
        }
    }

    #[test]
    fn a_tunnel_without_streams_holds_no_texts() {
        let newest = NewestMetadata::default();
        let metadata = newest.of(None, Some(&host("a")));
        let held = Rc::downgrade(&metadata);
        drop(metadata);
        assert!(held.upgrade().is_none());
    }
}

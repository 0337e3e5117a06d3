//! What the source's proxy says about a stream, in the fields of its CONNECT request.

use std::cell::RefCell;
use std::rc::Rc;

use lateen_hbone::{Baggage, Forwarded};

/// What the source's proxy says about a stream. Relayed connections carry it on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StreamMetadata {
    pub(super) baggage: Option<Baggage>,
    /// The service's host name, if the application addressed a service.
    pub(super) host: Option<String>,
}

/// The metadata of a tunnel's newest stream. The source's proxy mostly says the same of all streams, and they share one copy.
#[derive(Clone, Debug, Default)]
pub(super) struct NewestMetadata(RefCell<Rc<StreamMetadata>>);

impl NewestMetadata {
    /// Returns the metadata of a stream, which are shared with the stream before if they are equal.
    pub(super) fn of(
        &self,
        baggage: Option<&Baggage>,
        forwarded: Option<&Forwarded>,
    ) -> Rc<StreamMetadata> {
        let host = forwarded.and_then(|forwarded| forwarded.host.as_ref());
        let mut newest = self.0.borrow_mut();
        if (newest.baggage.as_ref(), newest.host.as_ref()) != (baggage, host) {
            *newest = Rc::new(StreamMetadata {
                baggage: baggage.cloned(),
                host: host.cloned(),
            });
        }
        Rc::clone(&newest)
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
        ];
        for (baggage, name) in cases {
            let forwarded = name.map(host);
            let metadata = newest.of(baggage, forwarded.as_ref());
            assert_eq!(metadata.baggage.as_ref(), baggage);
            assert_eq!(metadata.host.as_deref(), name);
        }
    }
}

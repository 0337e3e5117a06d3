//! Whole messages: those without content that this proxy does not know.

use bytes::Bytes;
use lateen_types::NamespacedName;
use prost::Message;

use crate::Rejection;

/// Decodes a message. Content that decoding dropped is refused: it may be what narrows the rest. What could be read is given to
/// `refused` then.
pub(super) fn whole<M: Message + Default>(
    bytes: &Bytes,
    refused: impl FnOnce(Option<&M>),
) -> Result<M, Rejection> {
    match M::decode(bytes.clone()) {
        // Every encoder in use writes the same bytes for the rest, at least as many.
        Ok(message) if message.encoded_len() < bytes.len() => {
            refused(Some(&message));
            Err(Rejection::UnknownContent)
        }
        Ok(message) => Ok(message),
        Err(error) => {
            refused(None);
            Err(error.into())
        }
    }
}

/// The name of a resource, which is that of its content.
pub(super) fn named(name: &str, namespace: &str, own: &str) -> Result<NamespacedName, Rejection> {
    if namespace.contains('/') {
        return Err(Rejection::NamespaceSlash {
            namespace: namespace.to_owned(),
        });
    }
    let inner = NamespacedName::new(namespace, own);
    if inner.to_string() == name {
        Ok(inner)
    } else {
        Err(Rejection::OtherName {
            inner: inner.to_string(),
        })
    }
}

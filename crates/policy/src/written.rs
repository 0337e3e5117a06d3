//! A policy's name as its author wrote it.

use lateen_types::NamespacedName;

/// `name` without what the control plane adds on the wire: `~` and eight hex digits, when a policy came to select other
/// workloads (docs/design/policies-have-names-on-the-wire.md). No object of Kubernetes has a tilde in its name. What
/// people read shows this name; what is looked up goes by the whole one.
pub fn written(name: &str) -> &str {
    match name.rsplit_once('~') {
        Some((own, mark)) if mark.len() == 8 && mark.bytes().all(hex) && !own.is_empty() => own,
        _ => name,
    }
}

fn hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The same of a whole name; a name without the mark is shared, not copied.
pub(crate) fn written_name(name: &NamespacedName) -> NamespacedName {
    let own = written(&name.name);
    if own.len() == name.name.len() {
        return name.clone();
    }
    NamespacedName::new(name.namespace.clone(), own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_the_wire_goes_and_nothing_else() {
        for (wire, own) in [
            ("web~f17b629b", "web"),
            ("default/web~00000000", "default/web"),
            ("web", "web"),
            ("", ""),
            ("~f17b629b", "~f17b629b"),
            ("web~f17b629", "web~f17b629"),
            ("web~f17b629bb", "web~f17b629bb"),
            ("web~F17B629B", "web~F17B629B"),
            ("web~f17b629g", "web~f17b629g"),
            ("web~é17b62", "web~é17b62"),
            ("web-f17b629b", "web-f17b629b"),
        ] {
            assert_eq!(written(wire), own, "{wire}");
        }
    }
}

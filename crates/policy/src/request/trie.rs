//! A radix tree over bytes, for whole texts and for beginnings of texts.

use std::collections::BTreeMap;

/// Values by whole texts and by beginnings of texts. It is immutable. Its nodes are in one list, so that no depth costs stack.
#[derive(Debug)]
pub(super) struct Trie<T>(Box<[Node<T>]>);

/// A node; the first one is the root. The texts below it go on with the bytes of its label.
#[derive(Debug)]
struct Node<T> {
    label: Box<[u8]>,
    /// Of the text that ends here.
    whole: Box<[T]>,
    /// Of all texts that come by.
    begins: Box<[T]>,
    /// The first bytes of the children's labels, in order.
    bytes: Box<[u8]>,
    /// The position of the first child; the others follow.
    children: usize,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self {
            label: Box::default(),
            whole: Box::default(),
            begins: Box::default(),
            bytes: Box::default(),
            children: 0,
        }
    }
}

impl<T: Copy> Trie<T> {
    /// Builds the tree of values by whole text, and by beginning.
    pub(super) fn new(whole: BTreeMap<Vec<u8>, Vec<T>>, begins: BTreeMap<Vec<u8>, Vec<T>>) -> Self {
        let mut all: BTreeMap<Vec<u8>, (Vec<T>, Vec<T>)> = BTreeMap::new();
        for (text, values) in whole {
            all.entry(text).or_default().0 = values;
        }
        for (text, values) in begins {
            all.entry(text).or_default().1 = values;
        }
        let mut all: Vec<_> = all.into_iter().collect();
        let mut nodes = Vec::new();
        // Nodes to build: the place, the texts below, and how many of their bytes the path to the node has.
        let mut open = Vec::new();
        if !all.is_empty() {
            nodes.push(Node::default());
            open.push((0, 0..all.len(), 0));
        }
        while let Some((place, mut texts, depth)) = open.pop() {
            // In sorted texts the first and the last share what all share.
            let (first, last) = (&all[texts.start].0[depth..], &all[texts.end - 1].0[depth..]);
            let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
            let mut node = Node {
                label: first[..shared].into(),
                children: nodes.len(),
                ..Node::default()
            };
            let depth = depth + shared;
            if all[texts.start].0.len() == depth {
                let (whole, begins) = std::mem::take(&mut all[texts.start].1);
                (node.whole, node.begins) = (whole.into(), begins.into());
                texts.start += 1;
            }
            let mut bytes = Vec::new();
            while !texts.is_empty() {
                let byte = all[texts.start].0[depth];
                let of_byte = all[texts.clone()]
                    .iter()
                    .take_while(|(text, _)| text[depth] == byte);
                let end = texts.start + of_byte.count();
                bytes.push(byte);
                open.push((nodes.len(), texts.start..end, depth));
                nodes.push(Node::default());
                texts.start = end;
            }
            node.bytes = bytes.into();
            nodes[place] = node;
        }
        Self(nodes.into())
    }

    /// Builds the tree of values by ends of texts, for [`Trie::find_ends`] alone.
    pub(super) fn of_ends(ends: BTreeMap<Vec<u8>, Vec<T>>) -> Self {
        let reversed = ends.into_iter().map(|(mut text, values)| {
            text.reverse();
            (text, values)
        });
        let mut trie = Self::new(BTreeMap::new(), reversed.collect());
        // A text is read from its end, and each label in the order of its bytes.
        for node in &mut trie.0 {
            node.label.reverse();
        }
        trie
    }

    /// Gives the values of a text to `take`: as a whole, and of all of its beginnings.
    #[inline]
    pub(super) fn find(&self, text: &[u8], mut take: impl FnMut(T)) {
        let mut next = self.0.first();
        let mut rest = text;
        while let Some(node) = next {
            let Some(behind) = rest.strip_prefix(&*node.label) else {
                return;
            };
            node.begins.iter().copied().for_each(&mut take);
            let Some(byte) = behind.first() else {
                return node.whole.iter().copied().for_each(take);
            };
            next = self.child(node, *byte);
            rest = behind;
        }
    }

    /// Gives the values of all ends of a text to `take`.
    #[inline]
    pub(super) fn find_ends(&self, text: &[u8], mut take: impl FnMut(T)) {
        let mut next = self.0.first();
        let mut rest = text;
        while let Some(node) = next {
            let Some(before) = rest.strip_suffix(&*node.label) else {
                return;
            };
            node.begins.iter().copied().for_each(&mut take);
            next = before.last().and_then(|byte| self.child(node, *byte));
            rest = before;
        }
    }

    /// False only if [`Trie::find`] gives nothing for texts that begin with this byte.
    #[inline]
    pub(super) fn may_find(&self, first: u8) -> bool {
        self.begins_with(first, |label| label.first())
    }

    /// False only if [`Trie::find_ends`] gives nothing for texts that end with this byte.
    #[inline]
    pub(super) fn may_find_ends(&self, last: u8) -> bool {
        self.begins_with(last, |label| label.last())
    }

    /// False only if no text of the tree has this byte where it is read first. `read` gives that of a label.
    #[inline]
    fn begins_with(&self, byte: u8, read: impl Fn(&[u8]) -> Option<&u8>) -> bool {
        self.0.first().is_some_and(|root| match read(&root.label) {
            Some(own) => *own == byte,
            // Every text has the values of an empty one.
            None => !root.begins.is_empty() || root.bytes.contains(&byte),
        })
    }

    #[inline]
    fn child(&self, node: &Node<T>, byte: u8) -> Option<&Node<T>> {
        let child = node.bytes.binary_search(&byte).ok()?;
        self.0.get(node.children + child)
    }

    /// True if there is no text.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_nested_beginnings_are_found() {
        let texts = (0..10_000_u32).map(|length| (vec![b'a'; length as usize], vec![length]));
        let trie = Trie::new(BTreeMap::new(), texts.collect());
        let mut found = Vec::new();
        trie.find(&[b'a'; 20_000], |length| found.push(length));
        assert!(found.into_iter().eq(0..10_000));
    }
}

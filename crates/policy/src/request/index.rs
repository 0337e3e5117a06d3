//! Patterns over texts, found by text: whole texts by hash, beginnings and ends by bisection. A look-up costs the same for one
//! pattern and for a thousand, as long as none of them matches.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::policy::StringMatch;

/// The number of a rule within its set.
pub(super) type RuleId = u32;

/// Rules by patterns over one attribute.
#[derive(Debug, Default)]
pub(super) struct TextIndex {
    exact: HashMap<Box<[u8]>, Vec<RuleId>, BuildHasherDefault<Words>>,
    prefixes: Affixes,
    /// Of the reversed texts.
    suffixes: Affixes,
    present: Vec<RuleId>,
}

impl TextIndex {
    /// Builds the index of rules by pattern.
    pub(super) fn new<'a>(rules: impl IntoIterator<Item = (&'a StringMatch, RuleId)>) -> Self {
        let mut index = Self::default();
        let (mut prefixes, mut suffixes) = (BTreeMap::new(), BTreeMap::new());
        for (pattern, rule) in rules {
            let list: &mut Vec<RuleId> = match pattern {
                StringMatch::Exact(text) => index.exact.entry(text.as_bytes().into()).or_default(),
                StringMatch::Prefix(text) => prefixes.entry(text.as_bytes().to_vec()).or_default(),
                StringMatch::Suffix(text) => {
                    let reversed = text.bytes().rev().collect();
                    suffixes.entry(reversed).or_default()
                }
                StringMatch::Presence => &mut index.present,
            };
            if list.last() != Some(&rule) {
                list.push(rule);
            }
        }
        index.prefixes = Affixes::new(prefixes);
        index.suffixes = Affixes::new(suffixes);
        index
    }

    /// Gives the rules to `take` whose pattern matches a text that is there. A rule may be given several times.
    #[inline]
    pub(super) fn find(&self, text: &[u8], mut take: impl FnMut(RuleId)) {
        if !self.exact.is_empty()
            && let Some(rules) = self.exact.get(text)
        {
            rules.iter().copied().for_each(&mut take);
        }
        self.prefixes.find(text, &mut take);
        if !self.suffixes.0.is_empty() {
            reversed(text, |text| self.suffixes.find(text, &mut take));
        }
        self.present.iter().copied().for_each(take);
    }

    /// True if there is no pattern.
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.prefixes.0.is_empty()
            && self.suffixes.0.is_empty()
            && self.present.is_empty()
    }
}

/// Beginnings of texts in order.
#[derive(Debug, Default)]
struct Affixes(Box<[Affix]>);

#[derive(Debug)]
struct Affix {
    text: Box<[u8]>,
    /// The longest other affix that this one begins with.
    within: Option<u32>,
    rules: Box<[RuleId]>,
}

impl Affixes {
    fn new(sorted: BTreeMap<Vec<u8>, Vec<RuleId>>) -> Self {
        let mut all: Vec<Affix> = Vec::with_capacity(sorted.len());
        for (text, rules) in sorted {
            // What this one begins with is the one before it, or what that one begins with.
            let mut within = all.len().checked_sub(1).map(|last| last as u32);
            while let Some(at) = within {
                let candidate = &all[at as usize];
                if text.starts_with(&candidate.text) {
                    break;
                }
                within = candidate.within;
            }
            all.push(Affix {
                text: text.into(),
                within,
                rules: rules.into(),
            });
        }
        Self(all.into())
    }

    /// Gives the rules of all affixes of a text. Whatever a text begins with is the last affix that is not behind the text
    /// in order, or is found from there by `within`.
    #[inline]
    fn find(&self, text: &[u8], take: &mut impl FnMut(RuleId)) {
        if self.0.is_empty() {
            return;
        }
        let behind = self.0.partition_point(|affix| *affix.text <= *text);
        let mut at = behind.checked_sub(1).map(|last| last as u32);
        while let Some(affix) = at.map(|at| &self.0[at as usize]) {
            if text.starts_with(&affix.text) {
                affix.rules.iter().copied().for_each(&mut *take);
            }
            at = affix.within;
        }
    }
}

/// Gives the bytes of a text in reverse order to `then`.
#[inline]
fn reversed(text: &[u8], then: impl FnOnce(&[u8])) {
    let mut buffer = [0; 128];
    match buffer.get_mut(..text.len()) {
        Some(reversed) => {
            reversed.copy_from_slice(text);
            reversed.reverse();
            then(reversed);
        }
        None => then(&text.iter().rev().copied().collect::<Vec<_>>()),
    }
}

/// A hash by words of eight bytes. Policies choose the entries of a table and requests cannot add any, so that nobody gains by
/// collisions.
#[derive(Debug, Default)]
struct Words(u64);

impl Words {
    fn add(&mut self, word: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Words {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table takes its bits from both ends.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern() -> impl Strategy<Value = StringMatch> {
        let text = || "[ab/]{0,6}".prop_map(|text| text.as_str().into());
        prop_oneof![
            text().prop_map(StringMatch::Exact),
            text().prop_map(StringMatch::Prefix),
            text().prop_map(StringMatch::Suffix),
            Just(StringMatch::Presence),
        ]
    }

    proptest! {
        #[test]
        fn finds_the_rules_that_a_scan_finds(
            patterns in prop::collection::vec(pattern(), 0..40),
            texts in prop::collection::vec("[ab/]{0,8}", 1..8),
        ) {
            let rules = patterns.iter().zip(0..);
            let index = TextIndex::new(rules.clone());
            prop_assert_eq!(index.is_empty(), patterns.is_empty());
            for text in texts {
                let covers = |pattern: &StringMatch| match pattern {
                    StringMatch::Presence => true,
                    other => other.matches_bytes(text.as_bytes()),
                };
                let expected: Vec<RuleId> = rules
                    .clone()
                    .filter_map(|(pattern, rule)| covers(pattern).then_some(rule))
                    .collect();
                let mut found = Vec::new();
                index.find(text.as_bytes(), |rule| found.push(rule));
                found.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

//! Rules by patterns over one attribute, found by text. The cost of a look-up grows with the text, not with the number of patterns
//! that do not match.

use std::collections::BTreeMap;

use super::trie::Trie;
use crate::policy::StringMatch;

/// The number of a rule within its set.
pub(super) type RuleId = u32;

/// Rules by patterns over one attribute.
#[derive(Debug, Default)]
pub(super) struct TextIndex {
    /// Whole texts and beginnings.
    texts: Trie<RuleId>,
    /// Ends.
    ends: Trie<RuleId>,
    present: Vec<RuleId>,
}

impl TextIndex {
    /// Builds the index of rules by pattern.
    pub(super) fn new<'a>(rules: impl IntoIterator<Item = (&'a StringMatch, RuleId)>) -> Self {
        let (mut whole, mut begins, mut ends) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut present = Vec::new();
        for (pattern, rule) in rules {
            let list: &mut Vec<RuleId> = match pattern {
                StringMatch::Exact(text) => whole.entry(text.as_bytes().to_vec()).or_default(),
                StringMatch::Prefix(text) => begins.entry(text.as_bytes().to_vec()).or_default(),
                StringMatch::Suffix(text) => ends.entry(text.as_bytes().to_vec()).or_default(),
                StringMatch::Presence => &mut present,
            };
            if list.last() != Some(&rule) {
                list.push(rule);
            }
        }
        Self {
            texts: Trie::new(whole, begins),
            ends: Trie::of_ends(ends),
            present,
        }
    }

    /// Gives the rules to `take` whose pattern matches a text that is there. A rule may be given several times.
    #[inline]
    pub(super) fn find(&self, text: &[u8], mut take: impl FnMut(RuleId)) {
        self.texts.find(text, &mut take);
        self.ends.find_ends(text, &mut take);
        self.present.iter().copied().for_each(take);
    }

    /// False only if [`TextIndex::find`] gives nothing for texts that begin and end with these bytes.
    #[inline]
    pub(super) fn may_find(&self, first: u8, last: u8) -> bool {
        self.texts.may_find(first) || self.ends.may_find_ends(last) || !self.present.is_empty()
    }

    /// True if there is no pattern.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.ends.is_empty() && self.present.is_empty()
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
                if let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().last()) {
                    prop_assert!(found.is_empty() || index.may_find(first, last));
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}

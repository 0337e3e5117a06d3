//! The filing of rules: each under values of the request of which it needs one, chosen so that they are rare.

use std::collections::{HashMap, HashSet};

use lateen_types::Strng;

use super::check::{Check, Request};
use super::clause::{Clause, Rule};
use super::facts::RequestFacts;
use super::index::{RuleId, TextIndex};
use super::path::PathPattern;
use super::policy::HeaderName;
use crate::policy::StringMatch;

/// The rules of a set by values of requests.
#[derive(Debug, Default)]
pub(super) struct Files {
    hosts: TextIndex,
    methods: TextIndex,
    paths: TextIndex,
    headers: Vec<(HeaderName, TextIndex)>,
    /// Rules that need no value of the request.
    unfiled: Vec<RuleId>,
}

/// An attribute that rules are filed under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Attribute {
    Host,
    Method,
    Path,
    Header(HeaderName),
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    attribute: Attribute,
    pattern: StringMatch,
}

/// Keys of which every request that matches has one.
type Keys = Vec<Key>;

/// One way to file a rule: under one of each list of keys.
type Way = Vec<Vec<Keys>>;

impl Files {
    /// Files all rules.
    pub(super) fn new(rules: &[Rule], clauses: &[Clause]) -> Self {
        let ways: Vec<_> = rules.iter().map(|rule| ways(rule, clauses)).collect();
        let mut uses: HashMap<&Key, u64> = HashMap::new();
        for ways in &ways {
            let keys: HashSet<&Key> = ways.iter().flatten().flatten().flatten().collect();
            for key in keys {
                *uses.entry(key).or_default() += 1;
            }
        }
        let cost = |keys: &Keys| -> u64 {
            let costs = keys.iter().map(|key| uses[key] * key.frequency());
            costs.sum()
        };
        let mut files = Self::default();
        let mut filed: HashMap<&Attribute, Vec<(&StringMatch, RuleId)>> = HashMap::new();
        for (ways, rule) in ways.iter().zip(0..) {
            match cheapest(ways, cost) {
                None => files.unfiled.push(rule),
                Some(keys) => {
                    for key in keys {
                        let list = filed.entry(&key.attribute).or_default();
                        list.push((&key.pattern, rule));
                    }
                }
            }
        }
        for (attribute, rules) in filed {
            let index = TextIndex::new(rules);
            match attribute {
                Attribute::Host => files.hosts = index,
                Attribute::Method => files.methods = index,
                Attribute::Path => files.paths = index,
                Attribute::Header(name) => files.headers.push((name.clone(), index)),
            }
        }
        files
    }

    /// Rules that need no value of the request.
    pub(super) fn unfiled(&self) -> &[RuleId] {
        &self.unfiled
    }

    /// Gives the filed rules to `take` that a request may match. The cost grows with the number of header names.
    #[inline]
    pub(super) fn find<F: RequestFacts>(
        &self,
        request: &Request<'_, F>,
        mut take: impl FnMut(RuleId),
    ) {
        if !self.paths.is_empty() {
            self.paths.find(request.path(), &mut take);
            if let Some(decoded) = request.decoded_path() {
                self.paths.find(decoded, &mut take);
            }
        }
        if !self.hosts.is_empty() && may_find(&self.hosts, request.authority()) {
            self.hosts.find(request.host(), &mut take);
        }
        if !self.methods.is_empty() && may_find(&self.methods, request.method()) {
            self.methods.find(request.method(), &mut take);
        }
        for (name, index) in &self.headers {
            let mut fields = 0;
            request.each_value(name, |value| {
                fields += 1;
                index.find(value, &mut take);
            });
            if fields > 1 {
                request.joined_values(name, |joined| index.find(joined, &mut take));
            }
        }
    }
}

/// False only if an index has nothing for a text, whose letters count as those in lower case as well. It looks at two bytes, by which
/// most texts of few kinds differ.
#[inline]
fn may_find(index: &TextIndex, text: &[u8]) -> bool {
    let (Some(first), Some(last)) = (text.first(), text.last()) else {
        return true;
    };
    index.may_find(*first, *last)
        || index.may_find(first.to_ascii_lowercase(), last.to_ascii_lowercase())
}

impl Key {
    /// How often requests have the value, as far as its kind tells. The requests at an attachment point are often for one host,
    /// and there are few methods.
    fn frequency(&self) -> u64 {
        let attribute = match self.attribute {
            Attribute::Path | Attribute::Header(_) => 1,
            Attribute::Host => 16,
            Attribute::Method => 64,
        };
        let pattern = match &self.pattern {
            StringMatch::Exact(_) => 1,
            StringMatch::Prefix(text) | StringMatch::Suffix(text) if text.len() > 1 => 4,
            StringMatch::Prefix(_) | StringMatch::Suffix(_) | StringMatch::Presence => 64,
        };
        attribute * pattern
    }
}

/// The ways to file a rule.
fn ways(rule: &Rule, clauses: &[Clause]) -> Vec<Way> {
    let options = |id: u32| -> Vec<Keys> {
        let checks = clauses[id as usize].request.iter();
        checks.filter_map(keys).collect()
    };
    // The rule needs each of its conditions, and one of its operations.
    let conditions = options(rule.when).into_iter();
    let mut ways: Vec<Way> = conditions.map(|keys| vec![vec![keys]]).collect();
    let operations: Way = rule.to.clone().map(options).collect();
    if !operations.is_empty() && operations.iter().all(|options| !options.is_empty()) {
        ways.push(operations);
    }
    ways
}

/// The keys of which every request that passes a check has one. None if the check admits requests without any.
fn keys(check: &Check) -> Option<Keys> {
    let (attribute, patterns): (_, Vec<StringMatch>) = match check {
        Check::Host(values) => (Attribute::Host, values.any.clone()),
        Check::Method(values) => (Attribute::Method, values.any.clone()),
        Check::Header(name, values) => (Attribute::Header(name.clone()), values.any.clone()),
        Check::Path(values) => {
            let patterns = values.any.iter().map(|value| match &value.pattern {
                // The index takes presence for every path that is there, of which the check says no more.
                PathPattern::Text(text) => text.clone(),
                PathPattern::Template(template) => {
                    StringMatch::Prefix(Strng::from(template.literal_prefix()))
                }
            });
            (Attribute::Path, patterns.collect())
        }
        Check::RemoteIp(_) | Check::Token { .. } => return None,
    };
    let key = |pattern| Key {
        attribute: attribute.clone(),
        pattern,
    };
    (!patterns.is_empty()).then(|| patterns.into_iter().map(key).collect())
}

/// Of the ways to file a rule the one whose keys cost least.
fn cheapest(ways: &[Way], cost: impl Fn(&Keys) -> u64) -> Option<Vec<&Key>> {
    let chosen = ways.iter().map(|way| {
        let cheapest = way.iter().filter_map(|options| {
            let costs = options.iter().map(|keys| (cost(keys), keys));
            costs.min_by_key(|(cost, _)| *cost)
        });
        let mut total = 0;
        let keys: Vec<&Key> = cheapest
            .flat_map(|(cost, keys)| {
                total += cost;
                keys
            })
            .collect();
        (total, keys)
    });
    let chosen = chosen.min_by_key(|(cost, _)| *cost);
    chosen.map(|(_, keys)| keys)
}

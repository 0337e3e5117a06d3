//! Rank of an endpoint: its nearness to a client, by the service's order of preference.

use serde::Serialize;

/// What a client and an endpoint may have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Scope {
    /// Cloud region.
    Region,
    /// Zone within a region.
    Zone,
    /// Part of a zone.
    Subzone,
    /// The same node.
    Node,
    /// The same cluster.
    Cluster,
    /// The same network.
    Network,
}

/// What a mismatch means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// Nothing: every endpoint is as good as another.
    #[default]
    Standard,
    /// The endpoint must not be used.
    Strict,
    /// The endpoint comes after those that match longer.
    Failover,
    /// No endpoint is picked at all; the client's destination stands. The caller sees to it.
    Passthrough,
}

/// A service's order of preference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preference {
    /// Most significant first.
    pub scopes: Vec<Scope>,
    /// What a mismatch means.
    pub mode: Mode,
}

/// Where a client or an endpoint is; empty parts are compared like others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// Cloud region.
    pub region: &'a str,
    /// Zone within the region.
    pub zone: &'a str,
    /// Part of the zone.
    pub subzone: &'a str,
    /// Node.
    pub node: &'a str,
    /// Cluster.
    pub cluster: &'a str,
    /// Network.
    pub network: &'a str,
}

impl Place<'_> {
    fn shares(&self, other: &Place<'_>, scope: Scope) -> bool {
        match scope {
            Scope::Region => self.region == other.region,
            Scope::Zone => self.zone == other.zone,
            Scope::Subzone => self.subzone == other.subzone,
            Scope::Node => self.node == other.node,
            Scope::Cluster => self.cluster == other.cluster,
            Scope::Network => self.network == other.network,
        }
    }
}

impl Preference {
    /// The endpoint's rank for this client, higher is better; `None` if it must not be used. The rank is the number of
    /// leading scopes that match. A leading NETWORK is preferred above all the rest together, but an endpoint outside
    /// it is still ranked by what follows: Istio's semantics.
    pub fn rank(&self, client: &Place<'_>, endpoint: &Place<'_>) -> Option<usize> {
        if matches!(self.mode, Mode::Standard | Mode::Passthrough) {
            return Some(0);
        }
        let leading = |scopes: &[Scope]| {
            scopes
                .iter()
                .take_while(|scope| client.shares(endpoint, **scope))
                .count()
        };
        let (matched, bonus) = match self.scopes.split_first() {
            Some((Scope::Network, rest)) if client.shares(endpoint, Scope::Network) => {
                (1 + leading(rest), rest.len())
            }
            Some((Scope::Network, rest)) => (leading(rest), 0),
            _ => (leading(&self.scopes), 0),
        };
        if self.mode == Mode::Strict && matched != self.scopes.len() {
            return None;
        }
        Some(matched + bonus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'static> = Place {
        region: "r",
        zone: "z",
        subzone: "s",
        node: "n",
        cluster: "c",
        network: "net",
    };

    fn rank(mode: Mode, scopes: &[Scope], endpoint: Place<'_>) -> Option<usize> {
        Preference {
            scopes: scopes.to_vec(),
            mode,
        }
        .rank(&HERE, &endpoint)
    }

    #[test]
    fn failover_counts_leading_matches_only() {
        let scopes = [Scope::Region, Scope::Zone, Scope::Node];
        assert_eq!(rank(Mode::Failover, &scopes, HERE), Some(3));
        assert_eq!(
            rank(Mode::Failover, &scopes, Place { node: "x", ..HERE }),
            Some(2)
        );
        assert_eq!(
            rank(Mode::Failover, &scopes, Place { zone: "x", ..HERE }),
            Some(1)
        );
        assert_eq!(
            rank(
                Mode::Failover,
                &scopes,
                Place {
                    region: "x",
                    ..HERE
                }
            ),
            Some(0)
        );
    }

    #[test]
    fn strict_drops_what_does_not_match_wholly() {
        let scopes = [Scope::Node, Scope::Cluster];
        assert_eq!(rank(Mode::Strict, &scopes, HERE), Some(2));
        assert_eq!(
            rank(
                Mode::Strict,
                &scopes,
                Place {
                    cluster: "x",
                    ..HERE
                }
            ),
            None
        );
    }

    #[test]
    fn a_leading_network_outranks_everything_else_but_is_not_required() {
        let scopes = [Scope::Network, Scope::Region, Scope::Zone];
        let far_in_network = rank(
            Mode::Failover,
            &scopes,
            Place {
                region: "x",
                ..HERE
            },
        );
        let near_outside = rank(
            Mode::Failover,
            &scopes,
            Place {
                network: "x",
                ..HERE
            },
        );
        let far_outside = rank(
            Mode::Failover,
            &scopes,
            Place {
                network: "x",
                region: "x",
                ..HERE
            },
        );
        assert_eq!(
            (far_in_network, near_outside, far_outside),
            (Some(3), Some(2), Some(0))
        );
    }

    #[test]
    fn standard_sees_no_difference() {
        assert_eq!(
            rank(Mode::Standard, &[Scope::Node], Place { node: "x", ..HERE }),
            Some(0)
        );
    }
}

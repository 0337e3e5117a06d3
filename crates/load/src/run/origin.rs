//! Destinations of connections, and the choice of the request that each sends.

use std::net::SocketAddr;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::client::Protocol;
use crate::tls::Connector;

/// A server: its address and what is spoken to it.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its address.
    pub address: SocketAddr,
    /// The connector of TLS, where it is spoken.
    pub tls: Option<Connector>,
    /// The protocol, with its requests encoded.
    pub protocol: Protocol,
}

/// One URL of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Its origin.
    pub origin: usize,
    /// Its place among the origin's requests.
    pub request: usize,
    /// Its share of the requests, relative to the others'.
    pub weight: f64,
}

/// Chooses among targets by their weights.
#[derive(Debug)]
pub struct Choice {
    targets: Vec<Target>,
    random: SmallRng,
}

impl Choice {
    /// A choice among these targets, of which there is at least one.
    pub fn new(targets: &[Target], seed: u64) -> Choice {
        Choice {
            targets: targets.to_vec(),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// The target of the next request.
    pub fn any(&mut self) -> Target {
        self.among(|_| true)
    }

    /// The request that goes next to an origin.
    pub fn at(&mut self, origin: usize) -> usize {
        self.among(|target| target.origin == origin).request
    }

    fn among(&mut self, fits: impl Fn(&Target) -> bool) -> Target {
        if let [only] = *self.targets {
            return only;
        }
        let weight = |target: &Target| if fits(target) { target.weight } else { 0.0 };
        let chosen = self.targets.choose_weighted(&mut self.random, weight);
        *chosen.expect("a target that fits has a weight")
    }
}

/// Shares `connections` out among origins by the weights of their targets, at least one each.
pub fn share(connections: usize, weights: &[f64]) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let mut shares = vec![1; weights.len()];
    for _ in weights.len()..connections {
        // To whom lacks most of what is due to it.
        let lack = |index: usize| weights[index] / sum * connections as f64 - shares[index] as f64;
        let neediest = (0..shares.len()).max_by(|a, b| lack(*a).total_cmp(&lack(*b)));
        shares[neediest.unwrap_or(0)] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_go_to_targets_by_weight() {
        let targets = [(0, 0, 1.0), (0, 1, 3.0), (1, 0, 4.0), (1, 1, 0.0)];
        let targets = targets.map(|(origin, request, weight)| Target {
            origin,
            request,
            weight,
        });
        let mut choice = Choice::new(&targets, 1);
        let chosen: Vec<Target> = (0..8000).map(|_| choice.any()).collect();
        // A weight of zero is never chosen.
        let ranges = [850..1150, 2800..3200, 3800..4200, 0..1];
        for (target, range) in targets.iter().zip(ranges) {
            let count = chosen.iter().filter(|chosen| *chosen == target).count();
            assert!(range.contains(&count), "{target:?}: {count}");
        }
        let second = (0..4000).filter(|_| choice.at(0) == 1).count();
        assert!((2850..3150).contains(&second), "{second}");
        assert!((0..100).all(|_| choice.at(1) == 0));
    }

    #[test]
    fn connections_are_shared_by_weight() {
        assert_eq!(share(10, &[1.0]), [10]);
        assert_eq!(share(10, &[1.0, 4.0]), [2, 8]);
        assert_eq!(share(3, &[1.0, 100.0]), [1, 2]);
        assert_eq!(share(2, &[1.0, 100.0]), [1, 1]);
    }

    proptest! {
        #[test]
        fn every_origin_has_a_connection_and_none_is_lost(
            weights in prop::collection::vec(0.01f64..100.0, 1..6),
            more in 0usize..50,
        ) {
            let shares = share(weights.len() + more, &weights);
            prop_assert!(shares.iter().all(|share| *share > 0));
            prop_assert_eq!(shares.iter().sum::<usize>(), weights.len() + more);
        }
    }
}

use lateen_types::Strng;

use super::*;
use proptest::prelude::*;

const MIB: u32 = 1 << 20;

/// A first window of the default ledger.
const FIRST: u32 = 256 << 10;

/// A service account, in a namespace of its own unless told otherwise (`namespace/account`).
pub(crate) fn identity(name: &str) -> Identity {
    let (namespace, account) = name.split_once('/').unwrap_or((name, name));
    Identity::new("cluster.local", namespace, account).unwrap()
}

/// A tunnel, and what it has.
struct Tunnel {
    budget: Budget,
    own: Grant,
}

impl Tunnel {
    fn new(budget: Budget) -> Self {
        Tunnel {
            budget,
            own: Grant::default(),
        }
    }

    fn want(&mut self, wanted: u32) -> u32 {
        self.budget.claim(&mut self.own, wanted);
        self.own.total()
    }

    fn return_all(&mut self) {
        self.budget.release(&mut self.own, u32::MAX);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.return_all();
    }
}

/// What the tunnels of a newcomer get in the end that wants one stream's window.
fn newcomer(all: &Budget, peer: &str, pod: &str) -> u32 {
    Tunnel::new(all.between(&identity(peer), pod)).want(MIB)
}

/// Bulk of one stream each, from pods of one service account to one pod or to many.
#[test]
fn forty_tunnels_of_one_identity_have_a_streams_window_each() {
    for pods in [1, 5, 40] {
        let all = Budget::default();
        let tunnels: Vec<_> = (0..40)
            .map(|n| {
                let pod = format!("pod-{}", n % pods);
                let mut tunnel = Tunnel::new(all.between(&identity("bulk"), &pod));
                (tunnel.want(MIB), tunnel)
            })
            .collect();
        let short = tunnels.iter().filter(|(got, _)| *got < MIB).count();
        assert_eq!(short, 0, "to {pods} pods");
        assert!(newcomer(&all, "other", "pod-0") == MIB);
    }
}

#[test]
fn a_party_that_takes_all_it_can_leaves_a_part() {
    let tunnels = |all: &Budget, peers: usize, pods: usize| -> Vec<_> {
        (0..1_000)
            .map(|n| {
                let (peer, pod) = (format!("peer-{}", n % peers), format!("pod-{}", n % pods));
                let mut tunnel = Tunnel::new(all.between(&identity(&peer), &pod));
                tunnel.want(16 * MIB);
                tunnel
            })
            .collect()
    };
    // Peers, pods, and what is left of 64 MiB: a third to all but a pair, a quarter to all but one party;
    // less the first windows of those for whom the common part has nothing.
    for (peers, pods, left) in [(1, 1, 64 / 3), (1, 8, 64 / 4), (8, 1, 64 / 4)] {
        let all = Budget::default();
        let _kept = tunnels(&all, peers, pods);
        let free = (Budget::DEFAULT - all.granted()) >> 20;
        assert!(
            (left - 2..=left + 1).contains(&free),
            "{peers} peers, {pods} pods: {free} MiB"
        );
    }
}

/// Everything is wanted, again and again, by tunnels of these peers with these pods, each pair after the one before.
fn greedy(all: &Budget, pairs: impl IntoIterator<Item = (String, String)>) -> Vec<Tunnel> {
    let mut kept = Vec::new();
    for (peer, pod) in pairs {
        let mut tunnels: Vec<_> = (0..8)
            .map(|_| Tunnel::new(all.between(&identity(&peer), &pod)))
            .collect();
        for _ in 0..20 {
            for tunnel in &mut tunnels {
                tunnel.want(16 * MIB);
            }
        }
        kept.extend(tunnels);
    }
    kept
}

/// Of the parties that took part in what was taken there is always a next: what it gets falls slowly.
#[test]
fn the_next_of_many_finds_a_window() {
    let peer = |n: usize| format!("peer-{n}");
    let sibling = |n: usize| format!("tenant/peer-{n}");
    let pod = |n: usize| format!("pod-{n}");
    let one = |name: &str| name.to_owned();
    // What the next of so many parties finds at least, and the next of so many tenants with four pods each.
    for (others, least, tenant) in [
        (2, FIRST, FIRST),
        (8, FIRST, 64 << 10),
        (16, 64 << 10, 16 << 10),
        (40, 10 << 10, 1 << 10),
        (100, 1 << 10, 1),
    ] {
        // Pods that do not read, and one that does; the same with peers that take all, and one that does not.
        let all = Budget::default();
        let _kept = greedy(&all, (0..others).map(|n| (one("gateway"), pod(n))));
        let got = newcomer(&all, "gateway", "late");
        assert!(got >= least, "{others} pods: {got}");
        assert!(newcomer(&all, "late", "late") == MIB && newcomer(&all, "late", "pod-0") >= FIRST);

        let all = Budget::default();
        let _kept = greedy(&all, (0..others).map(|n| (peer(n), one("busy"))));
        let got = newcomer(&all, "late", "busy");
        assert!(got >= least, "{others} peers: {got}");
        assert!(newcomer(&all, "late", "late") == MIB && newcomer(&all, "peer-0", "late") >= FIRST);

        // Service accounts of one namespace, each with pods of its own.
        let all = Budget::default();
        let _kept = greedy(&all, (0..4 * others).map(|n| (sibling(n / 4), pod(n))));
        assert!(newcomer(&all, "late", "late") == MIB && newcomer(&all, "late", "pod-0") >= FIRST);

        // Peers of many namespaces, one after the other.
        let all = Budget::default();
        let _kept = greedy(&all, (0..4 * others).map(|n| (peer(n / 4), pod(n))));
        let got = newcomer(&all, "late", "late");
        assert!(got >= tenant, "{others} tenants: {got}");
    }
}

#[test]
fn who_has_little_need_not_give_back() {
    let all = Budget::default();
    let is_short = |tunnel: &Tunnel| tunnel.budget.is_short(tunnel.own);
    let mut greedy: Vec<_> = (0..4)
        .map(|_| Tunnel::new(all.between(&identity("greedy"), "a")))
        .collect();
    // Of the busy peer's and the busy pod's, those who have no more than a first window.
    let mut modest = ["modest", "greedy"].map(|peer| {
        let mut tunnel = Tunnel::new(all.between(&identity(peer), &format!("not-{peer}")));
        assert_eq!(tunnel.want(FIRST), FIRST);
        tunnel
    });
    assert!(!is_short(&greedy[0]));
    for tunnel in &mut greedy {
        tunnel.want(16 * MIB);
    }
    assert!(all.granted() > Budget::DEFAULT / 2);
    assert!(all.is_low() && is_short(&greedy[0]));
    assert!(!modest.iter().any(is_short));
    // And who has more, where neither its peer nor its pod has much.
    assert!(modest[0].want(MIB) == MIB && !is_short(&modest[0]));
    modest[1].want(MIB);
    assert!(is_short(&modest[1]), "its peer has much");
}

/// What comes from the reserve is for others again as soon as it is spent, or the common part has some.
#[test]
fn what_comes_from_the_reserve_returns_to_it() {
    let all = Budget::default();
    let mut taken: Vec<_> = (0..1_000)
        .map(|n| Tunnel::new(all.between(&identity("greedy"), &format!("pod-{}", n % 8))))
        .collect();
    for tunnel in &mut taken {
        tunnel.want(16 * MIB);
    }
    let mut late = Tunnel::new(all.between(&identity("greedy"), "late"));
    let before = all.ledger.reserve.granted();
    late.want(MIB);
    assert_eq!((late.own.common, late.own.reserve), (0, FIRST));
    assert_eq!(all.ledger.reserve.granted(), before + FIRST as usize);
    taken.clear();
    assert_eq!(all.ledger.reserve.granted(), FIRST as usize);
    late.want(MIB);
    assert_eq!((late.own.common, late.own.reserve), (MIB, 0));
    assert_eq!(all.ledger.reserve.granted(), 0);
}

#[test]
fn accounts_are_forgotten_with_their_last_tunnel() {
    let all = Budget::new(1 << 20);
    let one = all.between(&identity("a"), "pod");
    let two = one.clone();
    let other = all.between(&identity("b"), "pod");
    drop(one);
    assert_eq!(all.ledger.accounts().len(), 9);
    drop(two);
    assert_eq!(all.ledger.accounts().len(), 5);
    drop(other);
    assert_eq!(all.ledger.accounts().len(), 0);
}

/// Tunnels by number; each step has one of them want so much, or return all.
fn steps() -> impl Strategy<Value = Vec<(usize, Option<u32>)>> {
    let wanted = prop::option::weighted(0.9, 1..20 * MIB);
    prop::collection::vec((0usize..60, wanted), 1..300)
}

proptest! {
    /// As long as the others leave half of the ledger to a tunnel, it gets what it would if there were no accounts.
    #[test]
    fn alone_an_identity_gets_what_there_is(steps in steps(), pods in 1usize..5) {
        let (with, without) = (Budget::default(), Budget::default());
        let pod = |n: usize| format!("pod-{}", n % pods);
        let mut tunnels: Vec<_> = (0..60)
            .map(|n| (Tunnel::new(with.between(&identity("one"), &pod(n))), Tunnel::new(without.clone())))
            .collect();
        for (n, wanted) in steps {
            let (charged, free) = &mut tunnels[n];
            let Some(wanted) = wanted else {
                charged.return_all();
                free.return_all();
                continue;
            };
            if without.granted() - free.own.total() as usize > Budget::DEFAULT / 2 {
                break;
            }
            prop_assert_eq!(charged.want(wanted), free.want(wanted));
        }
    }

    /// Whatever one identity takes, from one pod or from many, another finds a stream's window, with the same pods too.
    #[test]
    fn a_greedy_identity_leaves_a_newcomer_a_window(steps in steps(), pods in 1usize..5) {
        let all = Budget::default();
        let pod = |n: usize| format!("pod-{}", n % pods);
        let mut tunnels: Vec<_> = (0..60)
            .map(|n| Tunnel::new(all.between(&identity("greedy"), &pod(n))))
            .collect();
        for (n, wanted) in steps {
            match wanted {
                Some(wanted) => drop(tunnels[n].want(wanted)),
                None => tunnels[n].return_all(),
            }
            for n in 0..=pods {
                prop_assert_eq!(newcomer(&all, "newcomer", &format!("pod-{n}")), MIB);
            }
        }
    }

    /// Whatever is granted for a pod that does not read, its peers find a stream's window with another.
    #[test]
    fn a_pod_that_does_not_read_leaves_its_peers_a_window(steps in steps(), peers in 1usize..5) {
        let all = Budget::default();
        let peer = |n: usize| format!("peer-{}", n % peers);
        let mut tunnels: Vec<_> = (0..60)
            .map(|n| Tunnel::new(all.between(&identity(&peer(n)), "deaf")))
            .collect();
        for (n, wanted) in steps {
            match wanted {
                Some(wanted) => drop(tunnels[n].want(wanted)),
                None => tunnels[n].return_all(),
            }
            for n in 0..=peers {
                prop_assert_eq!(newcomer(&all, &format!("peer-{n}"), "other"), MIB);
            }
        }
    }

    /// Whatever peers of one tenant take, one after the other or at once, one of another tenant finds a first window
    /// with every pod; a stream's, where the pod is none of those that they have.
    #[test]
    fn a_tenant_leaves_a_newcomer_a_first_window(steps in steps(), peers in 1usize..60, pods in 1usize..60) {
        let all = Budget::default();
        let mut tunnels: Vec<_> = (0..60)
            .map(|n| (format!("tenant/peer-{}", n % peers), format!("pod-{}", n * 7 % pods)))
            .map(|(peer, pod)| Tunnel::new(all.between(&identity(&peer), &pod)))
            .collect();
        for (n, wanted) in steps {
            match wanted {
                Some(wanted) => drop(tunnels[n].want(wanted)),
                None => tunnels[n].return_all(),
            }
        }
        for n in 0..pods {
            let got = newcomer(&all, "newcomer", &format!("pod-{n}"));
            prop_assert!(got >= FIRST, "{}", got);
        }
        prop_assert_eq!(newcomer(&all, "newcomer", "other"), MIB);
    }

    /// Whatever a pod that does not read has from peers of many tenants, each of them finds a first window with another.
    #[test]
    fn a_deaf_pod_leaves_every_peer_a_first_window(steps in steps(), tenants in 1usize..60) {
        let all = Budget::default();
        let peer = |n: usize| format!("tenant-{}/peer-{n}", n % tenants);
        let mut tunnels: Vec<_> = (0..60)
            .map(|n| Tunnel::new(all.between(&identity(&peer(n)), "deaf")))
            .collect();
        for (n, wanted) in steps {
            match wanted {
                Some(wanted) => drop(tunnels[n].want(wanted)),
                None => tunnels[n].return_all(),
            }
        }
        for n in 0..60 {
            prop_assert!(newcomer(&all, &peer(n), "other") >= FIRST);
        }
    }

    /// The ledger's limit holds whoever asks, and its sum and those of the accounts are what their tunnels have.
    #[test]
    fn what_is_granted_never_exceeds_the_ledger(
        limit in 0usize..80_000_000,
        steps in steps(),
        names in prop::collection::vec((0usize..5, 0usize..5), 60),
    ) {
        let all = Budget::new(limit);
        let names: Vec<_> = names
            .iter()
            .map(|(peer, pod)| (format!("tenant-{}/peer-{peer}", peer % 2), format!("pod-{pod}")))
            .collect();
        let mut tunnels: Vec<_> = names
            .iter()
            .map(|(peer, pod)| Tunnel::new(all.between(&identity(peer), pod)))
            .collect();
        for (n, wanted) in steps {
            match wanted {
                Some(wanted) => prop_assert!(tunnels[n].want(wanted) <= wanted.max(tunnels[n].own.total())),
                None => tunnels[n].return_all(),
            }
            prop_assert!(all.granted() <= limit);
            let sum: usize = tunnels.iter().map(|t| t.own.total() as usize).sum();
            prop_assert_eq!(all.granted(), sum);
        }
        for (party, account) in &*all.ledger.accounts() {
            let of_party = |(peer, pod): &(String, String)| {
                let who = identity(peer);
                let of_tenant = |domain: &Strng, namespace: &Strng| {
                    who.trust_domain() == domain && who.namespace() == namespace
                };
                match party {
                    Party::Tenant(domain, namespace) => of_tenant(domain, namespace),
                    Party::Peer(name) => *name == who,
                    Party::Pod(name) => **name == **pod,
                    Party::Visit(domain, namespace, name) => of_tenant(domain, namespace) && **name == **pod,
                    Party::Pair(one, other) => *one == who && **other == **pod,
                }
            };
            let owners = || names.iter().zip(&tunnels).filter(|(names, _)| of_party(names));
            let common: usize = owners().map(|(_, tunnel)| tunnel.own.common as usize).sum();
            let reserve: usize = owners().map(|(_, tunnel)| tunnel.own.reserve as usize).sum();
            prop_assert_eq!(account.upgrade().map(|a| (a.granted(), a.set_apart())), Some((common, reserve)));
            prop_assert!(reserve <= limit / 8 / party.share());
        }
        drop(tunnels);
        prop_assert_eq!(all.granted(), 0);
    }
}

/// Workers claim at the same time; no lock orders them.
#[test]
fn workers_that_claim_at_once_stay_within_the_ledger() {
    let all = Budget::new(1 << 20);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let all = &all;
            scope.spawn(move || {
                let budgets = ["a", "b"].map(|pod| all.between(&identity("peer"), pod));
                for turn in 0..20_000 {
                    let mut tunnel = Tunnel::new(budgets[(turn + n) % 2].clone());
                    tunnel.want(1 << 19);
                    assert!(all.granted() <= 1 << 20);
                }
            });
        }
    });
    assert_eq!(all.granted(), 0);
    assert!(all.ledger.accounts().is_empty());
}

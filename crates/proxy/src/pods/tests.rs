//! Tests of the table of pods.

use super::*;

fn pod(name: &str) -> Arc<Pod> {
    let info = PodInfo {
        name: name.into(),
        namespace: "default".into(),
        service_account: name.into(),
    };
    let sockets = SocketPool::new(
        Netns::current().unwrap(),
        Options::default(),
        NamespaceThread::start().expect("this test needs root: it enters namespaces"),
    );
    let identity = Identity::new("cluster.local", "default", name).unwrap();
    Arc::new(Pod::new(name.into(), info, identity, sockets, 10))
}

fn served(pod: &Arc<Pod>) -> Served {
    Served {
        pod: Arc::clone(pod),
        doors: Vec::new(),
        dns: None,
    }
}

fn terminating(uid: &str) -> Event {
    Event::Terminating(uid.into())
}

#[test]
fn a_pod_in_service_leaves_when_it_is_being_deleted() {
    let (table, [pod, other]) = (Table::default(), ["a", "b"].map(pod));
    table.insert(served(&pod));
    table.insert(served(&other));
    Pods::hear(&table, &terminating("a"));
    assert!(pod.is_leaving() && !other.is_leaving());
}

#[test]
fn a_pod_whose_deletion_was_told_before_it_was_handed_over_leaves() {
    let (table, [pod, other]) = (Table::default(), ["a", "b"].map(pod));
    Pods::hear(&table, &terminating("a"));
    table.insert(served(&pod));
    table.insert(served(&other));
    assert!(pod.is_leaving() && !other.is_leaving());
}

#[test]
fn a_deletion_is_forgotten_with_the_pod() {
    let table = Table::default();
    for uid in ["a", "b", "c"] {
        Pods::hear(&table, &terminating(uid));
    }
    assert!(table.remove(&"a".into()).is_none());
    let named = HashSet::from(["a".into(), "c".into(), "d".into()]);
    assert!(table.unnamed(&named).is_empty());
    assert_eq!(table.lock().terminating, HashSet::from(["c".into()]));
}

#[test]
fn the_number_of_deletions_that_are_kept_is_bounded() {
    let table = Table::default();
    for uid in 0..=MAX_TERMINATING {
        Pods::hear(&table, &terminating(&uid.to_string()));
    }
    assert_eq!(table.lock().terminating.len(), MAX_TERMINATING);
}

#[test]
fn pods_that_the_agent_does_not_name_are_found() {
    let table = Table::default();
    for name in ["a", "b"] {
        table.insert(served(&pod(name)));
    }
    let named = HashSet::from(["a".into(), "c".into()]);
    assert_eq!(table.unnamed(&named), [WorkloadUid::from("b")]);
}

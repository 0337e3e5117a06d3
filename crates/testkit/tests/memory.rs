//! Memory tests of the configuration store. They count the bytes that a mesh of 10,000 workloads asks of the allocator.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use lateen_config::{Batch, Store, resource_kinds};
use lateen_testkit::wds;
use prost::Message;

#[path = "../../hbone/tests/common/heap.rs"]
mod heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const SERVICES: u32 = 1000;
const PODS: u32 = 10;

/// A response with this many services, and as many pods of Deployments as each has, on ten nodes.
fn mesh() -> Batch {
    let mut upserts = Vec::new();
    for service in 0..SERVICES {
        let name = format!("service-{service}");
        let vip = std::net::Ipv4Addr::from(0x0a60_0000 + service);
        let resource = wds::service_resource(wds::service(&name, vip.into(), 80, 8080));
        upserts.push((wds::service_name("default", &name).into(), bytes(&resource)));
        for pod in 0..PODS {
            let ip = std::net::Ipv4Addr::from(0x0af4_0000 + service * PODS + pod);
            let mut workload = wds::workload(
                &format!("{name}-6d9f7c8b54-{pod:05}"),
                &format!("node-{pod}.internal.example"),
                ip.into(),
            );
            workload.service_account = name.clone();
            workload.canonical_name = name.clone();
            workload.workload_name = name.clone();
            let workload = wds::serving(workload, &name, 80, 8080);
            let uid = workload.uid.as_str().into();
            upserts.push((uid, bytes(&wds::workload_resource(workload))));
        }
    }
    Batch {
        upserts,
        ..Batch::new(&resource_kinds::ADDRESS)
    }
}

fn bytes(message: &impl Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

fn apply(store: &mut Store, batch: &Batch) {
    assert!(store.apply(batch).is_empty());
    store.snapshot();
}

/// Bytes for each workload, a tenth of a service included.
fn each(bytes: usize) -> usize {
    bytes / (SERVICES * PODS) as usize
}

fn empty() -> Store {
    Store::new("", Some("node-0.internal.example"))
}

#[test]
fn a_workload_takes_at_most_1100_bytes() {
    let before = heap::live();
    let mut store = empty();
    apply(&mut store, &mesh());
    assert_eq!(
        store.snapshot().workloads().count(),
        (SERVICES * PODS) as usize
    );
    let taken = each(heap::live() - before);
    assert!(taken <= 1100, "{taken} bytes");
}

#[test]
fn a_mesh_that_is_sent_again_takes_no_more() {
    let mut store = empty();
    let before = heap::live();
    apply(&mut store, &mesh());
    let once = heap::live() - before;
    apply(&mut store, &mesh());
    let twice = heap::live() - before;
    assert!(twice <= once + once / 50, "{once} bytes, then {twice}");
}

#[test]
fn what_is_removed_leaves_nothing() {
    let mut store = empty();
    let before = heap::live();
    let mut batch = mesh();
    apply(&mut store, &batch);
    batch.removals = batch.upserts.drain(..).map(|(name, _)| name).collect();
    apply(&mut store, &batch);
    drop(batch);
    let left = each(heap::live() - before);
    assert!(left <= 20, "{left} bytes of each workload");
}

#[test]
fn a_response_takes_no_more_than_it_leaves() {
    let batch = mesh();
    let mut store = empty();
    heap::mark();
    let before = heap::live();
    apply(&mut store, &batch);
    let (kept, most) = (heap::live() - before, heap::peak() - before);
    assert!(
        most <= kept + kept / 20,
        "{most} bytes at once to keep {kept}"
    );
}

//! A document in place of a control plane.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lateen_config::next_hop::{self, NextHop};
use lateen_config::{Batch, Refused, Snapshot, Store, resource_kinds};
use lateen_xds::{Local, Observer, Sink, Source};
use tokio::sync::watch;

const MESH: &str = r#"
workloads:
- uid: cluster1//v1/Pod/default/client
  name: client
  namespace: default
  serviceAccount: client
  workloadIps: ["10.10.0.1", "fd00::1"]
  protocol: HBONE
  node: n1
  network: ""
  services: {}
- uid: cluster1//v1/Pod/default/server
  name: server
  namespace: default
  serviceAccount: server
  workloadIps: ["10.10.0.2"]
  protocol: HBONE
  node: n2
  waypoint: {destination: default/way.example, hboneMtlsPort: 15008}
  authorizationPolicies: [default/only-clients]
  services: {"default/server.default.svc.cluster.local": {80: 8080}}
policies:
- name: only-clients
  namespace: default
  scope: WorkloadSelector
  action: Allow
  dryRun: false
  rules:
  - - - principals: [!Exact cluster.local/ns/default/sa/client]
        notSourceIps: ["192.0.2.0/24"]
        namespaces: [{Prefix: def}, Presence]
services:
- name: server
  namespace: default
  hostname: server.default.svc.cluster.local
  vips: ["/10.96.0.10"]
  ports: {80: 8080}
  loadBalancer: {mode: Failover, routingPreferences: [Region, Zone]}
"#;

struct Stored(Arc<Mutex<Store>>, watch::Sender<u64>);

impl Sink for Stored {
    async fn apply(&mut self, batch: Batch) -> Vec<Refused> {
        let mut store = self.0.lock().unwrap();
        let refused = store.apply(&batch);
        self.1.send_replace(store.snapshot().generation());
        refused
    }
}

struct Told(watch::Sender<bool>);

impl Observer for Told {
    fn synced(&self) {
        self.0.send_replace(true);
    }
}

struct Running {
    store: Arc<Mutex<Store>>,
    synced: watch::Receiver<bool>,
    generation: watch::Receiver<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    fn start(source: Source) -> Self {
        let store = Arc::new(Mutex::new(Store::new("", Some("n1"))));
        let (changed, generation) = watch::channel(0);
        let (tell, synced) = watch::channel(false);
        let local = Local::new(
            source,
            resource_kinds::mesh(),
            Stored(store.clone(), changed),
            Told(tell),
        );
        let task = tokio::spawn(async move {
            local.run().await;
        });
        Self {
            store,
            synced,
            generation,
            task,
        }
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Snapshot) -> bool) {
        let look = async {
            while !holds(&self.store.lock().unwrap().snapshot()) {
                self.generation.changed().await.unwrap();
            }
        };
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, look)
            .await
            .unwrap_or_else(|_| panic!("did not happen: {what}"));
    }
}

#[tokio::test]
async fn a_document_is_the_whole_mesh() {
    let mut running = Running::start(Source::Inline(MESH.to_owned()));
    running.synced.wait_for(|synced| *synced).await.unwrap();
    let snapshot = running.store.lock().unwrap().snapshot();
    let client = snapshot
        .workload_of_pod("default", "client", "client")
        .unwrap();
    let to = "10.96.0.10:80".parse().unwrap();
    let next_hop = next_hop::outbound(&snapshot, client, to, &|_| false, &mut |_| 0)
        .unwrap()
        .next_hop;
    let NextHop::Tunnel(tunnel) = next_hop else {
        panic!("{next_hop:?}")
    };
    assert_eq!(tunnel.authority.to_string(), "10.10.0.2:8080");
    let policy = serde_json::to_value(snapshot.policies().next().unwrap()).unwrap();
    assert_eq!(policy["rules"][0][0][0]["namespaces"][0]["Prefix"], "def");
    assert_eq!(policy["rules"][0][0][0]["notSourceIps"][0], "192.0.2.0/24");
}

#[tokio::test]
async fn a_changed_file_is_in_force_and_a_broken_one_leaves_what_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.yaml");
    std::fs::write(&path, "workloads: 7").unwrap();
    let mut running = Running::start(Source::File(path.clone()));
    // A good document replaces a bad one that was there from the beginning.
    std::fs::write(&path, MESH).unwrap();
    let server = "cluster1//v1/Pod/default/server";
    running
        .until("the server", |s| s.workload_by_uid(server).is_some())
        .await;
    std::fs::write(&path, MESH.replace("protocol: HBONE", "protokoll: HBONE")).unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    running
        .until("what is known stays", |s| s.workloads().count() == 2)
        .await;
    let (before, _) = MESH
        .split_once("- uid: cluster1//v1/Pod/default/server")
        .unwrap();
    std::fs::write(&path, before).unwrap();
    running
        .until("the server is gone", |s| {
            s.workload_by_uid(server).is_none()
        })
        .await;
    running
        .until("its policy, too", |s| s.policies().count() == 0)
        .await;
}

#[test]
fn what_is_misspelt_or_twice_is_refused_by_name() {
    use lateen_config::local::Mesh;
    for (yaml, says) in [
        ("workload: []", "workload"),
        (
            &*MESH.replace(
                "uid: cluster1//v1/Pod/default/server",
                "uid: cluster1//v1/Pod/default/client",
            ),
            "twice",
        ),
        (&MESH.replace("!Exact ", "!Exakt "), "pattern"),
        (
            &MESH.replace("/10.96.0.10", "10.96.0.10"),
            "NETWORK/ADDRESS",
        ),
        (
            &MESH.replace("default/way.example", "way"),
            "NAMESPACE/HOSTNAME",
        ),
    ] {
        let error = Mesh::parse(yaml).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    }
    assert!(
        Mesh::parse("").is_ok(),
        "an empty document is an empty mesh"
    );
}

//! Tests of on-demand configuration: an unknown destination is asked for, and the connection waits for the answer.

use std::collections::HashMap;

use lateen_config::{Batch, Snapshot, Store, Want, resource_kinds};
use lateen_proto::workload::Address;

use super::*;

/// What a node on demand knows: its own pod, what it was sent, and which names were answered.
struct Known {
    store: Store,
}

impl Known {
    fn of(node: &str, uid: &str, pod: Address) -> Self {
        let mut store = Store::new("", Some(node)).on_demand();
        store.upsert(uid, pod).unwrap();
        Self { store }
    }

    /// The answer to `want`, with these resources, or with none of them.
    fn answer(&mut self, want: &Want, resources: &[(String, Address)]) -> std::sync::Arc<Snapshot> {
        for (name, address) in resources {
            self.store.upsert(name, address.clone()).unwrap();
        }
        self.store.apply(&Batch {
            answered: vec![want.name().clone()],
            ..Batch::new(&resource_kinds::ADDRESS)
        });
        self.store.snapshot()
    }
}

fn resource(mesh: &Mesh, name: &str) -> (String, Address) {
    let found = mesh.resources.iter().find(|(key, _)| key == name);
    found.expect("the fixture has it").clone()
}

#[tokio::test]
async fn what_is_not_known_is_asked_for_on_both_sides_before_a_connection_is_decided() {
    let (from_west, mut west_asks) = lateen_xds::lookups();
    let (from_east, mut east_asks) = lateen_xds::lookups();
    let mut mesh = Mesh::on_demand(&HashMap::from([("west", from_west), ("east", from_east)]));
    let mut application = mesh.application().await;
    let (client, server) = (wds::uid("default", "client"), wds::uid("default", "server"));
    let service = wds::service_name("default", "server");
    // Each node knows its own pod. A request that names the service by its host makes the server's node ask as well.
    let mut west = Known::of("west", &client, resource(&mesh, &client).1);
    let mut east = Known::of("east", &server, resource(&mesh, &server).1);
    mesh.west.install(west.store.snapshot()).await;
    mesh.east.install(east.store.snapshot()).await;

    let mut stream = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut stream, "ping").await;
    let (want, answer) = soon("the client's node asks", west_asks.next())
        .await
        .unwrap();
    assert_eq!(want.to_string(), format!("/{}", mesh.vip().ip()));
    assert!(
        mesh.log(&["direction=\"outbound\""]).is_empty(),
        "decided before the answer"
    );
    let known = [resource(&mesh, &service), resource(&mesh, &server)];
    mesh.west.install(west.answer(&want, &known)).await;
    answer.send(Ok(())).unwrap();
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
    mesh.resources.clear();

    let authority = ["server.default.svc.cluster.local:80".to_owned()];
    let ask = raw::ask(&mesh, &authority);
    let told = async {
        let (want, answer) = soon("the server's node asks", east_asks.next())
            .await
            .unwrap();
        assert!(want.to_string().contains("server.default.svc"), "{want}");
        mesh.east.install(east.answer(&want, &known[..1])).await;
        answer.send(Ok(())).unwrap();
    };
    let (statuses, ()) = tokio::join!(ask, told);
    assert_eq!(statuses, [200]);
}

#[tokio::test]
async fn a_question_without_answer_ends_the_connection_and_says_so() {
    let (from_west, asks) = lateen_xds::lookups();
    let mesh = Mesh::on_demand(&HashMap::from([("west", from_west)]));
    let client = wds::uid("default", "client");
    let mut west = Known::of("west", &client, resource(&mesh, &client).1);
    mesh.west.install(west.store.snapshot()).await;
    drop(asks);
    refused(&mesh, mesh.vip()).await;
    let line = mesh.logged(&["direction=\"outbound\"", "\twarn\t"]).await;
    assert!(line.contains("control plane did not say"), "{line}");
}

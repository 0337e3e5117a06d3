//! The client against a control plane in the same process.

mod control;
mod demand;
mod kinds;

use std::io::Write;
use std::sync::{Arc, Mutex};

use control::{Connector, Control, Session, resource, response, soon};
use lateen_config::{Batch, Kind, Refused, Store, resource_kinds};
use lateen_proto::workload::{Address, Workload, address};
use lateen_proto::{ADDRESS_TYPE, AUTHORIZATION_TYPE, security};
use lateen_xds::{
    Asks, Client, Lookups, Node, Observer, Settings, Sink, Termination, channel, lookups,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

/// Puts resources into a real store; each response waits for a permit, as it would for the workers.
struct Stored {
    store: Arc<Mutex<Store>>,
    permits: Arc<Semaphore>,
}

impl Sink for Stored {
    async fn apply(&mut self, batch: Batch) -> Vec<Refused> {
        self.permits.acquire().await.expect("never closed").forget();
        self.store
            .lock()
            .expect("no test panics in here")
            .apply(&batch)
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    Message(String),
    Terminated(Termination),
    Synced,
}

struct Told(mpsc::UnboundedSender<Seen>);

impl Observer for Told {
    fn message(&self, type_url: &str, _: u64) {
        let _ = self.0.send(Seen::Message(type_url.into()));
    }

    fn terminated(&self, how: Termination) {
        let _ = self.0.send(Seen::Terminated(how));
    }

    fn synced(&self) {
        let _ = self.0.send(Seen::Synced);
    }
}

/// A running client and what can be seen of it.
struct Proxy {
    store: Arc<Mutex<Store>>,
    permits: Arc<Semaphore>,
    seen: mpsc::UnboundedReceiver<Seen>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    fn start(control: &Control, settings: Settings) -> Self {
        Self::with(control, settings, None)
    }

    fn on_demand(control: &Control) -> (Self, Lookups) {
        let (lookups, asks) = lookups();
        (Self::with(control, settings(), Some(asks)), lookups)
    }

    fn with(control: &Control, settings: Settings, asks: Option<Asks>) -> Self {
        Self::over(control.connector(), settings, asks)
    }

    /// A client that follows the children of a parent, of these kinds.
    fn children_of(
        control: &Control,
        settings: Settings,
        parent: &str,
        kinds: &[&'static Kind],
    ) -> Self {
        Self::adjusted(control.connector(), settings, None, |client| {
            client.children_of(parent, kinds.iter().copied())
        })
    }

    fn over(connector: Connector, settings: Settings, asks: Option<Asks>) -> Self {
        Self::adjusted(connector, settings, asks, |client| client)
    }

    fn adjusted(
        connector: Connector,
        settings: Settings,
        asks: Option<Asks>,
        adjust: impl FnOnce(Client<Stored, Told>) -> Client<Stored, Told>,
    ) -> Self {
        let mut store = Store::new("", None);
        if asks.is_some() {
            store = store.on_demand();
        }
        let store = Arc::new(Mutex::new(store));
        let permits = Arc::new(Semaphore::new(1000));
        let (tell, seen) = mpsc::unbounded_channel();
        let address = "https://istiod.istio-system.svc:15012".parse().unwrap();
        let sink = Stored {
            store: store.clone(),
            permits: permits.clone(),
        };
        let mut client = Client::new(channel(address, connector), settings, sink, Told(tell));
        if let Some(asks) = asks {
            client = client.on_demand(asks);
        }
        let client = adjust(client);
        let task = tokio::spawn(async move {
            client.run().await;
        });
        Self {
            store,
            permits,
            seen,
            task,
        }
    }

    async fn sees(&mut self, wanted: &Seen) {
        let look = async { while self.seen.recv().await.expect("the client runs") != *wanted {} };
        soon(&format!("{wanted:?}"), look).await;
    }

    fn knows(&self, uid: &str) -> bool {
        self.store
            .lock()
            .unwrap()
            .snapshot()
            .workload_by_uid(uid)
            .is_some()
    }
}

fn settings() -> Settings {
    Settings {
        node: Node {
            role: "ztunnel",
            instance_ip: "10.0.0.1".into(),
            pod_name: "ztunnel-n1".into(),
            pod_namespace: "istio-system".into(),
            node_name: "n1".into(),
            metadata: Default::default(),
        },
        token: None,
        cluster_id: "Kubernetes".into(),
        headers: Vec::new(),
        kinds: resource_kinds::mesh(),
        max_message: Settings::MAX_MESSAGE,
    }
}

fn workload(uid: &str, address_bytes: &[u8]) -> Address {
    Address {
        r#type: Some(address::Type::Workload(Workload {
            uid: uid.into(),
            namespace: "default".into(),
            addresses: vec![address_bytes.to_vec().into()],
            ..Default::default()
        })),
    }
}

fn good(uid: &str, version: &str) -> lateen_proto::discovery::Resource {
    resource(ADDRESS_TYPE, uid, version, &workload(uid, &[10, 0, 0, 1]))
}

fn bad(uid: &str, version: &str) -> lateen_proto::discovery::Resource {
    resource(ADDRESS_TYPE, uid, version, &workload(uid, &[10, 0, 0]))
}

async fn opened(control: &mut Control) -> Session {
    let mut session = control.session().await;
    session.subscriptions().await;
    session
}

#[tokio::test]
async fn introduces_itself_and_asks_for_everything() {
    let mut control = Control::start();
    let _proxy = Proxy::start(&control, settings());
    let mut session = control.session().await;
    assert_eq!(session.metadata.get("clusterid").unwrap(), "Kubernetes");
    assert!(session.metadata.get("authorization").is_none());
    let (policies, addresses) = session.subscriptions().await;
    for first in [policies, addresses] {
        assert_eq!(
            first.node.unwrap().id,
            "ztunnel~10.0.0.1~ztunnel-n1.istio-system~istio-system.svc.cluster.local"
        );
        assert!(
            first.resource_names_subscribe.is_empty(),
            "a wildcard subscription names nothing"
        );
        assert!(first.initial_resource_versions.is_empty());
        assert!(first.response_nonce.is_empty());
    }
}

#[tokio::test]
async fn acknowledges_only_what_is_in_use() {
    let mut control = Control::start();
    let proxy = Proxy::start(&control, settings());
    proxy.permits.forget_permits(1000);
    let mut session = opened(&mut control).await;
    session
        .respond(response(ADDRESS_TYPE, "n-1", vec![good("w1", "1")]))
        .await;
    assert!(
        session.is_silent().await,
        "acknowledged before the workers had it"
    );
    proxy.permits.add_permits(1);
    let ack = session.request().await;
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n-1", None)
    );
    assert!(
        ack.node.is_none(),
        "only the first request of a type introduces the proxy"
    );
    assert!(proxy.knows("w1"));
}

#[tokio::test]
async fn names_what_it_refuses_and_uses_the_rest() {
    let mut control = Control::start();
    let proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(
            ADDRESS_TYPE,
            "n-1",
            vec![good("w1", "1"), bad("w2", "1"), good("w3", "1")],
        ))
        .await;
    let nack = session.request().await;
    assert_eq!(nack.response_nonce, "n-1");
    let message = nack.error_detail.expect("a refusal").message;
    assert!(
        message.contains("w2") && message.contains("3 bytes"),
        "{message}"
    );
    assert!(
        !message.contains("w1") && !message.contains("w3"),
        "{message}"
    );
    assert!(proxy.knows("w1") && !proxy.knows("w2") && proxy.knows("w3"));
}

#[tokio::test]
async fn a_refusal_of_very_many_stays_small() {
    let mut control = Control::start();
    let _proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    let many = (0..5000).map(|i| bad(&format!("w{i}"), "1")).collect();
    session.respond(response(ADDRESS_TYPE, "n-1", many)).await;
    let error = session.request().await.error_detail.expect("a refusal");
    assert!(
        error.message.len() < 4096 && error.message.ends_with("and 4980 more"),
        "{}",
        error.message
    );
    let [names] = &error.details[..] else {
        panic!("{} details", error.details.len());
    };
    assert_eq!(names.type_url, "type.googleapis.com/google.rpc.BadRequest");
    let named = |name: &[u8]| names.value.windows(name.len()).any(|part| part == name);
    assert!(named(b"w0"), "the first is named");
    assert!(named(b"w4999"), "and the last one");
}

#[tokio::test]
async fn removes_what_is_gone() {
    let mut control = Control::start();
    let proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(ADDRESS_TYPE, "n-1", vec![good("w1", "1")]))
        .await;
    session.request().await;
    let mut gone = response(ADDRESS_TYPE, "n-2", Vec::new());
    gone.removed_resources.push("w1".into());
    session.respond(gone).await;
    assert!(session.request().await.error_detail.is_none());
    assert!(!proxy.knows("w1"));
}

#[tokio::test]
async fn tells_after_a_reconnect_what_it_holds() {
    let mut control = Control::start();
    let mut proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(
            ADDRESS_TYPE,
            "n-1",
            vec![good("w1", "1"), good("w2", "1"), good("w3", "1")],
        ))
        .await;
    session.request().await;
    let mut second = response(
        ADDRESS_TYPE,
        "n-2",
        vec![good("w1", "2"), bad("w2", "2"), bad("w4", "2")],
    );
    second.removed_resources.push("w3".into());
    session.respond(second).await;
    session.request().await;
    session.fail(tonic::Status::internal("torn")).await;
    proxy.sees(&Seen::Terminated(Termination::Error)).await;

    let (policies, addresses) = control.session().await.subscriptions().await;
    assert!(policies.initial_resource_versions.is_empty());
    let held: Vec<_> = addresses
        .initial_resource_versions
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    // w2 was refused in its second version and is held in its first; w4 was never taken in: no version, so that the
    // control plane sends it again, and its name, so that it says when it is gone.
    assert_eq!(held, [("w1", "2"), ("w2", "1"), ("w4", "")]);
    assert!(addresses.node.is_some());
    assert!(proxy.knows("w1"), "what is known outlives a stream");
}

/// Otherwise one object that this proxy does not understand would keep every pod of the node offline after a restart.
#[tokio::test]
async fn knows_the_mesh_when_each_type_has_arrived_whatever_is_refused() {
    let mut control = Control::start();
    let mut proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(AUTHORIZATION_TYPE, "a-1", Vec::new()))
        .await;
    session
        .respond(response(
            ADDRESS_TYPE,
            "n-1",
            vec![bad("w1", "1"), good("w2", "1")],
        ))
        .await;
    session.request().await;
    let nack = session.request().await;
    assert!(nack.error_detail.is_some(), "it is refused all the same");
    let mut order = Vec::new();
    while order.last() != Some(&Seen::Synced) {
        order.push(
            soon("the proxy is in sync", proxy.seen.recv())
                .await
                .unwrap(),
        );
    }
    assert_eq!(
        order,
        [
            Seen::Message(AUTHORIZATION_TYPE.into()),
            Seen::Message(ADDRESS_TYPE.into()),
            Seen::Synced
        ]
    );
    assert!(proxy.knows("w2") && !proxy.knows("w1"));
}

#[tokio::test]
async fn takes_policies_in() {
    let mut control = Control::start();
    let proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    let policy = security::Authorization {
        name: "deny".into(),
        namespace: "default".into(),
        ..Default::default()
    };
    let policy = resource(AUTHORIZATION_TYPE, "default/deny", "1", &policy);
    session
        .respond(response(AUTHORIZATION_TYPE, "a-1", vec![policy]))
        .await;
    assert!(session.request().await.error_detail.is_none());
    assert_eq!(proxy.store.lock().unwrap().snapshot().policies().count(), 1);
}

#[tokio::test]
async fn refuses_a_type_that_it_did_not_ask_for() {
    let mut control = Control::start();
    let _proxy = Proxy::start(&control, settings());
    let mut session = opened(&mut control).await;
    session
        .respond(response(
            "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "c-1",
            Vec::new(),
        ))
        .await;
    let nack = session.request().await;
    assert_eq!(nack.response_nonce, "c-1");
    assert!(
        nack.error_detail
            .expect("a refusal")
            .message
            .contains("did not subscribe")
    );
}

#[tokio::test]
async fn a_response_too_large_ends_the_stream_and_not_the_client() {
    let mut control = Control::start();
    let mut proxy = Proxy::start(
        &control,
        Settings {
            max_message: 1000,
            ..settings()
        },
    );
    let mut session = opened(&mut control).await;
    session
        .respond(response(ADDRESS_TYPE, "n-1", vec![good("w1", "1")]))
        .await;
    session.request().await;
    let many = (0..100).map(|i| good(&format!("big-{i}"), "1")).collect();
    session.respond(response(ADDRESS_TYPE, "n-2", many)).await;
    proxy.sees(&Seen::Terminated(Termination::Error)).await;
    let (_, addresses) = control.session().await.subscriptions().await;
    assert_eq!(addresses.initial_resource_versions.len(), 1);
    assert!(proxy.knows("w1") && !proxy.knows("big-0"));
}

#[tokio::test]
async fn reads_the_token_anew_for_each_stream() {
    let mut control = Control::start();
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"first\n").unwrap();
    let proxy = Proxy::start(
        &control,
        Settings {
            token: Some(token.path().to_owned()),
            ..settings()
        },
    );
    let session = control.session().await;
    assert_eq!(
        session.metadata.get("authorization").unwrap(),
        "Bearer first"
    );
    std::fs::write(token.path(), "second").unwrap();
    session
        .fail(tonic::Status::unavailable("transport is closing"))
        .await;
    let session = control.session().await;
    assert_eq!(
        session.metadata.get("authorization").unwrap(),
        "Bearer second"
    );
    drop(proxy);
}

#[tokio::test]
async fn without_its_token_it_does_not_connect() {
    let control = Control::start();
    let missing = tempfile::tempdir().unwrap().path().join("token");
    let mut proxy = Proxy::start(
        &control,
        Settings {
            token: Some(missing),
            ..settings()
        },
    );
    proxy
        .sees(&Seen::Terminated(Termination::ConnectionError))
        .await;
}

#[tokio::test]
async fn waits_for_a_control_plane_that_is_away() {
    let mut control = Control::start();
    control.set_away(true);
    let mut proxy = Proxy::start(&control, settings());
    for _ in 0..3 {
        proxy
            .sees(&Seen::Terminated(Termination::ConnectionError))
            .await;
    }
    control.set_away(false);
    let mut session = opened(&mut control).await;
    session
        .respond(response(ADDRESS_TYPE, "n-1", vec![good("w1", "1")]))
        .await;
    session.request().await;
    assert!(proxy.knows("w1"));
}

/// A connection leads to one replica. While the API server is away a replica knows only the tokens that it verified before.
#[tokio::test]
async fn who_is_turned_away_by_one_replica_asks_another() {
    let turned_away = [
        tonic::Status::unavailable("tokens cannot be verified"),
        tonic::Status::unauthenticated("this token is not known"),
    ];
    for status in turned_away {
        let (stranger, mut knows) = (Control::start(), Control::start());
        stranger.turn_away(status);
        let connector = Connector::alternating(&stranger, &knows);
        let proxy = Proxy::over(connector, settings(), None);
        let mut session = opened(&mut knows).await;
        session
            .respond(response(ADDRESS_TYPE, "n-1", vec![good("w1", "1")]))
            .await;
        session.request().await;
        assert!(proxy.knows("w1"));
    }
}

/// What says nothing about the replica costs no new connection.
#[tokio::test]
async fn a_stream_that_ends_otherwise_is_opened_anew_on_its_connection() {
    let (mut first, second) = (Control::start(), Control::start());
    let connector = Connector::alternating(&first, &second);
    let _proxy = Proxy::over(connector, settings(), None);
    for _ in 0..3 {
        let session = opened(&mut first).await;
        session.fail(tonic::Status::internal("torn")).await;
    }
}

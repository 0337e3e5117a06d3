//! What an agent hands over is used only where it belongs. Needs root.

#[path = "../../os/tests/support/agent.rs"]
mod agent;
#[path = "../../netns/tests/support/mod.rs"]
mod pod;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use agent::{Agent, Conversation};
use lateen_listener_store::{Ledger, ListenerStore, Shared};
use lateen_netns::{Listeners, NamespaceThread, Netns, Options};
use lateen_proto::listener_store::agent_message::Payload;
use lateen_proto::listener_store::{Ack, AgentMessage, Held, ProxyMessage};
use lateen_types::WorkloadUid;
use pod::{TestPod, cookie};
use prost::Message;

fn say(agent: &Conversation, payload: Payload, with: &[OwnedFd]) {
    let packet = AgentMessage {
        payload: Some(payload),
    };
    let with: Vec<_> = with.iter().map(AsRawFd::as_raw_fd).collect();
    agent.send(&packet.encode_to_vec(), &with);
}

/// An agent that answers each request for held sockets with the next of `answers`.
fn agent(
    name: &str,
    answers: Vec<Vec<(String, OwnedFd)>>,
) -> (ListenerStore, std::thread::JoinHandle<()>) {
    let agent = Agent::listen(name);
    let (store, _events, work) = ListenerStore::new(agent.path.clone(), Vec::new());
    tokio::spawn(work);
    let served = std::thread::spawn(move || {
        let conversation = agent.accept();
        conversation.packet();
        say(&conversation, Payload::Ack(Ack::default()), &[]);
        for held in answers {
            conversation.packet();
            let (names, sockets): (Vec<_>, Vec<_>) = held.into_iter().unzip();
            say(&conversation, Payload::Held(Held { names }), &sockets);
        }
    });
    (store, served)
}

/// Duplicates of new listeners in the pod, as an agent holds them.
async fn held(thread: &NamespaceThread, pod: &TestPod) -> Vec<(String, OwnedFd)> {
    let listeners = thread.open_listeners(&pod.netns, Options::default()).await;
    let duplicates = listeners.unwrap().duplicates().unwrap();
    duplicates.into_iter().map(|n| (n.name, n.socket)).collect()
}

#[tokio::test]
async fn listeners_of_another_pod_are_never_taken_over() {
    let (own, other) = (TestPod::new(), TestPod::new());
    let thread = NamespaceThread::start().unwrap();
    let mut mixed = held(&thread, &own).await;
    mixed[1] = held(&thread, &other).await.remove(1);
    let answers = vec![
        held(&thread, &own).await,
        held(&thread, &other).await,
        mixed,
    ];
    let (store, served) = agent("store", answers);
    let uid = WorkloadUid::from("pod");
    let options = Options::default();

    let right = store.take(&uid, &own.netns).await;
    let listeners = Listeners::adopt(right, &options).expect("its own are taken over");
    for listener in [&listeners.outbound, &listeners.plaintext, &listeners.hbone] {
        assert_eq!(cookie(listener), own.cookie());
    }
    let wrong = store.take(&uid, &own.netns).await;
    assert!(wrong.is_empty(), "{wrong:?}");
    let mixed = store.take(&uid, &own.netns).await;
    assert_eq!(mixed.len(), 2);
    assert!(
        mixed
            .iter()
            .all(|named| cookie(&named.socket) == own.cookie())
    );
    assert!(Listeners::adopt(mixed, &options).is_none(), "not in part");
    served.join().unwrap();
}

/// What a proxy asks, by name.
fn asked(packet: &[u8]) -> &'static str {
    use lateen_proto::listener_store::proxy_message::Payload;
    match ProxyMessage::decode(packet).unwrap().payload.unwrap() {
        Payload::Hello(_) => "hello",
        Payload::Take(_) => "take",
        Payload::Give(_) => "give",
        Payload::Release(_) => "release",
        Payload::Draining(_) => "draining",
    }
}

#[tokio::test]
async fn an_agent_that_is_being_replaced_is_waited_for_and_given_everything() {
    let pod = TestPod::new();
    let thread = NamespaceThread::start().unwrap();
    let first = Agent::listen("farewell");
    let (store, _events, work) = ListenerStore::new(first.path.clone(), Vec::new());
    tokio::spawn(work);
    let expect = |agent: Agent, names: &'static [&str]| {
        std::thread::spawn(move || {
            let conversation = agent.accept();
            for name in names {
                assert_eq!(asked(&conversation.packet()), *name);
                say(&conversation, Payload::Ack(Ack::default()), &[]);
            }
        })
    };
    let served = expect(first, &["hello", "give"]);
    let uid = WorkloadUid::from("pod");
    let listeners = thread.open_listeners(&pod.netns, Options::default()).await;
    store.give(&uid, &pod.netns, listeners.unwrap().duplicates().unwrap());
    // It ends, and its socket with it.
    tokio::task::spawn_blocking(|| served.join().unwrap())
        .await
        .unwrap();
    let reaching = tokio::spawn({
        let store = store.clone();
        async move { store.reach().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!reaching.is_finished());
    let served = expect(Agent::listen("farewell"), &["hello", "give", "draining"]);
    reaching.await.unwrap();
    store.drain().await;
    served.join().unwrap();
}

#[tokio::test]
async fn where_there_never_was_an_agent_none_is_waited_for() {
    // A wait takes two seconds. A busy machine may stop this process for as long, but not that often.
    let begun = std::time::Instant::now();
    for _ in 0..8 {
        let (store, _events, work) = ListenerStore::new("/nowhere/store.sock".into(), Vec::new());
        tokio::spawn(work);
        store.reach().await;
        store.drain().await;
    }
    assert!(begun.elapsed() < Duration::from_secs(8));
}

/// Whether this process has the ledger in its address space.
fn is_mapped(ledger: &Shared) -> bool {
    let file = File::from(ledger.as_fd().try_clone_to_owned().unwrap());
    let inode = file.metadata().unwrap().ino().to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        line.contains("lateen-ledger") && line.split_whitespace().nth(4) == Some(&inode)
    })
}

#[tokio::test]
async fn a_ledger_is_mapped_while_its_agent_has_said_that_it_keeps_the_length() {
    // Without a name: no directory can be made in a file.
    let ledger = Ledger::new(Path::new("/proc/self/exe/ledgers")).unwrap();
    let keeps = Agent::listen("keeps-length");
    let path = keeps.path.clone();
    let (store, _events, work) = ListenerStore::new(path, vec![ledger.share()]);
    tokio::spawn(work);
    let serve = |agent: Agent, keeps_length| {
        let shared = ledger.share();
        let serve = move || {
            let conversation = agent.accept();
            let mut seen = Vec::new();
            for name in ["hello", "give"] {
                assert_eq!(asked(&conversation.packet()), name);
                seen.push(is_mapped(&shared));
                let ack = Ack {
                    error: String::new(),
                    keeps_length,
                };
                say(&conversation, Payload::Ack(ack), &[]);
            }
            seen
        };
        tokio::task::spawn_blocking(serve)
    };
    let served = serve(keeps, true);
    // Given to each agent after the greeting.
    let home = Netns::current().unwrap();
    store.give(&WorkloadUid::from("pod"), &home, Vec::new());
    assert_eq!(served.await.unwrap(), [false, true]);
    // One from before comes in its place.
    let served = serve(Agent::listen("keeps-length"), false);
    assert_eq!(served.await.unwrap(), [false, false]);
}

//! What an agent hands over is used only where it belongs. Needs root.

mod support;

use std::os::fd::{AsRawFd, OwnedFd};

use lateen_capture::{Keeper, Listeners, NamespaceThread, Options};
use lateen_proto::keeper::agent_message::Payload;
use lateen_proto::keeper::{Ack, AgentMessage, Held};
use lateen_types::WorkloadUid;
use prost::Message;
use support::agent::{Agent, Conversation};
use support::{TestPod, cookie};

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
) -> (Keeper, std::thread::JoinHandle<()>) {
    let agent = Agent::listen(name);
    let (keeper, _events, work) = Keeper::new(agent.path.clone(), Vec::new());
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
    (keeper, served)
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
    let (keeper, served) = agent("keeper", answers);
    let uid = WorkloadUid::from("pod");
    let options = Options::default();

    let right = keeper.take(&uid, &own.netns).await;
    let listeners = Listeners::adopt(right, &options).expect("its own are taken over");
    for listener in [&listeners.outbound, &listeners.plaintext, &listeners.hbone] {
        assert_eq!(cookie(listener), own.cookie());
    }
    let wrong = keeper.take(&uid, &own.netns).await;
    assert!(wrong.is_empty(), "{wrong:?}");
    let mixed = keeper.take(&uid, &own.netns).await;
    assert_eq!(mixed.len(), 2);
    assert!(
        mixed
            .iter()
            .all(|named| cookie(&named.socket) == own.cookie())
    );
    assert!(Listeners::adopt(mixed, &options).is_none(), "not in part");
    served.join().unwrap();
}

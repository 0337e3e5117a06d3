//! The ZDS client against an agent's end of a real SOCK_SEQPACKET socket. Needs root for a pod's network namespace.

#[path = "../../netns/tests/support/mod.rs"]
mod pod;
mod support;

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

use lateen_proto::zds::SnapshotSent;
use lateen_proto::zds::workload_request::Payload;
use lateen_zds::{self as zds, PodInfo};
use pod::TestPod;
use support::agent::Agent;
use support::{Recorder, Told, add, all, delete, keep};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Runs the client against an agent that follows `script` on a thread; answers what the client told.
async fn against(
    name: &str,
    script: impl FnOnce(&Agent) + Send + 'static,
) -> UnboundedReceiver<Told> {
    let agent = Agent::listen(name);
    let path = agent.path.clone();
    let (told, heard) = unbounded_channel();
    let agent = tokio::task::spawn_blocking(move || script(&agent));
    let client = async {
        zds::run(Path::new(&path), &mut Recorder(told)).await;
    };
    tokio::select! {
        () = client => unreachable!("the client runs for ever"),
        outcome = agent => outcome.unwrap(),
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("the agent's script does not end"),
    }
    heard
}

#[tokio::test]
async fn takes_pods_up_keeps_them_and_lets_them_go() {
    let pod = TestPod::new();
    let inode = pod.netns.inode();
    let heard = against("snapshot", move |agent| {
        let agent = agent.accept();
        agent.hello();
        let netns = pod.fd();
        assert_eq!(agent.ask(add("a", "one"), &[netns.as_raw_fd()]), "");
        assert_eq!(agent.ask(keep("b"), &[]), "");
        assert_eq!(
            agent.ask(add("c", "unlucky"), &[netns.as_raw_fd()]),
            "no room for it"
        );
        assert_eq!(agent.ask(Payload::SnapshotSent(SnapshotSent {}), &[]), "");
        assert_eq!(agent.ask(delete("a"), &[]), "");
    })
    .await;
    let info = PodInfo {
        name: "one".into(),
        namespace: "default".into(),
        service_account: "client".into(),
    };
    let named = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(
        all(heard),
        [
            Told::Added("a".to_owned(), info, inode),
            Told::Kept("b".to_owned()),
            Told::Retained(named),
            Told::Deleted("a".to_owned()),
        ]
    );
}

#[tokio::test]
async fn comes_back_and_says_hello_when_the_agent_restarts() {
    let heard = against("restart", |agent| {
        for _ in 0..3 {
            let conversation = agent.accept();
            conversation.hello();
            assert_eq!(
                conversation.ask(Payload::SnapshotSent(SnapshotSent {}), &[]),
                ""
            );
        }
        agent.accept().hello();
    })
    .await;
    assert_eq!(all(heard), [const { Told::Retained(Vec::new()) }; 3]);
}

#[tokio::test]
async fn explains_what_is_wrong_with_a_request_and_starts_over() {
    let pod = TestPod::new();
    against("malformed", move |agent| {
        let (netns, file) = (pod.fd(), std::fs::File::open("/dev/null").unwrap());
        let netns = netns.as_raw_fd();
        let expect = |payload, descriptors: &[RawFd], words: &str| {
            let conversation = agent.accept();
            conversation.hello();
            let error = conversation.ask(payload, descriptors);
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        };
        expect(add("a", "one"), &[], "carries 0 descriptors instead of 1");
        expect(
            add("a", "one"),
            &[netns, netns],
            "carries 2 descriptors instead of 1",
        );
        expect(keep("a"), &[netns], "carries 1 descriptors instead of 0");
        expect(add("a", "one"), &[file.as_raw_fd()], "no network namespace");
        expect(add("", "one"), &[netns], "lacks uid");
        expect(add("a", ""), &[netns], "lacks workload_info.name");
        expect(
            add("a", &"n".repeat(2000)),
            &[netns],
            "longer than 1024 bytes",
        );
        expect(
            keep("a"),
            &[netns, netns, netns, netns, netns, netns, netns],
            "carries 7 descriptors instead of 0",
        );

        let conversation = agent.accept();
        conversation.hello();
        conversation.send(&[0xff; 8], &[]);
        assert!(conversation.answer().contains("cannot be decoded"));
    })
    .await;
}

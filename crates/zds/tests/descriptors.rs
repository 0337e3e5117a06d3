//! A ZDS client without a free descriptor. Its thread has a table of descriptors of its own, full to the brim. Needs root for a
//! pod's network namespace.

#[path = "../../os/tests/support/descriptors.rs"]
mod descriptors;
#[path = "../../netns/tests/support/mod.rs"]
mod pod;
mod support;

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use descriptors::{exhaust, with_tokios_sockets};
use lateen_netns::Netns;
use lateen_proto::zds::SnapshotSent;
use lateen_proto::zds::workload_request::Payload;
use lateen_types::WorkloadUid;
use lateen_zds::{self as zds, PodInfo};
use nix::sched::{CloneFlags, unshare};
use pod::TestPod;
use support::agent::Agent;
use support::{Recorder, Told, add, all, delete};
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;

/// Takes every descriptor when it is told to let `fill` go, and gives them back for `free`.
struct Hoarder {
    recorder: Recorder,
    taken: Vec<OwnedFd>,
    stop: Rc<Notify>,
}

impl zds::Pods for Hoarder {
    async fn add(&mut self, uid: WorkloadUid, info: PodInfo, netns: Netns) -> Result<(), String> {
        self.recorder.add(uid, info, netns).await
    }

    fn keep(&mut self, uid: &WorkloadUid) -> Result<(), String> {
        self.recorder.keep(uid)
    }

    fn delete(&mut self, uid: &WorkloadUid) {
        match uid.as_str() {
            "fill" => self.taken = exhaust(),
            "free" => self.taken.clear(),
            _ => self.stop.notify_one(),
        }
    }

    fn retain(&mut self, named: &HashSet<WorkloadUid>) {
        self.recorder.retain(named);
    }

    fn disconnected(&mut self) {
        self.recorder.disconnected();
    }
}

#[test]
fn an_addition_without_a_descriptor_left_is_refused_and_the_conversation_goes_on() {
    let agent = Agent::listen("exhausted");
    let path = agent.path.clone();
    let (told, heard) = unbounded_channel();
    with_tokios_sockets();
    let client = std::thread::spawn(move || {
        // Nothing outside may wake the runtime, and there may be no other one: both rest on numbers of descriptors.
        unshare(CloneFlags::CLONE_FILES).unwrap();
        let stop = Rc::new(Notify::new());
        let mut pods = Hoarder {
            recorder: Recorder(told),
            taken: Vec::new(),
            stop: Rc::clone(&stop),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = zds::run(&path, &mut pods) => unreachable!("the client runs for ever"),
                () = stop.notified() => {}
            }
        });
    });
    let pod = TestPod::new();
    let netns = pod.fd();
    let conversation = agent.accept();
    conversation.hello();
    assert_eq!(conversation.ask(delete("fill"), &[]), "");
    let error = conversation.ask(add("a", "one"), &[netns.as_raw_fd()]);
    assert!(error.contains("no descriptor left"), "{error}");
    let snapshot = Payload::SnapshotSent(SnapshotSent {});
    assert_eq!(conversation.ask(snapshot, &[]), "");
    assert_eq!(conversation.ask(delete("free"), &[]), "");
    assert_eq!(conversation.ask(add("a", "one"), &[netns.as_raw_fd()]), "");
    assert_eq!(conversation.ask(delete("stop"), &[]), "");
    client.join().unwrap();
    let told = all(heard);
    // A pod that could not be taken up anew is no pod that is gone.
    assert_eq!(told[0], Told::Retained(vec!["a".to_owned()]));
    assert!(
        matches!(&told[1..], [Told::Added(uid, ..)] if uid == "a"),
        "{told:?}"
    );
}

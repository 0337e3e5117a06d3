//! The ZDS client against an agent's end of a real SOCK_SEQPACKET socket. Needs root for a pod's network namespace.

mod support;

use std::collections::HashSet;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lateen_capture::Netns;
use lateen_capture::zds::{self, PodInfo};
use lateen_proto::zds::workload_request::Payload;
use lateen_proto::zds::{
    AddWorkload, DelWorkload, KeepWorkload, SnapshotSent, Version, WorkloadInfo, WorkloadRequest,
    WorkloadResponse, ZdsHello,
};
use lateen_types::WorkloadUid;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    listen, recv, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use prost::Message;
use support::TestPod;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the client told whoever serves pods.
#[derive(Debug, PartialEq)]
enum Told {
    Added(String, PodInfo, u64),
    Kept(String),
    Deleted(String),
    Retained(Vec<String>),
    Disconnected,
}

struct Recorder(UnboundedSender<Told>);

impl zds::Pods for Recorder {
    async fn add(&mut self, uid: WorkloadUid, info: PodInfo, netns: Netns) -> Result<(), String> {
        if &*info.name == "unlucky" {
            return Err("no room for it".to_owned());
        }
        self.0
            .send(Told::Added(uid.to_string(), info, netns.inode()))
            .unwrap();
        Ok(())
    }

    fn keep(&mut self, uid: &WorkloadUid) -> Result<(), String> {
        self.0.send(Told::Kept(uid.to_string())).unwrap();
        Ok(())
    }

    fn delete(&mut self, uid: &WorkloadUid) {
        self.0.send(Told::Deleted(uid.to_string())).unwrap();
    }

    fn retain(&mut self, named: &HashSet<WorkloadUid>) {
        let mut named: Vec<_> = named.iter().map(ToString::to_string).collect();
        named.sort();
        self.0.send(Told::Retained(named)).unwrap();
    }

    fn disconnected(&mut self) {
        // The test may be over.
        let _ = self.0.send(Told::Disconnected);
    }
}

/// The agent's end; blocking, for a thread of its own.
struct Agent {
    listener: OwnedFd,
    path: PathBuf,
}

struct Conversation(OwnedFd);

impl Agent {
    fn listen(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("lateen-zds-{}-{name}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(4).unwrap()).unwrap();
        setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).unwrap();
        Self { listener, path }
    }

    fn accept(&self) -> Conversation {
        let fd = accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)
            .expect("the client connects in time");
        // SAFETY: accept4 has just opened it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).unwrap();
        Conversation(socket)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Conversation {
    fn hello(&self) {
        let hello: ZdsHello = self.receive();
        assert_eq!(hello.version(), Version::V1);
    }

    fn receive<M: Message + Default>(&self) -> M {
        let mut packet = [0; 2048];
        let length = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty())
            .expect("the client answers in time");
        M::decode(&packet[..length]).unwrap()
    }

    fn send(&self, packet: &[u8], descriptors: &[RawFd]) {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() {
            &rights[..0]
        } else {
            &rights[..]
        };
        sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(packet)],
            control,
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }

    /// Sends a request and answers the error in the client's acknowledgement.
    fn ask(&self, payload: Payload, descriptors: &[RawFd]) -> String {
        let request = WorkloadRequest {
            payload: Some(payload),
        };
        self.send(&request.encode_to_vec(), descriptors);
        self.answer()
    }

    fn answer(&self) -> String {
        use lateen_proto::zds::workload_response::Payload::Ack;
        let Some(Ack(ack)) = self.receive::<WorkloadResponse>().payload else {
            panic!("the answer is no acknowledgement");
        };
        ack.error
    }
}

fn add(uid: &str, name: &str) -> Payload {
    Payload::Add(AddWorkload {
        uid: uid.to_owned(),
        workload_info: Some(WorkloadInfo {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            service_account: "client".to_owned(),
        }),
    })
}

fn keep(uid: &str) -> Payload {
    Payload::Keep(KeepWorkload {
        uid: uid.to_owned(),
    })
}

fn delete(uid: &str) -> Payload {
    Payload::Del(DelWorkload {
        uid: uid.to_owned(),
    })
}

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

fn all(mut heard: UnboundedReceiver<Told>) -> Vec<Told> {
    std::iter::from_fn(move || heard.try_recv().ok())
        // Whether the client still sees the end of the script is chance.
        .filter(|told| *told != Told::Disconnected)
        .collect()
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

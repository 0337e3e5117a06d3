//! An agent's end of a ZDS conversation, and a record of what the client makes of it.
#![allow(dead_code, missing_docs)]

use std::collections::HashSet;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use lateen_capture::Netns;
use lateen_capture::zds::{self, PodInfo};
use lateen_proto::zds::workload_request::Payload;
use lateen_proto::zds::{
    AddWorkload, DelWorkload, KeepWorkload, Version, WorkloadInfo, WorkloadRequest,
    WorkloadResponse, ZdsHello,
};
use lateen_types::WorkloadUid;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    listen, recv, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// What the client told whoever serves pods.
#[derive(Debug, PartialEq)]
pub enum Told {
    Added(String, PodInfo, u64),
    Kept(String),
    Deleted(String),
    Retained(Vec<String>),
    Disconnected,
}

pub struct Recorder(pub UnboundedSender<Told>);

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
pub struct Agent {
    listener: OwnedFd,
    pub path: PathBuf,
}

pub struct Conversation(OwnedFd);

impl Agent {
    pub fn listen(name: &str) -> Self {
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

    pub fn accept(&self) -> Conversation {
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
    pub fn hello(&self) {
        let hello: ZdsHello = self.receive();
        assert_eq!(hello.version(), Version::V1);
    }

    fn receive<M: Message + Default>(&self) -> M {
        M::decode(&*self.packet()).unwrap()
    }

    /// Waits for what the client says next; descriptors with it are closed.
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; 2048];
        let length = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty())
            .expect("the client answers in time");
        packet.truncate(length);
        packet
    }

    pub fn send(&self, packet: &[u8], descriptors: &[RawFd]) {
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
    pub fn ask(&self, payload: Payload, descriptors: &[RawFd]) -> String {
        let request = WorkloadRequest {
            payload: Some(payload),
        };
        self.send(&request.encode_to_vec(), descriptors);
        self.answer()
    }

    pub fn answer(&self) -> String {
        use lateen_proto::zds::workload_response::Payload::Ack;
        let Some(Ack(ack)) = self.receive::<WorkloadResponse>().payload else {
            panic!("the answer is no acknowledgement");
        };
        ack.error
    }
}

pub fn add(uid: &str, name: &str) -> Payload {
    Payload::Add(AddWorkload {
        uid: uid.to_owned(),
        workload_info: Some(WorkloadInfo {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            service_account: "client".to_owned(),
        }),
    })
}

pub fn keep(uid: &str) -> Payload {
    Payload::Keep(KeepWorkload {
        uid: uid.to_owned(),
    })
}

pub fn delete(uid: &str) -> Payload {
    Payload::Del(DelWorkload {
        uid: uid.to_owned(),
    })
}

pub fn all(mut heard: UnboundedReceiver<Told>) -> Vec<Told> {
    std::iter::from_fn(move || heard.try_recv().ok())
        // Whether the client still sees the end of the script is chance.
        .filter(|told| *told != Told::Disconnected)
        .collect()
}

//! ZDS as an agent speaks it, and a record of the client's calls.
#![allow(dead_code, missing_docs)]

#[path = "../../../os/tests/support/agent.rs"]
pub mod agent;

use std::collections::HashSet;
use std::os::fd::RawFd;

use agent::Conversation;
use lateen_netns::Netns;
use lateen_proto::zds::workload_request::Payload;
use lateen_proto::zds::{
    AddWorkload, DelWorkload, KeepWorkload, Version, WorkloadInfo, WorkloadRequest,
    WorkloadResponse, ZdsHello,
};
use lateen_types::WorkloadUid;
use lateen_zds::{self as zds, PodInfo};
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

impl Conversation {
    pub fn hello(&self) {
        let hello: ZdsHello = self.receive();
        assert_eq!(hello.version(), Version::V1);
    }

    fn receive<M: Message + Default>(&self) -> M {
        M::decode(&*self.packet()).unwrap()
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

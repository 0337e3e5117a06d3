//! Pages `/connections` and `/pods`: the open connections of each pod, for operators. A worker supplies the facts of its
//! connections. Names are looked up here, so that the worker spends nothing on them.

mod filter;
mod line;
mod waypoint;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use lateen_admin::{Answer, Asked, Reply};
use lateen_config::next_hop::inbound_service;
use lateen_config::{Snapshot, Workload};
use lateen_telemetry::Metrics;
use lateen_types::{Direction, Strng, WorkloadUid};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use crate::connection_table::{Ending, Event, Fault, Judgement, Listed};
use crate::current::Current;
use crate::node::{NodeHandle, PodUse, Request, watch};
use crate::pods::Table;
use filter::Filter;
use line::{End, Line, Passed};
pub use waypoint::WaypointConnections;

/// Those who may watch at once. Each costs every connection a little, and memory for what it has not read.
const WATCHERS: usize = 8;
/// Events that wait for one watcher; what comes beyond is lost and counted.
const WAITING: usize = 1024;
/// Lines that wait for one watcher's connection.
const LINES: usize = 16;

/// What the pages are made of when somebody asks.
pub struct Connections {
    /// Names of workloads and services.
    pub current: Current,
    /// The pods in service.
    pub pods: Table,
    /// The network that this node is on.
    pub network: Strng,
    /// The workers.
    pub workers: Vec<NodeHandle>,
    places: Arc<Semaphore>,
}

impl Connections {
    /// Pages about these workers.
    pub fn new(current: Current, pods: Table, network: Strng, workers: Vec<NodeHandle>) -> Self {
        let places = Arc::new(Semaphore::new(WATCHERS));
        Self {
            current,
            pods,
            network,
            workers,
            places,
        }
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, asked: Asked) -> Reply {
        if asked.path == "/pods" {
            return json_page(&json!({"pods": self.pod_uses().await}));
        }
        let filter = match Filter::parse(&asked.query) {
            Ok(filter) => filter,
            Err(why) => return Answer::text(400, format!("{why}\n")).into(),
        };
        if filter.follow {
            return self.follow(filter);
        }
        let mut lines = Vec::new();
        for worker in &self.workers {
            let listed = worker.ask(Request::Connections).await.unwrap_or_default();
            lines.extend(listed.iter().map(|listed| self.line(None, listed, None)));
        }
        lines.retain(|line| filter.takes(line));
        json_page(&json!({"connections": lines}))
    }

    fn follow(self: Arc<Self>, filter: Filter) -> Reply {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let why = format!("{WATCHERS} others watch already; end one of them and try again\n");
            return Answer::text(503, why).into();
        };
        let mut watch = watch(&self.workers, WAITING);
        let (lines, receiver) = mpsc::channel(LINES);
        tokio::spawn(async move {
            let _place = place;
            let mut missed = 0;
            // At once, so that the client knows that it listens.
            if lines
                .send(text(&json!({"event": "watching"})))
                .await
                .is_err()
            {
                return;
            }
            loop {
                let event = tokio::select! {
                    event = watch.next() => event,
                    () = lines.closed() => None,
                };
                let Some(event) = event else { return };
                let now = watch.missed();
                if now > missed {
                    let note = json!({"event": "missed", "count": now - missed});
                    missed = now;
                    if lines.send(text(&note)).await.is_err() {
                        return;
                    }
                }
                let line = match event {
                    Event::Opened(listed) => self.line(Some("opened"), &listed, None),
                    Event::Closed(listed, ending) => self.line(Some("closed"), &listed, ending),
                };
                if filter.takes(&line) && lines.send(text(&line)).await.is_err() {
                    return;
                }
            }
        });
        Reply::Lines(receiver)
    }

    fn line(
        &self,
        event: Option<&'static str>,
        listed: &Listed,
        ending: Option<Box<Ending>>,
    ) -> Line {
        let snapshot = self.current.get();
        let pod = &listed.pod;
        let own = |address| End {
            address: Some(address),
            workload: Some(Arc::clone(&pod.info.name)),
            namespace: Some(Arc::clone(&pod.info.namespace)),
            identity: Some(pod.identity.to_string()),
        };
        let other = |address: SocketAddr| {
            let workload = snapshot
                .as_ref()
                .and_then(|snapshot| snapshot.workload(&self.network, address.ip()));
            end(address, workload)
        };
        let (source, destination) = match listed.direction {
            Direction::Outbound => (own(listed.source), other(listed.destination)),
            Direction::Inbound => {
                let mut source = other(listed.source);
                // What was proven says more than who should have the address.
                source.identity = listed.peer.as_ref().map(ToString::to_string);
                (source, own(listed.destination))
            }
        };
        let service = snapshot.as_ref().and_then(|s| self.service(s, listed));
        let fault = ending.as_ref().map(|ending| ending.fault);
        let (flags, error) = match ending {
            Some(ending) => (Some(ending.flags.as_str()), Some(ending.reason)),
            None => (None, None),
        };
        let Judgement {
            allowed_by,
            denied,
            would_deny,
        } = listed.judgement.clone();
        Line {
            event,
            id: (listed.id != 0)
                .then(|| format!("{}-{}", listed.id >> 48, listed.id & ((1 << 48) - 1))),
            pair: (listed.pair != 0).then(|| format!("{:016x}", listed.pair)),
            direction: match listed.direction {
                Direction::Inbound => "inbound",
                Direction::Outbound => "outbound",
            },
            source,
            destination,
            service,
            protocol: None,
            requests: None,
            wanted: listed.wanted.filter(|wanted| *wanted != listed.destination),
            tunnelled: listed.tunnelled,
            tunnel: listed.tunnel,
            allowed_by: allowed_by.as_ref().map(ToString::to_string),
            denied,
            denied_by_peer: fault == Some(Fault::DeniedByPeer),
            retried: fault == Some(Fault::Retried),
            would_deny,
            state: listed.state.as_str(),
            seconds: listed.age.as_secs_f64(),
            bytes: Passed {
                client_to_server: listed.to_server,
                server_to_client: listed.to_client,
            },
            flags,
            error,
        }
    }

    fn service(&self, snapshot: &Snapshot, listed: &Listed) -> Option<Strng> {
        let service = match listed.direction {
            Direction::Outbound => {
                let wanted = listed.wanted.unwrap_or(listed.destination);
                snapshot.service(&self.network, wanted.ip())
            }
            Direction::Inbound => {
                let workload = listed.pod.workload(snapshot)?;
                inbound_service(snapshot, workload, None, listed.destination.port())
            }
        };
        service.map(|service| Arc::clone(&service.hostname))
    }

    /// What each pod in service comes to on all workers.
    async fn uses(&self) -> HashMap<WorkloadUid, PodUse> {
        let mut uses: HashMap<WorkloadUid, PodUse> = HashMap::new();
        for worker in &self.workers {
            for (uid, part) in worker.ask(Request::Pods).await.unwrap_or_default() {
                uses.entry(uid).or_default().add(&part);
            }
        }
        uses
    }

    async fn pod_uses(&self) -> Vec<serde_json::Value> {
        let uses = self.uses().await;
        let pods = self.pods.pods();
        let page = pods.iter().map(|pod| {
            let PodUse { totals, used } = uses.get(&pod.uid).copied().unwrap_or_default();
            json!({
                "namespace": pod.info.namespace,
                "pod": pod.info.name,
                "identity": pod.identity.to_string(),
                "open": totals.open,
                "opened": totals.opened,
                "denied": totals.denied,
                "failed": totals.failed,
                "receivedBytes": totals.received,
                "sentBytes": totals.sent,
                "cpuSeconds": used.as_secs_f64(),
            })
        });
        page.collect()
    }

    /// Brings the metric of each pod's time up to date.
    pub async fn measure(&self, metrics: &Metrics) {
        let uses = self.uses().await;
        let pods = self.pods.pods();
        let time = pods.iter().map(|pod| {
            let used = uses.get(&pod.uid).map(|part| part.used).unwrap_or_default();
            (pod.info.namespace.clone(), pod.info.name.clone(), used)
        });
        metrics.pods_used(time.collect());
    }
}

fn end(address: SocketAddr, workload: Option<&Arc<Workload>>) -> End {
    End {
        address: Some(address),
        workload: workload.map(|workload| Arc::clone(&workload.name)),
        namespace: workload.map(|workload| Arc::clone(&workload.namespace)),
        identity: workload.map(|workload| workload.identity.to_string()),
    }
}

fn text(line: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("a line can be written");
    text.push(b'\n');
    text.into()
}

fn json_page(page: &serde_json::Value) -> Reply {
    Reply::Whole(Answer {
        status: 200,
        media: "application/json",
        body: format!("{page}\n"),
    })
}

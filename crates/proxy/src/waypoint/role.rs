//! The waypoint role as a worker runs it: tunnels, configuration, requests, and recurring work.

use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use lateen_accept::Accepted;
use lateen_config::Snapshot;
use lateen_runtime::{Role, Worker, WorkerHandle};
use lateen_types::Identity;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use super::listing::Page;
use super::state::{Waypoint, WaypointConfig};
use super::tunnel;
use super::turns::Peer;
use super::view::View;

/// How often connections to endpoints are looked through.
const TIDY: Duration = Duration::from_secs(5);

/// The sending end of a waypoint worker's mailbox.
pub type WaypointHandle = WorkerHandle<Waypoint>;

/// The listener for tunnels. A connection belongs to its peer's address until the peer has proven who it is.
#[derive(Clone, Debug, Default)]
pub struct Entrance(Peer);

/// A message to a worker of the waypoint role.
pub enum Request {
    /// Ends everything that is left, and answers when it is told.
    Cut(oneshot::Sender<()>),
    /// Ends the tunnels whose peer is revoked by now.
    CutRevoked,
    /// Lists clients' connections, beginning at a place.
    Connections(usize, oneshot::Sender<Page>),
}

impl Role for Waypoint {
    type Config = WaypointConfig;
    type Listener = Entrance;
    type GroupKey = Peer;
    type Request = Request;

    fn start(config: WaypointConfig, worker: Rc<Worker<Peer>>) -> Self {
        Self::new(config, worker)
    }

    fn group_key(listener: &Entrance) -> &Peer {
        &listener.0
    }

    fn serve(self: Rc<Self>, accepted: Accepted<Entrance>) {
        let Accepted {
            stream, peer, load, ..
        } = accepted;
        match TcpStream::from_std(stream.into()) {
            Ok(stream) => {
                let turns = self.turns.clone();
                // Handshakes cost much, and anybody may begin one: those of one address shall not delay others.
                let owner = Peer::Address(peer.ip());
                turns.serve(owner, tunnel::serve(self, stream, peer, load));
            }
            Err(error) => {
                tracing::error!(%error, "register an accepted connection with the runtime");
            }
        }
    }

    fn installed(&self, _: Option<&Snapshot>, _: &Snapshot) {
        let Some(snapshot) = self.worker.snapshot() else {
            return;
        };
        let view = {
            let before = self.view.borrow();
            let tells = self.worker.index() == 0;
            View::of(snapshot, &self.own, before.as_deref(), tells)
        };
        if let Some(view) = view {
            let view = Rc::new(view);
            self.view.replace(Some(Rc::clone(&view)));
            self.service_views.clear();
            self.reviews.review(&view);
        }
        // What labels follow from may have changed.
        self.cells.borrow_mut().clear();
    }

    fn handle(&self, request: Request) {
        match request {
            Request::Cut(answer) => {
                self.cut();
                // The one that asked may have stopped waiting.
                let _ = answer.send(());
            }
            Request::CutRevoked => {
                self.tunnels.cut_revoked(&self.revocations);
            }
            Request::Connections(from, answer) => {
                // The one that asked may have stopped waiting.
                let _ = answer.send(self.listing.page(from));
            }
        }
    }

    /// Ends idle connections to endpoints, and has tunnels take no more requests when their certificates are replaced or
    /// about to run out.
    async fn maintain(self: Rc<Self>) -> Infallible {
        let mut changes = self.certificates.changes();
        let mut tidy = interval(TIDY);
        tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let generation = |own: &Identity| self.certificates.generation(own);
            let (retired, next) = self.tunnels.retire(SystemTime::now(), generation);
            if !retired.is_empty() {
                self.pool.retire(|key| retired.contains(key));
                // Streams that wait for requests would keep a retired tunnel open.
                self.upstreams.clear();
            }
            let next = async {
                match next {
                    Some(next) => tokio::time::sleep(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = next => {}
                () = self.tunnels.opened() => {}
                _ = tidy.tick() => self.upstreams.tidy(Instant::now()),
                changed = changes.changed() => {
                    changed.expect("the role itself holds the manager");
                }
            }
        }
    }
}

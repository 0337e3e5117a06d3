//! The node role: what happens to a connection of a captured pod, from the accepted socket to the last byte.
//!
//! `outbound` is the way out of a pod, `inbound` the way in through a tunnel, `plaintext` the way in without one, and
//! `nearby` leads from the one to the other where both pods are this process's. Each reads as the verbs of a connection, in order. A phase that ends before bytes flow is boxed, so that a connection
//! that only relays holds no room for it.

mod arrival;
mod attempt;
mod counted;
mod describe;
mod dial;
mod ejection;
mod inbound;
mod nearby;
pub(crate) mod neighbours;
mod outbound;
mod plaintext;
mod proving;
mod refusal;
mod relaying;
pub(crate) mod sampling;
mod straight;
#[cfg(test)]
mod tests;
mod tunnel;

use std::rc::Rc;

use lateen_capture::Accepted;
use lateen_capture::acceptor::Waiting;
use lateen_telemetry::Reporter;
use tokio::net::TcpStream;

use arrival::Arrival;
pub use dial::DialError;
pub use ejection::{Ejected, Ejections};
pub use refusal::Refusal;

use crate::pod::{Door, Port};
use crate::worker::Worker;

/// Has the connections accepted that wait for a pod. All of it is the pod's own work, be they served or reset: a pod that
/// opens connections in a storm holds up nobody's but its own.
pub(crate) fn accept(worker: &Rc<Worker>, waiting: Waiting<Door>) {
    let group = worker.group_of(&waiting.tag().pod);
    let worker = Rc::clone(worker);
    group.spawn(waiting.accept(move |accepted| begin(Rc::clone(&worker), accepted)));
}

/// Starts to serve a connection that the acceptor's thread has accepted: its registration with the runtime, too, is the pod's
/// own work.
pub(crate) fn serve(worker: &Rc<Worker>, accepted: Accepted<Door>) {
    let group = worker.group_of(&accepted.tag.pod);
    let worker = Rc::clone(worker);
    group.spawn(async move { begin(worker, accepted) });
}

/// Gives a connection a task of its own, as large as its kind needs.
fn begin(worker: Rc<Worker>, accepted: Accepted<Door>) {
    let Accepted {
        stream,
        peer,
        tag,
        load,
    } = accepted;
    let Door { pod, port } = tag;
    let reporter = match port {
        Port::Outbound => Reporter::Source,
        Port::Plaintext | Port::Hbone => Reporter::Destination,
    };
    let counted = Box::new((worker.count_socket(reporter), load));
    let stream = match TcpStream::from_std(stream.into()) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::error!(%error, "register an accepted connection with the runtime");
            return;
        }
    };
    let arrival = Arrival {
        pod,
        stream,
        peer,
        _counted: counted,
    };
    match port {
        Port::Outbound => lateen_fair::spawn_local(outbound::serve(worker, arrival)),
        Port::Plaintext => lateen_fair::spawn_local(plaintext::serve(worker, arrival)),
        Port::Hbone => lateen_fair::spawn_local(inbound::serve(worker, arrival)),
    }
}

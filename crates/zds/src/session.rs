//! The proxy's end of a ZDS connection: hello, then one request and one answer at a time, and again when it breaks.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use lateen_netns::Netns;
use lateen_os::PacketSocket;
use lateen_types::WorkloadUid;

use crate::message::{Malformed, PACKET, PodInfo, Request, answer, hello};

/// Pause before the second attempt to reach the agent; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Who serves the pods that the agent names.
pub trait Pods {
    /// Serve this pod; the error text goes back to the agent, which tries again.
    fn add(
        &mut self,
        uid: WorkloadUid,
        info: PodInfo,
        netns: Netns,
    ) -> impl Future<Output = Result<(), String>>;
    /// Go on serving a pod; an error if it is not served.
    fn keep(&mut self, uid: &WorkloadUid) -> Result<(), String>;
    /// Stop serving a pod; one that is not served is no error.
    fn delete(&mut self, uid: &WorkloadUid);
    /// The agent has named all of its pods: stop serving every other one.
    fn retain(&mut self, named: &HashSet<WorkloadUid>);
    /// The agent is away; pods stay as they are.
    fn disconnected(&mut self);
}

/// Why a connection to the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket cannot be reached or broke.
    #[error("the node agent's socket: {0}; is the agent running?")]
    Io(#[from] io::Error),
    /// The agent speaks another protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Serves `pods` from the agent at `path` for ever, over as many connections as it takes.
pub async fn run(path: &Path, pods: &mut impl Pods) {
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = match Session::connect(path).await {
            Ok(mut session) => serve(&mut session, pods, &mut pause).await,
            Err(error) => Err(error.into()),
        };
        pods.disconnected();
        match outcome {
            Ok(()) => {
                tracing::info!(path = %path.display(), "the node agent closed the connection")
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no connection to the node agent")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn serve(
    session: &mut Session,
    pods: &mut impl Pods,
    pause: &mut Duration,
) -> Result<(), SessionError> {
    let mut snapshot = Some(HashSet::new());
    loop {
        let request = match session.next().await {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(SessionError::Malformed(error)) => {
                session.answer(Err(error.to_string())).await?;
                return Err(error.into());
            }
            Err(error) => return Err(error),
        };
        // The agent talks to us: the next loss is a new one.
        *pause = FIRST_PAUSE;
        if let (Some(named), Request::Add { uid, .. } | Request::Lost(uid) | Request::Keep(uid)) =
            (&mut snapshot, &request)
        {
            named.insert(uid.clone());
        }
        let outcome = match request {
            Request::Add { uid, info, netns } => pods.add(uid, info, netns).await,
            Request::Lost(uid) => {
                let error = format!(
                    "the network namespace of pod {uid} was lost on its way: the proxy has no descriptor left; \
                     raise its limit of open files"
                );
                tracing::warn!("{error}");
                Err(error)
            }
            Request::Keep(uid) => pods.keep(&uid),
            Request::Delete(uid) => {
                pods.delete(&uid);
                Ok(())
            }
            Request::SnapshotSent => {
                if let Some(named) = snapshot.take() {
                    pods.retain(&named);
                }
                Ok(())
            }
        };
        session.answer(outcome).await?;
    }
}

/// One connection to the agent, after the hello.
#[derive(Debug)]
pub struct Session(PacketSocket);

impl Session {
    /// Connects and says hello.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let session = Self(PacketSocket::connect(path)?);
        session.0.send(&hello(), &[]).await?;
        Ok(session)
    }

    /// The next request; `None` when the agent has closed the connection.
    pub async fn next(&mut self) -> Result<Option<Request>, SessionError> {
        let mut packet = [0; PACKET];
        let received = self.0.receive(&mut packet).await?;
        if received.is_end() {
            return Ok(None);
        }
        if received.cut {
            return Err(Malformed::Truncated.into());
        }
        let packet = &packet[..received.length];
        let request = Request::decode(packet, received.descriptors, received.lost)?;
        Ok(Some(request))
    }

    /// Answers the last request.
    pub async fn answer(&mut self, outcome: Result<(), String>) -> io::Result<()> {
        self.0.send(&answer(outcome), &[]).await
    }
}

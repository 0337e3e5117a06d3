//! The proxy's end of a ZDS connection: hello, then one request and one answer at a time, and again when it breaks.

use std::collections::HashSet;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use lateen_types::WorkloadUid;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    send, socket,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::message::{Malformed, PACKET, PodInfo, Request, answer, hello};
use crate::netns::Netns;

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
pub struct Session {
    socket: AsyncFd<OwnedFd>,
}

impl Session {
    /// Connects and says hello.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // unix(7): a non-blocking connect succeeds at once or fails, with EAGAIN while the agent's backlog is full.
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        let session = Self {
            // SAFETY: the descriptor is ours alone and is neither replaced nor closed before the AsyncFd is.
            socket: unsafe { AsyncFd::register(fd) }?,
        };
        session.send(&hello()).await?;
        Ok(session)
    }

    /// The next request; `None` when the agent has closed the connection.
    pub async fn next(&mut self) -> Result<Option<Request>, SessionError> {
        let mut packet = [0; PACKET];
        let (length, descriptors, flags) = self
            .socket
            .async_io(Interest::READABLE, |fd| receive(fd, &mut packet))
            .await?;
        if length == 0 && descriptors.is_empty() {
            return Ok(None);
        }
        if flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(Malformed::Truncated.into());
        }
        let lost = flags.contains(MsgFlags::MSG_CTRUNC);
        Ok(Some(Request::decode(&packet[..length], descriptors, lost)?))
    }

    /// Answers the last request.
    pub async fn answer(&mut self, outcome: Result<(), String>) -> io::Result<()> {
        self.send(&answer(outcome)).await
    }

    async fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.socket
            .async_io(Interest::WRITABLE, |fd| {
                Ok(send(fd.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL).map(drop)?)
            })
            .await
    }
}

fn receive(fd: &OwnedFd, packet: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>, MsgFlags)> {
    // unix(7): a message carries at most SCM_MAX_FD descriptors. With room for all of them none is lost track of, and a
    // packet with too many is seen as what it is.
    const SCM_MAX_FD: usize = 253;
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; SCM_MAX_FD]);
    let mut parts = [IoSliceMut::new(packet)];
    let message = recvmsg::<()>(
        fd.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    if message.flags.contains(MsgFlags::MSG_CTRUNC) {
        // With room for all, the kernel drops descriptors only for want of a number for them: not even one was left.
        return Ok((message.bytes, descriptors, message.flags));
    }
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel opened these descriptors for us with this message; nobody else has them.
            descriptors.extend(
                received
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    Ok((message.bytes, descriptors, message.flags))
}

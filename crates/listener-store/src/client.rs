//! Connection to the listener store, one at a time. It is made again when it breaks, and a new agent is then sent everything
//! again.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lateen_netns::{Named, Netns};
use lateen_os::PacketSocket;
use lateen_types::WorkloadUid;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::ledger::Shared;
use crate::message::{Answer, Malformed, PACKET, SOCKETS, draining, give, hello, release, take};

/// Pause before the second attempt to reach the agent; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the agent may take for one answer; it does nothing that waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a process that is about to accept nothing any more looks for an agent that is being replaced at that moment: one that
/// has its listeners can have the kernel move what waits in them to those of the next process.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the agent says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This pod is being deleted; it still has its network.
    Terminating(WorkloadUid),
}

/// A handle on the listener store; cheap to clone.
#[derive(Clone, Debug)]
pub struct ListenerStore {
    errands: mpsc::UnboundedSender<Errand>,
    tried: watch::Receiver<bool>,
}

type Sockets = Vec<Named>;

#[derive(Debug)]
enum Errand {
    Take(WorkloadUid, Netns, oneshot::Sender<Vec<Named>>),
    Give(WorkloadUid, Netns, Sockets),
    Release(WorkloadUid),
    Reach(oneshot::Sender<()>),
    Drain(oneshot::Sender<()>),
}

/// Why a connection to the listener store ended.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the listener store's socket: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the agent closed the connection")]
    Closed,
    #[error("the agent answered nothing for {PATIENCE:?}")]
    Silent,
    #[error("the agent spoke without having been asked")]
    Unasked,
    #[error(
        "the descriptors of held sockets were lost: this process has none left; raise its limit of open files"
    )]
    Lost,
}

impl ListenerStore {
    /// A client of the store at `path`, the events that it sends, and the task that talks to it. `ledgers` are the workers', for the
    /// agent to read when this process is gone.
    pub fn new(
        path: PathBuf,
        ledgers: Vec<Shared>,
    ) -> (
        Self,
        mpsc::UnboundedReceiver<Event>,
        impl Future<Output = ()> + Send,
    ) {
        let (errands, inbox) = mpsc::unbounded_channel();
        let (events, told) = mpsc::unbounded_channel();
        let (trying, tried) = watch::channel(false);
        let client = Client {
            path,
            ledgers,
            inbox,
            events,
            trying,
            given: HashMap::new(),
            draining: false,
            met: false,
            awaited: None,
        };
        (Self { errands, tried }, told, client.run())
    }

    /// What the agent holds of a pod; nothing if it holds nothing or is away. Every socket is checked to live in `netns`:
    /// one that does not is closed and complained about.
    pub async fn take(&self, uid: &WorkloadUid, netns: &Netns) -> Vec<Named> {
        // The first attempt to connect decides: without a store nobody waits.
        let _ = self.tried.clone().wait_for(|tried| *tried).await;
        let (answer, held) = oneshot::channel();
        let _ = self
            .errands
            .send(Errand::Take(uid.clone(), netns.clone(), answer));
        let held = held.await.unwrap_or_default();
        let here = |named: &Named| match Netns::of_socket(named.socket.as_fd()) {
            Ok(made) if made.id() == netns.id() => true,
            Ok(_) => {
                tracing::error!(pod = %uid, socket = named.name, "the agent handed over a socket of another namespace: closed");
                false
            }
            Err(error) => {
                tracing::warn!(pod = %uid, socket = named.name, %error, "a socket that the agent handed over cannot be examined: closed");
                false
            }
        };
        held.into_iter().filter(here).collect()
    }

    /// Has the agent hold what this process listens on for a pod, now and after the agent's own restart.
    pub fn give(&self, uid: &WorkloadUid, netns: &Netns, sockets: Sockets) {
        debug_assert!(sockets.len() <= SOCKETS);
        let _ = self
            .errands
            .send(Errand::Give(uid.clone(), netns.clone(), sockets));
    }

    /// The pod is not served any more.
    pub fn release(&self, uid: &WorkloadUid) {
        let _ = self.errands.send(Errand::Release(uid.clone()));
    }

    /// Returns when the agent has what it was given. One that was there and is away is looked for at once, and for 2 s at most;
    /// meanwhile this process is to go on accepting.
    pub async fn reach(&self) {
        let (done, reached) = oneshot::channel();
        let _ = self.errands.send(Errand::Reach(done));
        let _ = reached.await;
    }

    /// This process accepts nothing any more; returns when the agent knows, or when it cannot be told.
    pub async fn drain(&self) {
        let (done, told) = oneshot::channel();
        let _ = self.errands.send(Errand::Drain(done));
        let _ = told.await;
    }
}

struct Client {
    path: PathBuf,
    ledgers: Vec<Shared>,
    inbox: mpsc::UnboundedReceiver<Errand>,
    events: mpsc::UnboundedSender<Event>,
    trying: watch::Sender<bool>,
    given: HashMap<WorkloadUid, (Netns, Sockets)>,
    draining: bool,
    /// Whether there ever was an agent that keeps.
    met: bool,
    /// Who waits for it, and until when.
    awaited: Option<(oneshot::Sender<()>, Instant)>,
}

impl Client {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut said = false;
        loop {
            match Session::open(&self.path).await {
                Ok(mut session) => {
                    pause = FIRST_PAUSE;
                    said = false;
                    match self.serve(&mut session).await {
                        Ok(()) => return,
                        Err(error) => {
                            tracing::info!(path = %self.path.display(), %error, "the listener store is lost")
                        }
                    }
                }
                Err(error) if !said => {
                    said = true;
                    tracing::info!(
                        path = %self.path.display(), %error,
                        "no listener store: a successor of this proxy opens listeners of its own"
                    );
                }
                Err(_) => {}
            }
            self.trying.send_replace(true);
            match &self.awaited {
                Some((_, until)) if Instant::now() >= *until => self.awaited = None,
                Some(_) => pause = FIRST_PAUSE,
                None => {}
            }
            if !self.pause(Instant::now() + pause).await {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Answers errands without an agent until then, or until somebody waits for one; false when nobody is left to have any.
    async fn pause(&mut self, until: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                errand = self.inbox.recv() => match errand {
                    None => return false,
                    Some(Errand::Take(_, _, answer)) => drop(answer),
                    Some(Errand::Give(uid, netns, sockets)) => {
                        self.given.insert(uid, (netns, sockets));
                    }
                    Some(Errand::Release(uid)) => {
                        self.given.remove(&uid);
                    }
                    // Where there never was one, none is waited for.
                    Some(Errand::Reach(done)) if self.met => {
                        self.awaited = Some((done, Instant::now() + FAREWELL));
                        return true;
                    }
                    Some(Errand::Reach(done)) => drop(done),
                    Some(Errand::Drain(done)) => {
                        self.leave();
                        let _ = done.send(());
                    }
                },
            }
        }
    }

    fn remember(
        &mut self,
        uid: &WorkloadUid,
        netns: Netns,
        sockets: Sockets,
    ) -> (&Netns, &Sockets) {
        self.given.insert(uid.clone(), (netns, sockets));
        let (netns, sockets) = &self.given[uid];
        (netns, sockets)
    }

    fn leave(&mut self) {
        self.draining = true;
        self.given.clear();
    }

    /// Talks until the connection breaks, or, with `Ok`, until nobody has an errand any more.
    async fn serve(&mut self, session: &mut Session) -> Result<(), Broken> {
        let events = self.events.clone();
        // An agent may be older than this process: what it does with ledgers is not known before it answers, if ever.
        self.ledgers.iter().for_each(Shared::unmap);
        let ledgers: Vec<BorrowedFd<'_>> = self.ledgers.iter().map(AsFd::as_fd).collect();
        let hello = hello(ledgers.len());
        match session.ask(&hello, &ledgers, &events).await? {
            Answer::KeepsLength => self.ledgers.iter().for_each(Shared::map),
            other => done(other, "hello"),
        }
        for (uid, (netns, sockets)) in &self.given {
            hand_over(session, uid, netns, sockets, &events).await?;
        }
        if self.draining {
            done(session.ask(&draining(), &[], &events).await?, "drain");
        }
        self.met = true;
        self.awaited = None;
        self.trying.send_replace(true);
        loop {
            let errand = tokio::select! {
                errand = self.inbox.recv() => errand,
                answer = session.next() => {
                    tell(answer?, &events)?;
                    continue;
                }
            };
            match errand {
                None => return Ok(()),
                Some(Errand::Take(uid, netns, answer)) => {
                    match session.ask(&take(&uid, &netns), &[], &events).await? {
                        // Whoever asked may have stopped waiting; then the sockets are closed.
                        Answer::Held(sockets) => drop(answer.send(sockets)),
                        other => done(other, "take"),
                    }
                }
                Some(Errand::Give(uid, netns, sockets)) => {
                    // Kept first: if the agent goes away now, the next one is given it.
                    let (netns, sockets) = self.remember(&uid, netns, sockets);
                    hand_over(session, &uid, netns, sockets, &events).await?;
                }
                Some(Errand::Release(uid)) => {
                    self.given.remove(&uid);
                    done(session.ask(&release(&uid), &[], &events).await?, "release");
                }
                Some(Errand::Reach(reached)) => drop(reached),
                Some(Errand::Drain(told)) => {
                    self.leave();
                    done(session.ask(&draining(), &[], &events).await?, "drain");
                    let _ = told.send(());
                }
            }
        }
    }
}

async fn hand_over(
    session: &mut Session,
    uid: &WorkloadUid,
    netns: &Netns,
    sockets: &Sockets,
    events: &mpsc::UnboundedSender<Event>,
) -> Result<(), Broken> {
    let descriptors: Vec<BorrowedFd<'_>> =
        sockets.iter().map(|named| named.socket.as_fd()).collect();
    done(
        session
            .ask(&give(uid, netns, sockets), &descriptors, events)
            .await?,
        "give",
    );
    Ok(())
}

/// A refusal costs no connection anything today: the listeners work. The next hand-over will be without them.
fn done(answer: Answer, request: &'static str) {
    if let Answer::Done(Err(error)) = answer {
        tracing::warn!(request, %error, "the listener store refused");
    }
}

/// Passes on what came unasked.
fn tell(answer: Answer, events: &mpsc::UnboundedSender<Event>) -> Result<(), Broken> {
    match answer {
        Answer::Terminating(uid) => {
            let _ = events.send(Event::Terminating(uid));
            Ok(())
        }
        Answer::Done(_) | Answer::KeepsLength | Answer::Held(_) => Err(Broken::Unasked),
    }
}

struct Session(PacketSocket);

impl Session {
    async fn open(path: &Path) -> io::Result<Self> {
        PacketSocket::connect(path).map(Self)
    }

    async fn next(&mut self) -> Result<Answer, Broken> {
        let mut packet = vec![0; PACKET];
        let received = self.0.receive(&mut packet).await?;
        if received.is_end() {
            return Err(Broken::Closed);
        }
        if received.cut {
            return Err(Malformed::Truncated.into());
        }
        if received.lost {
            return Err(Broken::Lost);
        }
        Ok(Answer::decode(
            &packet[..received.length],
            received.descriptors,
        )?)
    }

    /// Sends a request and waits for its answer.
    async fn ask(
        &mut self,
        packet: &[u8],
        with: &[BorrowedFd<'_>],
        events: &mpsc::UnboundedSender<Event>,
    ) -> Result<Answer, Broken> {
        let exchange = async {
            self.0.send(packet, with).await?;
            loop {
                match self.next().await? {
                    unasked @ Answer::Terminating(_) => tell(unasked, events)?,
                    answer => return Ok(answer),
                }
            }
        };
        timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(Broken::Silent))
    }
}

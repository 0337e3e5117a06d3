//! Tunnels of a worker, and the certificates that they were opened with. A tunnel takes no new requests when a certificate of
//! either side has been replaced or is about to expire. It ends when the peer's certificate is revoked.
//!
//! Open streams outlive the certificates, since TLS authenticates at the handshake. Only revocation cuts them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use lateen_accept::Held;
use lateen_hbone::{Below, PoolKey};
use lateen_tls::{Revocations, Session, TlsStream};
use lateen_types::Identity;
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What is left of a certificate's life when its tunnel is retired, at most.
const MARGIN: Duration = Duration::from_secs(30);
/// Wait between two looks at the wall clock, at most.
const LOOK: Duration = Duration::from_secs(60);

/// Why a tunnel's bytes ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{}", Self::TEXT)]
pub struct Revoked;

impl Revoked {
    const TEXT: &str = "the peer's certificate was revoked while the tunnel was open";

    /// Whether this is what an error says. HTTP/2 hands an error of the layer below on as its text.
    pub fn is(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::PermissionDenied && error.to_string().contains(Self::TEXT)
    }
}

/// The tunnels that are open.
#[derive(Clone, Debug, Default)]
pub struct Tunnels(Rc<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: RefCell<Slab<Rc<Entry>>>,
    /// One was opened.
    opened: Notify,
}

#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    end: End,
    retire_at: SystemTime,
    retired: Cell<bool>,
    word: Notify,
    revoked: Cell<bool>,
    /// Waits for the peer's bytes.
    reader: RefCell<Option<Waker>>,
    /// The peer has said something.
    spoken: Cell<bool>,
    first_word: Notify,
}

/// Which end of a tunnel is ours.
#[derive(Debug)]
pub enum End {
    /// A peer opened it to a pod of this identity.
    Inbound(Identity),
    /// We opened it.
    Outbound(PoolKey),
}

impl End {
    fn own(&self) -> &Identity {
        match self {
            End::Inbound(own) => own,
            End::Outbound(key) => &key.source,
        }
    }
}

impl Tunnels {
    /// Enters a tunnel whose bytes `io` carries. The handshake looked at the lists when the peer's certificate came, and
    /// the peer may have held back its end since: lists that came meanwhile have cut what was entered, not this one, so
    /// that it is held against those that are in force now.
    pub fn enter<IO>(
        &self,
        io: IO,
        session: Session,
        end: End,
        revocations: &Revocations,
    ) -> Guarded<IO> {
        let retire_at = retire_at(session.not_after(), SystemTime::now());
        let revoked = session.revoked(revocations);
        if revoked {
            tracing::warn!(peer = %session, "tunnel ended: the peer's certificate was revoked during the handshake");
        }
        let entry = Rc::new(Entry {
            session: Arc::new(session),
            end,
            retire_at,
            retired: Cell::new(false),
            word: Notify::new(),
            revoked: Cell::new(revoked),
            reader: RefCell::new(None),
            spoken: Cell::new(false),
            first_word: Notify::new(),
        });
        let key = self.0.entries.borrow_mut().insert(Rc::clone(&entry));
        self.0.opened.notify_one();
        Guarded {
            io,
            _held: None,
            place: Place {
                table: Rc::clone(&self.0),
                key,
                entry,
            },
        }
    }

    /// Ends the tunnels whose peer is revoked; answers how many.
    pub fn cut_revoked(&self, revocations: &Revocations) -> usize {
        let mut cut = 0;
        for (_, entry) in self.0.entries.borrow().iter() {
            if !entry.revoked.get() && entry.session.revoked(revocations) {
                tracing::warn!(peer = %entry.session, "tunnel ended: the peer's certificate was revoked");
                entry.revoked.set(true);
                if let Some(reader) = entry.reader.take() {
                    reader.wake();
                }
                cut += 1;
            }
        }
        cut
    }

    /// Retires the tunnels whose time has come. `generation` answers which certificate of ours is in use now.
    /// Gives the keys of those that we opened, and when to ask again at the latest.
    pub fn retire(
        &self,
        now: SystemTime,
        generation: impl Fn(&Identity) -> Option<u64>,
    ) -> (Vec<PoolKey>, Option<Duration>) {
        let (mut ours, mut next) = (Vec::new(), None::<Duration>);
        let mut current: HashMap<Identity, Option<u64>> = HashMap::new();
        for (_, entry) in self.0.entries.borrow().iter() {
            if entry.retired.get() {
                continue;
            }
            let own = entry.end.own();
            let current = *current
                .entry(own.clone())
                .or_insert_with(|| generation(own));
            // An identity without a certificate left this node: that its pod's tunnels end is not decided here.
            let replaced = current.is_some_and(|current| current != entry.session.generation());
            if !replaced && now < entry.retire_at {
                let left = entry.retire_at.duration_since(now).unwrap_or_default();
                next = Some(next.unwrap_or(LOOK).min(left));
                continue;
            }
            entry.retired.set(true);
            entry.word.notify_one();
            if let End::Outbound(key) = &entry.end {
                ours.push(key.clone());
            }
        }
        (ours, next)
    }

    /// Resolves when a tunnel was entered since the last time.
    pub async fn opened(&self) {
        self.0.opened.notified().await;
    }
}

/// A tunnel's last moment for new requests: shortly before the first certificate of its ends runs out.
fn retire_at(not_after: SystemTime, now: SystemTime) -> SystemTime {
    let left = not_after.duration_since(now).unwrap_or_default();
    not_after
        .checked_sub(MARGIN.min(left / 10))
        .unwrap_or(not_after)
}

/// A tunnel's place in the table.
#[derive(Debug)]
struct Place {
    table: Rc<Table>,
    key: usize,
    entry: Rc<Entry>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.entries.borrow_mut().remove(self.key);
    }
}

/// The bytes of a tunnel, for as long as its peer is not revoked.
#[derive(Debug)]
pub struct Guarded<IO> {
    io: IO,
    /// What a pod's share counts for it.
    _held: Option<Held>,
    place: Place,
}

/// Resolves when a tunnel is to take no more requests.
pub struct Retirement(Rc<Entry>);

impl Retirement {
    /// See [`Retirement`].
    pub async fn due(&self) {
        while !self.0.retired.get() {
            self.0.word.notified().await;
        }
    }
}

/// Resolves when the peer of a tunnel has said something, be it to nobody in particular.
pub struct FirstWord(Rc<Entry>);

impl FirstWord {
    /// See [`FirstWord`]. One at most may wait.
    pub async fn heard(&self) {
        while !self.0.spoken.get() {
            self.0.first_word.notified().await;
        }
    }
}

impl<IO> Guarded<IO> {
    /// The same, counted in a pod's share for as long as it lives.
    pub fn charged(self, held: Held) -> Self {
        Guarded {
            _held: Some(held),
            ..self
        }
    }

    /// Tells when the tunnel is to take no more requests. One at most may wait.
    pub fn retirement(&self) -> Retirement {
        Retirement(Rc::clone(&self.place.entry))
    }

    /// What the handshake proved.
    pub fn session(&self) -> &Arc<Session> {
        &self.place.entry.session
    }

    /// Tells when the peer has said something inside the tunnel: its own handshake is behind it then, and what it does
    /// before it speaks.
    pub fn first_word(&self) -> FirstWord {
        FirstWord(Rc::clone(&self.place.entry))
    }

    fn refuse_revoked(&self) -> io::Result<()> {
        match self.place.entry.revoked.get() {
            true => Err(io::Error::new(io::ErrorKind::PermissionDenied, Revoked)),
            false => Ok(()),
        }
    }
}

impl<IO> Guarded<TlsStream<IO>> {
    /// What a tunnel within a tunnel may ask.
    pub const INNER: Below<Self> = Below {
        sent: Self::sent,
        wake_at: None,
    };

    /// Bytes that have left, encrypted.
    fn sent(&self) -> u64 {
        self.io.sent()
    }
}

impl<IO: AsFd> Guarded<TlsStream<IO>> {
    /// What a tunnel over a socket may ask.
    pub const OUTER: Below<Self> = Below {
        sent: Self::sent,
        // Encrypted there is more of everything than what is waited for.
        wake_at: Some(|tunnel, bytes| lateen_os::wake_at(tunnel.io.get_ref(), bytes)),
    };
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guarded<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.refuse_revoked()?;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        if buf.filled().len() > before && !this.place.entry.spoken.replace(true) {
            this.place.entry.first_word.notify_one();
        }
        if read.is_pending() {
            let mut reader = this.place.entry.reader.borrow_mut();
            match &mut *reader {
                // The same task as before, nearly always: nothing is cloned.
                Some(reader) => reader.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Guarded<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.refuse_revoked()?;
        Pin::new(&mut this.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.refuse_revoked()?;
        Pin::new(&mut this.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use lateen_testkit::{Ca, identity};
    use lateen_tls::RevocationLists;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn a_tunnel_is_retired_shortly_before_its_certificates_run_out() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let seconds = |n| Duration::from_secs(n);
        assert_eq!(retire_at(now + seconds(86_400), now), now + seconds(86_370));
        assert_eq!(retire_at(now + seconds(10), now), now + seconds(9));
        let past = now - seconds(5);
        assert_eq!(retire_at(past, now), past);
    }

    /// A peer that holds the end of its handshake back until the lists that name it were put in force, and all that
    /// they name was cut, does not get past them.
    #[tokio::test]
    async fn a_peer_that_is_revoked_during_its_handshake_gets_no_tunnel() {
        let ca = Ca::new();
        let (client, server) = (identity("client"), identity("server"));
        let peer = ca.leaf(&client).issue();
        let (client_credentials, server_credentials) =
            (peer.credentials(), ca.credentials(&server));
        let lists = |serials: &[u64]| {
            let next = SystemTime::now() + Duration::from_secs(3600);
            let revocations = Revocations::default();
            revocations.replace(
                RevocationLists::parse(ca.revoke(serials, next).as_bytes()).expect("a list"),
            );
            revocations
        };
        for (named, refused) in [(peer.serial, true), (u64::MAX, false)] {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let destinations = [server.clone()];
            let (accepted, connected) = tokio::join!(
                lateen_tls::accept(&server_credentials, near),
                lateen_tls::connect(&client_credentials, far, &destinations),
            );
            let (stream, session) = accepted.expect("nothing is revoked yet");
            let (mut peer, _) = connected.expect("nothing is revoked yet");
            peer.write_all(b"x").await.expect("there is room");
            peer.flush().await.expect("there is room");
            let end = End::Inbound(server.clone());
            let mut tunnel = Tunnels::default().enter(stream, session, end, &lists(&[named]));
            let read = tunnel.read_u8().await;
            match refused {
                true => assert!(Revoked::is(&read.expect_err("it is revoked"))),
                false => assert_eq!(read.expect("somebody else is revoked"), b'x'),
            }
        }
    }

    #[test]
    fn only_our_own_word_is_taken_for_a_revocation() {
        let ours = io::Error::new(io::ErrorKind::PermissionDenied, Revoked);
        let handed_on = io::Error::new(ours.kind(), ours.to_string());
        assert!(Revoked::is(&ours) && Revoked::is(&handed_on));
        assert!(!Revoked::is(&io::ErrorKind::PermissionDenied.into()));
    }
}

//! Output of log lines: a bounded buffer that one thread writes to standard output, so that no worker waits for a disk.
//!
//! Lines about one client hold no more of the buffer than is free. So a client that has many lines written pushes out its own.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::share::{LogShare, Shares};

/// Bytes that may wait; what comes on top is dropped and counted.
const ROOM: usize = 4 << 20;
/// Bytes that a buffer has room for when it was emptied, while others follow.
const KEPT: usize = 64 << 10;
/// Room that is not worth another wake-up to be given back.
const LITTLE: usize = 4 << 10;
/// Bytes that are not kept waiting for more.
const MUCH: usize = 256 << 10;

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    shares: Shares,
    /// Room of the buffer that is not waited in.
    spare: usize,
    dropped: u64,
    writing: bool,
    /// Somebody waits until all is written.
    hurry: bool,
}

/// Lines of this time go out in one write, and wake the thread once.
#[derive(Clone, Copy)]
struct Pauses {
    /// For lines after a silence: somebody may be looking.
    short: Duration,
    /// For lines that come one after the other. Each pause is two wake-ups of a thread, whatever there is to write.
    long: Duration,
    /// How long nothing comes before the buffers that lines left behind are given back.
    silence: Duration,
}

impl Pauses {
    /// How long lines may wait that come this long after those before them were written.
    fn after(self, silence: Option<Duration>) -> Duration {
        match silence {
            Some(silence) if silence < self.long => self.long,
            _ => self.short,
        }
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            short: Duration::from_millis(10),
            long: Duration::from_millis(100),
            silence: Duration::from_secs(1),
        }
    }
}

/// The process's sink.
#[derive(Default)]
pub(crate) struct Sink {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
    pauses: Pauses,
}

impl Sink {
    /// The one sink of this process, and the thread behind it; standard output unless [`Sink::open`] came first.
    pub(crate) fn get() -> &'static Self {
        Self::open(|| Box::new(io::stdout()))
    }

    /// Opens the sink; it stays what its first opener made it.
    pub(crate) fn open(out: impl FnOnce() -> Box<dyn Write + Send>) -> &'static Self {
        static SINK: OnceLock<&'static Sink> = OnceLock::new();
        SINK.get_or_init(|| {
            let sink: &'static Sink = Box::leak(Box::default());
            let mut out = out();
            std::thread::Builder::new()
                .name("log".into())
                .spawn(move || sink.run(&mut out))
                .expect("the process may start a thread");
            sink
        })
    }

    /// Queues whole lines of a share.
    pub(crate) fn put(&self, lines: &[u8], share: LogShare) {
        let mut state = self.state.lock();
        let free = ROOM - state.waiting.len();
        if !state.shares.admit(share, lines.len(), free) {
            state.dropped += 1;
            return;
        }
        let before = state.waiting.len();
        state.waiting.extend_from_slice(lines);
        let after = state.waiting.len();
        drop(state);
        if before == 0 || (before < MUCH && after >= MUCH) {
            self.filled.notify_one();
        }
    }

    /// Waits until everything queued so far is written, at most `limit`, and no longer for whoever holds the queue: that
    /// may be the caller, in a panic.
    pub(crate) fn flush(&self, limit: Duration) {
        let Some(mut state) = self.state.try_lock_for(limit) else {
            return;
        };
        if !state.waiting.is_empty() {
            state.hurry = true;
            self.filled.notify_one();
        }
        self.emptied.wait_while_for(
            &mut state,
            |state| !state.waiting.is_empty() || state.writing,
            limit,
        );
    }

    fn run(&self, out: &mut impl Write) {
        let mut batch = Vec::new();
        let mut written: Option<Instant> = None;
        loop {
            let dropped = {
                let mut state = self.state.lock();
                state.writing = false;
                self.emptied.notify_all();
                if state.waiting.capacity() + batch.capacity() > LITTLE {
                    let silence = self.pauses.silence;
                    self.filled.wait_while_for(
                        &mut state,
                        |state| state.waiting.is_empty(),
                        silence,
                    );
                }
                if state.waiting.is_empty() {
                    // Until somebody has something to say, which may be hours.
                    state.waiting = Vec::new();
                    batch = Vec::new();
                }
                state.spare = batch.capacity();
                self.filled
                    .wait_while(&mut state, |state| state.waiting.is_empty());
                let pause = self.pauses.after(written.map(|at| at.elapsed()));
                self.filled.wait_while_for(
                    &mut state,
                    |state| state.waiting.len() < MUCH && !state.hurry,
                    pause,
                );
                state.hurry = false;
                state.writing = true;
                std::mem::swap(&mut state.waiting, &mut batch);
                state.shares = Shares::default();
                std::mem::take(&mut state.dropped)
            };
            if dropped > 0 {
                let note = format!(
                    "{dropped} lines of log were dropped: standard output takes them too slowly\n"
                );
                batch.extend_from_slice(note.as_bytes());
            }
            // There is nobody left to tell that standard output is gone.
            let _ = out.write_all(&batch).and_then(|()| out.flush());
            batch.clear();
            batch.shrink_to(KEPT);
            written = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_secs(20);

    struct Out(mpsc::Sender<Vec<u8>>);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The test may be over.
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A sink that keeps lines for an hour, and what it writes.
    fn patient() -> (&'static Sink, mpsc::Receiver<Vec<u8>>) {
        let sink: &'static Sink = Box::leak(Box::new(Sink {
            pauses: Pauses {
                short: HOUR,
                long: HOUR,
                silence: Duration::from_millis(1),
            },
            ..Sink::default()
        }));
        let (sender, written) = mpsc::channel();
        std::thread::spawn(move || sink.run(&mut Out(sender)));
        (sink, written)
    }

    #[test]
    fn lines_wait_longer_where_others_have_just_been_written() {
        let pauses = Pauses::default();
        let ms = Duration::from_millis;
        let asked = [
            None,
            Some(ms(5000)),
            Some(ms(100)),
            Some(ms(99)),
            Some(ms(0)),
        ];
        let waits = asked.map(|silence| pauses.after(silence));
        assert_eq!(waits, [10, 10, 10, 100, 100].map(ms));
    }

    #[test]
    fn lines_that_are_much_leave_at_once_and_together() {
        let (sink, written) = patient();
        let line = [b'x'; 1024];
        for _ in 0..MUCH / line.len() {
            sink.put(&line, LogShare::default());
        }
        assert_eq!(written.recv_timeout(SOON).unwrap().len(), MUCH);
    }

    #[test]
    fn lines_of_one_client_leave_room_to_those_of_others() {
        let sink = Sink::default();
        let noisy = LogShare::of(&"noisy");
        let mut names = (0..).map(|n: u32| LogShare::of(&n));
        let quiet = names.find(|share| *share != noisy).unwrap();
        let line = [b'x'; 4096];
        let waiting = || sink.state.lock().waiting.len();
        for _ in 0..2 * ROOM / line.len() {
            sink.put(&line, noisy);
        }
        assert_eq!(waiting(), ROOM / 2);
        for share in [quiet, LogShare::default()] {
            let before = waiting();
            sink.put(&line, share);
            assert_eq!(waiting(), before + line.len());
        }
    }

    #[test]
    fn no_line_goes_beyond_the_buffer() {
        let sink = Sink::default();
        let line = [b'x'; 4096];
        for n in 0..4 * ROOM / line.len() {
            sink.put(&line, LogShare::of(&n));
        }
        let state = sink.state.lock();
        assert!((ROOM * 3 / 4..=ROOM).contains(&state.waiting.len()));
        assert!(state.dropped > 0);
    }

    #[test]
    fn a_thread_that_holds_the_queue_itself_does_not_wait_for_ever() {
        let (sink, written) = patient();
        sink.put(b"one\n", LogShare::default());
        let held = sink.state.lock();
        sink.flush(Duration::from_millis(1));
        drop(held);
        assert!(written.try_recv().is_err());
    }

    #[test]
    fn buffers_are_given_back_in_silence() {
        let (sink, written) = patient();
        for _ in 0..2 {
            sink.put(&[b'x'; 32 << 10], LogShare::default());
            sink.flush(SOON);
            assert_eq!(written.try_recv().unwrap().len(), 32 << 10);
        }
        let end = Instant::now() + SOON;
        let room = || {
            let state = sink.state.lock();
            state.waiting.capacity() + state.spare
        };
        while room() > 0 {
            assert!(Instant::now() < end, "it keeps its buffers");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_waits_for_lines_to_be_written_waits_for_no_others() {
        let (sink, written) = patient();
        for line in [b"one\n", b"two\n"] {
            sink.put(line, LogShare::default());
            sink.flush(SOON);
            assert_eq!(written.try_recv().unwrap(), line);
        }
    }
}

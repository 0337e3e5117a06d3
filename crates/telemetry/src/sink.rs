//! Where log lines go: a bounded buffer that one thread empties to standard output, so that no worker waits for a disk.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes that may wait; what comes on top is dropped and counted.
const ROOM: usize = 4 << 20;
/// Lines of this time go out in one write, and wake the thread once.
const BATCH: Duration = Duration::from_millis(10);

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    dropped: u64,
    writing: bool,
}

/// The process's sink.
#[derive(Default)]
pub(crate) struct Sink {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
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

    /// Queues whole lines.
    pub(crate) fn put(&self, lines: &[u8]) {
        let mut state = self.state.lock();
        if state.waiting.len() + lines.len() > ROOM {
            state.dropped += 1;
            return;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.extend_from_slice(lines);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Waits until everything queued so far is written, at most `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        let mut state = self.state.lock();
        self.emptied.wait_while_for(
            &mut state,
            |state| !state.waiting.is_empty() || state.writing,
            patience,
        );
    }

    fn run(&self, out: &mut impl Write) {
        let mut batch = Vec::new();
        loop {
            {
                let mut state = self.state.lock();
                state.writing = false;
                self.emptied.notify_all();
                self.filled
                    .wait_while(&mut state, |state| state.waiting.is_empty());
            }
            std::thread::sleep(BATCH);
            let dropped = {
                let mut state = self.state.lock();
                state.writing = true;
                std::mem::swap(&mut state.waiting, &mut batch);
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
            batch.shrink_to(64 << 10);
        }
    }
}

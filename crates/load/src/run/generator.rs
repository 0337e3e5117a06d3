//! The loop of a run: due → send → receive → record, for the connections of one thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::{Cycle, Peekable, Skip, StepBy, Take};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::args::Plan;
use super::clock::{Alarm, Clock};
use super::connection::{Connection, Due, Fault, SetUp};
use super::error::RunError;
use super::live::Live;
use super::origin::{Choice, Origin};
use super::plan::{Part, nanoseconds};
use crate::arrivals::Schedule;
use crate::client::{Answer, Completion};
use crate::poll::{Poll, Ready};
use crate::record::{Failure, Record, Timing};

/// The token under which the signals are watched; connections count from zero.
const SIGNALS: u64 = u64::MAX;

/// The longest sleep: limits of requests and the end of a run are looked at this often.
const TICK: u64 = 50_000_000;

/// The bytes of one read.
const BUFFER: usize = 64 * 1024;

/// Instants at which something is to begin, in nanoseconds since the run began.
type Starts = Peekable<StepBy<Skip<Take<Schedule>>>>;

/// Connections that take turns.
type Ring = Cycle<Range<usize>>;

/// Everything that a thread of a run works with.
#[derive(Debug)]
pub struct Generator {
    thread: usize,
    origins: Arc<[Origin]>,
    choice: Choice,
    rings: Vec<Ring>,
    poll: Poll,
    connections: Vec<Connection>,
    clock: Clock,
    record: Record,
    /// `None` in a closed loop.
    schedule: Option<Starts>,
    /// The instants at which connections are to be replaced, and the turn of the connections.
    replacements: Option<(Starts, Ring)>,
    /// The instants at which connections of a closed loop go on.
    pauses: BinaryHeap<Reverse<(u64, usize)>>,
    /// The number of requests that a closed loop may still begin.
    unbegun: u64,
    /// The number of requests that have yet to end before the run does.
    unconcluded: u64,
    /// Requests that are due and have no answer yet.
    outstanding: u64,
    /// Connections that failed while requests waited for them.
    restart: Vec<usize>,
    alarm: Alarm,
    end: u64,
    warmup_end: u64,
    timeout: u64,
    think: u64,
    requests_per_connection: (u64, u64),
    initial_errors: bool,
    random: SmallRng,
    live: Arc<Live>,
    buffer: BytesMut,
}

impl Generator {
    /// A thread's part of a run; it has opened nothing yet.
    pub fn new(plan: &Plan, part: Part, live: Arc<Live>) -> Result<Generator, RunError> {
        let load = &plan.load;
        let (warmup_end, end) = plan.span();
        let mut rings: Vec<Ring> = Vec::new();
        let mut connections = Vec::new();
        for (origin, count) in part.connections.iter().enumerate() {
            let first = connections.len();
            let tokens = (first as u64..).take(*count);
            connections.extend(tokens.map(|token| Connection::new(token, origin, load.streams)));
            rings.push((first..connections.len()).cycle());
        }
        let all = (0..connections.len()).cycle();
        let threads = load.threads;
        // All threads draw the same instants and take turns at them.
        let starts = |rate, seed, most| {
            let all = Schedule::new(load.arrivals, rate, end, seed).take(most);
            all.skip(part.thread).step_by(threads).peekable()
        };
        let most = plan.requests.map(usize::try_from);
        let most = most.and_then(Result::ok).unwrap_or(usize::MAX);
        let seed = load.seed.wrapping_add(part.thread as u64);
        Ok(Generator {
            thread: part.thread,
            origins: part.origins,
            choice: Choice::new(&part.targets, seed),
            rings,
            poll: Poll::new()?,
            connections,
            clock: Clock::start(),
            record: Record::new(warmup_end, end),
            schedule: (plan.qps > 0.0).then(|| starts(plan.qps, load.seed, most)),
            replacements: (load.connection_rate > 0.0)
                .then(|| (starts(load.connection_rate, !load.seed, usize::MAX), all)),
            pauses: BinaryHeap::new(),
            unbegun: part.requests,
            unconcluded: part.requests,
            outstanding: 0,
            restart: Vec::new(),
            alarm: Alarm::new(plan.qps / threads as f64),
            end,
            warmup_end,
            timeout: nanoseconds(load.timeout),
            think: nanoseconds(plan.think_time),
            requests_per_connection: load.reuse(),
            initial_errors: load.initial_errors,
            random: SmallRng::seed_from_u64(!seed),
            live,
            buffer: BytesMut::zeroed(BUFFER),
        })
    }

    /// Opens all connections before the clock starts, so that a target that cannot be reached, or
    /// does not speak the protocol, is an error and not a result, unless initial errors are allowed.
    /// Returns false if a signal interrupted it.
    pub fn connect(&mut self, signals: &UnixStream) -> Result<bool, RunError> {
        self.poll.add_level(signals, SIGNALS)?;
        self.clock = Clock::start();
        let mut missing = self.connections.len();
        for index in 0..self.connections.len() {
            if let Err(fault) = self.open(index, 0) {
                self.forgo(index, &fault)?;
                missing -= 1;
            }
        }
        while missing > 0 {
            let now = self.clock.now();
            if now >= self.timeout {
                let late = |connection: &Connection| !connection.is_established();
                let index = self.connections.iter().position(late).unwrap_or(0);
                let fault = Fault::new(Failure::Timeout, self.connections[index].lacks());
                self.forgo(index, &fault)?;
                for connection in self.connections.iter_mut().filter(|c| late(c)) {
                    connection.close();
                }
                return Ok(true);
            }
            let left = Duration::from_nanos(self.timeout - now);
            for event in 0..self.poll.wait(Some(left))? {
                let ready = self.poll.ready(event);
                let now = self.clock.now();
                let index = ready.token as usize;
                let Some(connection) = self.connections.get_mut(index) else {
                    self.record.cut(0);
                    return Ok(false);
                };
                let before = connection.is_established();
                let origin = &self.origins[connection.origin];
                let result = connection.advance(ready, origin, now, &mut self.buffer);
                match result.and_then(|set_up| connection.flush(self.clock).map(|()| set_up)) {
                    Ok(set_up) => {
                        missing -= usize::from(!before && connection.is_established());
                        self.note(set_up, 0);
                    }
                    Err(fault) => {
                        self.forgo(index, &fault)?;
                        missing -= usize::from(!before);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Does without a connection that could not be set up before the start, if that is allowed: the
    /// first request that falls to it opens it anew.
    fn forgo(&mut self, index: usize, fault: &Fault) -> Result<(), RunError> {
        let connection = &mut self.connections[index];
        if !self.initial_errors {
            let address = self.origins[connection.origin].address;
            return Err(RunError::Connect(address, explain(fault)));
        }
        connection.close();
        Ok(())
    }

    fn open(&mut self, index: usize, now: u64) -> Result<(), Fault> {
        let (least, most) = self.requests_per_connection;
        let requests = match least == most {
            true => least,
            false => self.random.random_range(least..=most),
        };
        let connection = &mut self.connections[index];
        let origin = &self.origins[connection.origin];
        connection.open(origin, &self.poll, now, requests)
    }

    /// Records a connection that has been set up by an instant of the run.
    fn note(&mut self, set_up: Option<SetUp>, now: u64) {
        let Some(SetUp { total, handshake }) = set_up else {
            return;
        };
        let begun = now.saturating_sub(total);
        self.record.connected(begun, total, handshake);
    }

    /// Runs to the end on a clock that all threads share. Returns false if a signal interrupted it.
    pub fn run(&mut self, clock: Clock) -> Result<bool, RunError> {
        self.clock = clock;
        let before = time_waited();
        let whole = self.run_to_end();
        self.record.waited = time_waited().saturating_sub(before);
        whole
    }

    fn run_to_end(&mut self) -> Result<bool, RunError> {
        let mut next_tick = TICK;
        let mut next_line = 1_000_000_000;
        if self.schedule.is_none() {
            for _ in 0..self.connections.first().map_or(0, Connection::slots) {
                (0..self.connections.len()).for_each(|index| self.again(index, 0, 0));
            }
            (0..self.connections.len()).for_each(|index| self.pump(index));
        }
        loop {
            // The requests that waited behind failed ones.
            for index in std::mem::take(&mut self.restart) {
                self.pump(index);
            }
            self.start_what_is_due();
            let now = self.clock.now();
            if self.unconcluded == 0 {
                self.record.cut(now);
                return Ok(true);
            }
            let due = self.schedule.as_mut().and_then(next_of);
            let drained = self.outstanding == 0 && due.is_none();
            if now >= self.end && (drained || now >= self.end.saturating_add(self.timeout)) {
                return Ok(true);
            }
            if now >= next_tick {
                self.expire(now);
                next_tick = now + TICK;
            }
            if now >= next_line {
                let (record, outstanding) = (&mut self.record, self.outstanding);
                self.live.tell(self.thread, now, record, outstanding);
                next_line += 1_000_000_000;
            }
            let pause = self.pauses.peek().map(|Reverse((until, _))| *until);
            let replacements = self.replacements.as_mut();
            let replacement = replacements.and_then(|(starts, _)| next_of(starts));
            let end = Some(self.end).filter(|end| now < *end);
            let next = [due, pause, replacement, end].into_iter().flatten();
            let wake = match self.restart.is_empty() {
                false => 0,
                true => next.fold(next_tick, u64::min),
            };
            let before = self.clock.now();
            let sleep = self.alarm.sleep(before, wake);
            let count = self.poll.wait(Some(sleep))?;
            if count == 0 {
                self.alarm.woke(before, sleep, self.clock.now());
            }
            for event in 0..count {
                let ready = self.poll.ready(event);
                if ready.token == SIGNALS {
                    self.record.cut(self.clock.now());
                    return Ok(false);
                }
                self.drive(ready);
            }
        }
    }

    /// Ends the run, with the measured requests that were not sent or not answered on record.
    pub fn finish(mut self) -> Record {
        let measured = |intended: u64| intended >= self.warmup_end;
        for connection in &self.connections {
            let waiting = connection.queue.iter();
            self.record.counts.unsent +=
                waiting.filter(|due| measured(due.intended)).count() as u64;
            let sent = connection.under_way();
            let sent = sent.filter(|(_, sent)| measured(sent.timing.intended));
            self.record.counts.unanswered += sent.count() as u64;
        }
        self.record
    }

    /// Hands every request that is due to its connection. Connections take turns, so that each has
    /// the spacing that rate and number of connections imply, whatever the others are up to.
    fn start_what_is_due(&mut self) {
        let now = self.clock.now();
        while let Some(starts) = &mut self.schedule
            && let Some(intended) = starts.next_if(|due| *due <= now)
        {
            let target = self.choice.any();
            let Some(index) = self.rings[target.origin].next() else {
                return;
            };
            self.outstanding += 1;
            let request = target.request;
            let due = Due { intended, request };
            self.connections[index].queue.push_back(due);
            self.pump(index);
        }
        while let Some(Reverse((until, index))) = self.pauses.peek().copied()
            && until <= now
        {
            self.pauses.pop();
            if now < self.end {
                self.enqueue(index, until);
                self.pump(index);
            }
        }
        while let Some((starts, ring)) = &mut self.replacements
            && starts.next_if(|due| *due <= now).is_some()
            && let Some(index) = ring.next()
        {
            // One that is still being set up is as new as it can be.
            if self.connections[index].is_established() {
                self.connections[index].retire();
                self.replace_if_spent(index);
            }
        }
    }

    /// Lets a connection go on in a closed loop, after a pause, unless all requests that were asked
    /// for have begun.
    fn again(&mut self, index: usize, now: u64, pause: u64) {
        if self.unbegun == 0 || now >= self.end {
            return;
        }
        self.unbegun -= 1;
        if pause > 0 {
            let until = now.saturating_add(pause);
            self.pauses.push(Reverse((until, index)));
        } else {
            self.enqueue(index, now);
        }
    }

    fn enqueue(&mut self, index: usize, intended: u64) {
        let connection = &mut self.connections[index];
        let request = self.choice.at(connection.origin);
        self.outstanding += 1;
        connection.queue.push_back(Due { intended, request });
    }

    /// Starts the requests that wait for a connection, as far as it takes them, opening it first if
    /// it must.
    fn pump(&mut self, index: usize) {
        while self.connections[index].takes() && !self.connections[index].queue.is_empty() {
            let now = self.clock.now();
            let closed = !self.connections[index].is_open();
            let refused = closed.then(|| self.open(index, now).err()).flatten();
            let connection = &mut self.connections[index];
            if let Some(due) = connection.queue.pop_front() {
                connection.begin(due, now);
            }
            if let Some(fault) = refused {
                return self.fail(index, fault);
            }
        }
        if let Err(fault) = self.connections[index].flush(self.clock) {
            self.fail(index, fault);
        }
    }

    /// Goes on with a connection that something happened to.
    fn drive(&mut self, ready: Ready) {
        let index = ready.token as usize;
        let now = self.clock.now();
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let origin = &self.origins[connection.origin];
        let result = connection.advance(ready, origin, now, &mut self.buffer);
        if !connection.out.done.is_empty() {
            let ended = self.clock.now();
            let mut done = std::mem::take(&mut connection.out.done);
            for Completion { slot, outcome } in done.drain(..) {
                self.conclude(index, slot, outcome, ended);
            }
            self.connections[index].out.done = done;
        }
        match result {
            Ok(set_up) => {
                self.note(set_up, now);
                self.replace_if_spent(index);
                self.pump(index);
            }
            Err(fault) => self.fail(index, fault),
        }
    }

    /// Closes a connection whose last request is over. One that is replaced at a rate is opened again
    /// at once; the others when they are needed.
    fn replace_if_spent(&mut self, index: usize) {
        if !self.connections[index].is_spent() {
            return;
        }
        self.connections[index].close();
        if self.replacements.is_some()
            && let Err(fault) = self.open(index, self.clock.now())
        {
            self.fail(index, fault);
        }
    }

    /// Closes a connection; the requests on it have failed.
    fn fail(&mut self, index: usize, fault: Fault) {
        let now = self.clock.now();
        let connection = &mut self.connections[index];
        connection.close();
        let slots: Vec<usize> = connection.under_way().map(|(slot, _)| slot).collect();
        if !slots.is_empty() {
            self.record.explain(fault.failure, || fault.detail);
        }
        for slot in slots {
            self.conclude(index, slot, Err(fault.failure), now);
        }
        // Not from here: a failure that comes at once would nest as deep as the queue is long.
        self.restart.push(index);
    }

    /// Records how a request ended.
    fn conclude(&mut self, index: usize, slot: usize, outcome: Result<Answer, Failure>, now: u64) {
        let Some(current) = self.connections[index].finish(slot, now) else {
            return;
        };
        self.outstanding -= 1;
        self.unconcluded -= 1;
        let timing = Timing {
            done: now,
            ..current.timing
        };
        match outcome {
            Ok(answer) => self.record.answered(timing, answer.status, answer.content),
            Err(failure) => self.record.failed(timing, failure),
        }
        if self.unconcluded == 0 {
            self.record.cut(now);
        }
        if self.schedule.is_none() {
            // A target that is gone must not be dialled without pause.
            let pause = if outcome.is_err() { TICK } else { 0 };
            self.again(index, now, self.think.max(pause));
        }
    }

    /// Fails the requests that took too long.
    fn expire(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            let late = |begun: u64| now.saturating_sub(begun) >= self.timeout;
            let under_way = connection.under_way();
            let late = under_way.filter(|(_, current)| late(current.timing.begun));
            let slots: Vec<usize> = late.map(|(slot, _)| slot).collect();
            if slots.is_empty() {
                continue;
            }
            if slots.iter().all(|slot| connection.cancel(*slot)) {
                for slot in slots {
                    self.conclude(index, slot, Err(Failure::Timeout), now);
                }
                self.replace_if_spent(index);
                self.pump(index);
            } else {
                let detail = "no answer within the limit of --timeout";
                self.fail(index, Fault::new(Failure::Timeout, detail));
            }
        }
    }
}

fn next_of(starts: &mut Starts) -> Option<u64> {
    starts.peek().copied()
}

/// The time that this thread has waited for a processor so far, in nanoseconds; 0 where the kernel does
/// not count it.
fn time_waited() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = counts.split_whitespace().nth(1);
    waited.and_then(|waited| waited.parse().ok()).unwrap_or(0)
}

/// The meaning of a failure before the start, and a cure.
fn explain(fault: &Fault) -> String {
    let detail = &fault.detail;
    match fault.failure {
        Failure::Refused => {
            "connection refused; is the service running, and is this its port?".to_owned()
        }
        Failure::Timeout => format!("timed out; {detail}"),
        Failure::Reset => "connection reset; something in between refuses it".to_owned(),
        Failure::Connect => format!(
            "{detail}: no route, or no free port or descriptor; check `ip route get` and `ulimit -n`"
        ),
        Failure::Malformed => format!("{detail}; does the server speak this protocol?"),
        _ => detail.clone(),
    }
}

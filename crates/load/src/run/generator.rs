//! The loop of a run: due → send → receive → record, for all connections in one thread.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::alarm::Alarm;
use super::connection::{Connection, Current, Progress};
use super::{Clock, Plan, RunError, record_of};
use crate::arrivals::Schedule;
use crate::poll::{Poll, Ready};
use crate::record::{Failure, Record, Timing};
use crate::signals::Signals;
use crate::text::readable;

/// The token under which the signals are watched; connections count from zero.
const SIGNALS: u64 = u64::MAX;

/// The longest sleep: limits of requests and the end of a run are looked at this often.
const TICK: u64 = 50_000_000;

/// How much is read at once.
const BUFFER: usize = 64 * 1024;

/// Everything that a run works with.
#[derive(Debug)]
pub struct Generator {
    address: SocketAddr,
    request: Vec<u8>,
    poll: Poll,
    connections: Vec<Connection>,
    busy: usize,
    clock: Clock,
    record: Record,
    /// `None` in a closed loop.
    schedule: Option<std::iter::Peekable<Schedule>>,
    /// Connections whose last request failed while others waited for them.
    restart: Vec<usize>,
    /// The connection that takes the next request that is due.
    next: usize,
    alarm: Alarm,
    end: u64,
    warmup_end: u64,
    timeout: u64,
    keepalive: bool,
    progress: Option<String>,
    buffer: Vec<u8>,
}

impl Generator {
    /// A generator that has opened nothing yet.
    pub fn new(plan: &Plan, address: SocketAddr, request: Vec<u8>) -> Result<Generator, RunError> {
        let nanoseconds =
            |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let end = nanoseconds(plan.warmup.saturating_add(plan.duration));
        let name = if plan.name.is_empty() {
            "run"
        } else {
            &plan.name
        };
        Ok(Generator {
            address,
            request,
            poll: Poll::new(plan.connections.clamp(64, 1024))?,
            connections: (0..plan.connections as u64).map(Connection::new).collect(),
            busy: 0,
            clock: Clock(Instant::now()),
            record: record_of(plan),
            schedule: (plan.qps > 0.0)
                .then(|| Schedule::new(plan.arrivals, plan.qps, end, plan.seed).peekable()),
            restart: Vec::new(),
            next: 0,
            alarm: Alarm::new(plan.qps),
            end,
            warmup_end: nanoseconds(plan.warmup),
            timeout: nanoseconds(plan.timeout),
            keepalive: plan.keepalive,
            progress: plan.progress.then(|| name.to_owned()),
            buffer: vec![0; BUFFER],
        })
    }

    /// Opens all connections before the clock starts, so that a target that cannot be reached is
    /// an error and not a result. Returns false if a signal interrupted it.
    pub fn connect(&mut self, signals: &Signals) -> Result<bool, RunError> {
        self.poll.add_level(signals, SIGNALS)?;
        let failed = |address, failure| RunError::Connect {
            address,
            reason: explain(failure),
        };
        for connection in &mut self.connections {
            connection
                .open(self.address, &self.poll, self.clock.now())
                .map_err(|failure| failed(self.address, failure))?;
        }
        let mut missing = self.connections.len();
        while missing > 0 {
            let now = self.clock.now();
            if now >= self.timeout {
                return Err(failed(self.address, Failure::Timeout));
            }
            let count = self
                .poll
                .wait(Some(Duration::from_nanos(self.timeout - now)))?;
            let now = self.clock.now();
            for index in 0..count {
                let ready = self.poll.ready(index);
                let Some(connection) = self.connections.get_mut(ready.token as usize) else {
                    self.record.cut(0);
                    return Ok(false);
                };
                if connection
                    .advance_connect(ready)
                    .map_err(|failure| failed(self.address, failure))?
                {
                    self.record.connect.add(now - connection.opened_at);
                    self.record.connections += 1;
                    missing -= 1;
                }
            }
        }
        Ok(true)
    }

    /// Runs to the end. Returns false if a signal interrupted it.
    pub fn run(&mut self, signals: &mut Signals) -> Result<bool, RunError> {
        self.clock = Clock(Instant::now());
        let mut next_tick = TICK;
        let mut next_line = 1_000_000_000;
        if self.schedule.is_none() {
            (0..self.connections.len()).for_each(|index| self.begin(index, 0));
        }
        loop {
            self.restart_failed();
            self.start_what_is_due();
            let now = self.clock.now();
            let all_started = self
                .schedule
                .as_mut()
                .is_none_or(|schedule| schedule.peek().is_none());
            if now >= self.end
                && (self.busy == 0 && self.restart.is_empty() && all_started
                    || now >= self.end.saturating_add(self.timeout))
            {
                return Ok(true);
            }
            if now >= next_tick {
                self.expire(now);
                next_tick = now + TICK;
            }
            if now >= next_line {
                self.say_progress(now);
                next_line += 1_000_000_000;
            }
            let due = self
                .schedule
                .as_mut()
                .and_then(|schedule| schedule.peek().copied())
                .unwrap_or(u64::MAX);
            let wake = match (self.restart.is_empty(), now < self.end) {
                (false, _) => 0,
                (true, true) => due.min(next_tick).min(self.end),
                (true, false) => due.min(next_tick),
            };
            let before = self.clock.now();
            let sleep = self.alarm.sleep(before, wake);
            let count = self.poll.wait(Some(sleep))?;
            if count == 0 {
                self.alarm.woke(before, sleep, self.clock.now());
            }
            for index in 0..count {
                let ready = self.poll.ready(index);
                if ready.token == SIGNALS {
                    if signals.arrived() {
                        self.record.cut(self.clock.now());
                        return Ok(false);
                    }
                    continue;
                }
                self.drive(ready);
            }
        }
    }

    /// Ends the run: what was recorded, and how many measured requests were not sent and not
    /// answered.
    pub fn finish(self) -> (Record, u64, u64) {
        let measured = |intended: &u64| *intended >= self.warmup_end;
        let (mut unsent, mut unanswered) = (0, 0);
        for connection in &self.connections {
            unsent += connection
                .queue
                .iter()
                .copied()
                .filter(|intended| measured(intended))
                .count() as u64;
            unanswered += u64::from(
                connection
                    .current
                    .is_some_and(|current| measured(&current.intended)),
            );
        }
        (self.record, unsent, unanswered)
    }

    /// Hands every request that is due to its connection. Connections take turns, so that each has
    /// the spacing that rate and number of connections imply, whatever the others are up to.
    fn start_what_is_due(&mut self) {
        let now = self.clock.now();
        while let Some(intended) = self
            .schedule
            .as_mut()
            .and_then(|schedule| schedule.next_if(|due| *due <= now))
        {
            let index = self.next;
            self.next = (self.next + 1) % self.connections.len();
            let connection = &mut self.connections[index];
            if connection.current.is_some() || !connection.queue.is_empty() {
                connection.queue.push_back(intended);
            } else {
                self.begin(index, intended);
            }
        }
    }

    /// Starts a request on a connection that has none, opening it first if it must.
    fn begin(&mut self, index: usize, intended: u64) {
        let connection = &mut self.connections[index];
        let begun = self.clock.now().max(intended);
        connection.current = Some(Current {
            intended,
            possible: intended.max(connection.free_since),
            begun,
        });
        self.busy += 1;
        let progress = if connection.is_open() {
            connection.send(&self.request)
        } else {
            match connection.open(self.address, &self.poll, begun) {
                Ok(()) => Progress::Waiting,
                Err(failure) => Progress::Failed(failure),
            }
        };
        if progress != Progress::Waiting {
            self.conclude(index, progress);
        }
    }

    /// Goes on with a connection that something happened to.
    fn drive(&mut self, ready: Ready) {
        let index = ready.token as usize;
        let now = self.clock.now();
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let mut progress = match connection.advance_connect(ready) {
            Err(failure) => Progress::Failed(failure),
            Ok(true) => {
                self.record.connections += 1;
                self.record
                    .connect
                    .add(now.saturating_sub(connection.opened_at));
                Progress::Waiting
            }
            Ok(false) => Progress::Waiting,
        };
        if progress == Progress::Waiting && ready.writable && connection.current.is_some() {
            progress = connection.send(&self.request);
        }
        if progress == Progress::Waiting && ready.readable && connection.is_connected() {
            progress = connection.receive(ready.ended, &mut self.buffer);
        }
        if progress != Progress::Waiting {
            self.conclude(index, progress);
        }
    }

    /// Records how a request ended and starts the one that waited for it.
    fn conclude(&mut self, index: usize, progress: Progress) {
        let done = self.clock.now();
        let connection = &mut self.connections[index];
        if let Some(Current {
            intended,
            possible,
            begun,
        }) = connection.current.take()
        {
            self.busy -= 1;
            let timing = Timing {
                intended,
                possible,
                begun,
                done,
            };
            match progress {
                Progress::Answered(response) => {
                    self.record
                        .answered(timing, response.status, response.content)
                }
                Progress::Failed(failure) => self.record.failed(timing, failure),
                Progress::Waiting => {}
            }
        }
        if !self.keepalive {
            connection.close();
        }
        connection.free_since = done;
        let failed = matches!(progress, Progress::Failed(_));
        if self.schedule.is_none() {
            // A target that is gone must not be dialled without pause: the next tick tries again.
            if !failed && done < self.end {
                self.begin(index, done);
            }
        } else if failed {
            // Not from here: a failure that comes at once would nest as deep as the queue is long.
            self.restart.push(index);
        } else if let Some(intended) = connection.queue.pop_front() {
            self.begin(index, intended);
        }
    }

    /// Starts the requests that waited behind failed ones.
    fn restart_failed(&mut self) {
        for index in std::mem::take(&mut self.restart) {
            let connection = &mut self.connections[index];
            if connection.current.is_none()
                && let Some(intended) = connection.queue.pop_front()
            {
                self.begin(index, intended);
            }
        }
    }

    /// Fails the requests that took too long and, in a closed loop, goes on after failures.
    fn expire(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            match connection.current {
                Some(current) if now.saturating_sub(current.begun) >= self.timeout => {
                    connection.close();
                    self.conclude(index, Progress::Failed(Failure::Timeout));
                }
                None if self.schedule.is_none() && now < self.end => self.begin(index, now),
                _ => {}
            }
        }
    }

    fn say_progress(&mut self, now: u64) {
        let Some(name) = &self.progress else { return };
        let recent = self.record.recent.histogram();
        let at = |quantile| readable(Duration::from_nanos(recent.value_at_quantile(quantile)));
        let phase = if now < self.warmup_end {
            " (warm-up)"
        } else {
            ""
        };
        let line = if recent.is_empty() {
            "no answers".to_owned()
        } else {
            format!(
                "{} answers, P50 {}, P99 {}",
                recent.len(),
                at(0.5),
                at(0.99)
            )
        };
        eprintln!(
            "{name}: {} s{phase}: {line}, {} failed so far",
            now / 1_000_000_000,
            self.record.all_failed_count()
        );
        self.record.recent.clear();
    }
}

/// What a failure before the start means, and what may help.
fn explain(failure: Failure) -> String {
    match failure {
        Failure::Refused => {
            "connection refused; is the service running, and is this its port?".to_owned()
        }
        Failure::Timeout => {
            "timed out; is the address routed from here, and does a policy drop it?".to_owned()
        }
        Failure::Reset => "connection reset; something in between refuses it".to_owned(),
        Failure::Connect => {
            "no route, or no free port or descriptor; check `ip route get` and `ulimit -n`"
                .to_owned()
        }
        other => other.to_string(),
    }
}

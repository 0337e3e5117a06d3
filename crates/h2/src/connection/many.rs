//! Tests with thousands of streams: each event costs a few steps in the lists of streams, however many streams there are.

use std::time::Duration;

use super::Connection;
use crate::code::Code;
use crate::config::{Config, SharedConfig};
use crate::error::StreamId;
use crate::event::Event;
use crate::hpack::{Field, Prebuilt};
use crate::streams::steps;
use crate::timestamp::Timestamp;

const STREAMS: usize = 4000;

/// Steps that one event may cost: a search among thousands of numbers takes 13 of them.
const EACH: u64 = 40;

fn config() -> SharedConfig {
    Config {
        max_streams: STREAMS as u32,
        first_windows: STREAMS as u32,
        ..Config::requests()
    }
    .share()
}

struct Pair {
    client: Connection,
    server: Connection,
    now: Timestamp,
    /// What was told to the server.
    requests: Vec<StreamId>,
    came: usize,
    ended: usize,
    events: u64,
}

impl Pair {
    fn new() -> Self {
        let (config, now) = (config(), Timestamp::from_micros(1));
        let mut pair = Pair {
            client: Connection::client(&config, now),
            server: Connection::server(&config, now),
            now,
            requests: Vec::new(),
            came: 0,
            ended: 0,
            events: 0,
        };
        while pair.up() + pair.down() > 0 {}
        pair
    }

    fn up(&mut self) -> usize {
        // What is allowed a second is not the matter here.
        self.now = self.now.after(Duration::from_secs(60));
        let bytes = self.client.output().collect::<Vec<_>>().concat();
        self.client.advance(bytes.len());
        let mut input = &bytes[..];
        while let Some(event) = self
            .server
            .receive(&mut input, self.now)
            .expect("it is good")
        {
            self.events += 1;
            match event {
                Event::Request { stream, .. } => self.requests.push(stream),
                Event::Data { stream, bytes, end } => {
                    self.came += bytes.len();
                    self.ended += usize::from(end);
                    self.server.consumed(stream, bytes.len());
                }
                _ => {}
            }
        }
        bytes.len()
    }

    fn down(&mut self) -> usize {
        let bytes = self.server.output().collect::<Vec<_>>().concat();
        self.server.advance(bytes.len());
        let mut input = &bytes[..];
        while let Some(event) = self
            .client
            .receive(&mut input, self.now)
            .expect("it is good")
        {
            self.events += u64::from(!matches!(event, Event::Settings));
        }
        bytes.len()
    }

    fn open(&mut self) -> Vec<StreamId> {
        let fields = [
            Field::new(":method", "POST"),
            Field::new(":scheme", "http"),
            Field::new(":path", "/"),
        ];
        (0..STREAMS)
            .map(|_| {
                let stream = self.client.request(None, &fields, false);
                stream.expect("there is room")
            })
            .collect()
    }
}

/// Each upload is larger than its window and the connection's, and its caller waits for room.
#[test]
fn thousands_of_uploads_cost_what_their_frames_cost() {
    const SIZE: usize = 70_000;
    let mut pair = Pair::new();
    let streams = pair.open();
    let mut left = vec![SIZE; STREAMS];
    let mut writes = 0;
    steps::take();
    for stream in &streams {
        pair.client.await_room(*stream);
    }
    loop {
        while let Some(stream) = pair.client.next_with_room() {
            let left = &mut left[stream.get() as usize / 2];
            let n = pair.client.room(stream).min(*left);
            *left -= n;
            pair.client
                .send(stream, vec![0; n].into())
                .expect("it is open");
            match *left {
                0 => pair.client.finish(stream).expect("it is open"),
                _ => pair.client.await_room(stream),
            }
        }
        writes += 1;
        if pair.up() + pair.down() == 0 {
            break;
        }
    }
    assert_eq!((pair.came, pair.ended), (SIZE * STREAMS, STREAMS));
    let events = pair.events + writes;
    let taken = steps::take();
    assert!(taken < EACH * events, "{taken} steps for {events} events");
}

/// Streams that are blocked by a window of the connection are not looked at for each byte of it.
#[test]
fn a_window_that_opens_by_little_wakes_few() {
    let mut pair = Pair::new();
    let streams = pair.open();
    for stream in &streams {
        pair.client
            .send(*stream, vec![0; 10_000].into())
            .expect("it is open");
        pair.client.await_room(*stream);
    }
    while pair.client.has_output() {
        let n: usize = pair.client.output().map(<[u8]>::len).sum();
        pair.client.advance(n);
    }
    steps::take();
    const TURNS: u64 = 2000;
    for _ in 0..TURNS {
        // A kilobyte for the connection.
        let mut grant = &crate::frame::word(crate::frame::kind::WINDOW_UPDATE, 0, 1024)[..];
        assert_eq!(pair.client.receive(&mut grant, pair.now), Ok(None));
        pair.now = pair.now.after(Duration::from_secs(60));
        while pair.client.next_with_room().is_some() {}
        let n: usize = pair.client.output().map(<[u8]>::len).sum();
        assert!(n > 1024);
        pair.client.advance(n);
    }
    let taken = steps::take();
    assert!(taken < EACH * TURNS + 4 * STREAMS as u64, "{taken} steps");
}

/// In the order in which they were opened, the worst for a list that moves its rest.
#[test]
fn thousands_of_resets_cost_a_few_steps_each() {
    for release in [false, true] {
        let mut pair = Pair::new();
        let streams = pair.open();
        for stream in &streams {
            pair.client
                .send(*stream, vec![0; 1000].into())
                .expect("it is open");
            pair.client.await_room(*stream);
        }
        steps::take();
        for stream in &streams {
            match release {
                true => pair.client.release(*stream),
                false => pair.client.reset(*stream, Code::CANCEL),
            }
        }
        while pair.client.next_with_room().is_some() {}
        let taken = steps::take();
        assert!(taken < EACH * STREAMS as u64, "{taken} steps");
        assert_eq!((pair.client.active(), pair.client.queued > 0), (0, false));
    }
}

/// One request stays while all others come and go: lists do not grow with the number of requests that there ever were.
#[test]
fn one_long_stream_among_many_short_ones_keeps_lists_short() {
    let mut pair = Pair::new();
    let ok = Prebuilt::new([Field::new(":status", "200")]);
    let fields = [
        Field::new(":method", "GET"),
        Field::new(":scheme", "http"),
        Field::new(":path", "/"),
    ];
    let long = pair
        .client
        .request(None, &fields, false)
        .expect("there is room");
    pair.up();
    steps::take();
    for _ in 0..STREAMS {
        let stream = pair
            .client
            .request(None, &fields, true)
            .expect("there is room");
        pair.up();
        let answered = pair.server.respond(stream, Some(&ok), &[], true);
        assert_eq!(answered, Ok(()));
        pair.server.release(stream);
        pair.down();
        pair.client.release(stream);
    }
    let taken = steps::take();
    assert!(taken < EACH * STREAMS as u64, "{taken} steps");
    assert_eq!(
        (pair.client.streams.len(), pair.server.streams.len()),
        (1, 1)
    );
    pair.client.release(long);
}

//! Control frames: SETTINGS, PING, GOAWAY, WINDOW_UPDATE.

use super::{Closing, Connection};
use crate::abuse::Abuse;
use crate::code::Code;
use crate::config::LARGEST_WINDOW;
use crate::error::{Cause, ConnectionError, StreamId};
use crate::event::{Event, Outcome};
use crate::flags;
use crate::frame::{self, Head, flag, kind, setting};
use crate::timestamp::Timestamp;

/// The PING that measures a round trip.
pub(super) const SAMPLE: [u8; 8] = *b"lateen w";

/// The two PINGs behind our first GOAWAY. The answer to the first shows that the peer has read the GOAWAY. The answer to the second
/// comes behind all requests from before that: a peer may write the answer to a PING in front of requests that it queued earlier,
/// as the `h2` crate does.
pub(super) const DRAIN: [u8; 8] = *b"lateen g";

/// The caller's PINGs.
pub(super) fn numbered(number: u32) -> [u8; 8] {
    let [a, b, c, d] = number.to_be_bytes();
    [b'l', b't', b'n', b'#', a, b, c, d]
}

impl Connection {
    pub(super) fn setting_came(&mut self, id: u16, value: u32) -> Outcome<'static> {
        self.entries += 1;
        if self.entries > self.config.settings_entries {
            return Err(ConnectionError::abuse(Abuse::SettingsFlood));
        }
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.limit(value),
            // A server may only say that it pushes nothing (RFC 9113 §6.5.2).
            setting::ENABLE_PUSH if value > u32::from(self.server) => {
                return Err(ConnectionError::protocol(Cause::Setting));
            }
            setting::MAX_CONCURRENT_STREAMS => {
                self.peer.max_streams = value;
                self.peer.known = true;
            }
            setting::INITIAL_WINDOW_SIZE => self.first_window_came(value)?,
            setting::MAX_FRAME_SIZE => {
                if !(1 << 14..1 << 24).contains(&value) {
                    return Err(ConnectionError::protocol(Cause::Setting));
                }
                self.peer.max_frame = value;
            }
            setting::MAX_HEADER_LIST_SIZE => self.peer.max_header_list = value,
            setting::ENABLE_CONNECT_PROTOCOL => {
                // It may not be taken back (RFC 8441 §3).
                if value > 1 || value == 0 && self.peer.extended_connect {
                    return Err(ConnectionError::protocol(Cause::Setting));
                }
                self.peer.extended_connect = value == 1;
            }
            _ => {}
        }
        Ok(None)
    }

    /// It changes the windows of all streams (RFC 9113 §6.9.2).
    fn first_window_came(&mut self, value: u32) -> Result<(), ConnectionError> {
        let wrong = ConnectionError::new(Code::FLOW_CONTROL_ERROR, Cause::Setting);
        if value > LARGEST_WINDOW {
            return Err(wrong);
        }
        let change = value as i32 - self.peer.window as i32;
        self.peer.window = value;
        self.waiting.change();
        for stream in self.streams.iter_mut() {
            stream.window = stream.window.checked_add(change).ok_or(wrong)?;
            self.turns.add(stream);
            self.waiting.may_have_room(stream);
        }
        Ok(())
    }

    pub(super) fn settings_came(&mut self, now: Timestamp) -> Outcome<'static> {
        self.entries = 0;
        self.charge(Abuse::SettingsFlood, now)?;
        if !self.peer.known {
            // It says nothing of a limit, so there is none.
            self.peer.known = true;
            self.peer.max_streams = u32::MAX;
        }
        let head = Head {
            kind: kind::SETTINGS,
            flags: flag::ACK,
            ..Head::default()
        };
        self.reply(&head.bytes())?;
        Ok(Some(Event::Settings))
    }

    pub(super) fn acknowledged(&mut self) -> Outcome<'static> {
        match self.settings_due.take() {
            Some(_) => Ok(Some(Event::Acknowledged)),
            None => Err(ConnectionError::protocol(Cause::Acknowledgement)),
        }
    }

    pub(super) fn ping_came(
        &mut self,
        ack: bool,
        payload: [u8; 8],
        now: Timestamp,
    ) -> Outcome<'static> {
        if !ack {
            self.charge(Abuse::PingFlood, now)?;
            self.reply(&frame::ping(true, payload))?;
            return Ok(None);
        }
        let [a, b, c, d, number @ ..] = payload;
        match payload {
            SAMPLE if self.recv_flow.sampled(now) => self.grant(),
            DRAIN if self.closing == Closing::Announced => {
                self.closing = Closing::Heard;
                self.output.small(&frame::ping(false, DRAIN));
            }
            DRAIN if self.closing == Closing::Heard => self.end_drain(),
            _ if [a, b, c, d] == *b"ltn#" && self.numbered > 0 => {
                self.numbered -= 1;
                return Ok(Some(Event::Pong(u32::from_be_bytes(number))));
            }
            _ => self.charge(Abuse::PingFlood, now)?,
        }
        Ok(None)
    }

    pub(super) fn go_away_came(
        &mut self,
        last: u32,
        code: Code,
        now: Timestamp,
    ) -> Outcome<'static> {
        self.charge(Abuse::UselessFrames, now)?;
        self.peer_closing = true;
        if !self.server {
            let left_out = |id: &u32| *id > last;
            let streams = self.streams.iter_mut();
            let mut ids: Vec<u32> = streams
                .filter(|stream| !stream.is_over())
                .map(|stream| stream.id)
                .filter(left_out)
                .collect();
            ids.sort_unstable();
            for id in ids {
                // What still comes of them is no matter: the peer said that it looks at none of it.
                self.end(id, flags::SENT | flags::HEARD | flags::RESET);
                self.unprocessed.get_or_insert_default().push_back(id);
            }
        }
        let last = StreamId::of(last);
        Ok(Some(Event::GoAway { last, code }))
    }

    pub(super) fn window_came(
        &mut self,
        id: u32,
        increment: u32,
        now: Timestamp,
    ) -> Outcome<'static> {
        self.charge(Abuse::WindowUpdateFlood, now)?;
        let overflow = (Code::FLOW_CONTROL_ERROR, Cause::WindowUpdate);
        let nothing = (Code::PROTOCOL_ERROR, Cause::WindowUpdate);
        if id == 0 {
            let after = self.window.saturating_add(increment);
            let fault = match (increment, after) {
                (0, _) => nothing,
                (_, ..=LARGEST_WINDOW) => {
                    self.window = after;
                    self.credits = self.credits.wrapping_add(1);
                    self.waiting.change();
                    return Ok(None);
                }
                _ => overflow,
            };
            return Err(ConnectionError::new(fault.0, fault.1));
        }
        let Some(stream) = self.streams.get(id) else {
            return match self.is_idle(id) {
                true => Err(ConnectionError::protocol(Cause::IdleStream)),
                false => Ok(None),
            };
        };
        if stream.is_over() {
            return Ok(None);
        }
        let fault = match (increment, stream.window.checked_add(increment as i32)) {
            (0, _) => nothing,
            (_, Some(after)) => {
                stream.window = after;
                self.credits = self.credits.wrapping_add(1);
                self.turns.add(stream);
                self.waiting.may_have_room(stream);
                return Ok(None);
            }
            (_, None) => overflow,
        };
        self.fault(id, fault.0, fault.1, now).map(Some)
    }
}

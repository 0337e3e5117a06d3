//! State of a tunnel that both roles have: its core, its account and its end.

use std::rc::Rc;

use lateen_h2::{Config, Connection, FLOOR};
use tokio::time::Instant;

use super::core::{Core, Shared};
use crate::ended::Ended;
use crate::load::Load;
use crate::recv_window::{RecvFlow, RecvWindow};
use crate::send_buffer::SendBuffer;
use crate::settings::Settings;

/// Answers that may wait for a peer; where there are fewer, nothing more is read of it, see [`super::wire`].
const UNREAD_REPLIES: usize = 192 * 1024;

/// Streams that each have room for a first window while others are not read. It is this many while the ledger grants a tunnel
/// its whole allowance, and otherwise as many as fit into half of the grant.
const FIRST_WINDOWS: u32 = 64;

/// The core's parameters for these settings. Its windows follow the path, within what the budget grants.
fn config(settings: &Settings, max_streams: u32) -> lateen_h2::SharedConfig {
    let most = i32::MAX as u32;
    let allowance = FLOOR.saturating_add(settings.connection_window).min(most);
    Config {
        max_frame: settings.max_frame,
        max_header_list: settings.max_header_list,
        max_streams,
        stream_first: FLOOR,
        stream_most: settings.stream_window,
        first_windows: FIRST_WINDOWS,
        connection_first: FLOOR,
        connection_most: allowance,
        allowance,
        send_buffer: u32::try_from(settings.send_buffer).unwrap_or(most),
        send_total: settings.tunnel_send_buffer,
        unread_replies: UNREAD_REPLIES,
        ..Config::tunnel()
    }
    .share()
}

/// What both sides have: a tunnel's state and its account.
pub(crate) fn begin(
    settings: &Settings,
    max_streams: u32,
    open: impl FnOnce(&lateen_h2::SharedConfig, lateen_h2::Timestamp) -> Connection,
) -> (Shared, Rc<Load>) {
    let send_buffer = Rc::new(SendBuffer::new(
        &settings.send_budget,
        settings.tunnel_send_buffer,
    ));
    let mut http2 = open(
        &config(settings, max_streams),
        lateen_h2::Timestamp::default(),
    );
    http2.set_allowance(FLOOR);
    let load = Load::new(&send_buffer);
    (Shared::new(http2, send_buffer, Instant::now()), load)
}

/// Sets the core's allowance to the account's: lowers it if `tick`, raises it otherwise.
pub(crate) fn set_allowance(
    core: &mut Core,
    recv_window: &mut RecvWindow,
    load: &Load,
    tick: bool,
) {
    let credit = core.http2.credit();
    load.set_read(credit.came - u64::from(credit.held));
    load.set_credit(credit.credit);
    let inflow = RecvFlow {
        came: credit.came,
        granted: (credit.came + u64::from(credit.credit)).saturating_sub(u64::from(FLOOR)),
        wanted: credit.wanted,
    };
    let window = match tick {
        true => recv_window.shrink(load, inflow),
        false => recv_window.grow(load, inflow),
    };
    if let Some(window) = window {
        core.http2.set_allowance(window);
    }
    // Windows that have not grown need no room to grow into.
    if credit.wanted - credit.held > FLOOR {
        core.http2.set_most(recv_window.reach());
    }
}

/// Tells those who are on a tunnel that it is over, when its task is.
#[derive(Debug)]
pub(crate) struct EndOnDrop(pub(crate) Shared);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Ended::closed());
    }
}

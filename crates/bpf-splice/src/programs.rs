// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The two programs. The kernel lets only programs under a licence like its own look at its sockets, hence the choice of
//! two above, which is for this file.
//!
//! The first enters an application's socket: it finds it by its addresses in the namespace that it is run in, makes sure
//! that it is the other end of the connection that this process means, and leaves with it what the second one needs.
//!
//! The second is asked about everything that such an application sends. It lets it go straight into the connection to the
//! other application if nothing is under way that must arrive before it and there is room; otherwise it goes to this
//! process by TCP, as ever.
//!
//! *Nothing is overtaken.* With `read` and `written` the places in their sequences of bytes at which this process had
//! written to the one connection all that it had read from the other, and `moved` the bytes that went straight:
//! what the application sent to this process is `write_seq - read`, what this process has written of it is
//! `target.write_seq - written - ` what has arrived there straight. The two are equal if and only if nothing is under way,
//! neither here nor there: this process can have written no more than was sent to it, and no more can have arrived
//! straight than was counted as moved before. All of it modulo 2^32.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use crate::asm::Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use crate::asm::{Code, Label, Op, Size, Test};
use crate::btf::{BtfError, Types};
use crate::table::{order, own, shared, state};

/// What the kernel is told: of the two licences of this file the one under which it is loaded, as the kernel spells it.
pub(crate) const LICENCE: &CStr = c"GPL v2";

/// Helpers of the kernel, by number (bpf-helpers(7)).
mod helper {
    pub(super) const MAP_LOOKUP: i32 = 1;
    pub(super) const MAP_UPDATE: i32 = 2;
    pub(super) const MESSAGE_REDIRECT_HASH: i32 = 71;
    pub(super) const SOCKET_LOOKUP_TCP: i32 = 84;
    pub(super) const SOCKET_RELEASE: i32 = 86;
    pub(super) const SOCKET_STORAGE_GET: i32 = 107;
    pub(super) const PROBE_READ_KERNEL: i32 = 113;
    pub(super) const TO_TCP_SOCKET: i32 = 137;
}

/// Of `struct bpf_sock`.
const SOCKET_STATE: i16 = 72;
/// Of `struct __sk_buff`.
const PACKET: i16 = 76;
const PACKET_END: i16 = 80;
/// Of `struct sk_msg_md`.
const MESSAGE_SIZE: i16 = 68;
const MESSAGE_SOCKET: i16 = 72;
/// tcp_states.h
const ESTABLISHED: i32 = 1;
const CLOSE_WAIT: i32 = 8;
/// enum sk_action
const PASS: i32 = 1;

/// What the first program answers.
pub(crate) mod answer {
    pub(crate) const ENTERED: u32 = 0;
    pub(crate) const NO_SOCKET: u32 = 1;
    pub(crate) const NOT_OPEN: u32 = 2;
    pub(crate) const ENDED: u32 = 3;
    pub(crate) const SPECIAL: u32 = 4;
    pub(crate) const ANOTHER: u32 = 5;
    pub(crate) const NO_ROOM: u32 = 6;
    pub(crate) const BLOCKING: u32 = 7;
}

/// Where the running kernel has what is looked at, from the start of a `struct tcp_sock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    write_seq: i16,
    copied_seq: i16,
    rcv_nxt: i16,
    snd_una: i16,
    /// Only kernels with MPTCP have it.
    is_mptcp: Option<i16>,
    /// What is between the socket and TCP, TLS for example.
    ulp: i16,
    flags: i16,
    /// The bit among the flags.
    zerocopy: u32,
    state: i16,
    cookie: i16,
    queued: i16,
    room: i16,
    /// Of it, its socket; of that, its file; of that, the flags of open(2).
    open_flags: [i16; 3],
}

impl Fields {
    /// Finds them.
    pub(crate) fn find(types: &Types<'_>) -> Result<Self, BtfError> {
        let field = |path: &[&str]| {
            let offset = types.offset("tcp_sock", path)?;
            i16::try_from(offset).map_err(|_| BtfError::Missing(path.join(".")))
        };
        let other = |of, path| {
            let offset = types.offset(of, &[path])?;
            i16::try_from(offset).map_err(|_| BtfError::Missing(format!("{of}.{path}")))
        };
        let sock = |path: &[&str]| field(&[&["inet_conn", "icsk_inet", "sk"], path].concat());
        Ok(Fields {
            write_seq: field(&["write_seq"])?,
            copied_seq: field(&["copied_seq"])?,
            rcv_nxt: field(&["rcv_nxt"])?,
            snd_una: field(&["snd_una"])?,
            is_mptcp: field(&["is_mptcp"]).ok(),
            ulp: field(&["inet_conn", "icsk_ulp_ops"])?,
            flags: sock(&["__sk_common", "skc_flags"])?,
            zerocopy: types.number("SOCK_ZEROCOPY")?,
            state: sock(&["__sk_common", "skc_state"])?,
            cookie: sock(&["__sk_common", "skc_cookie"])?,
            queued: sock(&["sk_wmem_queued"])?,
            room: sock(&["sk_sndbuf"])?,
            open_flags: [
                sock(&["sk_socket"])?,
                other("socket", "file")?,
                other("file", "f_flags")?,
            ],
        })
    }
}

/// The maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps<'a> {
    /// This process's sockets.
    pub(crate) targets: BorrowedFd<'a>,
    /// The applications' sockets.
    pub(crate) applications: BorrowedFd<'a>,
    /// What is kept with an application's socket.
    pub(crate) storage: BorrowedFd<'a>,
    /// The connections, as this process sees them too.
    pub(crate) connections: BorrowedFd<'a>,
}

/// Copies a 64-bit word of `[from]` to the stack.
fn to_stack(code: &mut Code, place: i16, from: crate::asm::Reg, field: i16) {
    code.load(Size::Double, R1, from, field);
    code.store(Size::Double, R10, place, R1);
}

/// Where to go if the application of the socket at R0 waits in its calls, and where if the socket is no application's any more.
/// Uses R1.
fn if_it_waits(code: &mut Code, fields: &Fields, nobodys: Label, waits: Label) {
    let [socket, file, flags] = fields.open_flags;
    code.load(Size::Double, R1, R0, socket);
    code.jump_if(Test::Equal, R1, 0, nobodys);
    code.load(Size::Double, R1, R1, file);
    code.jump_if(Test::Equal, R1, 0, nobodys);
    code.load(Size::Word, R1, R1, flags);
    code.with(Op::And, R1, libc::O_NONBLOCK);
    code.jump_if(Test::Equal, R1, 0, waits);
}

/// `dst` = stack + place
fn stack(code: &mut Code, dst: crate::asm::Reg, place: i16) {
    code.mov(dst, R10);
    code.with(Op::Add, dst, place.into());
}

/// The program that enters an application's socket: a classifier that is run on an order, never attached to anything.
pub(crate) fn enter(maps: Maps<'_>, fields: &Fields) -> Vec<u64> {
    const OWN_KEY: i16 = -8;
    const TARGET_KEY: i16 = -16;
    // Sockets to be given back; R8 is the application's.
    const OWN: i16 = -24;
    const TARGET: i16 = -32;
    // The same as TCP's.
    const OWN_TCP: i16 = -40;
    const TARGET_TCP: i16 = -48;

    let mut c = Code::default();
    let [end, one, two, three] = std::array::from_fn(|_| c.label());
    c.mov(R6, R1);
    c.load(Size::Word, R7, R1, PACKET);
    c.load(Size::Word, R2, R1, PACKET_END);
    c.mov(R3, R7);
    c.with(Op::Add, R3, order::SIZE as i32);
    c.set(R0, answer::NO_SOCKET as i32);
    c.jump_by(Test::Greater, R3, R2, end);
    to_stack(&mut c, OWN_KEY, R7, order::OWN);
    to_stack(&mut c, TARGET_KEY, R7, order::TARGET);

    // The application's socket. BPF_F_CURRENT_NETNS is -1: the namespace that this is run in.
    let look = c.label();
    c.load(Size::Word, R1, R7, order::FAMILY);
    c.set(R3, 12);
    c.jump_if(Test::Equal, R1, 4, look);
    c.set(R3, 36);
    c.place(look);
    c.mov(R1, R6);
    c.mov(R2, R7);
    c.with(Op::Add, R2, order::TUPLE.into());
    c.set(R4, -1);
    c.set(R5, 0);
    c.call(helper::SOCKET_LOOKUP_TCP);
    c.mov(R8, R0);
    c.set(R0, answer::NO_SOCKET as i32);
    c.jump_if(Test::Equal, R8, 0, end);
    c.set(R9, answer::NOT_OPEN as i32);
    c.load(Size::Word, R1, R8, SOCKET_STATE);
    c.jump_if(Test::Unequal, R1, ESTABLISHED, one);

    // This process's two sockets.
    let mine = |c: &mut Code, key: i16, socket: i16, otherwise: Label| {
        c.set(R9, answer::ENDED as i32);
        c.map(R1, maps.targets);
        stack(c, R2, key);
        c.call(helper::MAP_LOOKUP);
        c.jump_if(Test::Equal, R0, 0, otherwise);
        c.store(Size::Double, R10, socket, R0);
    };
    mine(&mut c, OWN_KEY, OWN, one);
    mine(&mut c, TARGET_KEY, TARGET, two);
    for (socket, tcp) in [(OWN, OWN_TCP), (TARGET, TARGET_TCP)] {
        c.load(Size::Double, R1, R10, socket);
        c.call(helper::TO_TCP_SOCKET);
        c.jump_if(Test::Equal, R0, 0, three);
        c.store(Size::Double, R10, tcp, R0);
    }
    c.mov(R1, R8);
    c.call(helper::TO_TCP_SOCKET);
    c.jump_if(Test::Equal, R0, 0, three);

    // R0: the application's. Nothing but TCP on it, and nothing that waits for more than TCP tells.
    c.set(R9, answer::SPECIAL as i32);
    if let Some(is_mptcp) = fields.is_mptcp {
        c.load(Size::Byte, R1, R0, is_mptcp);
        c.jump_if(Test::Unequal, R1, 0, three);
    }
    c.load(Size::Double, R1, R0, fields.ulp);
    c.jump_if(Test::Unequal, R1, 0, three);
    c.load(Size::Double, R1, R0, fields.flags);
    c.with(Op::Rsh, R1, fields.zerocopy as i32);
    c.with(Op::And, R1, 1);
    c.jump_if(Test::Unequal, R1, 0, three);

    // The kernel's reading from a socket that is in a map tells one that waits in it "try again" whenever it is woken for
    // something else, as if it had asked not to wait. Those that do ask so know what to do.
    c.set(R9, answer::BLOCKING as i32);
    if_it_waits(&mut c, fields, three, three);

    // Addresses can be had anew; where two are in their sequences of bytes nobody else is. What the one has acknowledged
    // to the other lies between what the other knows to be acknowledged and what it has sent; read in this order, as
    // each only grows.
    c.set(R9, answer::ANOTHER as i32);
    c.load(Size::Double, R5, R10, OWN_TCP);
    for (sender, receiver) in [(R0, R5), (R5, R0)] {
        c.load(Size::Word, R1, sender, fields.snd_una);
        c.load(Size::Word, R2, receiver, fields.rcv_nxt);
        c.load(Size::Word, R3, sender, fields.write_seq);
        c.by32(Op::Sub, R2, R1);
        c.by32(Op::Sub, R3, R1);
        c.jump_by32(Test::Greater, R2, R3, three);
    }

    // What the other program needs.
    c.set(R9, answer::NO_ROOM as i32);
    c.map(R1, maps.storage);
    c.mov(R2, R8);
    c.set(R3, 0);
    c.set(R4, 1);
    c.call(helper::SOCKET_STORAGE_GET);
    c.jump_if(Test::Equal, R0, 0, three);
    for (size, from, to) in [
        (Size::Double, order::ID, own::ID),
        (Size::Word, order::INDEX, own::INDEX),
        (Size::Word, order::END, own::END),
        (Size::Double, order::TARGET, own::TARGET),
    ] {
        c.load(size, R1, R7, from);
        c.store(size, R0, to, R1);
    }
    c.load(Size::Double, R2, R10, TARGET_TCP);
    c.store(Size::Double, R0, own::ADDRESS, R2);
    c.load(Size::Double, R1, R2, fields.cookie);
    c.store(Size::Double, R0, own::COOKIE, R1);
    c.load(Size::Word, R1, R2, fields.write_seq);
    c.store(Size::Word, R0, own::WRITTEN, R1);
    c.load(Size::Double, R2, R10, OWN_TCP);
    c.load(Size::Word, R1, R2, fields.copied_seq);
    c.store(Size::Word, R0, own::READ, R1);

    // From here on the application is asked about.
    c.map(R1, maps.applications);
    stack(&mut c, R2, OWN_KEY);
    c.mov(R3, R8);
    c.set(R4, 0);
    c.call(helper::MAP_UPDATE);
    c.jump_if(Test::Unequal, R0, 0, three);
    c.set(R9, answer::ENTERED as i32);

    c.place(three);
    c.load(Size::Double, R1, R10, TARGET);
    c.call(helper::SOCKET_RELEASE);
    c.place(two);
    c.load(Size::Double, R1, R10, OWN);
    c.call(helper::SOCKET_RELEASE);
    c.place(one);
    c.mov(R1, R8);
    c.call(helper::SOCKET_RELEASE);
    c.mov(R0, R9);
    c.place(end);
    c.exit();
    c.finish()
}

/// The program that is asked about what an application sends.
pub(crate) fn verdict(maps: Maps<'_>, fields: &Fields) -> Vec<u64> {
    const INDEX: i16 = -8;
    const TARGET_KEY: i16 = -16;
    const SENT: i16 = -24;
    const WRITTEN: i16 = -32;
    const QUEUED: i16 = -40;
    const ROOM: i16 = -48;
    const STATE: i16 = -56;
    const COOKIE: i16 = -64;

    let mut c = Code::default();
    let [pass, ready, leave] = std::array::from_fn(|_| c.label());
    c.mov(R6, R1);
    c.load(Size::Double, R7, R1, MESSAGE_SOCKET);
    c.jump_if(Test::Equal, R7, 0, pass);
    c.map(R1, maps.storage);
    c.mov(R2, R7);
    c.set(R3, 0);
    c.set(R4, 0);
    c.call(helper::SOCKET_STORAGE_GET);
    c.jump_if(Test::Equal, R0, 0, pass);
    c.mov(R8, R0);

    // Not what has been reset, nor what is at its end: TCP has the words for that.
    let connected = c.label();
    c.load(Size::Word, R1, R7, SOCKET_STATE);
    c.jump_if(Test::Equal, R1, ESTABLISHED, connected);
    c.jump_if(Test::Unequal, R1, CLOSE_WAIT, pass);
    c.place(connected);

    // The connection, if it is still this one and open.
    c.load(Size::Word, R1, R8, own::INDEX);
    c.store(Size::Word, R10, INDEX, R1);
    c.map(R1, maps.connections);
    stack(&mut c, R2, INDEX);
    c.call(helper::MAP_LOOKUP);
    c.jump_if(Test::Equal, R0, 0, pass);
    c.mov(R9, R0);
    c.load(Size::Double, R1, R9, shared::ID);
    c.load(Size::Double, R2, R8, own::ID);
    c.jump_by(Test::Unequal, R1, R2, pass);
    c.load(Size::Double, R1, R9, shared::STATE);
    c.jump_if(Test::Unequal, R1, state::OPEN, pass);

    // What the application has sent by TCP. One that has turned TLS in the kernel on sends what is not encrypted yet.
    c.mov(R1, R7);
    c.call(helper::TO_TCP_SOCKET);
    c.jump_if(Test::Equal, R0, 0, pass);
    c.load(Size::Double, R1, R0, fields.ulp);
    c.jump_if(Test::Unequal, R1, 0, pass);
    c.load(Size::Word, R1, R0, fields.write_seq);
    c.load(Size::Word, R2, R8, own::READ);
    c.by32(Op::Sub, R1, R2);
    c.store(Size::Double, R10, SENT, R1);

    // One that from now on waits in its calls: the process is to take it out of the maps. It wakes for this message, which
    // goes there.
    if_it_waits(&mut c, fields, pass, leave);

    // R9: the connection's count for this end, from here on.
    c.load(Size::Word, R1, R8, own::END);
    c.with(Op::And, R1, 1);
    c.with(Op::Lsh, R1, 3);
    c.by(Op::Add, R9, R1);

    // The other connection. Its number comes last: if it is right, so was the rest.
    for (field, size, place) in [
        (fields.write_seq, 4, WRITTEN),
        (fields.queued, 4, QUEUED),
        (fields.room, 4, ROOM),
        (fields.state, 1, STATE),
        (fields.cookie, 8, COOKIE),
    ] {
        stack(&mut c, R1, place);
        c.set(R2, size);
        c.load(Size::Double, R3, R8, own::ADDRESS);
        c.with(Op::Add, R3, field.into());
        c.call(helper::PROBE_READ_KERNEL);
        c.jump_if(Test::Unequal, R0, 0, pass);
    }
    c.load(Size::Double, R1, R10, COOKIE);
    c.load(Size::Double, R2, R8, own::COOKIE);
    c.jump_by(Test::Unequal, R1, R2, pass);
    c.load(Size::Byte, R1, R10, STATE);
    c.jump_if(Test::Equal, R1, ESTABLISHED, ready);
    c.jump_if(Test::Unequal, R1, CLOSE_WAIT, pass);
    c.place(ready);

    // Nothing is overtaken: see above.
    c.load(Size::Word, R1, R10, WRITTEN);
    c.load(Size::Word, R2, R8, own::WRITTEN);
    c.by32(Op::Sub, R1, R2);
    c.load(Size::Double, R2, R9, shared::MOVED);
    c.by32(Op::Sub, R1, R2);
    c.load(Size::Double, R2, R10, SENT);
    c.jump_by32(Test::Unequal, R1, R2, pass);

    // Half of the room is left for the rest of what it counts. An application that is told to wait waits for its own
    // connection, which would always have room.
    c.load(Size::Word, R1, R10, QUEUED);
    c.load(Size::Word, R2, R6, MESSAGE_SIZE);
    c.by(Op::Add, R1, R2);
    c.load(Size::Word, R2, R10, ROOM);
    c.with(Op::Rsh, R2, 1);
    c.jump_by(Test::AtLeast, R1, R2, pass);

    // Counted before it arrives, or the next message would pass this one. There are a connection and room, so it arrives; if
    // the kernel has no memory for it, the application is told and says it again, by the process: it is counted twice then.
    to_stack(&mut c, TARGET_KEY, R8, own::TARGET);
    c.mov(R1, R6);
    c.map(R2, maps.targets);
    stack(&mut c, R3, TARGET_KEY);
    c.set(R4, 0);
    c.call(helper::MESSAGE_REDIRECT_HASH);
    c.jump_if(Test::Unequal, R0, PASS, pass);
    c.load(Size::Word, R2, R6, MESSAGE_SIZE);
    c.load(Size::Double, R1, R9, shared::MOVED);
    c.by(Op::Add, R1, R2);
    c.store(Size::Double, R9, shared::MOVED, R1);
    c.place(pass);
    c.set(R0, PASS);
    c.exit();

    c.place(leave);
    c.set(R1, state::LEFT);
    c.store(Size::Double, R9, shared::STATE, R1);
    c.set(R0, PASS);
    c.exit();
    c.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_one_of_this_files_licences() {
        let first = include_str!("programs.rs").lines().next().unwrap();
        let (_, choice) = first.split_once("SPDX-License-Identifier: ").unwrap();
        // As the kernel spells this one (linux/license.h).
        assert!(choice.split(" OR ").any(|one| one == "GPL-2.0-only"));
        assert_eq!(LICENCE, c"GPL v2");
    }
}

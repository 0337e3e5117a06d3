//! Two connections of a process, joined in the kernel: what must hold at every moment of their life. These tests need root and
//! a kernel that has what is needed; elsewhere they fail and say what is missing.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::spawn;
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, recv, send};
use support::{Four, accelerator, four, heard, pair_at, pattern, silent, told};

#[test]
fn bytes_pass_by_the_process_and_are_counted() {
    let (accelerator, mut four) = (accelerator(), four());
    let joined = four.join(&accelerator);
    four.client.write_all(b"question").unwrap();
    heard(&four.server, b"question");
    four.server.write_all(b"answer").unwrap();
    heard(&four.client, b"answer");
    assert!(silent(&four.near) && silent(&four.far));
    assert_eq!(joined.moved(), [8, 6]);
}

#[test]
fn ipv6_passes_as_well() {
    let accelerator = accelerator();
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let ((client, near), (far, server)) = (pair_at(v6), pair_at(v6));
    let mut four = Four {
        client,
        near,
        far,
        server,
    };
    let joined = four.join(&accelerator);
    four.client.write_all(b"six").unwrap();
    heard(&four.server, b"six");
    assert_eq!(joined.moved(), [3, 0]);
}

#[test]
fn nothing_overtakes_what_is_under_way() {
    let (accelerator, mut four) = (accelerator(), four());
    four.client.write_all(b"before ").unwrap();
    let joined = four.join(&accelerator);
    four.client.write_all(b"between ").unwrap();
    heard(&four.near, b"before between ");
    // Here, but not there yet.
    four.client.write_all(b"behind ").unwrap();
    assert_eq!(joined.moved(), [0, 0]);
    heard(&four.near, b"behind ");
    four.far.write_all(b"before between behi").unwrap();
    four.client.write_all(b"last ").unwrap();
    assert_eq!(joined.moved(), [0, 0], "two bytes are still here");
    heard(&four.near, b"last ");
    four.far.write_all(b"nd last ").unwrap();
    four.client.write_all(b"straight").unwrap();
    heard(&four.server, b"before between behind last straight");
    assert_eq!(joined.moved(), [8, 0]);
}

#[test]
fn what_was_sent_before_it_is_open_comes_to_the_process() {
    let (accelerator, mut four) = (accelerator(), four());
    let joined = four.prepare(&accelerator);
    four.client.write_all(b"early").unwrap();
    heard(&four.near, b"early");
    assert_eq!(joined.moved(), [0, 0]);
}

#[test]
fn a_reader_that_does_not_read_stops_its_writer() {
    const MOST: usize = 128 << 20;
    // The text is made before the relays start. It takes seconds, and a relay gives up after 20 without an event.
    let said = pattern(7, MOST + (64 << 10));
    let (accelerator, mut four) = (accelerator(), four());
    let mut joined = four.join(&accelerator);
    let relays = four.relay();
    let mut taken = 0;
    // A writer that is told to wait for a quarter of a second has nowhere to write to.
    let mut waited = 0;
    while waited < 50 {
        match four.client.0.write(&said[taken..][..64 << 10]) {
            Ok(n) => (taken, waited) = (taken + n, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
                waited += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(taken < MOST, "the writer is never stopped");
    }
    assert!(joined.moved()[0] > 0);
    four.client.shutdown(Shutdown::Write).unwrap();
    four.server.shutdown(Shutdown::Write).unwrap();
    let mut arrived = Vec::new();
    four.server.read_to_end(&mut arrived).unwrap();
    assert!(arrived == said[..taken], "all that was taken, in order");
    let [copied, _] = relays.map(|relay| relay.join().unwrap());
    assert_eq!(
        joined.end()[0] + copied,
        taken as u64,
        "each byte is counted once"
    );
}

#[test]
fn whole_streams_pass_in_both_directions_and_end() {
    let accelerator = accelerator();
    for round in 0..20u64 {
        let four = four();
        let mut joined = four.prepare(&accelerator);
        let relays = four.relay();
        let said = [pattern(round, 3 << 20), pattern(round + 1000, 3 << 20)];
        let piece = [900, 16 << 10, 64 << 10, 3 << 20][round as usize % 4];
        let ends = [(&four.client, &said[0]), (&four.server, &said[1])];
        let writers = ends.map(|(stream, said)| {
            let (mut stream, said) = (stream.try_clone().unwrap(), said.clone());
            spawn(move || {
                for part in said.chunks(piece) {
                    stream.write_all(part).unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
            })
        });
        // In the middle of it.
        joined.open();
        let readers = [(&four.server, 0), (&four.client, 1)].map(|(stream, from)| {
            let mut stream = stream.try_clone().unwrap();
            let reader = spawn(move || {
                let mut arrived = Vec::new();
                stream.read_to_end(&mut arrived).unwrap();
                arrived
            });
            (reader, from)
        });
        for (reader, from) in readers {
            assert!(reader.join().unwrap() == said[from], "round {round}");
        }
        let [(), ()] = writers.map(|writer| writer.join().unwrap());
        let copied = relays.map(|relay| relay.join().unwrap());
        let moved = joined.end();
        let total = [moved[0] + copied[0], moved[1] + copied[1]];
        assert_eq!(total, [3 << 20, 3 << 20], "each byte is counted once");
    }
}

#[test]
fn an_end_leaves_the_other_direction_open() {
    let (accelerator, mut four) = (accelerator(), four());
    let joined = four.join(&accelerator);
    let relays = four.relay();
    four.client.write_all(b"that is all").unwrap();
    four.client.shutdown(Shutdown::Write).unwrap();
    let mut question = Vec::new();
    four.server.read_to_end(&mut question).unwrap();
    assert_eq!(question, b"that is all", "and then the end");
    let answer = pattern(3, 300_000);
    let (mut server, said) = (four.server.try_clone().unwrap(), answer.clone());
    let writer = spawn(move || server.write_all(&said).unwrap());
    heard(&four.client, &answer);
    writer.join().unwrap();
    assert!(joined.moved()[1] > 0);
    assert!(four.client.write(b"more").is_err(), "after its own end");
    drop((four.server, four.client));
    let [_, _] = relays.map(|relay| relay.join().unwrap());
}

#[test]
fn after_a_reset_nothing_passes() {
    let (accelerator, mut four) = (accelerator(), four());
    let joined = four.join(&accelerator);
    socket2::SockRef::from(&four.near.0)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(four.near);
    let reset = four.client.read(&mut [0]).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    // The error has been told; the socket is still there.
    assert!(four.client.write(b"nevertheless").is_err());
    assert!(silent(&four.server));
    assert_eq!(joined.moved(), [0, 0]);
}

#[test]
fn what_is_sent_after_the_end_comes_to_the_process() {
    let (accelerator, mut four) = (accelerator(), four());
    let mut joined = four.join(&accelerator);
    four.client.write_all(b"straight").unwrap();
    assert_eq!(joined.end(), [8, 0]);
    four.client.write_all(b"by TCP").unwrap();
    heard(&four.near, b"by TCP");
    heard(&four.server, b"straight");
    assert!(silent(&four.server));
    assert_eq!(joined.end(), [8, 0], "as often as one asks");
}

#[test]
fn another_connection_at_the_same_place_is_not_meant() {
    let accelerator = accelerator();
    let mut old = four();
    // The application keeps its socket, and so what is kept with it.
    let joined = old.join(&accelerator);
    drop(joined);
    let new = four();
    let other = new.join(&accelerator);
    old.client.write_all(b"to whom?").unwrap();
    heard(&old.near, b"to whom?");
    assert!(silent(&new.server) && silent(&new.far));
    assert_eq!(other.moved(), [0, 0]);
    // Once more for the old one.
    let _again = old.join(&accelerator);
    old.client.write_all(b"to me").unwrap();
    heard(&old.server, b"to me");
}

#[test]
fn a_process_that_ends_leaves_plain_connections() {
    let mut four = four();
    {
        let accelerator = accelerator();
        let joined = four.join(&accelerator);
        four.client.write_all(b"straight").unwrap();
        // Nothing is taken back, as when a process is killed; but what the maps are held by.
        let (held, _) = (
            Arc::clone(&accelerator),
            std::mem::ManuallyDrop::new(joined),
        );
        drop(accelerator);
        // SAFETY: the two handles that are left are `held` and that within `joined`, which is never used again.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&held)) };
    }
    heard(&four.server, b"straight");
    // Maps are taken apart behind the last of their users.
    for _ in 0..1000 {
        four.client.write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_millis(5));
        if !silent(&four.near) {
            return;
        }
        heard(&four.server, b"x");
    }
    panic!("bytes still pass");
}

#[test]
fn urgent_data_stays_urgent() {
    let (accelerator, mut four) = (accelerator(), four());
    let _joined = four.join(&accelerator);
    four.client.write_all(b"calm").unwrap();
    assert_eq!(
        send(four.client.as_raw_fd(), b"!", MsgFlags::MSG_OOB),
        Ok(1)
    );
    four.client.write_all(b"again").unwrap();
    let mut urgent = [0];
    // It is not waited for by the kernel.
    let mut tries = 0;
    while recv(four.server.as_raw_fd(), &mut urgent, MsgFlags::MSG_OOB) != Ok(1) {
        tries += 1;
        assert!(tries < 2000, "no urgent byte");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(urgent, *b"!");
    heard(&four.server, b"calmagain");
}

#[test]
fn applications_may_send_files_and_receive_into_pipes() {
    let (accelerator, four) = (accelerator(), four());
    let joined = four.join(&accelerator);
    let relays = four.relay();
    let said = pattern(11, 1 << 20);
    let path = std::env::temp_dir().join(format!("lateen-bpf-splice-{}", std::process::id()));
    std::fs::write(&path, &said).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let client = four.client.try_clone().unwrap();
    let sender = spawn(move || {
        let mut left = 1 << 20;
        while left > 0 {
            let sent = client.patiently(PollFlags::POLLOUT, |client| {
                // SAFETY: both descriptors are open; without an offset the file's own counts.
                told(unsafe {
                    libc::sendfile(
                        client.as_raw_fd(),
                        file.as_raw_fd(),
                        std::ptr::null_mut(),
                        left,
                    )
                })
            });
            left -= sent.unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
    });
    let (mut out, into) = std::io::pipe().unwrap();
    let server = four.server.try_clone().unwrap();
    let receiver = spawn(move || {
        loop {
            let moved = server.patiently(PollFlags::POLLIN, |server| {
                // SAFETY: both descriptors are open, and neither has an offset.
                told(unsafe {
                    libc::splice(
                        server.as_raw_fd(),
                        std::ptr::null_mut(),
                        into.as_raw_fd(),
                        std::ptr::null_mut(),
                        64 << 10,
                        0,
                    )
                })
            });
            if moved.unwrap() == 0 {
                return;
            }
        }
    });
    let mut arrived = Vec::new();
    out.read_to_end(&mut arrived).unwrap();
    assert!(arrived == said);
    sender.join().unwrap();
    receiver.join().unwrap();
    assert!(joined.moved()[0] > 0);
    drop((four.client, four.server));
    let [_, _] = relays.map(|relay| relay.join().unwrap());
}

#[test]
fn a_limit_on_unsent_bytes_changes_no_count() {
    let (accelerator, mut four) = (accelerator(), four());
    let one: libc::c_int = 1;
    // SAFETY: the descriptor is open, and pointer and length describe `one`.
    let set = unsafe {
        libc::setsockopt(
            four.far.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const one).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
    // More room than the reader's window, so that bytes wait unsent.
    socket2::SockRef::from(&four.far.0)
        .set_send_buffer_size(1 << 20)
        .unwrap();
    let mut joined = four.join(&accelerator);
    let said = pattern(13, 16 << 10);
    let mut taken = 0;
    let told = loop {
        match four.client.0.write(&said) {
            Ok(n) => taken += n,
            Err(error) => break error,
        }
    };
    assert_eq!(told.kind(), ErrorKind::WouldBlock);
    let relays = four.relay();
    four.client.shutdown(Shutdown::Write).unwrap();
    four.server.shutdown(Shutdown::Write).unwrap();
    let mut arrived = Vec::new();
    four.server.read_to_end(&mut arrived).unwrap();
    assert_eq!(arrived.len(), taken);
    let [copied, _] = relays.map(|relay| relay.join().unwrap());
    let moved = joined.end()[0];
    assert!(moved > 0);
    assert_eq!(moved + copied, taken as u64, "each byte is counted once");
}

//! Which sockets of applications are joined: where they are found, which are left alone, and which are let go later. These tests
//! need root and a kernel that has what is needed; elsewhere they fail and say what is missing.

mod support;

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread::spawn;

use lateen_bpf_splice::{Declined, End};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use support::{Stream, accelerator, four, heard, pair, visit};

#[test]
fn the_socket_that_is_found_is_the_other_end() {
    let (accelerator, mine, strange) = (accelerator(), four(), four());
    let joined = accelerator
        .join(mine.near.as_fd(), mine.far.as_fd())
        .unwrap();
    let error = visit(&joined, End::Client, &strange.client).unwrap_err();
    assert!(matches!(error, Declined::Another), "{error}");
    let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let error = joined.visit(End::Client, nowhere, nowhere).run();
    assert!(matches!(error, Err(Declined::NoSocket)), "{error:?}");
    visit(&joined, End::Client, &mine.client).unwrap();
    drop(mine.server);
    drop(mine.far);
    let error = visit(&joined, End::Client, &mine.client).unwrap_err();
    assert!(matches!(error, Declined::Ended), "{error}");
}

#[test]
fn a_socket_that_waits_for_its_pages_is_left_alone() {
    let (accelerator, four) = (accelerator(), four());
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and pointer and length describe `on`.
    let set = unsafe {
        libc::setsockopt(
            four.client.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const on).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
    let joined = accelerator
        .join(four.near.as_fd(), four.far.as_fd())
        .unwrap();
    let error = visit(&joined, End::Client, &four.client).unwrap_err();
    assert!(matches!(error, Declined::Special), "{error}");
    visit(&joined, End::Server, &four.server).unwrap();
}

#[test]
fn an_application_that_waits_in_its_calls_is_left_alone() {
    let (accelerator, four) = (accelerator(), four());
    let joined = accelerator
        .join(four.near.as_fd(), four.far.as_fd())
        .unwrap();
    four.client.set_nonblocking(false).unwrap();
    let error = visit(&joined, End::Client, &four.client).unwrap_err();
    assert!(matches!(error, Declined::Blocking), "{error}");
    four.client.set_nonblocking(true).unwrap();
    visit(&joined, End::Client, &four.client).unwrap();
}

#[test]
fn an_application_that_begins_to_wait_in_its_calls_is_let_go() {
    let (accelerator, mut four) = (accelerator(), four());
    let mut joined = four.join(&accelerator);
    four.client.write_all(b"straight").unwrap();
    heard(&four.server, b"straight");
    assert!(!joined.left());
    four.client.set_nonblocking(false).unwrap();
    four.client.write_all(b"by TCP").unwrap();
    heard(&four.near, b"by TCP");
    assert!(joined.left());
    four.server.write_all(b"also").unwrap();
    heard(&four.far, b"also");
    assert_eq!(joined.end(), [8, 0]);
}

#[test]
fn encryption_in_the_kernel_that_comes_later_is_seen() {
    let (accelerator, mut four) = (accelerator(), four());
    let joined = four.join(&accelerator);
    four.client.write_all(b"hello").unwrap();
    heard(&four.server, b"hello");
    let answer = setsockopt(&four.client.0, sockopt::TcpUlp::default(), b"tls");
    four.client.write_all(b"secret").unwrap();
    let Err(error) = answer else {
        heard(&four.near, b"secret");
        assert_eq!(joined.moved(), [5, 0]);
        return;
    };
    // Asking loads the module where there is one, so by now the kernel lists all that it has. One without TLS refuses it to every
    // application, and what was refused changes nothing.
    let has = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap();
    assert_eq!(error, Errno::ENOENT, "the kernel has {has}");
    assert!(!has.split_whitespace().any(|name| name == "tls"), "{has}");
    heard(&four.server, b"secret");
    assert_eq!(joined.moved(), [11, 0]);
    // Not by a macro, whose output is kept from those who read of a test that passes.
    let _ = std::io::stderr().write_all(
        b"sockets.rs: this kernel has no TLS (CONFIG_TLS): only its refusal was tried, not that encryption is seen\n",
    );
}

/// Makes a pair in a namespace of its own, and leaves the calling thread there.
fn elsewhere() -> (Stream, Stream) {
    unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(up.unwrap().success());
    pair()
}

#[test]
fn sockets_are_found_in_the_namespace_of_the_visit() {
    let accelerator = accelerator();
    let home = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let pods = [(), ()].map(|()| {
        let made = spawn(|| {
            let pair = elsewhere();
            let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
            (pair, namespace)
        });
        made.join().unwrap()
    });
    let [((mut client, near), one), ((far, server), two)] = pods;
    let joined = accelerator.join(near.as_fd(), far.as_fd()).unwrap();
    let error = visit(&joined, End::Client, &client).unwrap_err();
    assert!(matches!(error, Declined::NoSocket), "{error}");
    for (end, application, namespace) in [(End::Client, &client, one), (End::Server, &server, two)]
    {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        visit(&joined, end, application).unwrap();
        setns(&home, CloneFlags::CLONE_NEWNET).unwrap();
    }
    joined.open();
    client.write_all(b"from pod to pod").unwrap();
    heard(&server, b"from pod to pod");
    assert_eq!(joined.moved(), [15, 0]);
}

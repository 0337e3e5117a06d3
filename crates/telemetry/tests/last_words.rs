//! What a process says last, before it ends in a panic. In a process of its own: a panic is heard by one hook for all.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use lateen_telemetry::log;

const CHILD: &str = "LATEEN_TEST_PANICS";

#[test]
fn a_panic_ends_the_process_after_the_lines_that_led_to_it() {
    if std::env::var_os(CHILD).is_some() {
        log::init(log::Format::Plain, "info").unwrap();
        log::flush_on_panic();
        // What follows other lines waits for longer than a panic takes.
        tracing::info!("the last but one");
        log::flush();
        tracing::error!("what led to it");
        // With `panic = "abort"` it would end there.
        let panicked = std::thread::spawn(|| panic!("the reason")).join();
        assert!(panicked.is_err());
        std::process::abort();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .arg("--nocapture")
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(6), "SIGABRT");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (lines, said) = (text(&child.stdout), text(&child.stderr));
    assert!(lines.contains("what led to it"), "{lines}");
    assert!(said.contains("the reason"), "{said}");
}

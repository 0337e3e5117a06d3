//! The binary from outside.

use std::process::{Command, Output};

fn proxy(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lateen-proxy"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn a_setting_that_cannot_be_used_ends_with_64_and_says_which() {
    let out = proxy(&["node"], &[("NODE_NAME", "n1"), ("PACKET_MARK", "many")]);
    assert_eq!(out.status.code(), Some(64));
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(
        text,
        "lateen-proxy: PACKET_MARK=\"many\": use a number from 1 to 4294967295\n"
    );
}

#[test]
fn a_log_level_that_cannot_be_used_ends_with_64() {
    let out = proxy(&["node"], &[("NODE_NAME", "n1"), ("RUST_LOG", "loud")]);
    assert_eq!(out.status.code(), Some(64));
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(
        text.contains("RUST_LOG") && text.contains("\"loud\" is not a log level"),
        "{text}"
    );
}

#[test]
fn the_roles_that_exist_are_listed_and_no_others() {
    let out = proxy(&["--help"], &[]);
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    for role in ["  node ", "  waypoint "] {
        assert!(text.contains(role), "{text}");
    }
    for missing in ["sidecar", "gateway"] {
        assert!(!text.contains(&format!("  {missing} ")), "{text}");
        assert_eq!(proxy(&[missing], &[]).status.code(), Some(2));
    }
}

//! Any text as the format of a waypoint's access log, and any bytes as the value of its operators: never a panic. JSON stays one object
//! on one line. No value ends the line of a text, or quotes that stand around it. The format is read by a module of the proxy,
//! crates/proxy/src/waypoint/access_log.rs and its children in crates/proxy/src/waypoint/access_log, which need nothing but
//! `lateen_config`, `lateen_http` and `lateen_telemetry`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proxy/src/waypoint"]
#[allow(dead_code, unused_imports)] // The proxy uses all of it.
mod waypoint {
    mod access_log;

    use std::time::{Duration, UNIX_EPOCH};

    use access_log::{LogFormat, Operator, Value, Values};
    use lateen_config::l7::{AccessLog, Encoding};

    /// The same value for every operator that takes a peer's text.
    struct Same<'a>(&'a [u8]);

    impl Values for Same<'_> {
        fn value<'a>(&'a self, operator: &'a Operator) -> Value<'a> {
            match operator {
                Operator::StartTime(format) => {
                    let time = UNIX_EPOCH + Duration::from_nanos(1_795_210_620_012_345_678);
                    Value::text(format.show(time))
                }
                Operator::Duration => Value::Number(7),
                Operator::RouteName => Value::Nothing,
                _ => Value::bytes(Some(self.0)),
            }
        }
    }

    /// Line ends, and quotes without a backslash before them.
    fn marks(line: &[u8]) -> (usize, usize) {
        let mut marks = (0, 0);
        let mut is_escaped = false;
        for byte in line {
            match byte {
                b'\n' => marks.0 += 1,
                b'"' if !is_escaped => marks.1 += 1,
                _ => {}
            }
            is_escaped = *byte == b'\\' && !is_escaped;
        }
        marks
    }

    pub fn check(text: &str, value: &[u8]) {
        for encoding in [Encoding::Text, Encoding::Json] {
            let setting = AccessLog { enabled: true, format: text.into(), encoding };
            let (format, _) = LogFormat::compile(&setting);
            let format = format.expect("it is enabled");
            let line = format.line(&Same(value));
            let plain = format.line(&Same(b"a"));
            match encoding {
                Encoding::Json => {
                    serde_json::from_slice::<serde_json::Value>(&line).expect("it is JSON");
                    assert_eq!(marks(&line).0, 1);
                }
                // A backslash of the format's own takes the meaning of what follows.
                Encoding::Text if text.contains('\\') => assert_eq!(marks(&line).0, marks(&plain).0),
                Encoding::Text => assert_eq!(marks(&line), marks(&plain), "{line:?}"),
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    // The value follows the first 0xff, which no text of UTF-8 has.
    let (format, value) = match data.iter().position(|byte| *byte == 0xff) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    if let Ok(format) = std::str::from_utf8(format) {
        waypoint::check(format, value);
    }
});

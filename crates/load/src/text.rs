//! Durations and request fields as users write them.

use lateen_http::FieldName;
use std::time::Duration;

/// Reads `10s`, `250ms`, `1.5h`, `1m30s`: what Go's and Kubernetes' tools accept. At most a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write for example 10s, 250ms or 1m30s");
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let (number, unit_and_more) = rest.split_at(digits);
        let unit_end = unit_and_more
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit_and_more.len());
        let (unit, more) = unit_and_more.split_at(unit_end);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        seconds += number.parse::<f64>().map_err(|_| bad())? * scale;
        rest = more;
    }
    if seconds > 366.0 * 86400.0 {
        return Err(format!("{text:?} is longer than a year"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// Reads `Name: value` into a request field.
pub fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} has no colon; write NAME:VALUE"))?;
    let value = value.trim();
    if FieldName::new(name).is_none() {
        return Err(format!("{name:?} is not a field name"));
    }
    if value
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
    {
        return Err(format!("the value of {name} has control characters"));
    }
    for own in ["connection", "content-length", "transfer-encoding"] {
        if name.eq_ignore_ascii_case(own) {
            return Err(format!(
                "{name} is set by lateen-load itself; use --no-keepalive for connection: close"
            ));
        }
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A duration as people read it: three digits and the unit that suits it.
pub fn readable(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 1.0 {
        format!("{} s", (seconds * 100.0).round() / 100.0)
    } else if seconds >= 1e-3 {
        format!("{} ms", (seconds * 1e5).round() / 100.0)
    } else {
        format!("{} µs", (seconds * 1e7).round() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read() {
        let table = [
            ("10s", 10_000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("0.5s", 500),
        ];
        for (text, milliseconds) in table {
            assert_eq!(
                duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        assert_eq!(duration("150us"), Ok(Duration::from_micros(150)));
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in [
            "", "10", "s", "-1s", "1 s", "1.2.3s", "1d", "9999999h", "1s2", ".",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_read_and_dangerous_ones_refused() {
        assert_eq!(
            header("X-A:  b c "),
            Ok(("X-A".to_owned(), "b c".to_owned()))
        );
        assert_eq!(
            header("Host: other"),
            Ok(("Host".to_owned(), "other".to_owned()))
        );
        for text in [
            "no colon",
            ": v",
            "a b: c",
            "a: b\r\nc: d",
            "Connection: close",
            "Content-Length: 4",
        ] {
            assert!(header(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "\\PC{0,30}|[0-9.]{0,9}(ns|us|ms|s|m|h)?[0-9.]{0,3}s?") {
            let _ = duration(&text);
            let _ = header(&text);
        }

        #[test]
        fn whole_milliseconds_come_back(milliseconds in 0u64..100_000_000) {
            prop_assert_eq!(duration(&format!("{milliseconds}ms")), Ok(Duration::from_millis(milliseconds)));
        }
    }
}

//! Date of answers that come without one (RFC 9110 §6.6.1), written once a second.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use lateen_http::FieldValue;

use super::access_log::TimeFormat;

/// IMF-fixdate (RFC 9110 §5.6.7).
const FORMAT: &str = "%a, %d %b %Y %H:%M:%S GMT";

thread_local! {
    /// The date that the thread's worker wrote last, and its second.
    static LAST: RefCell<Option<(u64, FieldValue)>> = const { RefCell::new(None) };
}

/// The date now. The kernel maps its clock into the process, so no system call reads it.
pub(super) fn now() -> FieldValue {
    at(SystemTime::now())
}

fn at(time: SystemTime) -> FieldValue {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = since.as_secs();
    LAST.with_borrow_mut(|last| match last {
        Some((of, date)) if *of == second => date.clone(),
        last => {
            let text = TimeFormat::parse(Some(FORMAT)).show(time);
            let date = FieldValue::new(text).expect("the format has visible characters alone");
            *last = Some((second, date.clone()));
            date
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// RFC 9110 §5.6.7.
    const EXAMPLE: u64 = 784_111_777;

    #[test]
    fn date_is_that_of_the_rfc() {
        let date = at(UNIX_EPOCH + Duration::from_secs(EXAMPLE));
        assert_eq!(date.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn date_is_written_once_a_second() {
        let after = |millis| at(UNIX_EPOCH + Duration::from_millis(EXAMPLE * 1000 + millis));
        let (first, same, next) = (after(0), after(999), after(1000));
        assert_eq!(first.as_bytes().as_ptr(), same.as_bytes().as_ptr());
        assert_eq!(next.as_bytes(), b"Sun, 06 Nov 1994 08:49:38 GMT");
    }
}

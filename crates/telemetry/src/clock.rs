//! Timestamps of logs: UTC, microseconds, as ztunnel writes them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time that is shown as `2026-11-20T21:37:00.123456Z`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamp(Duration);

impl Timestamp {
    pub(crate) fn now() -> Self {
        Self::from(SystemTime::now())
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        // A clock set before 1970 is shown as 1970.
        Self(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl Timestamp {
    /// Adds its text. Years behind 9999 lose their first digits.
    pub(crate) fn write(self, text: &mut Vec<u8>) {
        let seconds = self.0.as_secs();
        let (year, month, day) = civil(seconds / 86_400);
        let of_day = seconds % 86_400;
        let micros = u64::from(self.0.subsec_micros());
        let mut shown = *b"0000-00-00T00:00:00.000000Z";
        let mut two = |place: usize, number: u64| {
            let at = usize::try_from(number % 100).unwrap_or_default() * 2;
            shown[place..place + 2].copy_from_slice(&PAIRS[at..at + 2]);
        };
        two(0, year / 100);
        two(2, year);
        two(5, month);
        two(8, day);
        two(11, of_day / 3600);
        two(14, of_day / 60 % 60);
        two(17, of_day % 60);
        two(20, micros / 10_000);
        two(22, micros / 100);
        two(24, micros);
        text.extend_from_slice(&shown);
    }
}

/// The numbers below 100 with two digits each.
const PAIRS: &[u8; 200] = b"\
    0001020304050607080910111213141516171819\
    2021222324252627282930313233343536373839\
    4041424344454647484950515253545556575859\
    6061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity("2026-11-20T21:37:00.123456Z".len());
        self.write(&mut text);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// A point in time in seconds: `2026-11-20T21:37:00Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let mut text = Timestamp::from(time).to_string();
    text.truncate("2026-11-20T21:37:00".len());
    text.push('Z');
    text
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar. Years are counted from
/// March, so that the leap day is a year's last.
pub fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // 0000-03-01 is 719,468 days before 1970-01-01.
    let days = days + 719_468;
    let era = days / DAYS_OF_400_YEARS;
    let day_of_era = days % DAYS_OF_400_YEARS;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(seconds: u64, micros: u32) -> String {
        Timestamp(Duration::new(seconds, micros * 1000)).to_string()
    }

    #[test]
    fn shows_dates_around_leap_days_and_centuries() {
        assert_eq!(shown(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(shown(951_782_399, 999_999), "2000-02-28T23:59:59.999999Z");
        assert_eq!(shown(951_782_400, 1), "2000-02-29T00:00:00.000001Z");
        assert_eq!(shown(951_868_800, 0), "2000-03-01T00:00:00.000000Z");
        assert_eq!(shown(1_795_210_620, 123_456), "2026-11-20T21:37:00.123456Z");
        assert_eq!(shown(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z");
    }

    #[test]
    fn days_follow_each_other() {
        let mut last = civil(0);
        for day in 1..200_000 {
            let next = civil(day);
            let follows = next == (last.0, last.1, last.2 + 1)
                || next == (last.0, last.1 + 1, 1)
                || next == (last.0 + 1, 1, 1);
            assert!(follows, "{last:?} is followed by {next:?}");
            last = next;
        }
    }
}

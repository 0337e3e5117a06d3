//! What a peer may cost us: an allowance for each kind of frame that costs the receiver more than the sender.

use std::fmt;

use crate::moment::Moment;

/// Which abuse of HTTP/2 ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Abuse {
    /// Requests opened and reset before they were answered (CVE-2023-44487).
    RapidReset,
    /// Faults provoked so that we reset streams ourselves (CVE-2025-8671, "MadeYouReset").
    ProvokedResets,
    /// More requests than SETTINGS_MAX_CONCURRENT_STREAMS allows, again and again.
    TooManyStreams,
    /// SETTINGS that come too often or hold too many entries (CVE-2019-9515).
    SettingsFlood,
    /// PINGs (CVE-2019-9512).
    PingFlood,
    /// DATA that carries nothing (CVE-2019-9518).
    EmptyData,
    /// WINDOW_UPDATEs out of proportion to what we sent, or of a few bytes each while more waits (CVE-2019-9511).
    WindowUpdateFlood,
    /// PRIORITY, GOAWAY, unknown frames and frames for streams that are over (CVE-2019-9513).
    UselessFrames,
    /// A header block in too many or too large pieces (CVE-2024-27316, "CONTINUATION flood"), or informational answers
    /// (status 1xx) out of proportion to our requests.
    HeaderFlood,
    /// It asks and does not read the answers (CVE-2019-9517).
    UnreadReplies,
}

/// How many of the kinds of [`Abuse`] have an allowance that refills.
const METERED: usize = 9;

impl Abuse {
    /// Every one of them.
    pub const ALL: [Abuse; 10] = [
        Abuse::RapidReset,
        Abuse::ProvokedResets,
        Abuse::TooManyStreams,
        Abuse::SettingsFlood,
        Abuse::PingFlood,
        Abuse::EmptyData,
        Abuse::WindowUpdateFlood,
        Abuse::UselessFrames,
        Abuse::HeaderFlood,
        Abuse::UnreadReplies,
    ];

    /// The word for it in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Abuse::RapidReset => "rapid_reset",
            Abuse::ProvokedResets => "provoked_resets",
            Abuse::TooManyStreams => "too_many_streams",
            Abuse::SettingsFlood => "settings_flood",
            Abuse::PingFlood => "ping_flood",
            Abuse::EmptyData => "empty_data",
            Abuse::WindowUpdateFlood => "window_update_flood",
            Abuse::UselessFrames => "useless_frames",
            Abuse::HeaderFlood => "header_flood",
            Abuse::UnreadReplies => "unread_replies",
        }
    }

    /// At once, and a second in the long run.
    const fn allowance(self) -> (u32, u32) {
        match self {
            // Clients that give up while we dial: a pod's worth of them at once is an accident, and then they have gone.
            Abuse::RapidReset => (1_000, 200),
            // Honest peers break no stream's rules.
            Abuse::ProvokedResets => (200, 20),
            // A peer that has not read our SETTINGS yet may be wrong once, by what it assumes.
            Abuse::TooManyStreams => (1_000, 100),
            // Once, and again when an operator changes something.
            Abuse::SettingsFlood => (100, 5),
            // One every few seconds, or one a round trip while the path is measured.
            Abuse::PingFlood => (1_000, 200),
            Abuse::EmptyData => (1_000, 100),
            // Beyond those that what we sent explains.
            Abuse::WindowUpdateFlood => (2_000, 100),
            // Beyond those that streams and our own resets explain.
            Abuse::UselessFrames => (4_000, 200),
            Abuse::HeaderFlood => (1_000, 100),
            Abuse::UnreadReplies => (0, 0),
        }
    }
}

impl fmt::Display for Abuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Abuse::RapidReset => "it resets requests before they are answered",
            Abuse::ProvokedResets => "it provokes resets of its streams",
            Abuse::TooManyStreams => "it keeps asking for more streams than it may have",
            Abuse::SettingsFlood => "it sends too many settings",
            Abuse::PingFlood => "it sends too many pings",
            Abuse::EmptyData => "it sends data frames without data",
            Abuse::WindowUpdateFlood => "it sends more window updates than what it got explains",
            Abuse::UselessFrames => "it sends frames that serve nothing",
            Abuse::HeaderFlood => "its headers come in too many or too large pieces",
            Abuse::UnreadReplies => "it does not read what it asks for",
        })
    }
}

/// What is left of one allowance.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u32,
    /// In milliseconds, see [`Moment::millis`].
    filled: u32,
}

/// What is left of a peer's allowances.
#[derive(Debug)]
pub(crate) struct Meters([Bucket; METERED]);

impl Meters {
    pub(crate) fn new(now: Moment) -> Self {
        let filled = now.millis();
        Meters(std::array::from_fn(|n| Bucket {
            left: Abuse::ALL[n].allowance().0,
            filled,
        }))
    }

    /// Takes one; `false` if there is none.
    pub(crate) fn take(&mut self, of: Abuse, now: Moment) -> bool {
        let (burst, per_second) = of.allowance();
        let Some(bucket) = self.0.get_mut(of as usize) else {
            return false;
        };
        if bucket.left == 0 {
            let elapsed = u64::from(now.millis().wrapping_sub(bucket.filled)).min(3_600_000);
            let more = elapsed * u64::from(per_second) / 1000;
            if more == 0 {
                return false;
            }
            bucket.left = more.min(u64::from(burst)) as u32;
            bucket.filled = now.millis();
        }
        bucket.left -= 1;
        true
    }

    /// Adds what our own doing explains, up to four times the usual.
    pub(crate) fn earn(&mut self, of: Abuse, more: u32) {
        let (burst, _) = of.allowance();
        if let Some(bucket) = self.0.get_mut(of as usize) {
            bucket.left = bucket.left.saturating_add(more).min(burst * 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_ends_and_comes_back_with_time() {
        let mut meters = Meters::new(Moment::default());
        for abuse in Abuse::ALL.into_iter().take(METERED) {
            let (burst, per_second) = abuse.allowance();
            let start = Moment::default();
            assert!((0..burst).all(|_| meters.take(abuse, start)), "{abuse:?}");
            assert!(!meters.take(abuse, start), "{abuse:?}");
            let later = Moment::from_micros(1_000_000);
            assert!((0..per_second).all(|_| meters.take(abuse, later)));
            assert!(!meters.take(abuse, later), "{abuse:?}");
            meters.earn(abuse, 1);
            assert!(meters.take(abuse, later));
        }
    }

    #[test]
    fn what_has_no_allowance_is_never_granted() {
        let mut meters = Meters::new(Moment::default());
        assert!(!meters.take(Abuse::UnreadReplies, Moment::from_micros(u64::MAX)));
    }
}

//! Abuse allowances: one for each kind of frame that costs the receiver more than the sender.

use std::fmt;

use crate::timestamp::Timestamp;

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
    /// PINGs out of proportion to the DATA that we sent (CVE-2019-9512).
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
}

/// How often a peer may do something: so often at once, and so often a second in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// At once.
    pub burst: u32,
    /// A second.
    pub per_second: u32,
}

/// An [`Allowance`] for each kind of [`Abuse`] but [`Abuse::UnreadReplies`], which is a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowances([Allowance; METERED]);

impl Allowances {
    /// What the tunnels of a mesh need.
    pub const fn tunnel() -> Self {
        const fn of(burst: u32, per_second: u32) -> Allowance {
            Allowance { burst, per_second }
        }
        Allowances([
            // Clients that give up while we dial: a pod's worth of them at once is an accident, and then they have gone.
            of(1_000, 200),
            // Honest peers break no stream's rules.
            of(200, 20),
            // A peer that has not read our SETTINGS yet may be wrong once, by what it assumes.
            of(1_000, 100),
            // SETTINGS come once, and again when an operator changes something.
            of(100, 5),
            // PINGs beyond one for each DATA frame that we sent: one every few seconds.
            of(1_000, 200),
            // Empty DATA beyond a frame for each stream, and for each that is not empty.
            of(1_000, 100),
            // WINDOW_UPDATEs beyond two for each stream, and those that what we sent explains.
            of(2_000, 100),
            // Useless frames beyond those that streams and our own resets explain.
            of(4_000, 200),
            // Informational answers beyond two for each request.
            of(1_000, 100),
        ])
    }

    /// The allowance of one kind; none for [`Abuse::UnreadReplies`].
    pub fn of(&self, abuse: Abuse) -> Option<Allowance> {
        self.0.get(abuse as usize).copied()
    }

    /// The same with another allowance for one kind.
    #[must_use]
    pub fn with(mut self, abuse: Abuse, allowance: Allowance) -> Self {
        if let Some(place) = self.0.get_mut(abuse as usize) {
            *place = allowance;
        }
        self
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
    /// In milliseconds, see [`Timestamp::millis`].
    filled: u32,
}

/// What is left of a peer's allowances.
#[derive(Debug)]
pub(crate) struct Meters([Bucket; METERED]);

impl Meters {
    pub(crate) fn new(allowances: &Allowances, now: Timestamp) -> Self {
        let filled = now.millis();
        Meters(allowances.0.map(|allowance| Bucket {
            left: allowance.burst,
            filled,
        }))
    }

    /// Takes one; `false` if there is none.
    pub(crate) fn take(&mut self, allowances: &Allowances, of: Abuse, now: Timestamp) -> bool {
        let Some(bucket) = self.0.get_mut(of as usize) else {
            return false;
        };
        if bucket.left == 0 {
            let Allowance { burst, per_second } = allowances.0[of as usize];
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
    #[inline]
    pub(crate) fn earn(&mut self, allowances: &Allowances, of: Abuse, more: u32) {
        if let Some(bucket) = self.0.get_mut(of as usize) {
            let most = allowances.0[of as usize].burst.saturating_mul(4);
            bucket.left = bucket.left.saturating_add(more).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_ends_and_comes_back_with_time() {
        let usual = Allowances::tunnel();
        let other = Allowance {
            burst: 3,
            per_second: 2,
        };
        let changed = Abuse::ALL
            .into_iter()
            .fold(usual.clone(), |all, abuse| all.with(abuse, other));
        for (allowances, abuse) in [&usual, &changed]
            .into_iter()
            .flat_map(|all| Abuse::ALL.map(|abuse| (all, abuse)))
        {
            let Some(Allowance { burst, per_second }) = allowances.of(abuse) else {
                assert_eq!(abuse, Abuse::UnreadReplies);
                continue;
            };
            let start = Timestamp::default();
            let mut meters = Meters::new(allowances, start);
            let mut take = |now| meters.take(allowances, abuse, now);
            assert!((0..burst).all(|_| take(start)), "{abuse:?}");
            assert!(!take(start), "{abuse:?}");
            let later = Timestamp::from_micros(1_000_000);
            assert!((0..per_second).all(|_| take(later)));
            assert!(!take(later), "{abuse:?}");
            meters.earn(allowances, abuse, 1);
            assert!(meters.take(allowances, abuse, later));
            // No more than four times the usual is saved up.
            meters.earn(allowances, abuse, u32::MAX);
            assert!((0..burst * 4).all(|_| meters.take(allowances, abuse, later)));
            assert!(!meters.take(allowances, abuse, later));
        }
    }

    #[test]
    fn what_has_no_allowance_is_never_granted() {
        let allowances = Allowances::tunnel();
        let mut meters = Meters::new(&allowances, Timestamp::default());
        let never = Timestamp::from_micros(u64::MAX);
        assert!(!meters.take(&allowances, Abuse::UnreadReplies, never));
    }
}

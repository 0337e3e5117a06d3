//! Repeats of requests: MeshConfig's `defaultHttpRetryPolicy`, as far as docs/design/which-requests-are-repeated.md allows it.
//!
//! A request that nobody has processed is repeated, whatever its method. One that was lost may have been processed: it is
//! repeated once, if its method is idempotent and the policy says so. An answer of an endpoint is final.

use std::time::Duration;

use lateen_config::l7::Retry;

/// Connections that a request is given to where the mesh says nothing: Istio's two repeats.
const ATTEMPTS: u32 = 3;

/// Istio's conditions where a policy names none.
const DEFAULT: [&str; 4] = [
    "connect-failure",
    "refused-stream",
    "unavailable",
    "cancelled",
];

/// The repeats that are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetryPolicy {
    /// Connections that a request is given to, at most.
    pub(super) attempts: u32,
    /// A lost request of an idempotent method is repeated once.
    pub(super) repeats_lost: bool,
    /// The time that an endpoint has to begin its answer.
    pub(super) per_try_timeout: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: ATTEMPTS,
            repeats_lost: false,
            per_try_timeout: None,
        }
    }
}

impl RetryPolicy {
    /// The policy of the mesh, and the conditions of it that are not followed.
    pub(super) fn of(setting: Option<&Retry>) -> (Self, Vec<String>) {
        let Some(setting) = setting else {
            return (Self::default(), Vec::new());
        };
        let mut policy = Self {
            attempts: setting.attempts.saturating_add(1),
            repeats_lost: false,
            per_try_timeout: setting.per_try_timeout,
        };
        let mut ignored = Vec::new();
        for condition in &setting.on {
            match &**condition {
                // Nobody has processed such a request.
                "connect-failure" | "refused-stream" | "reset-before-request" => {}
                "reset" => policy.repeats_lost = true,
                // A reset counts as one of them with Envoy. The answers do so as well, and are final here.
                "5xx" | "gateway-error" => {
                    policy.repeats_lost = true;
                    ignored.push(condition.to_string());
                }
                _ => ignored.push(condition.to_string()),
            }
        }
        // Nobody wrote these: the control plane fills them in.
        if setting.on.iter().map(|condition| &**condition).eq(DEFAULT) {
            ignored.clear();
        }
        (policy, ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(attempts: u32, on: &[&str]) -> (RetryPolicy, Vec<String>) {
        RetryPolicy::of(Some(&Retry {
            attempts,
            on: on.iter().map(|condition| (*condition).into()).collect(),
            per_try_timeout: None,
        }))
    }

    #[test]
    fn without_a_policy_there_are_istios_two_repeats() {
        let (policy, ignored) = RetryPolicy::of(None);
        assert_eq!((policy.attempts, policy.repeats_lost), (3, false));
        assert!(ignored.is_empty());
    }

    #[test]
    fn attempts_are_repeats_and_zero_allows_none() {
        assert_eq!(policy(5, &DEFAULT).0.attempts, 6);
        assert_eq!(policy(0, &DEFAULT).0.attempts, 1);
        assert_eq!(policy(u32::MAX, &DEFAULT).0.attempts, u32::MAX);
    }

    #[test]
    fn conditions_about_answers_are_named_and_not_followed() {
        for (on, repeats_lost, ignored) in [
            (&DEFAULT[..], false, &[][..]),
            (&["connect-failure", "refused-stream"], false, &[]),
            (&["reset", "reset-before-request"], true, &[]),
            (&["5xx"], true, &["5xx"]),
            (
                &["503", "retriable-4xx", "unavailable"],
                false,
                &["503", "retriable-4xx", "unavailable"],
            ),
        ] {
            let (policy, named) = policy(2, on);
            assert_eq!(
                (policy.repeats_lost, &named[..]),
                (
                    repeats_lost,
                    &ignored.iter().map(ToString::to_string).collect::<Vec<_>>()[..]
                ),
                "{on:?}"
            );
        }
    }
}

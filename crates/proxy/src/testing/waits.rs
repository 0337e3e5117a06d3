//! Waits that end with a panic when they last too long.

use std::time::Duration;

/// Far longer than anything takes when it works.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits for a condition that comes true on another thread.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "did not happen: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a future that must not take long.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen: {what}"),
    }
}

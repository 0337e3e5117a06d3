//! Pages for operators, which are served as soon as their places are free.

use std::io;
use std::time::Duration;

use lateen_admin::Listening;
use tokio::time::sleep;

use crate::settings;

/// Between two attempts to take a page's port.
const PAGE_LOOK: Duration = Duration::from_millis(100);

/// Serves a page from the moment that its place is free.
pub(super) async fn page<L: Listening, F>(bind: impl Fn() -> F, pages: impl lateen_admin::Pages)
where
    F: Future<Output = io::Result<L>>,
{
    let mut said = false;
    loop {
        match bind().await {
            Ok(listener) => return lateen_admin::serve(listener, pages).await,
            Err(error) if !said => {
                said = true;
                tracing::info!(%error, "a page for operators is served as soon as its place is free");
            }
            Err(_) => {}
        }
        sleep(PAGE_LOOK).await;
    }
}

/// The time that connections have to finish, as somebody who ends the process asks for it.
///
/// # Errors
/// The text is no duration.
pub(super) fn deadline(asked: Option<String>, default: Duration) -> Result<Duration, String> {
    match asked {
        Some(text) => settings::parse_duration(&text).ok_or_else(|| {
            format!("deadline={text}: use numbers with units, such as 500ms, 90s or 2h")
        }),
        None => Ok(default),
    }
}

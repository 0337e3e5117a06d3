//! Asking for single resources from where they are needed: a handle for many threads, answered by the one client.

use std::time::Duration;

use lateen_config::Want;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How long somebody waits for an answer; longer than a healthy control plane takes by far, shorter than clients wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Questions on their way to the client, over all threads.
const QUEUE: usize = 1024;

/// The way to ask the control plane for what a connection needs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lookups(mpsc::Sender<Ask>);

/// The client's end of [`Lookups`]; see [`crate::Client::on_demand`].
#[derive(Debug)]
pub struct Asks(pub(crate) mpsc::Receiver<Ask>);

#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) want: Want,
    pub(crate) answer: oneshot::Sender<Result<(), LookupError>>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// None came in time.
    #[error(
        "the control plane did not say within {PATIENCE:?} what {0} is; see whether it is connected"
    )]
    Late(Want),
    /// Too many names wait for their answers.
    #[error(
        "too many names wait for the control plane's answer to ask for {0}; see why it does not answer, or what dials \
         so many addresses"
    )]
    TooMany(Want),
}

/// A handle and the end that a client takes. What is asked before the client has a stream waits for it.
pub fn lookups() -> (Lookups, Asks) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Lookups(sender), Asks(receiver))
}

impl Asks {
    /// The next question, for whoever answers in a client's place: what is wanted, and where to say that the answer is
    /// in force. `None` once nobody can ask any more.
    pub async fn next(&mut self) -> Option<(Want, oneshot::Sender<Result<(), LookupError>>)> {
        let Ask { want, answer } = self.0.recv().await?;
        Some((want, answer))
    }
}

impl Lookups {
    /// Asks for a name, once however many ask, and returns when the answer is in force on every worker, be it that there
    /// is nothing: then route again by the new snapshot. It may be called from any runtime, and dropped at any time.
    ///
    /// # Errors
    /// See [`LookupError`]. Without an answer nothing may be concluded about the name.
    pub async fn ask(&self, want: &Want) -> Result<(), LookupError> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            want: want.clone(),
            answer,
        };
        if let Err(error) = self.0.try_send(ask) {
            return Err(match error {
                mpsc::error::TrySendError::Full(_) => LookupError::TooMany(want.clone()),
                mpsc::error::TrySendError::Closed(_) => LookupError::Late(want.clone()),
            });
        }
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(LookupError::Late(want.clone())),
        }
    }
}

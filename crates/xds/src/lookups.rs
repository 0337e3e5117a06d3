//! Handle for on-demand resources: many threads ask through it, and the one client answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lateen_config::Want;
use lateen_types::WorkloadUid;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How long somebody waits for an answer; longer than a healthy control plane takes by far, shorter than clients wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Questions on their way to the client, over all threads.
const QUEUE: usize = 4096;

/// Questions of one pod that are on their way or stand for a name without an answer. No pod can use up what all share.
pub(crate) const MOST_OF_ONE: usize = 256;

/// The way to ask the control plane for what a connection needs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lookups {
    asks: mpsc::Sender<Ask>,
    askers: Askers,
}

/// How many questions each pod has open.
type Askers = Arc<Mutex<HashMap<WorkloadUid, usize>>>;

/// One question's place in its pod's share; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    askers: Askers,
    asker: WorkloadUid,
}

impl Place {
    fn take(askers: &Askers, asker: &WorkloadUid) -> Option<Self> {
        let mut open = askers.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(asker) {
            Some(count) if *count >= MOST_OF_ONE => return None,
            Some(count) => *count += 1,
            None => {
                open.insert(asker.clone(), 1);
            }
        }
        Some(Self {
            askers: Arc::clone(askers),
            asker: asker.clone(),
        })
    }
}

#[cfg(test)]
impl Place {
    /// A place in a share that nobody else has a part in.
    pub(crate) fn of(asker: &str) -> Self {
        Self::take(&Askers::default(), &asker.into()).expect("an empty share has room")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.asker) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.asker);
            }
        }
    }
}

/// The client's end of [`Lookups`]; see [`crate::Client::on_demand`].
#[derive(Debug)]
pub struct Asks(pub(crate) mpsc::Receiver<Ask>);

#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) want: Want,
    pub(crate) answer: oneshot::Sender<Result<(), LookupError>>,
    /// Held until the name that it stands for has its answer; by whoever asked for it first.
    pub(crate) place: Place,
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
    /// The pod has too many questions open; others may still ask.
    #[error(
        "pod {0} has {MOST_OF_ONE} look-ups without an answer, its share, and may not ask for {1}; see why the control \
         plane does not answer, or what in the pod dials so many addresses"
    )]
    Share(WorkloadUid, Want),
}

/// A handle and the end that a client takes. What is asked before the client has a stream waits for it.
pub fn lookups() -> (Lookups, Asks) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let lookups = Lookups {
        asks: sender,
        askers: Askers::default(),
    };
    (lookups, Asks(receiver))
}

impl Asks {
    /// The next question, for whoever answers in a client's place: what is wanted, and where to say that the answer is
    /// in force. `None` once nobody can ask any more.
    pub async fn next(&mut self) -> Option<(Want, oneshot::Sender<Result<(), LookupError>>)> {
        let Ask { want, answer, .. } = self.0.recv().await?;
        Some((want, answer))
    }
}

impl Lookups {
    /// Asks for a name on behalf of a pod, once however many ask, and returns when the answer is in force on every worker, be it that there
    /// is nothing: then decide again by the new snapshot. It may be called from any runtime, and dropped at any time.
    ///
    /// # Errors
    /// See [`LookupError`]. Without an answer nothing may be concluded about the name.
    pub async fn ask(&self, asker: &WorkloadUid, want: &Want) -> Result<(), LookupError> {
        let place = Place::take(&self.askers, asker)
            .ok_or_else(|| LookupError::Share(asker.clone(), want.clone()))?;
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            want: want.clone(),
            answer,
            place,
        };
        if let Err(error) = self.asks.try_send(ask) {
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn want(at: usize) -> Want {
        let [.., high, low] = at.to_be_bytes();
        Want::address(&"".into(), IpAddr::from([10, 0, high, low]))
    }

    #[tokio::test]
    async fn a_pod_that_asks_too_much_leaves_others_their_share() {
        let (lookups, mut asks) = lookups();
        let (noisy, quiet): (WorkloadUid, WorkloadUid) = ("noisy".into(), "quiet".into());
        let mut open = tokio::task::JoinSet::new();
        for at in 0..MOST_OF_ONE {
            let (lookups, noisy) = (lookups.clone(), noisy.clone());
            open.spawn(async move { lookups.ask(&noisy, &want(at)).await });
        }
        while lookups.asks.max_capacity() - lookups.asks.capacity() < MOST_OF_ONE {
            tokio::task::yield_now().await;
        }
        let refused = lookups.ask(&noisy, &want(MOST_OF_ONE)).await;
        assert_eq!(
            refused,
            Err(LookupError::Share(noisy.clone(), want(MOST_OF_ONE)))
        );
        let other = tokio::spawn({
            let (lookups, quiet) = (lookups.clone(), quiet.clone());
            async move { lookups.ask(&quiet, &want(0)).await }
        });
        for _ in 0..=MOST_OF_ONE {
            let (_, answer) = asks.next().await.expect("a question");
            answer.send(Ok(())).expect("somebody waits");
        }
        assert_eq!(other.await.unwrap(), Ok(()));
        assert_eq!(open.join_all().await, vec![Ok(()); MOST_OF_ONE]);
        assert!(
            lookups.askers.lock().unwrap().is_empty(),
            "places are given back"
        );
    }
}

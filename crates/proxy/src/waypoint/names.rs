//! Addresses of endpoints that are known by hostname, from the system's resolver, kept for a few seconds. All requests that wait for a
//! name share one question.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, Shared};
use lateen_types::Strng;
use tokio::time::Instant;

/// How long addresses are used before the resolver is asked again: Envoy's default where a record has no TTL.
const KEPT: Duration = Duration::from_secs(5);

/// How long a failure is. Without it, clients would have the resolver asked as often as they send requests.
const FAILED: Duration = Duration::from_secs(1);

/// How long a question without an answer is joined. Nobody may have looked at its answer for a while.
const JOINED: Duration = Duration::from_secs(30);

/// Names that are kept; with more, those that are out of date go.
const MOST: usize = 1024;

/// The addresses of a name, or why there are none.
type Answer = Result<Rc<[IpAddr]>, Rc<io::Error>>;

/// A question to the resolver, for all that wait for its answer.
type Question = Shared<LocalBoxFuture<'static, Answer>>;

/// The names that were asked for on this worker, each with its question, and until when that is used.
#[derive(Debug, Default)]
pub(super) struct Names(RefCell<HashMap<Strng, (Question, Instant)>>);

impl Names {
    /// The addresses of a hostname.
    ///
    /// # Errors
    /// The resolver has no answer.
    pub(super) async fn resolve(&self, hostname: &Strng) -> io::Result<Rc<[IpAddr]>> {
        let name = Strng::clone(hostname);
        self.resolve_by(hostname, async move {
            let found = tokio::net::lookup_host((&*name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
        .await
    }

    /// The same; `ask` asks the resolver.
    async fn resolve_by(
        &self,
        hostname: &Strng,
        ask: impl Future<Output = io::Result<Rc<[IpAddr]>>> + 'static,
    ) -> io::Result<Rc<[IpAddr]>> {
        let question = self.question(hostname, ask);
        let is_first = question.peek().is_none();
        let answer = question.clone().await;
        if is_first {
            self.answered(hostname, &question, answer.is_ok());
        }
        answer.map_err(|error| io::Error::new(error.kind(), error.to_string()))
    }

    /// The question that is under way or answered, or a new one.
    fn question(
        &self,
        hostname: &Strng,
        ask: impl Future<Output = io::Result<Rc<[IpAddr]>>> + 'static,
    ) -> Question {
        let now = Instant::now();
        let mut names = self.0.borrow_mut();
        if let Some((question, until)) = names.get(hostname)
            && *until > now
        {
            return question.clone();
        }
        if names.len() >= MOST {
            names.retain(|_, (_, until)| *until > now);
        }
        let question = ask.map(|found| found.map_err(Rc::new)).boxed_local();
        let question = question.shared();
        if names.len() < MOST {
            names.insert(hostname.clone(), (question.clone(), now + JOINED));
        }
        question
    }

    /// Keeps the answer to a question, unless another one was asked meanwhile.
    fn answered(&self, hostname: &Strng, question: &Question, is_found: bool) {
        if let Some((known, until)) = self.0.borrow_mut().get_mut(hostname)
            && known.ptr_eq(question)
        {
            *until = Instant::now() + if is_found { KEPT } else { FAILED };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    /// Asks for a name, and counts the questions that reach the resolver.
    async fn ask(names: &Names, asked: &Rc<Cell<usize>>, is_found: bool) -> bool {
        let asked = Rc::clone(asked);
        let resolver = async move {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_millis(100)).await;
            match is_found {
                true => Ok(Rc::from([IpAddr::from(Ipv4Addr::LOCALHOST)])),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        };
        let found = names.resolve_by(&"name".into(), resolver).await;
        found.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_for_a_name_the_resolver_is_asked_once() {
        for (is_found, kept) in [(true, KEPT), (false, FAILED)] {
            let (names, asked) = (Names::default(), Rc::new(Cell::new(0)));
            let waiting = (0..100).map(|_| ask(&names, &asked, is_found));
            let told = futures_util::future::join_all(waiting).await;
            assert!(told.into_iter().all(|found| found == is_found));
            tokio::time::sleep(kept / 2).await;
            assert_eq!(ask(&names, &asked, is_found).await, is_found);
            assert_eq!(asked.get(), 1, "{is_found}");
            tokio::time::sleep(kept).await;
            ask(&names, &asked, is_found).await;
            assert_eq!(asked.get(), 2, "{is_found}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_waited_for_is_not_believed_for_ever() {
        let (names, asked) = (Names::default(), Rc::new(Cell::new(0)));
        let patience = Duration::from_millis(10);
        let left = tokio::time::timeout(patience, ask(&names, &asked, true)).await;
        assert!(left.is_err());
        tokio::time::sleep(2 * JOINED).await;
        assert!(ask(&names, &asked, true).await);
        assert_eq!(asked.get(), 2);
    }
}

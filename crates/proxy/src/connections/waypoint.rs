//! Page `/connections` of a waypoint: the connections of its clients, with the requests that are under way on them.

use std::sync::Arc;

use lateen_admin::{Answer, Asked, Reply};
use serde_json::json;

use super::filter::Filter;
use super::json_page;
use super::line::{End, Line, Passed};
use crate::connection_table::State;
use crate::waypoint::{Destination, Listed, Page, Request, WaypointHandle};

/// Connections of one answer; what there are more is said.
const MOST: usize = 1000;

/// What the page is made of when somebody asks.
pub struct WaypointConnections {
    /// The workers.
    workers: Vec<WaypointHandle>,
}

impl WaypointConnections {
    /// A page about these workers.
    pub fn new(workers: Vec<WaypointHandle>) -> Self {
        Self { workers }
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, asked: Asked) -> Reply {
        if asked.path != "/connections" {
            return Answer::not_found().into();
        }
        let filter = match Filter::parse(&asked.query) {
            Ok(filter) if filter.follow => {
                let why = "a waypoint lists its connections and does not follow them; ask without follow\n";
                return Answer::text(400, why).into();
            }
            Ok(filter) => filter,
            Err(why) => return Answer::text(400, format!("{why}\n")).into(),
        };
        let (lines, is_cut) = self.lines(&filter).await;
        json_page(&json!({"connections": lines, "truncated": is_cut}))
    }

    /// The connections that the filter takes, and whether there are more.
    async fn lines(&self, filter: &Filter) -> (Vec<Line>, bool) {
        let mut lines = Vec::new();
        for worker in &self.workers {
            let mut from = Some(0);
            while let Some(place) = from {
                let request = |answer| Request::Connections(place, answer);
                let Page { connections, next } = worker.ask(request).await.unwrap_or_default();
                if add(&mut lines, &connections, filter) {
                    return (lines, true);
                }
                from = next;
            }
        }
        (lines, false)
    }
}

/// Adds the connections that the filter takes. True if there were more than an answer has.
fn add(lines: &mut Vec<Line>, connections: &[Listed], filter: &Filter) -> bool {
    let taken = connections.iter().map(line);
    lines.extend(taken.filter(|line| filter.takes(line)));
    let is_cut = lines.len() > MOST;
    lines.truncate(MOST);
    is_cut
}

fn line(listed: &Listed) -> Line {
    let Listed {
        about,
        requests,
        age,
        received,
        sent,
    } = listed;
    let mut destination = End {
        address: Some(about.asked),
        ..End::default()
    };
    let service = match &about.destination {
        Destination::Service(hostname) => Some(Arc::clone(hostname)),
        Destination::Workload { namespace, name } => {
            destination.namespace = Some(Arc::clone(namespace));
            destination.workload = Some(Arc::clone(name));
            None
        }
    };
    Line {
        event: None,
        id: None,
        pair: None,
        direction: "inbound",
        source: End {
            address: Some(about.source),
            workload: about.workload.clone(),
            namespace: about.namespace.clone(),
            identity: Some(about.identity.to_string()),
        },
        destination,
        service,
        protocol: Some(about.protocol),
        requests: *requests,
        wanted: None,
        // Nobody reaches a waypoint otherwise.
        tunnelled: true,
        tunnel: None,
        allowed_by: None,
        denied: None,
        denied_by_peer: false,
        retried: false,
        would_deny: None,
        state: State::Open.as_str(),
        seconds: age.as_secs_f64(),
        bytes: Passed {
            client_to_server: *received,
            server_to_client: *sent,
        },
        flags: None,
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lateen_types::Identity;

    use super::*;
    use crate::waypoint::About;

    fn listed(service: &str) -> Listed {
        Listed {
            about: About {
                source: ([10, 244, 1, 2], 40_000).into(),
                workload: Some("client".into()),
                namespace: Some("shop".into()),
                identity: Identity::new("cluster.local", "shop", "client").unwrap(),
                asked: ([10, 96, 0, 1], 80).into(),
                destination: Destination::Service(service.into()),
                protocol: "HTTP/2",
            },
            requests: Some(1),
            age: Duration::ZERO,
            received: 0,
            sent: 0,
        }
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_the_connections_that_were_asked_for() {
        let part = [listed("a.shop"), listed("b.shop")];
        let filter = Filter::parse("service=b").unwrap();
        let mut lines = Vec::new();
        for count in 1..=MOST {
            assert!(!add(&mut lines, &part, &filter));
            assert_eq!(lines.len(), count);
        }
        assert!(add(&mut lines, &part, &filter), "there is one more");
        assert_eq!(lines.len(), MOST);
        assert!(
            lines
                .iter()
                .all(|line| line.service.as_deref() == Some("b.shop"))
        );
    }
}

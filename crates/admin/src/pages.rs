//! The pages, under ztunnel's paths, so that Istio's tools find them.

use std::pin::Pin;
use std::sync::Arc;

use hyper::Method;
use lateen_telemetry::{Metrics, log};

use crate::readiness::Readiness;
use crate::server::{Answer, Asked, Pages, Reply};

type Dumping = Pin<Box<dyn Future<Output = serde_json::Value> + Send>>;

type Replying = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Starts a shutdown with this deadline, if one was given; or says why not.
type Quit = dyn Fn(Option<String>) -> Result<(), String> + Send + Sync;

/// For whoever may run the proxy alone: the configuration dump, log levels, shutdown.
pub struct Admin {
    dump: Box<dyn Fn() -> Dumping + Send + Sync>,
    quit: Box<Quit>,
    connections: Box<dyn Fn(Asked) -> Replying + Send + Sync>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    /// `dump` answers the state of the proxy; `quit` starts a graceful shutdown; it is given the
    /// value of the parameter `deadline`, and may refuse it with a reason.
    pub fn new<F>(
        dump: impl Fn() -> F + Send + Sync + 'static,
        quit: impl Fn(Option<String>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = serde_json::Value> + Send + 'static,
    {
        Self {
            dump: Box::new(move || Box::pin(dump())),
            quit: Box::new(quit),
            connections: Box::new(|_| Box::pin(async { Answer::not_found().into() })),
        }
    }

    /// With `/connections` and `/pods`, which `answer` gives.
    #[must_use]
    pub fn with_connections<F>(
        mut self,
        answer: impl Fn(Asked) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.connections = Box::new(move |asked| Box::pin(answer(asked)));
        self
    }
}

const INDEX: &str = "\
connections      open connections (JSON), of a waypoint those of its clients with the requests under way;
                 ?follow goes on with those that open and close, one JSON object a line (node proxies alone);
                 ?namespace= ?pod= ?peer= ?service= ?direction=inbound|outbound ?only=denied|failed choose
pods             what each pod's connections come to: how many, bytes, time of this process (JSON; node proxies alone)
config_dump      what this proxy knows: workloads, services, policies, certificates, pods (JSON)
logging          POST shows the log levels; POST ?level=LEVEL or ?level=scope=LEVEL,... changes them; ?reset undoes
quitquitquit     POST drains and ends this proxy; ?deadline=TIME, such as 90s or 2h, is how long connections may go on
";

const LOGGING: &str = "\
usage: POST /logging                          show the log levels
       POST /logging?level=LEVEL              change all of them
       POST /logging?level=SCOPE=LEVEL,...    change some of them
       POST /logging?reset                    back to the levels of the start
levels: error, warn, info, debug, trace, off
";

impl Pages for Admin {
    async fn answer(&self, asked: &Asked) -> Reply {
        let answer = match asked.path.as_str() {
            "/" => Answer::text(200, INDEX),
            "/connections" | "/pods" => return (self.connections)(asked.clone()).await,
            "/config_dump" => Answer {
                status: 200,
                media: "application/json",
                body: serde_json::to_string_pretty(&(self.dump)().await)
                    .expect("a JSON value can be written"),
            },
            "/logging" => logging(asked),
            "/quitquitquit" if asked.method == Method::POST => {
                match (self.quit)(asked.parameter("deadline")) {
                    Ok(()) => Answer::text(200, "shutdown now\n"),
                    Err(why) => Answer::text(400, format!("{why}\n")),
                }
            }
            "/quitquitquit" => Answer::wrong_method(),
            _ => Answer::not_found(),
        };
        answer.into()
    }
}

fn logging(asked: &Asked) -> Answer {
    if asked.method != Method::POST {
        return Answer::text(405, LOGGING);
    }
    let (level, reset) = (asked.parameter("level"), asked.parameter("reset"));
    if level.is_some() || reset.is_some() {
        let level = level.unwrap_or_default();
        if let Err(error) = log::set_levels(reset.is_some(), &level) {
            return Answer::text(400, format!("{error}\n{LOGGING}"));
        }
    }
    match log::levels() {
        Ok(levels) => Answer::text(200, format!("current log level is {levels}\n")),
        Err(error) => Answer::text(500, format!("{error}\n")),
    }
}

type Refreshing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The metrics, where Prometheus looks for them.
pub struct MetricsPages {
    metrics: Arc<Metrics>,
    refresh: Box<dyn Fn() -> Refreshing + Send + Sync>,
}

impl std::fmt::Debug for MetricsPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsPages").finish_non_exhaustive()
    }
}

impl MetricsPages {
    /// `refresh` brings up to date what is asked of others, whenever somebody looks.
    pub fn new<F>(metrics: Arc<Metrics>, refresh: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            metrics,
            refresh: Box::new(move || Box::pin(refresh())),
        }
    }
}

impl Pages for MetricsPages {
    async fn answer(&self, asked: &Asked) -> Reply {
        match asked.path.as_str() {
            "/metrics" | "/stats/prometheus" => {
                (self.refresh)().await;
                Answer {
                    status: 200,
                    media: "application/openmetrics-text;charset=utf-8;version=1.0.0",
                    body: self.metrics.render(),
                }
            }
            _ => Answer::not_found(),
        }
        .into()
    }
}

/// Readiness, for probes.
#[derive(Debug)]
pub struct ReadinessPages(pub Readiness);

impl Pages for ReadinessPages {
    async fn answer(&self, asked: &Asked) -> Reply {
        match (asked.path.as_str(), &asked.method) {
            ("/healthz/ready", &Method::GET) => {
                let pending = self.0.pending();
                let (status, mut page) = if pending.is_empty() {
                    (200, "ready\n".to_owned())
                } else {
                    (500, format!("not ready, pending: {}\n", pending.join(", ")))
                };
                for (part, remark) in self.0.remarks() {
                    page.push_str(&format!("{part}: {remark}\n"));
                }
                Answer::text(status, page)
            }
            ("/healthz/ready", _) => Answer::wrong_method(),
            _ => Answer::not_found(),
        }
        .into()
    }
}

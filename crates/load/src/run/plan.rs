//! Plan of a run: all choices of the user, and the targets, threads and connections that follow from them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::RunError;
use super::live::Progress;
use super::origin::{Origin, Target, share};
use crate::arrivals::Arrivals;
use crate::client::{Form, Protocol, Request, ping};
use crate::report::{Config, TargetConfig};
use crate::target::{Scheme, Url};
use crate::tls;

/// Where calls of gRPC go whose URL names no method: Fortio's ping.
const UNARY: &str = "/fgrpc.PingServer/Ping";

/// The same for streams of messages.
const STREAM: &str = "/lateen.load.v1.Echo/Stream";

/// What every request carries.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// The method of HTTP; GET, or POST where there is a body, unless given.
    pub method: Option<String>,
    /// More fields.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Body,
}

/// Where the content of requests comes from.
#[derive(Debug, Clone, Default)]
pub enum Body {
    /// There is none.
    #[default]
    None,
    /// This text.
    Text(String),
    /// So many bytes of letters.
    Size(usize),
    /// What this file holds.
    File(PathBuf),
}

/// What to do in a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The URLs as given; at least one.
    pub urls: Vec<String>,
    /// The share of each URL, or nothing where all have the same.
    pub weights: Vec<f64>,
    /// What every request carries.
    pub content: Content,
    /// Whether HTTP is spoken in its second version.
    pub http2: bool,
    /// Whether calls of gRPC are messages on streams that stay.
    pub streaming: bool,
    /// Begin even if the target cannot be reached.
    pub initial_errors: bool,
    /// How TLS is set up with targets that speak it.
    pub tls: tls::Options,
    /// Requests per second; 0 means a closed loop: each answer starts the next request.
    pub qps: f64,
    /// How many connections to keep.
    pub connections: usize,
    /// How many requests may be under way on a connection at once.
    pub streams: usize,
    /// How many threads share the connections and the rate.
    pub threads: usize,
    /// How long to measure.
    pub duration: Duration,
    /// How long to send before that.
    pub warmup: Duration,
    /// How many requests to send, more than zero; they take the place of both times.
    pub requests: Option<u64>,
    /// How starts are spread.
    pub arrivals: Arrivals,
    /// How long a closed loop waits between an answer and the next request.
    pub think: Duration,
    /// How many requests a connection carries before another takes its place: at least, at most.
    pub requests_per_connection: (u64, u64),
    /// How many connections are replaced per second, on top of that.
    pub connection_rate: f64,
    /// The limit of one request, counted from its actual start.
    pub timeout: Duration,
    /// What is measured.
    pub name: String,
    /// Which repetition this is.
    pub round: u32,
    /// What random spreads begin with.
    pub seed: u64,
    /// How to say each second how it goes.
    pub progress: Progress,
}

/// What one thread does of a run.
#[derive(Debug, Clone)]
pub struct Part {
    /// Which thread it is.
    pub thread: usize,
    /// All origins of the run.
    pub origins: Arc<[Origin]>,
    /// How many connections this thread keeps to each origin.
    pub connections: Vec<usize>,
    /// All targets of the run.
    pub targets: Arc<[Target]>,
    /// How many requests it begins in a closed loop, and ends in either.
    pub requests: u64,
}

/// A URL with the origin that it belongs to.
struct Placed {
    url: Url,
    weight: f64,
}

impl Plan {
    /// When the warm-up and the measured time end, in nanoseconds. A run of a number of requests has
    /// no warm-up, and its last request ends it.
    pub fn span(&self) -> (u64, u64) {
        if self.requests.is_some() {
            return (0, u64::MAX);
        }
        let nanoseconds =
            |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        (
            nanoseconds(self.warmup),
            nanoseconds(self.warmup.saturating_add(self.duration)),
        )
    }

    /// Whether connections carry more than one request.
    pub fn keepalive(&self) -> bool {
        self.requests_per_connection.1 > 1
    }

    /// Resolves the targets and shares the work out among the threads.
    pub fn parts(&self) -> Result<Vec<Part>, RunError> {
        let mut groups: Vec<Vec<Placed>> = Vec::new();
        let mut order = Vec::new();
        for (index, url) in self.urls.iter().enumerate() {
            let url = Url::parse(url)?;
            let weight = self.weights.get(index).copied().unwrap_or(1.0);
            let same = |group: &Vec<Placed>| {
                group.first().is_some_and(|placed| {
                    (placed.url.scheme, &placed.url.authority) == (url.scheme, &url.authority)
                })
            };
            let origin = groups.iter().position(same).unwrap_or(groups.len());
            if origin == groups.len() {
                groups.push(Vec::new());
            }
            order.push(Target {
                origin,
                request: groups[origin].len(),
                weight,
            });
            groups[origin].push(Placed { url, weight });
        }
        self.check(&groups)?;
        let origins: Arc<[Origin]> = groups
            .iter()
            .map(|group| self.origin(group))
            .collect::<Result<_, _>>()?;
        let targets: Arc<[Target]> = order.into();
        let weights: Vec<f64> = groups
            .iter()
            .map(|group| group.iter().map(|placed| placed.weight).sum())
            .collect();
        // Each thread has a share of the connections to every origin, so that the threads differ in
        // nothing but which requests are theirs.
        let shares = share(self.connections / self.threads, &weights);
        let mut parts: Vec<Part> = (0..self.threads)
            .map(|thread| Part {
                thread,
                origins: Arc::clone(&origins),
                connections: shares.clone(),
                targets: Arc::clone(&targets),
                requests: self
                    .requests
                    .map_or(u64::MAX, |all| part_of(all, thread, self.threads)),
            })
            .collect();
        for (extra, part) in (0..self.connections % self.threads).zip(&mut parts) {
            part.connections[extra % groups.len()] += 1;
        }
        Ok(parts)
    }

    fn check(&self, groups: &[Vec<Placed>]) -> Result<(), RunError> {
        let refuse = |reason: String| Err(RunError::Plan(reason));
        if !self.weights.is_empty() && self.weights.len() != self.urls.len() {
            return refuse(format!(
                "{} weights for {} urls: give each --url one, in --weights",
                self.weights.len(),
                self.urls.len()
            ));
        }
        let mut schemes = groups.iter().flatten().map(|placed| placed.url.scheme);
        if self.streaming && !schemes.clone().all(Scheme::is_grpc) {
            return refuse("--streaming is for grpc:// and grpcs://".to_owned());
        }
        if let Some(option) = self.tls.first()
            && !schemes.clone().any(Scheme::is_encrypted)
        {
            return refuse(format!(
                "{option} is of use only with TLS: write the URL with https:// or grpcs://, or leave it out"
            ));
        }
        let carries = |scheme: Scheme| match scheme {
            Scheme::Http | Scheme::Https => self.http2,
            Scheme::Grpc | Scheme::Grpcs => true,
            Scheme::Tcp => false,
        };
        if self.streams > 1 && !schemes.all(carries) {
            return refuse(
                "--streams is for grpc:// and, with --http2, for http:// and https://".to_owned(),
            );
        }
        if self.connections < groups.len() * self.threads {
            return refuse(format!(
                "{} connections are too few: each of {} threads needs one to each of {} servers; raise --connections or lower --threads",
                self.connections,
                self.threads,
                groups.len()
            ));
        }
        Ok(())
    }

    fn origin(&self, group: &[Placed]) -> Result<Origin, RunError> {
        let url = &group[0].url;
        let (body, form) = (self.body()?, self.form(url.scheme));
        let method = match url.scheme.is_grpc() {
            true => Some("POST".to_owned()),
            false => self.content.method.clone(),
        };
        let body = match &self.content.body {
            Body::File(_) => body,
            _ if url.scheme.is_grpc() => ping(&body).into(),
            _ => body,
        };
        let requests: Vec<Request> = group
            .iter()
            .map(|placed| Request {
                method: method
                    .clone()
                    .unwrap_or_else(|| if body.is_empty() { "GET" } else { "POST" }.to_owned()),
                authority: placed.url.authority.clone(),
                path: match (&*placed.url.path, form) {
                    ("/", Form::Unary) => UNARY.to_owned(),
                    ("/", Form::Streaming) => STREAM.to_owned(),
                    (path, _) => path.to_owned(),
                },
                headers: self.content.headers.clone(),
                body: Arc::clone(&body),
            })
            .collect();
        let scheme = if url.scheme.is_encrypted() {
            "https"
        } else {
            "http"
        };
        let (protocol, alpn) = match url.scheme {
            Scheme::Http | Scheme::Https if !self.http2 => (Protocol::http1(&requests), "http/1.1"),
            Scheme::Http | Scheme::Https | Scheme::Grpc | Scheme::Grpcs => {
                (Protocol::http2(&requests, scheme, form), "h2")
            }
            Scheme::Tcp if body.is_empty() => {
                return Err(RunError::Plan(
                    "tcp:// needs something to send: give --payload-size, --body or --body-file"
                        .to_owned(),
                ));
            }
            Scheme::Tcp => (Protocol::Echo(body), "http/1.1"),
        };
        let tls = match url.scheme.is_encrypted() {
            true => Some(tls::Connector::new(&self.tls, &url.host, alpn)?),
            false => None,
        };
        Ok(Origin {
            address: url.resolve()?,
            tls,
            protocol,
        })
    }

    fn form(&self, scheme: Scheme) -> Form {
        match (scheme.is_grpc(), self.streaming) {
            (false, _) => Form::Http,
            (true, false) => Form::Unary,
            (true, true) => Form::Streaming,
        }
    }

    fn body(&self) -> Result<Arc<[u8]>, RunError> {
        Ok(match &self.content.body {
            Body::None => Arc::default(),
            Body::Text(text) => text.as_bytes().into(),
            Body::Size(size) => (b'a'..=b'z').cycle().take(*size).collect(),
            Body::File(path) => std::fs::read(path)
                .map_err(|error| RunError::Plan(format!("read {}: {error}", path.display())))?
                .into(),
        })
    }

    /// The plan as the report repeats it.
    pub fn config(&self, part: &Part) -> Result<Config, RunError> {
        let addresses: Vec<String> = part
            .targets
            .iter()
            .map(|target| part.origins[target.origin].address.to_string())
            .collect();
        let scheme = Url::parse(&self.urls[0])?.scheme;
        let several = self.urls.len() > 1;
        let targets = self.urls.iter().zip(&part.targets[..]).zip(&addresses);
        Ok(Config {
            url: self.urls[0].clone(),
            address: addresses[0].clone(),
            targets: targets
                .filter(|_| several)
                .map(|((url, target), address)| TargetConfig {
                    url: url.clone(),
                    address: address.clone(),
                    weight: target.weight,
                })
                .collect(),
            protocol: match scheme {
                Scheme::Http if self.http2 => "h2c",
                Scheme::Https if self.http2 => "h2",
                Scheme::Http | Scheme::Https => "http/1.1",
                Scheme::Grpc | Scheme::Grpcs if self.streaming => "grpc-stream",
                Scheme::Grpc | Scheme::Grpcs => "grpc",
                Scheme::Tcp => "tcp",
            }
            .to_owned(),
            tls: scheme.is_encrypted(),
            method: self.content.method.clone(),
            body_bytes: self.body()?.len() as u64,
            qps: self.qps,
            connections: self.connections,
            streams: self.streams,
            threads: self.threads,
            duration_s: match self.requests {
                Some(_) => 0.0,
                None => self.duration.as_secs_f64(),
            },
            warmup_s: Duration::from_nanos(self.span().0).as_secs_f64(),
            requests: self.requests,
            keepalive: self.keepalive(),
            requests_per_connection: match self.requests_per_connection {
                (1, 1) | (u64::MAX, _) => None,
                (least, most) => Some([least, most]),
            },
            connection_rate: self.connection_rate,
            arrivals: match (self.qps > 0.0, self.arrivals) {
                (false, _) => "closed-loop",
                (true, Arrivals::Uniform) => "uniform",
                (true, Arrivals::Poisson) => "poisson",
                (true, Arrivals::Jitter) => "jitter",
            }
            .to_owned(),
            think_s: self.think.as_secs_f64(),
            timeout_s: self.timeout.as_secs_f64(),
            seed: self.seed,
        })
    }
}

/// How many of `all` fall to one of `parts` that take turns.
fn part_of(all: u64, part: usize, parts: usize) -> u64 {
    let (part, parts) = (part as u64, parts as u64);
    all / parts + u64::from(part < all % parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(urls: &[&str], connections: usize, threads: usize) -> Plan {
        Plan {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            weights: Vec::new(),
            content: Content::default(),
            http2: false,
            streaming: false,
            initial_errors: false,
            tls: tls::Options::default(),
            qps: 100.0,
            connections,
            streams: 1,
            threads,
            duration: Duration::from_secs(1),
            warmup: Duration::ZERO,
            requests: Some(7),
            arrivals: Arrivals::Uniform,
            think: Duration::ZERO,
            requests_per_connection: (u64::MAX, u64::MAX),
            connection_rate: 0.0,
            timeout: Duration::from_secs(1),
            name: String::new(),
            round: 1,
            seed: 1,
            progress: Progress::None,
        }
    }

    #[test]
    fn urls_of_one_server_share_its_connections() {
        let urls = [
            "http://127.0.0.1:1/a",
            "http://127.0.0.2:1/",
            "http://127.0.0.1:1/b",
        ];
        let parts = plan(&urls, 11, 2).parts().unwrap();
        assert_eq!(parts[0].origins.len(), 2);
        let places: Vec<_> = parts[0]
            .targets
            .iter()
            .map(|t| (t.origin, t.request))
            .collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1)]);
        assert_eq!(
            parts[0].connections,
            [4, 2],
            "the one more is the first thread's"
        );
        assert_eq!(parts[1].connections, [3, 2]);
        assert_eq!((parts[0].requests, parts[1].requests), (4, 3));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_cure() {
        let url = "http://127.0.0.1:1/";
        let table = [
            (plan(&[url], 1, 2), "raise --connections"),
            (
                plan(&[url, "http://127.0.0.2:1/"], 1, 1),
                "raise --connections",
            ),
            (
                Plan {
                    weights: vec![1.0, 2.0],
                    ..plan(&[url], 1, 1)
                },
                "2 weights for 1 urls",
            ),
            (plan(&["tcp://127.0.0.1:1"], 1, 1), "give --payload-size"),
        ];
        for (plan, expected) in table {
            let error = plan.parts().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

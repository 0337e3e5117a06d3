//! Plan of a run: the targets, threads and connections that follow from the choices of the user.

use std::sync::Arc;
use std::time::Duration;

use super::args::Plan;
use super::error::RunError;
use super::origin::{Origin, Target, share};
use crate::arrivals::Arrivals;
use crate::client::{Form, Protocol, Request};
use crate::report::{Config, TargetConfig};
use crate::target::{Scheme, Url};
use crate::tls;

/// The method of calls of gRPC whose URL names none: Fortio's ping.
const UNARY: &str = "/fgrpc.PingServer/Ping";

/// The same for streams of messages.
const STREAM: &str = "/lateen.load.v1.Echo/Stream";

/// One thread's part of a run.
#[derive(Debug, Clone)]
pub struct Part {
    /// The number of the thread.
    pub thread: usize,
    /// All origins of the run.
    pub origins: Arc<[Origin]>,
    /// The number of connections that this thread keeps to each origin.
    pub connections: Vec<usize>,
    /// All targets of the run.
    pub targets: Arc<[Target]>,
    /// The number of requests that it begins in a closed loop, and ends in either.
    pub requests: u64,
}

/// A URL with its share of the requests.
type Placed = (Url, f64);

/// Nanoseconds, or the most that can be counted.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Plan {
    /// The ends of the warm-up and of the measured time, in nanoseconds. A run of a number of requests has
    /// no warm-up, and its last request ends it.
    pub fn span(&self) -> (u64, u64) {
        if self.requests.is_some() {
            return (0, u64::MAX);
        }
        let end = self.warmup.saturating_add(self.duration);
        (nanoseconds(self.warmup), nanoseconds(end))
    }

    /// Resolves the targets and shares the work out among the threads.
    pub fn parts(&self) -> Result<Vec<Part>, RunError> {
        let load = &self.load;
        let mut groups: Vec<Vec<Placed>> = Vec::new();
        let mut order = Vec::new();
        for (index, url) in load.urls.iter().enumerate() {
            let url = Url::parse(url)?;
            let weight = load.weights.get(index).copied().unwrap_or(1.0);
            let same = |group: &Vec<Placed>| {
                let of = |url: &Url| (url.scheme, url.authority.clone());
                group.iter().any(|(known, _)| of(known) == of(&url))
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
            groups[origin].push((url, weight));
        }
        self.check(&groups)?;
        let origins = groups.iter().map(|group| self.origin(group));
        let origins: Arc<[Origin]> = origins.collect::<Result<_, _>>()?;
        let targets: Arc<[Target]> = order.into();
        let weight = |group: &Vec<Placed>| group.iter().map(|(_, weight)| weight).sum();
        let weights: Vec<f64> = groups.iter().map(weight).collect();
        // Each thread has a share of the connections to every origin, so that the threads differ in
        // nothing but which requests are theirs.
        let shares = share(load.connections / load.threads, &weights);
        let parts = (0..load.threads).map(|thread| Part {
            thread,
            origins: Arc::clone(&origins),
            connections: shares.clone(),
            targets: Arc::clone(&targets),
            requests: self
                .requests
                .map_or(u64::MAX, |all| part_of(all, thread, load.threads)),
        });
        let mut parts: Vec<Part> = parts.collect();
        for (extra, part) in (0..load.connections % load.threads).zip(&mut parts) {
            part.connections[extra % groups.len()] += 1;
        }
        Ok(parts)
    }

    fn check(&self, groups: &[Vec<Placed>]) -> Result<(), RunError> {
        let load = &self.load;
        let (urls, weights, threads) = (load.urls.len(), load.weights.len(), load.threads);
        let (connections, servers) = (load.connections, groups.len());
        let refuse = |reason: String| Err(RunError::Plan(reason));
        if weights != 0 && weights != urls {
            return refuse(format!(
                "{weights} weights for {urls} urls: give each --url one, in --weights"
            ));
        }
        let mut schemes = groups.iter().flatten().map(|(url, _)| url.scheme);
        if load.streaming && !schemes.clone().all(Scheme::is_grpc) {
            return refuse("--streaming is for grpc:// and grpcs://".to_owned());
        }
        if let Some(option) = load.tls.first()
            && !schemes.clone().any(Scheme::is_encrypted)
        {
            return refuse(format!(
                "{option} is of use only with TLS: write the URL with https:// or grpcs://, or leave it out"
            ));
        }
        let carries = |scheme: Scheme| match scheme {
            Scheme::Http | Scheme::Https => load.http2,
            Scheme::Grpc | Scheme::Grpcs => true,
            Scheme::Tcp => false,
        };
        if load.streams > 1 && !schemes.all(carries) {
            return refuse(
                "--streams is for grpc:// and, with --http2, for http:// and https://".to_owned(),
            );
        }
        if connections < servers * threads {
            return refuse(format!(
                "{connections} connections are too few: each of {threads} threads needs one to each of {servers} servers; raise --connections or lower --threads"
            ));
        }
        Ok(())
    }

    fn origin(&self, group: &[Placed]) -> Result<Origin, RunError> {
        let (load, url) = (&self.load, &group[0].0);
        let form = match (url.scheme.is_grpc(), load.streaming) {
            (false, _) => Form::Http,
            (true, false) => Form::Unary,
            (true, true) => Form::Streaming,
        };
        let mut body = load.body()?;
        if form != Form::Http && load.body_file.is_none() {
            body = ping(&body).into();
        }
        let method = match (form, &load.method) {
            (Form::Http, Some(method)) => method,
            (Form::Http, None) if body.is_empty() => "GET",
            _ => "POST",
        };
        let requests = group.iter().map(|(url, _)| Request {
            method: method.to_owned(),
            authority: url.authority.clone(),
            path: match (&*url.path, form) {
                ("/", Form::Unary) => UNARY.to_owned(),
                ("/", Form::Streaming) => STREAM.to_owned(),
                (path, _) => path.to_owned(),
            },
            headers: load.headers.clone(),
            body: Arc::clone(&body),
        });
        let requests: Vec<Request> = requests.collect();
        let encrypted = url.scheme.is_encrypted();
        let scheme = if encrypted { "https" } else { "http" };
        let (protocol, alpn) = match url.scheme {
            Scheme::Http | Scheme::Https if !load.http2 => (Protocol::http1(&requests), "http/1.1"),
            Scheme::Tcp if body.is_empty() => {
                return Err(RunError::Plan(
                    "tcp:// needs something to send: give --payload-size, --body or --body-file"
                        .to_owned(),
                ));
            }
            Scheme::Tcp => (Protocol::Echo(body), "http/1.1"),
            _ => (Protocol::http2(&requests, scheme, form), "h2"),
        };
        let connector = || tls::Connector::new(&load.tls, &url.host, alpn);
        Ok(Origin {
            tls: encrypted.then(connector).transpose()?,
            address: url.resolve()?,
            protocol,
        })
    }

    /// The plan as the report repeats it.
    pub fn config(&self, part: &Part) -> Result<Config, RunError> {
        let load = &self.load;
        let configs = load.urls.iter().zip(&part.targets[..]);
        let configs = configs.map(|(url, target)| TargetConfig {
            url: url.clone(),
            address: part.origins[target.origin].address.to_string(),
            weight: target.weight,
        });
        let mut targets: Vec<TargetConfig> = configs.collect();
        let TargetConfig { url, address, .. } = targets[0].clone();
        if targets.len() == 1 {
            targets.clear();
        }
        let scheme = Url::parse(&url)?.scheme;
        let (least, most) = load.reuse();
        Ok(Config {
            url,
            address,
            targets,
            protocol: match scheme {
                Scheme::Http if load.http2 => "h2c",
                Scheme::Https if load.http2 => "h2",
                Scheme::Http | Scheme::Https => "http/1.1",
                Scheme::Grpc | Scheme::Grpcs if load.streaming => "grpc-stream",
                Scheme::Grpc | Scheme::Grpcs => "grpc",
                Scheme::Tcp => "tcp",
            },
            tls: scheme.is_encrypted(),
            method: load.method.clone(),
            body_bytes: load.body()?.len() as u64,
            qps: self.qps,
            connections: load.connections,
            streams: load.streams,
            threads: load.threads,
            duration_s: match self.requests {
                Some(_) => 0.0,
                None => self.duration.as_secs_f64(),
            },
            warmup_s: Duration::from_nanos(self.span().0).as_secs_f64(),
            requests: self.requests,
            keepalive: most > 1,
            requests_per_connection: (most > 1 && least < u64::MAX).then_some([least, most]),
            connection_rate: load.connection_rate,
            arrivals: match (self.qps > 0.0, load.arrivals) {
                (false, _) => "closed-loop",
                (true, Arrivals::Uniform) => "uniform",
                (true, Arrivals::Poisson) => "poisson",
                (true, Arrivals::Jitter) => "jitter",
            },
            think_s: self.think_time.as_secs_f64(),
            timeout_s: load.timeout.as_secs_f64(),
            seed: load.seed,
        })
    }
}

/// A protobuf message whose third field is `text`: a PingMessage of Fortio's, an echo of ours.
fn ping(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::bytes::encode(3, &text.to_vec(), &mut out);
    out
}

/// The share of `all` that falls to one of `parts` that take turns.
fn part_of(all: u64, part: usize, parts: usize) -> u64 {
    let (part, parts) = (part as u64, parts as u64);
    all / parts + u64::from(part < all % parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn a_ping_is_protobuf() {
        assert_eq!(ping(b"ab"), b"\x1a\x02ab");
        assert_eq!(ping(&[b'x'; 300])[..3], [0x1a, 0xac, 0x02]);
    }

    fn parts(line: &str) -> Result<Vec<Part>, RunError> {
        Line::parse_from(line.split_whitespace()).plan.parts()
    }

    #[test]
    fn urls_of_one_server_share_its_connections() {
        let urls =
            "--url http://127.0.0.1:1/a --url http://127.0.0.2:1/ --url http://127.0.0.1:1/b";
        let parts = parts(&format!("{urls} -c11 --threads 2 -n7")).unwrap();
        assert_eq!(parts[0].origins.len(), 2);
        let targets = parts[0].targets.iter();
        let places: Vec<_> = targets.map(|t| (t.origin, t.request)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1)]);
        // The one more is the first thread's.
        assert_eq!(parts[0].connections, [4, 2]);
        assert_eq!(parts[1].connections, [3, 2]);
        assert_eq!((parts[0].requests, parts[1].requests), (4, 3));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_cure() {
        for (line, expected) in [
            ("http://127.0.0.1:1/ -c1 --threads=2", "raise --connections"),
            (
                "http://127.0.0.1:1/ --url http://127.0.0.2:1/ -c1",
                "raise --connections",
            ),
            ("http://127.0.0.1:1/ --weights=1,2", "2 weights for 1 urls"),
            ("tcp://127.0.0.1:1", "give --payload-size"),
        ] {
            let error = parts(&format!("--url {line}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

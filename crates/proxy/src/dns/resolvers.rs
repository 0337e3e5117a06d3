//! Resolvers to which questions go: those of the proxy itself.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// RFC 1035 §4.2.
const PORT: u16 = 53;
/// resolv.conf(5): at most so many are used.
const MOST_SERVERS: usize = 3;
/// For how long a resolver is waited for, unless the file says otherwise. Clients ask again after five seconds: there must
/// be time for a second resolver before that.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often each is asked.
const ATTEMPTS: u32 = 2;
/// Between two looks at the file.
const LOOK: Duration = Duration::from_secs(5);

/// The network namespace that resolvers are asked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Those of pods. A loopback address is the pod's own there.
    Pods,
    /// That of this process.
    Own,
}

/// What a `resolv.conf` says about whom to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolvers {
    /// In order of preference.
    pub servers: Vec<SocketAddr>,
    /// For each try.
    pub timeout: Duration,
    /// Tries of each server.
    pub attempts: u32,
    /// Servers that cannot be asked: a loopback address is the pod's own in a pod's namespace, and a scoped one names an
    /// interface.
    pub useless: Vec<String>,
}

impl Resolvers {
    /// Reads the text of a `resolv.conf`, as resolv.conf(5) says; lines that say something else are passed over.
    pub fn parse(text: &str, origin: Origin) -> Self {
        let mut resolvers = Self {
            servers: Vec::new(),
            timeout: TIMEOUT,
            attempts: ATTEMPTS,
            useless: Vec::new(),
        };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => resolvers.add(words.next().unwrap_or_default(), origin),
                Some("options") => words.for_each(|word| resolvers.option(word)),
                _ => {}
            }
        }
        resolvers
    }

    fn add(&mut self, word: &str, origin: Origin) {
        let is_useful = |address: IpAddr| {
            !address.is_unspecified() && (origin == Origin::Own || !address.is_loopback())
        };
        match word.parse::<IpAddr>() {
            Ok(address) if is_useful(address) => {
                let server = SocketAddr::new(address, PORT);
                if self.servers.len() < MOST_SERVERS && !self.servers.contains(&server) {
                    self.servers.push(server);
                }
            }
            _ => self.useless.push(word.to_owned()),
        }
    }

    fn option(&mut self, word: &str) {
        // The bounds are resolv.conf(5)'s.
        match word.split_once(':') {
            Some(("timeout", seconds)) => {
                if let Ok(seconds @ 1..=30) = seconds.parse() {
                    self.timeout = Duration::from_secs(seconds);
                }
            }
            Some(("attempts", attempts)) => {
                if let Ok(attempts @ 1..=5) = attempts.parse() {
                    self.attempts = attempts;
                }
            }
            _ => {}
        }
    }
}

/// A `resolv.conf` that is read again when it changes.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    origin: Origin,
    read: Resolvers,
    changed: Option<SystemTime>,
    looked: Instant,
}

impl File {
    /// Reads it for the first time. One that cannot be read names no resolver, which is said in the log: names of the mesh
    /// are answered all the same.
    pub fn open(path: &Path, origin: Origin) -> Self {
        let mut file = Self {
            path: path.to_owned(),
            origin,
            read: Resolvers::parse("", origin),
            changed: None,
            looked: Instant::now(),
        };
        file.load();
        file
    }

    /// A file that says this and never changes.
    #[cfg(test)]
    pub fn saying(read: Resolvers) -> Self {
        Self {
            path: PathBuf::new(),
            origin: Origin::Own,
            read,
            changed: None,
            looked: Instant::now(),
        }
    }

    /// What it says now.
    pub fn current(&mut self) -> &Resolvers {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if modified(&self.path) != self.changed {
                self.load();
            }
        }
        &self.read
    }

    fn load(&mut self) {
        self.changed = modified(&self.path);
        let path = self.path.display();
        match std::fs::read_to_string(&self.path) {
            // What was read before goes on: a file is briefly gone while it is replaced.
            Err(error) => tracing::warn!(%path, %error, "the list of resolvers cannot be read"),
            Ok(text) => {
                self.read = Resolvers::parse(&text, self.origin);
                let (servers, useless) = (&self.read.servers, &self.read.useless);
                if servers.is_empty() {
                    tracing::warn!(
                        %path,
                        ?useless,
                        "no resolver can be asked: names outside the mesh fail; name one with an address of its own in a \
                         nameserver line"
                    );
                } else {
                    tracing::info!(%path, ?servers, ?useless, "resolvers");
                }
            }
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|file| file.modified())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says() {
        let read = Resolvers::parse(
            "# comment\nsearch a.example b.example\nnameserver 10.96.0.10\nnameserver\t10.96.0.10\n\
             nameserver 127.0.0.53\nnameserver fd00::10\nnameserver fe80::1%eth0\nnameserver nonsense\n\
             options ndots:5 timeout:1 attempts:4 timeout:99 attempts:0 rotate\n",
            Origin::Pods,
        );
        let addresses: Vec<_> = read.servers.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.96.0.10:53", "[fd00::10]:53"]);
        assert_eq!(read.useless, ["127.0.0.53", "fe80::1%eth0", "nonsense"]);
        assert_eq!((read.timeout, read.attempts), (Duration::from_secs(1), 4));
    }

    #[test]
    fn a_loopback_address_is_a_resolver_of_this_process_alone() {
        let text = "nameserver 127.0.0.53\nnameserver 0.0.0.0\n";
        assert_eq!(Resolvers::parse(text, Origin::Pods).servers, []);
        let own = Resolvers::parse(text, Origin::Own);
        assert_eq!(own.servers, [([127, 0, 0, 53], 53).into()]);
        assert_eq!(own.useless, ["0.0.0.0"]);
    }

    #[test]
    fn no_more_servers_than_the_manual_allows() {
        let text: String = (1..9).map(|i| format!("nameserver 10.0.0.{i}\n")).collect();
        assert_eq!(Resolvers::parse(&text, Origin::Pods).servers.len(), 3);
    }

    #[test]
    fn a_file_that_is_not_there_names_no_resolver_and_one_that_comes_is_read() {
        let folder = std::env::temp_dir().join(format!("lateen-resolv-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("resolv.conf");
        let mut file = File::open(&path, Origin::Pods);
        assert!(file.current().servers.is_empty());
        std::fs::write(&path, "nameserver 10.0.0.1\n").unwrap();
        file.looked -= LOOK;
        assert_eq!(file.current().servers.len(), 1);
        std::fs::remove_file(&path).unwrap();
        file.looked -= LOOK;
        assert_eq!(file.current().servers.len(), 1, "what was known goes on");
        std::fs::remove_dir(&folder).unwrap();
    }
}

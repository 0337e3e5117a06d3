//! The program in a process of its own, and servers of a few lines that remember what they were sent.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeBounds;
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// The program with the words of a command line.
pub fn program(line: impl AsRef<str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lateen-load"));
    command.args(line.as_ref().split_whitespace());
    command
}

/// The output of a process, and its exit code.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.err))
    }

    /// Whether it ended with this code, and said this to people.
    #[track_caller]
    pub fn refused(&self, code: i32, said: &str) {
        assert_eq!(self.code, Some(code), "{}", self.err);
        assert!(self.err.contains(said), "{said}: {}", self.err);
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the program to its end.
pub fn ended(line: impl AsRef<str>) -> Ended {
    program(line).output().unwrap().into()
}

/// A run to its end, without a warm-up unless one is given.
pub fn run(line: impl AsRef<str>) -> Ended {
    let line = line.as_ref();
    let mut words = line.split_whitespace();
    let warm = words.any(|word| word.starts_with("-n") || word.starts_with("--warmup"));
    let warmup = if warm { "" } else { "--warmup=0" };
    ended(format!("run --all-percentiles --json - {warmup} {line}"))
}

/// The report of a run.
pub fn report(line: impl AsRef<str>) -> Value {
    run(line).json()
}

/// A count of a report, for example `counts.ok`; 0 where it is not there.
pub fn count(report: &Value, path: &str) -> u64 {
    let steps = path.split('.');
    let found = steps.fold(report, |value, step| &value[step]);
    found.as_u64().unwrap_or(0)
}

/// Whether a number is in a range.
#[track_caller]
pub fn within<T: PartialOrd + Debug>(number: T, range: impl RangeBounds<T> + Debug, what: &str) {
    assert!(
        range.contains(&number),
        "{what}: {number:?} is not in {range:?}"
    );
}

/// Sends a signal to a process.
pub fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
}

/// The requests on the connections of a server, in the order in which they came.
pub type Seen = Arc<Mutex<Vec<Vec<String>>>>;

/// Anything that a connection can be.
pub trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Accepts connections and handles each in a thread of its own; they end with the test process.
pub fn serve(handle: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Arc::new(handle);
    std::thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { return };
            let handle = Arc::clone(&handle);
            std::thread::spawn(move || handle(stream, index));
        }
    });
    address
}

/// Answers whatever comes, with the answer to each piece. Ends without one.
pub fn answer_pieces(mut stream: TcpStream, mut answer: impl FnMut(&mut [u8]) -> Option<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer)
        && let Some(bytes) = answer(&mut buffer[..count])
        && stream.write_all(&bytes).is_ok()
    {}
}

/// Answers every request of HTTP/1.1 with 200 and remembers its head and body.
pub fn http(stream: impl Stream, index: usize, seen: &Seen) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(1..) = stream.read_until(b'\n', &mut head) else {
                return;
            };
        }
        let mut request = String::from_utf8(head).unwrap();
        let length = request.to_lowercase();
        let length = length.split("content-length: ").nth(1);
        let length = length.and_then(|value| value.lines().next());
        let mut body = vec![0; length.map_or(0, |digits| digits.parse().unwrap())];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let last = request.contains("\r\nConnection: close");
        let answer = if request.starts_with("HEAD ") {
            ""
        } else {
            "hello"
        };
        request += &String::from_utf8(body).unwrap();
        {
            let mut seen = seen.lock().unwrap();
            let enough = seen.len().max(index + 1);
            seen.resize(enough, Vec::new());
            seen[index].push(request);
        }
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{answer}");
        if stream.get_mut().write_all(answer.as_bytes()).is_err() || last {
            return;
        }
    }
}

/// The URL of a server of HTTP/1.1, without its path, and what it was sent.
pub fn http_server() -> (String, Seen) {
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    let address = serve(move |stream, index| http(stream, index, &shared));
    (format!("http://{address}"), seen)
}

/// Files with certificates: an authority, and what it issued for `localhost` and for a client.
pub struct Certificates {
    directory: tempfile::TempDir,
    authority: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Certificates {
    pub fn new() -> Certificates {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificates = Certificates {
            directory: tempfile::tempdir().unwrap(),
            authority: rcgen::CertifiedIssuer::self_signed(params, key).unwrap(),
        };
        let write = |file: &str, pem| std::fs::write(certificates.path(file), pem).unwrap();
        write("ca.pem", certificates.authority.pem());
        for (file, name) in [("client", "client"), ("server", "localhost")] {
            let (cert, key) = certificates.issue(name);
            write(&format!("{file}.pem"), cert.pem());
            write(&format!("{file}.key"), key.serialize_pem());
        }
        certificates
    }

    /// The path of a file: ca.pem, or client or server with .pem or .key.
    pub fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    /// A TLS server's configuration, which asks for a client's certificate if `mutual`.
    pub fn server(&self, alpn: &[&str], mutual: bool) -> Arc<ServerConfig> {
        let (cert, key) = self.issue("localhost");
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
        let builder = match mutual {
            true => ServerConfig::builder().with_client_cert_verifier(verifier.unwrap()),
            false => ServerConfig::builder().with_no_client_auth(),
        };
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = builder
            .with_single_cert(vec![cert.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// The server's side of TLS over a connection.
pub fn tls(config: &Arc<ServerConfig>, stream: TcpStream) -> impl Stream {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}

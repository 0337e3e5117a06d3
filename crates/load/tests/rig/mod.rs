//! Servers of a few lines that remember what they were sent, and the program that is run against them.
// Each test program uses a part of it.
#![allow(dead_code)]

pub mod service;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lateen-load"))
}

pub fn run(args: &[&str]) -> Output {
    let counted = args.iter().any(|arg| arg.starts_with("-n"));
    program()
        .args(["run", "--json", "-"])
        .args((!counted).then_some("--warmup=0"))
        .args(args)
        .output()
        .unwrap()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the connections of a server were sent, in the order in which they came.
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

/// Answers every request of HTTP/1.1 with 200 and remembers its head and body.
pub fn http(mut stream: impl Stream, index: usize, seen: &Seen) {
    let mut held = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let end = loop {
            let blank = held.windows(4).position(|window| window == b"\r\n\r\n");
            let length = blank.map(|end| {
                let head = String::from_utf8_lossy(&held[..end]).to_lowercase();
                let value = head.split("content-length: ").nth(1);
                let digits = value.and_then(|value| value.lines().next());
                end + 4 + digits.map_or(0, |digits| digits.parse::<usize>().unwrap())
            });
            if let Some(end) = length.filter(|end| held.len() >= *end) {
                break end;
            }
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => held.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        };
        let request = String::from_utf8(held.drain(..end).collect()).unwrap();
        let head = request.starts_with("HEAD ");
        let last = request.contains("\r\nConnection: close");
        {
            let mut seen = seen.lock().unwrap();
            let enough = seen.len().max(index + 1);
            seen.resize(enough, Vec::new());
            seen[index].push(request);
        }
        let body = if head { "" } else { "hello" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).is_err() || last {
            return;
        }
    }
}

/// A server of HTTP/1.1 and what it was sent.
pub fn http_server() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    let address = serve(move |stream, index| http(stream, index, &shared));
    (address, seen)
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
        let authority = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let certificates = Certificates {
            directory,
            authority,
        };
        std::fs::write(certificates.path("ca.pem"), certificates.authority.pem()).unwrap();
        for (file, name) in [("client", "client"), ("server", "localhost")] {
            let (cert, key) = certificates.issue(name);
            std::fs::write(certificates.path(&format!("{file}.pem")), cert.pem()).unwrap();
            let key = key.serialize_pem();
            std::fs::write(certificates.path(&format!("{file}.key")), key).unwrap();
        }
        certificates
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    /// A TLS server's configuration, which asks for a client's certificate if `mutual`.
    pub fn server(&self, alpn: &[&str], mutual: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (cert, key) = self.issue("localhost");
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.der().clone()).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                provider,
            );
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
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
pub fn tls(
    config: &Arc<ServerConfig>,
    stream: TcpStream,
) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}

//! The client of Istio's certificate service (`istio.v1.auth.IstioCertificateService`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lateen_proto::auth::IstioCertificateRequest;
use lateen_proto::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use lateen_tls::{ControlConnector, Credentials, KeyPair, Rules};
use lateen_types::Identity;
use parking_lot::Mutex;
use prost_types::value::Kind;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::{Channel, Endpoint};

use crate::issuer::{IssueError, Issued, Issuer};

/// What connecting may take, TLS included, and then the answer to begin.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What a request may take in all. An answer that begins is awaited no longer than one that does not: an authority that
/// says half a word would be waited for until the proxy is restarted, and requests at one time are few.
const ALL: Duration = Duration::from_secs(20);

/// The subject that a client asks certificates for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behalf {
    /// The workloads of this node. The token is the node proxy's, and each request names the workload that it impersonates.
    #[default]
    Workloads,
    /// The asker itself, a waypoint or a gateway. The token is that of its own service account, and the authority certifies
    /// the identity of the token.
    Itself,
}

/// Where the token that authenticates this process comes from.
#[derive(Debug, Clone)]
pub enum TokenSource {
    /// A file, read for every request: the kubelet and the engine replace it before it expires.
    File(PathBuf),
    /// None is sent.
    None,
}

impl TokenSource {
    /// The token as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<Option<String>, IssueError> {
        match self {
            TokenSource::None => Ok(None),
            TokenSource::File(path) => match std::fs::read_to_string(path) {
                Ok(token) => Ok(Some(token.trim().to_owned())),
                Err(source) => Err(IssueError::Token {
                    path: path.display().to_string(),
                    source,
                }),
            },
        }
    }
}

/// How to reach the certificate authority.
#[derive(Debug, Clone)]
pub struct CaSettings {
    /// `https://HOST:PORT`.
    pub address: String,
    /// Makes the connections.
    pub connector: ControlConnector,
    /// Authenticates this process.
    pub token: TokenSource,
    /// The subject of the certificates.
    pub behalf: Behalf,
    /// Sent as header `clusterid`.
    pub cluster: String,
    /// Life that is asked for; the authority may give less.
    pub ttl: Duration,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// What handshakes with the certificates keep to.
    pub rules: Rules,
}

/// Settings that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The address is no URI.
    #[error("certificate authority address {address:?}: expected https://HOST:PORT")]
    Address {
        /// As given.
        address: String,
    },
    /// A header cannot be sent.
    #[error(
        "header {name:?} of the certificate authority: name or value holds characters that gRPC does not allow"
    )]
    Header {
        /// Its name.
        name: String,
    },
}

/// Asks for certificates, on behalf of the workloads on this node or in its own name.
pub struct CaClient {
    connection: Mutex<Numbered>,
    /// Makes another connection.
    dial: Box<dyn Fn() -> Channel + Send + Sync>,
    token: TokenSource,
    behalf: Behalf,
    ttl: Duration,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    rules: Rules,
}

/// The connection that requests go to.
#[derive(Clone)]
struct Numbered {
    /// How many there were before it.
    number: u64,
    client: IstioCertificateServiceClient<Channel>,
}

impl CaClient {
    /// A client that connects when it is first used, in the runtime that uses it.
    ///
    /// # Errors
    /// See [`CaError`].
    pub fn new(settings: CaSettings) -> Result<Self, CaError> {
        let address = settings.address.clone();
        let endpoint = Endpoint::from_shared(address.clone())
            .map_err(|_| CaError::Address { address })?
            .connect_timeout(TIMEOUT)
            .timeout(TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10));
        let connector = settings.connector.clone();
        let dial = move || endpoint.connect_with_connector_lazy(connector.clone());
        CaClient::over(dial, settings)
    }

    /// As [`CaClient::new`], over channels of the caller's; address and connector of the settings are not used. Another
    /// one is wanted when a request on the last was not answered, or its replica could not tell who asked.
    ///
    /// # Errors
    /// See [`CaError`].
    pub fn over(
        dial: impl Fn() -> Channel + Send + Sync + 'static,
        settings: CaSettings,
    ) -> Result<Self, CaError> {
        let cluster = ("clusterid".to_owned(), settings.cluster);
        let headers = settings.headers.into_iter().chain([cluster]);
        let headers = headers
            .map(|(name, value)| match (name.parse(), value.parse()) {
                (Ok(key), Ok(value)) => Ok((key, value)),
                _ => Err(CaError::Header { name }),
            })
            .collect::<Result<_, _>>()?;
        Ok(CaClient {
            connection: Mutex::new(Numbered {
                number: 0,
                client: IstioCertificateServiceClient::new(dial()),
            }),
            dial: Box::new(dial),
            token: settings.token,
            behalf: settings.behalf,
            ttl: settings.ttl,
            headers,
            rules: settings.rules,
        })
    }

    /// Has the next requests go to another connection. This one may lead to a replica that is stuck for ever and answers
    /// PINGs, or that cannot verify our token now: the next one may not. Of several requests that end on it the first sees to that; those that end later have
    /// learnt nothing about the connection that is in use by then.
    fn leave(&self, number: u64) {
        let mut connection = self.connection.lock();
        if connection.number == number {
            *connection = Numbered {
                number: number + 1,
                client: IstioCertificateServiceClient::new((self.dial)()),
            };
        }
    }

    async fn certify(
        &self,
        mut client: IstioCertificateServiceClient<Channel>,
        identity: &Identity,
    ) -> Result<Credentials, IssueError> {
        let key = KeyPair::generate()?;
        let mut request = tonic::Request::new(IstioCertificateRequest {
            csr: key.csr_pem(identity)?,
            validity_duration: i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX),
            metadata: match self.behalf {
                Behalf::Workloads => Some(impersonate(identity)),
                Behalf::Itself => None,
            },
        });
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        if let Some(token) = self.token.read()? {
            let mut bearer: AsciiMetadataValue = format!("Bearer {token}")
                .parse()
                .map_err(|_| IssueError::Metadata)?;
            bearer.set_sensitive(true);
            request.metadata_mut().insert("authorization", bearer);
        }
        let answer = client
            .create_certificate(request)
            .await
            .map_err(|status| refusal(&status))?;
        let chain = answer.into_inner().cert_chain;
        Ok(Credentials::with_rules(key, &chain, &self.rules)?)
    }
}

impl fmt::Debug for CaClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaClient").finish_non_exhaustive()
    }
}

impl Issuer for CaClient {
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
        Box::pin(async move {
            let Numbered { number, client } = self.connection.lock().clone();
            let outcome = tokio::time::timeout(ALL, self.certify(client, identity))
                .await
                .unwrap_or(Err(IssueError::Timeout(ALL.as_secs())));
            if outcome.as_ref().is_err_and(speaks_for_its_replica) {
                self.leave(number);
            }
            outcome
        })
    }
}

/// Whether another replica may answer where this one did not: it is silent, says that it cannot, or does not know us.
/// While tokens cannot be verified, replicas that have verified ours before still take it.
fn speaks_for_its_replica(error: &IssueError) -> bool {
    match error {
        IssueError::Timeout(_) | IssueError::Unreachable(_) => true,
        IssueError::Refused { code, .. } => code == "Unauthenticated",
        _ => false,
    }
}

/// A node proxy asks in its own name for somebody else.
fn impersonate(identity: &Identity) -> prost_types::Struct {
    let value = prost_types::Value {
        kind: Some(Kind::StringValue(identity.uri())),
    };
    prost_types::Struct {
        fields: BTreeMap::from([("ImpersonatedIdentity".to_owned(), value)]),
    }
}

fn refusal(status: &tonic::Status) -> IssueError {
    match status.code() {
        // Who accepts connections and says nothing on them is there, and stuck.
        tonic::Code::Unavailable | tonic::Code::Unknown if timed_out(status) => {
            IssueError::Timeout(TIMEOUT.as_secs())
        }
        tonic::Code::Unavailable => IssueError::Unreachable(causes(status)),
        tonic::Code::DeadlineExceeded | tonic::Code::Cancelled => {
            IssueError::Timeout(TIMEOUT.as_secs())
        }
        code => IssueError::Refused {
            code: format!("{code:?}"),
            message: causes(status),
        },
    }
}

/// Whether time ran out below the request, while it was being connected.
fn timed_out(status: &tonic::Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
            || error.is::<tonic::TimeoutExpired>()
            || error.is::<tokio::time::error::Elapsed>()
    })
}

/// The message and what lies below it: tonic keeps the interesting part in the sources.
fn causes(status: &tonic::Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

//! What the client asks of a certificate authority, and what it makes of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use lateen_identity::{Behalf, CaClient, CaError, CaSettings, IssueError, Issuer, TokenSource};
use lateen_proto::auth::istio_certificate_service_server::{
    IstioCertificateService, IstioCertificateServiceServer,
};
use lateen_proto::auth::{IstioCertificateRequest, IstioCertificateResponse};
use lateen_testkit::{Ca, identity};
use lateen_tls::{ControlConnector, Roots};
use parking_lot::Mutex;
use prost_types::value::Kind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::{Channel, Endpoint, Server, server::TcpIncoming};
use tonic::{Code, Request, Response, Status};

/// What an authority was asked.
#[derive(Debug, Default, Clone)]
struct Asked {
    authorization: Option<String>,
    cluster: Option<String>,
    extra: Option<String>,
    impersonated: Option<String>,
    validity: i64,
}

#[derive(Clone)]
struct Authority {
    ca: Arc<Ca>,
    asked: Arc<Mutex<Vec<Asked>>>,
    refusal: Option<(Code, &'static str)>,
    empty: bool,
}

#[tonic::async_trait]
impl IstioCertificateService for Authority {
    async fn create_certificate(
        &self,
        request: Request<IstioCertificateRequest>,
    ) -> Result<Response<IstioCertificateResponse>, Status> {
        let header = |name: &str| Some(request.metadata().get(name)?.to_str().ok()?.to_owned());
        let mut asked = Asked {
            authorization: header("authorization"),
            cluster: header("clusterid"),
            extra: header("x-extra"),
            validity: request.get_ref().validity_duration,
            impersonated: None,
        };
        let metadata = request.get_ref().metadata.as_ref();
        let value = metadata.and_then(|m| m.fields.get("ImpersonatedIdentity")?.kind.clone());
        if let Some(Kind::StringValue(value)) = value {
            asked.impersonated = Some(value);
        }
        self.asked.lock().push(asked);
        if let Some((code, message)) = self.refusal {
            return Err(Status::new(code, message));
        }
        let now = SystemTime::now();
        let cert_chain = match self.empty {
            true => Vec::new(),
            false => self
                .ca
                .sign(
                    &request.get_ref().csr,
                    now - Duration::from_secs(60),
                    now + Duration::from_secs(60),
                )
                .map_err(Status::invalid_argument)?,
        };
        Ok(Response::new(IstioCertificateResponse { cert_chain }))
    }
}

impl Authority {
    fn new() -> Self {
        Authority {
            ca: Arc::new(Ca::new()),
            asked: Arc::default(),
            refusal: None,
            empty: false,
        }
    }

    /// Listens on a port of its own.
    fn channel(&self) -> Channel {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let service = IstioCertificateServiceServer::new(self.clone());
        tokio::spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming),
        );
        Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .connect_lazy()
    }
}

/// Whoever asks gets this channel.
fn one(channel: Channel) -> impl Fn() -> Channel + Send + Sync + 'static {
    move || channel.clone()
}

fn settings(token: TokenSource) -> CaSettings {
    CaSettings {
        address: "https://istiod.example:15012".to_owned(),
        connector: ControlConnector::new(Roots::System, None),
        token,
        behalf: Behalf::default(),
        cluster: "Kubernetes".to_owned(),
        ttl: Duration::from_secs(86_400),
        headers: vec![("x-extra".to_owned(), "1".to_owned())],
        rules: lateen_tls::Rules::default(),
    }
}

#[tokio::test]
async fn asks_as_a_node_proxy_and_uses_the_answer() {
    let authority = Authority::new();
    let path = std::env::temp_dir().join(format!("lateen-token-{}", std::process::id()));
    std::fs::write(&path, "first\n").unwrap();
    let client = CaClient::over(
        one(authority.channel()),
        settings(TokenSource::File(path.clone())),
    )
    .unwrap();
    let first = client.issue(&identity("web")).await;
    // The token is rotated between two requests.
    std::fs::write(&path, "second").unwrap();
    let second = client.issue(&identity("web")).await;
    std::fs::remove_file(&path).unwrap();
    let third = client.issue(&identity("web")).await;

    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.identity(), &identity("web"));
    assert_ne!(first.serial(), second.serial());
    assert!(matches!(third, Err(IssueError::Token { .. })), "{third:?}");
    let asked = authority.asked.lock().clone();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].authorization.as_deref(), Some("Bearer first"));
    assert_eq!(asked[1].authorization.as_deref(), Some("Bearer second"));
    assert_eq!(asked[0].cluster.as_deref(), Some("Kubernetes"));
    assert_eq!(asked[0].extra.as_deref(), Some("1"));
    assert_eq!(
        asked[0].impersonated.as_deref(),
        Some("spiffe://cluster.local/ns/default/sa/web")
    );
    assert_eq!(asked[0].validity, 86_400);
}

#[tokio::test]
async fn a_gateway_asks_in_its_own_name_and_impersonates_nobody() {
    let authority = Authority::new();
    let own = CaSettings {
        behalf: Behalf::Itself,
        ..settings(TokenSource::None)
    };
    let client = CaClient::over(one(authority.channel()), own).unwrap();
    let issued = client.issue(&identity("gateway")).await.unwrap();
    assert_eq!(issued.identity(), &identity("gateway"));
    assert_eq!(authority.asked.lock()[0].impersonated, None);
}

#[tokio::test]
async fn a_refusal_keeps_the_authoritys_words() {
    let mut authority = Authority::new();
    authority.refusal = Some((Code::PermissionDenied, "no pod on node n1 runs sa/web"));
    let client = CaClient::over(one(authority.channel()), settings(TokenSource::None)).unwrap();
    let error = client
        .issue(&identity("web"))
        .await
        .expect_err("it was refused");
    assert!(matches!(error, IssueError::Refused { .. }), "{error}");
    for part in ["PermissionDenied", "no pod on node n1 runs sa/web"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_empty_answer_is_an_error() {
    let mut authority = Authority::new();
    authority.empty = true;
    let client = CaClient::over(one(authority.channel()), settings(TokenSource::None)).unwrap();
    let error = client
        .issue(&identity("web"))
        .await
        .expect_err("there is no certificate");
    assert!(matches!(error, IssueError::Unusable(_)), "{error}");
}

#[tokio::test]
async fn an_authority_that_is_away_is_unreachable_and_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = CaClient::new(CaSettings {
        address: format!("https://{address}"),
        connector: ControlConnector::new(Roots::Pem(Ca::new().root().to_owned()), None),
        ..settings(TokenSource::None)
    });
    let error = client
        .unwrap()
        .issue(&identity("web"))
        .await
        .expect_err("nobody listens");
    assert!(matches!(error, IssueError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn an_authority_that_accepts_and_says_nothing_has_not_answered() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            held.push(connection);
        }
    });
    let client = CaClient::new(CaSettings {
        address: format!("https://{address}"),
        connector: ControlConnector::new(Roots::Pem(Ca::new().root().to_owned()), None),
        ..settings(TokenSource::None)
    });
    let client = client.unwrap();
    let web = identity("web");
    let answer = tokio::time::timeout(Duration::from_secs(60), client.issue(&web));
    let error = answer.await.expect("a deadline").expect_err("no answer");
    assert!(matches!(error, IssueError::Timeout(_)), "{error}");
    assert!(error.to_string().contains("control plane"), "{error}");
    silent.abort();
}

/// Its replica may be stuck behind a connection that is well: another connection may lead to another one.
#[tokio::test]
async fn an_authority_that_begins_to_answer_and_stops_is_left_for_another_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (begun, began) = tokio::sync::oneshot::channel();
    let stuck = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut got = vec![0; 64 * 1024];
        // SETTINGS, and when the request is there the head of an answer, whose message never comes.
        connection
            .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        let mut sum = 0;
        while sum < 500 {
            sum += connection.read(&mut got).await.unwrap();
        }
        let head = b"\x88\x0f\x10\x10application/grpc";
        let mut frame = vec![0, 0, head.len() as u8, 1, 4, 0, 0, 0, 1];
        frame.extend_from_slice(head);
        connection.write_all(&frame).await.unwrap();
        begun.send(()).unwrap();
        while connection.read(&mut got).await.is_ok_and(|read| read > 0) {}
    });
    let authority = Authority::new();
    let healthy = authority.channel();
    let dials = AtomicUsize::new(0);
    let dial = move || match dials.fetch_add(1, Ordering::Relaxed) {
        0 => Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .timeout(Duration::from_secs(10))
            .connect_lazy(),
        _ => healthy.clone(),
    };
    let client = CaClient::over(dial, settings(TokenSource::None)).unwrap();
    let web = identity("web");
    let mut answer = client.issue(&web);
    tokio::select! {
        _ = &mut answer => panic!("it has not answered"),
        began = began => began.expect("it begins"),
    }
    // The head is read, and nothing else is to come: what is left is time.
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::time::pause();
    let error = tokio::time::timeout(Duration::from_secs(60), answer);
    let error = error.await.expect("a deadline").expect_err("no answer");
    tokio::time::resume();
    assert!(matches!(error, IssueError::Timeout(20)), "{error}");
    let credentials = client.issue(&web).await.expect("another one answers");
    assert_eq!(credentials.identity(), &web);
    stuck.abort();
}

/// While the API server is away a replica knows only the tokens that it verified before; a connection leads to one replica.
#[tokio::test]
async fn who_is_turned_away_by_one_replica_asks_another() {
    for (code, left) in [
        (Code::Unavailable, true),
        (Code::Unauthenticated, true),
        (Code::PermissionDenied, false),
    ] {
        let mut stranger = Authority::new();
        stranger.refusal = Some((code, "tokens cannot be verified"));
        let channels = [stranger.channel(), Authority::new().channel()];
        let dials = AtomicUsize::new(0);
        let dial = move || channels[dials.fetch_add(1, Ordering::Relaxed) % 2].clone();
        let client = CaClient::over(dial, settings(TokenSource::None)).unwrap();
        let web = identity("web");
        let error = client.issue(&web).await.expect_err("it is turned away");
        assert!(error.to_string().contains("cannot be verified"), "{error}");
        let again = client.issue(&web).await;
        assert_eq!(again.is_ok(), left, "{code:?}: {again:?}");
    }
}

/// Requests that ended with the connection before say nothing about the one that took its place.
#[tokio::test]
async fn requests_that_go_unanswered_together_are_given_one_other_connection() {
    // The kernel takes connections to it, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let authority = Authority::new();
    let healthy = authority.channel();
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    let dial = move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .timeout(Duration::from_millis(300))
            .connect_lazy(),
        _ => healthy.clone(),
    };
    let client = CaClient::over(dial, settings(TokenSource::None)).unwrap();
    let (web, shop) = (identity("web"), identity("shop"));
    let together = async { tokio::join!(client.issue(&web), client.issue(&shop)) };
    let answers = tokio::time::timeout(Duration::from_secs(60), together);
    let (first, second) = answers.await.expect("a deadline");
    for answer in [first, second] {
        let error = answer.expect_err("nobody answers");
        assert!(matches!(error, IssueError::Timeout(_)), "{error}");
    }
    assert_eq!(dials.load(Ordering::Relaxed), 2);
    client.issue(&web).await.expect("another one answers");
    assert_eq!(dials.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let with = |address: &str, header: &str| {
        CaClient::new(CaSettings {
            address: address.to_owned(),
            headers: vec![("x-extra".to_owned(), header.to_owned())],
            ..settings(TokenSource::None)
        })
    };
    assert!(matches!(
        with("not an address", "1"),
        Err(CaError::Address { .. })
    ));
    assert!(matches!(
        with("https://istiod:15012", "line\nbreak"),
        Err(CaError::Header { .. })
    ));
}

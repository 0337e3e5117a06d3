//! Policies of requests at the waypoint.

use lateen_exchange::Protocol;
use lateen_hbone::ConnectError;
use lateen_http::Known;
use lateen_proto::l7::access_log::Encoding;
use lateen_proto::l7::{
    Action, Operation, PathMatch, Rule, Source, StringMatch, path_match, string_match::Match,
};
use lateen_proto::workload::AppProtocol;

use super::application::{Application, tell};
use super::world::{World, local};
use super::{answer, connection, get, head};
use crate::testing::until;

fn exact(text: &str) -> StringMatch {
    StringMatch {
        r#match: Some(Match::Exact(text.to_owned())),
    }
}

/// Requests with this method, whoever sends them.
pub fn method(method: &str) -> Rule {
    Rule {
        to: vec![Operation {
            methods: vec![exact(method)],
            ..Operation::default()
        }],
        ..Rule::default()
    }
}

/// Everything that this service account sends.
pub fn from(account: &str) -> Rule {
    Rule {
        from: vec![Source {
            principals: vec![exact(&format!("cluster.local/ns/default/sa/{account}"))],
            ..Source::default()
        }],
        ..Rule::default()
    }
}

/// Requests whose path begins so, whoever sends them.
pub fn path(prefix: &str) -> Rule {
    Rule {
        to: vec![Operation {
            paths: vec![PathMatch {
                r#match: Some(path_match::Match::Text(StringMatch {
                    r#match: Some(Match::Prefix(prefix.to_owned())),
                })),
            }],
            ..Operation::default()
        }],
        ..Rule::default()
    }
}

#[test]
fn get_passes_and_delete_is_403_with_the_policys_name_in_the_log() {
    local(async {
        let mut world = World::start().await;
        world.put_policy("no-delete", Action::Deny, vec![method("DELETE")]);
        world.configure().await;
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let application = Application::plain(world.endpoint(), protocol, tell).await;
            let client = connection(world.stream().await, protocol);
            assert_eq!(get(&client, "GET", "/reviews").await.0, 200);
            let denied = get(&client, "DELETE", "/reviews").await;
            assert_eq!(denied, (403, "RBAC: access denied".to_owned()));
            // The connection goes on.
            assert_eq!(get(&client, "GET", "/reviews").await.0, 200);
            assert_eq!(application.requests.get(), 2);
        }
        let line = world.logged(&["method=\"DELETE\"", "status=403"]).await;
        assert!(line.contains("policy=default/no-delete"), "{line}");
        let labels = ["reporter=\"waypoint\"", "response_code=\"403\""];
        assert_eq!(world.metric("istio_requests_total", &labels), Some(2.0));
    });
}

#[test]
fn an_allow_policy_admits_its_peers_alone_and_a_change_holds_for_open_connections() {
    local(async {
        let mut world = World::start().await;
        world.put_policy("friends", Action::Allow, vec![from("client")]);
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/").await.0, 200);
        let stranger = world.tunnel("stranger").await;
        let request = lateen_hbone::ConnectRequest::new(world.vip());
        let (stream, _) = stranger.connect(&request).await.unwrap();
        let stranger = connection(stream, Protocol::Http1);
        assert_eq!(get(&stranger, "GET", "/").await.0, 403);
        world.rules.clear();
        world.put_policy("friends", Action::Allow, vec![from("stranger")]);
        world.configure().await;
        assert_eq!(get(&client, "GET", "/").await.0, 403);
        assert_eq!(get(&stranger, "GET", "/").await.0, 200);
    });
}

#[test]
fn policies_see_the_canonical_path() {
    local(async {
        let mut world = World::start().await;
        world.put_policy("no-admin", Action::Deny, vec![path("/admin")]);
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, tell).await;
        let client = connection(world.stream().await, Protocol::Http2);
        for path in ["/admin", "/x/../admin", "/%61dmin", "/.//admin/../admin?a"] {
            let status = get(&client, "GET", path).await.0;
            // `//` stays in the path at the level BASE.
            let expected = if path.contains("//") { 200 } else { 403 };
            assert_eq!(status, expected, "{path}");
        }
    });
}

#[test]
fn a_client_of_grpc_gets_the_status_for_permission_denied() {
    local(async {
        let mut world = World::start().await;
        world.put_policy("none", Action::Allow, vec![from("nobody")]);
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        let exchange = client
            .request(&head("POST", "/a.B/C", &fields), None)
            .unwrap();
        let (answered, _) = answer(&exchange).await;
        assert_eq!(answered.status().code(), 200);
        assert_eq!(answered.fields().get(Known::GrpcStatus), Some(&b"7"[..]));
        // Counters and the log have what the client got.
        let labels = [
            "reporter=\"waypoint\"",
            "request_protocol=\"grpc\"",
            "response_code=\"200\"",
            "grpc_response_status=\"7\"",
        ];
        until("it is counted", || {
            world.metric("istio_requests_total", &labels) == Some(1.0)
        })
        .await;
        world
            .logged(&["/a.B/C", "status=200", "grpc_status=7"])
            .await;
    });
}

#[test]
fn a_call_of_grpc_without_an_endpoint_is_counted_as_unavailable() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Grpc);
        world.log_in(
            Encoding::Text,
            "%REQ(:PATH)% %RESPONSE_CODE% %GRPC_STATUS% %UPSTREAM_HOST% %DOWNSTREAM_LOCAL_ADDRESS%",
        );
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        let exchange = client
            .request(&head("POST", "/a.B/Nobody", &fields), None)
            .unwrap();
        let (answered, _) = answer(&exchange).await;
        assert_eq!(answered.fields().get(Known::GrpcStatus), Some(&b"14"[..]));
        let labels = [
            "response_code=\"200\"",
            "grpc_response_status=\"14\"",
            "response_flags=\"UH\"",
        ];
        until("it is counted", || {
            world.metric("istio_requests_total", &labels) == Some(1.0)
        })
        .await;
        world.logged(&["/a.B/Nobody 200 Unavailable"]).await;
    });
}

#[test]
fn where_tokens_are_looked_for_a_request_with_one_gets_401_and_one_without_passes() {
    local(async {
        let mut world = World::start().await;
        world.put_token_rule("tokens");
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/").await.0, 200);
        assert_eq!(get(&client, "GET", "/?access_token=x").await.0, 401);
        let fields = [("authorization", "Bearer e30.e30.e30")];
        let exchange = client.request(&head("GET", "/", &fields), None).unwrap();
        let (refused, _) = answer(&exchange).await;
        assert_eq!(refused.status().code(), 401);
        let challenge = refused.fields().get(Known::WwwAuthenticate);
        assert_eq!(challenge, Some(&br#"Bearer error="invalid_token""#[..]));
        world
            .logged(&["request complete", "status=401", "tokens are not verified"])
            .await;
    });
}

#[test]
fn a_custom_policy_refuses_before_tokens_are_looked_at() {
    local(async {
        let mut world = World::start().await;
        world.put_token_rule("tokens");
        world.put_policy("ask", Action::Custom, vec![method("POST")]);
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "POST", "/?access_token=x").await.0, 403);
        world.logged(&["status=403", "policy=default/ask"]).await;
    });
}

#[test]
fn a_policy_of_requests_decides_about_connections_by_what_is_left_of_it() {
    local(async {
        for (action, rule) in [
            (Action::Deny, method("DELETE")),
            (Action::Allow, method("GET")),
        ] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, AppProtocol::Tcp);
            world.put_plain_endpoint("server", "app", 3);
            world.put_policy("requests", action, vec![rule]);
            world.configure().await;
            match world.ask(world.vip()).await.unwrap_err() {
                ConnectError::Refused { status } => assert_eq!(status, 401),
                other => panic!("{other}"),
            }
            world.logged(&["policy rejection"]).await;
        }
    });
}

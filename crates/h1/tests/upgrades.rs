//! Protocol switches and CONNECT: bytes of another protocol exist behind an accepted answer alone.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h1::{
    ClientConnection, ClientEvent, Config, Error, Length, ServerConnection, ServerEvent, WriteError,
};

const UPGRADE: &str =
    "GET /chat HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n";
const CONNECT: &str = "CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n";
const NEXT: &str = "GET /next HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn an_accepted_upgrade_becomes_a_tunnel() {
    let (mut server, head, _) = opened(UPGRADE);
    assert!(head.asks_for_upgrade() && !head.is_connect());
    server
        .respond(101, [field("upgrade", "websocket")], Length::None)
        .unwrap();
    let mut tunnel = server.into_tunnel().expect("a tunnel");
    tunnel.send(Bytes::from_static(b"frames"));
    assert_eq!(
        text(&written(tunnel.output())),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nframes"
    );
    tunnel.advance(tunnel.queued());
    assert_eq!(tunnel.output().count(), 0);
}

#[test]
fn bytes_before_the_answer_are_kept_and_read_by_no_parser() {
    for (request, status) in [(UPGRADE, 101), (CONNECT, 200)] {
        let (mut server, _, mut input) = opened(&format!("{request}{NEXT}"));
        for _ in 0..3 {
            assert!(server.receive(&mut input).unwrap().is_none());
        }
        assert!(!server.wants_input(), "no more is read");
        let fields = [field("upgrade", "websocket")];
        server
            .respond(
                status,
                fields.into_iter().take(usize::from(status == 101)),
                Length::None,
            )
            .unwrap();
        assert!(server.receive(&mut input).unwrap().is_none());
        let mut tunnel = server.into_tunnel().expect("a tunnel");
        assert_eq!(tunnel.receive(&mut input), NEXT.as_bytes());
    }
}

#[test]
fn there_is_no_tunnel_without_an_accepted_answer() {
    for request in [UPGRADE, CONNECT, NEXT] {
        let (server, _, _) = opened(request);
        let server = server.into_tunnel().expect_err("no answer yet");
        let mut server = *server;
        server.respond(403, [], Length::None).unwrap();
        assert!(server.into_tunnel().is_err(), "{request:?}");
    }
    let mut client = asked("CONNECT");
    client
        .receive(&mut Bytes::from_static(
            b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n",
        ))
        .unwrap();
    assert!(client.into_tunnel().is_err());
}

#[test]
fn a_switch_needs_a_request_for_it() {
    let upgrade = [field("upgrade", "websocket")];
    for request in [
        NEXT,
        CONNECT,
        "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\n\r\n",
        "GET / HTTP/1.0\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ] {
        let (mut server, head, _) = opened(request);
        assert!(!head.asks_for_upgrade());
        assert_eq!(
            server.respond(101, upgrade, Length::None),
            Err(WriteError::Upgrade),
            "{request:?}"
        );
        assert_eq!(server.queued(), 0);
    }
    let (mut server, _, _) = opened(UPGRADE);
    assert_eq!(
        server.respond(101, [], Length::None),
        Err(WriteError::Upgrade),
        "an Upgrade field is due"
    );
    assert_eq!(
        server.respond(101, upgrade, Length::Known(1)),
        Err(WriteError::Content)
    );
    server.respond(101, upgrade, Length::None).unwrap();
}

#[test]
fn a_switch_waits_for_the_end_of_the_request() {
    let post = UPGRADE
        .replace("GET", "POST")
        .replace("host", "content-length: 2\r\nhost");
    let (mut server, _, _) = opened(&post);
    let upgrade = [field("upgrade", "websocket")];
    assert_eq!(
        server.respond(101, upgrade, Length::None),
        Err(WriteError::Upgrade)
    );
    let mut input = Bytes::from_static(b"abframes");
    assert!(matches!(
        server.receive(&mut input),
        Ok(Some(ServerEvent::Data { end: true, .. }))
    ));
    server.respond(101, upgrade, Length::None).unwrap();
    assert_eq!(
        &server.into_tunnel().unwrap().receive(&mut input)[..],
        b"frames"
    );
}

#[test]
fn a_refused_upgrade_goes_on_with_the_next_request() {
    let (mut server, _, _) = opened(UPGRADE);
    server.respond(200, [], Length::None).unwrap();
    assert!(server.is_idle());
    let mut input = Bytes::from_static(NEXT.as_bytes());
    assert!(matches!(
        server.receive(&mut input),
        Ok(Some(ServerEvent::Request { .. }))
    ));
}

#[test]
fn early_bytes_behind_a_refused_switch_are_no_request() {
    for request in [UPGRADE, CONNECT] {
        let (mut server, _, mut input) = opened(&format!("{request}{NEXT}"));
        assert!(server.receive(&mut input).unwrap().is_none());
        server.respond(403, [], Length::None).unwrap();
        assert!(
            flush(&mut server).contains("connection: close"),
            "{request:?}"
        );
        assert!(server.receive(&mut input).unwrap().is_none() && server.is_done());
    }
    let (mut server, _, _) = opened(CONNECT);
    server.respond(403, [], Length::None).unwrap();
    flush(&mut server);
    assert!(
        server.is_done(),
        "a refused CONNECT closes although nothing came early"
    );
}

#[test]
fn a_clients_tunnel_exists_behind_the_accepted_answer_alone() {
    let mut client = asked("CONNECT");
    let mut input = Bytes::from_static(
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nserver first",
    );
    assert!(matches!(
        client.receive(&mut input),
        Ok(Some(ClientEvent::Informational(_)))
    ));
    let mut client = *client.into_tunnel().unwrap_err();
    assert!(matches!(
        client.receive(&mut input),
        Ok(Some(ClientEvent::Tunnel(_)))
    ));
    assert!(client.receive(&mut input).unwrap().is_none());
    let mut tunnel = client.into_tunnel().unwrap();
    assert_eq!(
        &tunnel.receive(&mut input)[..],
        b"server first",
        "fields of the answer announce no content"
    );
}

#[test]
fn a_client_upgrades_if_it_asked_and_the_answer_agrees() {
    let asked = || {
        let mut client = ClientConnection::new(Config::default());
        client
            .request(
                b"GET",
                b"/",
                [field("host", "a"), field("upgrade", "x")],
                Length::None,
            )
            .unwrap();
        assert_eq!(
            flush_client(&mut client),
            "GET / HTTP/1.1\r\nhost: a\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
        );
        client
    };
    let mut good =
        Bytes::from_static(b"HTTP/1.1 101 x\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    assert!(matches!(
        asked().receive(&mut good),
        Ok(Some(ClientEvent::Tunnel(_)))
    ));
    let mut vague = Bytes::from_static(b"HTTP/1.1 101 x\r\n\r\n");
    assert_eq!(
        asked().receive(&mut vague).unwrap_err(),
        Error::UnaskedSwitch
    );
}

#[test]
fn an_upgrade_is_complete_when_the_request_is() {
    let mut client = ClientConnection::new(Config::default());
    client
        .request(
            b"POST",
            b"/",
            [field("host", "a"), field("upgrade", "x")],
            Length::Known(1),
        )
        .unwrap();
    client
        .receive(&mut Bytes::from_static(
            b"HTTP/1.1 101 x\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        ))
        .unwrap();
    let mut client = *client.into_tunnel().unwrap_err();
    client.send(Bytes::from_static(b"a")).unwrap();
    assert!(client.into_tunnel().is_ok());
}

#[test]
fn a_half_closed_client_can_be_switched() {
    let (mut server, _, _) = opened(CONNECT);
    server.end_of_input().unwrap();
    server.respond(200, [], Length::None).unwrap();
    assert!(server.into_tunnel().is_ok());
    assert!(
        ServerConnection::new(Config::default())
            .into_tunnel()
            .is_err()
    );
}

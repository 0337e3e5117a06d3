//! Conditions on tokens, which nobody verifies yet: no action fails open.

use lateen_http::FieldName;
use lateen_policy::StringMatch;
use lateen_policy::request::{
    ConditionMatch, RequestAction, RequestRule, SourceMatch, TokenField, TokenPlaces, Values,
};

use super::support::*;

/// Each condition on a token.
fn rules(values: &Values<StringMatch>) -> Vec<RequestRule> {
    let source = from(SourceMatch {
        request_principals: values.clone(),
        ..SourceMatch::default()
    });
    let claim = ConditionMatch::TokenClaim(vec!["groups".into()], values.clone());
    let conditions = [
        ConditionMatch::TokenPrincipal(values.clone()),
        ConditionMatch::TokenAudiences(values.clone()),
        ConditionMatch::TokenPresenter(values.clone()),
        claim,
    ];
    std::iter::once(source)
        .chain(conditions.into_iter().map(when))
        .collect()
}

#[test]
fn tokens_admit_nobody_and_count_against_everybody() {
    use RequestAction::{Allow, Audit, Custom, Deny};
    let positive = any(&["*"], text);
    let negative = not(&["issuer/mallory"], text);
    let both = Values {
        any: positive.any.clone(),
        not: negative.not.clone(),
    };
    for (values, with_token, without, in_allow_without) in [
        (positive, true, false, false),
        (negative, true, true, true),
        (both, true, false, false),
    ] {
        for rule in rules(&values) {
            for (action, token, expected) in [
                (Allow, true, false),
                (Allow, false, in_allow_without),
                (Deny, true, with_token),
                (Deny, false, without),
                (Custom, true, with_token),
                (Custom, false, without),
                (Audit, true, with_token),
                (Audit, false, without),
            ] {
                let policies = compiled([policy("p", action, vec![rule.clone()])]);
                let request = Request {
                    token,
                    ..Request::default()
                };
                let peer = policies.peer(&facts(None));
                let allowed = policies.decide(&peer, &request).is_allow();
                let matched = match action {
                    Allow => allowed,
                    Deny | Custom => !allowed,
                    Audit => !policies.reports(&peer, &request).audited.is_empty(),
                };
                assert_eq!(matched, expected, "{action:?} {token} {rule:?}");
            }
        }
    }
}

#[test]
fn another_source_of_an_allow_rule_admits_a_request_with_a_token() {
    let mut rule = from(SourceMatch {
        request_principals: any(&["*"], text),
        ..SourceMatch::default()
    });
    rule.from.push(SourceMatch {
        namespaces: any(&["shop"], text),
        ..SourceMatch::default()
    });
    let policies = compiled([policy("p", RequestAction::Allow, vec![rule])]);
    let request = Request {
        token: true,
        ..Request::default()
    };
    let peer = peer("shop", "web");
    assert!(
        policies
            .decide(&policies.peer(&facts(Some(&peer))), &request)
            .is_allow()
    );
    assert!(
        !policies
            .decide(&policies.peer(&facts(None)), &request)
            .is_allow()
    );
}

#[test]
fn a_token_is_found_in_the_default_places() {
    let places = TokenPlaces::default();
    for (request, expected) in [
        (Request::default(), false),
        (
            Request::default().with("authorization", "Bearer a.b.c"),
            true,
        ),
        (
            Request::default().with("Authorization", "bearer a.b.c"),
            true,
        ),
        (Request::default().with("authorization", "Bearer"), true),
        (
            Request::default().with("authorization", "Basic YTpi"),
            false,
        ),
        (
            Request::default()
                .with("authorization", "Basic YTpi")
                .with("authorization", "Bearer x"),
            true,
        ),
        (Request::get("/?access_token=a.b.c"), true),
        (Request::get("/?x=1&access_token"), true),
        (Request::get("/?access%5Ftoken=a"), true),
        (Request::get("/?access%5ftoken=a"), true),
        (Request::get("/?ACCESS_TOKEN=a"), false),
        (Request::get("/?x=access_token"), false),
        (Request::get("/access_token=a"), false),
        (Request::get("/?access_token%"), false),
        (Request::default().with("cookie", "access_token=a"), false),
    ] {
        assert_eq!(places.has_token(&request), expected, "{request:?}");
    }
}

#[test]
fn a_token_is_found_in_the_places_of_a_rule() {
    let mut places = TokenPlaces::none();
    assert!(places.is_none() && !places.has_token(&Request::get("/?access_token=a")));
    let rule = TokenPlaces {
        fields: vec![TokenField {
            name: FieldName::new("x-jwt").unwrap(),
            prefix: "".into(),
        }],
        params: vec!["a b".into()],
        cookies: vec!["session".into()],
    };
    places.extend(&rule);
    places.extend(&rule);
    assert_eq!(places, rule);
    for (request, expected) in [
        (Request::default().with("x-jwt", ""), true),
        (Request::default().with("authorization", "Bearer a"), false),
        (Request::get("/?a+b=1"), true),
        (Request::get("/?a%20b=1"), true),
        (Request::default().with("cookie", "a=b; session=c"), true),
        (
            Request::default()
                .with("cookie", "a=b")
                .with("cookie", "session"),
            true,
        ),
        (
            Request::default().with("cookie", "a=session; xsession=c"),
            false,
        ),
    ] {
        assert_eq!(places.has_token(&request), expected, "{request:?}");
    }
}

//! Agreement with the parsers of the `http` crate. What this crate accepts the other accepts and reads alike.
//!
//! | input | here | `http` |
//! |---|---|---|
//! | control characters in a field value but HTAB | refused | refused |
//! | white space around a field value | trimmed | kept |
//! | a case variant of a registered method, PRI, a method of more than 64 bytes | refused | accepted |
//! | capital letters of a host, a trailing dot, leading zeros of a port | normalised | kept |
//! | a host with `%`, sub-delimiters, empty labels, a number at its end that is no IPv4 address | refused | accepted |
//! | user information | refused | accepted |
//! | a zone or a future version of an IP literal | refused | accepted |
//! | port 0 | refused | accepted |
//! | `#fragment` | refused | dropped |
//! | bytes beyond ASCII in a path | refused | accepted |
//! | malformed escapes, `%00`, overlong UTF-8 | refused | accepted |
//! | dot segments, escapes of unreserved characters, `\` | normalised | kept |
//! | `"`, `<`, `>`, `\`, `^`, `` ` `` and `|` in a path | accepted | partly refused |
//! | status 000 to 099 | refused | refused |

use bytes::Bytes;
use lateen_http::*;
use proptest::prelude::*;

fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}",
        "[ -~]{0,8}",
        prop::sample::select(vec![
            "Host",
            "Content-Length",
            "get",
            "GET",
            "PRI",
            "Patch",
            "x:y",
            "a\u{e9}"
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn field_names_are_read_alike(name in token()) {
        let theirs = http::HeaderName::from_bytes(name.as_bytes()).ok();
        let ours = FieldName::new(&name);
        prop_assert_eq!(ours.as_ref().map(FieldName::as_str), theirs.as_ref().map(http::HeaderName::as_str));
    }

    #[test]
    fn field_values_are_read_alike(value in prop::collection::vec(prop_oneof![3 => 32u8..127, 1 => any::<u8>()], 0..24)) {
        let theirs = http::HeaderValue::from_bytes(&value).ok();
        let ours = FieldValue::new(Bytes::from(value.clone()));
        prop_assert_eq!(ours.is_some(), theirs.is_some());
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
            let theirs = theirs.as_bytes();
            let start = theirs.iter().position(|byte| !is_blank(byte)).unwrap_or(theirs.len());
            let end = theirs.iter().rposition(|byte| !is_blank(byte)).map_or(start, |at| at + 1);
            prop_assert_eq!(ours.as_bytes(), &theirs[start..end]);
        }
    }

    #[test]
    fn methods_are_read_alike(method in token()) {
        let theirs = http::Method::from_bytes(method.as_bytes()).ok();
        match Method::new(&method) {
            Some(ours) => {
                let theirs = theirs.expect("the other accepts it");
                prop_assert_eq!(ours.as_bytes(), theirs.as_str().as_bytes());
            }
            None => {
                let registered = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI"];
                let is_variant = registered.iter().any(|other| other.eq_ignore_ascii_case(&method));
                let is_other_variant = Method::new(&method.to_ascii_uppercase()).is_some();
                prop_assert!(theirs.is_none() || is_variant || is_other_variant, "{}", method);
            }
        }
    }

    #[test]
    fn statuses_are_read_alike(status in "[0-9]{2,4}|[ -~]{3}") {
        let theirs = http::StatusCode::from_bytes(status.as_bytes()).ok();
        prop_assert_eq!(Status::parse(status.as_bytes()).map(Status::code), theirs.map(|status| status.as_u16()));
    }

    #[test]
    fn accepted_authorities_are_accepted_and_split_alike(authority in "[a-zA-Z0-9.:\\[\\]_@-]{0,20}|[a-z]{1,5}(\\.[a-z]{1,5}){0,3}\\.?(:[0-9]{1,5})?|\\[[0-9a-f:]{2,12}\\](:[0-9]{1,4})?") {
        if let Ok(ours) = Authority::new(&authority) {
            let theirs: http::uri::Authority = authority.parse().expect("the other accepts it");
            let host = theirs.host().to_ascii_lowercase();
            let host = host.strip_suffix('.').unwrap_or(&host);
            if !host.starts_with('[') {
                prop_assert_eq!(ours.host(), host.as_bytes());
            }
            prop_assert_eq!(ours.port(), theirs.port_u16());
        }
    }

    #[test]
    fn accepted_paths_are_accepted_and_split_alike(target in "/[a-zA-Z0-9/.;%=&?+~:@!$'()*,_-]{0,24}") {
        let rules = PathRules { level: PathLevel::None, parameters: Parameters::Keep };
        if let Ok(ours) = Path::new(&target, rules) {
            let theirs: http::uri::PathAndQuery = target.parse().expect("the other accepts it");
            prop_assert_eq!(ours.as_bytes(), theirs.path().as_bytes());
            prop_assert_eq!(ours.query(), theirs.query().map(str::as_bytes));
            prop_assert_eq!(ours.target(), theirs.as_str().as_bytes());
        }
    }

    #[test]
    fn canonical_forms_are_accepted_by_the_other(target in "/[ -~]{0,24}", authority in "[ -~]{0,16}") {
        if let Ok(path) = Path::new(&target, PathRules::default()) && !target.contains(['"', '<', '>', '^', '`', '|', '{', '}']) {
            prop_assert!(http::uri::PathAndQuery::try_from(path.target()).is_ok(), "{:?}", path);
        }
        if let Ok(authority) = Authority::new(&authority) {
            prop_assert!(http::uri::Authority::try_from(authority.as_bytes()).is_ok(), "{:?}", authority);
        }
    }
}

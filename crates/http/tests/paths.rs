//! Paths: one form at each level, and no disguise for dot segments.

use lateen_http::{Cause, Parameters, Path, PathLevel, PathRules};
use proptest::prelude::*;

const LEVELS: [PathLevel; 4] = [
    PathLevel::None,
    PathLevel::Base,
    PathLevel::MergeSlashes,
    PathLevel::DecodeAndMergeSlashes,
];

fn rules(level: PathLevel) -> PathRules {
    PathRules {
        level,
        parameters: Parameters::Keep,
    }
}

fn canonical(path: &str, rules: PathRules) -> Result<String, Cause> {
    Path::new(path, rules).map(|path| String::from_utf8_lossy(path.target()).into_owned())
}

#[test]
fn a_path_that_escapes_make_too_long_is_refused() {
    let long = |count: usize| format!("/{}", "{".repeat(count));
    let rules = rules(PathLevel::Base);
    let shortened = |path: &str| canonical(path, rules).map(|path| path.len());
    assert_eq!(shortened(&long(21_844)), Ok(65_533));
    let limit = 65_535;
    for path in [long(21_845), long(65_000)] {
        assert_eq!(shortened(&path), Err(Cause::TargetTooLong { limit }));
    }
}

#[test]
fn paths_have_one_form_at_each_level() {
    use Cause::*;
    let same = |text: &str| {
        [
            Ok(text.to_owned()),
            Ok(text.to_owned()),
            Ok(text.to_owned()),
            Ok(text.to_owned()),
        ]
    };
    let all = |none: Result<&str, Cause>,
               base: Result<&str, Cause>,
               merge: Result<&str, Cause>,
               decode: Result<&str, Cause>| {
        [none, base, merge, decode].map(|result| result.map(str::to_owned))
    };
    for (path, expected) in [
        ("/", same("/")),
        ("/a/b", same("/a/b")),
        ("/.well-known/x", same("/.well-known/x")),
        ("/a...", same("/a...")),
        ("/.../a", same("/.../a")),
        ("/a?b=..%2f#".trim_end_matches('#'), same("/a?b=..%2f")),
        ("/a?//../", same("/a?//../")),
        ("/a;x=1/b", same("/a;x=1/b")),
        ("/a%20b", same("/a%20b")),
        ("/a[b]*='", same("/a[b]*='")),
        (
            "/a\"<>^`{|}/b?{",
            all(
                Ok("/a\"<>^`{|}/b?{"),
                Ok("/a%22%3C%3E%5E%60%7B%7C%7D/b?{"),
                Ok("/a%22%3C%3E%5E%60%7B%7C%7D/b?{"),
                Ok("/a%22%3C%3E%5E%60%7B%7C%7D/b?{"),
            ),
        ),
        (
            "/a%25%32%65",
            all(
                Ok("/a%25%32%65"),
                Ok("/a%252e"),
                Ok("/a%252e"),
                Ok("/a%252e"),
            ),
        ),
        (
            "/%41%7e",
            all(Ok("/%41%7e"), Ok("/A~"), Ok("/A~"), Ok("/A~")),
        ),
        (
            "/%e4%bd%a0",
            all(
                Ok("/%e4%bd%a0"),
                Ok("/%E4%BD%A0"),
                Ok("/%E4%BD%A0"),
                Ok("/%E4%BD%A0"),
            ),
        ),
        (
            "/a\\b",
            all(Ok("/a\\b"), Ok("/a/b"), Ok("/a/b"), Ok("/a/b")),
        ),
        (
            "/a%2Fb",
            all(Ok("/a%2Fb"), Ok("/a%2Fb"), Ok("/a%2Fb"), Ok("/a/b")),
        ),
        (
            "/a%5cb",
            all(Ok("/a%5cb"), Ok("/a%5Cb"), Ok("/a%5Cb"), Ok("/a/b")),
        ),
        (
            "//a///b//",
            all(Ok("//a///b//"), Ok("//a///b//"), Ok("/a/b/"), Ok("/a/b/")),
        ),
        (
            "/a%2f%2fb",
            all(
                Ok("/a%2f%2fb"),
                Ok("/a%2F%2Fb"),
                Ok("/a%2F%2Fb"),
                Ok("/a/b"),
            ),
        ),
        (
            "/a/./b",
            all(Err(PathDots), Ok("/a/b"), Ok("/a/b"), Ok("/a/b")),
        ),
        ("/a/../b", all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b"))),
        ("/a/..", all(Err(PathDots), Ok("/"), Ok("/"), Ok("/"))),
        (
            "/a/b/..",
            all(Err(PathDots), Ok("/a/"), Ok("/a/"), Ok("/a/")),
        ),
        ("/a/.", all(Err(PathDots), Ok("/a/"), Ok("/a/"), Ok("/a/"))),
        ("/../../a", all(Err(PathDots), Ok("/a"), Ok("/a"), Ok("/a"))),
        ("/..", all(Err(PathDots), Ok("/"), Ok("/"), Ok("/"))),
        // Dots go before slashes merge, as in Envoy.
        (
            "/a//../b",
            all(Err(PathDots), Ok("/a/b"), Ok("/a/b"), Ok("/a/b")),
        ),
        (
            "/a/%2e%2E/b",
            all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b")),
        ),
        (
            "/a/.%2e/b",
            all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b")),
        ),
        (
            "/a\\..\\b",
            all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b")),
        ),
        (
            "/a/..;x=y/b",
            all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b")),
        ),
        ("/a/..;/b", all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b"))),
        (
            "/a/.;x/b",
            all(Err(PathDots), Ok("/a/b"), Ok("/a/b"), Ok("/a/b")),
        ),
        (
            "/a/%2e.;x/b",
            all(Err(PathDots), Ok("/b"), Ok("/b"), Ok("/b")),
        ),
        (
            "/a/..%2fb",
            all(
                Err(PathDots),
                Err(PathEncodedDots),
                Err(PathEncodedDots),
                Ok("/b"),
            ),
        ),
        (
            "/a%5c..%5Cb",
            all(
                Err(PathDots),
                Err(PathEncodedDots),
                Err(PathEncodedDots),
                Ok("/b"),
            ),
        ),
        (
            "/a/..%3bx/b",
            all(
                Err(PathEncodedDots),
                Err(PathEncodedDots),
                Err(PathEncodedDots),
                Err(PathEncodedDots),
            ),
        ),
        (
            "/;%2F./b",
            all(
                Err(PathDots),
                Err(PathEncodedDots),
                Err(PathEncodedDots),
                Ok("/;/b"),
            ),
        ),
        (
            "/a;..%2Fb",
            all(
                Ok("/a;..%2Fb"),
                Ok("/a;..%2Fb"),
                Ok("/a;..%2Fb"),
                Ok("/a;../b"),
            ),
        ),
        (
            "/a%00",
            all(Err(PathNul), Err(PathNul), Err(PathNul), Err(PathNul)),
        ),
        (
            "/a%",
            all(
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
            ),
        ),
        (
            "/a%2",
            all(
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
            ),
        ),
        (
            "/a%zz",
            all(
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
            ),
        ),
        (
            "/a%u002e",
            all(
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
            ),
        ),
        (
            "/%%32%66",
            all(
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
                Err(PathEscape),
            ),
        ),
        (
            "/a%c0%af",
            all(
                Err(PathOverlong),
                Err(PathOverlong),
                Err(PathOverlong),
                Err(PathOverlong),
            ),
        ),
        (
            "/a%e0%80%af",
            all(
                Err(PathOverlong),
                Err(PathOverlong),
                Err(PathOverlong),
                Err(PathOverlong),
            ),
        ),
        (
            "/a%f0%80%80%af",
            all(
                Err(PathOverlong),
                Err(PathOverlong),
                Err(PathOverlong),
                Err(PathOverlong),
            ),
        ),
        ("/%e9", all(Ok("/%e9"), Ok("/%E9"), Ok("/%E9"), Ok("/%E9"))),
        (
            "/a#b",
            all(Err(Fragment), Err(Fragment), Err(Fragment), Err(Fragment)),
        ),
        (
            "/a?b#c",
            all(Err(Fragment), Err(Fragment), Err(Fragment), Err(Fragment)),
        ),
        (
            "/a b",
            all(
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
            ),
        ),
        (
            "/a?b c",
            all(
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
            ),
        ),
        (
            "/a\0",
            all(
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
            ),
        ),
        (
            "/\u{e9}",
            all(
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
            ),
        ),
        (
            "/a?\u{e9}",
            all(
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
                Err(PathCharacter),
            ),
        ),
        ("a", all(Err(Target), Err(Target), Err(Target), Err(Target))),
        ("", all(Err(Target), Err(Target), Err(Target), Err(Target))),
        ("*", all(Err(Target), Err(Target), Err(Target), Err(Target))),
    ] {
        for (level, expected) in LEVELS.into_iter().zip(expected) {
            assert_eq!(
                canonical(path, rules(level)),
                expected,
                "{path:?} at {level:?}"
            );
        }
    }
}

#[test]
fn parameters_are_kept_dropped_or_refused() {
    for (path, drop) in [
        ("/admin;x=1/b;y", "/admin/b"),
        ("/;x/a", "//a"),
        ("/a;x;y", "/a"),
        ("/a/b;x/..", "/a/"),
        ("/;/../a", "/a"),
    ] {
        let with = |level, parameters| canonical(path, PathRules { level, parameters });
        assert_eq!(
            with(PathLevel::Base, Parameters::Drop).as_deref(),
            Ok(drop),
            "{path}"
        );
        assert_eq!(
            with(PathLevel::Base, Parameters::Refuse),
            Err(Cause::PathParameter),
            "{path}"
        );
        assert_eq!(
            with(PathLevel::None, Parameters::Refuse),
            Err(Cause::PathParameter),
            "{path}"
        );
    }
    let none = PathRules {
        level: PathLevel::None,
        parameters: Parameters::Drop,
    };
    assert_eq!(canonical("/a;x", none).as_deref(), Ok("/a;x"));
}

#[test]
fn the_query_is_apart_and_as_sent() {
    let path = Path::new("/a/../b?c=%2e&d=/../;e", PathRules::default()).expect("a path");
    assert_eq!(path.as_bytes(), b"/b");
    assert_eq!(path.query(), Some(&b"c=%2e&d=/../;e"[..]));
    assert_eq!(path.target(), b"/b?c=%2e&d=/../;e");
    assert_eq!(
        Path::new("/a", PathRules::default())
            .expect("a path")
            .query(),
        None
    );
    assert_eq!(
        Path::new("/a?", PathRules::default())
            .expect("a path")
            .query(),
        Some(&b""[..])
    );
}

/// Text in which the parts that matter are frequent.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => prop::sample::select(vec![
            "/", "/", "//", ".", "..", "/../", "/./", "\\", ";", ";x=1", "%2e", "%2E%2e", "%2f", "%2F", "%5c", "%3b", "%25",
            "%32", "%00", "%", "%c0%af", "%e2%82%ac", "?", "#", "a", "b", "%61", "%7F", " ", "~", "..;", "%2",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{1,3}",
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| format!("/{}", parts.concat()))
}

fn any_rules() -> impl Strategy<Value = PathRules> {
    let parameters = [Parameters::Keep, Parameters::Drop, Parameters::Refuse];
    (
        prop::sample::select(LEVELS.to_vec()),
        prop::sample::select(parameters.to_vec()),
    )
        .prop_map(|(level, parameters)| PathRules { level, parameters })
}

/// The segments that a lenient application sees: escapes decoded, `\` taken for `/`, parameters cut off.
fn lenient(path: &str) -> Vec<String> {
    let mut decoded = Vec::new();
    let bytes = path.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (bytes[at], byte) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    let text = String::from_utf8_lossy(&decoded).into_owned();
    text.split(['/', '\\'])
        .map(|segment| segment.split(';').next().unwrap_or_default().to_owned())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn canonicalisation_is_idempotent(target in text(), rules in any_rules()) {
        if let Ok(once) = canonical(&target, rules) {
            prop_assert_eq!(canonical(&once, rules), Ok(once.clone()), "{}", target);
        }
    }

    #[test]
    fn no_dot_segment_fragment_or_nul_survives(target in text(), rules in any_rules()) {
        if let Ok(path) = Path::new(&target, rules) {
            let path = String::from_utf8(path.as_bytes().to_vec()).expect("ASCII");
            prop_assert!(path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(!path.contains('#') && !path.contains('?') && !path.contains("%00"));
            for segment in lenient(&path) {
                prop_assert!(segment != ".." && segment != ".", "{} of {}", path, target);
            }
            if rules.level >= PathLevel::MergeSlashes {
                prop_assert!(!path.contains("//"), "{} of {}", path, target);
            }
            if rules.level >= PathLevel::Base {
                prop_assert!(!path.contains('\\'));
                prop_assert!(!path.contains("%2e") && !path.contains("%2E") && !path.contains("%41"));
            }
            if rules.level == PathLevel::DecodeAndMergeSlashes {
                prop_assert!(!path.contains("%2F") && !path.contains("%5C"));
            }
        }
    }

    #[test]
    fn the_query_never_changes(target in text(), rules in any_rules()) {
        if let Ok(path) = Path::new(&target, rules) {
            let query = target.split_once('?').map(|(_, query)| query.as_bytes());
            prop_assert_eq!(path.query(), query);
        }
    }

    #[test]
    fn ordinary_paths_agree_with_a_naive_rfc_3986(segments in prop::collection::vec(prop::sample::select(vec!["a", "b", ".", "..", ""]), 0..8)) {
        let target = format!("/{}", segments.join("/"));
        let mut stack: Vec<&str> = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            let is_last = at + 1 == segments.len();
            match *segment {
                "." => if is_last { stack.push("") },
                ".." => {
                    stack.pop();
                    if is_last { stack.push("") }
                }
                other => stack.push(other),
            }
        }
        let expected = format!("/{}", stack.join("/"));
        prop_assert_eq!(canonical(&target, rules(PathLevel::Base)), Ok(expected));
    }
}

//! Path templates.

use lateen_policy::request::{PathTemplate, TemplateError};
use proptest::prelude::*;

#[test]
fn operators_stand_for_segments() {
    for (template, path, expected) in [
        ("/foo/{*}", "/foo/bar", true),
        ("/foo/{*}", "/foo/", false),
        ("/foo/{*}", "/foo", false),
        ("/foo/{*}", "/foo/bar/baz", false),
        ("/foo/{*}", "/foo/bar/", false),
        ("/foo/{*}/", "/foo/bar/", true),
        ("/foo/{*}/", "/foo/bar", false),
        ("/{*}/bar", "/foo/bar", true),
        ("/{*}/bar", "//bar", false),
        ("/{*}.txt", "/a.txt", true),
        ("/{*}.txt", "/.txt", false),
        ("/{*}.txt", "/a/b.txt", false),
        ("/foo/{**}", "/foo/", true),
        ("/foo/{**}", "/foo/bar/baz", true),
        ("/foo/{**}", "/foo", false),
        ("/foo/{**}", "/foobar", false),
        ("/{**}", "/", true),
        ("/{**}.css", "/a/b.css", true),
        ("/{**}.css", "/.css", true),
        ("/{**}.css", "/a/b.js", false),
        ("/a/{**}/end", "/a/b/c/end", true),
        ("/a/{**}/end", "/a//end", true),
        ("/a/{**}/end", "/a/end", false),
        ("/{*}/x/{**}", "/a/x/y/z", true),
        ("/{*}/x/{**}", "/a/y/x/z", false),
        ("/foo//{*}", "/foo//bar", true),
        ("/foo//{*}", "/foo/bar", false),
        ("/Foo/{*}", "/foo/bar", false),
        ("/a.b/{*}", "/aXb/c", false),
    ] {
        let template = PathTemplate::new(template).expect("a template");
        assert_eq!(
            template.matches(path.as_bytes()),
            expected,
            "{template} {path}"
        );
    }
}

#[test]
fn every_byte_is_part_of_a_segment() {
    let (one, many) = (
        PathTemplate::new("/a/{*}").unwrap(),
        PathTemplate::new("/a/{**}").unwrap(),
    );
    for byte in (1..=255).filter(|byte| *byte != b'/') {
        let path = [b"/a/".as_slice(), &[byte]].concat();
        assert!(one.matches(&path) && many.matches(&path), "{byte:#x}");
    }
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    for (text, reason) in [
        ("foo/{*}", "does not begin with /"),
        ("", "does not begin with /"),
        ("/foo/{bar}/{*}", "neither {*}, {**} nor plain text"),
        ("/foo/{x=*}", "neither {*}, {**} nor plain text"),
        ("/foo/*/{*}", "neither {*}, {**} nor plain text"),
        ("/foo/a{*}", "neither {*}, {**} nor plain text"),
        ("/{*}a/b", "neither {*}, {**} nor plain text"),
        ("/{*}/a?b", "neither {*}, {**} nor plain text"),
        ("/{**}/{*}", "must be the last one"),
        ("/{**}{**}", "must be the last one"),
        ("/{*}{*}", "neither {*}, {**} nor plain text"),
        ("/{*}/\u{e9}", "neither {*}, {**} nor plain text"),
    ] {
        let error: TemplateError = PathTemplate::new(text).expect_err(text);
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
}

/// Whether a template covers a path, by trying all ways to take bytes.
fn naive(template: &str, path: &[u8]) -> bool {
    if let Some(rest) = template.strip_prefix("{**}") {
        return (0..=path.len()).any(|taken| naive(rest, &path[taken..]));
    }
    if let Some(rest) = template.strip_prefix("{*}") {
        let segment = path.iter().take_while(|&&byte| byte != b'/').count();
        return (1..=segment).any(|taken| naive(rest, &path[taken..]));
    }
    match template.as_bytes() {
        [] => path.is_empty(),
        [first, ..] => path.first() == Some(first) && naive(&template[1..], &path[1..]),
    }
}

proptest! {
    #[test]
    fn covers_what_a_search_covers(
        template in prop::collection::vec(
            prop::sample::select(vec!["/", "a", "b", "/{*}", "/{**}", "/a", ".x"]), 1..6),
        paths in prop::collection::vec("[/ab.x]{0,9}", 1..10),
    ) {
        let template = template.concat();
        if let Ok(parsed) = PathTemplate::new(&template) {
            for path in paths {
                let path = format!("/{path}");
                let expected = naive(&template, path.as_bytes());
                prop_assert_eq!(parsed.matches(path.as_bytes()), expected, "{} {}", template, path);
                prop_assert!(!expected || path.starts_with(parsed.literal_prefix()));
            }
        }
    }
}

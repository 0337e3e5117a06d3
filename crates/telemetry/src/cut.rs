//! The bound on texts in lines of the access log. Clients choose paths, fields and names, and a head may have 60 KiB.

use std::borrow::Cow;

/// The most bytes of a text that a line shows.
pub const LONGEST_TEXT: usize = 4096;

/// The text, or the beginning of one that is longer than [`LONGEST_TEXT`], with a mark behind it such as `...<60000_bytes>`.
///
/// The mark has no space, so a reader that splits a line at spaces finds the same fields. No path has its `<`.
#[inline]
pub fn cut_text(text: &[u8]) -> Cow<'_, [u8]> {
    match text.len() <= LONGEST_TEXT {
        true => Cow::Borrowed(text),
        false => Cow::Owned(cut(text)),
    }
}

#[cold]
fn cut(text: &[u8]) -> Vec<u8> {
    let is_inside = |at: &usize| matches!(text[*at], 0x80..=0xbf);
    // A character of UTF-8 has at most three bytes behind its first one.
    let mut ends = (LONGEST_TEXT - 3..=LONGEST_TEXT).rev();
    let end = ends.find(|at| !is_inside(at)).unwrap_or(LONGEST_TEXT);
    let mut shown = text[..end].to_vec();
    shown.extend_from_slice(format!("...<{}_bytes>", text.len()).as_bytes());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_text_is_cut_and_no_character_in_two() {
        let fits = vec![b'a'; LONGEST_TEXT];
        assert!(matches!(cut_text(&fits), Cow::Borrowed(text) if text == fits));
        for (text, kept) in [
            ("a".repeat(60_000), LONGEST_TEXT),
            (format!("a{}", "é".repeat(30_000)), LONGEST_TEXT - 1),
            (format!("a{}", "€".repeat(30_000)), LONGEST_TEXT),
            (format!("aa{}", "😀".repeat(30_000)), LONGEST_TEXT - 2),
        ] {
            let mark = format!("...<{}_bytes>", text.len());
            let shown = String::from_utf8(cut_text(text.as_bytes()).into_owned()).unwrap();
            assert_eq!(shown, format!("{}{mark}", &text[..kept]));
        }
        // Bytes that are no text are cut as well.
        let shown = cut_text(&[0x80; 5000]).into_owned();
        assert!(shown.ends_with(b"\x80...<5000_bytes>"));
    }
}

//! Escapes of values: whatever a peer sends, it ends neither its line nor the quotes around it.

use std::io::Write as _;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Characters that end a line for some readers, or move a terminal's cursor.
fn is_unsafe(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

/// Writes a value of text. Quotes and backslashes have a backslash before them. Other unsafe characters are `\u{…}`, and bytes
/// that are no UTF-8 `\x..`.
pub(super) fn text(value: &[u8], line: &mut Vec<u8>) {
    if value
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'))
    {
        return line.extend_from_slice(value);
    }
    for chunk in value.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\\' => line.extend([b'\\', char as u8]),
                '\t' => line.extend_from_slice(b"\\t"),
                '\n' => line.extend_from_slice(b"\\n"),
                '\r' => line.extend_from_slice(b"\\r"),
                char if is_unsafe(char) => {
                    let _ = write!(line, "{}", char.escape_unicode());
                }
                char => put(char, line),
            }
        }
        for byte in chunk.invalid() {
            line.extend_from_slice(b"\\x");
            hex(*byte, line);
        }
    }
}

/// Writes a JSON string with its quotes (RFC 8259 §7). Each byte of a value that is no UTF-8 becomes one character, as with
/// Envoy.
pub(super) fn json(value: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    match std::str::from_utf8(value) {
        Ok(text) => text.chars().for_each(|char| json_char(char, line)),
        Err(_) => value.iter().for_each(|byte| match byte {
            0x80.. => unicode(u16::from(*byte), line),
            _ => json_char(char::from(*byte), line),
        }),
    }
    line.push(b'"');
}

fn json_char(char: char, line: &mut Vec<u8>) {
    match char {
        '"' | '\\' => line.extend([b'\\', char as u8]),
        '\t' => line.extend_from_slice(b"\\t"),
        '\n' => line.extend_from_slice(b"\\n"),
        '\r' => line.extend_from_slice(b"\\r"),
        // All of them are in the first plane.
        char if is_unsafe(char) => unicode(char as u32 as u16, line),
        char => put(char, line),
    }
}

fn put(char: char, line: &mut Vec<u8>) {
    line.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

fn unicode(code: u16, line: &mut Vec<u8>) {
    line.extend_from_slice(b"\\u");
    for byte in code.to_be_bytes() {
        hex(byte, line);
    }
}

fn hex(byte: u8, line: &mut Vec<u8>) {
    line.extend([
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut line = Vec::new();
        write(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn text_shows_what_it_cannot_hold() {
        for (value, expected) in [
            (&b"curl/8.5.0"[..], "curl/8.5.0"),
            (b"say \"hi\" \\", "say \\\"hi\\\" \\\\"),
            (b"a\tb\nc\rd\0", "a\\tb\\nc\\rd\\u{0}"),
            ("é \u{85}\u{2028}".as_bytes(), "é \\u{85}\\u{2028}"),
            (b"\xff\xc3\xa9\xc3", "\\xffé\\xc3"),
        ] {
            assert_eq!(written(|line| text(value, line)), expected, "{value:?}");
        }
    }

    #[test]
    fn json_reads_bytes_that_are_no_utf8_as_envoy_does() {
        for (value, expected) in [
            (
                &b"\xff\xfe\xc3\xa9a\""[..],
                r#""\u00ff\u00fe\u00c3\u00a9a\"""#,
            ),
            ("é\u{85}\n".as_bytes(), r#""é\u0085\n""#),
        ] {
            assert_eq!(written(|line| json(value, line)), expected, "{value:?}");
        }
    }
}

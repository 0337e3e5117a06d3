//! Frames of an HTTP/2 client, from a text that a person can write and a fuzzer can change.
//!
//! | line | meaning |
//! |---|---|
//! | `>1` | HEADERS on stream 1; its fields follow as lines `name: value`. `>1.` ends the stream |
//! | `=1 text` | DATA on stream 1; `=1. text` ends the stream |
//! | `x1` | RST_STREAM on stream 1 |
//! | `!00 00 00 04 …` | bytes in hexadecimal digits |
//!
//! In fields and DATA `\r`, `\n`, `\t`, `\0`, `\c` (a colon) and `\\` stand for one byte.

/// The first bytes of a client: the preface, and empty SETTINGS.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The most bytes of a frame.
const FRAME: usize = 16 * 1024;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The frames of a text, without a preface.
pub fn frames(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // The stream, whether it ends, and the fields so far.
    let mut block: Option<(u32, bool, Vec<u8>)> = None;
    for line in text.split(|&byte| byte == b'\n') {
        let [first, rest @ ..] = line else { continue };
        if !matches!(*first, b'>' | b'=' | b'x' | b'!') || is_field(line) {
            if let Some((_, _, fields)) = &mut block {
                field(line, fields);
            }
            continue;
        }
        headers(block.take(), &mut out);
        let (stream, ends, rest) = stream(rest);
        match first {
            b'>' => block = Some((stream, ends, Vec::new())),
            b'=' => {
                let rest = unescaped(rest.strip_prefix(b" ").unwrap_or(rest));
                let mut pieces = rest.chunks(FRAME).peekable();
                if pieces.peek().is_none() {
                    frame(DATA, u8::from(ends), stream, b"", &mut out);
                }
                while let Some(piece) = pieces.next() {
                    let flags = match pieces.peek() {
                        None if ends => END_STREAM,
                        _ => 0,
                    };
                    frame(DATA, flags, stream, piece, &mut out);
                }
            }
            b'x' => frame(RST_STREAM, 0, stream, &8u32.to_be_bytes(), &mut out),
            _ => hexadecimal(&line[1..], &mut out),
        }
    }
    headers(block, &mut out);
    out
}

/// True of a field whose name begins with `x`, which is no line about a stream.
fn is_field(line: &[u8]) -> bool {
    line[0] == b'x' && !line.get(1).is_some_and(u8::is_ascii_digit)
}

/// Reads the number of a stream and the full stop that ends it.
fn stream(text: &[u8]) -> (u32, bool, &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let number = digits.iter().fold(0u32, |number, digit| {
        number.wrapping_mul(10).wrapping_add(u32::from(digit & 15))
    });
    let (ends, rest) = match rest.strip_prefix(b".") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    (number & (u32::MAX >> 1), ends, rest)
}

/// Writes a field as a literal that is not kept (RFC 7541 §6.2.2).
fn field(line: &[u8], out: &mut Vec<u8>) {
    let colon = line[1..].iter().position(|&byte| byte == b':');
    let end = colon.map_or(line.len(), |colon| colon + 1);
    let value = line.get(end + 1..).unwrap_or_default();
    out.push(0);
    string(&unescaped(&line[..end]), out);
    string(&unescaped(value.strip_prefix(b" ").unwrap_or(value)), out);
}

/// Writes a string (RFC 7541 §5.2).
fn string(text: &[u8], out: &mut Vec<u8>) {
    match text.len() {
        length @ ..127 => out.push(length as u8),
        length => {
            out.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                out.push(rest as u8 | 128);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
    out.extend_from_slice(text);
}

fn headers(block: Option<(u32, bool, Vec<u8>)>, out: &mut Vec<u8>) {
    let Some((stream, ends, fields)) = block else {
        return;
    };
    let mut kind = HEADERS;
    let mut flags = u8::from(ends);
    let mut rest = &fields[..];
    while rest.len() > FRAME {
        frame(kind, flags, stream, &rest[..FRAME], out);
        rest = &rest[FRAME..];
        (kind, flags) = (CONTINUATION, 0);
    }
    frame(kind, flags | END_HEADERS, stream, rest, out);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        out.push(match byte {
            b'\\' => match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(b'c') => b':',
                Some(&other) => other,
                None => break,
            },
            byte => byte,
        });
    }
    out
}

fn hexadecimal(text: &[u8], out: &mut Vec<u8>) {
    let digits: Vec<u8> = text
        .iter()
        .filter_map(|&byte| char::from(byte).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    let pairs = digits.chunks_exact(2);
    out.extend(pairs.map(|pair| pair[0] << 4 | pair[1]));
}

//! Path normalisation (RFC 3986 §6.2.2): escapes, dot segments, parameters and slashes, in one pass over the segments.

use super::rules::{Parameters, PathLevel, PathRules};
use crate::refusal::Cause;
use crate::scan;

/// The outcome of the quick look at a path.
pub(super) struct Scanned {
    /// The length of the path: the position of the first `?`.
    pub(super) length: usize,
    /// The path has the one form at any level that was asked for.
    pub(super) is_plain: bool,
}

/// Classes of path bytes.
const PLAIN: u8 = 0;
const SLASH: u8 = 1;
const QUERY: u8 = 2;
const SPECIAL: u8 = 3;

static CLASS: [u8; 256] = {
    let mut table = [PLAIN; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'/' => SLASH,
            b'?' => QUERY,
            b'%' | b'\\' | b';' | b'#' | 0x7f.. | ..=b' ' => SPECIAL,
            byte if is_foreign(byte) => SPECIAL,
            _ => PLAIN,
        };
        byte += 1;
    }
    table
};

/// True of visible bytes that no path has, and that clients send nevertheless (RFC 3986 §3.3). Brackets are none of them: Envoy and
/// browsers leave them as they are.
const fn is_foreign(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// Finds the end of the path, and whether anything in it needs a closer look.
#[inline]
pub(super) fn scan(target: &[u8], level: PathLevel) -> Scanned {
    let mut is_plain = true;
    let mut at = 0;
    while let Some(&byte) = target.get(at) {
        match CLASS[byte as usize] {
            PLAIN => {}
            SLASH => match target.get(at + 1) {
                Some(b'.') => is_plain = false,
                Some(b'/') if level >= PathLevel::MergeSlashes => is_plain = false,
                _ => {}
            },
            QUERY => break,
            _ => is_plain = false,
        }
        at += 1;
    }
    Scanned {
        length: at,
        is_plain,
    }
}

/// The one form of a path that begins with `/` and has no `?`.
pub(super) fn canonical(path: &[u8], rules: PathRules) -> Result<Vec<u8>, Cause> {
    let mut writer = Writer {
        rules,
        out: Vec::with_capacity(path.len()),
        segment: 1,
        parameter: None,
        has_encoded_separator: false,
    };
    writer.out.push(b'/');
    let mut rest = path.get(1..).unwrap_or_default();
    while let [byte, behind @ ..] = rest {
        rest = match *byte {
            b'%' => writer.escape(behind)?,
            b'/' | b'\\' => {
                writer.separator()?;
                behind
            }
            b';' => {
                let at = writer.out.len();
                writer.parameter.get_or_insert(at);
                writer.out.push(b';');
                behind
            }
            b'#' => return Err(Cause::Fragment),
            0x7f.. | ..=b' ' => return Err(Cause::PathCharacter),
            foreign if is_foreign(foreign) => {
                // An application takes `"` and `%22` for one name, so a policy for either must see one form.
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                let (high, low) = (usize::from(foreign >> 4), usize::from(foreign & 15));
                writer.out.extend([b'%', DIGITS[high], DIGITS[low]]);
                behind
            }
            plain => {
                writer.out.push(plain);
                behind
            }
        };
    }
    writer.end_segment()?;
    if rules.level == PathLevel::None {
        // The pass judged the path in its strictest reading; the path itself stays as it is.
        return Ok(path.to_vec());
    }
    let mut out = writer.out;
    if rules.level >= PathLevel::MergeSlashes {
        out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    }
    Ok(out)
}

/// The path that was written so far.
struct Writer {
    rules: PathRules,
    out: Vec<u8>,
    /// The start of the current segment within `out`, behind a slash.
    segment: usize,
    /// The first `;` of the current segment.
    parameter: Option<usize>,
    /// The current segment has `%2F`, `%5C` or `%3B`.
    has_encoded_separator: bool,
}

impl Writer {
    /// Writes an escape whose digits stand in front of `rest`. Returns what is behind them.
    fn escape<'a>(&mut self, rest: &'a [u8]) -> Result<&'a [u8], Cause> {
        let [high, low, behind @ ..] = rest else {
            return Err(Cause::PathEscape);
        };
        let byte = scan::hex(*high, *low).ok_or(Cause::PathEscape)?;
        let decodes_slashes = matches!(
            self.rules.level,
            PathLevel::DecodeAndMergeSlashes | PathLevel::None
        );
        match byte {
            0 => return Err(Cause::PathNul),
            b'/' | b'\\' if decodes_slashes => {
                self.separator()?;
                return Ok(behind);
            }
            b'/' | b'\\' | b';' => self.has_encoded_separator = true,
            0xc0 | 0xc1 => return Err(Cause::PathOverlong),
            0xe0 | 0xf0 => {
                // A second byte below these limits spells a character that fewer bytes can spell.
                let least = if byte == 0xe0 { 0xa0 } else { 0x90 };
                if let [b'%', high, low, ..] = behind
                    && let Some(second) = scan::hex(*high, *low)
                    && (0x80..least).contains(&second)
                {
                    return Err(Cause::PathOverlong);
                }
            }
            byte if scan::is_unreserved(byte) => {
                self.out.push(byte);
                return Ok(behind);
            }
            _ => {}
        }
        let upper = [b'%', high.to_ascii_uppercase(), low.to_ascii_uppercase()];
        self.out.extend_from_slice(&upper);
        Ok(behind)
    }

    /// Ends the segment and begins another one.
    fn separator(&mut self) -> Result<(), Cause> {
        if !self.end_segment()? {
            self.out.push(b'/');
        }
        self.segment = self.out.len();
        Ok(())
    }

    /// Judges the segment that ends here. Returns true if it was a dot segment, which is gone then (RFC 3986 §5.2.4).
    fn end_segment(&mut self) -> Result<bool, Cause> {
        let parameter = self.parameter.take();
        let end = parameter.unwrap_or(self.out.len());
        if std::mem::take(&mut self.has_encoded_separator)
            && has_encoded_dots(&self.out[self.segment..])
        {
            return Err(Cause::PathEncodedDots);
        }
        match &self.out[self.segment..end] {
            b"." => self.out.truncate(self.segment),
            b".." => {
                self.out.truncate(self.segment);
                // The root has no parent; it stays.
                let before = &self.out[..self.segment - 1];
                if let Some(slash) = before.iter().rposition(|&byte| byte == b'/') {
                    self.out.truncate(slash + 1);
                }
            }
            _ => {
                match self.rules.parameters {
                    Parameters::Refuse if parameter.is_some() => return Err(Cause::PathParameter),
                    Parameters::Drop => self.out.truncate(end),
                    _ => {}
                }
                return Ok(false);
            }
        }
        match self.rules.level {
            PathLevel::None => Err(Cause::PathDots),
            _ => Ok(true),
        }
    }
}

/// True if an application that decodes before it splits finds a dot segment within this segment: a part between encoded slashes
/// that consists of dots, parameters apart. Escapes are in upper case.
fn has_encoded_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    loop {
        let slash = rest
            .windows(3)
            .position(|window| matches!(window, b"%2F" | b"%5C"));
        let part = &rest[..slash.unwrap_or(rest.len())];
        let semicolon = part.iter().position(|&byte| byte == b';');
        let encoded = part.windows(3).position(|window| window == b"%3B");
        let end = semicolon.into_iter().chain(encoded).min();
        if matches!(&part[..end.unwrap_or(part.len())], b"." | b"..") {
            return true;
        }
        match slash {
            Some(at) => rest = &rest[at + 3..],
            None => return false,
        }
    }
}

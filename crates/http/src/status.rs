//! Status codes (RFC 9110 §15).

use std::fmt;

/// A status code of three digits, 100 to 999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u16);

impl Status {
    /// `101 Switching Protocols`
    pub const SWITCHING_PROTOCOLS: Status = Status(101);
    /// `200 OK`
    pub const OK: Status = Status(200);
    /// `400 Bad Request`
    pub const BAD_REQUEST: Status = Status(400);
    /// `414 URI Too Long`
    pub const URI_TOO_LONG: Status = Status(414);
    /// `421 Misdirected Request`
    pub const MISDIRECTED_REQUEST: Status = Status(421);
    /// `431 Request Header Fields Too Large` (RFC 6585 §5)
    pub const HEADER_FIELDS_TOO_LARGE: Status = Status(431);
    /// `501 Not Implemented`
    pub const NOT_IMPLEMENTED: Status = Status(501);
    /// `502 Bad Gateway`
    pub const BAD_GATEWAY: Status = Status(502);
    /// `505 HTTP Version Not Supported`
    pub const VERSION_NOT_SUPPORTED: Status = Status(505);

    /// A status code. None if it has not three digits.
    pub const fn new(code: u16) -> Option<Status> {
        match code {
            100..=999 => Some(Status(code)),
            _ => None,
        }
    }

    /// Reads three digits.
    pub fn parse(digits: &[u8]) -> Option<Status> {
        let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = digits else {
            return None;
        };
        let digit = |byte: &u8| u16::from(*byte - b'0');
        Some(Status(digit(a) * 100 + digit(b) * 10 + digit(c)))
    }

    /// The number.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The number's three digits.
    pub fn digits(self) -> &'static [u8; 3] {
        static DIGITS: [[u8; 3]; 900] = {
            let mut digits = [[0; 3]; 900];
            let mut n = 0;
            while n < digits.len() {
                let code = n + 100;
                let ten = (code / 10 % 10) as u8;
                digits[n] = [
                    b'0' + (code / 100) as u8,
                    b'0' + ten,
                    b'0' + (code % 10) as u8,
                ];
                n += 1;
            }
            digits
        };
        &DIGITS[usize::from(self.0 - 100)]
    }

    /// The number's class, 1 to 5. A code of 600 or more counts as 5 (RFC 9110 §15).
    pub const fn class(self) -> u8 {
        match self.0 / 100 {
            class @ 1..=4 => class as u8,
            _ => 5,
        }
    }

    /// True for 1xx.
    pub const fn is_informational(self) -> bool {
        self.class() == 1
    }

    /// True for 2xx.
    pub const fn is_success(self) -> bool {
        self.class() == 2
    }

    /// True for statuses whose answers never have content: 1xx, 204 and 304 (RFC 9110 §6.4.1).
    pub const fn has_no_content(self) -> bool {
        self.is_informational() || matches!(self.0, 204 | 304)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

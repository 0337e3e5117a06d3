//! Numbers of well-known field names, and the perfect hash that finds them.

use super::statics::STATIC;

/// Slots of the hash table; a power of two.
const SLOTS: usize = 1024;

macro_rules! known {
    ($($name:ident $text:literal)*) => {
        /// A well-known field name in lower case (RFC 9113 §8.2). Its number has no meaning outside one program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Known {
            $(#[doc = concat!("`", $text, "`")] $name),*
        }

        impl Known {
            /// Every one of them, by number.
            pub const ALL: [Known; COUNT] = [$(Known::$name),*];
        }

        const COUNT: usize = [$($text),*].len();
        const TEXTS: [&str; COUNT] = [$($text),*];
    };
}

// Pseudo-header fields come first: `Known::is_pseudo` compares with the last of them.
known! {
    Authority ":authority"
    Method ":method"
    Path ":path"
    Scheme ":scheme"
    Status ":status"
    Protocol ":protocol"
    Accept "accept"
    AcceptCharset "accept-charset"
    AcceptEncoding "accept-encoding"
    AcceptLanguage "accept-language"
    AcceptRanges "accept-ranges"
    AccessControlAllowOrigin "access-control-allow-origin"
    Age "age"
    Allow "allow"
    Authorization "authorization"
    Baggage "baggage"
    CacheControl "cache-control"
    Connection "connection"
    ContentDisposition "content-disposition"
    ContentEncoding "content-encoding"
    ContentLanguage "content-language"
    ContentLength "content-length"
    ContentLocation "content-location"
    ContentRange "content-range"
    ContentType "content-type"
    Cookie "cookie"
    Date "date"
    Etag "etag"
    Expect "expect"
    Expires "expires"
    Forwarded "forwarded"
    From "from"
    GrpcAcceptEncoding "grpc-accept-encoding"
    GrpcEncoding "grpc-encoding"
    GrpcMessage "grpc-message"
    GrpcStatus "grpc-status"
    GrpcTimeout "grpc-timeout"
    Host "host"
    IfMatch "if-match"
    IfModifiedSince "if-modified-since"
    IfNoneMatch "if-none-match"
    IfRange "if-range"
    IfUnmodifiedSince "if-unmodified-since"
    KeepAlive "keep-alive"
    LastModified "last-modified"
    Link "link"
    Location "location"
    MaxForwards "max-forwards"
    Origin "origin"
    Priority "priority"
    ProxyAuthenticate "proxy-authenticate"
    ProxyAuthorization "proxy-authorization"
    ProxyConnection "proxy-connection"
    Range "range"
    Referer "referer"
    Refresh "refresh"
    RetryAfter "retry-after"
    Server "server"
    SetCookie "set-cookie"
    StrictTransportSecurity "strict-transport-security"
    Te "te"
    Traceparent "traceparent"
    Tracestate "tracestate"
    Trailer "trailer"
    TransferEncoding "transfer-encoding"
    Upgrade "upgrade"
    UserAgent "user-agent"
    Vary "vary"
    Via "via"
    WwwAuthenticate "www-authenticate"
    XB3Parentspanid "x-b3-parentspanid"
    XB3Sampled "x-b3-sampled"
    XB3Spanid "x-b3-spanid"
    XB3Traceid "x-b3-traceid"
    XForwardedClientCert "x-forwarded-client-cert"
    XForwardedFor "x-forwarded-for"
    XForwardedHost "x-forwarded-host"
    XForwardedProto "x-forwarded-proto"
    XRequestId "x-request-id"
}

impl Known {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// The number of a name, which must be in lower case to have one.
    #[inline]
    pub fn of(name: &[u8]) -> Option<Known> {
        let known = TABLE[slot(mix(name), MULTIPLIER)]?;
        (known.as_str().as_bytes() == name).then_some(known)
    }

    /// True of a pseudo-header field (RFC 9113 §8.3).
    #[inline]
    pub const fn is_pseudo(self) -> bool {
        self as u8 <= Known::Protocol as u8
    }

    /// The number of the name of this entry of the static table, counted from 0.
    #[inline]
    pub(crate) fn of_static(place: usize) -> Option<Known> {
        OF_STATIC.get(place).copied()
    }

    /// The indices of the static table that have this name, the first and the last; 0 if there are none.
    #[inline]
    pub(crate) fn indices(self) -> (u8, u8) {
        INDICES[self as usize]
    }
}

/// The first four bytes, the last four and the length, in one word.
#[inline]
const fn mix(name: &[u8]) -> u64 {
    let (front, back) = match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(front), Some(back)) => (u32::from_le_bytes(*front), u32::from_le_bytes(*back)),
        _ => match name {
            [one, two, three] => (*one as u32 | (*two as u32) << 8, *three as u32),
            [one, two] => (*one as u32, *two as u32),
            _ => (0, 0),
        },
    };
    (front as u64 | (back as u64) << 32) ^ (name.len() as u64) << 20
}

#[inline]
const fn slot(mixed: u64, multiplier: u64) -> usize {
    (mixed.wrapping_mul(multiplier) >> (64 - SLOTS.trailing_zeros())) as usize
}

/// A multiplier for which no two names share a slot: the first of a fixed sequence.
const MULTIPLIER: u64 = {
    let mut candidate = 0x9e37_79b9_7f4a_7c15u64;
    while table(candidate).is_none() {
        candidate = candidate
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814e)
            | 1;
    }
    candidate
};

static TABLE: [Option<Known>; SLOTS] = match table(MULTIPLIER) {
    Some(table) => table,
    None => panic!("two field names share a slot"),
};

/// The hash table, or none if two names share a slot.
const fn table(multiplier: u64) -> Option<[Option<Known>; SLOTS]> {
    let mut table = [None; SLOTS];
    let mut n = 0;
    while n < COUNT {
        let slot = slot(mix(TEXTS[n].as_bytes()), multiplier);
        if table[slot].is_some() {
            return None;
        }
        table[slot] = Some(Known::ALL[n]);
        n += 1;
    }
    Some(table)
}

/// The number of each name of the static table.
static OF_STATIC: [Known; STATIC.len()] = {
    let mut numbers = [Known::Authority; STATIC.len()];
    let mut place = 0;
    while place < STATIC.len() {
        let name = STATIC[place].0.as_bytes();
        let mut n = 0;
        while !same(name, TEXTS[n].as_bytes()) {
            // A name that is missing above ends the compilation here.
            n += 1;
        }
        numbers[place] = Known::ALL[n];
        place += 1;
    }
    numbers
};

/// For each number the first and the last index of the static table.
static INDICES: [(u8, u8); COUNT] = {
    let mut indices = [(0, 0); COUNT];
    let mut place = 0;
    while place < STATIC.len() {
        let number = OF_STATIC[place] as usize;
        if indices[number].0 == 0 {
            indices[number].0 = place as u8 + 1;
        }
        indices[number].1 = place as u8 + 1;
        place += 1;
    }
    indices
};

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut n = 0;
    while n < one.len() {
        if one[n] != other[n] {
            return false;
        }
        n += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_and_its_neighbours_are_not() {
        for (number, known) in Known::ALL.into_iter().enumerate() {
            let text = known.as_str();
            assert_eq!(known as usize, number);
            assert_eq!(Known::of(text.as_bytes()), Some(known), "{text}");
            assert_eq!(known.is_pseudo(), text.starts_with(':'), "{text}");
            for at in 0..text.len() {
                for byte in 0..=255u8 {
                    let mut other = text.as_bytes().to_vec();
                    other[at] = byte;
                    let expected = Known::ALL
                        .into_iter()
                        .find(|known| known.as_str().as_bytes() == other);
                    assert_eq!(Known::of(&other), expected, "{text} with {byte} at {at}");
                }
            }
        }
        for other in ["", "a", "ab", "abc", "abcd", "Host", "hosts"] {
            assert_eq!(Known::of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn every_index_of_the_static_table_has_the_number_of_its_name() {
        for (place, (name, _)) in STATIC.iter().enumerate() {
            let known = Known::of_static(place).expect("it is in the table");
            assert_eq!(known.as_str(), *name);
            let (first, last) = known.indices();
            assert!((usize::from(first)..=usize::from(last)).contains(&(place + 1)));
        }
        assert_eq!(Known::of_static(61), None);
        assert_eq!(Known::Protocol.indices(), (0, 0));
        assert_eq!(Known::Method.indices(), (2, 3));
    }
}

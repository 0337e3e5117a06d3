//! What a request asks the echo service for, in its query. The names and the form of the lists are
//! those of Fortio's echo server, so that its URLs work here; `writes` and `nodelay` are ours.

use std::time::Duration;

use rand::Rng;

/// The largest response, in bytes.
const MAX_SIZE: u64 = 1 << 30;

/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The most pieces that a response is written in.
const MAX_WRITES: u32 = 64;

/// How to answer one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// The status.
    pub status: u16,
    /// The length of the body; `None` echoes the request's.
    pub size: Option<u64>,
    /// How long to wait first.
    pub delay: Duration,
    /// Whether to end the connection afterwards.
    pub close: bool,
    /// More fields for the head.
    pub headers: Vec<(String, String)>,
    /// In how many writes the response leaves: 1 is everything at once, 2 head and body apart, more
    /// cut the body further.
    pub writes: u32,
    /// Whether TCP_NODELAY is set while it leaves.
    pub nodelay: bool,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            status: 200,
            size: None,
            delay: Duration::ZERO,
            close: false,
            headers: Vec::new(),
            writes: 1,
            nodelay: true,
        }
    }
}

impl Params {
    /// Reads the query of a request target. Where the query gives several values with
    /// probabilities, `random` chooses. Unknown names are ignored, as by Fortio. The error says which
    /// parameter is wrong.
    pub fn parse(target: &str, random: &mut impl Rng) -> Result<Params, String> {
        let mut params = Params::default();
        let Some((_, query)) = target.split_once('?') else {
            return Ok(params);
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value).ok_or_else(|| format!("{name}: bad percent-encoding"))?;
            let wrong = |what: &str| format!("{name}={value}: {what}");
            match name {
                "status" => {
                    let status = choose(&value, random, |text| {
                        text.parse().ok().filter(|code| (200..600).contains(code))
                    });
                    params.status = status
                        .map_err(|()| wrong("not a status from 200 to 599"))?
                        .unwrap_or(200);
                }
                "size" => {
                    let size = choose(&value, random, |text| {
                        text.parse().ok().filter(|size| *size <= MAX_SIZE)
                    });
                    params.size = size.map_err(|()| wrong("not a size up to 1 GiB in bytes"))?;
                }
                "delay" => {
                    let read = |text: &str| {
                        crate::text::duration(text)
                            .ok()
                            .filter(|delay| *delay <= MAX_DELAY)
                    };
                    let delay = choose(&value, random, read);
                    params.delay = delay
                        .map_err(|()| wrong("not a duration up to 60s"))?
                        .unwrap_or_default();
                }
                "close" => {
                    params.close = match value.as_str() {
                        "" | "true" | "on" => true,
                        "false" | "off" => false,
                        _ => {
                            random.random_range(0.0..100.0)
                                < percent(&value)
                                    .ok_or_else(|| wrong("not true or a percentage"))?
                        }
                    };
                }
                "header" => {
                    let (name, value) = crate::text::header(&value)?;
                    params.headers.push((name, value));
                }
                "writes" => {
                    let writes = value
                        .parse()
                        .ok()
                        .filter(|writes| (1..=MAX_WRITES).contains(writes));
                    params.writes = writes.ok_or_else(|| wrong("not a number from 1 to 64"))?;
                }
                "nodelay" => {
                    params.nodelay = match value.as_str() {
                        "" | "1" | "true" | "on" => true,
                        "0" | "false" | "off" => false,
                        _ => return Err(wrong("neither 0 nor 1")),
                    };
                }
                _ => {}
            }
        }
        Ok(params)
    }
}

/// Chooses from `value` or `value:percent,value:percent,...`; what the percentages leave over is
/// `None`.
fn choose<T>(
    list: &str,
    random: &mut impl Rng,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ()> {
    let entries = list.split(',').map(|entry| match entry.split_once(':') {
        None => Ok((read(entry).ok_or(())?, 100.0)),
        Some((value, share)) => Ok((read(value).ok_or(())?, percent(share).ok_or(())?)),
    });
    let entries: Vec<(T, f64)> = entries.collect::<Result<_, ()>>()?;
    if entries.iter().map(|(_, share)| share).sum::<f64>() > 100.000_1 {
        return Err(());
    }
    let mut dice = random.random_range(0.0..100.0);
    for (value, share) in entries {
        if dice < share {
            return Ok(Some(value));
        }
        dice -= share;
    }
    Ok(None)
}

fn percent(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=100.0).contains(share))
}

/// Undoes percent-encoding and `+` for a space.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn parse(target: &str) -> Result<Params, String> {
        Params::parse(target, &mut SmallRng::seed_from_u64(1))
    }

    #[test]
    fn parameters_are_read() {
        assert_eq!(parse("/"), Ok(Params::default()));
        assert_eq!(parse("/?unknown=1&&"), Ok(Params::default()));
        let all = parse("/echo?status=404&size=1024&delay=1.5ms&close=true&header=X-A:%20b+c&writes=2&nodelay=0").unwrap();
        let expected = Params {
            status: 404,
            size: Some(1024),
            delay: Duration::from_micros(1500),
            close: true,
            headers: vec![("X-A".to_owned(), "b c".to_owned())],
            writes: 2,
            nodelay: false,
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn wrong_values_name_the_parameter() {
        let table = [
            "status=99",
            "status=abc",
            "status=503:70,500:70",
            "size=-1",
            "size=2000000000",
            "delay=5",
            "delay=2m",
            "close=maybe",
            "close=101",
            "writes=0",
            "writes=65",
            "nodelay=2",
            "size=1%2",
        ];
        for query in table {
            let error = parse(&format!("/?{query}")).unwrap_err();
            assert!(
                error.starts_with(query.split('=').next().unwrap()),
                "{query}: {error}"
            );
        }
        assert!(
            parse("/?header=a%0d%0ab:c").is_err(),
            "no field may smuggle a line"
        );
        assert!(parse("/?header=content-length:5").is_err());
    }

    #[test]
    fn lists_are_chosen_from_by_their_shares() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..10_000 {
            *counts
                .entry(
                    Params::parse("/?status=503:20,404:10", &mut random)
                        .unwrap()
                        .status,
                )
                .or_insert(0) += 1;
        }
        assert!(
            (1800..2200).contains(&counts[&503]) && (850..1150).contains(&counts[&404]),
            "{counts:?}"
        );
        assert_eq!(counts.values().sum::<i32>(), 10_000);
    }

    proptest! {
        #[test]
        fn no_target_makes_it_panic(target in "/?\\??[\\PC]{0,40}|/\\?((status|size|delay|close|header|writes|nodelay)=[0-9a-z:,.%+]{0,9}&?){0,5}") {
            if let Ok(params) = parse(&target) {
                prop_assert!(params.delay <= MAX_DELAY && params.size.unwrap_or(0) <= MAX_SIZE);
            }
        }
    }
}

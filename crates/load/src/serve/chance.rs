//! Values with probabilities in the echo service's parameters. The grammar, the order of the checks and the draw are Fortio's,
//! so that one URL means the same to both.

use rand::Rng;

/// The outcome of a list of values for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<T> {
    /// This value.
    Value(T),
    /// None of them: what the percentages leave over.
    Rest,
    /// The list cannot be read.
    Invalid,
}

/// Chooses from `value` or `value:percent,value:percent,...`. A percentage may end in `%`; their sum,
/// to four decimals, may not exceed 100. Every entry of a list needs its percentage.
pub fn choose<T>(list: &str, random: &mut impl Rng, read: impl Fn(&str) -> Option<T>) -> Choice<T> {
    if !list.contains([',', ':']) {
        return read(list).map_or(Choice::Invalid, Choice::Value);
    }
    let mut entries = Vec::new();
    let mut sum = 0.0;
    for entry in list.split(',') {
        let mut halves = entry.split(':');
        let (Some(value), Some(share), None) = (halves.next(), halves.next(), halves.next()) else {
            return Choice::Invalid;
        };
        let share = share.strip_suffix('%').unwrap_or(share);
        let (Some(value), Ok(share)) = (read(value), share.parse::<f32>()) else {
            return Choice::Invalid;
        };
        // A share of "nan" passes, and is never hit, in Fortio too.
        if !(share.is_nan() || (0.0..=100.0).contains(&share)) {
            return Choice::Invalid;
        }
        sum += f64::from(share);
        // Rounded, since three times 33.3333 and the like shall make up a hundred and no more.
        let upto = (sum * 1e4 + 0.5).floor() / 1e4;
        if upto > 100.0 {
            return Choice::Invalid;
        }
        entries.push((value, upto as f32));
    }
    let roll = roll(random);
    let hit = entries.into_iter().find(|(_, upto)| roll <= *upto);
    hit.map_or(Choice::Rest, |(value, _)| Choice::Value(value))
}

/// Whether something happens that is asked for as `true`, `false` or a percentage. Nothing is
/// `false`, and what is no number is `true`.
pub fn happens(value: &str, random: &mut impl Rng) -> bool {
    match value {
        "" | "false" => false,
        "true" => true,
        _ => value
            .parse()
            .map_or(true, |share: f32| roll(random) <= share),
    }
}

/// From 0 up to, but without, 100.
fn roll(random: &mut impl Rng) -> f32 {
    100.0 * random.random::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn number(list: &str) -> Choice<i64> {
        let mut random = SmallRng::seed_from_u64(1);
        choose(list, &mut random, |text| text.parse().ok())
    }

    #[test]
    fn a_list_is_one_value_or_shares_and_anything_else_is_invalid() {
        let shares = "503:101 503:70,404:31 503:20, 503: 1:50.0001,2:50";
        let forms = "x 503,404 503:20,404 503:20:1 503:x x:20 503:-1";
        for (expected, lists) in [
            (Choice::Value(503), "503 503:100 503:100%"),
            (Choice::Value(1), "1:33.3333,1:33.3333,1:33.3334"),
            (Choice::Value(-5), "-5"),
            (Choice::Rest, "503:nan"),
            (Choice::Invalid, forms),
            (Choice::Invalid, shares),
        ] {
            for list in lists.split(' ') {
                assert_eq!(number(list), expected, "{list}");
            }
        }
        assert_eq!(["", "503: 20"].map(number), [Choice::Invalid; 2]);
    }

    #[test]
    fn shares_are_kept_and_the_rest_is_left_over() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut draw = || choose("503:20,404:10", &mut random, |text| text.parse().ok());
        let draws: Vec<Choice<u16>> = (0..10_000).map(|_| draw()).collect();
        let count = |of| draws.iter().filter(|drawn| **drawn == of).count();
        let counts = [Choice::Value(503), Choice::Value(404), Choice::Rest].map(count);
        assert!((1800..2200).contains(&counts[0]), "{counts:?}");
        assert!((850..1150).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 10_000);
    }

    #[test]
    fn single_chances() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut share = |value: &str| (0..4000).filter(|_| happens(value, &mut random)).count();
        for (value, range) in [
            ("", 0..=0),
            ("false", 0..=0),
            ("true", 4000..=4000),
            // Not a number, and so a plain yes: Fortio reads it the same way.
            ("true:10", 4000..=4000),
            ("yes", 4000..=4000),
            ("100", 4000..=4000),
            ("-1", 0..=0),
            ("25", 900..=1100),
            ("0.5", 5..=45),
        ] {
            let count = share(value);
            assert!(range.contains(&count), "{value:?}: {count}");
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic_or_invents_a_value(list in "[0-9:,.%a-f+-]{0,24}|\\PC{0,12}") {
            if let Choice::Value(value) = number(&list) {
                prop_assert!(list.contains(&value.to_string().trim_start_matches('-').to_owned()) || list.contains('0'));
            }
            happens(&list, &mut SmallRng::seed_from_u64(2));
        }
    }
}

//! Choice of the next rate: outward by a factor of two, inward by bisection, then repetition of the last rates. It decides from
//! verdicts alone.

use crate::run::RATES;
use crate::text::number;

/// The outcome of one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The objective was met at the rate.
    Met,
    /// It was not, and the generator had room.
    Missed,
    /// It was not, and the generator was at its own limit: nothing is known of the service.
    Generator,
}

/// The purpose of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// To find a rate that is too high, or one that is not.
    Explore,
    /// To narrow down what lies between.
    Narrow,
    /// To see a miss again before it counts.
    Repeat,
    /// To see the answer again.
    Confirm,
}

/// The bounds of a search.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Bounds {
    /// The rate to begin with
    #[arg(long, default_value_t = 100.0, value_parser = rate)]
    pub from: f64,
    /// The lowest rate to try
    #[arg(long = "min-qps", value_name = "MIN_QPS", default_value_t = 1.0, value_parser = rate)]
    pub least: f64,
    /// The highest rate to try
    #[arg(long = "max-qps", value_name = "MAX_QPS", default_value_t = 1_000_000.0, value_parser = rate)]
    pub most: f64,
    /// Distance from a missed rate to come to, in percent of it
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = number(0.1..=50.0, "must be between 0.1 and 50"))]
    pub precision: f64,
    /// Number of times that the answer must be met again
    #[arg(long = "confirm", value_name = "TIMES", default_value_t = 3)]
    pub confirmations: u32,
}

fn rate(text: &str) -> Result<f64, String> {
    number(RATES, "must be between 0.001 and 1000000")(text)
}

/// A search under way.
#[derive(Debug)]
pub struct Bisection {
    bounds: Bounds,
    rate: f64,
    purpose: Purpose,
    /// The purpose that `Repeat` interrupted.
    before: Purpose,
    met: Option<f64>,
    missed: Option<(f64, Verdict)>,
    confirmed: u32,
    over: bool,
}

impl Bisection {
    /// A search that has tried nothing.
    pub fn new(bounds: Bounds) -> Bisection {
        Bisection {
            rate: bounds.from.clamp(bounds.least, bounds.most),
            bounds,
            purpose: Purpose::Explore,
            before: Purpose::Explore,
            met: None,
            missed: None,
            confirmed: 0,
            over: false,
        }
    }

    /// The rate to try and why; `None` when the search is over.
    pub fn next(&self) -> Option<(f64, Purpose)> {
        (!self.over).then_some((self.rate, self.purpose))
    }

    /// The highest rate that was met as often as was asked for.
    pub fn answer(&self) -> Option<f64> {
        let is_confirmed = self.confirmed >= self.bounds.confirmations;
        self.met.filter(|_| is_confirmed)
    }

    /// The lowest rate above the answer that was not met, and by whose fault.
    pub fn missed(&self) -> Option<(f64, Verdict)> {
        self.missed
    }

    /// Takes the outcome of the try that [`Bisection::next`] named.
    pub fn take(&mut self, verdict: Verdict) {
        let repeats = self.purpose == Purpose::Repeat;
        // A single miss may be chance; two in a row are not taken for it.
        if verdict != Verdict::Met && !repeats {
            (self.before, self.purpose) = (self.purpose, Purpose::Repeat);
            return;
        }
        let purpose = if repeats { self.before } else { self.purpose };
        match (verdict, purpose) {
            (Verdict::Met, Purpose::Confirm) => {
                self.confirmed += 1;
                self.purpose = Purpose::Confirm;
                self.over = self.confirmed >= self.bounds.confirmations;
            }
            (Verdict::Met, _) => {
                self.met = Some(self.rate);
                self.go_on();
            }
            (_, Purpose::Confirm) => {
                self.missed = Some((self.rate, verdict));
                self.confirmed = 0;
                self.met = None;
                self.step_down(1.0 - self.bounds.precision / 100.0);
            }
            (_, _) => {
                self.missed = Some((self.rate, verdict));
                match self.met {
                    Some(_) => self.go_on(),
                    None => self.step_down(0.5),
                }
            }
        }
    }

    /// Tries less, if there is less to try.
    fn step_down(&mut self, factor: f64) {
        self.over = self.rate <= self.bounds.least;
        self.rate = (self.rate * factor).max(self.bounds.least);
        self.purpose = Purpose::Explore;
    }

    fn go_on(&mut self) {
        let Some(met) = self.met else { return };
        let (rate, purpose) = match self.missed {
            None if met < self.bounds.most => (2.0 * met, Purpose::Explore),
            Some((missed, _)) if missed > met * (1.0 + self.bounds.precision / 100.0) => {
                // Rates are compared as ratios, so the middle is that of their logarithms.
                ((met * missed).sqrt(), Purpose::Narrow)
            }
            _ => (met, Purpose::Confirm),
        };
        self.rate = rate.min(self.bounds.most);
        self.purpose = purpose;
        self.over = purpose == Purpose::Confirm && self.bounds.confirmations == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds {
        from: 100.0,
        least: 1.0,
        most: 1e6,
        precision: 5.0,
        confirmations: 3,
    };

    /// Searches a service that carries what `carries` says of a rate and the number of the try.
    fn search(bounds: Bounds, mut carries: impl FnMut(f64, u32) -> Verdict) -> (Bisection, u32) {
        let mut search = Bisection::new(bounds);
        let mut tries = 0;
        while let Some((rate, _)) = search.next() {
            assert!((bounds.least..=bounds.most).contains(&rate), "{rate}");
            search.take(carries(rate, tries));
            tries += 1;
            assert!(tries < 500, "it does not end");
        }
        (search, tries)
    }

    fn up_to(limit: f64) -> impl FnMut(f64, u32) -> Verdict {
        move |rate, _| match rate <= limit {
            true => Verdict::Met,
            false => Verdict::Missed,
        }
    }

    #[test]
    fn a_single_miss_does_not_count_and_two_do() {
        let mut missed = false;
        let (found, _) = search(BOUNDS, |rate, _| {
            if rate > 150.0 && rate < 250.0 && !missed {
                missed = true;
                return Verdict::Missed;
            }
            up_to(1000.0)(rate, 0)
        });
        assert!(
            (950.0..=1000.0).contains(&found.answer().unwrap()),
            "{found:?}"
        );
    }

    #[test]
    fn a_rate_that_does_not_hold_is_given_up() {
        let mut confirmations = 0;
        let mut found = Bisection::new(BOUNDS);
        while let Some((rate, purpose)) = found.next() {
            let again = matches!(purpose, Purpose::Confirm | Purpose::Repeat);
            confirmations += u32::from(again);
            // It carries 1000 when it is fresh, and 800 when asked again and again.
            let limit = if again { 800.0 } else { 1000.0 };
            found.take(up_to(limit)(rate, 0));
        }
        let answer = found.answer().unwrap();
        assert!((740.0..=800.0).contains(&answer), "{answer}");
        assert!(confirmations > 3);
    }

    #[test]
    fn ends_are_told_apart() {
        let (none, tries) = search(BOUNDS, |_, _| Verdict::Missed);
        assert_eq!((none.answer(), none.met), (None, None));
        assert!(tries < 30);
        let (all, _) = search(BOUNDS, |_, _| Verdict::Met);
        assert_eq!((all.answer(), all.missed()), (Some(1e6), None));
        let (own, _) = search(BOUNDS, |rate, _| match rate {
            ..=300.0 => Verdict::Met,
            _ => Verdict::Generator,
        });
        assert_eq!(own.missed().unwrap().1, Verdict::Generator);
    }

    proptest! {
        #[test]
        fn it_finds_the_limit(limit in 2.0f64..500_000.0, from in 1.0f64..10_000.0, precision in 1.0f64..30.0) {
            let bounds = Bounds { from, precision, ..BOUNDS };
            let (found, tries) = search(bounds, up_to(limit));
            let answer = found.answer().unwrap();
            prop_assert!(answer <= limit && answer * (1.0 + precision / 100.0) >= limit, "{answer} of {limit}");
            prop_assert!(tries < 80);
        }

        #[test]
        fn it_ends_whatever_comes(verdicts in prop::collection::vec(prop::sample::select(vec![Verdict::Met, Verdict::Missed, Verdict::Generator]), 500)) {
            search(BOUNDS, |_, number| verdicts[number as usize]);
        }
    }
}

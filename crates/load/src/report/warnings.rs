//! Warnings about a run: it was interrupted, its rate was not kept, or the generator was late or at its limit.

use super::{Generator, Report, is_told};
use crate::record::Kind;

impl Generator {
    /// Whether there was no time left in which it could have done more.
    pub fn is_at_its_limit(&self) -> bool {
        self.cpu_share + self.wait_share > 0.95
    }
}

impl Report {
    /// The generator's own lateness at P99, in milliseconds, if it was more than a tenth of the response
    /// time's.
    pub fn own_lateness(&self) -> Option<f64> {
        let (late, response) = (&self.times[Kind::Lateness], &self.times[Kind::Response]);
        // The largest of few times is no less than their P99.
        if late.max <= 0.1 * response.min {
            return None;
        }
        let late = late.quantile(0.99);
        (late > 0.1 * response.quantile(0.99)).then_some(late)
    }

    /// Whether the answers came clearly slower than requests were due.
    pub fn fell_behind(&self) -> bool {
        let wanted = self.rates.wanted_qps;
        let Some(requests) = self.config.requests else {
            return self.rates.achieved_qps < 0.99 * wanted;
        };
        // The last answer of a few requests ends well after they were due; random gaps add up to
        // more or less than their mean, by the root of their number.
        let requests = requests as f64;
        let spread = match self.config.arrivals {
            "poisson" => 4.0 * requests.sqrt() / wanted,
            _ => 0.0,
        };
        // Not the time of failed requests: it counts from when they were due, so a queue is in it.
        let answer = match self.errors.contains_key("timeout") {
            true => self.config.timeout_s,
            false => self.times[Kind::Service].max / 1e3,
        };
        self.measured_s > 1.01 * requests / wanted + spread + answer
    }

    /// Whether the rate was kept and requests failed: then there was no queue.
    fn failures_explain_the_rate(&self) -> bool {
        self.config.requests.is_none()
            && self.measured_s > 0.0
            && !self.errors.contains_key("timeout")
            && self.rates.achieved_qps + self.counts.failed as f64 / self.measured_s
                >= 0.99 * self.rates.wanted_qps
    }

    /// The facts that a reader must know before he trusts the numbers.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.interrupted {
            let measured = self.measured_s;
            warnings.push(format!("interrupted after {measured:.1} s of measuring"));
        }
        if self.config.qps > 0.0 && !self.interrupted && self.fell_behind() {
            let why = if self.failures_explain_the_rate() {
                " was answered: the other requests failed"
            } else {
                ": the times are those of a queue, not of the service"
            };
            warnings.push(format!("less than 99 % of the wanted rate{why}"));
        }
        if self.generator.is_at_its_limit() {
            warnings.push(format!(
                "the generator had no time left ({:.0} % running, {:.0} % waiting for a processor): the service may be faster; use more --threads or another machine",
                self.generator.cpu_share * 100.0,
                self.generator.wait_share * 100.0
            ));
        }
        if let Some(late) = self.own_lateness() {
            let lateness = &self.times[Kind::Lateness];
            let told = lateness.percentiles.contains_key("p99") || is_told(0.99, lateness.count);
            let number = told.then(|| format!(" ({late:.3} ms)"));
            let number = number.unwrap_or_default();
            warnings.push(format!(
                "the generator's own lateness at P99{number} is more than a tenth of the response time's; compare service times too"
            ));
        }
        let response = &self.times[Kind::Response];
        if response.percentiles.contains_key("p99") && !is_told(0.99, response.count) {
            warnings
                .push("fewer than 100 answers lie beyond P99: it rests on few samples".to_owned());
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::times_of;
    use crate::report::Summary;

    #[test]
    fn few_late_requests_are_judged_though_their_percentiles_are_not_told() {
        let of = |milliseconds: &[u64]| {
            Summary::of(&times_of(milliseconds.iter().map(|ms| ms * 1_000_000)))
        };
        let mut report = Report::default();
        report.times[Kind::Response] = of(&[10, 11, 12]);
        report.times[Kind::Lateness] = of(&[1, 2, 3]);
        report.leave_out_few();
        let late = report.own_lateness().unwrap();
        assert!((2.99..3.01).contains(&late), "{late}");
        // Said, but without a number that rests on three times.
        let text = report.to_text();
        assert!(text.contains("own lateness at P99 is more than a tenth"));
        report.times[Kind::Lateness] = of(&[1, 1, 1]);
        assert_eq!(report.own_lateness(), None);
    }

    /// A run of 1000 requests at 100 a second, the last answer `measured_s` after the start.
    fn counted(measured_s: f64) -> Report {
        let mut report = Report {
            measured_s,
            ..Report::default()
        };
        report.config.requests = Some(1000);
        report.config.qps = 100.0;
        report.config.timeout_s = 2.0;
        report.rates.wanted_qps = 100.0;
        report.rates.achieved_qps = 1000.0 / measured_s;
        report.times[Kind::Service].max = 50.0;
        report
    }

    fn warns(report: &Report, of: &str) -> bool {
        let warnings = report.warnings();
        warnings.iter().any(|warning| warning.contains(of))
    }

    #[test]
    fn a_generator_without_time_left_is_said() {
        for (cpu_share, wait_share, said) in [
            (0.9, 0.0, false),
            (0.5, 0.4, false),
            (0.96, 0.0, true),
            (0.5, 0.46, true),
        ] {
            let mut report = counted(10.0);
            (report.generator.cpu_share, report.generator.wait_share) = (cpu_share, wait_share);
            assert_eq!(warns(&report, "no time left"), said, "{cpu_share}");
        }
    }

    fn warns_of_the_rate(report: &Report) -> bool {
        warns(report, "99 % of the wanted rate")
    }

    #[test]
    fn a_rate_that_was_not_kept_is_said() {
        for (achieved_qps, qps, interrupted, said) in [
            (99.1, 100.0, false, false),
            (98.9, 100.0, false, true),
            (50.0, 100.0, true, false),
            // A closed loop has no rate.
            (50.0, 0.0, false, false),
        ] {
            let mut report = counted(10.0);
            (report.config.requests, report.config.qps) = (None, qps);
            (report.rates.achieved_qps, report.interrupted) = (achieved_qps, interrupted);
            assert_eq!(warns_of_the_rate(&report), said, "{achieved_qps}");
        }
    }

    #[test]
    fn a_rate_that_failures_explain_is_no_queue() {
        let mut report = counted(10.0);
        report.config.requests = None;
        report.rates.achieved_qps = 50.0;
        for (failed, queue) in [(500, false), (400, true)] {
            report.counts.failed = failed;
            assert!(warns_of_the_rate(&report));
            assert_eq!(report.to_text().contains("a queue"), queue, "{failed}");
        }
        report.counts.failed = 500;
        report.errors.insert("timeout".to_owned(), 500);
        assert!(report.to_text().contains("a queue"), "they waited");
    }

    #[test]
    fn a_number_of_requests_may_end_with_a_slow_answer_but_not_with_a_queue() {
        // The last is due after 9.99 s; one hundredth more, and the slowest answer, are no queue.
        assert!(!warns_of_the_rate(&counted(10.14)) && warns_of_the_rate(&counted(10.16)));
        let mut timed_out = counted(12.09);
        assert!(warns_of_the_rate(&timed_out));
        timed_out.errors.insert("timeout".to_owned(), 1);
        assert!(!warns_of_the_rate(&timed_out), "a timeout takes its time");
        let mut poisson = counted(11.3);
        assert!(warns_of_the_rate(&poisson));
        poisson.config.arrivals = "poisson";
        assert!(!warns_of_the_rate(&poisson), "four deviations are chance");
    }
}

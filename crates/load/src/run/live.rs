//! Progress of a run: one line a second on standard error, for people or for programs.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::record::{Record, Times, merge, no_times};
use crate::report::is_told;
use crate::text::readable;

/// The form of a run's lines of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// Not at all.
    None,
    /// In one line that is written over each second, for a terminal.
    Live,
    /// In a line of text each second.
    Text,
    /// In a line of JSON each second.
    Json,
}

/// One second of a run, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line<'a> {
    name: &'a str,
    /// Seconds since the run began.
    t_s: u64,
    /// `warmup`, `measure`, or `drain` once the measured time is over.
    phase: &'static str,
    /// Answers of the last second with a status below 400.
    answers: u64,
    /// The same since the beginning, the warm-up among them.
    answers_total: u64,
    /// Requests that failed since the beginning.
    failed_total: u64,
    /// Requests that are due and have no answer.
    outstanding: u64,
    /// Response times of the last second's answers.
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// The reports of a run's threads since the last line.
#[derive(Debug)]
struct Told {
    recent: Times,
    /// By thread: answers, failures, outstanding requests.
    threads: Vec<[u64; 3]>,
}

/// Gathers what the threads of a run tell each second, and says it.
#[derive(Debug)]
pub struct Live {
    progress: Progress,
    name: String,
    warmup_end: u64,
    end: u64,
    told: Mutex<Told>,
}

impl Live {
    /// Nothing told yet, by so many threads.
    pub fn new(progress: Progress, name: &str, warmup_end: u64, end: u64, threads: usize) -> Live {
        Live {
            progress,
            name: if name.is_empty() { "run" } else { name }.to_owned(),
            warmup_end,
            end,
            told: Mutex::new(Told {
                recent: no_times(),
                threads: vec![[0; 3]; threads],
            }),
        }
    }

    /// A thread tells how it stands, if anything is said at all; the first thread's word makes the line.
    pub fn tell(&self, thread: usize, now: u64, record: &mut Record, outstanding: u64) {
        if self.progress == Progress::None {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        merge(&mut told.recent, &record.recent);
        record.recent.reset();
        let counts = [record.all_ok_count(), record.all_failed_count()];
        told.threads[thread] = [counts[0], counts[1], outstanding];
        if thread == 0 {
            self.say(&self.line(now, &told));
            told.recent.reset();
        }
    }

    fn line(&self, now: u64, told: &Told) -> Line<'_> {
        let histogram = &told.recent;
        let ms = |nanoseconds: u64| (nanoseconds as f64 / 1e3).round() / 1e3;
        let sum = |which: usize| told.threads.iter().map(|thread| thread[which]).sum();
        Line {
            name: &self.name,
            t_s: now / 1_000_000_000,
            phase: match now {
                now if now < self.warmup_end => "warmup",
                now if now < self.end => "measure",
                _ => "drain",
            },
            answers: histogram.len(),
            answers_total: sum(0),
            failed_total: sum(1),
            outstanding: sum(2),
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p90_ms: ms(histogram.value_at_quantile(0.9)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }

    fn say(&self, line: &Line<'_>) {
        let text = match self.progress {
            Progress::None => return,
            Progress::Json => match serde_json::to_string(line) {
                Ok(json) => format!("{json}\n"),
                Err(_) => return,
            },
            Progress::Text => format!("{}\n", text(line)),
            Progress::Live => format!("\r\x1b[K{}", text(line)),
        };
        // In one write, whoever else writes there. Nobody is left to tell if it fails.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Takes a line that is written over away, before something else is said.
    pub fn clear(&self) {
        if self.progress == Progress::Live {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

fn text(line: &Line<'_>) -> String {
    let time = |ms: f64| readable(Duration::from_secs_f64(ms / 1e3));
    let phase = match line.phase {
        "warmup" => " (warm-up)",
        "drain" => " (waiting for the last answers)",
        _ => "",
    };
    let answers = if line.answers == 0 {
        "no answers".to_owned()
    } else {
        // The percentiles that enough of this second's answers lie beyond, and the longest.
        let told = [(0.5, "P50", line.p50_ms), (0.99, "P99", line.p99_ms)]
            .into_iter()
            .filter(|(quantile, ..)| is_told(*quantile, line.answers))
            .map(|(_, name, ms)| format!(", {name} {}", time(ms)))
            .collect::<String>();
        let most = time(line.max_ms);
        format!("{} answers{told}, at most {most}", line.answers)
    };
    format!(
        "{}: {} s{phase}: {answers}, {} failed so far",
        line.name, line.t_s, line.failed_total
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Timing;

    #[test]
    fn a_line_holds_what_all_threads_told() {
        let live = Live::new(Progress::Json, "", 2_000_000_000, 5_000_000_000, 2);
        let mut record = Record::new(0, u64::MAX);
        let timing = Timing {
            done: 4_000_000,
            ..Timing::default()
        };
        record.answered(timing, 200, 0);
        record.answered(timing, 503, 0);
        live.tell(1, 1_000_000_000, &mut record, 7);
        assert!(record.recent.is_empty());
        let line = live.line(1_000_000_000, &live.told.lock().unwrap());
        assert_eq!((line.t_s, line.phase, line.name), (1, "warmup", "run"));
        assert_eq!((line.answers, line.answers_total), (1, 1));
        assert_eq!((line.failed_total, line.outstanding), (1, 7));
        assert!((3.99..4.01).contains(&line.p50_ms), "{line:?}");
        let said = "run: 1 s (warm-up): 1 answers, at most 4 ms, 1 failed so far";
        assert_eq!(text(&line), said);
        let answers = 200;
        let enough = Line { answers, ..line };
        assert_eq!(
            text(&enough),
            said.replace("1 answers", "200 answers, P50 4 ms")
        );
        // The first thread's word ends the second.
        live.tell(0, 1_000_000_000, &mut Record::new(0, u64::MAX), 0);
        let line = live.line(5_000_000_000, &live.told.lock().unwrap());
        let told = (line.answers, line.answers_total, line.phase);
        assert_eq!(told, (0, 1, "drain"));
    }
}

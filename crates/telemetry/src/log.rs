//! Log lines and log levels: ztunnel's formats (`LOG_FORMAT=json` or text) and its way of changing levels at run time.

use std::fmt::{self, Write as _};
use std::io;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use crate::clock::Timestamp;
use crate::share::LogShare;
use crate::sink::Sink;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Time, level, scope, message and fields, separated by tabs.
    #[default]
    Plain,
    /// One object a line.
    Json,
}

static FORMAT: OnceLock<Format> = OnceLock::new();
static LEVELS: OnceLock<Levels> = OnceLock::new();

struct Levels {
    initial: String,
    handle: reload::Handle<Targets, Registry>,
}

/// A level that cannot be read or set.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// Not a level, nor `scope=level`, nor a list of them.
    #[error(
        "{0:?} is not a log level; use error, warn, info, debug, trace or off, alone or as scope=level"
    )]
    Invalid(String),
    /// [`init`] was not called.
    #[error("logging is not set up")]
    NotSetUp,
}

/// Starts logging to standard output; `levels` is what RUST_LOG holds, empty for `info`.
///
/// # Errors
/// `levels` cannot be read. Called twice in one process, the second call changes nothing.
pub fn init(format: Format, levels: &str) -> Result<(), LevelError> {
    let initial = if levels.is_empty() { "info" } else { levels };
    let filter = parse(initial)?;
    let (filter, handle) = reload::Layer::new(filter);
    if FORMAT.set(format).is_ok() {
        // Another subscriber exists in tests only, and then receives what we do not.
        let _ = tracing_subscriber::registry()
            .with(Lines.with_filter(filter))
            .try_init();
        let _ = LEVELS.set(Levels {
            initial: initial.to_owned(),
            handle,
        });
    }
    Ok(())
}

/// As [`init`], but to `out`.
///
/// # Errors
/// As [`init`].
pub fn init_to(
    out: Box<dyn io::Write + Send>,
    format: Format,
    levels: &str,
) -> Result<(), LevelError> {
    Sink::open(|| out);
    init(format, levels)
}

/// Writes a line of another format, which ends with its line end, to the log's output, as one of a share of its buffer.
pub fn line(line: &[u8], share: LogShare) {
    Sink::get().put(line, share);
}

/// Waits until what was logged so far is written.
pub fn flush() {
    Sink::get().flush(Duration::from_secs(2));
}

/// From now on a panic, by which the process ends, waits as [`flush`] does: what led to it is in the last lines.
pub fn flush_on_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        flush();
    }));
}

/// The levels in force.
pub fn levels() -> Result<String, LevelError> {
    let levels = LEVELS.get().ok_or(LevelError::NotSetUp)?;
    levels
        .handle
        .with_current(ToString::to_string)
        .map_err(|_| LevelError::NotSetUp)
}

/// Adds `levels` to those in force, or with `reset` to those of the start.
pub fn set_levels(reset: bool, levels: &str) -> Result<(), LevelError> {
    let set = LEVELS.get().ok_or(LevelError::NotSetUp)?;
    if !levels.is_empty() {
        parse(levels)?;
    }
    let base = if reset {
        set.initial.clone()
    } else {
        self::levels()?
    };
    let wanted = if levels.is_empty() {
        base
    } else {
        format!("{base},{levels}")
    };
    set.handle
        .reload(parse(&wanted)?)
        .map_err(|_| LevelError::NotSetUp)
}

fn parse(levels: &str) -> Result<Targets, LevelError> {
    let invalid = || LevelError::Invalid(levels.to_owned());
    for clause in levels.split(',') {
        let level = clause.rsplit_once('=').map_or(clause, |(_, level)| level);
        // A bare scope would mean "everything of it"; it is more often a misspelt level.
        if !matches!(level, "off" | "error" | "warn" | "info" | "debug" | "trace") {
            return Err(invalid());
        }
    }
    Targets::from_str(levels).map_err(|_| invalid())
}

/// The format of lines.
pub(crate) fn format() -> Format {
    FORMAT.get().copied().unwrap_or_default()
}

pub(crate) fn write_line<B: AsRef<[u8]>>(share: LogShare, render: impl FnOnce(Format) -> B) {
    Sink::get().put(render(format()).as_ref(), share);
}

pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// A JSON string with its quotes (RFC 8259 §7).
pub(crate) fn json_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if (control as u32) < 0x20 => {
                write!(quoted, "\\u{:04x}", control as u32).expect("a String takes every write");
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Renders every event that passes the filter.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        write_line(LogShare::default(), |format| {
            let mut fields = Fields {
                format,
                message: String::new(),
                rest: String::new(),
            };
            event.record(&mut fields);
            let meta = event.metadata();
            let (time, level) = (Timestamp::now(), level_name(*meta.level()));
            let scope = scope(meta.target());
            let Fields { message, rest, .. } = fields;
            match format {
                Format::Plain => format!("{time}\t{level}\t{scope}\t{message}\t{rest}\n"),
                Format::Json => format!(
                    "{{\"level\":\"{level}\",\"time\":\"{time}\",\"scope\":{},\"message\":{}{rest}}}\n",
                    json_string(&scope),
                    json_string(&message)
                ),
            }
        });
    }
}

/// `lateen_xds::client` is shown as `xds::client`.
fn scope(target: &str) -> std::borrow::Cow<'_, str> {
    target.strip_prefix("lateen_").unwrap_or(target).into()
}

struct Fields {
    format: Format,
    message: String,
    rest: String,
}

impl Fields {
    fn put(&mut self, name: &str, value: fmt::Arguments<'_>, quoted: bool) {
        match (self.format, quoted) {
            (Format::Plain, true) => {
                let space = if self.rest.is_empty() { "" } else { " " };
                write!(self.rest, "{space}{name}={:?}", value.to_string())
            }
            (Format::Plain, false) => {
                let space = if self.rest.is_empty() { "" } else { " " };
                write!(self.rest, "{space}{name}={value}")
            }
            (Format::Json, true) => {
                write!(
                    self.rest,
                    ",{}:{}",
                    json_string(name),
                    json_string(&value.to_string())
                )
            }
            (Format::Json, false) => write!(self.rest, ",{}:{value}", json_string(name)),
        }
        .expect("a String takes every write");
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.message, "{value:?}").expect("a String takes every write");
        } else {
            let as_json_string = self.format == Format::Json;
            self.put(field.name(), format_args!("{value:?}"), as_json_string);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.put(field.name(), format_args!("{value}"), true);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), format_args!("{value}"), false);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), format_args!("{value}"), false);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), format_args!("{value}"), false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_are_checked() {
        for good in [
            "info",
            "off",
            "warn,access=debug",
            "debug,lateen_xds=trace,access=off",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "loud",
            "access",
            "access=",
            "info,",
            "info,access=loud",
            "=info=x",
        ] {
            assert!(matches!(parse(bad), Err(LevelError::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn our_crates_lose_their_prefix() {
        assert_eq!(scope("lateen_xds::client"), "xds::client");
        assert_eq!(scope("h2::proto"), "h2::proto");
    }

    proptest! {
        #[test]
        fn any_text_is_a_json_string(text in any::<String>()) {
            let read: String = serde_json::from_str(&json_string(&text)).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}

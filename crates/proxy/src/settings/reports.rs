//! Settings of connection reports, under the names of the OpenTelemetry specification.

use std::path::PathBuf;

use super::environment::Environment;
use super::error::SettingError;
use crate::sampling::Sampler;

/// What collectors get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// The collector of access log records, `http://HOST:PORT` or `https://HOST:PORT`; `None` if they are not sent.
    pub logs: Option<String>,
    /// The collector of spans; `None` if they are not sent.
    pub traces: Option<String>,
    /// Metadata of every request. Secret.
    pub headers: Vec<(String, String)>,
    /// Who may vouch for a collector; the system's roots if it is `None`.
    pub roots: Option<PathBuf>,
    /// Attributes of this process beside its own.
    pub resource: Vec<(String, String)>,
    /// Which connections are traced.
    pub sampler: Sampler,
}

impl Environment<'_> {
    pub(super) fn reports(&self) -> Result<Reports, SettingError> {
        const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
        if let Some(protocol) = self.filled(PROTOCOL)
            && protocol != "grpc"
        {
            return Err(self.bad(
                PROTOCOL,
                "this proxy sends OTLP over gRPC only: unset it or say grpc",
            ));
        }
        let (sampler, traced) = self.sampler()?;
        let wanted = |variable: &'static str| match self.filled(variable).as_deref() {
            None | Some("otlp") => Ok(true),
            Some("none") => Ok(false),
            Some(_) => Err(self.bad(variable, "use otlp or none")),
        };
        let (logs, traces) = (
            wanted("OTEL_LOGS_EXPORTER")?,
            wanted("OTEL_TRACES_EXPORTER")?,
        );
        let mut resource = self.pairs("OTEL_RESOURCE_ATTRIBUTES")?;
        resource.extend(
            self.filled("OTEL_SERVICE_NAME")
                .map(|name| ("service.name".to_owned(), name)),
        );
        let logs_at = self.endpoint("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")?;
        let traces_at = self.endpoint("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")?;
        Ok(Reports {
            logs: logs_at.filter(|_| logs),
            traces: traces_at.filter(|_| traces && traced),
            headers: self.headers()?,
            roots: self
                .filled("OTEL_EXPORTER_OTLP_CERTIFICATE")
                .map(PathBuf::from),
            resource,
            sampler,
        })
    }

    fn filled(&self, variable: &str) -> Option<String> {
        self.get(variable).filter(|value| !value.is_empty())
    }

    /// The signal's own endpoint, or the one for all signals.
    fn endpoint(&self, own: &'static str) -> Result<Option<String>, SettingError> {
        let variable = [own, "OTEL_EXPORTER_OTLP_ENDPOINT"]
            .into_iter()
            .find(|variable| self.filled(variable).is_some());
        let Some(variable) = variable else {
            return Ok(None);
        };
        let value = self.filled(variable).unwrap_or_default();
        let fix = "use http://HOST:PORT or https://HOST:PORT of a collector's gRPC port";
        let uri: http::Uri = value.parse().map_err(|_| self.bad(variable, fix))?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !known || uri.host().is_none_or(str::is_empty) {
            return Err(self.bad(variable, fix));
        }
        Ok(Some(value))
    }

    /// `KEY=VALUE,...`, percent-encoded, as W3C Baggage has it.
    fn pairs(&self, variable: &str) -> Result<Vec<(String, String)>, SettingError> {
        let value = self.filled(variable).unwrap_or_default();
        let pairs = value
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), decoded(value.trim())))
            }
            _ => Err(self.bad(variable, "use KEY=VALUE,KEY=VALUE")),
        });
        pairs.collect()
    }

    /// An error must not show what they hold: they carry the collectors' passwords.
    fn headers(&self) -> Result<Vec<(String, String)>, SettingError> {
        const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
        let secret = |_| SettingError {
            variable: VARIABLE.to_owned(),
            value: "(not shown)".to_owned(),
            fix: "use NAME=VALUE,NAME=VALUE with names and values that a header can carry"
                .to_owned(),
        };
        let pairs = self.pairs(VARIABLE).map_err(secret)?;
        for (name, value) in &pairs {
            let name = name.to_ascii_lowercase().parse::<http::HeaderName>();
            if name.is_err() || value.parse::<http::HeaderValue>().is_err() {
                return Err(secret(self.bad(VARIABLE, "")));
            }
        }
        Ok(pairs)
    }

    /// Which connections are traced, and whether any can be.
    fn sampler(&self) -> Result<(Sampler, bool), SettingError> {
        const VARIABLE: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let share = || match self.filled(ARGUMENT) {
            None => Ok(1.0),
            Some(value) => match value.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
                _ => Err(self.bad(ARGUMENT, "use a share from 0 to 1")),
            },
        };
        match self.filled(VARIABLE).as_deref() {
            None | Some("always_off") => Ok((Sampler::default(), false)),
            Some("parentbased_always_off") => Ok((Sampler::default(), true)),
            Some("parentbased_always_on") => Ok((Sampler::new(1.0), true)),
            Some("parentbased_traceidratio") => Ok((Sampler::new(share()?), true)),
            Some(_) => Err(self.bad(
                VARIABLE,
                "use parentbased_traceidratio (with OTEL_TRACES_SAMPLER_ARG), parentbased_always_on, \
                 parentbased_always_off or always_off: both sides of a connection must decide alike",
            )),
        }
    }
}

fn decoded(text: &str) -> String {
    let encoded = text.replace('+', "%2B");
    lateen_admin::parameters(&format!(
        "v={}",
        encoded.replace('&', "%26").replace('=', "%3D")
    ))
    .map(|(_, value)| value)
    .next()
    .unwrap_or_default()
}

//! Readers of single variables: their forms, their ranges, and their error messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lateen_netns::{DnsAt, Keepalive};
use lateen_os::SLICES;
use lateen_telemetry::{Dropped, SeriesOptions};
use lateen_tls::Compliance;
use lateen_types::{Identity, Strng};
use lateen_xds::Source;

use super::error::SettingError;
use super::reference;

const DEFAULT_TOKEN: &str = "./var/run/secrets/tokens/istio-token";
pub(super) const DEFAULT_ZDS: &str = "/var/run/ztunnel/ztunnel.sock";

/// Where a variable's value comes from: the process's environment, or a test's table.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whose bytes pass in the kernel alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acceleration {
    /// Nobody's.
    #[default]
    Off,
    /// Those of connections between two pods of this node.
    Splice,
}

/// Variables by name, each checked as it is read.
pub(super) struct Environment<'a> {
    pub(super) lookup: Lookup<'a>,
}

impl Environment<'_> {
    /// A document in place of a control plane; naming both is a mistake that would else show late.
    pub(super) fn local_source(&self) -> Result<Option<Source>, SettingError> {
        let text = |name| self.get(name).filter(|value| !value.is_empty());
        let (variable, source) = match (text("LOCAL_XDS_PATH"), text("LOCAL_XDS")) {
            (None, None) => return Ok(None),
            (Some(path), None) => ("LOCAL_XDS_PATH", Source::File(path.into())),
            (None, Some(document)) => ("LOCAL_XDS", Source::Inline(document)),
            (Some(_), Some(_)) => {
                return Err(self.bad("LOCAL_XDS_PATH", "LOCAL_XDS is set, too: unset one of them"));
            }
        };
        if text("XDS_ADDRESS").is_some() {
            let fix =
                "XDS_ADDRESS is set, too, and configuration has one source: unset one of them";
            return Err(self.bad(variable, fix));
        }
        if self.boolean("XDS_ON_DEMAND", false)? {
            let fix = "a local configuration is known as a whole: unset it";
            return Err(self.bad("XDS_ON_DEMAND", fix));
        }
        Ok(Some(source))
    }

    /// Whether resources are asked for one by one. The DNS proxy can only answer for names if it knows all of them.
    pub(super) fn on_demand(&self) -> Result<bool, SettingError> {
        let on_demand = self.boolean("XDS_ON_DEMAND", false)?;
        let dns = self.get("ISTIO_META_DNS_CAPTURE");
        if on_demand && dns.is_none_or(|dns| !dns.eq_ignore_ascii_case("false")) {
            let fix =
                "the DNS proxy needs all names: unset it, or set ISTIO_META_DNS_CAPTURE=false";
            return Err(self.bad("XDS_ON_DEMAND", fix));
        }
        Ok(on_demand)
    }

    /// Whether IPv6 is used.
    pub(super) fn ipv6(&self) -> Result<bool, SettingError> {
        self.boolean("IPV6_ENABLED", true)
    }

    /// The address of listeners that anybody may reach.
    pub(super) fn any_address(&self) -> Result<IpAddr, SettingError> {
        Ok(match self.ipv6()? {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        })
    }

    /// What ztunnel would do and this proxy does not must be said, not dropped: some of it is protection.
    pub(super) fn refuse_what_is_missing(&self) -> Result<(), SettingError> {
        const MISSING: [(&str, Option<&str>, &str); 2] = [
            (
                "FAKE_CA",
                Some("true"),
                "this proxy takes certificates from CA_ADDRESS only: unset it",
            ),
            (
                "ENABLE_ORIG_SRC",
                Some("false"),
                "this proxy always keeps the source address: unset it",
            ),
        ];
        for (variable, only, fix) in MISSING {
            if let Some(value) = self.get(variable)
                && only.is_none_or(|only| value == only)
            {
                return Err(self.bad(variable, fix));
            }
        }
        Ok(())
    }

    pub(super) fn token(&self) -> Result<Option<PathBuf>, SettingError> {
        const VARIABLE: &str = "AUTH_TOKEN";
        match self.get(VARIABLE) {
            // A JWT begins with the base64 of `{"`. Nobody wants to see it in a log.
            Some(value) if value.starts_with("eyJ") => Err(SettingError {
                variable: VARIABLE.to_owned(),
                value: "(a token)".to_owned(),
                fix:
                    "put the token into a file and set the variable to its path: tokens are renewed"
                        .to_owned(),
            }),
            Some(file) => Ok(Some(file.into())),
            None => Ok(Some(PathBuf::from(DEFAULT_TOKEN)).filter(|file| file.exists())),
        }
    }

    /// `COMPLIANCE_POLICY`. Istio's `fips-140-2` is refused, not half done: this build's cryptography is not validated.
    pub(super) fn compliance(&self) -> Result<Compliance, SettingError> {
        let known = Compliance::NAMES.join(", ");
        self.parsed(
            "COMPLIANCE_POLICY",
            Compliance::default(),
            &format!("leave it out, or use one of: {known}"),
        )
    }

    pub(super) fn accelerator(&self) -> Result<Acceleration, SettingError> {
        const VARIABLE: &str = "LATEEN_ACCELERATOR";
        match self.get(VARIABLE).as_deref() {
            None | Some("off") => Ok(Acceleration::Off),
            Some("splice") => Ok(Acceleration::Splice),
            Some(_) => Err(self.bad(VARIABLE, "leave it out, or use one of: off, splice")),
        }
    }

    pub(super) fn trust_domain_aliases(&self) -> Result<Vec<Strng>, SettingError> {
        const VARIABLE: &str = "TRUST_DOMAIN_ALIASES";
        let list = self.get(VARIABLE).unwrap_or_default();
        let names = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        names
            .map(|name| {
                // What an identity takes for a trust domain is one.
                match Identity::new(name, "default", "default") {
                    Ok(identity) => Ok(identity.trust_domain().clone()),
                    Err(_) => Err(self.bad(
                        VARIABLE,
                        "use trust domains such as old.example, with commas between them",
                    )),
                }
            })
            .collect()
    }

    /// How many series of connections there are, how long they stay, and what they show.
    pub(super) fn series(&self) -> Result<SeriesOptions, SettingError> {
        const DROPPED: &str = "LATEEN_METRICS_DROP_LABELS";
        let default = SeriesOptions::default();
        let idle = self.duration("LATEEN_METRICS_IDLE", default.idle.unwrap_or_default())?;
        let most = self.within("LATEEN_METRICS_SERIES", default.most as u64, 1..=1_000_000)?;
        let dropped = Dropped::parse(&self.get(DROPPED).unwrap_or_default())
            .map_err(|error| self.bad(DROPPED, &error.to_string()))?;
        Ok(SeriesOptions {
            idle: (!idle.is_zero()).then_some(idle),
            most: most as usize,
            dropped,
        })
    }

    pub(super) fn get(&self, variable: &str) -> Option<String> {
        reference::expect_declared(variable);
        (self.lookup)(variable).filter(|value| !value.is_empty())
    }

    pub(super) fn bad(&self, variable: &str, fix: &str) -> SettingError {
        SettingError {
            variable: variable.to_owned(),
            value: (self.lookup)(variable).unwrap_or_default(),
            fix: fix.to_owned(),
        }
    }

    pub(super) fn parsed<T: FromStr>(
        &self,
        variable: &str,
        default: T,
        fix: &str,
    ) -> Result<T, SettingError> {
        match self.get(variable) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| self.bad(variable, fix)),
        }
    }

    pub(super) fn boolean(&self, variable: &str, default: bool) -> Result<bool, SettingError> {
        self.parsed(variable, default, "use true or false")
    }

    pub(super) fn within(
        &self,
        variable: &str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, SettingError> {
        let fix = format!("use a number from {} to {}", range.start(), range.end());
        let value = self.parsed(variable, default, &fix)?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(self.bad(variable, &fix))
        }
    }

    pub(super) fn https(&self, variable: &str, default: &str) -> Result<String, SettingError> {
        let address = self.get(variable).unwrap_or_else(|| default.to_owned());
        let host = address.strip_prefix("https://").unwrap_or_default();
        let has_host =
            !host.is_empty() && !host.starts_with(':') && !host.contains(char::is_whitespace);
        if has_host {
            Ok(address)
        } else {
            Err(self.bad(
                variable,
                "use https://HOST:PORT; plain text is not spoken to the control plane",
            ))
        }
    }

    pub(super) fn duration(
        &self,
        variable: &str,
        default: Duration,
    ) -> Result<Duration, SettingError> {
        match self.get(variable) {
            None => Ok(default),
            Some(value) => parse_duration(&value).ok_or_else(|| {
                self.bad(
                    variable,
                    "use a number with us, ms, s, m, h or d, such as 90s or 1h30m",
                )
            }),
        }
    }

    pub(super) fn keepalive(&self) -> Result<Option<Keepalive>, SettingError> {
        let default = Keepalive::default();
        let keepalive = Keepalive {
            time: self.keepalive_time("KEEPALIVE_TIME", default.time)?,
            interval: self.keepalive_time("KEEPALIVE_INTERVAL", default.interval)?,
            // tcp(7): at most MAX_TCP_KEEPCNT.
            retries: self.within("KEEPALIVE_RETRIES", u64::from(default.retries), 1..=127)? as u32,
        };
        Ok(self
            .boolean("KEEPALIVE_ENABLED", true)?
            .then_some(keepalive))
    }

    /// tcp(7): whole seconds, at most MAX_TCP_KEEPIDLE. The kernel refuses other times for each connection.
    fn keepalive_time(&self, variable: &str, default: Duration) -> Result<Duration, SettingError> {
        let time = self.duration(variable, default)?;
        match time.as_secs() {
            1..=32767 => Ok(time),
            _ => Err(self.bad(variable, "use a duration from 1s to 32767s")),
        }
    }

    /// A socket's path: beside the agent's, unless said otherwise.
    pub(super) fn beside_the_agents(&self, variable: &str, name: &str) -> PathBuf {
        match self.get(variable) {
            Some(path) => path.into(),
            None => {
                let zds = self
                    .get("INPOD_UDS")
                    .unwrap_or_else(|| DEFAULT_ZDS.to_owned());
                PathBuf::from(zds).with_file_name(name)
            }
        }
    }

    /// ztunnel's node metadata. `localhost` stands for both loopback addresses, as far as a pod has them.
    pub(super) fn dns(&self) -> Result<Option<DnsAt>, SettingError> {
        const CAPTURE: &str = "ISTIO_META_DNS_CAPTURE";
        const ADDRESS: &str = "ISTIO_META_DNS_PROXY_ADDR";
        const FIX: &str = "use localhost:PORT or a loopback address and a port";
        match self
            .get(CAPTURE)
            .map(|value| value.to_ascii_lowercase())
            .as_deref()
        {
            None | Some("true") => {}
            Some("false") => return Ok(None),
            Some(_) => return Err(self.bad(CAPTURE, "use true or false")),
        }
        let Some(value) = self.get(ADDRESS) else {
            return Ok(Some(DnsAt::default()));
        };
        let at = match value.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(DnsAt::Localhost),
            None => value.parse().ok().map(DnsAt::Exactly),
        };
        let usable = |at: &DnsAt| match at {
            DnsAt::Localhost(port) => *port > 0,
            // Whoever reaches another address is not the pod.
            DnsAt::Exactly(address) => address.ip().is_loopback() && address.port() > 0,
        };
        match at.filter(usable) {
            Some(at) => Ok(Some(at)),
            None => Err(self.bad(ADDRESS, FIX)),
        }
    }

    pub(super) fn domain(&self, variable: &str, default: &str) -> Result<Strng, SettingError> {
        let domain = self.get(variable).unwrap_or_else(|| default.to_owned());
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if domain.split('.').all(is_label) {
            Ok(domain.to_ascii_lowercase().into())
        } else {
            Err(self.bad(variable, "use a DNS domain such as cluster.local"))
        }
    }

    pub(super) fn termination_deadline(&self) -> Result<Duration, SettingError> {
        if self.get("CONNECTION_TERMINATION_DEADLINE").is_some() {
            return self.duration("CONNECTION_TERMINATION_DEADLINE", Duration::ZERO);
        }
        if self.get("TERMINATION_GRACE_PERIOD_SECONDS").is_none() {
            return Ok(Duration::from_secs(5));
        }
        let grace = self.within(
            "TERMINATION_GRACE_PERIOD_SECONDS",
            30,
            1..=u64::from(u32::MAX),
        )?;
        // The last seconds belong to an orderly end before SIGKILL.
        let own = if grace > 10 { grace - 5 } else { grace - 1 };
        Ok(Duration::from_secs(own.max(1)))
    }

    /// `LATEEN_WORKER_SLICE`; `0s` leaves the slice to the system.
    pub(super) fn worker_slice(&self) -> Result<Option<Duration>, SettingError> {
        const VARIABLE: &str = "LATEEN_WORKER_SLICE";
        let slice = self.duration(VARIABLE, *SLICES.start())?;
        if slice.is_zero() {
            return Ok(None);
        }
        if !SLICES.contains(&slice) {
            return Err(self.bad(VARIABLE, "use a duration from 100us to 100ms, or 0s"));
        }
        Ok(Some(slice))
    }

    /// ztunnel's rule: a number, a percentage of the cores, or 0 for all of them. Left alone, one worker serves a
    /// machine with fewer than four cores and a quarter of the cores a larger one.
    pub(super) fn workers(&self, cores: usize) -> Result<usize, SettingError> {
        const VARIABLE: &str = "ZTUNNEL_WORKER_THREADS";
        const FIX: &str =
            "use a number of threads, 0 for one per core, or a percentage such as 50%";
        let limit = self.cpu_quantity("ZTUNNEL_RESOURCE_CPU_LIMIT")?;
        let cores = match limit {
            Some(limit) => limit,
            None => self.within("ZTUNNEL_CPU_LIMIT", cores as u64, 1..=4096)? as usize,
        };
        let Some(value) = self.get(VARIABLE) else {
            let request = self
                .cpu_quantity("ZTUNNEL_RESOURCE_CPU_REQUEST")?
                .unwrap_or(0);
            return Ok(limit.unwrap_or(cores.div_ceil(4)).max(request).max(1));
        };
        if let Some(percentage) = value.strip_suffix('%') {
            let percentage: f64 = percentage.parse().map_err(|_| self.bad(VARIABLE, FIX))?;
            if !(percentage > 0.0 && percentage <= 100.0) {
                return Err(self.bad(VARIABLE, FIX));
            }
            return Ok(((cores as f64 * percentage / 100.0).ceil() as usize).max(1));
        }
        match value.parse() {
            Ok(0) => Ok(cores),
            Ok(threads @ 1..=1024) => Ok(threads),
            _ => Err(self.bad(VARIABLE, FIX)),
        }
    }

    /// A CPU quantity of Kubernetes, such as `2`, `1.5` or `500m`, rounded up to whole cores.
    fn cpu_quantity(&self, variable: &str) -> Result<Option<usize>, SettingError> {
        let Some(value) = self.get(variable) else {
            return Ok(None);
        };
        let cores = match value.strip_suffix('m') {
            Some(millis) => millis.parse::<f64>().map(|millis| millis / 1000.0),
            None => value.parse(),
        };
        match cores {
            Ok(cores) if cores > 0.0 && cores <= 4096.0 => Ok(Some(cores.ceil() as usize)),
            _ => Err(self.bad(variable, "use a CPU quantity such as 2, 1.5 or 500m")),
        }
    }
}

/// The logical cores of this machine.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One or more numbers, each with its unit: `1h30m`. A bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let end = tail
            .find(|char: char| char.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let part = match unit {
            "us" => Duration::from_micros(number),
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(3600)?),
            "d" => Duration::from_secs(number.checked_mul(86_400)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

//! The settings of the Gateway and of the mesh, as this role goes by them. They are made once when the resource arrives.

use std::sync::Arc;
use std::time::Duration;

use lateen_config::l7::{Gateway, MeshSettings, PathNormalization, Traffic};
use lateen_http::{PathLevel, PathRules, Rules, Trust};

use super::access_log::LogFormat;
use super::retry::RetryPolicy;

/// The settings in force.
pub(super) struct Mesh {
    /// The rules for heads of requests.
    pub(super) rules: Rules,
    /// The format of the access log; `None`: Lateen's own lines.
    pub(super) log: Option<Arc<LogFormat>>,
    /// How long a connection to an endpoint may take.
    pub(super) connect_timeout: Duration,
    /// Repeats of requests.
    pub(super) retry: RetryPolicy,
    /// The destinations whose traffic the Gateway takes.
    pub(super) traffic: Traffic,
    of: MeshSettings,
}

impl Mesh {
    /// The settings of a Gateway; those from before stay if they are the same. `tells` has this worker log what is not followed.
    pub(super) fn of(gateway: &Gateway, before: Option<&Arc<Self>>, tells: bool) -> Arc<Self> {
        let settings = &gateway.settings;
        if let Some(before) = before
            && before.of == *settings
            && before.traffic == gateway.traffic
        {
            return Arc::clone(before);
        }
        let (log, problems) = LogFormat::compile(&settings.access_log);
        let (retry, ignored) = RetryPolicy::of(settings.retry.as_ref());
        if tells {
            for problem in problems {
                tracing::warn!(gateway = %gateway.name, "MeshConfig: {problem}");
            }
            for condition in ignored {
                tracing::warn!(gateway = %gateway.name, "MeshConfig: defaultHttpRetryPolicy.retryOn: no answer is repeated on {condition}; answers of endpoints are final");
            }
        }
        Arc::new(Self {
            rules: Rules {
                path: PathRules {
                    level: level(settings.path_normalization),
                    ..PathRules::default()
                },
                trust: Trust::waypoint(),
            },
            log: log.map(Arc::new),
            connect_timeout: settings.connect_timeout,
            retry,
            traffic: gateway.traffic,
            of: settings.clone(),
        })
    }
}

fn level(normalization: PathNormalization) -> PathLevel {
    match normalization {
        PathNormalization::Base => PathLevel::Base,
        PathNormalization::None => PathLevel::None,
        PathNormalization::MergeSlashes => PathLevel::MergeSlashes,
        PathNormalization::DecodeAndMergeSlashes => PathLevel::DecodeAndMergeSlashes,
    }
}

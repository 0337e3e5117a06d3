//! The settings of the Gateway and of the mesh, as this role goes by them. They are made once when the resource arrives.

use std::sync::Arc;

use lateen_config::l7::{Gateway, MeshSettings, PathNormalization};
use lateen_http::{PathLevel, PathRules, Rules, Trust};

use super::access_log::LogFormat;

/// The settings in force.
pub(super) struct Mesh {
    /// The rules for heads of requests.
    pub(super) rules: Rules,
    /// The format of the access log; `None`: Lateen's own lines.
    pub(super) log: Option<Arc<LogFormat>>,
    of: MeshSettings,
}

impl Mesh {
    /// The settings of a Gateway; those from before stay if they are the same. `tells` has this worker log what is not followed.
    pub(super) fn of(gateway: &Gateway, before: Option<&Arc<Self>>, tells: bool) -> Arc<Self> {
        let settings = &gateway.settings;
        if let Some(before) = before
            && before.of == *settings
        {
            return Arc::clone(before);
        }
        let (log, problems) = LogFormat::compile(&settings.access_log);
        for problem in problems.iter().filter(|_| tells) {
            tracing::warn!(gateway = %gateway.name, "MeshConfig: {problem}");
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

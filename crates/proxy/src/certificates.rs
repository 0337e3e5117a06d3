//! Where this proxy's certificates come from, counted.

use std::sync::Arc;

use lateen_identity::{CaClient, CaError, CaSettings, Issued, Issuer, TokenSource};
use lateen_telemetry::Metrics;
use lateen_tls::{ControlConnector, Roots};
use lateen_types::Identity;

use crate::settings::Settings;

/// The certificate authority that the settings name.
///
/// # Errors
/// The address or a header cannot be used.
pub fn authority(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Arc<dyn Issuer>, CaError> {
    let ca = &settings.ca;
    let client = CaClient::new(CaSettings {
        address: ca.address.clone(),
        connector: ControlConnector::new(Roots::parse(&ca.roots), ca.alternative_name.as_deref()),
        token: settings
            .token
            .clone()
            .map_or(TokenSource::None, TokenSource::File),
        cluster: settings.cluster_id.to_string(),
        ttl: settings.certificate_ttl,
        headers: ca.headers.clone(),
    })?;
    Ok(Arc::new(Counted {
        issuer: client,
        metrics: Arc::clone(metrics),
    }))
}

struct Counted {
    issuer: CaClient,
    metrics: Arc<Metrics>,
}

impl Issuer for Counted {
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
        Box::pin(async move {
            let outcome = self.issuer.issue(identity).await;
            self.metrics.certificate_requested(outcome.is_ok());
            outcome
        })
    }
}

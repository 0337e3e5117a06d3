//! Labels of connection metrics that are shown. Label sets that differ only in hidden labels are one.

use lateen_types::Strng;

use crate::labels::{Labels, Party, Security, Service};

/// The labels of `istio_tcp_*`, in the order of a series.
pub(crate) const NAMES: [&str; 27] = [
    "reporter",
    "source_workload",
    "source_canonical_service",
    "source_canonical_revision",
    "source_workload_namespace",
    "source_principal",
    "source_app",
    "source_version",
    "source_cluster",
    "destination_service",
    "destination_service_namespace",
    "destination_service_name",
    "destination_workload",
    "destination_canonical_service",
    "destination_canonical_revision",
    "destination_workload_namespace",
    "destination_principal",
    "destination_app",
    "destination_version",
    "destination_cluster",
    "request_protocol",
    "response_flags",
    "connection_security_policy",
    "source_region",
    "source_zone",
    "destination_region",
    "destination_zone",
];
const SOURCE: usize = 1;
const SERVICE: usize = 9;
const DESTINATION: usize = 12;
const PROTOCOL: usize = 20;
const FLAGS: usize = 21;
const SECURITY: usize = 22;
const LOCALITIES: usize = 23;

/// A label that cannot be dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropError {
    /// No series has it.
    #[error(
        "{0:?} is no label of istio_tcp_* counters: use their names, such as source_version, with commas between them"
    )]
    Unknown(String),
    /// Without it the two reports of one connection would be added up.
    #[error(
        "reporter cannot be dropped, since both ends count a connection and it would count twice: take it off the list"
    )]
    Reporter,
}

/// The labels that are left out of `istio_tcp_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped(u32);

impl Dropped {
    /// Reads names with commas between them; an empty list drops nothing.
    pub fn parse(list: &str) -> Result<Self, DropError> {
        let mut dropped = 0;
        let names = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        for name in names {
            match NAMES.iter().position(|known| *known == name) {
                Some(0) => return Err(DropError::Reporter),
                Some(label) => dropped |= 1 << label,
                None => return Err(DropError::Unknown(name.to_owned())),
            }
        }
        Ok(Self(dropped))
    }

    /// Whether every label is shown.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the label at this place of [`NAMES`] is shown.
    pub(crate) fn shows(self, label: usize) -> bool {
        self.0 & (1 << label) == 0
    }

    pub(crate) fn shows_protocol(self) -> bool {
        self.shows(PROTOCOL)
    }

    pub(crate) fn shows_flags(self) -> bool {
        self.shows(FLAGS)
    }

    /// What a series shows of these labels but for its flags. Label sets that would be rendered alike become equal, so
    /// that no page has a series twice.
    pub(crate) fn apply(self, mut labels: Labels) -> Labels {
        labels.flags = crate::labels::ResponseFlags::None;
        self.party(SOURCE, &mut labels.source);
        self.party(DESTINATION, &mut labels.destination);
        labels.service = labels.service.and_then(|service| self.service(service));
        if !self.shows(SECURITY) {
            labels.security = Security::Unknown;
        }
        let any = (LOCALITIES..NAMES.len()).any(|label| self.shows(label))
            && (labels.source.locality.is_some() || labels.destination.locality.is_some());
        for (first, party) in [
            (LOCALITIES, &mut labels.source),
            (LOCALITIES + 2, &mut labels.destination),
        ] {
            let (mut region, mut zone) = party.locality.take().unwrap_or_default();
            self.text(first, &mut region);
            self.text(first + 1, &mut zone);
            party.locality = any.then_some((region, zone));
        }
        labels
    }

    fn party(self, first: usize, party: &mut Party) {
        self.text(first, &mut party.workload);
        self.text(first + 1, &mut party.canonical_service);
        self.text(first + 2, &mut party.canonical_revision);
        self.text(first + 3, &mut party.namespace);
        party.principal = party.principal.take().filter(|_| self.shows(first + 4));
        self.text(first + 5, &mut party.app);
        self.text(first + 6, &mut party.version);
        self.text(first + 7, &mut party.cluster);
    }

    fn service(self, mut service: Service) -> Option<Service> {
        let mut any = false;
        for (label, value) in [
            (SERVICE, &mut service.hostname),
            (SERVICE + 1, &mut service.namespace),
            (SERVICE + 2, &mut service.name),
        ] {
            if self.shows(label) && is_known(value) {
                any = true;
            } else {
                *value = Strng::default();
            }
        }
        any.then_some(service)
    }

    fn text(self, label: usize, value: &mut Option<Strng>) {
        if !self.shows(label) || value.as_ref().is_some_and(|value| !is_known(value)) {
            *value = None;
        }
    }
}

fn is_known(value: &Strng) -> bool {
    !value.is_empty() && value.as_ref() != "unknown"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(Dropped::parse(""), Ok(Dropped::default()));
        let dropped = Dropped::parse(" source_version,destination_version ,").unwrap();
        assert!(!dropped.is_empty() && dropped.shows(SOURCE));
        assert!(!dropped.shows(SOURCE + 6) && !dropped.shows(DESTINATION + 6));
        assert_eq!(Dropped::parse("reporter"), Err(DropError::Reporter));
        assert_eq!(
            Dropped::parse("source_app,le"),
            Err(DropError::Unknown("le".to_owned()))
        );
    }

    #[test]
    fn places_are_those_of_the_names() {
        for (place, name) in [
            (SOURCE, "source_workload"),
            (SERVICE, "destination_service"),
            (DESTINATION, "destination_workload"),
            (PROTOCOL, "request_protocol"),
            (FLAGS, "response_flags"),
            (SECURITY, "connection_security_policy"),
            (LOCALITIES, "source_region"),
        ] {
            assert_eq!(NAMES[place], name);
        }
    }
}

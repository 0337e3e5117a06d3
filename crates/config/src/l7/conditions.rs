//! The conditions of rules from the wire.

use lateen_policy::StringMatch;
use lateen_policy::request::{ConditionMatch, HeaderName, Values};
use lateen_proto::l7 as proto;
use lateen_proto::l7::value::Value as Form;

use super::values;
use crate::{Rejection, wire};

/// Reads one condition.
pub(super) fn parse(condition: &proto::Condition) -> Result<ConditionMatch, Rejection> {
    use proto::condition::Attribute as Wire;
    if condition.values.is_empty() && condition.not_values.is_empty() {
        return Err(Rejection::Missing { field: "values" });
    }
    match condition.attribute.as_ref() {
        Some(Wire::Header(name)) => {
            let name = HeaderName::new(name)
                .map_err(|error| Rejection::Invalid(format!("request.headers: {error}")))?;
            Ok(ConditionMatch::Header(
                name,
                texts("request.headers", condition)?,
            ))
        }
        Some(Wire::Claim(claim)) if claim.path.is_empty() => Err(Rejection::Missing {
            field: "claim.path",
        }),
        Some(Wire::Claim(claim)) => {
            let path = claim.path.iter().map(|name| name.as_str().into()).collect();
            Ok(ConditionMatch::TokenClaim(
                path,
                texts("request.auth.claims", condition)?,
            ))
        }
        Some(Wire::Known(known)) => known_attribute(*known, condition),
        None => Err(Rejection::Missing { field: "attribute" }),
    }
}

fn known_attribute(
    attribute: i32,
    condition: &proto::Condition,
) -> Result<ConditionMatch, Rejection> {
    use proto::Attribute;
    let blocks = |field| {
        of_form(field, condition, |form| match form {
            Form::Block(block) => Some(values::block(field, block)),
            _ => None,
        })
    };
    Ok(match wire::known("attribute", attribute)? {
        Attribute::Unknown => return Err(Rejection::Missing { field: "attribute" }),
        Attribute::SourceIp => ConditionMatch::SourceIp(blocks("source.ip")?),
        Attribute::RemoteIp => ConditionMatch::RemoteIp(blocks("remote.ip")?),
        Attribute::DestinationIp => ConditionMatch::DestinationIp(blocks("destination.ip")?),
        Attribute::DestinationPort => {
            let field = "destination.port";
            ConditionMatch::DestinationPort(of_form(field, condition, |form| match form {
                Form::Port(port) => Some(values::port(field, port)),
                _ => None,
            })?)
        }
        Attribute::SourceServiceAccount => {
            let field = "source.serviceAccount";
            ConditionMatch::SourceServiceAccount(of_form(field, condition, |form| match form {
                Form::ServiceAccount(account) => Some(values::account(field, account)),
                _ => None,
            })?)
        }
        Attribute::SourceNamespace => {
            ConditionMatch::SourceNamespace(texts("source.namespace", condition)?)
        }
        Attribute::SourcePrincipal => {
            ConditionMatch::SourcePrincipal(texts("source.principal", condition)?)
        }
        Attribute::SourceTrustDomain => {
            ConditionMatch::SourceTrustDomain(texts("source.trustDomain", condition)?)
        }
        Attribute::ConnectionSni => ConditionMatch::Sni(texts("connection.sni", condition)?),
        Attribute::RequestAuthPrincipal => {
            ConditionMatch::TokenPrincipal(texts("request.auth.principal", condition)?)
        }
        Attribute::RequestAuthAudiences => {
            ConditionMatch::TokenAudiences(texts("request.auth.audiences", condition)?)
        }
        Attribute::RequestAuthPresenter => {
            ConditionMatch::TokenPresenter(texts("request.auth.presenter", condition)?)
        }
    })
}

fn texts(
    field: &'static str,
    condition: &proto::Condition,
) -> Result<Values<StringMatch>, Rejection> {
    of_form(field, condition, |form| match form {
        Form::Text(text) => Some(values::text(field, text)),
        _ => None,
    })
}

/// The values of a condition, of which each has the form of the attribute.
fn of_form<T>(
    field: &'static str,
    condition: &proto::Condition,
    parse: impl Fn(&Form) -> Option<Result<T, Rejection>>,
) -> Result<Values<T>, Rejection> {
    let one = |_: &'static str, value: &proto::Value| {
        let form = value.value.as_ref().ok_or(Rejection::Missing { field })?;
        parse(form).unwrap_or_else(|| {
            Err(Rejection::Invalid(format!(
                "{field}: a value has the form of another attribute's"
            )))
        })
    };
    values::both(field, &condition.values, &condition.not_values, one)
}

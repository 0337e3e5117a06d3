//! Content of a NACK: a text for people, and the name of every refused resource for the control plane.
//!
//! The names travel as a `google.rpc.BadRequest` among the status's details, one violation per resource with its xDS name as
//! the field. A control plane that does not look there loses nothing.

use lateen_config::Refused;
use lateen_proto::google::rpc;
use prost::Message;
use tonic::Code;

/// The text names this many resources and counts the rest: an error must not itself grow too large to send.
const NAMED_IN_TEXT: usize = 20;

/// The details' names take this many bytes at most: a quarter of what a gRPC server accepts by default.
const NAMES_BYTES: usize = 1 << 20;

/// What a violation costs beside its name, at most: two tags and two lengths.
const VIOLATION_BYTES: usize = 12;

const BAD_REQUEST_TYPE: &str = "type.googleapis.com/google.rpc.BadRequest";

/// `google.rpc.BadRequest`, error_details.proto.
#[derive(Clone, PartialEq, Message)]
struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    field_violations: Vec<FieldViolation>,
}

/// `google.rpc.BadRequest.FieldViolation`. One without a field is of what found no room: some of the response are
/// refused without being named.
#[derive(Clone, PartialEq, Message)]
struct FieldViolation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

/// An error that refuses a whole response, or says that it was of no use.
pub(crate) fn of_response(message: String) -> rpc::Status {
    rpc::Status {
        code: Code::InvalidArgument as i32,
        message,
        details: Vec::new(),
    }
}

/// An error that refuses some resources of a response.
pub(crate) fn of_resources(refused: &[Refused]) -> rpc::Status {
    let mut status = of_response(text(refused));
    status.details.push(prost_types::Any {
        type_url: BAD_REQUEST_TYPE.to_owned(),
        value: names(refused, NAMES_BYTES).encode_to_vec(),
    });
    status
}

fn text(refused: &[Refused]) -> String {
    let named: Vec<_> = refused
        .iter()
        .take(NAMED_IN_TEXT)
        .map(Refused::to_string)
        .collect();
    match refused.len() - named.len() {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

fn names(refused: &[Refused], mut room: usize) -> BadRequest {
    let mut request = BadRequest::default();
    for (i, refused_one) in refused.iter().enumerate() {
        let Some(left) = room.checked_sub(refused_one.name.len() + VIOLATION_BYTES) else {
            request.field_violations.push(FieldViolation {
                field: String::new(),
                description: format!("and {} more", refused.len() - i),
            });
            break;
        };
        room = left;
        request.field_violations.push(FieldViolation {
            field: refused_one.name.to_string(),
            description: String::new(),
        });
    }
    request
}

#[cfg(test)]
mod tests {
    use lateen_config::Rejection;

    use super::*;

    fn refused(count: usize) -> Vec<Refused> {
        (0..count)
            .map(|i| Refused {
                name: format!("shop/w{i}").as_str().into(),
                reason: Rejection::Empty,
            })
            .collect()
    }

    #[test]
    fn names_every_resource_where_there_is_room() {
        let status = of_resources(&refused(5000));
        assert!(status.message.len() < 4096 && status.message.ends_with("and 4980 more"));
        assert_eq!(status.details[0].type_url, BAD_REQUEST_TYPE);
        let request = BadRequest::decode(&*status.details[0].value).expect("a BadRequest");
        assert_eq!(request.field_violations.len(), 5000);
        assert!(
            request
                .field_violations
                .iter()
                .enumerate()
                .all(|(i, violation)| violation.field == format!("shop/w{i}"))
        );
    }

    #[test]
    fn says_that_there_are_more_where_there_is_no_room() {
        let request = names(&refused(100), 500);
        let (last, named) = request.field_violations.split_last().expect("violations");
        assert!(!named.is_empty() && named.iter().all(|violation| !violation.field.is_empty()));
        assert_eq!(last.field, "");
        assert_eq!(last.description, format!("and {} more", 100 - named.len()));
        assert!(request.encoded_len() < 600, "{}", request.encoded_len());
        let exact = names(&refused(1), "shop/w0".len() + VIOLATION_BYTES);
        assert_eq!(exact.field_violations.len(), 1);
        assert_eq!(exact.field_violations[0].field, "shop/w0");
    }
}

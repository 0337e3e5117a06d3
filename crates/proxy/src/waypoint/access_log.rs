//! Access log in Envoy's formats, as MeshConfig asks for it: `accessLogFormat` is compiled once into literals and operators.
//!
//! A format is text or a JSON object. [`Values`] gives the values of one request or connection. Nothing that a peer sends can
//! end a line or a quoted value: `value` escapes all texts.

mod escape;
mod operator;
mod template;
mod time;
mod value;

use std::collections::BTreeMap;

use lateen_config::l7::{AccessLog, Encoding};
use serde_json::Value as Json;

pub(super) use time::TimeFormat;

pub(super) use operator::{Address, GrpcForm, Header, HeaderName, Operator, Part};
pub(super) use value::{Value, Values};

use template::Template;

/// Istio's default of text: `EnvoyTextLogFormat` of its `pilot/pkg/model`.
const TEXT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// Istio's default of JSON: `EnvoyJSONLogFormatIstio`.
const JSON: [(&str, &str); 24] = [
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    (
        "connection_termination_details",
        "%CONNECTION_TERMINATION_DETAILS%",
    ),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("route_name", "%ROUTE_NAME%"),
    ("start_time", "%START_TIME%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    (
        "upstream_service_time",
        "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
    ),
    (
        "upstream_transport_failure_reason",
        "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    ),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
];

/// A compiled format.
#[derive(Debug)]
pub(super) struct LogFormat {
    form: Form,
    reads_answer: bool,
    reads_trailers: bool,
}

#[derive(Debug)]
enum Form {
    Text(Template),
    Json(Node),
}

/// A part of a JSON format.
#[derive(Debug)]
enum Node {
    /// The members in the order of their names, as Envoy writes them.
    Object(BTreeMap<String, Node>),
    Array(Vec<Node>),
    Text(Template),
    /// A value that is no text, as it stands in the format.
    Literal(String),
}

impl LogFormat {
    /// Compiles the mesh's setting. `None`: Lateen's own lines. The sentences say what of the setting is not followed.
    pub(super) fn compile(setting: &AccessLog) -> (Option<Self>, Vec<String>) {
        let mut problems = Vec::new();
        if !setting.enabled {
            return (None, problems);
        }
        let form = match setting.encoding {
            Encoding::Text => Form::Text(text(&setting.format, &mut problems)),
            Encoding::Json => Form::Json(json(&setting.format, &mut problems)),
        };
        problems.sort();
        problems.dedup();
        let reads = |wanted: fn(&Operator) -> bool| match &form {
            Form::Text(template) => template.any(&wanted),
            Form::Json(node) => node.any(&wanted),
        };
        let format = Self {
            reads_answer: reads(Operator::reads_answer),
            reads_trailers: reads(|operator| matches!(operator, Operator::Trailer(_))),
            form,
        };
        (Some(format), problems)
    }

    /// True if the head of the answer must be kept for the line.
    pub(super) fn reads_answer(&self) -> bool {
        self.reads_answer
    }

    /// True if the trailers of the answer must be kept for the line.
    pub(super) fn reads_trailers(&self) -> bool {
        self.reads_trailers
    }

    /// The line, with its end.
    pub(super) fn line(&self, values: &impl Values) -> Vec<u8> {
        let mut line = Vec::with_capacity(512);
        match &self.form {
            Form::Text(template) => template.text(values, &mut line),
            Form::Json(node) => {
                node.write(values, &mut line);
                line.push(b'\n');
            }
        }
        line
    }
}

fn text(format: &str, problems: &mut Vec<String>) -> Template {
    match format {
        "" => Template::parse(TEXT, problems),
        format if format.ends_with('\n') => Template::parse(format, problems),
        format => Template::parse(&format!("{format}\n"), problems),
    }
}

fn json(format: &str, problems: &mut Vec<String>) -> Node {
    if !format.is_empty() {
        match serde_json::from_str(format) {
            Ok(object @ Json::Object(_)) => return Node::of(object, problems),
            Ok(_) => problems.push("accessLogFormat is JSON, but no object".to_owned()),
            Err(error) => problems.push(format!("accessLogFormat is no JSON: {error}")),
        }
    }
    let members = JSON.map(|(name, value)| {
        let template = Template::parse(value, problems);
        (name.to_owned(), Node::Text(template))
    });
    Node::Object(members.into())
}

impl Node {
    fn of(json: Json, problems: &mut Vec<String>) -> Self {
        match json {
            Json::Object(members) => {
                let members = members.into_iter();
                Self::Object(
                    members
                        .map(|(name, value)| (name, Self::of(value, problems)))
                        .collect(),
                )
            }
            Json::Array(list) => Self::Array(
                list.into_iter()
                    .map(|value| Self::of(value, problems))
                    .collect(),
            ),
            Json::String(text) => Self::Text(Template::parse(&text, problems)),
            other => Self::Literal(other.to_string()),
        }
    }

    fn any(&self, wanted: &impl Fn(&Operator) -> bool) -> bool {
        match self {
            Self::Object(members) => members.values().any(|node| node.any(wanted)),
            Self::Array(list) => list.iter().any(|node| node.any(wanted)),
            Self::Text(template) => template.any(wanted),
            Self::Literal(_) => false,
        }
    }

    fn write(&self, values: &impl Values, line: &mut Vec<u8>) {
        match self {
            Self::Object(members) => {
                line.push(b'{');
                for (n, (name, node)) in members.iter().enumerate() {
                    if n > 0 {
                        line.push(b',');
                    }
                    escape::json(name.as_bytes(), line);
                    line.push(b':');
                    node.write(values, line);
                }
                line.push(b'}');
            }
            Self::Array(list) => {
                line.push(b'[');
                for (n, node) in list.iter().enumerate() {
                    if n > 0 {
                        line.push(b',');
                    }
                    node.write(values, line);
                }
                line.push(b']');
            }
            Self::Text(template) => template.json(values, line),
            Self::Literal(text) => line.extend_from_slice(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives every operator the same value.
    struct Same<'a>(Value<'a>);

    impl Values for Same<'_> {
        fn value<'a>(&'a self, _: &'a Operator) -> Value<'a> {
            self.0.clone()
        }
    }

    fn compiled(encoding: Encoding, format: &str) -> (LogFormat, Vec<String>) {
        let (compiled, problems) = LogFormat::compile(&AccessLog {
            enabled: true,
            format: format.into(),
            encoding,
        });
        (compiled.unwrap(), problems)
    }

    fn line(encoding: Encoding, format: &str, value: Value<'_>) -> String {
        let line = compiled(encoding, format).0.line(&Same(value));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn istios_defaults_have_no_operator_that_is_unknown_here() {
        for (encoding, expected) in [
            (
                Encoding::Text,
                "[-] \"- - -\" - - - - \"-\" - - - - \"-\" \"-\" \"-\" \"-\" \"-\" - - - - - -\n",
            ),
            (
                Encoding::Json,
                "{\"authority\":null,\"bytes_received\":null,\"bytes_sent\":null,\
                 \"connection_termination_details\":null,\"downstream_local_address\":null,\
                 \"downstream_remote_address\":null,\"duration\":null,\"method\":null,\"path\":null,\
                 \"protocol\":null,\"request_id\":null,\"requested_server_name\":null,\"response_code\":null,\
                 \"response_code_details\":null,\"response_flags\":null,\"route_name\":null,\"start_time\":null,\
                 \"upstream_cluster\":null,\"upstream_host\":null,\"upstream_local_address\":null,\
                 \"upstream_service_time\":null,\"upstream_transport_failure_reason\":null,\
                 \"user_agent\":null,\"x_forwarded_for\":null}\n",
            ),
        ] {
            let (format, problems) = compiled(encoding, "");
            assert!(problems.is_empty(), "{problems:?}");
            let line = format.line(&Same(Value::Nothing));
            assert_eq!(String::from_utf8(line).unwrap(), expected);
            assert!(!format.reads_trailers());
        }
    }

    #[test]
    fn without_a_file_there_is_no_format() {
        let setting = AccessLog {
            enabled: false,
            format: "%PROTOCOL%".into(),
            encoding: Encoding::Text,
        };
        assert!(LogFormat::compile(&setting).0.is_none());
    }

    #[test]
    fn a_text_ends_with_one_line_end_and_has_its_literals() {
        for format in ["a %PROTOCOL% 100%%", "a %PROTOCOL% 100%%\n"] {
            assert_eq!(
                line(Encoding::Text, format, Value::text("x")),
                "a x 100%\n",
                "{format:?}"
            );
        }
    }

    /// CVE-2024-45808: the server name of a client stood in the log as the client sent it.
    #[test]
    fn a_server_name_begins_no_line() {
        let format = "\"%REQUESTED_SERVER_NAME%\"";
        let name = "a\n[2026-01-01] \"GET /\" 200";
        let shown = line(Encoding::Text, format, Value::text(name));
        assert_eq!(shown, "\"a\\n[2026-01-01] \\\"GET /\\\" 200\"\n");
    }

    #[test]
    fn json_keeps_types_where_an_operator_stands_alone() {
        let format = r#"{"z": "%DURATION%", "a": {"b": ["%DURATION%", "plain", 5, true, null]}, "m": "<%DURATION%>"}"#;
        assert_eq!(
            line(Encoding::Json, format, Value::Number(7)),
            "{\"a\":{\"b\":[7,\"plain\",5,true,null]},\"m\":\"<7>\",\"z\":7}\n"
        );
        assert_eq!(
            line(Encoding::Json, format, Value::Nothing),
            "{\"a\":{\"b\":[null,\"plain\",5,true,null]},\"m\":\"<->\",\"z\":null}\n"
        );
    }

    #[test]
    fn a_long_value_is_cut_where_its_operator_has_no_length() {
        let long = "/".repeat(60_000);
        let value = || Value::text(long.clone());
        for (encoding, format, end) in [
            (
                Encoding::Text,
                "%REQ(:PATH)% %PROTOCOL%",
                "/...<60000_bytes>\n",
            ),
            (
                Encoding::Json,
                r#"{"a": "%REQ(:PATH)%"}"#,
                "/...<60000_bytes>\"}\n",
            ),
            (
                Encoding::Json,
                r#"{"a": "b %REQ(:PATH)%"}"#,
                "/...<60000_bytes>\"}\n",
            ),
        ] {
            let shown = line(encoding, format, value());
            assert!(shown.len() < 10_000, "{format}: {} bytes", shown.len());
            assert!(shown.ends_with(end), "{format}: {shown}");
        }
        let whole = line(Encoding::Text, "%REQ(:PATH):60000%", value());
        assert_eq!(whole, format!("{long}\n"));
    }

    #[test]
    fn a_format_that_is_no_json_object_gives_istios_default_and_is_told() {
        for format in ["%PROTOCOL%", "[\"%PROTOCOL%\"]"] {
            let (compiled, problems) = compiled(Encoding::Json, format);
            let line = compiled.line(&Same(Value::Nothing));
            assert!(line.starts_with(b"{\"authority\":null"), "{format}");
            assert_eq!(problems.len(), 1, "{problems:?}");
        }
    }

    #[test]
    fn unknown_operators_are_a_hyphen_and_are_told_once() {
        let (compiled, problems) = compiled(
            Encoding::Text,
            "%CEL(a.b)% %CEL(c)% %CEL(c)% %REQ()% %nothing 5%",
        );
        let line = compiled.line(&Same(Value::text("x")));
        assert_eq!(String::from_utf8(line).unwrap(), "- - - - %nothing 5%\n");
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(
            problems
                .iter()
                .any(|problem| problem.contains("%CEL(a.b)%"))
        );
    }

    #[test]
    fn what_is_kept_of_an_answer_is_what_the_format_reads() {
        for (format, answer, trailers) in [
            ("%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%", false, false),
            ("%RESP(SERVER)%", true, false),
            ("%TRAILER(GRPC-MESSAGE)%", false, true),
        ] {
            let (compiled, _) = compiled(Encoding::Text, format);
            let reads = (compiled.reads_answer(), compiled.reads_trailers());
            assert_eq!(reads, (answer, trailers), "{format}");
        }
    }

    proptest! {
        #[test]
        fn no_value_ends_a_line_or_a_quoted_part(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            text in any::<String>(),
        ) {
            for value in [bytes, text.into_bytes()] {
                let line = line(Encoding::Text, "\"%PROTOCOL%\" end", Value::Text(value.into()));
                let quoted = line.strip_prefix('"').and_then(|rest| rest.strip_suffix("\" end\n")).unwrap();
                prop_assert!(!quoted.contains(char::is_control), "{quoted:?}");
                let mut chars = quoted.chars();
                while let Some(char) = chars.next() {
                    prop_assert!(char != '"', "{quoted}");
                    if char == '\\' {
                        chars.next().unwrap();
                    }
                }
            }
        }

        #[test]
        fn every_json_line_is_one_object_with_the_value(text in any::<String>()) {
            let line = line(Encoding::Json, r#"{"a": "%PROTOCOL%"}"#, Value::Text(text.as_bytes().into()));
            prop_assert!(!line.trim_end_matches('\n').contains(char::is_control));
            let read: Json = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(read["a"].as_str(), Some(text.as_str()));
        }

        #[test]
        fn any_format_compiles_and_writes_one_line_end(format in "[%A-Z(?:)a-z0-9 _{}\"]{0,60}") {
            for encoding in [Encoding::Text, Encoding::Json] {
                let (compiled, _) = compiled(encoding, &format);
                let line = compiled.line(&Same(Value::text("x\n")));
                prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            }
        }
    }
}

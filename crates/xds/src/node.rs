//! Node description that the proxy sends in its first request.

use std::collections::BTreeMap;

use lateen_proto::discovery;
use prost_types::value::Kind;

/// This proxy, as the control plane knows it. The id and the metadata are those that istiod reads of a ztunnel or a waypoint.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The role, as Istio's control plane calls it: `ztunnel` or `waypoint`.
    pub role: &'static str,
    /// The proxy's own address; istiod wants a valid one.
    pub instance_ip: String,
    /// The proxy's pod.
    pub pod_name: String,
    /// The pod's namespace; istiod compares it with the token's.
    pub pod_namespace: String,
    /// The node that the proxy serves.
    pub node_name: String,
    /// More metadata, such as what `ISTIO_METAJSON_*` variables say; it overrides what is above.
    pub metadata: BTreeMap<String, serde_json::Value>,
}

impl Node {
    pub(crate) fn to_wire(&self) -> discovery::Node {
        let text = |text: &str| serde_json::Value::String(text.to_owned());
        let mut metadata = BTreeMap::from([
            ("NAME".to_owned(), text(&self.pod_name)),
            ("NAMESPACE".to_owned(), text(&self.pod_namespace)),
            ("INSTANCE_IPS".to_owned(), text(&self.instance_ip)),
            ("NODE_NAME".to_owned(), text(&self.node_name)),
        ]);
        metadata.extend(self.metadata.clone());
        let Self {
            role,
            instance_ip,
            pod_name,
            pod_namespace,
            ..
        } = self;
        discovery::Node {
            id: format!(
                "{role}~{instance_ip}~{pod_name}.{pod_namespace}~{pod_namespace}.svc.cluster.local"
            ),
            cluster: String::new(),
            metadata: Some(prost_types::Struct {
                fields: fields(metadata),
            }),
        }
    }
}

fn fields(
    map: impl IntoIterator<Item = (String, serde_json::Value)>,
) -> BTreeMap<String, prost_types::Value> {
    map.into_iter()
        .map(|(key, json)| (key, value(json)))
        .collect()
}

fn value(json: serde_json::Value) -> prost_types::Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(flag) => Kind::BoolValue(flag),
        // Every JSON number is a double on this wire.
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Kind::StringValue(text),
        serde_json::Value::Array(list) => Kind::ListValue(prost_types::ListValue {
            values: list.into_iter().map(value).collect(),
        }),
        serde_json::Value::Object(map) => Kind::StructValue(prost_types::Struct {
            fields: fields(map),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn introduces_itself_as_a_ztunnel() {
        let node = Node {
            role: "ztunnel",
            instance_ip: "10.243.0.11".into(),
            pod_name: "ztunnel-n1".into(),
            pod_namespace: "istio-system".into(),
            node_name: "n1".into(),
            metadata: BTreeMap::from([(
                "LABELS".to_owned(),
                serde_json::json!({"a": [1, true, null]}),
            )]),
        };
        let wire = node.to_wire();
        assert_eq!(
            wire.id,
            "ztunnel~10.243.0.11~ztunnel-n1.istio-system~istio-system.svc.cluster.local"
        );
        let fields = wire.metadata.unwrap().fields;
        assert_eq!(
            fields["NODE_NAME"].kind,
            Some(Kind::StringValue("n1".into()))
        );
        let Some(Kind::StructValue(labels)) = &fields["LABELS"].kind else {
            panic!("{fields:?}")
        };
        let Some(Kind::ListValue(list)) = &labels.fields["a"].kind else {
            panic!("{labels:?}")
        };
        assert_eq!(list.values[0].kind, Some(Kind::NumberValue(1.0)));
    }
}

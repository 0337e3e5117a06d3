// Package oracle has several engines decide about the same random policies and requests: the waypoint's, from the object of Kubernetes over
// its wire form to the decision; a naive one that reads the object as Istio's API describes it; and Envoy's RBAC, configured as istiod
// configures it. It owns no behaviour: crates/policy and internal/translate say what must happen, and these tests find out who agrees.
package oracle

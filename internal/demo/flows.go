package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Flow is who talked to whom, as the node proxies counted it.
type Flow struct {
	Source      string `json:"source"`      // SPIFFE identity; "unknown" for a peer without one
	Destination string `json:"destination"` // the same
	Service     string `json:"service"`     // what the source asked for
	MutualTLS   bool   `json:"mutualTLS"`
	// Connections and the bytes are the destination's count; SeenBySource is the source's, from the other proxy.
	Connections  uint64 `json:"connections"`
	SeenBySource uint64 `json:"seenBySource"`
	Received     uint64 `json:"receivedBytes"`
	Sent         uint64 `json:"sentBytes"`
	Refused      uint64 `json:"refused"` // by policy
}

type flowKey struct {
	source, destination, service string
	mutualTLS                    bool
}

const (
	metricOpened   = "istio_tcp_connections_opened_total"
	metricFailed   = "istio_tcp_connections_failed_total"
	metricSent     = "istio_tcp_sent_bytes_total"
	metricReceived = "istio_tcp_received_bytes_total"
)

// Flows joins the metrics pages of all node proxies. Each connection is counted twice in them, by the proxy of its
// source and by that of its destination; the destination's word counts, because it verified the peer.
func Flows(pages [][]byte) ([]Flow, error) {
	flows := map[flowKey]*Flow{}
	for _, page := range pages {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil {
			return nil, fmt.Errorf("read a node proxy's metrics: %w", err)
		}
		for name, family := range families {
			for _, metric := range family.GetMetric() {
				count(flows, name, metric)
			}
		}
	}
	list := make([]Flow, 0, len(flows))
	for _, flow := range flows {
		list = append(list, *flow)
	}
	slices.SortFunc(list, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Service, b.Service),
			compareBool(b.MutualTLS, a.MutualTLS))
	})
	return list, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// BetweenIdentities adds up the flows of each pair of identities over the services that were asked for.
func BetweenIdentities(flows []Flow) []Flow {
	var sums []Flow
	for _, flow := range flows {
		same := func(s Flow) bool {
			return s.Source == flow.Source && s.Destination == flow.Destination && s.MutualTLS == flow.MutualTLS
		}
		i := slices.IndexFunc(sums, same)
		if i < 0 {
			flow.Service = ""
			sums = append(sums, flow)
			continue
		}
		sums[i].Connections += flow.Connections
		sums[i].SeenBySource += flow.SeenBySource
		sums[i].Received += flow.Received
		sums[i].Sent += flow.Sent
		sums[i].Refused += flow.Refused
	}
	return sums
}

func count(flows map[flowKey]*Flow, name string, metric *dto.Metric) {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	// A Prometheus client may write the family with or without the suffix of counters.
	if !strings.HasSuffix(name, "_total") {
		name += "_total"
	}
	n := uint64(sample(metric))
	if n == 0 || !slices.Contains([]string{metricOpened, metricFailed, metricSent, metricReceived}, name) {
		return
	}
	key := flowKey{
		labels["source_principal"], labels["destination_principal"], labels["destination_service"],
		labels["connection_security_policy"] == "mutual_tls",
	}
	flow := flows[key]
	if flow == nil {
		flow = &Flow{Source: key.source, Destination: key.destination, Service: key.service, MutualTLS: key.mutualTLS}
		flows[key] = flow
	}
	destination := labels["reporter"] == "destination"
	switch {
	case name == metricOpened && destination:
		flow.Connections += n
	case name == metricOpened:
		flow.SeenBySource += n
	case name == metricFailed && destination:
		flow.Refused += n
	case name == metricSent && destination:
		flow.Sent += n
	case name == metricReceived && destination:
		flow.Received += n
	}
}

// sample is the value of a counter; pages without a TYPE line come back untyped.
func sample(metric *dto.Metric) float64 {
	if metric.GetCounter() != nil {
		return metric.GetCounter().GetValue()
	}
	return metric.GetUntyped().GetValue()
}

// Meshed counts the connections from one identity to another that a destination's proxy has verified.
func Meshed(flows []Flow, source, destination string) uint64 {
	var n uint64
	for _, flow := range flows {
		if flow.MutualTLS && flow.Source == source && flow.Destination == destination {
			n += flow.Connections
		}
	}
	return n
}

// ShortIdentity drops the scheme and the trust domain, which are the same everywhere here.
func ShortIdentity(identity string) string {
	_, path, ok := strings.Cut(strings.TrimPrefix(identity, "spiffe://"), "/")
	if !ok || !strings.HasPrefix(path, "ns/") {
		return identity
	}
	return path
}

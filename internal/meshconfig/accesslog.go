package meshconfig

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	meshapi "istio.io/api/mesh/v1alpha1"
)

// Operators are the operators of accessLogFormat that waypoints have values for. Those of Addresses come on top.
var Operators = []string{
	"BYTES_RECEIVED", "BYTES_SENT", "CONNECTION_TERMINATION_DETAILS", "DOWNSTREAM_LOCAL_URI_SAN", "DOWNSTREAM_PEER_URI_SAN", "DURATION",
	"GRPC_STATUS", "GRPC_STATUS_NUMBER", "HOSTNAME", "PROTOCOL", "REQ", "REQUESTED_SERVER_NAME", "REQUEST_DURATION", "REQUEST_HEADERS_BYTES",
	"REQ_WITHOUT_QUERY", "RESP", "RESPONSE_CODE", "RESPONSE_CODE_DETAILS", "RESPONSE_DURATION", "RESPONSE_FLAGS", "RESPONSE_HEADERS_BYTES",
	"RESPONSE_TRAILERS_BYTES", "RESPONSE_TX_DURATION", "ROUTE_NAME", "START_TIME", "TRAILER", "UPSTREAM_CLUSTER", "UPSTREAM_CLUSTER_RAW",
	"UPSTREAM_HOST", "UPSTREAM_PROTOCOL", "UPSTREAM_REQUEST_ATTEMPT_COUNT", "UPSTREAM_TRANSPORT_FAILURE_REASON",
}

// Addresses are the ends of connections whose address is known, and AddressParts what an operator may have behind such a name.
var (
	Addresses    = []string{"DOWNSTREAM_DIRECT_LOCAL", "DOWNSTREAM_DIRECT_REMOTE", "DOWNSTREAM_LOCAL", "DOWNSTREAM_REMOTE", "UPSTREAM_LOCAL", "UPSTREAM_REMOTE"}
	AddressParts = []string{"_ADDRESS", "_ADDRESS_WITHOUT_PORT", "_PORT"}
)

// operator is an operator of Envoy's formats, or the character that two per cent signs stand for.
var operator = regexp.MustCompile(`%%|%([A-Z0-9_]+)(?:\([^)]*\))?(?::[0-9]+)?%`)

// unservedLog lists what of the access log's format waypoints do not follow.
func (c *Config) unservedLog() (parts []string) {
	format := c.Message.GetAccessLogFormat()
	if format == "" {
		return nil
	}
	if c.Message.GetAccessLogEncoding() == meshapi.MeshConfig_JSON {
		var object map[string]any
		if json.Unmarshal([]byte(format), &object) != nil || object == nil {
			return []string{"accessLogFormat, which is no JSON object"}
		}
	}
	for _, found := range operator.FindAllStringSubmatch(format, -1) {
		if part := "accessLogFormat " + found[0]; found[1] != "" && !known(found[1]) && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

func known(name string) bool {
	if slices.Contains(Operators, name) {
		return true
	}
	return slices.ContainsFunc(AddressParts, func(part string) bool {
		side, found := strings.CutSuffix(name, part)
		return found && slices.Contains(Addresses, side)
	})
}

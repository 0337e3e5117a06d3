package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/agent/redirect"
)

// The annotations by which a pod asks for exceptions from its capture, as Istio names them.
const (
	dnsCapture            = "ambient.istio.io/dns-capture"
	bypassInbound         = "ambient.istio.io/bypass-inbound-capture"
	virtualInterfaces     = "istio.io/reroute-virtual-interfaces"
	excludeInboundPorts   = "traffic.sidecar.istio.io/excludeInboundPorts"
	excludeOutboundPorts  = "traffic.sidecar.istio.io/excludeOutboundPorts"
	excludeOutboundRanges = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
	includeOutboundRanges = "traffic.sidecar.istio.io/includeOutboundIPRanges"
)

// settingsOf reads a pod's annotations, on top of what holds for all pods. An annotation with anything wrong in it has
// no effect at all, and the reason is returned: the pod is captured rather more than its author asked for.
func settingsOf(base redirect.Settings, annotations map[string]string) (s redirect.Settings, refused []string) {
	s = base
	read := func(name string, take func(value string) error) {
		value, there := annotations[name]
		if !there {
			return
		}
		if err := take(value); err != nil {
			refused = append(refused, fmt.Sprintf("annotation %s: %v", name, err))
		}
	}
	read(bypassInbound, func(value string) error {
		yes, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		s.BypassInbound = s.BypassInbound || yes
		return nil
	})
	read(dnsCapture, func(value string) error {
		yes, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		s.BypassDNS = !yes
		return nil
	})
	read(excludeInboundPorts, func(value string) error {
		ports, err := redirect.ParsePorts(value)
		s.InboundPorts = union(s.InboundPorts, ports, func(a, b uint16) int { return int(a) - int(b) })
		return err
	})
	read(excludeOutboundPorts, func(value string) error {
		ports, err := redirect.ParsePorts(value)
		s.OutboundPorts = union(s.OutboundPorts, ports, func(a, b uint16) int { return int(a) - int(b) })
		return err
	})
	excludes, includes := false, false
	read(excludeOutboundRanges, func(value string) error {
		ranges, err := redirect.ParseRanges(value)
		s.OutboundRanges = union(s.OutboundRanges, ranges, netip.Prefix.Compare)
		excludes = err == nil && len(ranges) > 0
		return err
	})
	read(includeOutboundRanges, func(value string) error {
		if strings.TrimSpace(value) == "*" {
			return nil
		}
		ranges, err := redirect.ParseRanges(value)
		if err != nil {
			return err
		}
		s.OnlyRanges = append([]netip.Prefix{}, ranges...) // an empty list is not nil: it captures nothing
		includes = true
		return nil
	})
	if excludes && includes {
		// Sidecars read the exclusion only where everything is redirected. Following both could let out what neither
		// author meant to.
		s.OutboundRanges = base.OutboundRanges
		refused = append(refused, fmt.Sprintf("annotation %s: it goes only with all destinations captured; leave out %s or this one",
			excludeOutboundRanges, includeOutboundRanges))
	}
	read(virtualInterfaces, func(value string) error {
		names, err := redirect.ParseInterfaces(value)
		s.VirtualInterfaces = union(s.VirtualInterfaces, names, strings.Compare)
		return err
	})
	return s, refused
}

// union is both lists in order, without repetitions. It leaves both as they are.
func union[T comparable](a, b []T, compare func(a, b T) int) []T {
	if len(b) == 0 {
		return a
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/model/wellknown"
)

// maxAnnotation is how many bytes of an annotation are read: more than the longest list that is taken.
const maxAnnotation = 4096

// settingsOf reads a pod's annotations, on top of what holds for all pods. An annotation with anything wrong in it has
// no effect at all, and the reason is returned: the pod is captured rather more than its author asked for.
func settingsOf(base redirect.Settings, annotations map[string]string) (s redirect.Settings, refused []string) {
	s = base
	read := func(name string, take func(value string) error) {
		value, there := annotations[name]
		if !there {
			return
		}
		if len(value) > maxAnnotation {
			refused = append(refused, fmt.Sprintf("annotation %s: it has %d bytes; up to %d are read", name, len(value), maxAnnotation))
			return
		}
		if err := take(value); err != nil {
			refused = append(refused, fmt.Sprintf("annotation %s: %v", name, err))
		}
	}
	read(wellknown.BypassInboundCapture, func(value string) error {
		yes, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%s is neither true nor false", redirect.Quoted(value))
		}
		s.BypassInbound = s.BypassInbound || yes
		return nil
	})
	read(wellknown.DNSCapture, func(value string) error {
		yes, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%s is neither true nor false", redirect.Quoted(value))
		}
		s.BypassDNS = !yes
		return nil
	})
	read(wellknown.ExcludeInboundPorts, func(value string) error {
		ports, err := redirect.ParsePorts(value)
		s.InboundPorts = union(s.InboundPorts, ports, func(a, b uint16) int { return int(a) - int(b) })
		return err
	})
	read(wellknown.ExcludeOutboundPorts, func(value string) error {
		ports, err := redirect.ParsePorts(value)
		s.OutboundPorts = union(s.OutboundPorts, ports, func(a, b uint16) int { return int(a) - int(b) })
		return err
	})
	excludes, includes := false, false
	read(wellknown.ExcludeOutboundIPRanges, func(value string) error {
		ranges, err := redirect.ParseRanges(value)
		s.OutboundRanges = union(s.OutboundRanges, ranges, netip.Prefix.Compare)
		excludes = err == nil && len(ranges) > 0
		return err
	})
	read(wellknown.IncludeOutboundIPRanges, func(value string) error {
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
			wellknown.ExcludeOutboundIPRanges, wellknown.IncludeOutboundIPRanges))
	}
	read(wellknown.RerouteVirtualInterfaces, func(value string) error {
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

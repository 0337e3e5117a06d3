package compile

import (
	"fmt"
	"strings"

	"lateen.dev/lateen/internal/model"
)

// nameOfOthers says why a host that a ServiceEntry declares counts in its own namespace alone; empty if it counts for all that see the
// entry. Whoever may write one entry must not have the names of other namespaces' Services, nor what a search list makes of them: proxies
// follow the same rule in what they answer (crates/dns), and those that do not know it are told that nobody else sees the host.
func (c *Compiler) nameOfOthers(host, namespace string) string {
	domain := c.mesh.DomainSuffix
	base, wildcard := strings.CutPrefix(host, "*.")
	if base == domain || strings.HasSuffix(base, "."+domain) {
		if strings.HasSuffix(host, "."+namespace+".svc."+domain) {
			return ""
		}
		return fmt.Sprintf("it is a name of the cluster's domain %s, of which only names below %s.svc.%s are this namespace's", domain, namespace, domain)
	}
	labels := strings.Split(base, ".")
	last := labels[len(labels)-1]
	switch {
	case wildcard && strings.HasSuffix(domain, "."+base):
		return fmt.Sprintf("it covers the cluster's domain %s", domain)
	case last == "svc", last == "pod", !wildcard && len(labels) == 1:
		return "it is short for a name of the cluster's domain"
	case wildcard && len(labels) == 1, len(labels) == 2 && !wildcard:
		if _, ok := c.store.Namespace(last); ok {
			return fmt.Sprintf("it is short for names of Services in namespace %s", last)
		}
	}
	if len(labels) >= 2 {
		if service := model.ServiceKey(last, labels[len(labels)-2]); c.hasService(service) {
			return fmt.Sprintf("it is short for a name of %s", service)
		}
	}
	return ""
}

func (c *Compiler) hasService(key model.Key) bool {
	_, ok := c.store.Service(key)
	return ok
}

// lastLabel is what a host ends in: the namespace, if it is short for a Service's name.
func lastLabel(host string) string { return host[strings.LastIndexByte(host, '.')+1:] }

// touchNames has entries compiled again whose hosts may be short for names in a namespace, when that or a Service in it comes or goes.
func (c *Compiler) touchNames(b *batch, namespace string, ch model.Changed) {
	if (ch.Old == nil) == (ch.New == nil) {
		return
	}
	for key := range c.hosts.endingIn[namespace] {
		b.services[key] = true
	}
}

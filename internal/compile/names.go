package compile

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// ofOthers says why a host that a ServiceEntry declares counts in its own namespace alone; empty if it counts for all that see the
// entry. Whoever may write one entry must not have the names of other namespaces' Services, nor what a search list makes of them: proxies
// follow the same rule in what they answer (crates/dns), and those that do not know it are told that nobody else sees the host.
func (n *names) ofOthers(host, namespace string) string {
	domain := n.domain
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
	case len(labels) == 1 && n.servesAny(last):
		return fmt.Sprintf("it is short for names of Services in namespace %s", last)
	case len(labels) > 1 && n.serves(last, labels[len(labels)-2]):
		return fmt.Sprintf("it is short for a name of %s", model.ServiceKey(last, labels[len(labels)-2]))
	}
	if other, ok := n.podsOfOthers(host, namespace); ok {
		_, service, _ := strings.Cut(host, ".")
		return fmt.Sprintf("it is short for a pod's name below %s", model.ServiceKey(other, service))
	}
	return ""
}

// maxGone is how many names a namespace has that it does not serve any more: a bound on what is kept of those that come and go.
const maxGone = 1000

// names holds what short names of the cluster the mesh serves, and which entries declare such. A name stays its namespace's as long as
// that is there: a Service that is replaced, or a pod that starts again, must not find somebody else in its place.
type names struct {
	domain   string                        // the cluster's, of service names
	of       map[string]*ownNames          // namespace → its names
	pods     map[string]map[string]bool    // pod.service, and *.service → namespaces
	declared map[string]map[model.Key]bool // what ServiceEntries' hosts may be short for → those entries
	moved    []string                      // short names that became, or ceased to be, a namespace's by the last change
}

func (n *names) move(short string) { n.moved = append(n.moved, short) }

// ownNames are those of one namespace.
type ownNames struct {
	services map[string]bool // name → whether it is there or was
	pods     map[string]int  // pod.service → how many are so called; 0: there was one
	there    int             // how many Services there are
	gone     int             // how many names of either kind were
}

func newNames(domain string) *names {
	return &names{domain: domain, of: map[string]*ownNames{}, pods: map[string]map[string]bool{}, declared: map[string]map[model.Key]bool{}}
}

// shortFor is what a host may be short for, in as many labels as tell one Service's names from others'; empty if that hangs on no Service.
func shortFor(host string) string {
	base, wildcard := strings.CutPrefix(host, "*.")
	last := strings.LastIndexByte(base, '.')
	if last < 0 {
		if wildcard {
			return host
		}
		return ""
	}
	return base[strings.LastIndexByte(base[:last], '.')+1:]
}

func (n *names) declare(key model.Key, host string) {
	short := shortFor(host)
	if short == "" {
		return
	}
	if n.declared[short] == nil {
		n.declared[short] = map[model.Key]bool{}
	}
	n.declared[short][key] = true
}

func (n *names) retract(key model.Key, host string) {
	short := shortFor(host)
	if delete(n.declared[short], key); len(n.declared[short]) == 0 {
		delete(n.declared, short)
	}
}

func (n *names) serves(namespace, service string) bool {
	own := n.of[namespace]
	if own == nil {
		return false
	}
	_, known := own.services[service]
	return known
}

func (n *names) servesAny(namespace string) bool {
	own := n.of[namespace]
	return own != nil && len(own.services) > 0
}

// podsOfOthers finds a namespace other than one's own whose pods have a name of the form pod.service, or any below *.service.
func (n *names) podsOfOthers(host, own string) (found string, ok bool) {
	_, service, _ := strings.Cut(host, ".")
	for namespace := range n.pods[host] {
		if namespace != own && n.serves(namespace, service) && (!ok || namespace < found) {
			found, ok = namespace, true
		}
	}
	return found, ok
}

func (n *names) own(namespace string) *ownNames {
	if n.of[namespace] == nil {
		n.of[namespace] = &ownNames{services: map[string]bool{}, pods: map[string]int{}}
	}
	return n.of[namespace]
}

// service notes that a Service came or went, and tells of the short names that are, or are not, its namespace's by that. lasts says that
// the namespace itself is there.
func (n *names) service(key model.Key, there, lasts bool, touch func(short string)) {
	own := n.own(key.Namespace)
	was, known := own.services[key.Name]
	switch {
	case there && was, !there && !was:
		return
	case there && known:
		own.gone--
	case there:
		n.tell(own, key, touch)
	}
	if there {
		own.services[key.Name] = true
		own.there++
		return
	}
	own.there--
	if own.gone < maxGone {
		own.services[key.Name] = false
		own.gone++
	} else {
		delete(own.services, key.Name)
		n.tell(own, key, touch)
	}
	n.forget(key.Namespace, lasts, touch)
}

// tell names what changes with a Service's name: what is short for it, for its pods, and for all of its namespace if there is no other.
func (n *names) tell(own *ownNames, key model.Key, touch func(short string)) {
	touch(key.Name + "." + key.Namespace)
	if len(own.services) == 0 {
		touch("*." + key.Namespace)
	}
	below := "*." + key.Name
	for name := range own.pods {
		if strings.HasSuffix(name, below[1:]) {
			touch(name)
			touch(below)
		}
	}
}

// pod notes that a pod with a name below a Service came or went.
func (n *names) pod(namespace, name string, there, lasts bool, touch func(short string)) {
	own := n.own(namespace)
	count, known := own.pods[name]
	switch {
	case there && known && count == 0:
		own.gone--
	case there && !known:
		_, service, _ := strings.Cut(name, ".")
		for _, short := range []string{name, "*." + service} {
			if n.pods[short] == nil {
				n.pods[short] = map[string]bool{}
			}
			n.pods[short][namespace] = true
			touch(short)
		}
	}
	if there {
		own.pods[name]++
		return
	}
	if own.pods[name]--; own.pods[name] == 0 {
		if own.gone < maxGone {
			own.gone++
		} else {
			n.dropPod(own, namespace, name, touch)
		}
	}
	n.forget(namespace, lasts, touch)
}

func (n *names) dropPod(own *ownNames, namespace, name string, touch func(short string)) {
	delete(own.pods, name)
	_, service, _ := strings.Cut(name, ".")
	shorts := []string{name}
	others := false
	for other := range own.pods {
		others = others || strings.HasSuffix(other, "."+service)
	}
	if !others {
		shorts = append(shorts, "*."+service)
	}
	for _, short := range shorts {
		if delete(n.pods[short], namespace); len(n.pods[short]) == 0 {
			delete(n.pods, short)
		}
		touch(short)
	}
}

// forget lets go of the names that a namespace no longer serves, once it is gone itself. One without an object is there as long as it has
// Services.
func (n *names) forget(namespace string, lasts bool, touch func(short string)) {
	own := n.of[namespace]
	if own == nil || lasts || own.there > 0 {
		return
	}
	for name := range own.services {
		delete(own.services, name)
		n.tell(own, model.ServiceKey(namespace, name), touch)
	}
	for name, count := range own.pods {
		if count == 0 {
			n.dropPod(own, namespace, name, touch)
		}
	}
	if own.gone = 0; len(own.pods) == 0 {
		delete(n.of, namespace)
	}
}

// feedServiceNames keeps the names of a namespace's Services.
func feedServiceNames(x *sourceIndex, ch model.Changed) {
	x.names.moved = x.names.moved[:0]
	_, lasts := x.store.Namespace(ch.Key.Namespace)
	x.names.service(ch.Key, ch.New != nil, lasts, x.names.move)
}

// feedPodNames keeps the names of a namespace's pods.
func feedPodNames(x *sourceIndex, ch model.Changed) {
	x.names.moved = x.names.moved[:0]
	old, now := podName(ch.Old), podName(ch.New)
	if old == now {
		return
	}
	_, lasts := x.store.Namespace(ch.Key.Namespace)
	if now != "" {
		x.names.pod(ch.Key.Namespace, now, true, lasts, x.names.move)
	}
	if old != "" {
		x.names.pod(ch.Key.Namespace, old, false, lasts, x.names.move)
	}
}

// feedNamespaceNames lets go of the names of a namespace that is gone.
func feedNamespaceNames(x *sourceIndex, ch model.Changed) {
	x.names.moved = x.names.moved[:0]
	x.names.forget(ch.Key.Name, ch.New != nil, x.names.move)
}

// entriesShortForMoved are the ServiceEntries with hosts that are short for a name which the change gave to a namespace, or took from it.
func entriesShortForMoved(x *sourceIndex, _ model.Changed, stale marker) {
	for _, short := range x.names.moved {
		for key := range x.names.declared[short] {
			stale.mark(key)
		}
	}
}

// podName is a pod's name below the headless Service that it says to belong to; empty if it has none.
func podName(o *model.Object) string {
	pod, ok := valueOf[*corev1.Pod](o)
	if !ok || pod.Spec.Hostname == "" || pod.Spec.Subdomain == "" {
		return ""
	}
	return pod.Spec.Hostname + "." + pod.Spec.Subdomain
}

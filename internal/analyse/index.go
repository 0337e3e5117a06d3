package analyse

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

const (
	ambient = wellknown.ModeAmbient
	none    = wellknown.ModeNone
	// defaultAccount is the account of pods whose template names none.
	defaultAccount = "default"
)

// workload is anything that policies choose.
type workload struct {
	key model.Key
	// enrolled says that a proxy of the mesh enforces policies for it.
	enrolled bool
	// outside says why it can never be enrolled; empty if it can.
	outside string
	// ports are the TCP ports that its containers declare. It is nil if nothing is known of them: programs may listen on ports that nobody declares.
	ports []uint32
}

func (w *workload) isPod() bool { return w.key.Kind == "Pod" }

// index answers questions about the workloads of a mesh.
type index struct {
	policies   []*policy
	namespaces map[string]*corev1.Namespace
	workloads  map[model.Key]*workload
	crowded    map[string]int // workloads by namespace
	labels     map[string]map[string]map[string]bool
	// selection holds the workloads, and of the selectors those of policies that allow somebody.
	selection  *model.Selection
	identities *identities
	scopes     map[string]*scope
	allowing   map[string]bool // namespaces in which a policy without a selector allows somebody; "" is the whole mesh
	// looked counts the workloads and identities that were looked at. A test bounds it.
	looked int
}

// policy is an AuthorizationPolicy and its translation for node proxies.
type policy struct {
	*securityv1.AuthorizationPolicy
	key        model.Key
	translated *security.Authorization // nil if they do not enforce it
	condition  model.Condition
	// peers says whether a rule of it can match a connection: present if one can, planned if one could as soon as there were pods of what soon names.
	peers presence
	soon  []string
}

func newIndex(in *Input) *index {
	x := &index{namespaces: map[string]*corev1.Namespace{}, workloads: map[model.Key]*workload{}, crowded: map[string]int{},
		labels: map[string]map[string]map[string]bool{}, selection: model.NewSelection(), scopes: map[string]*scope{},
		allowing: map[string]bool{}}
	for _, ns := range in.Namespaces {
		x.namespaces[ns.Name] = ns
	}
	x.identities = newIdentities(in.Mesh, x.namespaces, &x.looked)
	own := map[string]bool{}
	for _, account := range in.OwnIdentityAccounts {
		own[account] = true
	}
	for _, p := range in.Pods {
		if model.Ended(p) || p.DeletionTimestamp != nil {
			continue
		}
		w := &workload{key: model.PodKey(p.Namespace, p.Name), outside: outside(p), ports: declaredPorts(&p.Spec)}
		x.enrol(w, p.Labels, in.Mesh)
		x.put(w, p.Labels)
		if account, ok := model.Account(p); ok {
			x.identities.add(p.Namespace, account, w.enrolled || p.Labels[wellknown.Tunnel] == "http" || p.Annotations[wellknown.SidecarStatus] != "" || own[p.Namespace+"/"+account], w.outside)
		}
	}
	for _, d := range in.Deployments {
		x.putTemplate(d, own, in.Mesh)
	}
	for _, we := range in.WorkloadEntries {
		x.put(&workload{key: model.WorkloadEntryKey(we.Namespace, we.Name), enrolled: true}, translate.EntryLabels(we))
		if we.Spec.ServiceAccount != "" {
			x.identities.add(we.Namespace, we.Spec.ServiceAccount, true, "")
		}
	}
	for _, se := range in.ServiceEntries {
		if len(se.Spec.Endpoints) == 0 {
			continue
		}
		x.put(&workload{key: model.ServiceEntryKey(se.Namespace, se.Name), enrolled: true}, se.Labels)
		for _, e := range se.Spec.Endpoints {
			if e.ServiceAccount != "" {
				x.identities.add(se.Namespace, e.ServiceAccount, true, "")
			}
		}
	}
	for _, sa := range in.ServiceAccounts {
		x.identities.exists(sa.Namespace, sa.Name)
	}
	x.identities.settle()
	x.readPolicies(in)
	return x
}

// putTemplate adds the pods that a Deployment will have. A Deployment that is scaled to zero will have none.
func (x *index) putTemplate(d *appsv1.Deployment, own map[string]bool, mesh translate.Mesh) {
	t := &d.Spec.Template
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return
	}
	w := &workload{key: model.Key{Group: "apps", Kind: "Deployment", Namespace: d.Namespace, Name: d.Name}, ports: declaredPorts(&t.Spec)}
	if t.Spec.HostNetwork {
		w.outside = hostNetwork
	}
	x.enrol(w, t.Labels, mesh)
	x.put(w, t.Labels)
	account := cmp.Or(t.Spec.ServiceAccountName, defaultAccount)
	x.identities.add(d.Namespace, account, w.enrolled || own[d.Namespace+"/"+account], w.outside)
}

func (x *index) put(w *workload, labels map[string]string) {
	x.workloads[w.key] = w
	x.selection.Put(w.key, labels)
	ns := w.key.Namespace
	x.crowded[ns]++
	byKey := x.labels[ns]
	if byKey == nil {
		byKey = map[string]map[string]bool{}
		x.labels[ns] = byKey
	}
	for k, v := range labels {
		if byKey[k] == nil {
			byKey[k] = map[string]bool{}
		}
		byKey[k][v] = true
	}
}

const (
	hostNetwork     = "hostNetwork"
	staticPod       = "static pod"
	systemNamespace = "system namespace"
)

// enrol says of a workload with its labels whether it is enrolled, and why it cannot be. The programs of the mesh and of the cluster stay outside
// unless a label puts them into the mesh.
func (x *index) enrol(w *workload, labels map[string]string, mesh translate.Mesh) {
	w.enrolled = w.outside == "" && x.wanted(w.key.Namespace, labels)
	system := []string{mesh.RootNamespace, "kube-system", "kube-public", "kube-node-lease"}
	if w.outside == "" && !w.enrolled && slices.Contains(system, w.key.Namespace) {
		w.outside = systemNamespace
	}
}

// outside says why a pod can never be enrolled; empty if it can.
func outside(p *corev1.Pod) string {
	switch {
	case p.Spec.HostNetwork:
		return hostNetwork
	case model.Static(p):
		return staticPod
	}
	return ""
}

// wanted says whether labels put pods of a namespace into the mesh.
func (x *index) wanted(namespace string, labels map[string]string) bool {
	var ofNamespace map[string]string
	if ns := x.namespaces[namespace]; ns != nil {
		ofNamespace = ns.Labels
	}
	return wellknown.Enrolled(labels, ofNamespace)
}

// readPolicies translates the policies and notes which of them allow anybody: the effect of one depends on the others.
func (x *index) readPolicies(in *Input) {
	for _, ap := range in.AuthorizationPolicies {
		p := &policy{AuthorizationPolicy: ap, key: model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: ap.Namespace, Name: ap.Name}}
		var conditions []model.Condition
		p.translated, conditions = translate.Authorization(in.Mesh, ap)
		p.condition = conditions[0]
		x.policies = append(x.policies, p)
		if p.translated == nil {
			continue
		}
		p.peers, p.soon = x.rules(p.translated.Rules)
		if p.peers != present || p.translated.DryRun || p.translated.Action != security.Action_ALLOW {
			continue
		}
		switch p.translated.Scope {
		case security.Scope_GLOBAL:
			x.allowing[""] = true
		case security.Scope_NAMESPACE:
			x.allowing[p.Namespace] = true
		default:
			x.selection.PutSelector(p.key, where(in.Mesh, p.key), p.Spec.Selector.GetMatchLabels())
		}
	}
}

// where is the namespace in which a policy chooses workloads: a policy of the root namespace chooses those of the whole mesh.
func where(mesh translate.Mesh, policy model.Key) string {
	if policy.Namespace == mesh.RootNamespace {
		return ""
	}
	return policy.Namespace
}

// rules says whether rules can match a connection that a workload of the mesh, or somebody outside of it, opens, see policy.
func (x *index) rules(rules []*security.Rule) (presence, []string) {
	best, soon := absent, map[string]bool{}
	for _, r := range rules {
		switch is, names := x.rule(r); is {
		case present:
			return present, nil
		case planned:
			best = planned
			for _, name := range names {
				soon[name] = true
			}
		}
	}
	return best, slices.Sorted(maps.Keys(soon))
}

// rule does so for one rule. Each of its clauses must be fulfilled, by any of its matches.
func (x *index) rule(r *security.Rule) (presence, []string) {
	if !translate.CanMatch(r) {
		return absent, nil
	}
	least, soon := present, []string(nil)
	for _, c := range r.Clauses {
		best, names := absent, []string(nil)
		for _, m := range c.Matches {
			is, of := x.identities.standing(m)
			if is > best {
				best, names = is, nil
			}
			if is == best {
				names = append(names, of...)
			}
			if is == present {
				break
			}
		}
		if best < least {
			least, soon = best, names
		}
		if least == absent {
			return absent, nil
		}
	}
	return least, soon
}

// scope is the workloads that a policy is about, in the order of their names.
type scope struct {
	enrolled, others []*workload
	// shut are those of the enrolled to which no ALLOW policy that is enforced lets anybody connect; weighed says that it is known.
	shut    []*workload
	weighed bool
}

// pods are the pods among workloads.
func pods(of []*workload) (out []*workload) {
	for _, w := range of {
		if w.isPod() {
			out = append(out, w)
		}
	}
	return out
}

// chosen are the workloads of a namespace, or of the mesh if it is empty, that a selector chooses. An empty selector chooses all.
func (x *index) chosen(namespace string, selector map[string]string) *scope {
	var id strings.Builder
	id.WriteString(namespace)
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		id.WriteString("\x00" + k + "\x00" + selector[k])
	}
	if s := x.scopes[id.String()]; s != nil {
		return s
	}
	s := &scope{}
	x.scopes[id.String()] = s
	x.selection.Chosen(namespace, selector, func(key model.Key) {
		x.looked++
		if w := x.workloads[key]; w.enrolled {
			s.enrolled = append(s.enrolled, w)
		} else {
			s.others = append(s.others, w)
		}
	})
	for _, list := range [][]*workload{s.enrolled, s.others} {
		slices.SortFunc(list, func(a, b *workload) int { return a.key.Compare(b.key) })
	}
	return s
}

// unallowed are the enrolled workloads to which no ALLOW policy that is enforced lets anybody connect.
func (x *index) unallowed(s *scope) []*workload {
	if s.weighed {
		return s.shut
	}
	s.weighed = true
	for _, w := range s.enrolled {
		x.looked++
		if !x.allowing[""] && !x.allowing[w.key.Namespace] && len(x.selection.ChosenBy(w.key)) == 0 {
			s.shut = append(s.shut, w)
		}
	}
	return s.shut
}

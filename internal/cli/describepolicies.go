package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// defaultRootNamespace is the root namespace of a mesh for which nobody has chosen another one.
const defaultRootNamespace = "istio-system"

// rootNamespace is where policies without a selector hold for the whole mesh. It is the usual one if the control plane does not name it.
func rootNamespace(ctx context.Context, client *api.Client) string {
	root, err := client.RootNamespace(ctx)
	if err != nil {
		return defaultRootNamespace
	}
	return cmp.Or(root, defaultRootNamespace)
}

// policy is an AuthorizationPolicy or a PeerAuthentication, as far as describe tells of it.
type policy struct {
	object   api.Object
	selector map[string]string
	targeted bool   // it is for waypoints or gateways, and selects no pods
	action   string // of an AuthorizationPolicy, or the mode of a PeerAuthentication
	dryRun   bool
	wide     bool // it looks into every namespace
	rules    []json.RawMessage
	ports    map[string]string // modes of a PeerAuthentication by port
}

// readPolicy reads a policy. Where a selector looks is as the control plane has it: that of an AuthorizationPolicy in the root namespace
// looks into every namespace, that of a PeerAuthentication only into its own unless it is empty.
func readPolicy(object api.Object, root string) (*policy, error) {
	type mode struct {
		Mode string `json:"mode"`
	}
	raw, err := decode[struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			TargetRef     json.RawMessage   `json:"targetRef"`
			TargetRefs    []json.RawMessage `json:"targetRefs"`
			Action        string            `json:"action"`
			Rules         []json.RawMessage `json:"rules"`
			MTLS          mode              `json:"mtls"`
			PortLevelMTLS map[string]mode   `json:"portLevelMtls"`
		} `json:"spec"`
	}](object)
	if err != nil {
		return nil, err
	}
	p := &policy{object: object, selector: raw.Spec.Selector.MatchLabels, targeted: len(raw.Spec.TargetRef) > 0 || len(raw.Spec.TargetRefs) > 0, action: raw.Spec.Action,
		rules: raw.Spec.Rules, wide: object.Key.Namespace == root}
	p.dryRun, _ = strconv.ParseBool(raw.Metadata.Annotations[wellknown.DryRun]) // what is no boolean is enforced
	if p.authorizes() {
		if p.action == "" {
			p.action = "ALLOW"
		}
		return p, nil
	}
	p.dryRun = false // the annotation is AuthorizationPolicy's
	p.wide = p.wide && len(p.selector) == 0
	if p.action = raw.Spec.MTLS.Mode; p.action == "" || p.action == "UNSET" {
		p.action = "as the wider policy says"
	}
	for port, m := range raw.Spec.PortLevelMTLS {
		if p.ports == nil {
			p.ports = map[string]string{}
		}
		p.ports[port] = m.Mode
	}
	return p, nil
}

func (p *policy) authorizes() bool { return p.object.Key.Kind == "AuthorizationPolicy" }

// selects says whether a policy is about pods of a namespace with these labels.
func (p *policy) selects(namespace string, labels map[string]string) bool {
	return !p.targeted && (p.wide || p.object.Key.Namespace == namespace) && matches(p.selector, labels)
}

// scope is where a policy looks for pods, in words.
func (p *policy) scope() string {
	where := "namespace " + p.object.Key.Namespace
	if p.wide {
		where = "the whole mesh"
	}
	switch {
	case p.targeted:
		return "waypoints and gateways (targetRefs); it selects no pods"
	case len(p.selector) == 0:
		return "all pods of " + where
	}
	return "pods of " + where + " with the labels " + printer.Labels(p.selector)
}

// state is how far a policy is in force.
func (p *policy) state() string {
	state, _ := printer.Effect(p.object)
	if p.dryRun && state == printer.StateLive {
		return printer.StateDryRun
	}
	return state
}

func (p *policy) summary() printer.PolicySummary {
	return printer.PolicySummary{Kind: p.object.Key.Kind, Namespace: p.object.Key.Namespace, Name: p.object.Key.Name, Action: p.action, State: p.state()}
}

// policies are all policies of the mesh, by kind and name.
func (s *surroundings) policies() ([]*policy, error) {
	var found []*policy
	for _, kind := range []string{"AuthorizationPolicy", "PeerAuthentication"} {
		objects, err := s.all(kind)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			p, err := readPolicy(o, s.rootNamespace())
			if err != nil {
				return nil, err
			}
			found = append(found, p)
		}
	}
	return byName(found, func(p *policy) string { return p.object.Key.Kind + "/" + p.object.Key.String() }), nil
}

// policy says whom a policy selects and what it decides.
func (s *surroundings) policy(object api.Object) (*printer.PolicyDescription, error) {
	p, err := readPolicy(object, s.rootNamespace())
	if err != nil {
		return nil, err
	}
	d := &printer.PolicyDescription{Action: p.action, DryRun: p.dryRun, Scope: p.scope(), Selector: p.selector, PortModes: p.ports}
	if p.authorizes() {
		for _, raw := range p.rules {
			words, err := ruleInWords(raw)
			if err != nil {
				return nil, err
			}
			d.Rules = append(d.Rules, words)
		}
		if len(d.Rules) == 0 {
			d.NoRules = "it matches no connection"
			if p.action == "ALLOW" {
				d.NoRules = "it allows nothing, so the pods that it selects refuse every connection that no other policy allows"
			}
		}
	}
	pods, err := s.all("Pod")
	if err != nil {
		return nil, err
	}
	d.Pods, err = summaries(slices.DeleteFunc(slices.Clone(pods), func(o api.Object) bool { return !p.selects(o.Key.Namespace, labelsIn(o)) }))
	return d, err
}

// fieldWords are the fields of a rule in the order in which they are told, and how.
var fieldWords = []struct{ field, words string }{
	{"principals", "principal"}, {"notPrincipals", "not principal"},
	{"serviceAccounts", "service account"}, {"notServiceAccounts", "not service account"},
	{"namespaces", "namespace"}, {"notNamespaces", "not namespace"}, {"trustDomains", "trust domain"}, {"notTrustDomains", "not trust domain"},
	{"ipBlocks", "IP block"}, {"notIpBlocks", "not IP block"}, {"remoteIpBlocks", "remote IP block"}, {"notRemoteIpBlocks", "not remote IP block"},
	{"requestPrincipals", "request principal"}, {"notRequestPrincipals", "not request principal"},
	{"ports", "port"}, {"notPorts", "not port"}, {"hosts", "host"}, {"notHosts", "not host"},
	{"methods", "method"}, {"notMethods", "not method"}, {"paths", "path"}, {"notPaths", "not path"},
}

// ruleInWords writes a rule as "from …; to …; when …". What a rule leaves out matches everything.
func ruleInWords(raw json.RawMessage) (string, error) {
	var rule struct {
		From []struct {
			Source map[string][]string `json:"source"`
		} `json:"from"`
		To []struct {
			Operation map[string][]string `json:"operation"`
		} `json:"to"`
		When []struct {
			Key       string   `json:"key"`
			Values    []string `json:"values"`
			NotValues []string `json:"notValues"`
		} `json:"when"`
	}
	if err := json.Unmarshal(raw, &rule); err != nil {
		return "", fmt.Errorf("read a rule: %w", err)
	}
	var from, to, when, parts []string
	for _, f := range rule.From {
		from = append(from, termsInWords(f.Source))
	}
	for _, t := range rule.To {
		to = append(to, termsInWords(t.Operation))
	}
	for _, w := range rule.When {
		var terms []string
		if len(w.Values) > 0 {
			terms = append(terms, "is "+strings.Join(w.Values, " or "))
		}
		if len(w.NotValues) > 0 {
			terms = append(terms, "is not "+strings.Join(w.NotValues, " or "))
		}
		when = append(when, w.Key+" "+strings.Join(terms, " and "))
	}
	for _, part := range []struct {
		word, between string
		terms         []string
	}{{"from ", "; or from ", from}, {"to ", "; or to ", to}, {"when ", " and ", when}} {
		if len(part.terms) > 0 {
			parts = append(parts, part.word+strings.Join(part.terms, part.between))
		}
	}
	if len(parts) == 0 {
		return "every connection", nil
	}
	return strings.Join(parts, "; "), nil
}

// termsInWords writes the fields of a source or an operation, all of which must match.
func termsInWords(fields map[string][]string) string {
	var terms []string
	told := map[string]bool{}
	for _, f := range fieldWords {
		if values := fields[f.field]; len(values) > 0 {
			terms = append(terms, f.words+" "+strings.Join(values, " or "))
		}
		told[f.field] = true
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !told[field] {
			terms = append(terms, field+" "+strings.Join(fields[field], " or "))
		}
	}
	if len(terms) == 0 {
		return "anything"
	}
	return strings.Join(terms, " and ")
}

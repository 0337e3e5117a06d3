package compile

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// policyCompiler compiles AuthorizationPolicies, and publishes policies under the names by which workloads name them.
type policyCompiler struct {
	*facts
	out         *publisher
	log         *resourcelog.Log
	assignments *Assignments
	published   map[model.Key]string // AuthorizationPolicies that have a resource, and the name by which workloads name it
}

func newPolicyCompiler(f *facts, out *publisher, l *resourcelog.Log, assignments *Assignments) *policyCompiler {
	return &policyCompiler{facts: f, out: out, log: l, assignments: assignments, published: map[model.Key]string{}}
}

func (c *policyCompiler) compile(b *batch, key model.Key) {
	before, had := c.published[key]
	delete(c.published, key)
	if policy, ok := c.store.AuthorizationPolicy(key); ok && !translate.Targeted(policy) {
		authorization, conditions := translate.Authorization(c.mesh, policy)
		c.out.conditions(b, key, conditions)
		if authorization != nil {
			c.published[key] = c.publishPolicy(b, key, authorization, translate.AttachedByName(policy), policy.Spec.Selector.GetMatchLabels())
		}
	}
	if had && c.published[key] != before {
		b.remove(resourcekind.Authorization, before)
	}
}

// publishPolicy puts a policy into the log under the name by which workloads are to name it, and returns that.
func (c *policyCompiler) publishPolicy(b *batch, key model.Key, policy *security.Authorization, byName bool, selector map[string]string) string {
	binding := "broad"
	if byName {
		// The order of a Go map's rendering is that of its keys.
		binding = fmt.Sprint("selector", selector)
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(policy)
	if err != nil {
		c.out.logger.Error("compile: a policy was not encoded", "object", key.String(), "error", err)
	}
	// Several edits at once reach a proxy one after the other; under new names they count only when a workload names them all.
	anew := byName && len(b.stale[policyOutput]) > 1 && c.edited(key, policy)
	policy.Name = c.assignments.policyName(policyObject(key), policy.Name, digest(binding), digest(string(content)), !byName, anew)
	name := policy.Namespace + "/" + policy.Name
	c.out.emit(b, resourcekind.Authorization, name, nil, nil, policy, key)
	return name
}

// policyObject names an object for the assignments.
func policyObject(key model.Key) string { return key.String() }

// edited says whether proxies know the policy with another content.
func (c *policyCompiler) edited(key model.Key, policy *security.Authorization) bool {
	name, ok := c.assignments.Policies[policyObject(key)]
	if !ok {
		return false
	}
	old := c.log.Get(resourcekind.Authorization, policy.Namespace+"/"+name.Name)
	if old == nil {
		return false
	}
	same := proto.CloneOf(policy)
	same.Name = name.Name
	now, err := resourcelog.Encode(resourcekind.Authorization, old.Name, nil, nil, same)
	return err != nil || now.Version != old.Version
}

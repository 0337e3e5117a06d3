package files

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"
)

// readRule reads a rule; nil if it is refused.
func readRule(raw json.RawMessage) *securityapi.Rule {
	rule := &securityapi.Rule{}
	if protojson.Unmarshal(raw, rule) != nil || refused(checkRule("", rule)) || refused(checkRuleWritten("", raw)) {
		return nil
	}
	return rule
}

// strictestDenials reads the rules of a DENY policy into its spec. unchosen says that the policy chooses every workload because nothing of its
// selector is known here; then rules that deny every connection are left out. left are the rules that deny less than they may have been
// meant to, by their places.
func strictestDenials(spec *securityapi.AuthorizationPolicy, rules []json.RawMessage, unchosen bool) (left []int) {
	for i, raw := range rules {
		rule, least := readRule(raw), false
		if rule == nil {
			rule, least = strictestDenial(raw)
		}
		if rule != nil && unchosen && everything(rule) {
			rule, least = nil, true
		}
		if least {
			left = append(left, i)
		}
		if rule != nil {
			spec.Rules = append(spec.Rules, rule)
		}
	}
	return left
}

// deniedBy says what a DENY policy denies of which left are the rules that deny less than they may mean, and later the fields beside the rules that
// are not known here.
func deniedBy(rules []*securityapi.Rule, left []int, later []string) string {
	const named = 5
	if len(rules) == 0 {
		return effectNone
	}
	effect := effectDeny
	if len(left) > 0 {
		var places []string
		for _, i := range left[:min(len(left), named)] {
			places = append(places, fmt.Sprintf("rules[%d]", i))
		}
		if more := len(left) - named; more > 0 {
			places = append(places, fmt.Sprintf("%d more", more))
		}
		effect += fmt.Sprintf("; what is not known here of %s denies nobody, since without it everybody would be denied", strings.Join(places, ", "))
	}
	if len(later) > 0 {
		effect += fmt.Sprintf("; field %.100q, which is not known here, changes nothing of that", later[0])
	}
	return effect
}

// everything says whether a rule matches every connection.
func everything(rule *securityapi.Rule) bool {
	return len(rule.From)+len(rule.To)+len(rule.When) == 0
}

// strictestDenial reads of a rule that is refused what can be read of it. What is left out narrows a rule, so that the rest matches all that the
// rule was meant to match, and more: connections match a rule if they match all its clauses, and a source or operation if they match all its
// fields. If that is everything, and only because of fields or attributes of a later version, it is too much: a policy that its author may have
// written without a fault must not deny everybody. Then the alternatives that are known here count, which is less; least says so, and the rule
// is nil if there is none.
func strictestDenial(raw json.RawMessage) (rule *securityapi.Rule, least bool) {
	r := ruleReader{}
	clauses, _ := r.object(raw, "from", "to", "when")
	r.faulty = r.faulty || refused(checkRuleWritten("", raw))
	wide, narrow := &securityapi.Rule{}, &securityapi.Rule{}
	none := false

	from, open := alternatives(&r, clauses["from"], r.source)
	if narrow.From = from; !open {
		wide.From = from
	}
	none = none || open && len(from) == 0
	to, open := alternatives(&r, clauses["to"], r.operation)
	if narrow.To = to; !open {
		wide.To = to
	}
	none = none || open && len(to) == 0
	for _, one := range r.list(clauses["when"]) {
		if c := r.condition(one); c != nil {
			wide.When, narrow.When = append(wide.When, c), append(narrow.When, c)
		} else {
			none = true
		}
	}
	switch {
	case !everything(wide) || r.faulty:
		return wide, false
	case none || everything(narrow):
		return nil, true
	}
	return narrow, true
}

// ruleReader reads parts of a rule and remembers whether any of it makes no sense in this version of the kind: faulty. What is merely not known
// here is left out.
type ruleReader struct{ faulty bool }

// alternatives reads a list of sources or operations. open says that there is none, or one of which nothing is left, so that the clause leaves
// the rule as it is.
func alternatives[T any](r *ruleReader, raw json.RawMessage, read func(json.RawMessage) *T) (all []*T, open bool) {
	if raw == nil {
		return nil, false
	}
	entries := r.list(raw)
	if len(entries) == 0 {
		r.faulty = true
	}
	for _, entry := range entries {
		if one := read(entry); one != nil {
			all = append(all, one)
		} else {
			open = true
		}
	}
	return all, open || len(all) == 0
}

func (r *ruleReader) source(raw json.RawMessage) *securityapi.Rule_From {
	s := &securityapi.Source{}
	r.only(raw, "source", s, func(one proto.Message) bool { return !refused(checkSource("", one.(*securityapi.Source))) })
	if proto.Size(s) == 0 {
		return nil
	}
	if refused(checkSource("", s)) {
		// Fields that do not go together: without the accounts, which are the narrowest.
		r.faulty, s.ServiceAccounts, s.NotServiceAccounts = true, nil, nil
	}
	return &securityapi.Rule_From{Source: s}
}

func (r *ruleReader) operation(raw json.RawMessage) *securityapi.Rule_To {
	o := &securityapi.Operation{}
	r.only(raw, "operation", o, func(one proto.Message) bool { return !refused(checkOperation("", one.(*securityapi.Operation))) })
	if proto.Size(o) == 0 {
		return nil
	}
	return &securityapi.Rule_To{Operation: o}
}

func (r *ruleReader) condition(raw json.RawMessage) *securityapi.Condition {
	_, later := r.object(raw, "key", "values", "notValues")
	c := &securityapi.Condition{}
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, c) != nil {
		r.faulty = true
		return nil
	}
	if !refused(checkCondition("", c)) {
		return c
	}
	switch {
	case c.Key == "" || knownAttribute(c.Key) && len(c.Values)+len(c.NotValues) == 0:
		// The attribute, or what it is compared with, may be in a field that is not known here.
		r.faulty = r.faulty || !later
	case knownAttribute(c.Key):
		r.faulty = true
	}
	return nil
}

// only reads the message that an entry of a list has below one name. An entry that has others in its place, or nothing that an API server
// left in it, is merely not known here.
func (r *ruleReader) only(entry json.RawMessage, name string, into proto.Message, sound func(one proto.Message) bool) {
	var written map[string]json.RawMessage
	if json.Unmarshal(entry, &written) != nil || written == nil || string(written[name]) == "null" {
		r.faulty = true
		return
	}
	if raw, given := written[name]; given {
		r.fields(raw, into, sound)
	}
}

// fields reads a message field by field, without those that are not known here and those that do not make sense.
func (r *ruleReader) fields(raw json.RawMessage, into proto.Message, sound func(one proto.Message) bool) {
	given := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &given) != nil || given == nil {
		r.faulty = true
		return
	}
	// An empty message may have had fields of a later version, which an API server removes when it stores an object.
	known := into.ProtoReflect().Descriptor().Fields()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if known.ByJSONName(name) == nil && known.ByTextName(name) == nil {
			continue
		}
		one := into.ProtoReflect().New().Interface()
		if only(name, given[name], one) != nil || !sound(one) {
			r.faulty = true
			continue
		}
		proto.Merge(into, one)
	}
}

// object reads those fields of an object that are named and given. later says that it has others.
func (r *ruleReader) object(raw json.RawMessage, known ...string) (fields map[string]json.RawMessage, later bool) {
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		r.faulty = true
		return nil, false
	}
	for name, value := range fields {
		switch {
		case !slices.Contains(known, name):
			later = true
			delete(fields, name)
		case string(value) == "null":
			delete(fields, name)
		}
	}
	return fields, later
}

// list reads a list; none if it is not given.
func (r *ruleReader) list(raw json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	if len(raw) > 0 && json.Unmarshal(raw, &all) != nil {
		r.faulty = true
	}
	return all
}

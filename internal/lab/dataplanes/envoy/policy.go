package envoy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Policy is what is understood of an AuthorizationPolicy: it allows principals to reach ports. Whatever else one may say is
// refused, for a policy that is read in part admits whom it should not.
type Policy struct {
	Metadata metav1.ObjectMeta
	Spec     policySpec
}

type policySpec struct {
	Selector *struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	Action string `json:"action"`
	Rules  []struct {
		From []struct {
			Source struct {
				Principals []string `json:"principals"`
			} `json:"source"`
		} `json:"from"`
		To []struct {
			Operation struct {
				Ports []string `json:"ports"`
			} `json:"operation"`
		} `json:"to"`
	} `json:"rules"`
}

// ParsePolicy reads an AuthorizationPolicy.
func ParsePolicy(object []byte) (Policy, error) {
	var p Policy
	var raw struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}
	if err := json.Unmarshal(object, &raw); err != nil {
		return p, fmt.Errorf("read an AuthorizationPolicy: %w", err)
	}
	p.Metadata = raw.Metadata
	if len(raw.Spec) > 0 {
		strict := json.NewDecoder(bytes.NewReader(raw.Spec))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&p.Spec); err != nil {
			return p, p.refuse(err)
		}
	}
	if a := p.Spec.Action; a != "" && a != "ALLOW" {
		return p, p.refuse(fmt.Errorf("action %s", a))
	}
	if _, err := p.rules(); err != nil {
		return p, p.refuse(err)
	}
	return p, nil
}

func (p Policy) refuse(why error) error {
	return fmt.Errorf("AuthorizationPolicy %s/%s: the pair of Envoys follows policies that allow principals and ports alone: %w", p.Metadata.Namespace, p.Metadata.Name, why)
}

func (p Policy) selects(pod *corev1.Pod) bool {
	if p.Metadata.Namespace != pod.Namespace {
		return false
	}
	return p.Spec.Selector == nil || labels.SelectorFromSet(p.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels))
}

func (p Policy) rules() ([]Rule, error) {
	var list []Rule
	for i, r := range p.Spec.Rules {
		rule := Rule{Name: fmt.Sprintf("%s/%s/%d", p.Metadata.Namespace, p.Metadata.Name, i)}
		for _, from := range r.From {
			if len(from.Source.Principals) == 0 {
				return nil, errors.New("a source without principals")
			}
			for _, principal := range from.Source.Principals {
				if principal == "" || bytes.ContainsRune([]byte(principal), '*') {
					return nil, fmt.Errorf("principal %q is no name", principal)
				}
				rule.Callers = append(rule.Callers, "spiffe://"+principal)
			}
		}
		if len(rule.Callers) == 0 {
			return nil, errors.New("a rule without principals")
		}
		for _, to := range r.To {
			if len(to.Operation.Ports) == 0 {
				return nil, errors.New("an operation without ports")
			}
			for _, text := range to.Operation.Ports {
				port, err := strconv.ParseUint(text, 10, 16)
				if err != nil || port == 0 {
					return nil, fmt.Errorf("port %q", text)
				}
				rule.Ports = append(rule.Ports, uint16(port))
			}
		}
		list = append(list, rule)
	}
	return list, nil
}

// rulesFor are the rules of the policies that select a pod; nil if none does.
func rulesFor(pod *corev1.Pod, policies []Policy) ([]Rule, error) {
	var list []Rule
	for _, p := range policies {
		if !p.selects(pod) {
			continue
		}
		rules, err := p.rules()
		if err != nil {
			return nil, p.refuse(err)
		}
		list = append(list, rules...)
		if list == nil {
			list = []Rule{} // it selects the pod and admits nobody
		}
	}
	return list, nil
}

// Command policyedits prints a walk over sets of authorization policies, of which every one denies the service account
// `client` at the workload `echo`, however they are written. Each line is a JSON array of objects to apply together, or of
// names to delete: {"delete": "NAME"}. In an array, what denies comes before what stops denying.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
)

type object map[string]any

const client = "cluster.local/ns/default/sa/client"

func main() {
	seed := flag.Uint64("seed", 1, "what the walk begins with")
	steps := flag.Int("steps", 50, "number of edits")
	flag.Parse()
	walk := &walk{random: rand.New(rand.NewPCG(*seed, 1)), out: json.NewEncoder(os.Stdout)}
	for range *steps {
		walk.step()
	}
	if walk.err != nil {
		fmt.Fprintln(os.Stderr, "policyedits:", walk.err)
		os.Exit(1)
	}
}

// walk knows the one policy that denies now; the others are noise.
type walk struct {
	random *rand.Rand
	out    *json.Encoder
	guard  int // it is called guard-N; guard-0 is there before the first step
	noise  map[string]bool
	err    error
}

func (w *walk) emit(objects ...object) {
	if err := w.out.Encode(objects); err != nil {
		w.err = err
	}
}

func (w *walk) step() {
	if w.noise == nil {
		w.noise = map[string]bool{}
	}
	name := fmt.Sprintf("guard-%d", w.guard)
	switch w.random.IntN(5) {
	case 0: // the same policy wider, narrower or about other workloads as well
		w.emit(policy(name, w.denial()))
	case 1: // renamed: the next one first, then the former goes
		w.guard++
		w.emit(policy(fmt.Sprintf("guard-%d", w.guard), w.denial()))
		w.emit(object{"delete": name})
	case 2: // two at once: another one takes over while this one turns to somebody else
		w.guard++
		w.emit(policy(fmt.Sprintf("guard-%d", w.guard), w.denial()), policy(name, harmless()))
		w.emit(object{"delete": name})
	case 3: // something that has nothing to do with it comes
		other := fmt.Sprintf("noise-%d", w.random.IntN(4))
		w.noise[other] = true
		w.emit(policy(other, w.allowance()), policy(name, w.denial()))
	case 4: // and goes
		for other := range w.noise {
			delete(w.noise, other)
			w.emit(object{"delete": other})
			return
		}
		w.emit(policy(name, w.denial()))
	}
}

// denial is one of the ways to deny the client at echo.
func (w *walk) denial() object {
	from := func(source object) []any { return []any{object{"from": []any{object{"source": source}}}} }
	rules := [][]any{
		{object{}},
		from(object{"principals": []string{client}}),
		from(object{"principals": []string{"*/sa/client"}}),
		from(object{"principals": []string{"cluster.local/ns/default/*", "cluster.local/ns/elsewhere/*"}}),
		from(object{"namespaces": []string{"default"}}),
		from(object{"notPrincipals": []string{"cluster.local/ns/default/sa/somebody"}}),
		from(object{"notNamespaces": []string{"elsewhere"}}),
		{object{"from": []any{object{"source": object{"principals": []string{client}}}}, "to": []any{object{"operation": object{"ports": []string{"8080", "9090"}}}}}},
		{object{"to": []any{object{"operation": object{"notPorts": []string{"9090"}}}}}},
	}
	spec := object{"action": "DENY", "rules": rules[w.random.IntN(len(rules))]}
	w.selector(spec)
	return spec
}

// selector takes echo in, one way or the other.
func (w *walk) selector(spec object) {
	if w.random.IntN(2) == 0 {
		spec["selector"] = object{"matchLabels": object{"app": "echo"}}
	}
}

// allowance admits others, or, where a denial stands as well, the client.
func (w *walk) allowance() object {
	spec := object{"action": "ALLOW", "rules": []any{object{"from": []any{object{"source": object{"principals": []string{client, "cluster.local/ns/default/sa/other"}[w.random.IntN(2):]}}}}}}
	w.selector(spec)
	return spec
}

func harmless() object {
	return object{"action": "DENY", "rules": []any{object{"from": []any{object{"source": object{"principals": []string{"cluster.local/ns/default/sa/nobody"}}}}}}}
}

func policy(name string, spec object) object {
	return object{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": object{"name": name, "namespace": "default"}, "spec": spec}
}

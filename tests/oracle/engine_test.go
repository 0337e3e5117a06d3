package oracle

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/translate"
)

// number reads a variable of the environment that is a number.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, and must be a number from 1 on", name, given)
	}
	return n
}

// drawn draws the cases of a run. LATEEN_ORACLE_SEED and LATEEN_ORACLE_CASES change which, and how many.
func drawn(t *testing.T, plain bool) []testCase {
	t.Helper()
	seed, count := number(t, "LATEEN_ORACLE_SEED", 1), number(t, "LATEEN_ORACLE_CASES", 400)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with LATEEN_ORACLE_SEED=%d LATEEN_ORACLE_CASES=%d", seed, count)
		}
	})
	return cases(uint64(seed), count, plain)
}

// differences reports decisions that differ: the first one of each of five cases, with all that it depends on.
type differences struct {
	t     *testing.T
	count int
	cases []int
}

func (d *differences) report(n int, c testCase, r request, format string, args ...any) {
	d.t.Helper()
	d.count++
	if len(d.cases) == 5 || slices.Contains(d.cases, n) {
		return
	}
	d.cases = append(d.cases, n)
	var policies strings.Builder
	for _, p := range c.policies {
		fmt.Fprintf(&policies, "\n  %s %v %s", p.Name, p.Annotations, protojson.MarshalOptions{}.Format(&p.Spec))
	}
	d.t.Errorf("case %d, aliased %v: %s\n  %s%s", n, c.aliased, fmt.Sprintf(format, args...), r, policies.String())
}

// engine reports an answer of the engine that is not word for word what its own reading says, and a head that it refuses, or not, otherwise
// than refuses has it.
func (d *differences) engine(n int, c testCase, r request, answer string) {
	d.t.Helper()
	verdict, audited, _ := strings.Cut(answer, "|")
	if strings.HasPrefix(verdict, "refused") != refuses(r) {
		d.report(n, c, r, "the engine says %q", verdict)
	}
	if refuses(r) {
		return
	}
	if want, wantAudited := ours.decide(c, r); verdict != want || audited != wantAudited {
		d.report(n, c, r, "the engine says %q and audits %q, the reference %q and %q", verdict, audited, want, wantAudited)
	}
}

func (d *differences) end(decisions int) {
	d.t.Helper()
	if d.count > 0 {
		d.t.Errorf("%d of %d decisions differ", d.count, decisions)
	}
}

// buildExample builds crates/testkit/examples/request_decisions.rs, and says where it is.
func buildExample(t *testing.T) string {
	t.Helper()
	const name = "request_decisions"
	// The whole workspace is named so that dependencies have the features with which `cargo test` has built them.
	build := exec.CommandContext(t.Context(), "cargo", "build", "--locked", "--quiet", "--message-format=json", "--workspace", "--example", name)
	build.Dir = "../.."
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build the example %s: %v", name, err)
	}
	for line := range bytes.Lines(out) {
		var artifact struct {
			Executable string
			Target     struct{ Name string }
		}
		if json.Unmarshal(line, &artifact) == nil && artifact.Target.Name == name && artifact.Executable != "" {
			return artifact.Executable
		}
	}
	t.Fatalf("cargo names no executable of the example %s", name)
	return ""
}

// engineDecides has the waypoint's engine decide about all requests. Each answer is the decision in words, a bar, and AUDIT policies.
func engineDecides(t *testing.T, all []testCase) (answers [][]string) {
	t.Helper()
	var in, out bytes.Buffer
	for _, c := range all {
		writeCase(t, &in, c)
	}
	cmd := exec.CommandContext(t.Context(), buildExample(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("run the engine: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, c := range all {
		if len(lines) < len(c.requests) {
			t.Fatal("the engine did not answer all requests")
		}
		answers, lines = append(answers, lines[:len(c.requests)]), lines[len(c.requests):]
	}
	if len(lines) > 0 {
		t.Fatalf("the engine gave %d answers too many", len(lines))
	}
	return answers
}

// writeCase writes a case as the example reads it, with the resources that the control plane sends to the waypoint.
func writeCase(t *testing.T, to *bytes.Buffer, c testCase) {
	t.Helper()
	put := func(kind, name string, resource proto.Message) {
		data, err := proto.Marshal(resource)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(to, "%s %s %s\n", kind, name, hex.EncodeToString(data))
	}
	mesh := translate.Mesh{
		TrustDomain: ownDomain, TrustDomainAliases: c.domains()[1:], ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local",
	}
	way := &translate.Waypoint{Namespace: policyNamespace, Name: "way", Traffic: "service", Identity: policyNamespace + "/way"}
	settings := translate.ReadMeshConfig(mesh, nil).Settings
	settings.PathNormalization = c.requests[0].level()
	put("gateway", way.Ref(), translate.RequestGateway(way, settings))
	in := translate.Targets{Service: func(kind, namespace, name string) (translate.Bound, bool) {
		host := mesh.ServiceResource(namespace, name)
		return translate.Bound{Hosts: []string{host}, Decision: &translate.Decision{Asked: way.Ref(), Way: way.Ref(), Ready: true, Gateways: []*translate.Waypoint{way}}}, true
	}}
	for _, p := range c.policies {
		resource, report := translate.RequestAuthorization(mesh, p, in)
		if resource == nil {
			t.Fatalf("policy %s is not enforced: %+v", p.Name, report.Conditions)
		}
		put("policy", p.Namespace+"/"+p.Name, resource)
	}
	for _, r := range c.requests {
		peer, sni := "-", "-"
		if r.peer != nil {
			peer = r.peer.String()
		}
		if r.sni != "" {
			sni = r.sni
		}
		fmt.Fprintf(to, "request %s %s %s %s %s\n", peer, r.source, r.destination, sni, hex.EncodeToString(r.head()))
	}
	to.WriteString("end\n")
}

// refuses says whether the engine refuses a head before any policy is asked: an encoded slash that stays one stands beside dots.
func refuses(r request) bool {
	return r.level() != l7.PathNormalization_DECODE_AND_MERGE_SLASHES && strings.Contains(strings.ToLower(r.target), "..%2f")
}

func TestTheEngineDecidesAsItsReadingOfTheAPI(t *testing.T) {
	all := drawn(t, false)
	answers := engineDecides(t, all)
	diff := &differences{t: t}
	decisions, apart := 0, map[string]int{}
	for n, c := range all {
		for i, r := range c.requests {
			if diff.engine(n, c, r, answers[n][i]); refuses(r) {
				continue
			}
			decisions++
			passes := isAllow(answers[n][i])
			if text, _ := byTheText.decide(c, r); isAllow(text) != passes {
				apart["the text of the API"]++
			}
			if istio, _ := istios.decide(c, r); isAllow(istio) != passes {
				apart["Istio's reading"]++
			}
		}
	}
	diff.end(decisions)
	t.Logf("%d decisions; other than by %v", decisions, apart)
}

// Cases that nobody allows, or everybody, would tell nothing.
func TestAboutHalfOfTheRequestsPass(t *testing.T) {
	decisions, outcomes := 0, map[string]int{}
	all := cases(1, 400, false)
	for _, c := range all {
		for _, r := range c.requests {
			verdict, audited := ours.decide(c, r)
			word, _, _ := strings.Cut(verdict, " ")
			if decisions++; isAllow(verdict) && verdict != "allow" {
				word = "allow by"
			}
			outcomes[word]++
			if audited != "" {
				outcomes["audit"]++
			}
		}
	}
	t.Logf("%d decisions: %v", decisions, outcomes)
	for _, word := range []string{"allow", "allow by", "deny", "none", "audit"} {
		if outcomes[word]*20 < decisions {
			t.Errorf("%d of %d are %q, less than one in twenty", outcomes[word], decisions, word)
		}
	}
	if passed := outcomes["allow"] + outcomes["allow by"]; passed*3 < decisions || passed*3 > 2*decisions {
		t.Errorf("%d of %d pass, which is not about half", passed, decisions)
	}
}

func TestEqualSeedsGiveEqualCases(t *testing.T) {
	text := func(seed uint64) string {
		var b bytes.Buffer
		for _, c := range cases(seed, 20, false) {
			writeCase(t, &b, c)
		}
		return b.String()
	}
	if text(7) != text(7) {
		t.Error("seed 7 gave two different lists")
	}
	if text(7) == text(8) {
		t.Error("seeds 7 and 8 gave one list")
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lateen.dev/lateen/internal/agent"
	"lateen.dev/lateen/internal/cli"
	"lateen.dev/lateen/internal/control"
	"lateen.dev/lateen/internal/deployer"
)

// node is what `lateen-proxy node --reference json` prints.
type node struct {
	Variables []variable `json:"variables"`
	Metrics   []metric   `json:"metrics"`
	Fields    []field    `json:"fields"`
	// RequestFields are those of a waypoint's line.
	RequestFields []field `json:"request_fields"`
}

type variable struct{ Name, Group, Origin, Form, Default, Meaning string }

type field struct{ Name, When, Meaning string }

// metric is one family of one program.
type metric struct {
	Program string   `json:"-"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Help    string   `json:"help"`
	Labels  []string `json:"labels"`
}

// The programs, as the pages name them.
const (
	nodeProgram    = "lateen-proxy node"
	controlProgram = "lateen-control"
	deployProgram  = "lateen-control deployer"
	agentProgram   = "lateen-agent"
	cliProgram     = "lateen"
)

// builtProxy names a node proxy that was built of the same tree, so that no other one is compiled in order to ask it.
const builtProxy = "LATEEN_BUILT_PROXY"

// nodeProxy asks the node proxy of the source tree at root.
func nodeProxy(root string) (node, error) {
	var n node
	cmd := exec.Command("cargo", "run", "--quiet", "--locked", "-p", "lateen-proxy", "--", "node", "--reference", "json")
	if built := os.Getenv(builtProxy); built != "" {
		cmd = exec.Command(built, "node", "--reference", "json")
	}
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &stderr
	out, err := cmd.Output()
	if err != nil {
		return n, fmt.Errorf("ask the node proxy what it declares: %w\n%s", err, stderr.String())
	}
	if err := json.Unmarshal(out, &n); err != nil {
		return n, fmt.Errorf("read what the node proxy declares: %w", err)
	}
	return n, nil
}

// allMetrics lists those of all programs, in the order of their names.
func allMetrics(n node) ([]metric, error) {
	all := slices.Clone(n.Metrics)
	for i := range all {
		all[i].Program = nodeProgram
	}
	_, agentRegistry := agent.Reference()
	for program, registry := range map[string]*prometheus.Registry{controlProgram: control.Reference(), deployProgram: deployer.Reference(), agentProgram: agentRegistry} {
		metrics, err := gathered(program, registry)
		if err != nil {
			return nil, err
		}
		all = append(all, metrics...)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// describedName finds a name in prometheus.Desc's text, its only outlet.
var describedName = regexp.MustCompile(`fqName: "([^"]+)"`)

// gathered lists a registry's metrics; each must have a series, or its type and labels could not be told.
func gathered(program string, registry *prometheus.Registry) ([]metric, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("%s: gather its metrics: %w", program, err)
	}
	var all []metric
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
		if runtimes(f.GetName()) {
			continue
		}
		m := metric{Program: program, Name: f.GetName(), Kind: strings.ToLower(f.GetType().String()), Help: strings.TrimSuffix(f.GetHelp(), ".")}
		for _, l := range f.GetMetric()[0].GetLabel() {
			m.Labels = append(m.Labels, l.GetName())
		}
		all = append(all, m)
	}
	described := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(described)
		close(described)
	}()
	var missing []string
	for d := range described {
		name := describedName.FindStringSubmatch(d.String())[1]
		if !seen[name] && !runtimes(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s has metrics without a series: %s; give each one in Reference of its package", program, strings.Join(missing, ", "))
	}
	return all, nil
}

// runtimes says whether a metric is client_golang's about the process and Go.
func runtimes(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}

// option is a flag of a program or of one of its verbs.
type option struct{ Name, Form, Default, Meaning string }

// verb is a command with the flags that it has besides those of its program.
type verb struct {
	Name, Meaning string
	Options       []option
}

// verbs lists a command and all below it that have flags.
func verbs(c *cobra.Command) []verb {
	v := verb{Name: c.CommandPath(), Meaning: c.Short}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" || f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		form, meaning := pflag.UnquoteUsage(f)
		value := defaultOf(f.DefValue)
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			value = "required"
		}
		v.Options = append(v.Options, option{name, formOf(form), value, meaning})
	})
	var all []verb
	if len(v.Options) > 0 {
		all = append(all, v)
	}
	for _, child := range c.Commands() {
		if child.Hidden || child.Name() == "help" {
			continue
		}
		all = append(all, verbs(child)...)
	}
	return all
}

func controlVerbs() []verb {
	command := control.Command()
	command.AddCommand(deployer.Command())
	return verbs(command)
}

func cliVerbs() []verb { return verbs(cli.Reference()) }

func agentVerbs() []verb {
	v := verb{Name: agentProgram, Meaning: "Captures the pods of one node for its node proxy"}
	flags, _ := agent.Reference()
	flags.VisitAll(func(f *flag.Flag) {
		form, meaning := flag.UnquoteUsage(f)
		value := defaultOf(f.DefValue)
		if text, ok := strings.CutSuffix(meaning, " (required)"); ok {
			meaning, value = text, "required"
		}
		v.Options = append(v.Options, option{"--" + f.Name, formOf(form), value, meaning})
	})
	return []verb{v}
}

// formOf puts the flag packages' words for forms into people's.
func formOf(form string) string {
	if words, ok := map[string]string{
		"": "`true` or `false`", "string": "text", "strings": "texts, with commas", "stringArray": "text", "uint": "number", "int": "number", "value": "text", "float64Slice": "numbers, with commas",
	}[form]; ok {
		return words
	}
	return form
}

func defaultOf(text string) string {
	if text == "" || text == "[]" {
		return "–"
	}
	return "`" + strings.Trim(text, "[]") + "`"
}

package printer

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// mostListed is how many pods a description lists for people; the formats for programs have all.
const mostListed = 20

// Describe writes a description in sections, as kubectl describe does. Lines of a table are no wider than width, and text is broken there; 0 is
// as wide as it needs.
func Describe(w io.Writer, d Description, now time.Time, width int) error {
	p := &sections{width: width, now: now}
	p.field("Name", d.Name)
	if d.Namespace != "" {
		p.field("Namespace", d.Namespace)
	}
	p.field("Kind", d.Kind+" ("+d.APIVersion+")")
	p.pairs("Labels", d.Labels)
	p.pairs("Annotations", d.Annotations)
	if !d.Created.IsZero() {
		p.field("Created", d.Created.UTC().Format(time.RFC3339)+" ("+Age(d.Created, now)+" ago)")
	}
	switch {
	case d.Pod != nil:
		p.pod(d.Pod)
	case d.Deployment != nil:
		p.deployment(d.Deployment)
	case d.Service != nil:
		p.service(d.Service)
	case d.Policy != nil:
		p.policy(d.Policy, d.Kind)
	case d.Holds != nil:
		p.namespace(d.Holds)
	case d.Node != nil:
		p.node(d.Node)
	}
	if len(d.Fields) > 0 {
		if err := p.fields(d.Fields); err != nil {
			return err
		}
	}
	if d.State != "" {
		p.field("State", d.stateText())
	}
	p.conditions(d.untold())
	if len(d.Problems) > 0 {
		p.title("Problems")
		for _, problem := range d.Problems {
			p.text("  - ", problem)
		}
	}
	p.findings(d.Findings)
	if p.err != nil {
		return p.err
	}
	_, err := io.WriteString(w, term.Escape(p.b.String()))
	return err
}

// sections is a description under construction.
type sections struct {
	b     strings.Builder
	width int
	now   time.Time
	err   error
}

// column is where the values of fields begin, in characters.
const column = 18

// field writes a name and its value, whose later lines stand below the first one.
func (p *sections) field(name, value string) {
	if value == "" {
		value = "<none>"
	}
	p.text(name+":"+strings.Repeat(" ", max(1, column-1-utf8.RuneCountInString(name))), value)
}

// text writes a text after a lead and breaks it where the terminal ends.
func (p *sections) text(lead, text string) {
	if p.width == 0 {
		p.b.WriteString(lead + text + "\n")
		return
	}
	words := &paragraphs{width: p.width}
	words.wrap(lead, text)
	p.b.Write(words.text.Bytes())
}

func (p *sections) title(name string) { p.b.WriteString(name + ":\n") }

// pairs writes a map, one pair a line.
func (p *sections) pairs(name string, values map[string]string) {
	if len(values) == 0 {
		p.field(name, "")
		return
	}
	for i, key := range slices.Sorted(maps.Keys(values)) {
		lead := strings.Repeat(" ", column)
		if i == 0 {
			lead = name + ":" + strings.Repeat(" ", max(1, column-1-len(name)))
		}
		p.text(lead, key+"="+values[key])
	}
}

// table writes a grid below a title, or that there is nothing.
func (p *sections) table(title string, grid *Grid) {
	if grid.Len() == 0 {
		p.field(title, "")
		return
	}
	p.title(title)
	const indent = "  "
	if p.width > 0 {
		fit(grid, p.width-len(indent))
	}
	if err := grid.Print(&p.b, indent); err != nil {
		p.err = err
	}
}

// pods writes a list of pods.
func (p *sections) pods(title string, pods []PodSummary, namespaces bool) {
	heading := []string{"NAME", "READY", "STATUS", "IP", "NODE"}
	if namespaces {
		heading = append([]string{"NAMESPACE"}, heading...)
	}
	grid := NewGrid(heading...)
	for _, pod := range pods[:min(len(pods), mostListed)] {
		row := []string{pod.Name, pod.Ready, pod.Status, pod.IP, pod.Node}
		if namespaces {
			row = append([]string{pod.Namespace}, row...)
		}
		grid.Row(row...)
	}
	p.table(title, grid)
	if more := len(pods) - mostListed; more > 0 {
		p.text("  ", fmt.Sprintf("and %d more; -o json has all", more))
	}
	for _, pod := range pods[:min(len(pods), mostListed)] {
		if pod.Reason != "" && !pod.IsReady {
			p.text("  ! ", pod.Name+": "+pod.Reason)
		}
	}
}

func (p *sections) conditions(conditions []api.Condition) {
	if len(conditions) == 0 {
		return
	}
	p.title("Conditions")
	for _, c := range conditions {
		text := c.Type + "=" + c.Status
		if c.Reason != "" {
			text += " " + c.Reason
		}
		if c.Message != "" {
			text += ": " + c.Message
		}
		p.text("  - ", text)
	}
}

// findings writes what the control plane's analysis says, each with its remedy on a line of its own.
func (p *sections) findings(findings []api.Finding) {
	if len(findings) == 0 {
		return
	}
	p.title("Findings")
	for _, f := range findings {
		lead := "warning: "
		if f.Severity != api.FindingWarning {
			lead = "note: "
		}
		fix := f.Fix
		f.Fix = ""
		p.text("  - ", lead+f.String())
		if fix != "" {
			p.text("    fix: ", fix)
		}
	}
}

func (p *sections) pod(d *PodDescription) {
	p.field("Node", d.Node)
	status := d.Status
	if d.Reason != "" && !d.IsReady {
		status += " (" + d.Reason + ")"
	}
	p.field("Status", status)
	p.field("Ready", d.Ready)
	ips := d.IPs
	if len(ips) == 0 && d.IP != "" {
		ips = []string{d.IP}
	}
	p.field("IP", strings.Join(ips, ", "))
	if d.HostNetwork {
		p.field("Host network", "true")
	}
	p.field("Service account", d.ServiceAccount)
	if d.ControlledBy != "" {
		p.field("Controlled by", d.ControlledBy)
	}
	p.containers(d.Containers)
	p.mesh(d.Mesh)
	p.field("Services", strings.Join(d.Services, ", "))
	grid := NewGrid("NAME", "NAMESPACE", "KIND", "ACTION", "STATE")
	for _, policy := range d.Policies {
		grid.Row(policy.Name, policy.Namespace, policy.Kind, policy.Action, policy.State)
	}
	p.table("Policies", grid)
}

func (p *sections) mesh(m *MeshDescription) {
	if m == nil {
		return
	}
	state := m.State
	if state == "" {
		state = "unknown: the node's agent does not answer"
	}
	if !m.Since.IsZero() {
		state += " for " + Age(m.Since, p.now)
	}
	if m.Reason != "" {
		state += " (" + m.Reason + ")"
	}
	p.field("Mesh", state)
	p.field("Identity", m.Identity)
	for _, e := range m.Exceptions {
		p.field("Not in the mesh", e)
	}
	for _, e := range m.ExceptionsRefused {
		p.field("No effect", e)
	}
	if m.Unmeshed > 0 {
		p.field("Unmeshed", fmt.Sprintf("%d connections that were opened before it was enrolled", m.Unmeshed))
	}
}

func (p *sections) containers(containers []ContainerDescription) {
	p.title("Containers")
	for _, c := range containers {
		name := c.Name
		if c.Init {
			name += " (init)"
		}
		p.b.WriteString("  " + name + ":\n")
		value := func(name, value string) {
			if value != "" {
				p.text("    "+name+":"+strings.Repeat(" ", max(1, column-5-len(name))), value)
			}
		}
		value("Image", c.Image)
		value("Command", strings.Join(c.Command, " "))
		value("Ports", strings.Join(c.Ports, ", "))
		if c.State == "" {
			continue
		}
		state := strings.TrimSuffix(c.State+" ("+c.Reason+")", " ()")
		if !c.Since.IsZero() {
			state += " since " + Age(c.Since, p.now)
		}
		value("State", state)
		value("Last state", strings.TrimSuffix(c.LastState+" ("+c.LastReason+")", " ()"))
		if !c.Init {
			value("Ready", strconv.FormatBool(c.Ready))
		}
		value("Restarts", strconv.Itoa(int(c.Restarts)))
	}
}

func (p *sections) deployment(d *DeploymentDescription) {
	p.field("Selector", metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: d.Selector, MatchExpressions: d.Expressions}))
	p.field("Replicas", fmt.Sprintf("%d wanted, %d up to date, %d ready, %d available", d.Replicas, d.Updated, d.Ready, d.Available))
	p.field("Strategy", d.Strategy)
	p.field("Pod labels", Labels(d.PodLabels))
	p.field("Service account", d.ServiceAccount)
	p.containers(d.Containers)
	p.conditions(d.Conditions)
	p.pods("Pods", d.Pods, false)
}

func (p *sections) service(d *ServiceDescription) {
	p.field("Type", d.Type)
	p.field("IP", strings.Join(d.ClusterIPs, ", "))
	if d.ExternalName != "" {
		p.field("External name", d.ExternalName)
	}
	p.field("Selector", Labels(d.Selector))
	for _, port := range d.Ports {
		name := fmt.Sprintf("Port %d/%s", port.Port, port.Protocol)
		if port.Name != "" {
			name += " " + port.Name
		}
		name += ", to " + port.TargetPort
		ready := 0
		grid := NewGrid("NAME", "ADDRESS", "NODE", "READY")
		for i, e := range port.Endpoints {
			if e.Ready {
				ready++
			}
			if i < mostListed {
				grid.Row(e.Pod, e.Address, e.Node, strconv.FormatBool(e.Ready))
			}
		}
		p.table(fmt.Sprintf("%s (%d of %d endpoints ready)", name, ready, len(port.Endpoints)), grid)
		if more := len(port.Endpoints) - mostListed; more > 0 {
			p.text("  ", fmt.Sprintf("and %d more; -o json has all", more))
		}
	}
}

func (p *sections) policy(d *PolicyDescription, kind string) {
	name := "Action"
	if kind == "PeerAuthentication" {
		name = "Mode"
	}
	p.field(name, d.Action)
	p.field("Selects", d.Scope)
	for _, port := range slices.Sorted(maps.Keys(d.PortModes)) {
		p.field("Port "+port, d.PortModes[port])
	}
	if d.NoRules != "" {
		p.field("Rules", "none: "+d.NoRules)
	} else if len(d.Rules) > 0 {
		p.title("Rules")
		for i, rule := range d.Rules {
			p.text(fmt.Sprintf("  %d. ", i+1), rule)
		}
	}
	p.pods(fmt.Sprintf("Pods (%d)", len(d.Pods)), d.Pods, true)
	if d.DryRun {
		p.field("Dry run", "true")
	}
}

func (p *sections) namespace(d *NamespaceDescription) {
	p.field("Data plane mode", d.Mode)
	p.pods(fmt.Sprintf("Pods (%d)", len(d.Pods)), d.Pods, false)
	for _, held := range d.Objects {
		names := held.Names
		more := ""
		if len(names) > mostListed {
			names, more = names[:mostListed], fmt.Sprintf(" and %d more", len(held.Names)-mostListed)
		}
		p.field(fmt.Sprintf("%s (%d)", held.Kind, len(held.Names)), strings.Join(names, ", ")+more)
	}
}

func (p *sections) node(d *NodeDescription) {
	p.field("Ready", strconv.FormatBool(d.Ready))
	p.field("Addresses", strings.Join(d.Addresses, ", "))
	p.field("Pod CIDR", d.PodCIDR)
	if d.Agent != "" {
		p.field("Agent", d.Agent)
		p.field("Proxy", d.Proxy)
		p.field("Generation", fmt.Sprintf("%d of %d acknowledged", d.AckedGeneration, d.Generation))
	}
	p.pods(fmt.Sprintf("Pods (%d)", len(d.Pods)), d.Pods, true)
}

// fields writes the fields of a kind without a description of its own, as YAML.
func (p *sections) fields(fields map[string]any) error {
	text, err := yaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write the fields: %w", err)
	}
	p.b.Write(text)
	return nil
}

// Labels writes labels as a selector does.
func Labels(m map[string]string) string { return labels(m) }

package scenario

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/isotope"
	"lateen.dev/lateen/internal/lab/published"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/spelling"
)

//go:embed files/*.yaml
var files embed.FS

//go:embed worlds/*.yaml
var worlds embed.FS

// topologies are parts as well: service graphs in the language of isotope.
//
//go:embed topologies/*.yaml
var topologies embed.FS

// partClient is the part of every world that load starts from, and Generator its pod.
const (
	partClient = "client"
	Generator  = "deploy/client"
)

// bookinfo is the part that comes from the samples directory.
const bookinfo = "bookinfo"

// Needs are the programs that a part cannot do without; they come from the host, as a pod's image would bring them.
func Needs(part string) []string {
	switch part {
	case "details":
		return []string{"ruby"}
	case bookinfo:
		return []string{"ruby", "node", "java", "python3"}
	}
	return nil
}

// All reads every scenario, in the order of their names.
func All() ([]*Scenario, error) {
	entries, err := fs.ReadDir(files, "files")
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, e := range entries {
		text, err := files.ReadFile("files/" + e.Name())
		if err != nil {
			return nil, err
		}
		s, err := Parse(strings.TrimSuffix(e.Name(), ".yaml"), text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Find picks scenarios by name; "all" stands for every one. A file's path works as well: ./mine.yaml.
func Find(names []string) ([]*Scenario, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var found []*Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s *Scenario) bool { return s.Name == name })
		switch {
		case name == "all":
			found = append(found, all...)
		case i >= 0:
			found = append(found, all[i])
		case strings.HasSuffix(name, ".yaml"):
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("read a scenario: %w", err)
			}
			s, err := Parse(strings.TrimSuffix(filepath.Base(name), ".yaml"), text)
			if err != nil {
				return nil, err
			}
			found = append(found, s)
		default:
			known := []string{"all"}
			for _, s := range all {
				known = append(known, s.Name)
			}
			return nil, &UnknownError{Name: name, Near: spelling.Nearest(name, known)}
		}
	}
	for i, s := range found {
		if slices.ContainsFunc(found[:i], func(o *Scenario) bool { return o.Name == s.Name }) {
			return nil, fmt.Errorf("scenario %s is named twice", s.Name)
		}
	}
	return found, nil
}

// UnknownError is the error of a scenario that does not exist.
type UnknownError struct {
	Name string
	Near string // the name that was probably meant; empty if none is near
}

// Parts are what is wrong, and its remedy.
func (e *UnknownError) Parts() (what, fix string) {
	what = fmt.Sprintf("there is no scenario %q", e.Name)
	if e.Near != "" {
		return what, fmt.Sprintf("did you mean %s?", e.Near)
	}
	return what, "`lateen lab list` shows them all"
}

func (e *UnknownError) Error() string {
	what, fix := e.Parts()
	return what + "; " + fix
}

var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Keep leaves to each scenario the cells whose names contain one of some texts. It changes nothing if there are no texts. A text that is in no name,
// and a scenario that is left without cells, are errors.
func Keep(scenarios []*Scenario, texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	for _, text := range texts {
		if !slices.ContainsFunc(scenarios, func(s *Scenario) bool {
			return slices.ContainsFunc(s.Cells, func(c Cell) bool { return strings.Contains(c.Name, text) })
		}) {
			return fmt.Errorf("--cell %q: no cell has this in its name", text)
		}
	}
	for _, s := range scenarios {
		var names []string
		kept := slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool {
			names = append(names, c.Name)
			return !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(c.Name, text) })
		})
		if len(kept) == 0 {
			return fmt.Errorf("--cell: scenario %s has no such cell: it has %s", s.Name, strings.Join(names, "; "))
		}
		s.Cells = kept
	}
	return nil
}

// Parse reads a scenario's file. An unknown field, and whatever could not be carried out, is an error that names it.
func Parse(file string, text []byte) (*Scenario, error) {
	s := &Scenario{Name: file}
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", file, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", file, err)
	}
	return s, nil
}

func (s *Scenario) check() error {
	switch {
	case !name.MatchString(s.Name):
		return fmt.Errorf("name: %q: use up to 40 lower-case letters, digits and dashes", s.Name)
	case s.Title == "" || s.Does == "":
		return errors.New("title and does: say what it is and what it does")
	case s.Rounds < 1 || s.Rounds > 1000:
		return fmt.Errorf("rounds: %d: use 1 to 1000", s.Rounds)
	case s.Seconds < 1 || s.Seconds > 3600:
		return fmt.Errorf("seconds: %v: use 1 to 3600", s.Seconds)
	case s.Warmup < 0 || s.Warmup > 600:
		return fmt.Errorf("warmup: %v: use 0 to 600", s.Warmup)
	case s.Workers < 0 || s.Workers > 64:
		return fmt.Errorf("workers: %d: use 0 to 64", s.Workers)
	}
	for _, id := range s.Answers {
		if _, err := published.Find(id); err != nil {
			return fmt.Errorf("answers: %w", err)
		}
	}
	if s.Control != nil {
		return s.checkControl()
	}
	switch {
	case len(s.Metrics) == 0:
		return errors.New("metrics: name those that verdicts are about")
	case len(s.Cells) == 0:
		return errors.New("cells: there are none")
	case !slices.Contains(s.World, partClient):
		return errors.New("world: without the part client there is nobody to send load")
	}
	for _, part := range s.World {
		_, noWorld := fs.Stat(worlds, "worlds/"+part+".yaml")
		_, noGraph := fs.Stat(topologies, "topologies/"+part+".yaml")
		if noWorld != nil && noGraph != nil && part != bookinfo {
			return fmt.Errorf("world: there is no part %q", part)
		}
	}
	for _, kind := range s.Planes {
		if kind != results.KindWaypoint {
			return fmt.Errorf("planes: %q: only %s may be named, since other planes are the run's to choose", kind, results.KindWaypoint)
		}
	}
	for i, r := range s.Alike {
		switch {
		case strings.TrimSpace(r.Name) == "" || slices.ContainsFunc(s.Alike[:i], func(o Request) bool { return o.Name == r.Name }):
			return fmt.Errorf("alike: name %q is empty or stands twice", r.Name)
		case r.URL == "":
			return fmt.Errorf("alike: %s: there is no url", r.Name)
		case r.Status != 0 && (r.Status < 200 || r.Status > 599):
			return fmt.Errorf("alike: %s: status: %d: use 200 to 599", r.Name, r.Status)
		}
	}
	if err := s.checkVariants(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, c := range s.Cells {
		if strings.TrimSpace(c.Name) == "" || seen[c.Name] {
			return fmt.Errorf("cells: %q is empty or stands twice", c.Name)
		}
		seen[c.Name] = true
		if i > 0 && c.Policies < s.Cells[i-1].Policies {
			return fmt.Errorf("cell %s: policies: cells with fewer come first", c.Name)
		}
		if err := s.checkCell(c); err != nil {
			return fmt.Errorf("cell %s: %w", c.Name, err)
		}
	}
	return nil
}

func (s *Scenario) checkVariants() error {
	seen := map[string]bool{}
	for _, v := range s.Variants {
		if !name.MatchString(v.Name) || seen[v.Name] {
			return fmt.Errorf("variants: %q: use up to 40 lower-case letters, digits and dashes, each name once", v.Name)
		}
		// A second self ends in a digit as well.
		if v.Name == "2" {
			return fmt.Errorf("variants: %q is the name of lateen's second self", v.Name)
		}
		seen[v.Name] = true
		if len(v.ProxyEnv) == 0 {
			return fmt.Errorf("variant %s: proxyEnv: say what differs", v.Name)
		}
		for _, setting := range v.ProxyEnv {
			if key, _, ok := strings.Cut(setting, "="); !ok || key == "" {
				return fmt.Errorf("variant %s: proxyEnv: %q: write NAME=VALUE", v.Name, setting)
			}
		}
	}
	return nil
}

// checkControl is check for an experiment on the control plane.
func (s *Scenario) checkControl() error {
	if len(s.World)+len(s.Cells)+len(s.Metrics) > 0 {
		return errors.New("control: the control plane is measured alone; leave world, cells and metrics out")
	}
	if err := s.Control.Validate(); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

func (s *Scenario) checkCell(c Cell) error {
	l := s.Load.With(c.Load)
	loads := []Load{l}
	if c.Beside != nil {
		loads = append(loads, c.Beside.Load)
	}
	for _, l := range loads {
		switch {
		case l.URL == "":
			return errors.New("load: there is no url")
		case l.QPS == nil || *l.QPS < 0:
			return errors.New("load: qps: give the requests per second, or 0 for as many as are answered")
		case l.Connections < 1 || l.Connections > 65535:
			return fmt.Errorf("load: connections: %d: use 1 to 65535", l.Connections)
		}
	}
	switch {
	case c.Part != "" && !slices.Contains(s.World, c.Part):
		return fmt.Errorf("part: %q is not in the scenario's world", c.Part)
	case c.Policies < 0 || c.Policies > 100_000:
		return fmt.Errorf("policies: %d: use 0 to 100000", c.Policies)
	case min(c.RequestPolicies.Deny, c.RequestPolicies.Allow) < 0 || max(c.RequestPolicies.Deny, c.RequestPolicies.Allow) > 10_000:
		return fmt.Errorf("requestPolicies: %d deny, %d allow: use 0 to 10000 of each", c.RequestPolicies.Deny, c.RequestPolicies.Allow)
	case c.Kill != nil && (c.Kill.Role == "" || c.Kill.After < 0 || c.Kill.After > s.Seconds):
		return errors.New("kill: give a role, and a time within the measured one")
	}
	for deployment, replicas := range c.Scale {
		if replicas < 0 || replicas > 100 {
			return fmt.Errorf("scale: %s: %d: use 0 to 100", deployment, replicas)
		}
	}
	return nil
}

// With returns the load with what another one sets in its place.
func (l Load) With(other Load) Load {
	if other.URL != "" {
		l.URL = other.URL
	}
	if other.QPS != nil {
		l.QPS = other.QPS
	}
	if other.Connections != 0 {
		l.Connections = other.Connections
	}
	if other.Keepalive != nil {
		l.Keepalive = other.Keepalive
	}
	if other.Arrivals != "" {
		l.Arrivals = other.Arrivals
	}
	if other.Headers != nil {
		l.Headers = other.Headers
	}
	if other.Flags != nil {
		l.Flags = other.Flags
	}
	return l
}

// Documents are the objects of a part; samples is the directory with Bookinfo, for those parts that run its programs. The pods
// of other parts see no directory, as there may be none.
func Documents(part, samples string) ([]api.Document, error) {
	var dir string
	if len(Needs(part)) > 0 {
		var err error
		// The engine that reads it works elsewhere.
		if dir, err = filepath.Abs(filepath.Join(samples, bookinfo)); err != nil {
			return nil, fmt.Errorf("find the samples: %w", err)
		}
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("the part %s runs the programs of Bookinfo, and there is none in %s: name the directory of the samples with --samples", part, samples)
		}
	}
	if part == bookinfo {
		file := filepath.Join(dir, "bookinfo.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read Bookinfo: %w", err)
		}
		return []api.Document{{File: file, Dir: dir, Data: text}}, nil
	}
	if text, err := topologies.ReadFile("topologies/" + part + ".yaml"); err == nil {
		if text, err = graph(text); err != nil {
			return nil, fmt.Errorf("the part %s: %w", part, err)
		}
		return []api.Document{{File: part + ".yaml", Dir: dir, Data: text}}, nil
	}
	text, err := worlds.ReadFile("worlds/" + part + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("there is no part %q", part)
	}
	return []api.Document{{File: part + ".yaml", Dir: dir, Data: text}}, nil
}

// graph makes the objects of a topology.
func graph(topology []byte) ([]byte, error) {
	t, err := isotope.Parse(topology)
	if err != nil {
		return nil, err
	}
	var objects bytes.Buffer
	err = t.Manifests(&objects, isotope.DefaultManifestOptions)
	return objects.Bytes(), err
}

// Command crds writes the definitions of Istio's and the Gateway API's kinds into charts/lateen-crds/files, from the very modules that
// the mesh's own types come from. It changes nothing in a schema: only labels that claim another installer are left out, and the
// annotation that keeps Helm from deleting them, with all objects of their kinds, is put in.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	out := flag.String("out", "charts/lateen-crds/files", "directory to write to")
	flag.Parse()
	files, err := generate()
	if err == nil {
		err = write(*out, files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
	fmt.Printf("%d definitions in %s\n", len(files), *out)
}

// generate returns what each file should hold, by its path below the output directory.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	istio, err := moduleDir("istio.io", "api")
	if err != nil {
		return nil, err
	}
	if err := add(files, "istio", filepath.Join(istio, "kubernetes", "customresourcedefinitions.gen.yaml")); err != nil {
		return nil, err
	}
	gateway, err := moduleDir("sigs.k8s.io", "gateway-api")
	if err != nil {
		return nil, err
	}
	standard, err := filepath.Glob(filepath.Join(gateway, "config", "crd", "standard", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range standard {
		if err := add(files, "gateway-api", path); err != nil {
			return nil, err
		}
	}
	if len(files) < 20 {
		return nil, fmt.Errorf("found %d definitions only in %s and %s; the modules are laid out otherwise now", len(files), istio, gateway)
	}
	return files, nil
}

func moduleDir(domain, name string) (string, error) {
	path := domain + "/" + name
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", fmt.Errorf("find module %s: %w; run go mod download %s", path, err, path)
	}
	return dir, nil
}

// add puts each document of a file into a file of its own.
func add(files map[string][]byte, folder, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, document := range regexp.MustCompile(`(?m)^---\s*$`).Split(string(b), -1) {
		if strings.TrimSpace(withoutComments(document)) == "" {
			continue
		}
		var head struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name        string            `json:"name"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		name, kept := head.Metadata.Name, []byte(nil)
		switch head.Kind {
		case "CustomResourceDefinition":
			kept = definition(document, len(head.Metadata.Annotations) > 0)
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			// What is after it on a line of code is no part of the policy.
			name, kept = strings.ToLower(head.Kind)+"."+name, []byte(regexp.MustCompile(` #.*`).ReplaceAllString(document, ""))
		default:
			return fmt.Errorf("%s has a %s; say what to do with it", path, head.Kind)
		}
		files[filepath.Join(folder, name+".yaml")] = append(bytes.TrimSpace(kept), '\n')
	}
	return nil
}

func withoutComments(document string) string {
	return regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, "")
}

const keep = `    helm.sh/resource-policy: keep`

// definition edits the metadata of a CustomResourceDefinition as text, so that its schema stays byte for byte what was published.
func definition(document string, annotated bool) []byte {
	var out []string
	inMetadata, inLabels := false, false
	for _, line := range strings.Split(withoutComments(document), "\n") {
		switch {
		case !strings.HasPrefix(line, " "):
			inMetadata, inLabels = line == "metadata:", false
		case inMetadata && !strings.HasPrefix(line, "   "):
			inLabels = line == "  labels:"
		}
		if inMetadata && (inLabels || strings.Contains(line, "helm.sh/resource-policy")) {
			continue
		}
		out = append(out, line)
		if inMetadata && line == "metadata:" && !annotated {
			out = append(out, "  annotations:", keep)
		}
		if inMetadata && line == "  annotations:" {
			out = append(out, keep)
		}
	}
	return []byte(strings.Join(out, "\n"))
}

// write makes the directory hold these files and no others.
func write(dir string, files map[string][]byte) error {
	old, err := filepath.Glob(filepath.Join(dir, "*", "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if rel, err := filepath.Rel(dir, path); err == nil && files[rel] == nil {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

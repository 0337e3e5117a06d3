// Command dashboards writes dashboards/*.json, which Grafana reads, and copies them and dashboards/alerts.yaml to where the chart can
// read them. It owns how dashboards look; that their metrics exist is checked by internal/reference.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

// folders are where the files are: for people, and for Helm, which reads nothing outside of a chart.
var folders = []string{"dashboards", "charts/lateen/monitoring"}

// alerts are written by hand, in the first of the folders.
const alerts = "alerts.yaml"

func write(root string) error {
	files, err := render(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns all files by their paths in the repository.
func render(root string) (map[string][]byte, error) {
	rules, err := os.ReadFile(filepath.Join(root, folders[0], alerts))
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{alerts: rules}
	for _, d := range []dashboard{mesh, nodeProxy, controlPlane, agent} {
		if texts[d.file()], err = d.render(); err != nil {
			return nil, err
		}
	}
	files := map[string][]byte{}
	for name, text := range texts {
		for _, folder := range folders {
			files[filepath.Join(folder, name)] = text
		}
	}
	return files, nil
}

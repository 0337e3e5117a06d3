// Command reference writes docs/reference/{metrics,log,environment,annotations,takeover,analysis}.md and internal/cli/proxyvariables.txt
// from what the programs themselves declare.
// It owns how the pages read and the advice on them; a name that is not declared where it is used fails its tests.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// write renders all pages into the repository at root.
func write(root string) error {
	pages, err := render(root)
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns the pages by their paths in the repository.
func render(root string) (map[string]string, error) {
	node, err := nodeProxy(root)
	if err != nil {
		return nil, err
	}
	metrics, err := allMetrics(node)
	if err != nil {
		return nil, err
	}
	page, err := metricsPage(metrics)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"docs/reference/metrics.md":     page,
		"docs/reference/log.md":         logPage(node.Fields, node.RequestFields),
		"docs/reference/environment.md": environmentPage(node.Variables),
		"docs/reference/annotations.md": annotationsPage(),
		"docs/reference/takeover.md":    takeOverPage(),
		"docs/reference/analysis.md":    analysisPage(),

		"internal/cli/proxyvariables.txt": ownVariables(node.Variables),
	}, nil
}

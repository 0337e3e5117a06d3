package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const chart = "../../../charts/lateen-crds/files"

func TestTheChartIsCurrent(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(chart, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the modules publish (%v): run go run ./internal/tools/crds", name, err)
		}
	}
	have, err := filepath.Glob(filepath.Join(chart, "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(files) {
		t.Errorf("%d files in the chart, %d published: run go run ./internal/tools/crds", len(have), len(files))
	}
}

func TestDefinitionKeepsTheSchemaAndDropsLabels(t *testing.T) {
	const published = `# made by a tool
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    "helm.sh/resource-policy": keep
  labels:
    app: istio-pilot
    heritage: Tiller
  name: as.b.io
spec:
  group: b.io
  labels:
    deep: true
`
	const want = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    helm.sh/resource-policy: keep
  name: as.b.io
spec:
  group: b.io
  labels:
    deep: true
`
	if got := string(definition(published, true)); got != want {
		t.Errorf("got\n%s", got)
	}
	bare := definition("metadata:\n  name: as.b.io\n", false)
	if !strings.Contains(string(bare), "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name") {
		t.Errorf("got\n%s", bare)
	}
}

// Package render owns what the embedded charts come to: values checked against the chart's schema, templates executed, objects decoded.
// It reaches no cluster; what is done with the objects is package install's.
package render

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Release is what a chart is rendered for.
type Release struct {
	Name      string
	Namespace string
	// KubeVersion is the cluster's version, such as v1.36.3; empty for one that suits every chart.
	KubeVersion string
	// APIs are what the cluster serves besides Kubernetes' own kinds, as group/version and group/version/Kind.
	APIs []string
	// Upgrade says that the release was there before.
	Upgrade bool
}

// Rendered is a chart with its values filled in.
type Rendered struct {
	Version string
	// Objects are in the order in which they should be applied.
	Objects []*unstructured.Unstructured
	// Values are all values, the chart's own among them.
	Values map[string]any
	// Notes is the text for people.
	Notes string
}

// Chart renders one of the charts in files (a folder of its name) with the user's values over the chart's.
func Chart(files fs.FS, name string, values map[string]any, release Release) (*Rendered, error) {
	c, err := load(files, name)
	if err != nil {
		return nil, err
	}
	caps := *common.DefaultCapabilities
	if release.KubeVersion != "" {
		version, err := common.ParseKubeVersion(release.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("read the cluster's version %q: %w", release.KubeVersion, err)
		}
		caps.KubeVersion = *version
	}
	caps.APIVersions = append(slices.Clone(caps.APIVersions), release.APIs...)
	options := common.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, IsInstall: !release.Upgrade, IsUpgrade: release.Upgrade, Revision: 1}
	all, err := util.ToRenderValuesWithSchemaValidation(c, values, options, &caps, true)
	if err != nil {
		return nil, fmt.Errorf("merge the values of chart %s: %w", name, err)
	}
	merged, err := plain(all["Values"])
	if err != nil {
		return nil, err
	}
	if err := util.ValidateAgainstSingleSchema(merged, c.Schema); err != nil {
		return nil, refusal(name, err)
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, templateError(name, err)
	}
	r := &Rendered{Version: c.Metadata.AppVersion, Values: merged}
	for _, file := range sortedKeys(texts) {
		switch {
		case path.Base(file) == "NOTES.txt":
			r.Notes = strings.TrimSpace(texts[file])
		case strings.HasPrefix(path.Base(file), "_"):
		default:
			objects, err := decode(texts[file])
			if err != nil {
				return nil, fmt.Errorf("read what %s of chart %s renders to: %w", path.Base(file), name, err)
			}
			r.Objects = append(r.Objects, objects...)
		}
	}
	Sort(r.Objects)
	return r, nil
}

// Validate says whether a chart takes the values, without rendering it.
func Validate(files fs.FS, name string, values map[string]any) error {
	c, err := load(files, name)
	if err != nil {
		return err
	}
	all, err := util.CoalesceValues(c, values)
	if err != nil {
		return fmt.Errorf("merge the values of chart %s: %w", name, err)
	}
	merged, err := plain(all)
	if err != nil {
		return err
	}
	if err := util.ValidateAgainstSingleSchema(merged, c.Schema); err != nil {
		return refusal(name, err)
	}
	return nil
}

// Defaults are the chart's own values, and its schema.
func Defaults(files fs.FS, name string) (values map[string]any, schema []byte, err error) {
	c, err := load(files, name)
	if err != nil {
		return nil, nil, err
	}
	return c.Values, c.Schema, nil
}

// Version is the version of the mesh that a chart installs.
func Version(files fs.FS, name string) (string, error) {
	c, err := load(files, name)
	if err != nil {
		return "", err
	}
	return c.Metadata.AppVersion, nil
}

func load(files fs.FS, name string) (*chart.Chart, error) {
	var list []*archive.BufferedFile
	err := fs.WalkDir(files, name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, file)
		list = append(list, &archive.BufferedFile{Name: strings.TrimPrefix(file, name+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", name, err)
	}
	c, err := loader.LoadFiles(list)
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", name, err)
	}
	return c, nil
}

// plain turns values into what decoded JSON looks like, which is what a schema judges.
func plain(values any) (common.Values, error) {
	b, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, yaml.Unmarshal(b, &out)
}

// decode reads the objects of one rendered file.
func decode(text string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+text, "\n---") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, bytes.TrimSpace([]byte(document)))
		}
		if len(object) > 0 {
			out = append(out, &unstructured.Unstructured{Object: object})
		}
	}
	return out, nil
}

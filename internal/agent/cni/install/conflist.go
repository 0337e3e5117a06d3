// Package install puts the CNI plugin onto a node and takes it off again: its binary, and its entry in the network
// configuration that the container runtime uses. What is in that configuration besides the entry it leaves alone.
package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/agent/cni"
)

// fields are a JSON object whose values stay as they were written.
type fields map[string]json.RawMessage

// Chain puts the entry behind the plugins of a network configuration: a list, or a single plugin, which becomes a list of
// two. out is nil if nothing needs to change.
func Chain(content []byte, entry cni.Entry) (out []byte, err error) {
	list, err := readList(content)
	if err != nil {
		return nil, err
	}
	if err := list.supported(); err != nil {
		return nil, err
	}
	ours, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(list.plugins), isOurs)
	if len(others) == 0 {
		return nil, errors.New("it has no plugin that makes a network")
	}
	wanted := append(others, ours)
	if !list.single && slices.EqualFunc(list.plugins, wanted, sameJSON) {
		return nil, nil
	}
	return list.with(wanted)
}

// Unchain takes the entry out of a network configuration. out is nil if it is not in it.
func Unchain(content []byte) (out []byte, err error) {
	list, err := readList(content)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(list.plugins), isOurs)
	if len(others) == len(list.plugins) {
		return nil, nil
	}
	return list.with(others)
}

// Same says whether two configurations say the same, whatever they look like.
func Same(a, b []byte) bool { return sameJSON(a, b) }

// networks is a network configuration as a list of plugins.
type networks struct {
	fields  fields
	plugins []json.RawMessage
	single  bool // it was no list
}

func readList(content []byte) (networks, error) {
	var f fields
	if err := json.Unmarshal(content, &f); err != nil {
		return networks{}, fmt.Errorf("it is no JSON object: %w", err)
	}
	if raw, there := f["plugins"]; there {
		var plugins []json.RawMessage
		if err := json.Unmarshal(raw, &plugins); err != nil {
			return networks{}, fmt.Errorf("its plugins are no list: %w", err)
		}
		for _, p := range plugins {
			if typeOf(p) == "" {
				return networks{}, errors.New("one of its plugins has no type")
			}
		}
		return networks{fields: f, plugins: plugins}, nil
	}
	if typeOf(content) == "" {
		return networks{}, errors.New("it has neither plugins nor a type")
	}
	list := fields{"plugins": nil}
	for _, name := range []string{"name", "cniVersion", "cniVersions", "disableCheck", "disableGC"} {
		if value, there := f[name]; there {
			list[name] = value
		}
	}
	return networks{fields: list, plugins: []json.RawMessage{bytes.TrimSpace(content)}, single: true}, nil
}

// supported refuses what the plugin could not be called with: it would keep every pod of the node from starting.
func (n networks) supported() error {
	var version string
	var versions []string
	_ = json.Unmarshal(n.fields["cniVersion"], &version)
	_ = json.Unmarshal(n.fields["cniVersions"], &versions)
	if slices.Contains(cni.Versions, version) || slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(cni.Versions, v) }) {
		return nil
	}
	return fmt.Errorf("its cniVersion is %q; chaining needs one of %s: set it in the network's configuration", version, strings.Join(cni.Versions, ", "))
}

// asList is a single plugin as the list that is made of it.
func asList(content []byte) ([]byte, error) {
	list, err := readList(content)
	if err != nil {
		return nil, err
	}
	if !list.single {
		return nil, errors.New("it is a list already")
	}
	return list.with(list.plugins)
}

func (n networks) with(plugins []json.RawMessage) ([]byte, error) {
	raw, err := json.Marshal(plugins)
	if err != nil {
		return nil, err
	}
	all := fields{}
	for name, value := range n.fields {
		all[name] = value
	}
	all["plugins"] = raw
	out, err := json.MarshalIndent(all, "", "  ")
	return append(out, '\n'), err
}

func typeOf(plugin json.RawMessage) string {
	var p struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(plugin, &p)
	return p.Type
}

func isOurs(plugin json.RawMessage) bool { return typeOf(plugin) == cni.Type }

func sameJSON[T ~[]byte](a, b T) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// decode keeps numbers as they are written: as floats, large ones that differ could be equal.
func decode(content []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

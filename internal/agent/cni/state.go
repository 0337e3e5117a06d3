package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// State is what the plugin knows without an agent and without an API server. Its file lies beside the network
// configuration and outlives a boot of the node. Without the file there is no mesh on the node: the plugin lets every
// pod pass.
type State struct {
	// EnrolledNamespaces are those whose label wants their pods captured, as the last agent knew it.
	EnrolledNamespaces []string `json:"enrolledNamespaces"`
	// Pods are those of the node that are not what their namespace says, by namespace/name/uid (the runtime's): whether
	// they are to be captured. They are started anew when the node is.
	Pods map[string]bool `json:"pods,omitempty"`
}

func key(namespace, name, uid string) string { return namespace + "/" + name + "/" + uid }

// Except notes a pod for which its namespace's label does not decide. uid is the runtime's.
func (s *State) Except(namespace, name, uid string, wanted bool) {
	if s.Pods == nil {
		s.Pods = map[string]bool{}
	}
	s.Pods[key(namespace, name, uid)] = wanted
}

// wants says whether the pod is to be captured, and by what it is known.
func (s State) wants(r Request) (wanted bool, how string) {
	if wanted, noted := s.Pods[key(r.Namespace, r.Name, r.UID)]; noted {
		return wanted, "the pod's label when the agent last ran"
	}
	return slices.Contains(s.EnrolledNamespaces, r.Namespace), "the namespaces enrolled when the agent last ran"
}

// copyEnd is behind the name of the file's copy.
const copyEnd = ".copy"

// ReadState reads the file, or its copy if the file is damaged. An error that is fs.ErrNotExist means that the mesh is not
// on this node.
func ReadState(path string) (State, error) {
	s, err := readState(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if s, copyErr := readState(path + copyEnd); copyErr == nil {
			return s, nil
		}
	}
	return s, err
}

func readState(path string) (State, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("read what the agent left: %w", err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, fmt.Errorf("read what the agent left in %s: %w", path, err)
	}
	if s.EnrolledNamespaces == nil {
		// A file of zeros cannot be read, and one of the word null says nothing.
		return State{}, fmt.Errorf("read what the agent left in %s: it names no namespaces", path)
	}
	return s, nil
}

// Save writes the file and its copy unless they say the same already. Without both a damaged one would stop pods that are
// none of the mesh's.
func (s State) Save(path string) error {
	slices.Sort(s.EnrolledNamespaces)
	if s.EnrolledNamespaces == nil {
		s.EnrolledNamespaces = []string{}
	}
	return errors.Join(save(path+copyEnd, s), save(path, s))
}

// RemoveState tells the plugin that the mesh has left the node.
func RemoveState(path string) error {
	var all error
	for _, p := range []string{path, path + copyEnd} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, fmt.Errorf("remove what the agent left: %w", err))
		}
	}
	return all
}

// Access is how the plugin reaches the API server while no agent answers. Its file is root's, and outlives a boot.
type Access struct {
	Server string `json:"server"` // https://host:port
	CA     string `json:"ca"`     // certificates, PEM
	Token  string `json:"token"`
}

// Save writes the file unless it says the same already.
func (a Access) Save(path string) error { return save(path, a) }

func readAccess(path string) (Access, error) {
	var a Access
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return Access{}, fmt.Errorf("read the way to the API server: %w", err)
	}
	return a, nil
}

func save(path string, content any) error {
	b, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b) {
		return nil
	}
	return WriteWhole(path, b, 0o600)
}

// WriteWhole replaces a file so that a reader, also one after a power failure, finds the old one or the new one.
func WriteWhole(path string, content []byte, mode fs.FileMode) error {
	return CopyWhole(path, bytes.NewReader(content), mode)
}

// CopyWhole does so with all that content has.
func CopyWhole(path string, content io.Reader, mode fs.FileMode) (err error) {
	// The name's end keeps container runtimes from taking it for a network configuration.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.lateen-new")
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("replace %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	_, err = io.Copy(f, content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

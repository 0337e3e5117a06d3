package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// untilGone waits until nothing of a mesh is left on the machine.
func untilGone(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there: %v", dir, err)
		}
	}
}

// The kernel closes the lifeline when the process that started the mesh ends, also by SIGKILL.
func TestAnAttachedMeshEndsWithItsStarter(t *testing.T) {
	needRoot(t)
	before := hostState(t)
	bin := binDir(t)
	h, err := Start(t.Context(), Options{Mesh: meshFor(t), Nodes: 2, BinDir: bin, Attached: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Down(context.Background(), h.Mesh, nil) })
	if _, err := h.Client.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	untilGone(t, h.RunDir)
	for deadline := time.Now().Add(10 * time.Second); len(engines(h.Mesh)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("engines %v run on", engines(h.Mesh))
		}
	}
	if err := sameState(before, hostState(t)); err != nil {
		t.Error(err)
	}
	// The mesh's directory showed the programs; its removal must not have removed them.
	for _, name := range []string{controlBinary, agentBinary, proxyBinary} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAttachedMeshCanBeTakenDown(t *testing.T) {
	needRoot(t)
	h, err := Start(t.Context(), Options{Mesh: meshFor(t), Nodes: 1, BinDir: binDir(t), Attached: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Down(t.Context(), h.Mesh, nil), h.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.RunDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", h.RunDir, err)
	}
}

// engines are the processes that are a mesh's engine.
func engines(mesh string) (pids []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(string(text), "\x00"+EngineVerb+"\x00"+mesh+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

//go:build kube

package installer_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

// refused is the fix of a refusal.
func refused(t *testing.T, err error) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Fix == "" {
		t.Fatalf("not a refusal with a fix: %v", err)
	}
	return e
}

// What people are told to run is run as they would: by a shell, and by kubectl itself.
func TestTheCureForAnAnnotationAloneRuns(t *testing.T) {
	c := installed(t)
	for _, node := range []string{"ghost-1", "ghost-2"} {
		p := pod(t, c.Client, "ghosts", "web-"+node, node, "default")
		if _, err := c.Client.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"ambient.istio.io/redirection":"enabled"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.PrepareRemoval(t.Context(), options(), false)
	e := refused(t, err)
	_, rest, there := strings.Cut(e.Fix, "only say so: ")
	command, _, ends := strings.Cut(rest, "; otherwise ")
	if !there || !ends {
		t.Fatal(e)
	}
	k, err := filepath.Abs("../k")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte("#!/bin/sh\nexec "+k+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-ec", command)
	sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if _, err := c.PrepareRemoval(t.Context(), options(), false); err != nil {
		t.Error(err)
	}
}

// Of two commands at once one does its work whole, and the other says that it did not.
func TestOneCommandAtATimeChangesAnInstallation(t *testing.T) {
	c := installed(t)
	var all sync.WaitGroup
	levels := []string{"debug", "warn"}
	errs := make([]error, len(levels))
	for n, level := range levels {
		all.Go(func() {
			o := options()
			o.Values = map[string]any{"log": map[string]any{"level": level}}
			i, err := c.PrepareUpgrade(t.Context(), o)
			if err == nil {
				err = i.Run(t.Context())
			}
			errs[n] = err
		})
	}
	all.Wait()
	last := ""
	for n, err := range errs {
		if err == nil {
			last += levels[n]
		} else if e := refused(t, err); e.Code != 409 || !strings.Contains(e.Message, "another command") {
			t.Error(e)
		}
	}
	r, err := c.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Where one came after the other both may have succeeded.
	if level := r.Values["log"].(map[string]any)["level"].(string); r.State != "installed" || !strings.Contains(last, level) {
		t.Errorf("%q succeeded, and the record says %+v", last, r)
	}
	if list, err := c.Client.CoordinationV1().Leases(system).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=lateen-install"}); err != nil || len(list.Items) != 0 {
		t.Errorf("%v %v stay behind", list.Items, err)
	}
	o := options()
	o.ResetValues = true
	i, err := c.PrepareUpgrade(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// This server has no controller that ends what is being terminated, so it stays so for as long as a test needs.
func TestARemovalThatEndsWhileItsNamespaceGoesCanBeRepeated(t *testing.T) {
	c := installed(t)
	end := func(ctx context.Context, namespace string) error {
		n, err := c.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil || n.DeletionTimestamp == nil {
			return errors.Join(err, errors.New("it is not being removed"))
		}
		n.Spec.Finalizers = nil
		_, err = c.Client.CoreV1().Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
		return err
	}
	uninstall := func(timeout time.Duration, heard func(context.CancelFunc, api.Event)) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := options()
		o.Timeout = timeout
		o.Progress = func(e api.Event) { heard(cancel, e) }
		r, err := c.PrepareRemoval(ctx, o, false)
		if err != nil {
			t.Fatal(err)
		}
		return r.Run(ctx)
	}
	err := uninstall(2*time.Minute, func(cancel context.CancelFunc, e api.Event) {
		switch {
		case e.State == api.EventStarted && strings.HasSuffix(e.Message, "namespace istio-system"):
			go func() { // the removal waits for it, and is what fails without
				for end(t.Context(), "istio-system") != nil && t.Context().Err() == nil {
					time.Sleep(50 * time.Millisecond)
				}
			}()
		case e.State == api.EventStarted && strings.HasSuffix(e.Message, "namespace "+system):
			time.AfterFunc(time.Second, cancel)
		}
	})
	var interrupted *install.Interrupted
	if !errors.As(err, &interrupted) || !strings.Contains(err.Error(), "can be repeated") {
		t.Fatal(err)
	}
	nothing := func(context.CancelFunc, api.Event) {}
	if e := refused(t, uninstall(20*time.Second, nothing)); !strings.Contains(e.Message, "namespace "+system+" is not gone yet") {
		t.Error(e)
	}
	if err := end(t.Context(), system); err != nil {
		t.Fatal(err)
	}
	if err := uninstall(2*time.Minute, nothing); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Find(t.Context()); r != nil || err != nil {
		t.Errorf("%+v %v", r, err)
	}
	installed(t)
}

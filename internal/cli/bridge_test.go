package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryBridgeLeadsToACommand(t *testing.T) {
	root := newRoot(Env{})
	for word, b := range bridges {
		if !slices.Contains([]string{istioctl, linkerd, kubectl}, b.of) || len(b.here) == 0 {
			t.Errorf("%s: %+v", word, b)
		}
		for _, line := range b.here {
			words := strings.Fields(line)
			cmd, rest, err := root.Find(words)
			if err != nil || cmd == root {
				t.Errorf("%s leads to `lateen %s`: no such command: %v", word, line, err)
				continue
			}
			// A word that is left must stand for a name, be a kind of object, or follow a flag.
			if cmd.HasSubCommands() && len(rest) > 0 {
				t.Errorf("%s leads to `lateen %s`: %s has no command %s", word, line, cmd.Name(), rest[0])
			}
			if cmd.Name() == "config" && rest[0] != "NODE" && !slices.Contains(partNames(), rest[0]) {
				t.Errorf("%s leads to `lateen %s`: no such part", word, line)
			}
			for _, flag := range words {
				if name, isLong := strings.CutPrefix(flag, "--"); isLong && name != "" && name != "help" && cmd.Flags().Lookup(name) == nil {
					t.Errorf("%s leads to `lateen %s`: no flag %s", word, line, flag)
				}
			}
		}
		first, second, both := strings.Cut(word, " ")
		if cmd, rest, err := root.Find(strings.Fields(word)); err == nil && cmd != root && (!both || cmd.Name() != first || len(rest) == 0 || rest[0] != second || !cmd.HasSubCommands()) {
			t.Errorf("%s is a command of this program: nobody gets the answer", word)
		}
	}
}

func TestWordsOfOtherProgramsAreAnswered(t *testing.T) {
	for typed, want := range map[string]string{
		"proxy-status":                       "error: unknown command \"proxy-status\"\n  fix: istioctl's proxy-status is `lateen status` here\n",
		"ps":                                 "istioctl's ps is `lateen status` here",
		"x authz check p":                    "istioctl's experimental authz is `lateen proxy config policies NODE` and `lateen tap --denied` here",
		"experimental nothing":               "istioctl has experimental; Lateen has no experimental commands. The nearest: `lateen status`",
		"pc secret deploy/x":                 "istioctl's proxy-config secret is `lateen proxy config certificates NODE` here",
		"ztunnel-config workload -n default": "istioctl's ztunnel-config workload is `lateen proxy config workloads NODE` here",
		"zc":                                 "istioctl's ztunnel-config is `lateen proxy config NODE` here",
		"viz stat deploy":                    "linkerd's viz stat is `lateen top` here",
		"viz":                                "linkerd's viz is `lateen top` and `lateen tap` here",
		"run web --image x":                  "kubectl's run is `lateen apply -f FILE` here",
		"help edges":                         "linkerd's edges is `lateen tap` and `lateen top connections` here",
		"kube-inject -f x":                   "istioctl has kube-inject; Lateen has no sidecars to inject",
		"rollout undo deploy/x":              "error: unknown command \"undo\"\n  fix: kubectl has rollout undo; Lateen keeps no earlier versions of a deployment; apply the earlier file. The nearest: `lateen apply -f FILE`\n",
		"rollout history deploy/x":           "kubectl has rollout history; Lateen keeps no earlier versions",
		"statsu":                             "did you mean status?",
		"install --revision canary":          "Lateen has no revisions",
	} {
		f := newFake(t)
		if r := f.run("", strings.Fields(typed)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) || r.stdout != "" {
			t.Errorf("%s: got %+v, want %q", typed, r, want)
		}
	}
	f := newFake(t)
	f.meshes, f.silent = []string{"ux"}, nil
	if r := f.run("", "--name", "ux", "proxy-status"); !strings.Contains(r.stderr, "is `lateen status --name ux` here") {
		t.Errorf("%+v", r)
	}
	// Only the first word is another program's.
	if r := f.run("", "proxy", "stat"); strings.Contains(r.stderr, "linkerd") {
		t.Errorf("%+v", r)
	}
}

package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// podTokens keeps a token in the directory of every pod that asks for its certificate itself. Its fields never change; the state's lock
// guards the pods and accounts.
type podTokens struct {
	signer *signer
	state  *state
	dir    runDir
	log    *slog.Logger
}

func newPodTokens(signer *signer, s *state, dir runDir, log *slog.Logger) *podTokens {
	return &podTokens{signer: signer, state: s, dir: dir, log: log}
}

// give writes a new token for a pod, which the pod's user alone can read.
func (t *podTokens) give(id *podIdentity) error {
	t.state.mu.Lock()
	account := t.state.store.find(api.Key{Kind: "ServiceAccount", Namespace: id.namespace, Name: id.serviceAccount()})
	t.state.mu.Unlock()
	if account == nil {
		return fmt.Errorf("ServiceAccount %q not found in namespace %s; apply one", id.serviceAccount(), id.namespace)
	}
	text, err := t.signer.sign(holder{namespace: id.namespace, account: named{id.serviceAccount(), account.uid}, pod: named{id.name, id.uid}, node: named{id.node.name, id.node.uid}}, time.Now())
	if err != nil {
		return err
	}
	dir := t.dir.podToken(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chown(dir, id.unixUID, id.unixUID); err != nil {
		return err
	}
	// It belongs to the pod's user before it has its name: the proxy may read it at any moment.
	path := filepath.Join(dir, tokenName)
	if err := writeAtomic(path+".new", []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the token of pod %s/%s: %w", id.namespace, id.name, err)
	}
	if err := os.Chown(path+".new", id.unixUID, id.unixUID); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// rotate replaces the tokens long before they expire.
func (t *podTokens) rotate(ctx context.Context) {
	everyRenewal(ctx, func() {
		for _, id := range t.holders() {
			if err := t.give(id); err != nil {
				t.log.Error("rotate a pod's token", "err", err)
			}
		}
	})
}

// holders are the pods that have a token and live.
func (t *podTokens) holders() (ids []*podIdentity) {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	for _, p := range t.state.pods {
		if p.id.ownName && p.network && !p.stopping {
			ids = append(ids, &p.id)
		}
	}
	return ids
}

package local

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// nodeTokens keeps a token in the directory of every node for its proxy. Its fields never change, and it needs no lock.
type nodeTokens struct {
	signer     *signer
	nodes      nodeList
	dir        runDir
	accountUID func() string // of the proxies' service account
	log        *slog.Logger
}

func newNodeTokens(signer *signer, nodes nodeList, dir runDir, accountUID func() string, log *slog.Logger) *nodeTokens {
	return &nodeTokens{signer: signer, nodes: nodes, dir: dir, accountUID: accountUID, log: log}
}

// showSigner makes the key of the tokens and shows its public half to the control plane.
func showSigner(dir runDir) (*signer, error) {
	signer, err := newSigner()
	if err != nil {
		return nil, err
	}
	pub, err := signer.publicPEM()
	if err != nil {
		return nil, err
	}
	return signer, writeAtomic(dir.tokenKey(), pub, 0o644)
}

// write gives every node a new token.
func (t *nodeTokens) write() error {
	for _, n := range t.nodes {
		text, err := t.signer.token(n, t.accountUID(), time.Now())
		if err != nil {
			return err
		}
		if err := writeAtomic(t.dir.token(n.name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the token of %s: %w", n.name, err)
		}
	}
	return nil
}

// rotate replaces the tokens long before they expire; proxies read them anew for every use.
func (t *nodeTokens) rotate(ctx context.Context) {
	everyRenewal(ctx, func() {
		if err := t.write(); err != nil {
			t.log.Error("rotate node tokens", "err", err)
		}
	})
}

// everyRenewal calls renew each time that tokens are due for replacement, until ctx ends.
func everyRenewal(ctx context.Context, renew func()) {
	tick := time.NewTicker(tokenRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			renew()
		}
	}
}

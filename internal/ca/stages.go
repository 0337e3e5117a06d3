package ca

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// lagOf is how far behind a replica may be that signs certificates of a length.
func lagOf(lifetime time.Duration) time.Duration { return min(lag, max(lifetime, leastLag)) }

// leastStage is how long a stage lasts at least.
func (s *Shared) leastStage(st state) time.Duration {
	return max(s.LeastStage, st.Lifetime+clockLeeway+lagOf(st.Lifetime))
}

// step moves to the next stage when it is time.
func (s *Shared) step(ctx context.Context) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	now := s.Now()
	st, sealed, current, trouble := s.state, s.sealed, s.current, s.trouble
	root := s.roots[st.Signing].certificate
	waits := now.Before(s.next.retry)
	s.mu.Unlock()
	if trouble != "" || waits {
		return
	}
	to := st.next(view{now: now, knowsSince: now, leastStage: s.leastStage(st), requested: sealed.Requested,
		rootFrom: root.NotBefore, rootTill: root.NotAfter})
	switch {
	case to != st && !s.may(st, current.Bundle(), now):
		return
	case to == st && s.Lifetime > st.Lifetime:
		to.Lifetime = s.Lifetime
	case to == st && st.Stage != Steady && sealed.Requested:
		// One rotation answers all requests so far.
	case to == st:
		return
	}
	if err := s.move(ctx, sealed, st, to, now); err != nil {
		s.mu.Lock()
		s.next.retry = now.Add(5 * time.Second)
		s.mu.Unlock()
		if !errors.Is(err, ErrChanged) {
			s.Logger.Warn("ca: root rotation cannot go on; what was there before stays in force", "error", err)
		}
	}
}

// may says whether the next stage may begin now that it is time: those who read the roots from a file have those of the present stage, and
// it is time by the clock that all share. What it waits for is told once.
func (s *Shared) may(st state, bundle []byte, now time.Time) bool {
	held, waits := "", []string(nil)
	if skew := s.Skew(); skew.Abs() > maxSkew {
		held = fmt.Sprintf("the clock of the replica that leads is %s off (%s) from the API server's, and stages last as long as certificates live; correct it", skew.Abs().Round(time.Second), direction(skew))
	} else if st.Stage != Steady {
		own, others := s.Unpublished(bundle)
		late := !now.Before(st.Since.Add(s.leastStage(st) + stragglersFor))
		switch {
		case own:
			held = s.KnownAt + " does not hold the roots of this stage yet"
		case len(others) > 0 && late:
			s.Logger.Warn("ca: root rotation goes on although namespaces do not have the roots of the stage; what reads them there may not trust the next one", "reason", "namespaces: "+some(others))
		case len(others) > 0:
			waits = others
			held = fmt.Sprintf("namespaces that do not hold the roots of this stage, for which it waits until %s: %s",
				st.Since.Add(s.leastStage(st)+stragglersFor).UTC().Format(time.RFC3339), some(others))
		}
	}
	s.mu.Lock()
	told := s.next.held == held
	s.next.held, s.next.waits = held, waits[:min(len(waits), maxNamed)]
	s.mu.Unlock()
	if held != "" && !told {
		s.Logger.Warn("ca: the next stage of root rotation waits", "reason", held)
	}
	return held == ""
}

func direction(skew time.Duration) string {
	if skew > 0 {
		return "ahead"
	}
	return "behind"
}

// some are the first few texts as one.
func some(texts []string) string {
	if len(texts) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxNamed], ", "), len(texts)-maxNamed)
	}
	return strings.Join(texts, ", ")
}

func (s *Shared) move(ctx context.Context, sealed Sealed, from, to state, now time.Time) error {
	signing := pair{sealed.Data[sharedCert], sealed.Data[sharedKey]}
	other := pair{sealed.Data[otherCert], sealed.Data[otherKey]}
	switch {
	case to.Stage == Publishing && from.Stage == Steady:
		var err error
		if other.cert, other.key, err = newRoot(s.TrustDomain, fmt.Sprintf("%s %d", rootName, to.Other), now); err != nil {
			return err
		}
	case to.Stage == Dropping && from.Stage == Publishing:
		signing, other = other, signing
	}
	data, err := encodeShared(to, [2]pair{signing, other})
	if err != nil {
		return err
	}
	version, err := s.vault.Write(ctx, data, sealed.Version)
	if err != nil {
		return err
	}
	next := Sealed{Data: data, Version: version}
	st, roots, signer, err := s.parse(next)
	if err != nil {
		return err
	}
	s.install(next, st, roots, signer, now)
	return nil
}

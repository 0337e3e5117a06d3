package ca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrEnded is what the error of a signer wraps that has ended: what it signed would be born expired.
var ErrEnded = errors.New("the CA signs nothing")

// ended says which certificate between the key and the root has ended, if one has, and how to be rid of that. Of several roots that
// what is issued leads to one that is valid is enough.
func (s *Signer) ended(now time.Time) error {
	over := func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) }
	said := func(what string, c *x509.Certificate) error {
		return fmt.Errorf("%w: %s, %s, ended at %s; %s", ErrEnded, what, c.Subject, c.NotAfter.UTC().Format(time.RFC3339), s.remedy)
	}
	if s.certificate != nil && over(s.certificate) {
		return said("its own certificate", s.certificate)
	}
	for _, c := range s.chain {
		if over(c) {
			return said("a certificate between it and the root", c)
		}
	}
	// Of a signer elsewhere nothing else is known, and its answers are verified by these roots.
	if s.elsewhere != nil && s.lastRoot != nil && over(s.lastRoot) {
		return said("its root", s.lastRoot)
	}
	return nil
}

// trouble is why nothing is issued, or that the root has ended. Node proxies take no notice of that (RFC 5280 §6.1.1: a trust anchor is a
// name and a key), others refuse what leads to it: to issue no more would cut off the former as well.
func (s *Signer) trouble(now time.Time) (text string, issues bool) {
	if err := s.ended(now); err != nil {
		return err.Error(), false
	}
	if s.lastRoot != nil && !now.Before(s.lastRoot.NotAfter) {
		return fmt.Sprintf("the root, %s, ended at %s: node proxies still accept what is issued, others do not, and a control plane that is restarted does not open the CA; %s",
			s.lastRoot.Subject, s.lastRoot.NotAfter.UTC().Format(time.RFC3339), s.remedy), true
	}
	return "", true
}

// longest is the root, of those that what is issued leads to, that ends last.
func (s *Signer) longest() (last *x509.Certificate) {
	for _, r := range s.roots {
		if s.leadsTo(r) && (last == nil || r.NotAfter.After(last.NotAfter)) {
			last = r
		}
	}
	return last
}

// Watch tells the log, once, that a signer has ended: whoever asks for a certificate may not get as far as to be refused, for the control
// plane's own certificate ends with the signer, too.
type Watch struct{ told string }

// Look looks at the signer of the moment.
func (w *Watch) Look(s *Signer, now time.Time, logger *slog.Logger) {
	text, issues := s.trouble(now)
	if text != "" && text != w.told {
		what := "ca: no certificates are issued"
		if issues {
			what = "ca: the root has ended"
		}
		logger.Error(what, "error", text)
	}
	w.told = text
}

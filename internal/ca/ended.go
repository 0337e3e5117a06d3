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
	if s.lastRoot != nil && over(s.lastRoot) {
		return said("its root", s.lastRoot)
	}
	return nil
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
	text := ""
	if err := s.ended(now); err != nil {
		text = err.Error()
	}
	if text != "" && text != w.told {
		logger.Error("ca: no certificates are issued", "error", text)
	}
	w.told = text
}

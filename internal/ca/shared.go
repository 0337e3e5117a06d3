package ca

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Keys of the entries of a vault. The signing root has the names of a TLS secret's certificate and key.
const (
	sharedCert  = "ca.crt"
	sharedKey   = "ca.key"
	otherCert   = "other.crt"
	otherKey    = "other.key"
	sharedState = "state.json"
)

const (
	// lag is how far behind a replica may be that signs certificates of full length; leastLag the same where certificates live shorter.
	lag, leastLag = 2 * time.Minute, 30 * time.Second
	// cutOffLife is what certificates live at most that a replica signs which has long been cut off.
	cutOffLife = time.Hour
	// confirmEvery is how often the vault is read although nothing says that it changed.
	confirmEvery = 30 * time.Second
	// restoreAfter is how long a vault must be gone before the leader makes it again from memory: long enough for an uninstallation,
	// which stops the control planes first, and for somebody who replaces it by deleting and creating.
	restoreAfter = time.Minute
	// stragglersFor is how much longer a stage may last for namespaces that do not get its roots: one of them, full or fought over, must not
	// keep a key in force that somebody has stolen.
	stragglersFor = 24 * time.Hour
	// maxSkew is how far the clock may be off that moves the stages.
	maxSkew = time.Minute
	// maxNamed is how many namespaces are named.
	maxNamed = 5
)

// Errors of a Vault.
var (
	// ErrNoVault: nothing is kept there.
	ErrNoVault = errors.New("nothing is kept there")
	// ErrChanged: somebody else wrote since it was read.
	ErrChanged = errors.New("somebody else wrote it meanwhile")
)

// Vault keeps the keys of a CA that several control planes share. Whoever writes says which version it has read, and loses if there is
// another one by now.
type Vault interface {
	// Name is what people know it by.
	Name() string
	Read(ctx context.Context) (Sealed, error)
	// Write replaces what was kept; the version is empty if there was nothing. It returns the new version.
	Write(ctx context.Context, data map[string][]byte, version string) (string, error)
}

// Sealed is what a vault holds at one version.
type Sealed struct {
	Data    map[string][]byte
	Version string
	// Requested says that somebody asked for another root. Writing answers it.
	Requested bool
}

// SharedOptions are what a shared CA depends on.
type SharedOptions struct {
	TrustDomain string
	// Lifetime is the longest that certificates are to live.
	Lifetime time.Duration
	// LeastStage is how long a stage of rotation takes at least.
	LeastStage time.Duration
	Now        func() time.Time
	Logger     *slog.Logger
	// Publish is called with each signer that comes into force, the first one included.
	Publish func(*Signer)
	// Known returns the PEM bundle that the mesh was told to trust last, empty if it never was; KnownAt is what people know its place by.
	Known   func(context.Context) ([]byte, error)
	KnownAt string
	// Adopt returns the certificate and key of a root to begin with in place of a new one, nil if there is none.
	Adopt func(context.Context) (cert, key []byte, err error)
	// Leads says whether this replica moves the stages.
	Leads func() bool
	// Unpublished says whether a bundle has not reached the control plane's own namespace, where node proxies read it, and names the others
	// that it has not reached.
	Unpublished func(bundle []byte) (own bool, others []string)
	// Skew is how far the clock is ahead of the one that all replicas share, as far as is known; nil if there is none.
	Skew func() time.Duration
}

// Shared signs with a root that several control planes share, and that the leader among them replaces in stages. What cannot be read
// or believed leaves what was there in force. docs/design/ca-in-a-cluster.md says why.
type Shared struct {
	SharedOptions
	vault Vault

	// looking is held while the vault is read and written.
	looking sync.Mutex

	mu        sync.Mutex
	sealed    Sealed
	state     state
	roots     map[int]*Root
	current   *Signer
	confirmed time.Time // when the vault was last read and what it held was in force
	gone      time.Time // since when the vault is not there
	trouble   string
	next      hindrance
	ends      Watch
}

// hindrance is what keeps the next stage of a rotation from beginning although it is time.
type hindrance struct {
	// held says why, waits for which namespaces.
	held  string
	waits []string
	// retry is when it is tried again, after it failed.
	retry time.Time
}

// OpenShared reads the vault, or makes a root in it if there is none and never was one. An error that waiting may fix is the vault's own.
func OpenShared(ctx context.Context, vault Vault, opts SharedOptions) (*Shared, error) {
	s := &Shared{SharedOptions: opts, vault: vault}
	if s.Skew == nil {
		s.Skew = func() time.Duration { return 0 }
	}
	known, err := s.Known(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which roots the mesh trusts: %w", err)
	}
	for range 3 {
		read := s.Now()
		sealed, err := vault.Read(ctx)
		if errors.Is(err, ErrNoVault) {
			if err = s.begin(ctx, known); errors.Is(err, ErrChanged) {
				continue // another replica was first
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		next, roots, signer, err := s.parse(sealed)
		if err != nil {
			return nil, err
		}
		if !Continues(known, signer) {
			return nil, fmt.Errorf("%s holds another root (%s) than the mesh trusts; restore the former, or to change to this one at once, cutting off every proxy until it is restarted, delete %s first",
				vault.Name(), signer.certificate.Subject, s.KnownAt)
		}
		s.install(sealed, next, roots, signer, read)
		return s, nil
	}
	return nil, fmt.Errorf("%s: %w again and again; try again", vault.Name(), ErrChanged)
}

// begin makes what the vault first holds.
func (s *Shared) begin(ctx context.Context, known []byte) error {
	now := s.Now()
	adopted := false
	cert, key, err := s.Adopt(ctx)
	if err != nil {
		return fmt.Errorf("adopt a root: %w", err)
	}
	if cert != nil {
		adopted = true
	} else if len(bytes.TrimSpace(known)) > 0 {
		return fmt.Errorf("%s is gone, and the mesh trusts a root that it held; restore it, for a new root would cut off every proxy: to make one nevertheless, delete %s and restart every proxy", s.vault.Name(), s.KnownAt)
	} else if cert, key, err = newRoot(s.TrustDomain, rootName, now); err != nil {
		return err
	}
	data, err := encodeShared(state{Stage: Steady, Signing: 1, Since: now, Lifetime: s.Lifetime}, [2]pair{{cert, key}})
	if err != nil {
		return err
	}
	_, _, signer, err := s.parse(Sealed{Data: data})
	if err != nil {
		return err
	}
	if !Continues(known, signer) {
		return fmt.Errorf("the root to be adopted (%s) is not the one that the mesh trusts; name the namespace of the one that is", signer.certificate.Subject)
	}
	if _, err := s.vault.Write(ctx, data, ""); err != nil {
		return err
	}
	s.Logger.Info("ca: root made", "vault", s.vault.Name(), "adopted", adopted, "subject", signer.certificate.Subject.String(), "expires", signer.NotAfter())
	return nil
}

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

// encodeShared is what a vault holds: the signing root, and the other one if there is one.
func encodeShared(st state, roots [2]pair) (map[string][]byte, error) {
	text, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("encode the CA's state: %w", err)
	}
	data := map[string][]byte{sharedState: text, sharedCert: roots[0].cert, sharedKey: roots[0].key}
	if st.Other != 0 {
		data[otherCert], data[otherKey] = roots[1].cert, roots[1].key
	}
	return data, nil
}

// parse reads what a vault holds.
func (s *Shared) parse(sealed Sealed) (state, map[int]*Root, *Signer, error) {
	name := s.vault.Name()
	fail := func(err error) (state, map[int]*Root, *Signer, error) {
		return state{}, nil, nil, fmt.Errorf("%s cannot be used: %w", name, err)
	}
	st := state{Stage: Steady, Signing: 1, Since: s.Now(), Lifetime: s.Lifetime}
	if text, ok := sealed.Data[sharedState]; ok {
		var err error
		if st, err = parseState(text); err != nil {
			return fail(fmt.Errorf("%s: %w; restore it", sharedState, err))
		}
	} else if len(sealed.Data[otherCert]) > 0 {
		return fail(fmt.Errorf("it holds two roots and no %s that says which of them signs; restore it", sharedState))
	}
	roots := map[int]*Root{}
	signing, err := parseRoot(sharedCert, sealed.Data[sharedCert], sharedKey, sealed.Data[sharedKey])
	if err != nil {
		return fail(err)
	}
	if s.Now().After(signing.certificate.NotAfter) {
		return fail(fmt.Errorf("its root expired at %s; delete it and %s and restart every proxy to make a new root", signing.certificate.NotAfter.Format(time.RFC3339), s.KnownAt))
	}
	roots[st.Signing] = signing
	trusted := []*x509.Certificate{signing.certificate}
	if st.Other != 0 {
		other, err := parseRoot(otherCert, sealed.Data[otherCert], otherKey, sealed.Data[otherKey])
		if err != nil {
			return fail(err)
		}
		roots[st.Other], trusted = other, append(trusted, other.certificate)
	}
	signer := newSigner(signing.certificate, signing.key, nil, trusted,
		fmt.Sprintf("correct the clock if it is wrong; else scale the control plane to none, which would put them back, delete %s and %s, scale it up again and restart every proxy, which makes a new root", name, s.KnownAt))
	if err := signer.probe(s.Now()); err != nil {
		return fail(err)
	}
	return st, roots, signer, nil
}

func (s *Shared) install(sealed Sealed, st state, roots map[int]*Root, signer *Signer, read time.Time) {
	s.mu.Lock()
	changed := !signer.same(s.current)
	s.sealed, s.state, s.roots, s.confirmed, s.gone, s.trouble = sealed, st, roots, read, time.Time{}, ""
	s.next.held, s.next.waits = "", nil
	if changed {
		s.current = signer
	}
	s.mu.Unlock()
	if changed {
		s.Publish(signer)
		s.Logger.Info("ca: root in force", "vault", s.vault.Name(), "stage", string(st.Stage), "signing", signer.certificate.Subject.String(), "trusted", len(signer.roots))
	}
}

// Signer implements Authority. A replica that has not read the vault for long may be in a stage that has ended elsewhere: what it signs
// lives no longer than that stage lasts in any case, or, when that is over, an hour.
func (s *Shared) Signer() *Signer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	end := s.confirmed.Add(s.state.Lifetime + lagOf(s.state.Lifetime))
	if short := now.Add(cutOffLife); end.Before(short) {
		end = short
	}
	if longest := now.Add(s.state.Lifetime); longest.Before(end) {
		end = longest
	}
	return s.current.until(end)
}

// Issued implements Authority. No replica knows what the others issue, so nothing is made of it.
func (s *Shared) Issued(Holder, time.Duration, *Signer) {}

// Run reads the vault now and then and whenever changed says so, and moves the stages if this replica leads, until ctx ends.
func (s *Shared) Run(ctx context.Context, changed <-chan struct{}) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	read := s.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			s.Look(ctx)
			read = s.Now()
		case <-every.C:
			if now := s.Now(); now.Sub(read) >= confirmEvery || s.missing() && now.Sub(read) >= 5*time.Second {
				s.Look(ctx)
				read = s.Now()
			}
			if s.Leads() {
				s.step(ctx)
			}
			s.ends.Look(s.Signer(), s.Now(), s.Logger)
		}
	}
}

func (s *Shared) missing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble != ""
}

// Look reads the vault and takes over what it holds.
func (s *Shared) Look(ctx context.Context) {
	s.looking.Lock()
	defer s.looking.Unlock()
	read := s.Now()
	sealed, err := s.vault.Read(ctx)
	switch {
	case errors.Is(err, ErrNoVault):
		s.vanished(ctx, read)
		return
	case err != nil:
		return // away; who watches it says so
	}
	s.mu.Lock()
	before := s.sealed
	if sealed.Version == before.Version && s.gone.IsZero() {
		s.confirmed, s.sealed.Requested = read, sealed.Requested
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	st, roots, signer, err := s.parse(sealed)
	if err == nil && !s.continues(ctx, signer) {
		err = fmt.Errorf("%s holds another root (%s) than the mesh trusts; restore the former, or ask for a rotation to have a new one", s.vault.Name(), signer.certificate.Subject)
	}
	if err != nil {
		s.troubled(err)
		return
	}
	s.install(sealed, st, roots, signer, read)
}

// continues says whether a signer may follow the present one: proxies trust its root already, or whoever trusts it trusts the present one,
// or the mesh was told so while this replica was cut off.
func (s *Shared) continues(ctx context.Context, next *Signer) bool {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if Continues(current.Bundle(), next) || Continues(next.Bundle(), current) {
		return true
	}
	known, err := s.Known(ctx)
	return err == nil && len(known) > 0 && Continues(known, next)
}

func (s *Shared) troubled(err error) {
	s.mu.Lock()
	told := s.trouble == err.Error()
	s.trouble = err.Error()
	s.mu.Unlock()
	if !told {
		s.Logger.Error("ca: the CA's keys; what was there before stays in force", "error", err)
	}
}

// vanished is what becomes of a vault that is gone: everybody goes on with what they remember, and after a while the leader puts it back.
func (s *Shared) vanished(ctx context.Context, now time.Time) {
	s.mu.Lock()
	if s.gone.IsZero() {
		s.gone = now
	}
	data, due := maps.Clone(s.sealed.Data), now.Sub(s.gone) >= restoreAfter
	s.mu.Unlock()
	s.troubled(fmt.Errorf("%s is gone; the control planes sign with what they remember, and the leader puts it back after %s: without it none can start", s.vault.Name(), restoreAfter))
	if !due || !s.Leads() {
		return
	}
	version, err := s.vault.Write(ctx, data, "")
	if err != nil {
		return // the next look tells
	}
	s.mu.Lock()
	s.sealed.Version, s.sealed.Requested, s.gone, s.trouble, s.confirmed = version, false, time.Time{}, "", now
	s.mu.Unlock()
	s.Logger.Warn("ca: the CA's keys were gone and have been put back from memory", "vault", s.vault.Name())
}

// Status is how it stands, for people.
func (s *Shared) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := StatusOf(s.current, s.Now())
	out.Source, out.Stage, out.Since, out.Leads = s.vault.Name(), s.state.Stage, s.state.Since, s.Leads()
	out.AddTrouble(s.trouble)
	if s.state.Stage != Steady {
		out.Latest = s.state.Since.Add(s.leastStage(s.state))
	}
	if out.Leads {
		out.Held, out.Unpublished = s.next.held, s.next.waits
	}
	return out
}

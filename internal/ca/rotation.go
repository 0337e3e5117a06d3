package ca

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"lateen.dev/lateen/internal/statefile"
)

// Stage is how far a change of roots is. docs/design/root-rotation.md says why there are these three.
type Stage string

// The stages, in order; after Dropping comes Steady again.
const (
	// Steady: one root signs and is trusted.
	Steady Stage = "steady"
	// Publishing: the next root is trusted as well, and does not sign yet.
	Publishing Stage = "publishing"
	// Dropping: the next root signs, and the old one is still trusted.
	Dropping Stage = "dropping"
)

const (
	stateFile = "rotation.json"
	// requestFile asks for a rotation. Whoever can write it could as well take the key.
	requestFile = "rotate-root"
	// rotateAfter is the part of its life after which a root is replaced.
	rotateAfter = 0.8
)

// state is what survives a restart. Roots have numbers; number 1 is the first.
type state struct {
	Stage   Stage `json:"stage"`
	Signing int   `json:"signing"`
	// Other is the root that is trusted beside the signing one: the next while publishing, the old one while dropping.
	Other int       `json:"other,omitempty"`
	Since time.Time `json:"since"`
	// Lifetime is the longest that an issued certificate lives.
	Lifetime time.Duration `json:"lifetime"`
}

// view is what the next stage depends on beside the state.
type view struct {
	now time.Time
	// knowsSince is from when on every certificate that was issued is known one by one.
	knowsSince time.Time
	// behind is how many of those that are known were issued before the stage began and are still in use.
	behind int
	// leastStage is how long a stage takes at least, for those who read the roots from a file that somebody carries to them.
	leastStage time.Duration
	// requested says that somebody asked for a rotation.
	requested          bool
	rootFrom, rootTill time.Time
}

// next is the stage that follows, or the same. A stage ends when no certificate from before it is in use any more: proxies
// renew at half of a certificate's life and get the roots of the stage with the new one. A certificate that nobody remembers
// issuing, because the program was restarted since, is in use until it expires.
func (s state) next(v view) state {
	if s.Stage == Steady {
		life := v.rootTill.Sub(v.rootFrom)
		if v.requested || v.now.After(v.rootFrom.Add(time.Duration(float64(life)*rotateAfter))) {
			return state{Stage: Publishing, Signing: s.Signing, Other: s.Signing + 1, Since: v.now, Lifetime: s.Lifetime}
		}
		return s
	}
	known := v.behind == 0 && !v.now.Before(v.knowsSince.Add(s.Lifetime))
	if v.now.Before(s.Since.Add(v.leastStage)) || !known && v.now.Before(s.latest()) {
		return s
	}
	if s.Stage == Publishing {
		return state{Stage: Dropping, Signing: s.Other, Other: s.Signing, Since: v.now, Lifetime: s.Lifetime}
	}
	return state{Stage: Steady, Signing: s.Signing, Since: v.now, Lifetime: s.Lifetime}
}

// name tells a stage from all others: numbers only grow.
func (s state) name() string { return fmt.Sprintf("%d %s", s.Signing, s.Stage) }

// latest is when every certificate from before the stage has expired.
func (s state) latest() time.Time { return s.Since.Add(s.Lifetime + clockLeeway) }

// Rotating signs with a root of its own, and replaces it in stages before it expires or when asked to. The stage is on disk:
// a restart goes on where it was.
type Rotating struct {
	// LeastStage is how long a stage takes at least; set it before Run.
	LeastStage time.Duration
	// InUse says whether a holder still has a use for its certificate; set it before Run, or every holder has.
	InUse func(Holder) bool

	dir, trustDomain string
	now              func() time.Time
	logger           *slog.Logger
	publish          func(*Signer)

	mu      sync.Mutex
	state   state
	roots   map[int]*Root
	current *Signer
	ledger  *ledger
	trouble string
	// unkept says that the ledger's file could not be written.
	unkept bool
	ends   Watch
}

// LoadRotating opens the CA in dir, with a new root if there is none. lifetime is the longest that certificates live unless what
// is on disk knows better. publish is called with each signer that comes into force, the first one included.
func LoadRotating(dir, trustDomain string, lifetime time.Duration, now func() time.Time, logger *slog.Logger, publish func(*Signer)) (*Rotating, error) {
	r := &Rotating{dir: dir, trustDomain: trustDomain, now: now, logger: logger, publish: publish, roots: map[int]*Root{}}
	if err := prepare(dir); err != nil {
		return nil, err
	}
	started := now()
	r.ledger = openLedger(dir, started)
	had := false
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if later, err := filepath.Glob(filepath.Join(dir, "root-*-key.pem")); err != nil || len(later) > 0 {
			return nil, fmt.Errorf("%s holds roots of a rotation and no %s; restore it, for a new root would cut off every proxy", dir, stateFile)
		}
		r.state = state{Stage: Steady, Signing: 1, Since: started, Lifetime: lifetime}
	default:
		had = true
		if err == nil {
			r.state, err = parseState(data)
		}
		if err == nil {
			break
		}
		if r.state, err = r.withoutState(err, state{Stage: Steady, Signing: 1, Since: started, Lifetime: lifetime}); err != nil {
			return nil, err
		}
	}
	// Whoever has a state, or has issued anything, has had a root.
	if cert, _ := r.files(1); (had || len(r.ledger.holders) > 0) && r.state.Signing == 1 {
		if _, err := os.Lstat(cert); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s holds what a CA remembers (%s, %s), and no %s; restore the root's files, for a new root would cut off every proxy: to make one nevertheless, remove %s, %s and %s and restart every proxy",
				dir, stateFile, ledgerFile, cert, stateFile, ledgerFile, rootKeyFile)
		}
	}
	if r.state.Signing == 1 && r.state.Stage == Steady {
		// The only case in which a root may be made: there is none yet.
		root, err := LoadRoot(dir, trustDomain, started)
		if err != nil {
			return nil, err
		}
		if r.roots[1] = root; root.fresh {
			// Nothing was ever issued below it.
			r.ledger = &ledger{path: r.ledger.path, boot: r.ledger.boot, holders: map[Holder]issued{}}
		}
	}
	if err := r.install(r.state); err != nil {
		return nil, err
	}
	if !had {
		// From now on a root that is gone has been lost, and was not missing.
		if err := r.save(r.state); err != nil {
			logger.Warn("ca: the state was not kept on disk; without it a root that is lost may be taken for one that never was", "error", err)
		}
	}
	r.kept(r.ledger.write())
	return r, r.clean()
}

// withoutState is the state to go on with when what is on disk cannot be used: the root there is, if there is but the first one. Of several
// nobody knows which one signs, and nothing is signed until somebody says so.
func (r *Rotating) withoutState(damage error, s state) (state, error) {
	path := filepath.Join(r.dir, stateFile)
	if later, err := filepath.Glob(filepath.Join(r.dir, "root-*-key.pem")); err != nil || len(later) > 0 {
		return s, fmt.Errorf("%s: %w; restore it, for it says which of the roots beside it signs", path, damage)
	}
	aside, err := statefile.SetAside(path, s.Since)
	if err != nil {
		return s, fmt.Errorf("%s: %w; %w; restore it", path, damage, err)
	}
	for _, one := range r.ledger.holders {
		s.Lifetime = max(s.Lifetime, one.Until.Sub(s.Since))
	}
	r.trouble = fmt.Sprintf("%s could not be used: %v; it is now %s, and the only root that there is goes on signing", path, damage, aside)
	r.logger.Error("ca: damaged state", "error", r.trouble)
	return s, r.save(s)
}

func parseState(data []byte) (state, error) {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return s, err
	}
	known := s.Stage == Steady && s.Other == 0 || (s.Stage == Publishing || s.Stage == Dropping) && s.Other >= 1 && s.Other != s.Signing
	if !known || s.Signing < 1 || s.Lifetime < 0 {
		return s, errors.New("it is not a state that this program writes")
	}
	return s, nil
}

// Signer implements Authority.
func (r *Rotating) Signer() *Signer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Issued implements Authority.
func (r *Rotating) Issued(holder Holder, life time.Duration, by *Signer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stage := ""
	if by == r.current {
		stage = r.state.name()
	}
	r.kept(r.ledger.add(holder, stage, r.now(), life))
	if r.state.Lifetime >= life {
		return
	}
	// Longer than any before, for the limit was raised: on disk, so that a restart does not wait too short.
	r.state.Lifetime = life
	if err := r.save(r.state); err != nil {
		r.logger.Warn("ca: the state of root rotation was not kept", "error", err)
	}
}

// kept tells, once, that the ledger could not be written. That stops nothing.
func (r *Rotating) kept(err error) {
	if err != nil && !r.unkept {
		r.logger.Warn("ca: what was issued was not kept on disk; a restart now would prolong a rotation of the root", "error", err)
	}
	r.unkept = err != nil
}

// Run moves from stage to stage until ctx ends.
func (r *Rotating) Run(ctx context.Context) { every(ctx, time.Second, r.step) }

// RequestRotation asks the program that keeps its CA in dir to replace the root.
func RequestRotation(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		if _, err := os.Stat(filepath.Join(dir, rootCertFile)); err != nil {
			return fmt.Errorf("%s holds no CA; name the directory that lateen-control got as --data-dir", dir)
		}
	} else if s, err := parseState(data); err == nil && s.Stage != Steady {
		return fmt.Errorf("the root is being rotated already, since %s, stage %s; wait for its end", s.Since.UTC().Format(time.RFC3339), s.Stage)
	}
	return WriteFile(filepath.Join(dir, requestFile), nil, 0o600)
}

func (r *Rotating) step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	defer func() { r.ends.Look(r.current, now, r.logger) }()
	request := filepath.Join(r.dir, requestFile)
	_, err := os.Lstat(request)
	root := r.roots[r.state.Signing].certificate
	to := r.state.next(view{now: now, knowsSince: r.ledger.since, behind: len(r.behind(now)), leastStage: r.LeastStage, requested: err == nil,
		rootFrom: root.NotBefore, rootTill: root.NotAfter})
	if to == r.state {
		return
	}
	if err := r.move(to, now); err != nil {
		if r.trouble == "" {
			r.logger.Warn("ca: root rotation cannot go on; what was there before stays in force", "error", err)
		}
		r.trouble = err.Error()
		return
	}
	r.trouble = ""
	if to.Stage == Publishing {
		// Asked for or not: one rotation answers all requests so far.
		_ = os.Remove(request)
	}
	r.logger.Info("ca: root rotation", "stage", string(to.Stage), "signing", to.Signing, "trusted", len(r.current.roots))
}

// move enters a stage: new keys first, then the state that names them, then what nobody needs any more goes.
func (r *Rotating) move(to state, now time.Time) error {
	if to.Stage == Publishing {
		cert, key := r.files(to.Other)
		// A key that an interrupted attempt left was never published: nobody trusts it.
		if err := createRoot(cert, key, r.trustDomain, fmt.Sprintf("%s %d", rootName, to.Other), now); err != nil {
			return err
		}
	}
	if err := r.save(to); err != nil {
		return err
	}
	if err := r.install(to); err != nil {
		return err
	}
	return r.clean()
}

// clean removes roots that are used no more: a key that nobody needs can still be stolen.
func (r *Rotating) clean() error {
	for n := 1; n < r.state.Signing; n++ {
		if n == r.state.Other {
			continue
		}
		cert, key := r.files(n)
		for _, path := range []string{key, cert} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a root that is used no more: %w", err)
			}
		}
	}
	return nil
}

func (r *Rotating) save(s state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the CA's state: %w", err)
	}
	return WriteFile(filepath.Join(r.dir, stateFile), append(data, '\n'), 0o600)
}

// install puts a state in force.
func (r *Rotating) install(s state) error {
	numbers := []int{s.Signing}
	if s.Other != 0 {
		numbers = append(numbers, s.Other)
	}
	roots := map[int]*Root{}
	var trusted []*x509.Certificate
	for _, n := range numbers {
		root, ok := r.roots[n]
		if !ok {
			cert, key := r.files(n)
			if err := private(key, 0o600); err != nil {
				return err
			}
			var err error
			if root, err = readRoot(cert, key, r.now()); err != nil {
				return err
			}
		}
		roots[n], trusted = root, append(trusted, root.certificate)
	}
	signing := roots[s.Signing]
	r.roots, r.state = roots, s
	r.current = newSigner(signing.certificate, signing.key, nil, trusted,
		fmt.Sprintf("correct the clock if it is wrong; else stop the control plane, remove root-*.pem, %s and %s in %s, and start it and every proxy again, which makes a new root", stateFile, ledgerFile, r.dir))
	r.publish(r.current)
	return nil
}

func (r *Rotating) files(number int) (cert, key string) {
	if number == 1 {
		return filepath.Join(r.dir, rootCertFile), filepath.Join(r.dir, rootKeyFile)
	}
	return filepath.Join(r.dir, fmt.Sprintf("root-%d-cert.pem", number)), filepath.Join(r.dir, fmt.Sprintf("root-%d-key.pem", number))
}

// behind lists the holders that may still use a certificate from before the present stage.
func (r *Rotating) behind(now time.Time) []Holder {
	return r.ledger.behind(r.state.name(), now, r.InUse)
}

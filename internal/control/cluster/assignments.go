package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/kube"
)

const (
	// AssignmentsConfigMap keeps the virtual addresses that all replicas must publish alike, under addressesKey.
	AssignmentsConfigMap = "lateen-assignments"
	addressesKey         = "addresses"
	// waitingKey has the objects whose connections do not go through their waypoints yet; see compile.Assignments.Waiting. firstWaitingKey has the ways of the
	// same objects for the first version, which would misread the lines of this one. That takes a line off there once the object may go.
	waitingKey, firstWaitingKey = "waiting.v2", "waiting"
	// MaxAddresses bounds what is kept of addresses in bytes; the API server takes 1 MiB, of which twice compile.MaxWaiting is for the others. A service
	// takes about 70.
	MaxAddresses = 800 << 10
	// tries is how often a write that somebody else was quicker than is tried again.
	tries = 20
	// pruneEvery is how often the leader looks for addresses that nothing needs, and unneededFor how long they stay: replicas that lag
	// still publish them.
	pruneEvery, unneededFor = time.Minute, 10 * time.Minute
	// keepPause is the least time between two writes, so that what is wanted gathers; keepTimeout bounds one.
	keepPause, keepTimeout = 100 * time.Millisecond, 10 * time.Second
)

// Compiler is what the addresses are chosen for.
type Compiler interface {
	Adopt(kept map[string][]netip.Addr)
	AdoptWaiting(kept map[string]string)
	Lost()
	Wants() <-chan struct{}
	Keep(ctx context.Context) error
	Unneeded() []string
	Arrived() []string
}

// Assignments keeps virtual addresses in a ConfigMap, which every replica may write if it has read it.
type Assignments struct {
	client    kubernetes.Interface
	namespace string
	now       func() time.Time
	logger    *slog.Logger
	compiler  atomic.Pointer[Compiler]
	// unread is why what is kept could not be read since the start; nil once it was.
	unread atomic.Pointer[error]
	// turn is held while anything is written here, and while the compiler takes over what others wrote: it is not to take over what is older than
	// what it has.
	turn sync.Mutex
	// seen is the newest version that was read or written here: what a watch tells of an older one is over, unless the store was restored.
	seen atomic.Uint64
	// unneeded and arrived are since when nothing needs the addresses of services, and the notes of objects.
	unneeded, arrived map[string]time.Time
	// timeout bounds what is asked of the API server with the turn held, which keeps all others from theirs.
	timeout time.Duration
}

var _ compile.AssignmentStore = (*Assignments)(nil)

// NewAssignments keeps nothing yet.
func NewAssignments(client kubernetes.Interface, namespace string, now func() time.Time, logger *slog.Logger) *Assignments {
	a := &Assignments{client: client, namespace: namespace, now: now, logger: logger, unneeded: map[string]time.Time{}, arrived: map[string]time.Time{}, timeout: keepTimeout}
	a.unread.Store(&errUnread)
	return a
}

var errUnread = errors.New("not yet")

// For names the compiler that hears of what others keep; call it before Run.
func (a *Assignments) For(c Compiler) { a.compiler.Store(&c) }

// Load has the compiler take over what is kept, before it compiles anything: clients know services by these addresses, and proxies that are
// told of services without them forget them. It returns when it was read, or with an error when ctx ends.
func (a *Assignments) Load(ctx context.Context) error {
	if *a.unread.Load() == nil {
		return nil
	}
	err := retry(ctx, a.logger, "reading virtual addresses", func() error {
		trying, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		a.turn.Lock()
		defer a.turn.Unlock()
		var kept map[string][]netip.Addr
		var waiting map[string]string
		err := a.Update(trying, func(present map[string][]netip.Addr) bool { kept = present; return false })
		if err == nil {
			err = a.UpdateWaiting(trying, func(present map[string]string) bool { waiting = present; return false })
		}
		if err == nil {
			(*a.compiler.Load()).Adopt(kept)
			(*a.compiler.Load()).AdoptWaiting(waiting)
		}
		a.unread.Store(&err)
		return err
	})
	return err
}

// Ready says why what is kept could not be read yet, and nil once it was.
func (a *Assignments) Ready() error {
	if err := *a.unread.Load(); err != nil {
		return fmt.Errorf("virtual addresses that were chosen before are not read: %w", err)
	}
	return nil
}

// Update implements compile.AssignmentStore.
func (a *Assignments) Update(ctx context.Context, change func(map[string][]netip.Addr) bool) error {
	return a.update(ctx, func(have *corev1.ConfigMap) (changed bool, err error) {
		kept, err := addressesOf(have)
		if err != nil {
			return false, a.damaged(err)
		}
		if !change(kept) {
			return false, nil
		}
		data, err := json.Marshal(kept)
		if err != nil {
			return false, fmt.Errorf("encode virtual addresses: %w", err)
		}
		if len(data) > MaxAddresses {
			return false, fmt.Errorf("ConfigMap %s/%s is full: %d services need virtual addresses; give ServiceEntries addresses of their own", a.namespace, AssignmentsConfigMap, len(kept))
		}
		have.Data[addressesKey] = string(data)
		return true, nil
	})
}

// UpdateWaiting implements compile.AssignmentStore. What cannot be read counts as nothing, which refuses connections rather than letting them past a waypoint.
func (a *Assignments) UpdateWaiting(ctx context.Context, change func(map[string]string) bool) error {
	return a.update(ctx, func(have *corev1.ConfigMap) (changed bool, err error) {
		kept := waitingOf(have)
		if !change(kept) {
			return false, nil
		}
		if err := keepWaiting(have, kept); err != nil {
			return false, fmt.Errorf("encode the objects that are not behind their waypoints: %w", err)
		}
		return true, nil
	})
}

// update writes the ConfigMap if edit changes its data.
func (a *Assignments) update(ctx context.Context, edit func(have *corev1.ConfigMap) (changed bool, err error)) error {
	ctx = kube.Quiet(ctx)
	maps := a.client.CoreV1().ConfigMaps(a.namespace)
	for range tries {
		have, err := maps.Get(ctx, AssignmentsConfigMap, metav1.GetOptions{})
		fresh := apierrors.IsNotFound(err)
		if err != nil && !fresh {
			return a.explain(err, "get")
		}
		if fresh {
			have = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: AssignmentsConfigMap, Namespace: a.namespace, Labels: labels()}}
		}
		if have.Data == nil {
			have.Data = map[string]string{}
		}
		changed, err := edit(have)
		if err != nil {
			return err
		}
		if !changed {
			a.see(have)
			return nil
		}
		if fresh {
			have, err = maps.Create(ctx, have, metav1.CreateOptions{FieldManager: fieldManager})
		} else {
			have, err = maps.Update(ctx, have, metav1.UpdateOptions{FieldManager: fieldManager})
		}
		switch {
		case err == nil:
			a.see(have)
			return nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			continue // somebody was quicker
		}
		return a.explain(err, "create", "update")
	}
	return fmt.Errorf("ConfigMap %s/%s changes faster than it can be written", a.namespace, AssignmentsConfigMap)
}

// waitingOf reads the objects that are not behind their waypoints. Earlier versions know firstWaitingKey alone: what is there another way than this version
// left it was written later. A line that waits and is gone there was taken off since its object may go.
func waitingOf(c *corev1.ConfigMap) map[string]string {
	kept, first := linesOf(c, waitingKey), linesOf(c, firstWaitingKey)
	for name, line := range kept {
		if _, waits := first[name]; !waits && !compile.Settled(line) {
			kept[name] = compile.LetGo(line)
		}
	}
	for name, line := range first {
		if own, is := kept[name]; is {
			line = compile.Newest(own, line)
		}
		kept[name] = line
	}
	return kept
}

func linesOf(c *corev1.ConfigMap, key string) map[string]string {
	lines := map[string]string{}
	if text := c.Data[key]; text == "" || json.Unmarshal([]byte(text), &lines) != nil || lines == nil {
		return map[string]string{}
	}
	return lines
}

// keepWaiting writes the lines of objects. Earlier versions have the ways of those that wait, and lose what may go. What they wrote stays theirs as long as
// nothing more is known.
func keepWaiting(c *corev1.ConfigMap, kept map[string]string) error {
	first, own := linesOf(c, firstWaitingKey), linesOf(c, waitingKey)
	now := map[string]string{}
	for name, line := range kept {
		before, is := first[name]
		if is && before == line {
			continue
		}
		now[name] = line
		switch {
		case !compile.Settled(line):
			first[name] = compile.Way(line)
		case own[name] != line || compile.Way(before) != compile.Way(line):
			delete(first, name)
		default: // it went there, and waits for the waypoint of a later label
		}
	}
	maps.DeleteFunc(first, func(name, _ string) bool { _, waits := kept[name]; return !waits })
	for key, lines := range map[string]map[string]string{waitingKey: now, firstWaitingKey: first} {
		if key == firstWaitingKey && len(lines) == 0 {
			delete(c.Data, key)
			continue
		}
		data, err := json.Marshal(lines)
		if err != nil {
			return err
		}
		c.Data[key] = string(data)
	}
	return nil
}

func (a *Assignments) see(c *corev1.ConfigMap) {
	for v := version(c); ; {
		seen := a.seen.Load()
		if v <= seen || a.seen.CompareAndSwap(seen, v) {
			return
		}
	}
}

// version is an object's as a number, which the API server's are; 0 of one that is not.
func version(c *corev1.ConfigMap) uint64 {
	v, err := strconv.ParseUint(c.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func (a *Assignments) damaged(err error) error {
	return fmt.Errorf("ConfigMap %s/%s cannot be used: %w; restore it, or delete it to have addresses chosen anew", a.namespace, AssignmentsConfigMap, err)
}

func (a *Assignments) explain(err error, verbs ...string) error {
	if why := kube.Refusal(err, "", "configmaps", verbs...); why != "" {
		return fmt.Errorf("ConfigMap %s/%s: %s", a.namespace, AssignmentsConfigMap, why)
	}
	return fmt.Errorf("ConfigMap %s/%s: %w", a.namespace, AssignmentsConfigMap, err)
}

func addressesOf(c *corev1.ConfigMap) (map[string][]netip.Addr, error) {
	kept := map[string][]netip.Addr{}
	text := c.Data[addressesKey]
	if text == "" {
		return kept, nil
	}
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		return nil, err
	}
	return kept, compile.CheckAddresses(kept)
}

// Run tells the compiler what others keep, and has it keep what it wants, until ctx ends.
func (a *Assignments) Run(ctx context.Context) {
	compiler := *a.compiler.Load()
	told := ""
	follow(ctx, source(a.client, a.client.CoreV1().ConfigMaps(a.namespace), AssignmentsConfigMap), &corev1.ConfigMap{}, func(*corev1.ConfigMap) {}, func(c *corev1.ConfigMap, gone bool) {
		a.turn.Lock()
		defer a.turn.Unlock()
		if c.Name != AssignmentsConfigMap {
			return
		}
		if !gone && version(c) < a.seen.Load() {
			if c = a.wentBack(ctx); c == nil {
				return
			}
		}
		switch {
		case gone:
			// Every replica keeps again what its services have.
			a.logger.Warn("cluster: the virtual addresses that were kept are gone; they are kept again", "configMap", a.namespace+"/"+AssignmentsConfigMap)
			compiler.Lost()
		default:
			compiler.AdoptWaiting(waitingOf(c))
			kept, err := addressesOf(c)
			if err == nil {
				told = ""
				compiler.Adopt(kept)
			} else if told != err.Error() {
				told = err.Error()
				a.logger.Error("cluster: virtual addresses; those from before stay in force", "error", a.damaged(err))
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-compiler.Wants():
		}
		err := retry(ctx, a.logger, "keeping virtual addresses, which new ServiceEntries wait for,", func() error {
			trying, cancel := context.WithTimeout(ctx, a.timeout)
			defer cancel()
			a.turn.Lock()
			defer a.turn.Unlock()
			return compiler.Keep(trying)
		})
		if err != nil || !kube.Sleep(ctx, keepPause) {
			return
		}
	}
}

// wentBack reads what is kept, after a watch has told of an older version than the newest that was seen: most often it is late. If the API
// server itself has an older one, then because its store was restored, and its versions count anew. Else nil.
func (a *Assignments) wentBack(ctx context.Context) (now *corev1.ConfigMap) {
	err := retry(ctx, a.logger, "reading virtual addresses", func() error {
		trying, cancel := context.WithTimeout(kube.Quiet(ctx), a.timeout)
		defer cancel()
		have, err := a.client.CoreV1().ConfigMaps(a.namespace).Get(trying, AssignmentsConfigMap, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil // a watch tells that it is gone
		case err != nil:
			return a.explain(err, "get")
		case version(have) < a.seen.Load():
			now = have
		}
		return nil
	})
	if err != nil || now == nil {
		return nil
	}
	a.logger.Warn("cluster: the API server has an older version of the virtual addresses than it had, as after a restore; these count now", "configMap", a.namespace+"/"+AssignmentsConfigMap)
	a.seen.Store(version(now))
	return now
}

// Prune takes off what nothing has needed for long, until ctx ends. It is the leader's to do.
func (a *Assignments) Prune(ctx context.Context) {
	clear(a.unneeded)
	clear(a.arrived)
	for kube.Sleep(ctx, jittered(pruneEvery)) {
		if err := a.prune(kube.Quiet(ctx)); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			a.logger.Warn("cluster: virtual addresses that nothing needs are still kept; it is tried again", "error", err)
		}
	}
}

func (a *Assignments) prune(ctx context.Context) error {
	compiler := *a.compiler.Load()
	services, objects := a.due(&a.unneeded, compiler.Unneeded()), a.due(&a.arrived, compiler.Arrived())
	if len(services)+len(objects) == 0 {
		return nil
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	trying, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var addresses, waiting error
	if len(services) > 0 {
		addresses = a.Update(trying, func(kept map[string][]netip.Addr) bool { return takeOff(kept, services) })
	}
	if len(objects) > 0 {
		waiting = a.UpdateWaiting(trying, func(kept map[string]string) bool { return takeOff(kept, objects) })
	}
	return errors.Join(addresses, waiting)
}

// due are those of the names that have been unneeded for long. since is when each was first.
func (a *Assignments) due(since *map[string]time.Time, unneeded []string) map[string]bool {
	now, first, due := a.now(), map[string]time.Time{}, map[string]bool{}
	for _, name := range unneeded {
		at, known := (*since)[name]
		if !known {
			at = now
		}
		first[name] = at
		if now.Sub(at) >= unneededFor {
			due[name] = true
		}
	}
	*since = first
	return due
}

// takeOff removes names and says whether any was there.
func takeOff[T any](kept map[string]T, names map[string]bool) bool {
	before := len(kept)
	maps.DeleteFunc(kept, func(name string, _ T) bool { return names[name] })
	return len(kept) != before
}

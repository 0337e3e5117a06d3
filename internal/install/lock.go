package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// lockName is the Lease, in the installation's namespace, that a command holds for as long as it changes the installation. A plan is made before
// and force-applied after, so two at once would each take the other's changes back and say that they had succeeded. Of two first installations
// into different namespaces claim lets one through.
const lockName = "lateen-install"

// lock is a command's hold of the installation.
type lock struct {
	cluster   *Cluster
	namespace string
	// holder names the command to whoever comes second.
	holder string
	// every is how often the Lease is renewed, expires how long one that nobody renews counts for. Nobody's clock is compared with
	// another's: whoever comes second watches.
	every, expires time.Duration
	// ending says that the namespace is being removed, and the Lease with it.
	ending atomic.Bool

	mine *coordinationv1.Lease
	stop func()
}

func (c *Cluster) lock(namespace, verb string) *lock {
	return &lock{cluster: c, namespace: namespace, holder: holder(verb), every: 5 * time.Second, expires: 45 * time.Second}
}

// holder says which command it is, and whose.
func holder(verb string) string {
	who, where := "somebody", "an unknown machine"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		where = host
	}
	return fmt.Sprintf("lateen %s of %s on %s (process %d, since %s)", verb, who, where, os.Getpid(), time.Now().UTC().Format(time.DateTime+" UTC"))
}

// taken refuses to change what another command is changing.
func (l *lock) taken(by string) error {
	return &api.Error{Code: 409, Message: "another command is changing the installation: " + by, Fix: fmt.Sprintf("wait until it has ended, and repeat the command; it holds Lease %s/%s, which counts for %s after the last sign of life", l.namespace, lockName, l.expires)}
}

// meanwhile refuses to carry out a plan that was made from a state that is no more.
func meanwhile(namespace string) error {
	return &api.Error{Code: 409, Message: fmt.Sprintf("another command has changed the installation in namespace %s meanwhile", namespace), Fix: "repeat the command: it then begins with what there is now (--dry-run shows it)"}
}

// hold takes the Lease, or says who has it. The context that it returns ends when the Lease is lost. tell hears of whom it waits for: whoever
// gives no sign of life is no more.
func (l *lock) hold(ctx context.Context, tell func(holder string)) (context.Context, error) {
	leases := l.cluster.Client.CoordinationV1().Leases(l.namespace)
	seen, since := "", time.Now()
	for {
		var err error
		if l.mine, err = leases.Create(ctx, l.lease(), metav1.CreateOptions{FieldManager: fieldManager}); err == nil {
			break
		} else if !apierrors.IsAlreadyExists(err) {
			return ctx, l.cluster.explain(err)
		}
		live, err := leases.Get(ctx, lockName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return ctx, l.cluster.explain(err)
		}
		by := deref(live.Spec.HolderIdentity)
		switch state := sign(live); {
		case seen == "":
			seen, since = state, time.Now()
			tell(by)
		case state != seen:
			return ctx, l.taken(by)
		case time.Since(since) > l.expires:
			next := l.lease()
			next.ResourceVersion = live.ResourceVersion
			l.mine, err = leases.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				seen = ""
				continue
			} else if err != nil {
				return ctx, l.cluster.explain(err)
			}
		}
		if l.mine != nil && deref(l.mine.Spec.HolderIdentity) == l.holder {
			break
		}
		select {
		case <-ctx.Done():
			return ctx, l.taken(by)
		case <-time.After(min(time.Second, l.every/2)):
		}
	}
	ctx, lost := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { l.renew(context.WithoutCancel(ctx), ended, lost) })
	l.stop = sync.OnceFunc(func() { close(ended); done.Wait(); lost(nil) })
	return ctx, nil
}

func (l *lock) lease() *coordinationv1.Lease {
	now, seconds := metav1.NowMicro(), int32(max(l.expires/time.Second, 1))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: lockName, Labels: map[string]string{managedBy: lateen, partOf: lateen}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &l.holder, AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: &seconds}}
}

// sign changes whenever a holder gives a sign of life.
func sign(l *coordinationv1.Lease) string {
	return fmt.Sprint(l.UID, l.ResourceVersion, deref(l.Spec.HolderIdentity), l.Spec.RenewTime)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// renew gives signs of life until the command ends or somebody else has the Lease.
func (l *lock) renew(ctx context.Context, ended <-chan struct{}, lost context.CancelCauseFunc) {
	leases := l.cluster.Client.CoordinationV1().Leases(l.namespace)
	last := time.Now()
	for {
		select {
		case <-ended:
			return
		case <-time.After(l.every):
		}
		now := metav1.NowMicro()
		next := l.mine.DeepCopy()
		next.Spec.RenewTime = &now
		asking, cancel := context.WithTimeout(ctx, l.expires/2)
		renewed, err := leases.Update(asking, next, metav1.UpdateOptions{FieldManager: fieldManager})
		cancel()
		switch {
		case err == nil:
			l.mine, last = renewed, time.Now()
		case l.ending.Load():
			return
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			lost(&api.Error{Code: 409, Message: fmt.Sprintf("Lease %s/%s, by which one command at a time changes the installation, was taken or removed by somebody else", l.namespace, lockName),
				Fix: "see that no other command is at work, and repeat this one, which goes on where it ended"})
			return
		case time.Since(last) > l.expires:
			lost(&api.Error{Code: 503, Message: fmt.Sprintf("Lease %s/%s could not be renewed for %s, and another command may change the installation now: %v", l.namespace, lockName, l.expires, err),
				Fix: "repeat the command when the API server answers; it goes on where it ended"})
			return
		}
	}
}

func (l *lock) held() bool { return l.stop != nil }

// release gives the Lease back, also where the command was interrupted.
func (l *lock) release(ctx context.Context) {
	if !l.held() {
		return
	}
	l.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// What cannot be given back expires.
	_ = l.cluster.Client.CoordinationV1().Leases(l.namespace).Delete(ctx, lockName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.mine.UID, ResourceVersion: &l.mine.ResourceVersion}})
}

// alone does a command's work within its time and while no other command changes the installation, which must still be as it was when the plan was made.
// Where there is no namespace for a Lease there is nothing left to change.
func (c *Cluster) alone(ctx context.Context, o *Options, verb string, planned *Record, work func(context.Context, *lock) error) error {
	return within(ctx, o, func(ctx context.Context) error {
		l := c.lock(o.Namespace, verb)
		stays, err := c.namespaces().stays(ctx, o.Namespace)
		if err != nil {
			return err
		}
		if stays == namespaceStays {
			ctx, err = l.hold(ctx, func(by string) {
				o.goesOn("lock", "another command holds Lease %s/%s; looking for a second whether it is still at work: %s", o.Namespace, lockName, by)
			})
			if err != nil {
				return err
			}
			defer l.release(ctx)
		}
		now, err := c.Find(ctx)
		if err != nil {
			return err
		}
		switch {
		case now.same(planned):
		case now != nil && now.Namespace != o.Namespace:
			return c.elsewhere(ctx, now)
		default:
			return meanwhile(o.Namespace)
		}
		err = work(ctx, l)
		var lost *api.Error
		if err != nil && errors.As(context.Cause(ctx), &lost) {
			return lost
		}
		return err
	})
}

package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"lateen.dev/lateen/internal/kube"
)

// Lease is the name of the Lease that the leader holds.
const Lease = "lateen-control"

// leaseDuration is how long a leader that died keeps others from leading, renewDeadline how long one that cannot renew goes on, and retryPeriod how
// often each tries.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Leader elects one of several replicas. What it does is started when it is elected and stopped when it no longer is.
type Leader struct {
	client              kubernetes.Interface
	namespace, identity string
	name, component     string // of the Lease, and of the part of the mesh whose replicas take part
	logger              *slog.Logger
	leads               atomic.Bool
	tasks               []func(context.Context)

	lease, renew, retry time.Duration
}

// NewLeader takes part in the election of a namespace. Let it have a client of its own: it must not wait behind others' requests.
func NewLeader(client kubernetes.Interface, namespace, identity string, logger *slog.Logger) *Leader {
	return &Leader{client: client, namespace: namespace, identity: identity, name: Lease, component: component, logger: logger, lease: leaseDuration, renew: renewDeadline, retry: retryPeriod}
}

// Named has the replicas of another part of the mesh take part, by a Lease of their own. Call it before Run.
func (l *Leader) Named(lease, component string) *Leader {
	l.name, l.component = lease, component
	return l
}

// While has a task run while this replica leads; the task must end with its context. Call it before Run.
func (l *Leader) While(task func(context.Context)) { l.tasks = append(l.tasks, task) }

// Leads says whether this replica leads.
func (l *Leader) Leads() bool { return l.leads.Load() }

// Run takes part until ctx ends, and then gives way as soon as the tasks have ended: another replica begins with them at once.
func (l *Leader) Run(ctx context.Context) {
	ctx = kube.Quiet(ctx)
	for ctx.Err() == nil && l.term(ctx) {
	}
}

// term takes part until this replica has led once, or ctx ends. It is false if there is no sense in another.
func (l *Leader) term(ctx context.Context) bool {
	// The end of an elector's context gives the Lease back: it comes after that of the tasks.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var mu sync.Mutex // guards began
	began, ended := false, make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !began {
			release() // no task is waited for
		}
	})()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name}, Client: l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity}, Labels: labelsOf(l.component)},
		LeaseDuration: l.lease, RenewDeadline: l.renew, RetryPeriod: l.retry, ReleaseOnCancel: true, Name: l.name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer close(ended)
				mu.Lock()
				began = ctx.Err() == nil
				mu.Unlock()
				if began {
					l.lead(ctx, leading)
				}
				release()
			},
			OnStoppedLeading: func() { l.leads.Store(false) },
			OnNewLeader: func(identity string) {
				if identity != l.identity {
					l.logger.Info("cluster: another replica leads", "identity", identity)
				}
			},
		},
	})
	if err != nil {
		l.logger.Error("cluster: no part is taken in the election of a leader", "error", err) // only a wrong configuration
		return false
	}
	elector.Run(electing)
	mu.Lock()
	led := began || ctx.Err() == nil
	mu.Unlock()
	if led {
		// Another term begins only when what the last one started has ended.
		<-ended
	}
	return led
}

// lead runs the tasks until either context ends, and returns when all of them have.
func (l *Leader) lead(ctx, leading context.Context) {
	working, stop := context.WithCancel(leading)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	l.logger.Info("cluster: this replica leads", "identity", l.identity)
	l.leads.Store(true)
	defer l.leads.Store(false)
	var running sync.WaitGroup
	for _, task := range l.tasks {
		running.Go(func() { task(working) })
	}
	running.Wait()
	<-working.Done()
}

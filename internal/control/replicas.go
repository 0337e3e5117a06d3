package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/control/conditions"
	"lateen.dev/lateen/internal/control/events"
	wire "lateen.dev/lateen/internal/gen/replica"
	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/replica"
	"lateen.dev/lateen/internal/resourcelog"
	kubesource "lateen.dev/lateen/internal/source/kube"
	"lateen.dev/lateen/internal/status"
	"lateen.dev/lateen/internal/xds"
)

// ownAccount is the name of the control plane's service account.
const ownAccount = "lateen-control"

// replicas is what the replicas of a control plane on Kubernetes need to act as one.
type replicas struct {
	config *rest.Config
	source *kubesource.Source
	// while has a task run while this replica leads.
	while func(func(context.Context))

	local atomic.Pointer[replica.Local]
	view  *replica.View
}

// observed hears what happens on streams, for metrics, for what this replica knows of its clients, and for the waypoints that are waited for.
type observed struct {
	*status.Metrics
	local     *atomic.Pointer[replica.Local] // nil where there is one replica
	waypoints *waypoints
}

// Connected implements xds.Observer.
func (o observed) Connected(delta int) {
	o.Metrics.Connected(delta)
	o.waypoints.answered()
	if o.local == nil {
		return
	}
	if l := o.local.Load(); l != nil {
		l.Connected()
	}
}

// Settled implements xds.Observer.
func (o observed) Settled(typeURL string, delay time.Duration, refused bool) {
	o.Metrics.Settled(typeURL, delay, refused)
	o.waypoints.answered()
	if o.local == nil {
		return
	}
	if l := o.local.Load(); l != nil {
		l.Answered(refused)
	}
}

func (c *Control) observer() xds.Observer {
	o := observed{Metrics: c.metrics, waypoints: &c.waypoints}
	if c.replicas != nil {
		o.local = &c.replicas.local
	}
	return o
}

// together joins this replica with the others: it tells them what its proxies have acknowledged, asks them the same while it is needed,
// and writes what all know into the objects' status while it leads.
func (c *Control) together(sources *status.Sources) error {
	r := c.replicas
	local := replica.NewLocal(replica.Sources{Store: c.store, Log: c.log, Clients: c.xds.Clients, Refusals: c.refusals})
	r.local.Store(local)
	_, port, err := net.SplitHostPort(c.opts.Listen)
	if err != nil {
		return fmt.Errorf("--listen is %q: %w", c.opts.Listen, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("--listen is %q; its port must be a number", c.opts.Listen)
	}
	accounts := set(c.opts.NodeProxyAccounts)
	r.view = replica.NewView(replica.Options{Local: local, Store: c.store, Namespace: c.opts.Namespace, Pod: os.Getenv("POD_NAME"), Port: number,
		Proxies: func(account string) bool { return accounts[account] }, Dial: c.dialReplica, Logger: c.logger, Now: time.Now})
	client, err := clients.Dynamic(r.config) // with a pace of its own, so that nobody waits behind a storm of writes
	if err != nil {
		return err
	}
	controllers := []string{wellknown.LateenWaypointController}
	if c.opts.Authority.TakeOver != "" {
		controllers = append(controllers, wellknown.MeshController)
	}
	writer := conditions.New(conditions.Options{Client: client, Cluster: r.source, Store: c.store, Programmed: r.view.Of, Versions: r.view.Versions, Prepare: c.prepare, Mesh: c.opts.Mesh, Controllers: controllers,
		Observer: c.metrics, Logger: c.logger, Now: time.Now})
	typed, err := clients.Typed(r.config)
	if err != nil {
		return err
	}
	notes := events.New(events.Options{Client: typed.CoreV1(), Object: c.opts.Mesh.ConfigKey(), Store: c.store, Refusal: r.source.Refusal, Instance: os.Getenv("POD_NAME"), Logger: c.logger, Now: time.Now})
	r.view.Hear(writer.Changed)
	r.source.Hear(func(key model.Key) {
		writer.Judged(key)
		notes.Judged(key)
	})
	r.while(r.view.Lead)
	r.while(writer.Lead)
	r.while(notes.Lead)
	wire.RegisterAcknowledgementsServer(c.grpc, &replica.Service{Local: local, Authorize: c.isReplica, Logger: c.logger, Closed: c.xds.Closed()})
	c.tasks = append(c.tasks, local.Run, r.view.Run)
	c.metrics.RegisterReplicas(func() float64 { return float64(writer.Waiting()) }, func() float64 { return float64(r.view.Unasked()) })
	sources.Together = func(ctx context.Context) func(*model.Object) (model.Condition, bool) {
		r.view.Ask(ctx)
		of := r.view.Page()
		return func(o *model.Object) (model.Condition, bool) {
			if !replica.Kinds(o.Key) {
				return model.Condition{}, false
			}
			v := of(o.Key, replica.VersionOf(o))
			return model.Condition{Type: wellknown.Programmed, Status: v.Status, Reason: v.Reason, Message: v.Message}, true
		}
	}
	sources.Refused = func() (out []status.Refused) {
		for _, refused := range r.source.Refused() {
			if said, ours := writer.Refusal(refused); ours {
				gvr, _ := r.source.Resource(refused.Key.Group, refused.Key.Kind)
				out = append(out, status.Refused{Key: refused.Key, APIVersion: gvr.GroupVersion().String(), Generation: refused.Generation, Conditions: said})
			}
		}
		return out
	}
	sources.Replicas = func(ctx context.Context) any {
		r.view.Ask(ctx)
		return r.view.States()
	}
	return nil
}

// prepare waits until the cluster was read and the other replicas have told what they know.
func (c *Control) prepare(ctx context.Context) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if c.loaded.Load() {
			tick.Stop()
			c.replicas.view.Ask(ctx)
			return
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// refusals are what clients of this replica refuse, by object.
func (c *Control) refusals(clients []xds.ClientState) map[model.Key]model.Condition {
	out := map[model.Key]model.Condition{}
	for source, condition := range status.Refusals(clients, c.log.Generation(), func(typeURL, name string) *resourcelog.Resource { return c.log.Get(typeURL, name) }) {
		out[model.Key{Group: source.Group, Kind: source.Kind, Namespace: source.Namespace, Name: source.Name}] = condition
	}
	return out
}

// isReplica proves that a caller is one of this control plane's replicas: a pod of its account that is there.
func (c *Control) isReplica(ctx context.Context) error {
	caller, err := ca.Authenticate(ctx, c.verifier)
	if err != nil {
		return err
	}
	if err := c.replicaAccount(caller.Account()); err != nil {
		return err
	}
	return there(c.authorizer, caller)
}

// replicaAccount says why an account is not the control plane's, as a gRPC status.
func (c *Control) replicaAccount(account string) error {
	if own := c.opts.Namespace + "/" + ownAccount; account != own {
		return grpcstatus.Errorf(codes.PermissionDenied, "service account %s is not the control plane's, which is %s", account, own)
	}
	return nil
}

// dialReplica opens a connection to another replica, which proves itself by a certificate of the mesh's CA for the control plane's name.
func (c *Control) dialReplica(address string) (*grpc.ClientConn, error) {
	signer := c.authority.Signer()
	if len(signer.Bundle()) == 0 {
		return nil, errors.New("this replica has no certificate authority yet, by which it would know the other")
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: signer.Pool(), ServerName: ownAccount + "." + c.opts.Namespace + ".svc", MinVersion: tls.VersionTLS12})),
		grpc.WithPerRPCCredentials(tokenFile(c.opts.TokenFile)),
		// One that hangs is noticed within seconds.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithNoProxy())
}

// tokenFile is a file with a token that is renewed in place.
type tokenFile string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (f tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(f))
	if err != nil {
		return nil, grpcstatus.Errorf(codes.Unauthenticated, "read the control plane's own token: %v; mount a projected token for audience %s, or correct --token-file", err, ca.Audience)
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenFile) RequireTransportSecurity() bool { return true }

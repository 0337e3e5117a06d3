// Package control owns the assembly of the control plane: it joins source, model, compiler, log, discovery and CA into one running program.
// It decides nothing itself but in which order they start and stop.
package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/gen/auth"
	wire "lateen.dev/lateen/internal/gen/replica"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/status"
	"lateen.dev/lateen/internal/translate"
	"lateen.dev/lateen/internal/xds"
)

// Options are the program's flags.
type Options struct {
	Cluster
	CallerOptions
	CertificateOptions
	Authority   AuthorityOptions
	ConfigDir   string
	DataDir     string
	Listen      string
	DebugListen string
	Mesh        translate.Mesh
	Advertise   []string
	RootCertOut string
	Version     string

	idle time.Duration // idleTime, but in tests
}

// Cluster says which Kubernetes cluster the control plane follows.
type Cluster struct {
	// Kube has the control plane follow a Kubernetes cluster: that of Kubeconfig and KubeContext, else the one in whose pod it runs.
	Kube                    bool
	Kubeconfig, KubeContext string
	// Namespace is where the control plane itself is, on Kubernetes.
	Namespace string
}

// CallerOptions say how callers are authenticated, and which of them are node proxies.
type CallerOptions struct {
	TokenKey          string
	TokenIssuer       string
	NodeProxyAccounts []string
	// TokenFile holds the control plane's own token, by which other replicas know it, on Kubernetes.
	TokenFile string
}

// CertificateOptions bound the lifetimes of workload certificates.
type CertificateOptions struct {
	// OwnIdentityAccounts are the service accounts whose pods may have a certificate in their own name, OwnIdentityTTL is the longest that it lives.
	OwnIdentityAccounts []string
	OwnIdentityTTL      time.Duration
	CertTTL             time.Duration
	MinCertTTL          time.Duration
}

// AuthorityOptions choose the CA that signs.
type AuthorityOptions struct {
	// CADir holds a plugged-in CA; without it the control plane makes one of its own in DataDir.
	CADir string
	// TakeOver is "istio" if a running Istio's CA is to be taken over, on Kubernetes.
	TakeOver string
	// CASigner is the name of a Kubernetes signer that signs in place of a CA of one's own; CASignerRoot names what holds its roots, and
	// CASignerApprove has requests approved by the control plane.
	CASigner, CASignerRoot string
	CASignerApprove        bool
	// RotationLeastStage is how long each stage of a root's rotation takes at least.
	RotationLeastStage time.Duration
}

const (
	// maxRequest bounds a request in bytes. A reconnecting proxy names every resource it has, about 100 bytes each:
	// this is room for half a million.
	maxRequest = 64 << 20
	// maxHeaders bounds the headers of a call in bytes: a token, and a few names.
	maxHeaders = 32 << 10
	// maxStreams bounds the calls on one connection at once: a stream of configuration, or a few certificates.
	maxStreams = 16
	// readBuffer is what a connection keeps to read from, in bytes. Callers say little: mostly answers of some hundred bytes.
	readBuffer = 2 << 10
	// idleTime is how long a connection may be open on which nobody calls. A caller who comes again connects again.
	idleTime = 30 * time.Second
	// handshakeTimeout is how long a connection may take until its caller can call.
	handshakeTimeout = 10 * time.Second
	// assignmentsFile keeps, in the data directory, what must be chosen alike after a restart.
	assignmentsFile = "assignments.json"
	// serverCertificateLifetime is short because it renews itself and nobody keeps it.
	serverCertificateLifetime = 24 * time.Hour
)

// Control is an assembled control plane.
type Control struct {
	opts   Options
	logger *slog.Logger
	store  *model.Store
	log    *resourcelog.Log
	parts
	compile   *compile.Compiler
	xds       *xds.Server
	waypoints waypoints
	// authorizer knows which pods callers are.
	authorizer *ca.NodeAuthorizer
	grpc       *grpc.Server
	debug      *http.Server
	metrics    *status.Metrics

	// listen are the listeners for proxies and for people.
	listen struct{ grpc, debug *limited }

	loaded, serving atomic.Bool
}

// New reads keys, opens the CA and binds both listeners. It serves nothing yet.
func New(opts Options, logger *slog.Logger) (*Control, error) {
	now := time.Now
	store := model.NewStore()
	c := &Control{opts: opts, logger: logger, store: store, log: resourcelog.New(now, resourcekind.Mesh), waypoints: waypoints{wake: make(chan struct{}, 1)}}
	c.metrics = status.NewMetrics(opts.Version, func() time.Time { return c.authority.Signer().RootNotAfter() })
	var err error
	if c.parts, err = assemble(opts, store, c.metrics, now, logger); err != nil {
		return nil, err
	}
	c.compile = compile.New(opts.Mesh, c.store, c.log, c.assignments, logger, c.metrics.Compiled)
	if c.compiled != nil {
		c.compiled(c.compile)
	}

	epoch, err := newEpoch()
	if err != nil {
		return nil, err
	}
	c.authorizer = &ca.NodeAuthorizer{TrustDomain: opts.Mesh.TrustDomain, Pods: c.store, Accounts: set(opts.NodeProxyAccounts),
		Own: ca.OwnNames{Accounts: set(opts.OwnIdentityAccounts), Deployed: c.isGateway, Lifetime: opts.OwnIdentityTTL}, Now: now}
	proxies := streams{verifier: c.verifier, authorizer: c.authorizer, gateways: c.isGateway, bound: opts.Kube, refused: c.metrics.StreamRefused}
	c.xds = xds.NewServer(xds.Options{Log: c.log, Epoch: epoch, Authenticator: proxies, Observer: c.observer(), Logger: logger, Now: now})
	certificates := &ca.Service{Authority: c.authority, Verifier: c.verifier, Lifetime: opts.CertTTL, MinLifetime: opts.MinCertTTL, Now: now, Observer: c.metrics, Logger: logger,
		Authorizer: c.authorizer}
	c.listen.grpc = limit(nil, maxConnections, maxConnectionsPerAddress, c.metrics.Crowded("proxies"))
	c.listen.debug = limit(nil, maxReaders, maxReadersPerAddress, c.metrics.Crowded("pages"))
	server := ca.NewServerCertificate(c.authority, names(opts), serverCertificateLifetime, now)
	c.grpc = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{GetCertificate: server.Get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})),
		grpc.InTapHandle(newDoor(c.verifier, c.business(proxies), c.residents(), c.listen.grpc.vouch, c.metrics, logger).handle),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.ForceServerCodecV2(xds.Codec()),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.ReadBufferSize(readBuffer),
		grpc.SharedWriteBuffer(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: cmp.Or(opts.idle, idleTime), Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(c.grpc, c.xds)
	auth.RegisterIstioCertificateServiceServer(c.grpc, certificates)
	sources := status.Sources{Store: c.store, Log: c.log, Problems: c.problems, Clients: c.xds.Clients, Ready: c.ready, Note: c.note, Metrics: c.metrics, Version: opts.Version,
		RootNamespace: opts.Mesh.RootNamespace, Analyse: analyser(opts), Rehearse: rehearsal(opts.Mesh, c.store)}
	if c.replicas != nil {
		if err := c.together(&sources); err != nil {
			return nil, err
		}
	}

	c.metrics.RegisterState(
		func() float64 { return float64(c.log.Generation()) },
		func() float64 { return float64(c.store.Len()) },
		func() float64 { return float64(len(c.problems()) + c.store.Ineffective()) },
		func(t string) float64 { return float64(c.log.Len(t)) },
	)
	c.metrics.RegisterSettings(func() float64 { return float64(len(c.compile.Settings().Unserved)) })
	c.metrics.RegisterReady(c.ready)
	registerAuthority(c.metrics.Registry, c.authority)
	pages := guard(debugPages(status.Handler(sources), c.authority))
	c.debug = &http.Server{ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, Handler: pages}
	if c.listen.grpc.Listener, err = net.Listen("tcp", opts.Listen); err != nil {
		return nil, fmt.Errorf("listen for proxies on %s: %w; another control plane may be running", opts.Listen, err)
	}
	if c.listen.debug.Listener, err = net.Listen("tcp", opts.DebugListen); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for debugging on %s: %w; another control plane may be running", opts.DebugListen, err), c.listen.grpc.Close())
	}
	return c, nil
}

// isGateway says whether an account is that of the proxies of a Gateway that this mesh serves.
func (c *Control) isGateway(account string) bool { return c.log.Reads(resourcekind.Gateway, account) }

// business says for the door which accounts have a use for a method.
func (c *Control) business(proxies streams) func(method, account string) error {
	return func(method, account string) error {
		switch method {
		case auth.IstioCertificateService_CreateCertificate_FullMethodName:
			return c.authorizer.CheckAccount(account)
		case discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName:
			_, err := proxies.role(account)
			return err
		case wire.Acknowledgements_Follow_FullMethodName:
			return c.replicaAccount(account)
		}
		return nil // none is served, and none is read
	}
}

// residents are the accounts whose connections keep their places when there are too many: those that the mesh cannot do without.
func (c *Control) residents() map[string]bool {
	accounts := set(c.opts.NodeProxyAccounts)
	if c.opts.Kube {
		accounts[c.opts.Namespace+"/"+ownAccount] = true
	}
	return accounts
}

// Addr is where proxies connect, DebugAddr where people look.
func (c *Control) Addr() net.Addr { return c.listen.grpc.Addr() }

// DebugAddr is the address of metrics, readiness and dumps.
func (c *Control) DebugAddr() net.Addr { return c.listen.debug.Addr() }

// Run serves until ctx ends or something fails.
func (c *Control) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	go func() {
		if err := c.debug.Serve(c.listen.debug); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve debugging: %w", err)
		}
	}()
	go c.authority.Run(ctx)
	go c.verifier.Run(ctx, c.logger)
	var running sync.WaitGroup
	for _, task := range c.tasks {
		running.Go(func() { task(ctx) })
	}
	running.Go(func() { c.settleWaypoints(ctx) })
	running.Go(func() {
		if err := c.source.Run(ctx, func(changes []model.Change) { c.apply(ctx, changes) }); err != nil {
			failed <- err
		}
	})
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	c.serving.Store(false)
	c.logger.Info("control: shutting down")
	cancel()
	c.xds.Close() // ends the streams, which would keep the graceful stop waiting
	stopped := time.AfterFunc(3*time.Second, c.grpc.Stop)
	c.grpc.GracefulStop()
	stopped.Stop()
	_ = c.listen.grpc.Close() // closed already if it was served
	running.Wait()
	return errors.Join(err, c.debug.Close())
}

// apply takes in changes. Only after the first, which is the whole directory, may proxies connect: told too early, they
// would take all that is not yet read for deleted.
func (c *Control) apply(ctx context.Context, changes []model.Change) {
	if c.kept != nil && !c.loaded.Load() && c.kept.Load(ctx) != nil {
		return // it ends
	}
	c.compile.Apply(changes)
	if c.loaded.Swap(true) {
		return
	}
	c.logger.Info("control: configuration read", "objects", c.store.Len(), "problems", len(c.source.Problems()))
	c.serving.Store(true)
	go func() {
		if err := c.grpc.Serve(c.listen.grpc); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			c.logger.Error("control: serving proxies ended", "error", err)
			c.serving.Store(false)
		}
	}()
	c.logger.Info("control: serving", "listen", c.Addr().String(), "debug", c.DebugAddr().String(), "trustDomain", c.opts.Mesh.TrustDomain)
}

// problems are those of the configuration and of the state on disk.
func (c *Control) problems() []files.Problem {
	out := append(slices.Clone(c.damage), c.source.Problems()...)
	if t := c.authority.Status().Trouble; t != "" {
		out = append(out, files.Problem{File: c.place, Severity: files.Warning, Message: t})
	}
	for _, m := range c.compile.Misplaced() {
		out = append(out, files.Problem{Object: m.Key.String(), Severity: files.Warning, Message: m.Message})
	}
	if c.opts.Kube {
		// A ConfigMap has no status there, so that its conditions would be nowhere. The local engine keeps them.
		out = append(out, settingsProblems(c.opts.Mesh.ConfigKey(), c.compile.Settings().Conditions)...)
	}
	return out
}

// settingsProblems are the conditions of the mesh's settings that say more than that they are accepted.
func settingsProblems(key model.Key, conditions []model.Condition) (out []files.Problem) {
	for _, c := range conditions {
		if c.Status != model.True || c.Reason != accepted {
			out = append(out, files.Problem{Object: key.String(), Severity: files.Warning, Message: c.Message})
		}
	}
	return out
}

// accepted is the reason of a condition without a but.
const accepted = "Accepted"

func (c *Control) ready() error {
	switch {
	case !c.loaded.Load():
		if s, ok := c.source.(waiting); ok {
			if err := s.Ready(); err != nil {
				return err
			}
			if c.kept != nil {
				if err := c.kept.Ready(); err != nil {
					return err
				}
			}
			return errors.New("the configuration is being compiled")
		}
		return errors.New("the configuration directory has not been read yet")
	case !c.serving.Load():
		return errors.New("proxies are not being served")
	}
	if a, ok := c.authority.(interface{ Ready() error }); ok {
		return a.Ready()
	}
	return nil
}

// note is what people should know although all is served.
func (c *Control) note() string {
	if s, ok := c.source.(waiting); ok {
		return s.Note()
	}
	return ""
}

// names are those under which proxies may know the control plane.
func names(opts Options) []string {
	all := append(slices.Clone(opts.Advertise), "lateen-control", "localhost", "127.0.0.1")
	for _, namespace := range []string{opts.Mesh.RootNamespace, opts.Namespace} {
		for _, service := range []string{"istiod", "lateen-control"} {
			if name := service + "." + namespace; namespace != "" {
				all = append(all, name, name+".svc", name+".svc."+opts.Mesh.DomainSuffix)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func set(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, v := range list {
		m[v] = true
	}
	return m
}

// newEpoch names this life of the control plane.
func newEpoch() (string, error) {
	b := make([]byte, 4)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("draw an epoch: %w", err)
	}
	return hex.EncodeToString(b), nil
}

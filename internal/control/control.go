// Package control owns the assembly of the control plane: it joins source, model, compiler, log, discovery and CA into one running program.
// It decides nothing itself but in which order they start and stop.
package control

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcstatus "google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/gen/auth"
	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/status"
	"lateen.dev/lateen/internal/translate"
	"lateen.dev/lateen/internal/xds"
)

// Options are the program's flags.
type Options struct {
	ConfigDir         string
	DataDir           string
	Listen            string
	DebugListen       string
	Mesh              translate.Mesh
	TokenKey          string
	TokenIssuer       string
	NodeProxyAccounts []string
	Advertise         []string
	RootCertOut       string
	CertTTL           time.Duration
	MinCertTTL        time.Duration
	// CADir holds a plugged-in CA; without it the control plane makes one of its own in DataDir.
	CADir string
	// RotationLeastStage is how long each stage of a root's rotation takes at least.
	RotationLeastStage time.Duration
	Version            string
}

const (
	// maxRequest bounds a request in bytes. A reconnecting proxy names every resource it has, about 100 bytes each:
	// this is room for half a million.
	maxRequest = 64 << 20
	// maxHeaders bounds the headers of a call in bytes: a token, and a few names.
	maxHeaders = 32 << 10
	// maxStreams bounds the calls on one connection at once: a stream of configuration, or a few certificates.
	maxStreams = 16
	// handshakeTimeout is how long a connection may take until its caller can call.
	handshakeTimeout = 10 * time.Second
	// assignmentsFile keeps, in the data directory, what must be chosen alike after a restart.
	assignmentsFile = "assignments.json"
	// serverCertificateLifetime is short because it renews itself and nobody keeps it.
	serverCertificateLifetime = 24 * time.Hour
)

// Control is an assembled control plane.
type Control struct {
	opts      Options
	logger    *slog.Logger
	store     *model.Store
	log       *log.Log
	source    *files.Source
	compile   *compile.Compiler
	xds       *xds.Server
	grpc      *grpc.Server
	debug     *http.Server
	metrics   *status.Metrics
	authority authority
	verifier  *ca.TokenVerifier

	grpcListener, debugListener net.Listener

	// damage is what of the state on disk could not be used at the start; it is told until the next.
	damage []files.Problem

	loaded, serving atomic.Bool
}

// New reads keys, opens the CA and binds both listeners. It serves nothing yet.
func New(opts Options, logger *slog.Logger) (*Control, error) {
	now := time.Now
	store := model.NewStore()
	authority, err := openAuthority(opts, store, now, logger)
	if err != nil {
		return nil, err
	}
	verifier, err := ca.LoadTokenVerifier(opts.TokenKey, opts.TokenIssuer, now)
	if err != nil {
		return nil, err
	}
	c := &Control{opts: opts, logger: logger, store: store, authority: authority, verifier: verifier, log: log.New(now, log.AddressType, log.AuthorizationType),
		metrics: status.NewMetrics(opts.Version, func() time.Time { return authority.Signer().RootNotAfter() })}
	c.source = files.NewSource(opts.ConfigDir, logger)
	assignments, damage := compile.LoadAssignments(filepath.Join(opts.DataDir, assignmentsFile), now())
	if damage != nil {
		logger.Error("control: damaged state", "error", damage)
		c.damage = append(c.damage, files.Problem{File: filepath.Join(opts.DataDir, assignmentsFile), Severity: files.Warning, Message: damage.Error()})
	}
	c.compile = compile.New(opts.Mesh, c.store, c.log, assignments, logger, c.metrics.Compiled)

	epoch, err := newEpoch()
	if err != nil {
		return nil, err
	}
	c.xds = xds.NewServer(xds.Options{Log: c.log, Epoch: epoch, Authenticator: streams{verifier, set(opts.NodeProxyAccounts), c.metrics.StreamRefused}, Observer: c.metrics, Logger: logger, Now: now})
	certificates := &ca.Service{Authority: authority, Verifier: verifier, Lifetime: opts.CertTTL, MinLifetime: opts.MinCertTTL, Now: now, Observer: c.metrics, Logger: logger,
		Authorizer: &ca.NodeAuthorizer{TrustDomain: opts.Mesh.TrustDomain, Pods: c.store, Accounts: set(opts.NodeProxyAccounts)}}
	server := ca.NewServerCertificate(authority, names(opts), serverCertificateLifetime, now)
	c.grpc = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{GetCertificate: server.Get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})),
		grpc.InTapHandle(newDoor(verifier, c.metrics, logger).handle),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.ForceServerCodecV2(xds.Codec()),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(c.grpc, c.xds)
	auth.RegisterIstioCertificateServiceServer(c.grpc, certificates)

	c.metrics.RegisterState(
		func() float64 { return float64(c.log.Generation()) },
		func() float64 { return float64(c.store.Len()) },
		func() float64 { return float64(len(c.problems())) },
		func(t string) float64 { return float64(c.log.Len(t)) },
	)
	registerAuthority(c.metrics.Registry, authority)
	c.debug = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: debugPages(status.Handler(status.Sources{
		Store: c.store, Log: c.log, Problems: c.problems, Clients: c.xds.Clients, Ready: c.ready, Metrics: c.metrics, Version: opts.Version,
	}), authority)}
	listener, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for proxies on %s: %w; another control plane may be running", opts.Listen, err)
	}
	c.grpcListener = limit(listener, maxConnections, maxConnectionsPerAddress)
	if c.debugListener, err = net.Listen("tcp", opts.DebugListen); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for debugging on %s: %w; another control plane may be running", opts.DebugListen, err), c.grpcListener.Close())
	}
	return c, nil
}

// Addr is where proxies connect, DebugAddr where people look.
func (c *Control) Addr() net.Addr { return c.grpcListener.Addr() }

// DebugAddr is the address of metrics, readiness and dumps.
func (c *Control) DebugAddr() net.Addr { return c.debugListener.Addr() }

// Run serves until ctx ends or something fails.
func (c *Control) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	go func() {
		if err := c.debug.Serve(c.debugListener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve debugging: %w", err)
		}
	}()
	go c.authority.Run(ctx)
	go c.verifier.Run(ctx, c.logger)
	sourced := make(chan struct{})
	go func() {
		defer close(sourced)
		if err := c.source.Run(ctx, c.apply); err != nil {
			failed <- err
		}
	}()
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
	_ = c.grpcListener.Close() // closed already if it was served
	<-sourced
	return errors.Join(err, c.debug.Close())
}

// apply takes in changes. Only after the first, which is the whole directory, may proxies connect: told too early, they
// would take all that is not yet read for deleted.
func (c *Control) apply(changes []model.Change) {
	c.compile.Apply(changes)
	if c.loaded.Swap(true) {
		return
	}
	c.logger.Info("control: configuration read", "objects", c.store.Len(), "problems", len(c.source.Problems()))
	c.serving.Store(true)
	go func() {
		if err := c.grpc.Serve(c.grpcListener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
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
		out = append(out, files.Problem{File: c.authorityDir(), Severity: files.Warning, Message: t})
	}
	return out
}

// authorityDir is where the CA's files are.
func (c *Control) authorityDir() string {
	if c.opts.CADir != "" {
		return c.opts.CADir
	}
	return c.opts.DataDir
}

func (c *Control) ready() error {
	switch {
	case !c.loaded.Load():
		return errors.New("the configuration directory has not been read yet")
	case !c.serving.Load():
		return errors.New("proxies are not being served")
	}
	return nil
}

// streams proves that who opens a discovery stream is a node proxy. A workload has no use for the addresses and policies of the mesh.
type streams struct {
	verifier ca.Verifier
	accounts map[string]bool
	refused  func()
}

// Authenticate implements xds.Authenticator.
func (s streams) Authenticate(ctx context.Context) (xds.Client, error) {
	caller, err := ca.Authenticate(ctx, s.verifier)
	if err != nil {
		return xds.Client{}, err
	}
	if !s.accounts[caller.Account()] {
		s.refused()
		return xds.Client{}, grpcstatus.Errorf(codes.PermissionDenied,
			"service account %s is not a node proxy's; list it in --node-proxy-accounts if it is", caller.Account())
	}
	return xds.Client{Node: caller.NodeName, Workload: caller.Namespace + "/" + caller.PodName, Identity: caller.Account()}, nil
}

// names are those under which proxies may know the control plane.
func names(opts Options) []string {
	root := opts.Mesh.RootNamespace
	all := slices.Concat(opts.Advertise, []string{
		"istiod." + root + ".svc", "istiod." + root + ".svc." + opts.Mesh.DomainSuffix, "istiod." + root,
		"lateen-control." + root + ".svc", "lateen-control." + root + ".svc." + opts.Mesh.DomainSuffix, "lateen-control." + root,
		"lateen-control", "localhost", "127.0.0.1",
	})
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

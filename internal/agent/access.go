package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/agent/apiserver"
	"lateen.dev/lateen/internal/agent/cni"
)

// access keeps on the node what the CNI plugin needs to ask the API server while no agent runs. The token is of an account
// that can read pods and namespaces and nothing else, and it is bound to no pod: the agent's own ends with the agent's pod,
// just when it would be needed.
type access struct {
	config             *rest.Config
	client             apiserver.Client
	namespace, account string
	file               string
	log                *slog.Logger

	renewAt time.Time
}

const (
	// accessEvery is the time between looks at the token.
	accessEvery = time.Minute
	// accessLasts is how long a token is asked for. It is renewed after half of that, so that an agent may be away for the
	// other half, and a node off.
	accessLasts = 2 * time.Hour
)

// keep keeps it until ctx ends.
func (a *access) keep(ctx context.Context) {
	tick := time.NewTicker(accessEvery)
	defer tick.Stop()
	for said := false; ; {
		err := a.renew(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !said:
			said = true
			a.log.Warn("while the agent is away the CNI plugin may not be able to ask the API server, and goes by what the agent knew", "err", err)
		case err == nil:
			said = false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// renew gets a token once the last one has lived for half of its time, or once the file is not there as it was written: whoever
// puts a network plugin onto the node anew may empty that folder or change its rights.
func (a *access) renew(ctx context.Context, now time.Time) error {
	if now.Before(a.renewAt) && rootsAlone(a.file) {
		return nil
	}
	way, err := wayTo(a.config)
	if err != nil {
		return err
	}
	const answer = 10 * time.Second
	asked, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	seconds := int64(accessLasts / time.Second)
	t, err := a.client.ServiceAccounts(a.namespace).CreateToken(asked, a.account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token of service account %s/%s: %w", a.namespace, a.account, err)
	}
	way.Token = t.Status.Token
	if way.Token == "" {
		return fmt.Errorf("get a token of service account %s/%s: the API server gave an empty one", a.namespace, a.account)
	}
	if ctx.Err() != nil {
		return ctx.Err() // the mesh leaves the node
	}
	if err := way.Save(a.file); err != nil {
		return err
	}
	// The API server may give less than was asked for.
	a.renewAt = now.Add(cmp.Or(max(t.Status.ExpirationTimestamp.Sub(now), 0), accessLasts) / 2)
	return nil
}

// rootsAlone says whether there is a file that nobody else can read.
func rootsAlone(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err == nil && st.Mode == unix.S_IFREG|0o600 && st.Uid == 0
}

// wayTo is where the API server is, and how it is known.
func wayTo(config *rest.Config) (cni.Access, error) {
	a := cni.Access{Server: config.Host, CA: string(config.CAData)}
	if !strings.Contains(a.Server, "://") {
		a.Server = "https://" + a.Server
	}
	if config.CAFile != "" {
		b, err := os.ReadFile(config.CAFile)
		if err != nil {
			return a, fmt.Errorf("read the API server's certificate authority: %w", err)
		}
		a.CA = strings.TrimSpace(string(b))
	}
	if a.CA == "" {
		return a, errors.New("the agent does not know the API server's certificate authority")
	}
	return a, nil
}

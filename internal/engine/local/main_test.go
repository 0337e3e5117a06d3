package local

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/source/files"
)

// The test binary plays every part of a mesh but the engine, which is the real one: it is copied under their names into a
// directory of programs. What the stand-ins do is just enough for an engine to take them for the real ones.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case EngineVerb:
			os.Exit(EngineMain(os.Args[2:]))
		case PodVerb:
			os.Exit(PodMain(os.Args[2:]))
		}
	}
	switch filepath.Base(os.Args[0]) {
	case controlBinary:
		fakeControl(os.Args[1:])
	case agentBinary:
		fakeAgent(os.Args[1:])
	case proxyBinary:
		fakeProxy()
	case helperBinary:
		os.Exit(helper(os.Args[1:]))
	default:
		code := m.Run()
		if programs != "" {
			os.RemoveAll(programs)
		}
		os.Exit(code)
	}
}

// helperBinary is what the pods of the tests run.
const helperBinary = "lateen-helper"

func untilTerminated() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
}

func serveOn(address string, h http.Handler) {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(l, h)
}

// fakeControl answers the debug pages.
func fakeControl(args []string) {
	f := flag.NewFlagSet("control", flag.ExitOnError)
	config, data := f.String("config-dir", "", ""), f.String("data-dir", "", "")
	debug, cert := f.String("debug-listen", "", ""), f.String("root-cert-out", "", "")
	for _, other := range []string{"listen", "token-key", "token-issuer", "node-proxy-accounts", "advertise"} {
		f.String(other, "", "")
	}
	f.Parse(args)
	for path, mode := range map[string]os.FileMode{*cert: 0o644, filepath.Join(*data, "root-key.pem"): 0o600} {
		if err := os.WriteFile(path, []byte("made by the stand-in\n"), mode); err != nil {
			log.Fatal(err)
		}
	}
	m := http.NewServeMux()
	m.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("/debug/clients", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"generation":7,"clients":[{"node":"n1","types":[{"type":"Address","ackedGeneration":6},{"type":"Authorization","ackedGeneration":7}]}]}`)
	})
	m.HandleFunc("/debug/problems", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[]`) })
	slow := "" // it never hears of a second version
	m.HandleFunc("/debug/objects", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.ReadDir(filepath.Join(*config, "user")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := os.Stat(filepath.Join(*config, "user", "service.default.mute.yaml")); err == nil {
			http.Error(w, "it says nothing", http.StatusInternalServerError)
			return
		}
		if text, err := os.ReadFile(filepath.Join(*config, "user", "service.default.slow.yaml")); err == nil && slow == "" {
			objects, _ := files.Decode("slow", text)
			slow = objects[0].Digest()
		}
		const accepted = `"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}`
		fmt.Fprintf(w, `[{"kind":"Service","namespace":"default","name":"web","generation":3,%s,{"kind":"Service","namespace":"default","name":"slow","digest":"%s",%s]`, accepted, slow, accepted)
	})
	serveOn(*debug, m)
	untilTerminated()
}

// fakeAgent says that every enrolled pod is captured once its namespace carries the label test/agent=go.
func fakeAgent(args []string) {
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	node, engine, status := f.String("node", "", ""), f.String("engine-socket", "", ""), f.String("status-socket", "", "")
	health := f.String("http", "", "")
	_ = f.Int("probe-group", 0, "")
	f.String("zds-socket", "", "")
	f.Parse(args)
	serveOn(*health, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	os.Remove(*status)
	l, err := net.Listen("unix", *status)
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"proxyConnected":true,"pods":[]}`)
	}))
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", *engine)
	}}}
	go followPods(client, *node)
	untilTerminated()
}

func followPods(client *http.Client, node string) {
	resp, err := client.Get("http://engine/agent/v1/pods?node=" + node)
	if err != nil {
		log.Fatal(err)
	}
	enabled := map[string]bool{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s struct {
			Pods []struct {
				UID       string `json:"uid"`
				Namespace string `json:"namespace"`
				NetNS     string `json:"netns"`

				HostNetwork bool `json:"hostNetwork"`
				Terminating bool `json:"terminating"`
			} `json:"pods"`
			Namespaces map[string]struct {
				Labels map[string]string `json:"labels"`
			} `json:"namespaces"`
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			log.Fatal(err)
		}
		for _, p := range s.Pods {
			if p.HostNetwork && p.NetNS == "" {
				continue
			}
			// The network of a pod that ends may be gone by the time this is read.
			if _, err := os.Stat(p.NetNS); err != nil && !p.Terminating {
				log.Fatal(err)
			}
			l := s.Namespaces[p.Namespace].Labels
			want := l[wellknown.DataplaneMode] == modeAmbient && l["test/agent"] == "go"
			if want == enabled[p.UID] {
				continue
			}
			state := map[bool]string{true: "enabled", false: "disabled"}[want]
			req, err := http.NewRequest(http.MethodPut, "http://engine/agent/v1/pods/"+p.UID+"/redirection", strings.NewReader(`{"state":"`+state+`"}`))
			if err != nil {
				log.Fatal(err)
			}
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
				enabled[p.UID] = want
			}
		}
	}
}

func fakeProxy() {
	if os.Getenv("NODE_NAME") == "" || os.Getenv("XDS_ADDRESS") == "" {
		log.Fatal("the environment of a node proxy is missing")
	}
	if token, err := os.ReadFile(os.Getenv("AUTH_TOKEN")); err != nil || strings.Count(string(token), ".") != 2 {
		log.Fatalf("no token: %q, %v", token, err)
	}
	m := http.NewServeMux()
	m.HandleFunc("/healthz/ready", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "# HELP x y\nistio_build{component=\"proxy\",tag=\"9.9\"} 1\nlateen_worker_connections{worker=\"0\"} 2\nlateen_worker_connections{worker=\"1\"} 3\n")
	})
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"workloads":[]}`) })
	os.Remove(os.Getenv("LATEEN_ADMIN_SOCKET")) // of the one before
	pages, err := net.Listen("unix", os.Getenv("LATEEN_ADMIN_SOCKET"))
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(pages, m)
	fmt.Println("proxy of", os.Getenv("NODE_NAME"))
	untilTerminated()
}

// helper is the program of the tests' pods: a server that says who it is, and a client.
func helper(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "serve":
		host, err := os.Hostname()
		if err != nil {
			log.Fatal(err)
		}
		version := os.Getenv("VERSION")
		m := http.NewServeMux()
		m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s to %s", host, version, r.RemoteAddr)
		})
		m.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) {
			if _, err := os.Stat("/tmp/ill"); err == nil {
				http.Error(w, "ill", http.StatusServiceUnavailable)
			}
			if from, _, _ := net.SplitHostPort(r.RemoteAddr); from != "169.254.7.127" {
				fmt.Println("probed from", from)
			}
		})
		fmt.Println("serving", version)
		var open atomic.Int64
		server := &http.Server{Handler: m, ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}}
		server.SetKeepAlivesEnabled(false)
		l, err := net.Listen("tcp4", "0.0.0.0:"+args[1])
		if err != nil {
			log.Fatal(err)
		}
		go server.Serve(l)
		untilTerminated()
		// As a server that ends in order it answers first whoever has connected, also those it has not accepted yet.
		for quiet, deadline := 0, time.Now().Add(3*time.Second); quiet < 5 && time.Now().Before(deadline); quiet++ {
			time.Sleep(10 * time.Millisecond)
			if open.Load() > 0 {
				quiet = -1
			}
		}
		fmt.Println("goodbye")
		return 0
	case len(args) == 2 && args[0] == "get":
		c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Get(args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer resp.Body.Close()
		io.Copy(os.Stdout, resp.Body)
		return 0
	}
	fmt.Fprintln(os.Stderr, "serve PORT or get URL")
	return 64
}

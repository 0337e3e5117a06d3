// Package peers runs other proxies beside the one under test: Envoy as Istio configures a waypoint, nginx and HAProxy as plain
// proxies. Each has a listener for every lane, which leads to the lane's upstream.
package peers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/hostile/cases"
)

// Kind is a proxy that this package can configure.
type Kind string

// The proxies.
const (
	Envoy   Kind = "envoy"
	Nginx   Kind = "nginx"
	HAProxy Kind = "haproxy"
)

// Lane is a listener of a peer and the upstream that it leads to, both ports of the loopback address. HTTP1 and HTTP2 may be equal.
type Lane struct {
	HTTP1, HTTP2, Upstream int
}

// Peer is a proxy that runs.
type Peer struct {
	cmd  *exec.Cmd
	said *bytes.Buffer
	done chan struct{}
}

// ports is how many listeners there are at most of one kind.
const ports = 200

// Lanes are the listeners of a peer that leads to these upstreams.
func Lanes(kind Kind, upstreams []int) []Lane {
	base := map[Kind]int{Envoy: 21000, Nginx: 22000, HAProxy: 23000}[kind]
	var lanes []Lane
	for i, port := range upstreams {
		lane := Lane{HTTP1: base + i, HTTP2: base + i, Upstream: port}
		if kind != Envoy { // which tells the protocols apart by the first bytes
			lane.HTTP2 += ports
		}
		lanes = append(lanes, lane)
	}
	return lanes
}

// Start runs a program with listeners for lanes, and waits until they are open. dir is for its files.
func Start(kind Kind, program, dir string, lanes []Lane) (*Peer, error) {
	var text, file string
	var args []string
	switch kind {
	case Envoy:
		config, err := envoyConfig(lanes)
		if err != nil {
			return nil, err
		}
		text, file = config, filepath.Join(dir, "envoy.json")
		args = []string{"--config-path", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"}
	case Nginx:
		text, file = nginxConfig(dir, lanes), filepath.Join(dir, "nginx.conf")
		args = []string{"-c", file, "-p", dir, "-e", "stderr"}
	case HAProxy:
		text, file = haproxyConfig(lanes), filepath.Join(dir, "haproxy.cfg")
		args = []string{"-f", file}
	default:
		return nil, fmt.Errorf("%s is no proxy that can be configured here", kind)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure %s: %w", kind, err)
	}
	p := &Peer{cmd: exec.Command(program, args...), said: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	for _, lane := range lanes {
		for _, port := range []int{lane.HTTP1, lane.HTTP2} {
			if err := p.await(port); err != nil {
				p.Stop()
				return nil, fmt.Errorf("start %s: %w: %s", kind, err, strings.TrimSpace(p.said.String()))
			}
		}
	}
	return p, nil
}

// await returns once a port is open.
func (p *Peer) await(port int) error {
	deadline := time.After(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return errors.New("it has ended")
		case <-deadline:
			return fmt.Errorf("port %d stays closed", port)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the program and what it has started.
func (p *Peer) Stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

type object = map[string]any

const typePrefix = "type.googleapis.com/envoy.extensions."

// envoyConfig is the HTTP manager of a waypoint as Istio makes it with the settings that it has without MeshConfig, and one policy
// that denies a path.
func envoyConfig(lanes []Lane) (string, error) {
	var listeners, clusters []object
	address := func(port int) object {
		return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
	}
	extension := func(name, message string, config object) object {
		config["@type"] = typePrefix + message
		return object{"name": name, "typed_config": config}
	}
	path := func(match object) object { return object{"url_path": object{"path": match}} }
	for i, lane := range lanes {
		cluster := fmt.Sprintf("lane%d", i)
		denied := object{"permissions": []object{path(object{"exact": cases.DeniedPath}), path(object{"prefix": cases.DeniedPath + "/"})}, "principals": []object{{"any": true}}}
		manager := object{
			"stat_prefix":                      cluster,
			"codec_type":                       "AUTO",
			"normalize_path":                   true,
			"path_with_escaped_slashes_action": "KEEP_UNCHANGED",
			"use_remote_address":               false,
			"proxy_100_continue":               true,
			"server_header_transformation":     "PASS_THROUGH",
			"stream_idle_timeout":              "0s",
			"upgrade_configs":                  []object{{"upgrade_type": "websocket"}},
			"route_config": object{"name": cluster, "virtual_hosts": []object{{
				"name": "all", "domains": []string{"*"},
				"routes": []object{{"match": object{"prefix": "/"}, "route": object{"cluster": cluster, "timeout": "0s"}}},
			}}},
			"http_filters": []object{
				extension("envoy.filters.http.rbac", "filters.http.rbac.v3.RBAC", object{"rules": object{"action": "DENY", "policies": object{"denied": denied}}}),
				extension("envoy.filters.http.router", "filters.http.router.v3.Router", object{}),
			},
		}
		listeners = append(listeners, object{
			"name": cluster, "address": address(lane.HTTP1),
			"filter_chains": []object{{"filters": []object{extension("envoy.filters.network.http_connection_manager", "filters.network.http_connection_manager.v3.HttpConnectionManager", manager)}}},
		})
		clusters = append(clusters, object{
			"name": cluster, "type": "STATIC", "connect_timeout": "10s",
			"load_assignment": object{"cluster_name": cluster, "endpoints": []object{{"lb_endpoints": []object{{"endpoint": object{"address": address(lane.Upstream)}}}}}},
		})
	}
	text, err := json.MarshalIndent(object{"static_resources": object{"listeners": listeners, "clusters": clusters}}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("configure envoy: %w", err)
	}
	return string(text) + "\n", nil
}

// nginxConfig hands requests on as they came. It denies the path by location, which nginx matches in its own normal form.
func nginxConfig(dir string, lanes []Lane) string {
	var b strings.Builder
	fmt.Fprintf(&b, `daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  large_client_header_buffers 8 64k;
  client_max_body_size 0;
  underscores_in_headers on;
  ignore_invalid_headers off;
  merge_slashes off;
  proxy_http_version 1.1;
  proxy_next_upstream off;
  proxy_set_header Host $http_host;
  map $http_upgrade $switches { default ""; websocket upgrade; }
  proxy_set_header Connection $switches;
  proxy_set_header Upgrade $http_upgrade;
`, dir)
	for _, lane := range lanes {
		for _, listen := range []string{fmt.Sprint(lane.HTTP1), fmt.Sprintf("%d http2", lane.HTTP2)} {
			fmt.Fprintf(&b, `  server {
    listen 127.0.0.1:%[1]s;
    location = %[3]s { return 403; }
    location ^~ %[3]s/ { return 403; }
    location / { proxy_pass http://127.0.0.1:%[2]d; }
  }
`, listen, lane.Upstream, cases.DeniedPath)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// haproxyConfig hands requests on as they came. It denies the path as it stands in the request.
func haproxyConfig(lanes []Lane) string {
	var b strings.Builder
	b.WriteString(`global
  nbthread 1
  tune.bufsize 131072
  tune.http.maxhdr 101
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
  timeout http-request 60s
`)
	for i, lane := range lanes {
		fmt.Fprintf(&b, `listen lane%[1]d
  bind 127.0.0.1:%[2]d
  bind 127.0.0.1:%[3]d proto h2
  http-request deny if { path %[5]s } or { path_beg %[5]s/ }
  server upstream 127.0.0.1:%[4]d
`, i, lane.HTTP1, lane.HTTP2, lane.Upstream, cases.DeniedPath)
	}
	return b.String()
}

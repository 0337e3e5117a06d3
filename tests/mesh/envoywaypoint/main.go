// Command envoywaypoint writes the configuration and keys with which a stock Envoy is a waypoint of a local mesh. The configuration is the
// one that an istiod gives a waypoint. The mesh's authority signs the keys. Pods see the directory if a manifest in it is applied.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy/istiod"
)

// configFile is the name of the configuration in the directory.
const configFile = "envoy.json"

// adminPort is where the Envoy answers about itself in its pod.
const adminPort = 15000

func main() {
	name := flag.String("name", "", "the waypoint, as namespace/name; its service account has the same name")
	dir := flag.String("dir", "", "directory to write into")
	shown := flag.String("shown", "", "absolute path of that directory in the waypoint's pods")
	control := flag.String("control", "", "directory of the mesh's control plane, which has the authority")
	services := flag.String("services", "", "file with a list of Services in JSON")
	pods := flag.String("pods", "", "file with a list of Pods in JSON")
	bound := flag.String("bound", "", "names of the services that are bound to the waypoint, with commas")
	flag.Parse()
	if err := write(*name, *dir, *shown, *control, *services, *pods, strings.Split(*bound, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "envoywaypoint:", err)
		os.Exit(1)
	}
}

func write(name, dir, shown, control, servicesFile, podsFile string, bound []string) error {
	var services corev1.ServiceList
	var pods corev1.PodList
	if err := errors.Join(read(servicesFile, &services), read(podsFile, &pods)); err != nil {
		return err
	}
	var objects []*corev1.Service
	for i := range services.Items {
		if slices.Contains(bound, services.Items[i].Name) {
			objects = append(objects, &services.Items[i])
		}
	}
	if len(objects) != len(bound) {
		return fmt.Errorf("%s has %d of the services %s", servicesFile, len(objects), strings.Join(bound, ", "))
	}
	var workloads []envoy.Workload
	for i := range pods.Items {
		pod := &pods.Items[i]
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			return fmt.Errorf("pod %s: status.podIP %q: %w", pod.Name, pod.Status.PodIP, err)
		}
		workloads = append(workloads, envoy.Workload{Pod: pod, Address: address})
	}
	known, err := istiod.Services(objects, workloads, nil)
	if err != nil {
		return err
	}
	config, err := istiod.Bootstrap(istiod.Config{Name: name, Dir: shown, AdminPort: adminPort, Services: known})
	if err != nil {
		return err
	}
	authority, err := envoy.ReadAuthority(filepath.Join(control, "root-cert.pem"), filepath.Join(control, "root-key.pem"), time.Now())
	if err != nil {
		return err
	}
	namespace, account, _ := strings.Cut(name, "/")
	if err := authority.WriteKeys(dir, "spiffe://cluster.local/ns/"+namespace+"/sa/"+account, os.Getuid()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, configFile), config, 0o644); err != nil {
		return err
	}
	// Pods have users of their own.
	for _, file := range []string{envoy.CertificateFile, envoy.KeyFile, envoy.RootsFile, configFile} {
		if err := os.Chmod(filepath.Join(dir, file), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func read(file string, list any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, list); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

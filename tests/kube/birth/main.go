// Command birth measures how long pods take to be born on a cluster, interleaved: in the mesh, outside of it on a node with an agent, and
// on a node without one. It makes one pod at a time, and judges the promise of docs/reference/kubernetes.md; run.sh makes the cluster and
// has the nodes change places.
//
//	go run ./tests/kube/birth -with node1 -without node2 -samples FILE
//	go run ./tests/kube/birth -report FILE
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// promised is the most that the median may be longer in the mesh than without an agent.
const promised = 50 * time.Millisecond

// The kinds of births.
const (
	inMesh  = "in the mesh"
	outside = "outside, on a node with an agent"
	without = "on a node without an agent"
)

// sample is one birth.
type sample struct {
	Kind string `json:"kind"`
	Node string `json:"node"`
	// Round is what it is compared in: the births that followed each other, one of each kind.
	Round string `json:"round"`
	// MS is the time from the request to make the pod until the API server told that its container runs, in milliseconds.
	MS float64 `json:"ms"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "birth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the cluster")
	with := flag.String("with", "", "node with an agent")
	bare := flag.String("without", "", "node without one")
	rounds := flag.Int("rounds", 50, "births of each kind")
	file := flag.String("samples", "", "file that samples are added to")
	report := flag.String("report", "", "say what the samples of this file come to, and measure nothing")
	flag.Parse()
	if *report != "" {
		return judge(*report)
	}
	if *kubeconfig == "" || *with == "" || *bare == "" || *file == "" || *rounds < 1 {
		flag.Usage()
		return errors.New("-kubeconfig, -with, -without and -samples are needed")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(*file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, ns := range namespaces {
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := account(ctx, client, ns.Name); err != nil {
			return err
		}
	}
	places := []sample{{Kind: inMesh, Node: *with}, {Kind: outside, Node: *with}, {Kind: without, Node: *bare}}
	// The first of each meets cold caches and does not count.
	for round := range *rounds + 1 {
		rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		for _, s := range places {
			took, err := birth(ctx, client, fmt.Sprintf("p%d", round), s)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", s.Kind, round, err)
			}
			s.MS, s.Round = float64(took.Microseconds())/1000, fmt.Sprintf("%s/%d", *with, round)
			if round == 0 {
				continue
			}
			if err := json.NewEncoder(out).Encode(s); err != nil {
				return err
			}
		}
	}
	return out.Close()
}

var namespaces = []*corev1.Namespace{
	{ObjectMeta: metav1.ObjectMeta{Name: "birth-mesh", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}},
	{ObjectMeta: metav1.ObjectMeta{Name: "birth-plain"}},
}

// account waits until pods can be made in a namespace.
func account(ctx context.Context, client kubernetes.Interface, namespace string) error {
	for {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// birth makes a pod, waits until its container runs, and removes it again.
func birth(ctx context.Context, client kubernetes.Interface, name string, s sample) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	namespace := "birth-plain"
	if s.Kind == inMesh {
		namespace = "birth-mesh"
	}
	pods := client.CoreV1().Pods(namespace)
	events, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	none := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: s.Node},
			TerminationGracePeriodSeconds: &none,
			Containers:                    []corev1.Container{{Name: "main", Image: "docker.io/local/echo:1", ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "1000"}}},
		},
	}
	began := time.Now()
	if pod, err = pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	running := func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	}
	if err := until(ctx, events, pod, func(e watch.Event, p *corev1.Pod) bool { return running(p) }); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	err = until(ctx, events, pod, func(e watch.Event, _ *corev1.Pod) bool { return e.Type == watch.Deleted })
	// What follows a pod's end on its node is none of the next one's time.
	time.Sleep(300 * time.Millisecond)
	return took, err
}

// until reads events until one of the pod is as wanted.
func until(ctx context.Context, events watch.Interface, pod *corev1.Pod, wanted func(watch.Event, *corev1.Pod) bool) error {
	for {
		select {
		case e, open := <-events.ResultChan():
			if !open {
				return errors.New("the API server ended the watch")
			}
			if p, ok := e.Object.(*corev1.Pod); ok && p.UID == pod.UID && wanted(e, p) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ctx.Err())
		}
	}
}

// judge prints a row for each kind, and what the mesh adds.
func judge(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	of, rounds := map[string][]float64{}, map[string]map[string]float64{}
	for d := json.NewDecoder(f); d.More(); {
		var s sample
		if err := d.Decode(&s); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		of[s.Kind] = append(of[s.Kind], s.MS)
		if rounds[s.Round] == nil {
			rounds[s.Round] = map[string]float64{}
		}
		rounds[s.Round][s.Kind] = s.MS
	}
	fmt.Printf("%-36s %7s %8s %8s %8s %8s %8s\n", "milliseconds from POST until it runs", "births", "min", "P25", "median", "P75", "P95")
	for _, kind := range []string{without, outside, inMesh} {
		v := of[kind]
		if len(v) == 0 {
			return fmt.Errorf("%s: no sample %s", path, kind)
		}
		slices.Sort(v)
		fmt.Printf("%-36s %7d %8.1f %8.1f %8.1f %8.1f %8.1f\n", kind, len(v), v[0], quantile(v, 0.25), quantile(v, 0.5), quantile(v, 0.75), quantile(v, 0.95))
	}
	base := quantile(of[without], 0.5)
	fmt.Printf("medians apart: the mesh adds %.1f ms, the agent alone %.1f ms\n", quantile(of[inMesh], 0.5)-base, quantile(of[outside], 0.5)-base)
	added, low, high := compared(rounds, inMesh)
	alone, aloneLow, aloneHigh := compared(rounds, outside)
	fmt.Printf("in rounds: the mesh adds %.1f ms (95 %% of resamplings: %.1f to %.1f), the agent alone %.1f ms (%.1f to %.1f); promised: at most %d ms\n",
		added, low, high, alone, aloneLow, aloneHigh, promised.Milliseconds())
	if added > float64(promised.Milliseconds()) {
		return errors.New("the promise is broken")
	}
	return nil
}

// quantile is that of sorted values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	next := min(i+1, len(sorted)-1)
	return sorted[i] + (at-float64(i))*(sorted[next]-sorted[i])
}

// compared is by how much a birth of the kind takes longer than the one of the same round on a node without an agent: the median of the
// rounds, and where it lies in 95 of 100 draws from them. What other programs do to the machine meanwhile they do to the whole round.
func compared(rounds map[string]map[string]float64, kind string) (median, low, high float64) {
	var all []float64
	for _, r := range rounds {
		with, there := r[kind]
		bare, too := r[without]
		if there && too {
			all = append(all, with-bare)
		}
	}
	// The order of a map is another each time.
	slices.Sort(all)
	const draws = 2000
	r := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, draws)
	for i := range medians {
		drawn := make([]float64, len(all))
		for k := range drawn {
			drawn[k] = all[r.IntN(len(all))]
		}
		slices.Sort(drawn)
		medians[i] = quantile(drawn, 0.5)
	}
	slices.Sort(medians)
	return quantile(all, 0.5), quantile(medians, 0.025), quantile(medians, 0.975)
}

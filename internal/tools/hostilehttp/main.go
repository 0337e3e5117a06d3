// Command hostilehttp sends hostile requests through a waypoint and through other proxies, compares what reaches the server behind
// each, and plays clients and servers that mean harm. docs/reference/hostile-http.md has the differences and their reasons.
//
// It prints a line "ok - …" or "not ok - …" for each check, and ends with 1 if one failed. The waypoint serves a Service with a port
// for each lane and two more; the servers listen on the same ports in the network of the Service's pod. Other proxies run in the
// network of this process.
package main

import (
	"flag"
	"fmt"
	"os"
	"sync"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/peers"
)

// The run that the page is made of.
const (
	pageSeed  = 1
	pageCases = 3000
)

type options struct {
	seed     uint64
	cases    int
	lanes    int
	waypoint string
	port     int
	client   string
	polite   string
	upstream string
	programs map[peers.Kind]*string
	page     string
	write    bool
	abuse    bool
	measure  int
	play     string
}

func main() {
	o := options{programs: map[peers.Kind]*string{}}
	flag.Uint64Var(&o.seed, "seed", pageSeed, "chooses the requests")
	flag.IntVar(&o.cases, "cases", pageCases, "how many requests")
	flag.IntVar(&o.lanes, "lanes", 12, "how many requests at a time through each proxy")
	flag.StringVar(&o.waypoint, "waypoint", "", "address of a Service that a waypoint serves")
	flag.IntVar(&o.port, "port", 8000, "first port of the Service")
	flag.StringVar(&o.client, "client-netns", "", "file of the network namespace of a captured pod")
	flag.StringVar(&o.polite, "polite-netns", "", "the same of the pod of a polite client; empty is that of -client-netns")
	flag.StringVar(&o.upstream, "upstream-netns", "", "file of the network namespace of the Service's pod")
	for _, kind := range []peers.Kind{peers.Envoy, peers.Nginx, peers.HAProxy} {
		o.programs[kind] = flag.String(string(kind), "", "program to compare with; empty leaves it out")
	}
	flag.StringVar(&o.page, "page", "docs/reference/hostile-http.md", "page with the differences")
	flag.BoolVar(&o.write, "write", false, "write what was observed into the page; reasons stay")
	flag.BoolVar(&o.abuse, "abuse", false, "play clients and servers that mean harm as well")
	flag.IntVar(&o.measure, "measure", 0, "rounds in which to measure what a polite client beside each of the others waits for, in place of all else")
	flag.StringVar(&o.play, "play", "", "play the client of this name until the standard input ends, in place of all else")
	show := flag.Int("show", 0, "print this case and end")
	flag.Parse()
	if *show > 0 {
		c := cases.Generate(o.seed, *show)[*show-1]
		fmt.Printf("%v\n%q\n", c.Rules, c.Bytes)
		return
	}
	if o.play != "" {
		if err := playAlone(o, os.Stdin); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	t := &tally{}
	if err := compare(o, t); err != nil {
		t.check([]string{err.Error()}, "the run goes to its end")
	}
	if t.failed > 0 {
		os.Exit(1)
	}
}

// tally prints checks and counts those that failed.
type tally struct {
	mu     sync.Mutex
	failed int
}

// check prints a check with the problems that make it fail, as far as a reader wants to see them.
func (t *tally) check(problems []string, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(problems) == 0 {
		fmt.Printf("ok - "+format+"\n", args...)
		return
	}
	t.failed++
	fmt.Printf("not ok - "+format+"\n", args...)
	const most = 60
	for i, p := range problems {
		if i == most {
			fmt.Printf("    and %d more\n", len(problems)-most)
			break
		}
		fmt.Println("    " + p)
	}
}

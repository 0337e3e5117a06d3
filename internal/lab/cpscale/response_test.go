package cpscale

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// message makes a response with resources of a size.
func message(t testing.TB, seed uint64, resources, size int) (response, []byte) {
	t.Helper()
	r := response{typeURL: "type.googleapis.com/istio.workload.Address", nonce: fmt.Sprintf("e.%d.1+", seed)}
	m := &discovery.DeltaDiscoveryResponse{TypeUrl: r.typeURL, Nonce: r.nonce, SystemVersionInfo: "7"}
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range resources {
		name := fmt.Sprintf("Kubernetes//Pod/shop/p-%d", i)
		content := make([]byte, random.IntN(size+1))
		m.Resources = append(m.Resources, &discovery.Resource{Name: name, Version: "v", Aliases: []string{"/10.0.0.1", "x"}, Resource: &anypb.Any{TypeUrl: r.typeURL, Value: content}})
		r.resources = append(r.resources, name)
	}
	for i := range resources / 3 {
		name := fmt.Sprintf("gone-%d", i)
		m.RemovedResources = append(m.RemovedResources, name)
		r.removed = append(r.removed, name)
	}
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return r, framed(text)
}

// read feeds bytes in pieces.
func read(data []byte, piece func() int) (got []response, err error) {
	var r reader
	for len(data) > 0 && err == nil {
		n := min(max(1, piece()), len(data))
		err = r.feed(data[:n], func(one response) error { got = append(got, one); return nil })
		data = data[n:]
	}
	return got, err
}

func TestResponsesAreReadHoweverTheyAreCut(t *testing.T) {
	var want []response
	var all []byte
	for i, shape := range [][2]int{{0, 0}, {1, 0}, {3, 10}, {50, 700}, {2, 100_000}, {7, 1}} {
		r, text := message(t, uint64(i), shape[0], shape[1])
		want, all = append(want, r), append(all, text...)
	}
	all = append(all, framed(nil)...)
	want = append(want, response{})
	random := rand.New(rand.NewPCG(1, 2))
	for name, piece := range map[string]func() int{
		"whole": func() int { return len(all) }, "single bytes": func() int { return 1 },
		"frames": func() int { return 16384 }, "at random": func() int { return random.IntN(300) },
	} {
		got, err := read(all, piece)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d of %d responses, %v", name, len(got), len(want), err)
		}
	}
}

func TestWhatIsNoResponseIsRefused(t *testing.T) {
	for name, data := range map[string][]byte{
		"compressed":                   {1, 0, 0, 0, 1, 0},
		"too large":                    {0, 255, 255, 255, 255},
		"a field longer than the rest": append([]byte{0, 0, 0, 0, 3}, 5<<3|2, 9, 'x'),
		"a tag that does not end":      append([]byte{0, 0, 0, 0, 2}, 0x80, 0x80),
		"no field zero":                append([]byte{0, 0, 0, 0, 2}, 2, 0),
	} {
		if got, err := read(data, func() int { return 1 }); err == nil {
			t.Errorf("%s: taken as %v", name, got)
		}
	}
}

func FuzzReader(f *testing.F) {
	for seed := range uint64(3) {
		_, text := message(f, seed, int(seed)*2, 20)
		f.Add(text, uint8(seed+1))
	}
	f.Add([]byte{0, 0, 0, 0, 2, 0x80, 0x80}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		whole, err := read(data, func() int { return len(data) })
		cut, cutErr := read(data, func() int { return int(piece) })
		// Where it fails, what came before may have been handed out in either case.
		if (err == nil) != (cutErr == nil) || !reflect.DeepEqual(whole, cut) {
			t.Fatalf("whole: %v, %v; in pieces of %d: %v, %v", whole, err, piece, cut, cutErr)
		}
		if err != nil || len(whole) != 1 || len(data) < prefix {
			return
		}
		var m discovery.DeltaDiscoveryResponse
		if proto.Unmarshal(data[prefix:], &m) != nil || bytes.ContainsAny(data, "\x0b\x0c") { // groups are read by one of the two alone
			return
		}
		if m.Nonce != whole[0].nonce || !slices.Equal(m.RemovedResources, whole[0].removed) {
			t.Fatalf("protobuf reads %q %q, we read %+v", m.Nonce, m.RemovedResources, whole[0])
		}
	})
}

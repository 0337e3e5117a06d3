package zds

import (
	"testing"
	"testing/quick"

	"google.golang.org/protobuf/proto"

	zdspb "lateen.dev/lateen/internal/gen/zds"
)

func TestReadsAnyReason(t *testing.T) {
	read := func(reason string) bool {
		b, err := proto.Marshal(&zdspb.WorkloadResponse{Payload: &zdspb.WorkloadResponse_Ack{Ack: &zdspb.Ack{Error: reason}}})
		if err != nil {
			return false
		}
		refusal, err := parseResponse(b)
		if reason == "" {
			return err == nil && refusal == nil
		}
		return err == nil && refusal != nil && refusal.Reason == reason
	}
	if err := quick.Check(read, nil); err != nil {
		t.Error(err)
	}
	if !read("") {
		t.Error("an acknowledgement without a reason is no success")
	}
}

// The bytes of an unmodified ztunnel's messages, so that both sides of a change to the contract are noticed.
func TestKnowsTheBytesOnTheWire(t *testing.T) {
	if err := parseHello([]byte{0x08, 0x01}); err != nil {
		t.Error(err)
	}
	if refusal, err := parseResponse([]byte{0x0a, 0x00}); refusal != nil || err != nil {
		t.Errorf("%v, %v", refusal, err)
	}
	for request, want := range map[string][]byte{
		"snapshot_sent": {0x1a, 0x00},
		"del":           {0x12, 0x03, 0x12, 0x01, 'u'},
		"keep":          {0x2a, 0x03, 0x0a, 0x01, 'u'},
	} {
		m := map[string]*zdspb.WorkloadRequest{
			"snapshot_sent": snapshotSentRequest(), "del": deleteRequest("u"), "keep": addRequest(Workload{UID: "u"}),
		}[request]
		if got, err := encode(m); err != nil || string(got) != string(want) {
			t.Errorf("%s: % x, %v; want % x", request, got, err, want)
		}
	}
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte{0x0a, 0x00})
	f.Add([]byte{0x0a, 0x04, 0x0a, 0x02, 'n', 'o'})
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		refusal, err := parseResponse(b)
		if refusal != nil && (err != nil || refusal.Reason == "") {
			t.Errorf("refusal %v with error %v", refusal, err)
		}
	})
}

func FuzzParseHello(f *testing.F) {
	f.Add([]byte{0x08, 0x01})
	f.Add([]byte{0x08, 0x02})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if parseHello(b) == nil {
			var hello zdspb.ZdsHello
			if err := proto.Unmarshal(b, &hello); err != nil || hello.Version != zdspb.Version_V1 {
				t.Errorf("accepted % x: %v, %v", b, hello.Version, err)
			}
		}
	})
}

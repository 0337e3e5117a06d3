package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

func TestBlamed(t *testing.T) {
	names := []string{"shop/web", "shop/web-2", "Kubernetes//Pod/shop/web"}
	for message, want := range map[string][]string{
		"shop/web-2: no such scope":                   {"shop/web-2"},
		"shop/web: no such scope":                     {"shop/web"},
		"no use for shop/web.":                        {"shop/web"},
		"no use for shop/web.example.com":             nil,
		"Kubernetes//Pod/shop/web is odd":             {"Kubernetes//Pod/shop/web"},
		"shop/web-2 and shop/web, both":               {"shop/web", "shop/web-2"},
		"\"shop/web\"":                                {"shop/web"},
		"something is wrong":                          nil,
		"shop/webshop/web x":                          nil,
		"shop/web-2 before; Kubernetes//Pod/shop/web": {"shop/web-2", "Kubernetes//Pod/shop/web"},
	} {
		found, whole := blamed(message, names)
		if whole != (want != nil) || !slices.Equal(found, want) {
			t.Errorf("%q blames %v (whole: %v), want %v", message, found, whole, want)
		}
	}
}

// One pass over a text finds what a search for each name does.
func TestMentionedIsWhatMentionsFinds(t *testing.T) {
	names := []string{"", "a", "a.b", "shop/*.x", "shop/a", "shop/a-b", "x/::1"}
	parts := append([]string{".", " ", "; ", "-", "/", "é", ":"}, names...)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		text := ""
		for range rng.IntN(6) {
			text += parts[rng.IntN(len(parts))]
		}
		var want []string
		for _, n := range names {
			if Mentions(text, n) {
				want = append(want, n)
			}
		}
		m := newMentions(names)
		whole := m.read(text)
		if got := m.found(); !whole || !slices.Equal(got, want) {
			t.Fatalf("%q speaks of %q, want %q", text, got, want)
		}
	}
}

// What a client writes costs a look-up or two for each of its words, however many names there are and of however many lengths.
func TestReadingAComplaintTakesNoMoreLookUpsThanItHasBytes(t *testing.T) {
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("shop-%d/%s.example.com", i, strings.Repeat("w", i%250)))
	}
	for what, text := range map[string]string{
		"spaces":         strings.Repeat(" ", maxRead),
		"first bytes":    strings.Repeat("s ", maxRead/2),
		"one long word":  strings.Repeat("s", maxRead),
		"a name's parts": strings.Repeat(" shop-1/w.example.com.", maxRead/22),
		"dots":           strings.Repeat(".", maxRead),
	} {
		m := newMentions(names)
		if whole := m.read(text); !whole || m.looked > len(text) {
			t.Errorf("%s: %d look-ups for %d bytes, and read whole: %v", what, m.looked, len(text), whole)
		}
	}
	// No resource is called so. Such names may mean anything, and still cost no more.
	names = nil
	for i := range 250 {
		names = append(names, strings.Repeat(":", i+1))
	}
	names = append(names, "other")
	m := newMentions(names)
	text := strings.Repeat(":", maxRead)
	if whole := m.read(text); whole || m.looked > maxLooked*len(text)+1 {
		t.Errorf("%d look-ups for %d bytes, and read whole: %v", m.looked, len(text), whole)
	}
	n := complaint(&rpcstatus.Status{Message: text}, names)
	if !slices.Equal(n.Unnamed, []string{"other"}) {
		t.Errorf("a text that was not read to its end may mean %q", n.Unnamed)
	}
}

func badRequest(t *testing.T, fields ...string) *anypb.Any {
	t.Helper()
	request := &errdetails.BadRequest{}
	for _, f := range fields {
		request.FieldViolations = append(request.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f})
	}
	detail, err := anypb.New(request)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// What is refused and what may be: nothing of a response that a complaint may mean counts as taken.
func TestAComplaintIsOfWhatItNamesAndMayBeOfTheRest(t *testing.T) {
	names := []string{"shop/a", "shop/b", "shop/c", "shop/d"}
	rest := func(of ...string) (out []string) {
		for _, n := range names {
			if !slices.Contains(of, n) {
				out = append(out, n)
			}
		}
		return out
	}
	tests := map[string]struct {
		names          []string // empty: all
		error          *rpcstatus.Status
		named, unnamed []string
	}{
		"all in the text":         {nil, &rpcstatus.Status{Message: "shop/b: no; shop/a: no"}, []string{"shop/a", "shop/b"}, nil},
		"more than in the text":   {nil, &rpcstatus.Status{Message: "shop/b: no; and 2 more"}, []string{"shop/b"}, rest("shop/b")},
		"counted in a reason":     {nil, &rpcstatus.Status{Message: "shop/a: expected a port and 1 more address; shop/b: one label and 2 others: no"}, []string{"shop/a", "shop/b"}, nil},
		"more, with a full stop":  {nil, &rpcstatus.Status{Message: "shop/b: no, and 2 others."}, []string{"shop/b"}, rest("shop/b")},
		"far into a long text":    {nil, &rpcstatus.Status{Message: "shop/a: " + strings.Repeat("x", maxComplaint) + "; shop/b: no"}, []string{"shop/a", "shop/b"}, nil},
		"nothing":                 {nil, &rpcstatus.Status{Message: "no"}, nil, names},
		"without a word":          {nil, &rpcstatus.Status{}, nil, names},
		"the only one":            {[]string{"shop/a"}, &rpcstatus.Status{Message: "no"}, []string{"shop/a"}, nil},
		"cut before the last one": {nil, &rpcstatus.Status{Message: "shop/a: " + strings.Repeat("x", maxRead) + "; shop/b: no"}, []string{"shop/a"}, rest("shop/a")},
		"cut, with details":       {nil, &rpcstatus.Status{Message: "shop/a: " + strings.Repeat("x", maxComplaint), Details: []*anypb.Any{badRequest(t, "shop/d", "shop/a")}}, []string{"shop/a", "shop/d"}, nil},
		"details":                 {nil, &rpcstatus.Status{Message: "shop/a: no; and 2 more", Details: []*anypb.Any{badRequest(t, "shop/a", "shop/d", "shop/c")}}, []string{"shop/a", "shop/c", "shop/d"}, nil},
		"details without room":    {nil, &rpcstatus.Status{Message: "shop/a: no", Details: []*anypb.Any{badRequest(t, "shop/a", "shop/b", "")}}, []string{"shop/a", "shop/b"}, rest("shop/a", "shop/b")},
		"of something else":       {nil, &rpcstatus.Status{Message: "shop/c: no", Details: []*anypb.Any{badRequest(t, "address.hostname")}}, []string{"shop/c"}, nil},
		"one of something else":   {nil, &rpcstatus.Status{Message: "shop/c: no", Details: []*anypb.Any{badRequest(t, "shop/a", "else")}}, []string{"shop/a", "shop/c"}, rest("shop/a", "shop/c")},
		"details that are none":   {nil, &rpcstatus.Status{Message: "shop/c: no", Details: []*anypb.Any{{TypeUrl: badRequest(t).TypeUrl, Value: []byte{0xff}}}}, []string{"shop/c"}, nil},
		"no names in the details": {nil, &rpcstatus.Status{Message: "no", Details: []*anypb.Any{badRequest(t)}}, nil, names},
	}
	for name, tt := range tests {
		of := tt.names
		if of == nil {
			of = names
		}
		n := complaint(tt.error, of)
		if !slices.Equal(n.Names, tt.named) || !slices.Equal(n.Unnamed, tt.unnamed) || n.Others != len(tt.unnamed) {
			t.Errorf("%s: refused are %v and maybe %v (%d), want %v and %v", name, n.Names, n.Unnamed, n.Others, tt.named, tt.unnamed)
		}
	}
}

// What is not known to be taken stays so until a later version is.
func TestWhatAComplaintMayMeanIsNotTaken(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("a", "10.0.0.1", 1), w.service("b", "10.0.0.2", 1), w.service("c", "10.0.0.3", 1))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.settle()
	c.follow(resourcekind.Address)
	c.receive()
	c.answer(resourcekind.Address, "resource a: hostname is empty; and 1 more")
	got := c.session.States()[1].Refused
	if len(got) != 1 || !slices.Equal(got[0].Names, []string{"a"}) || !slices.Equal(got[0].Unnamed, []string{"b", "c"}) || got[0].Others != 2 {
		t.Fatalf("refused are %+v", got)
	}
	w.apply(w.service("b", "10.0.0.2", 2))
	c.settle()
	if got = c.session.States()[1].Refused; len(got) != 1 || !slices.Equal(got[0].Names, []string{"a"}) || !slices.Equal(got[0].Unnamed, []string{"c"}) || got[0].Others != 1 {
		t.Errorf("refused are %+v after b was taken", got)
	}
}

// What a client says is shown on terminals.
func TestAClientsWordsAreOnePlainLine(t *testing.T) {
	for said, want := range map[string]string{
		"shop/a: no":                    "shop/a: no",
		"a\nb\r\tc":                     "a b  c",
		"\x1b[2J\x1b]0;x\x07y\u009b1m":  " [2J ]0;x y 1m",
		"\u202eevil\u2066 \u200b\u2028": " evil    ",
		"größer, 大きい":                   "größer, 大きい",
		"\x00":                          " ",
	} {
		if got := clip(said, maxComplaint); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
		if got := complaint(&rpcstatus.Status{Message: said}, nil).Message; got != want {
			t.Errorf("the complaint %q becomes %q, want %q", said, got, want)
		}
	}
	s := NewSession(resourcelog.New(time.Now, resourcekind.Mesh), "e", DefaultLimits)
	defer s.Close()
	if err := s.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, Node: &core.Node{Id: "a\x1b[0mb", UserAgentName: "c\nd"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := s.Node(); n.GetId() != "a [0mb" || n.GetUserAgentName() != "c d" {
		t.Errorf("it calls itself %q, %q", n.GetId(), n.GetUserAgentName())
	}
}

// Whatever a client says, each resource of the response is refused, may be refused, or was taken, and only one of these.
func FuzzComplaint(f *testing.F) {
	f.Add("shop/a: no; and 3 more", []byte(nil))
	f.Add("no", []byte("\x0a\x08\x0a\x06shop/a"))
	f.Add("\x1b[2J shop/b", []byte("\x0a\x00"))
	f.Fuzz(func(t *testing.T, message string, detail []byte) {
		names := []string{"shop/a", "shop/b", "shop/c"}
		n := complaint(&rpcstatus.Status{Message: message, Details: []*anypb.Any{{TypeUrl: "type.googleapis.com/google.rpc.BadRequest", Value: detail}}}, names)
		all := slices.Concat(n.Names, n.Unnamed)
		slices.Sort(all)
		if len(all) == 0 || len(slices.Compact(slices.Clone(all))) != len(all) || slices.ContainsFunc(all, func(name string) bool { return !slices.Contains(names, name) }) {
			t.Errorf("refused are %v, maybe %v", n.Names, n.Unnamed)
		}
		if !utf8.ValidString(n.Message) || len(n.Message) > maxComplaint || strings.ContainsFunc(n.Message, unicode.IsControl) {
			t.Errorf("kept %q", n.Message)
		}
	})
}

// A refusal is of one version: it holds until the mesh has another one or none, or the client takes what it was given.
func TestARefusalEndsWithTheVersionThatItIsOf(t *testing.T) {
	l := resourcelog.New(time.Now, resourcekind.Mesh)
	generation := uint64(0)
	put := func(name, content string) {
		t.Helper()
		r, err := resourcelog.Encode(resourcekind.Authorization, name, nil, nil, &security.Authorization{Name: content})
		if err != nil {
			t.Fatal(err)
		}
		generation++
		l.Append(generation, []resourcelog.Change{{Type: resourcekind.Authorization, Name: name, Resource: r}})
	}
	s := NewSession(l, "e", DefaultLimits)
	defer s.Close()
	handle := func(r *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		r.TypeUrl = resourcekind.Authorization
		if err := s.Handle(r, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(complaint string) {
		t.Helper()
		response := s.Next(time.Now())
		if response == nil {
			t.Fatal("nothing to answer")
		}
		r := &discovery.DeltaDiscoveryRequest{ResponseNonce: response.Nonce.String()}
		if complaint != "" {
			r.ErrorDetail = &rpcstatus.Status{Message: complaint}
		}
		handle(r)
	}
	refused := func() (names []string) {
		for _, n := range s.States()[0].Refused {
			if n.Others != 0 {
				t.Error("a refusal that names what it means is held to mean more")
			}
			names = append(names, n.Names...)
		}
		return names
	}
	put("shop/a", "1")
	put("shop/b", "1")
	handle(&discovery.DeltaDiscoveryRequest{})
	answer("shop/a: no")
	if got := refused(); !slices.Equal(got, []string{"shop/a"}) {
		t.Fatalf("refused are %v", got)
	}
	put("shop/b", "2")
	answer("")
	if got := refused(); !slices.Equal(got, []string{"shop/a"}) {
		t.Errorf("what the client did not take was forgotten with another resource: %v", got)
	}
	put("shop/a", "2")
	if got := refused(); len(got) != 0 {
		t.Errorf("a version that is gone is still refused: %v", got)
	}
	answer("shop/a: no")
	if got := refused(); !slices.Equal(got, []string{"shop/a"}) {
		t.Errorf("refused are %v", got)
	}
	put("shop/a", "3")
	answer("")
	if got := refused(); len(got) != 0 {
		t.Errorf("a version that was taken is refused: %v", got)
	}
	put("shop/a", "4")
	answer("shop/a: no")
	generation++
	l.Append(generation, []resourcelog.Change{{Type: resourcekind.Authorization, Name: "shop/a"}})
	if got := refused(); len(got) != 0 {
		t.Errorf("what the mesh no longer has is refused: %v", got)
	}
}

package rest

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func query(t *testing.T, text string) url.Values {
	t.Helper()
	v, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestARequestBecomesTheGeneratorsCommandLine(t *testing.T) {
	for _, c := range []struct{ query, body, want string }{
		{"url=http://a/", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --duration=5000ms --warmup=0ms"},
		{"url=a:80/x&qps=-1&c=2&n=7", "", "run --url=http://a:80/x --qps=0 --connections=2 --arrivals=uniform --timeout=3000ms --requests=7"},
		{"url=http://a/&t=on&warmup=2s", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --duration=31536000000ms --warmup=2000ms"},
		{"url=http://a/&n=1&jitter=on&timeout=1500us", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=jitter --timeout=1500us --requests=1"},
		{"url=http://a/&n=1&arrivals=poisson", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=poisson --timeout=3000ms --requests=1"},
		{"url=http://a/&n=1&connection-reuse=9:3", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --requests-per-connection=3:9"},
		{"url=http://a/&n=1&H=Connection:close&connection-reuse=9", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --no-keepalive"},
		{"url=https://a/&n=1&h2=on&https-insecure=on&X=PUT", "", "run --url=https://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --http2 --insecure --method=PUT"},
		{"url=https://a:8443/&n=1&resolve=::1", "", "run --url=https://[::1]:8443/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --server-name=a --header=Host: a:8443"},
		{"url=http://a/&n=1&resolve=10.0.0.1&H=Host:b", "", "run --url=http://10.0.0.1/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --header=Host: b"},
		{"runner=grpc&url=a:8079&n=1&grpc-secure=on", "", "run --url=grpcs://a:8079/grpc.health.v1.Health/Check --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
		{"runner=grpc&url=http://a:8079&n=1", "", "run --url=grpc://a:8079/grpc.health.v1.Health/Check --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
		{"runner=grpc&url=a&n=1&ping=on", "", "run --url=grpc://a:8079 --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
		{"url=grpc://a/&n=1", "", "run --url=grpc://a --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
		{"runner=grpc&url=grpc://a/p.S/M&n=1", "", "run --url=grpc://a/p.S/M --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
		{"url=tcp://a:8078&n=1", "", "run --url=tcp://a:8078 --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --body-size=24"},
		{"url=tcp://a:8078&n=1&payload=x", "", "run --url=tcp://a:8078 --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1 --body=x"},
		{"n=2", `{"url": "http://a/", "qps": 0.5, "c": 3, "n": "9", "jitter": true, "headers": ["A: 1"], "payload": "--x"}`, "run --url=http://a/ --qps=0.5 --connections=3 --arrivals=jitter --timeout=3000ms --requests=2 --body=--x --header=A: 1"},
		{"jsonPath=.m.l&n=1", `{"m": {"l": {"url": "http://a/"}}}`, "run --url=http://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
		// What Fortio reads and this server need not act upon.
		{"url=http://a/&n=1&nocatchup=on&stdclient=on&sequential-warmup=on&log-errors=on&r=0.1&p=1,2&labels=x&async=on&save=on&uniform=off", "", "run --url=http://a/ --qps=8 --connections=4 --arrivals=uniform --timeout=3000ms --requests=1"},
	} {
		r, err := ParseRequest(query(t, c.query), []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		got, _, _ := strings.Cut(strings.Join(r.Arguments(), " "), " --fortio-resolution")
		if _, fields, ok := strings.Cut(strings.Join(r.Arguments(), " "), " --header"); ok {
			got += " --header" + fields
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.query, got, c.want)
		}
	}
}

func TestARequestIsRefusedWithTheKeyAndTheFix(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, c := range []struct{ query, body, want string }{
		{"", "", "URL is required"},
		{"url=%20", "", "URL is required"},
		{"url=file:///etc/passwd", "", "parsing url: file:// is no target for load"},
		{"url=udp://a:1", "", "udp:// is no target"},
		{"url=javascript://a", "", "use http, https, grpc, grpcs or tcp"},
		{"url=http:///x", "", "names no host"},
		{"url=tcp://a", "", "names no port"},
		{"url=http://u:p@a/", "", "Authorization"},
		{"url=http://a/%0d%0aX", "", "parsing url"},
		{"url=grpc://a&runner=http", "", "does not go with runner=http"},
		{"url=a&runner=udp", "", "parsing runner: udp is not offered"},
		{"url=a&runner=x", "", "use http, grpc or tcp"},
		{"url=a&qps=many", "", `parsing qps: "many" is not a number`},
		{"url=a&qps=nan", "", "parsing qps"},
		{"url=a&qps=1e9", "", "from -1e+06 to 1e+06"},
		{"url=a&c=1000000", "", "parsing c: 1000000: write a whole number from 0 to 10000"},
		{"url=a&c=-1", "", "parsing c"},
		{"url=a&n=1.5", "", "not a whole number"},
		{"url=a&t=soon", "", "parsing duration: time: invalid duration"},
		{"url=a&t=-5s", "", "parsing duration: -5s"},
		{"url=a&t=9000h", "", "a year"},
		{"url=a&timeout=x", "", "parsing timeout"},
		{"url=a&qps=0.00001", "", "write at least 0.001"},
		{"url=a&r=-1", "", "parsing r"},
		{"url=a&r=1e-12", "", "at least 1e-09 seconds"},
		{"url=a&p=50,x", "", `parsing p: "x"`},
		{"url=a&p=100", "", "must be > 0 and < 100"},
		{"url=a&p=" + strings.Repeat("5,", 40), "", "at most 32"},
		{"url=a&async=yes", "", `parsing async: "yes": write on or off`},
		{"url=a&jitter=on&arrivals=poisson", "", "ask for one"},
		{"url=a&arrivals=x", "", "uniform, poisson or jitter"},
		{"url=a&connection-reuse=x", "", "MIN:MAX"},
		{"url=a&connection-reuse=1:2:3", "", "MIN:MAX"},
		{"url=a&resolve=b", "", "not an IP address"},
		{"url=a&X=P%20T", "", "parsing X"},
		{"url=tcp://a:1&X=PUT", "", "has no methods"},
		{"url=grpc://a:1&h2=on", "", "is no HTTP"},
		{"url=tcp://a:1&H=A:b", "", "has no fields"},
		{"runner=grpc&url=a&grpc-ping-delay=1ms", "", "parsing grpc-ping-delay"},
		{"runner=grpc&url=a&healthservice=x", "", "parsing healthservice"},
		{"url=a&H=nocolon", "", "expecting Key: Value"},
		{"url=a&H=A%20B:c", "", "not a field's name"},
		{"url=a&H=A:b%0d%0aC:d", "", "control characters"},
		{"url=a&H=Content-Length:4", "", "follows from the payload"},
		{"url=a&H=Connection:upgrade", "", "only close and keep-alive"},
		{"url=a&" + strings.Repeat("H=A:b&", 65), "", "at most 64"},
		{"url=a&labels=" + long[:600], "", "parsing labels: 600 bytes; at most 512"},
		{"url=a", `{"payload": "` + long + `"}`, "parsing payload"},
		{"url=a%00b", "", "NUL byte"},
		{"url=a", "{", "body json deserialization error: unexpected end of JSON input"},
		{"url=a", "[]", "body json deserialization error"},
		{"url=a&jsonPath=.b", "{}", `"b" not found in json`},
		{"url=a&jsonPath=.b.c", `{"b": 1}`, `"b" path is not a map`},
		{"", `{"url": ["a"]}`, "write a string"},
		{"url=a", `{"headers": "A: b"}`, "an array of strings"},
		{"url=a", `{"headers": [1]}`, "must be an array of strings"},
	} {
		_, err := ParseRequest(query(t, c.query), []byte(c.body))
		var refusal *Refusal
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s %.40s: %v; want a refusal with %q", c.query, c.body, err, c.want)
		}
	}
}

func TestPercentilesAreFortiosUnlessTheyAreNamed(t *testing.T) {
	for text, want := range map[string][]float64{"url=a": defaultPercentiles, "url=a&p=": {}, "url=a&p=50,%2099.5": {50, 99.5}} {
		r, err := ParseRequest(query(t, text), nil)
		if err != nil || !slices.Equal(r.Percentiles, want) {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
}

func TestIdentifiersAreFortios(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for labels, want := range map[string]string{
		"": "2026-01-02-030405_7", "a b": "2026-01-02-030405_7_a_b", "  x - y!": "2026-01-02-030405_7_x_y", "../../etc/passwd": "2026-01-02-030405_7_etc_passwd",
		"é": "2026-01-02-030405_7", strings.Repeat("l", 200): "2026-01-02-030405_7_" + strings.Repeat("l", 76),
	} {
		if got := resultName(at, 7, labels); got != want || !validName(got) {
			t.Errorf("%q: %s, want %s", labels, got, want)
		}
	}
}

// FuzzParseRequest: nothing that comes in makes the parser fail otherwise than by a refusal, and whatever it takes makes a command
// line of flags alone, within bounds.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range [][2]string{
		{"url=http://a/&qps=100&c=4&t=5s&save=on&async=on&labels=x", ""},
		{"runner=grpc&url=a:8079&n=1&grpc-secure=on&ping=on", ""},
		{"jsonPath=.m.l", `{"m": {"l": {"url": "http://a/", "qps": "-1", "n": 5, "headers": ["A: b", "Connection: close"], "payload": "x", "jitter": true}}}`},
		{"url=https://a:8443/&resolve=::1&connection-reuse=2:3&p=50,99&r=0.1&X=PUT&H=A:b&H=B:c", ""},
		{"url=tcp://[::1]:80&payload=--url=file:///&timeout=1s&arrivals=poisson&warmup=1s", ""},
		{"url=file:///etc/passwd", "{"},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		v, err := url.ParseQuery(text)
		if err != nil {
			return // what is no query string never reaches the parser
		}
		r, err := ParseRequest(v, body)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Message == "" {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}
		if !slices.Contains([]string{"http", "https", "grpc", "grpcs", "tcp"}, r.Target.Scheme) || r.Target.Hostname() == "" || r.Target.User != nil {
			t.Fatalf("target %q", r.Target)
		}
		if r.Connections < 1 || r.Connections > maxConnections || r.QPS > maxRate || r.QPS == 0 || r.Duration == 0 || len(r.Percentiles) > maxPercentiles {
			t.Fatalf("out of bounds: %+v", r)
		}
		for i, arg := range r.Arguments() {
			if i > 0 && (!strings.HasPrefix(arg, "--") || len(arg) > 3*maxPayload) || strings.ContainsRune(arg, 0) {
				t.Fatalf("argument %d: %q", i, arg)
			}
		}
		if !validName(resultName(time.Unix(1e9, 0), 1, r.Labels)) {
			t.Fatalf("labels %q make no identifier", r.Labels)
		}
	})
}

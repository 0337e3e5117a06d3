package bookinfo_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fake is a service made of a function.
func fake(t *testing.T, answer http.HandlerFunc) *fakeService {
	t.Helper()
	f := &fakeService{}
	f.server = httptest.NewUnstartedServer(answer)
	f.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			f.connections.Add(1)
		}
	}
	f.server.Start()
	t.Cleanup(f.server.Close)
	_, f.port, _ = net.SplitHostPort(f.server.Listener.Addr().String())
	return f
}

type fakeService struct {
	server      *httptest.Server
	port        string
	connections atomic.Int32
}

func json200(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) }
}

const (
	someDetails = `{"id":0,"author":"A. <b>Author</b>","year":1595}`
	noStars     = `{"id":"0","podname":"reviews-v1-x","reviews":[{"reviewer":"R1","text":"good"},{"reviewer":"R2","text":"bad"}]}`
	redStars    = `{"id":"0","podname":"reviews-v3-x","reviews":[{"reviewer":"R1","text":"good","rating":{"stars":4,"color":"red"}}]}`
	unrated     = `{"id":"0","podname":"reviews-v2-x","reviews":[{"reviewer":"R1","text":"good","rating":{"error":"ratings is not available"}}]}`
)

func TestTheWholeOfBookinfo(t *testing.T) {
	d := start(t, details)
	r := start(t, ratings)
	v := start(t, reviews, append(at("RATINGS", r.port), "ENABLE_RATINGS=true", "STAR_COLOR=black", "POD_NAME=reviews-v2-0")...)
	settings := append(at("DETAILS", d.port), append(at("REVIEWS", v.port), at("RATINGS", r.port)...)...)
	p := start(t, productpage, settings...)
	status, body := get(t, p.url+"/productpage?u=normal")
	expect(t, "page", status, body, 200, "The Comedy of Errors", "William Shakespeare", "★★★★★", "★★★★☆", "stars black", "reviews-v2-0")
	status, body = get(t, p.url+"/api/v1/products")
	expect(t, "products", status, body, 200, "The Comedy of Errors")
	status, body = get(t, p.url+"/api/v1/products/0")
	expect(t, "details", status, body, 200, "William Shakespeare")
	status, body = get(t, p.url+"/api/v1/products/0/reviews")
	expect(t, "reviews", status, body, 200, "Reviewer1")
	status, body = get(t, p.url+"/api/v1/products/0/ratings")
	expect(t, "ratings", status, body, 200, "Reviewer1")
	status, body = get(t, p.url+"/api/v1/products/abc")
	expect(t, "no number", status, body, 400, "must be a number")
	status, body = get(t, p.url+"/")
	expect(t, "front page", status, body, 200, "/productpage?u=normal")
	status, _ = get(t, p.url+"/other")
	if status != 404 {
		t.Errorf("unknown path: %d", status)
	}
	for _, log := range []struct{ log, want string }{
		{d.log.String(), "GET /details/0 200"}, {v.log.String(), "GET /reviews/0 200"}, {p.log.String(), "GET /productpage?u=normal 200"},
	} {
		if !strings.Contains(log.log, log.want) {
			t.Errorf("%q is missing from the log:\n%s", log.want, log.log)
		}
	}
}

func TestThePageShowsWhatTheServicesSay(t *testing.T) {
	var reviewsAnswer atomic.Value
	reviewsAnswer.Store(noStars)
	d := fake(t, json200(someDetails))
	v := fake(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(reviewsAnswer.Load().(string))) })
	p := start(t, productpage, append(at("DETAILS", d.port), at("REVIEWS", v.port)...)...)

	_, page := get(t, p.url+"/productpage")
	expect(t, "without stars", 200, page, 200, "<dt>Author</dt>", "A. &lt;b&gt;Author", "good", "bad", "reviews-v1-x")
	if strings.Contains(page, "★") || strings.Contains(page, "<b>Author") {
		t.Errorf("stars or markup where there are none:\n%s", page)
	}
	reviewsAnswer.Store(redStars)
	_, page = get(t, p.url+"/productpage")
	expect(t, "red stars", 200, page, 200, "★★★★☆", "stars red")
	reviewsAnswer.Store(unrated)
	_, page = get(t, p.url+"/productpage")
	expect(t, "no ratings", 200, page, 200, "good", "ratings is not available")
	reviewsAnswer.Store("not json")
	status, page := get(t, p.url+"/productpage")
	expect(t, "nonsense", status, page, 200, "reviews did not answer with a JSON object", "<dt>Author</dt>")
}

func TestWhatIsDownOrSlowIsSaidAndDoesNotTakeThePageDown(t *testing.T) {
	release := make(chan struct{})
	d := fake(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	var calls atomic.Int32
	v := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		w.Write([]byte(noStars))
	})
	settings := append(at("DETAILS", d.port), append(at("REVIEWS", v.port), at("RATINGS", freePort(t))...)...)
	p := start(t, productpage, settings...)
	begin := time.Now()
	status, page := get(t, p.url+"/productpage")
	expect(t, "page", status, page, 200, "details took too long", "good")
	if took := time.Since(begin); took < 3*time.Second || took > 30*time.Second {
		t.Errorf("the page took %v, want three seconds of patience with details", took)
	}
	if calls.Load() != 2 {
		t.Errorf("reviews was asked %d times, want twice", calls.Load())
	}
	status, body := get(t, p.url+"/api/v1/products/0/ratings")
	expect(t, "nothing listens", status, body, 503, "ratings cannot be reached")
}

func TestTheUserAndTheTraceTravelOn(t *testing.T) {
	headers := make(chan http.Header, 8)
	d := fake(t, func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Clone()
		w.Write([]byte(someDetails))
	})
	v := fake(t, json200(noStars))
	p := start(t, productpage, append(at("DETAILS", d.port), at("REVIEWS", v.port)...)...)

	request, _ := http.NewRequest(http.MethodPost, p.url+"/login", strings.NewReader("username=%3Cb%3Ejason&passwd=x"))
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cookies := response.Cookies()
	if response.StatusCode != 302 || len(cookies) != 1 {
		t.Fatalf("login: %d %v", response.StatusCode, cookies)
	}
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	_, page := get(t, p.url+"/productpage", "cookie", cookies[0].Name+"="+cookies[0].Value, "traceparent", trace, "x-request-id", "id-1", "x-other", "no")
	expect(t, "user", 200, page, 200, "&lt;b&gt;jason", "Sign out")
	header := <-headers
	if header.Get("end-user") != "%3Cb%3Ejason" || header.Get("traceparent") != trace || header.Get("x-request-id") != "id-1" {
		t.Errorf("details was asked with %v", header)
	}
	if header.Get("x-other") != "" || header.Get("cookie") != "" {
		t.Errorf("too much travels on: %v", header)
	}
	request, _ = http.NewRequest(http.MethodGet, p.url+"/logout", nil)
	if response, err = http.DefaultTransport.RoundTrip(request); err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if cookies = response.Cookies(); response.StatusCode != 302 || len(cookies) != 1 || cookies[0].MaxAge >= 0 {
		t.Errorf("logout: %d %v", response.StatusCode, cookies)
	}
	for body, want := range map[string]int{"": 400, "username=": 400, "username=" + strings.Repeat("x", 20000): 413} {
		if status, answer := post(t, p.url+"/login", body); status != want {
			t.Errorf("login with %.20q: %d, want %d: %s", body, status, want, answer)
		}
	}
}

func TestModesDifferInConnections(t *testing.T) {
	for _, mode := range []struct {
		settings  []string
		keepAlive bool
		pooled    bool
	}{
		{[]string{"MODE=old"}, false, false},
		{[]string{"MODE=new", "WORKERS=1"}, true, false},
		{[]string{"MODE=new", "WORKERS=1", "POOL=1"}, true, true},
	} {
		t.Run(strings.Join(mode.settings, " "), func(t *testing.T) {
			d, v := fake(t, json200(someDetails)), fake(t, json200(noStars))
			p := start(t, productpage, append(append(at("DETAILS", d.port), at("REVIEWS", v.port)...), mode.settings...)...)
			connection, err := net.Dial("tcp", "127.0.0.1:"+p.port)
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			requests := int32(5)
			for i := range requests {
				reads, _, err := exchange(connection, "/productpage")
				if err != nil {
					if mode.keepAlive || i == 0 {
						t.Fatalf("request %d: %v", i, err)
					}
					return
				}
				proto := strings.SplitN(string(joined(reads)), " ", 2)[0]
				if want := map[bool]string{true: "HTTP/1.1", false: "HTTP/1.0"}[mode.keepAlive]; proto != want {
					t.Fatalf("speaks %s, want %s", proto, want)
				}
			}
			if !mode.keepAlive {
				t.Fatal("the connection outlived its first request")
			}
			want := requests
			if mode.pooled {
				want = 1
			}
			if got := d.connections.Load(); got != want {
				t.Errorf("%d connections to details for %d pages, want %d", got, requests, want)
			}
		})
	}
}

func TestAPooledConnectionThatWasClosedMeanwhileIsReplaced(t *testing.T) {
	d, v := fake(t, json200(someDetails)), fake(t, json200(noStars))
	p := start(t, productpage, append(append(at("DETAILS", d.port), at("REVIEWS", v.port)...), "WORKERS=1", "POOL=1")...)
	connection, err := net.Dial("tcp", "127.0.0.1:"+p.port)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	for range 3 {
		reads, _, err := exchange(connection, "/productpage")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "page", 200, string(joined(reads)), 200, "<dt>Author</dt>")
		d.server.CloseClientConnections()
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for _, c := range []struct {
		command  []string
		settings string
	}{
		{productpage, "MODE=newest"}, {productpage, "POOL=2"}, {productpage, "WORKERS=x"},
		{details, "NODELAY=2"}, {details, "WRITES=3"}, {details, "PORT=x"},
		{ratings, "SERVICE_VERSION=v9"}, {ratings, "FAULT_DELAY_MS=-1"},
		{reviews, "ENABLE_RATINGS=maybe"}, {reviews, "STAR_COLOR=#f00"},
	} {
		name := strings.SplitN(c.settings, "=", 2)[0]
		output, err := failing(t, c.command, c.settings)
		if err == nil || !strings.Contains(output, name) {
			t.Errorf("%v with %s: %v: %s", c.command, c.settings, err, output)
		}
	}
}

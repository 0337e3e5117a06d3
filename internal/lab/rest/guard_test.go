package rest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOnlyRequestsMadeForThisServerAndByItsOwnPagesAreAnswered(t *testing.T) {
	web, s := start(t, func(o *Options) { o.Hosts = []string{"lab.example"} })
	own := strings.TrimPrefix(web.URL, "http://")
	for _, c := range []struct {
		what   string
		fields []string
		code   int
	}{
		{"a script", nil, http.StatusOK},
		{"by name", []string{"Host: localhost:1"}, http.StatusOK},
		{"by a name that was given", []string{"Host: LAB.example."}, http.StatusOK},
		{"by an IPv6 address", []string{"Host: [::1]:8088"}, http.StatusOK},
		{"by another loopback address", []string{"Host: 127.8.8.8:8088"}, http.StatusOK},
		{"all addresses, which leads here", []string{"Host: 0.0.0.0:8088"}, http.StatusForbidden},
		{"all addresses of IPv6", []string{"Host: [::]:8088"}, http.StatusForbidden},
		{"loopback as IPv6 maps it", []string{"Host: [::ffff:127.0.0.1]:8088"}, http.StatusForbidden},
		{"and as browsers write that", []string{"Host: [::ffff:7f00:1]"}, http.StatusForbidden},
		{"an address that is not the connection's", []string{"Host: 10.0.0.5:8088"}, http.StatusForbidden},
		{"no host", []string{"Host: ."}, http.StatusForbidden},
		{"a name that was rebound", []string{"Host: evil.example"}, http.StatusForbidden},
		{"one that looks like an address", []string{"Host: 127.0.0.1.evil.example"}, http.StatusForbidden},
		{"one that looks like a name of ours", []string{"Host: localhost.evil.example"}, http.StatusForbidden},
		{"its own page", []string{"Origin: http://" + own, "Sec-Fetch-Site: same-origin"}, http.StatusOK},
		{"the address line", []string{"Sec-Fetch-Site: none"}, http.StatusOK},
		{"another site's page", []string{"Origin: http://evil.example"}, http.StatusForbidden},
		{"another port's page", []string{"Origin: http://127.0.0.1:1"}, http.StatusForbidden},
		{"a page without an origin", []string{"Origin: null"}, http.StatusForbidden},
		{"another site's picture", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}, http.StatusForbidden},
		{"another site's link", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, http.StatusForbidden},
		{"a sibling's page", []string{"Sec-Fetch-Site: same-site"}, http.StatusForbidden},
		{"a page in an old browser", []string{"Referer: http://evil.example/x"}, http.StatusForbidden},
		{"its own page in an old browser", []string{"Referer: http://" + own + "/"}, http.StatusOK},
	} {
		code, text := ask(t, "GET", web.URL+"/fortio/rest/status", "", c.fields...)
		if code != c.code {
			t.Errorf("%s: %d, want %d: %s", c.what, code, c.code, text)
		}
		if code == http.StatusForbidden {
			if e := decode[serverReply](t, text); !e.Error || e.Message != "forbidden" || e.Exception == "" {
				t.Errorf("%s: %s", c.what, text)
			}
			// Nothing was begun.
			ask(t, "GET", web.URL+"/fortio/rest/run?url=http://127.0.0.1:4/&t=10m&async=on", "", c.fields...)
			if n := len(s.runs.Active(0)); n != 0 {
				t.Fatalf("%s: %d runs", c.what, n)
			}
		}
	}
	link := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Referer: http://other.example/"}
	if code, _ := ask(t, "GET", web.URL+"/", "", link...); code != http.StatusOK {
		t.Errorf("a link to the page: %d", code)
	}
	if code, _ := ask(t, "GET", web.URL+"/", "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"); code != http.StatusForbidden {
		t.Errorf("a frame in another page: %d", code)
	}
}

// A page elsewhere can have a browser ask without a word of where the page is from, for names that the browser does not trust.
func TestABrowserThatHidesItsPageBeginsNothing(t *testing.T) {
	const token = "0123456789abcdef0123"
	const browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
	open, s := start(t, nil)
	closed, _ := start(t, func(o *Options) { o.Token = token })
	const run, stop = "/fortio/rest/run?url=http://127.0.0.1:4/&n=1&qps=-1", "/fortio/rest/stop"
	for _, c := range []struct {
		what, url string
		fields    []string
		code      int
	}{
		{"a picture's run", open.URL + run, []string{browser}, http.StatusForbidden},
		{"a picture's stop", open.URL + stop, []string{browser}, http.StatusForbidden},
		{"a look", open.URL + "/fortio/rest/status", []string{browser}, http.StatusOK},
		{"a script", open.URL + run, []string{"User-Agent: curl/8.14.1"}, http.StatusOK},
		{"the address line", open.URL + run, []string{browser, "Sec-Fetch-Site: none"}, http.StatusOK},
		{"its own page", open.URL + run, []string{browser, "Referer: " + open.URL + "/"}, http.StatusOK},
		{"who has the token", closed.URL + run, []string{browser, "Authorization: Bearer " + token}, http.StatusOK},
	} {
		if code, text := ask(t, "GET", c.url, "", c.fields...); code != c.code {
			t.Errorf("%s: %d, want %d: %s", c.what, code, c.code, text)
		}
	}
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if s.runs.next != 3 {
		t.Errorf("%d runs were begun, want 3", s.runs.next)
	}
}

func TestTheAddressOfTheConnectionNamesTheServer(t *testing.T) {
	g := guard{hosts: []string{"lab.example", "192.0.2.7"}}
	for _, c := range []struct {
		host, arrived string
		code          int
	}{
		{"10.0.0.5:8088", "10.0.0.5", http.StatusOK},
		{"10.0.0.6:8088", "10.0.0.5", http.StatusForbidden},
		{"[2001:db8:0::5]:8088", "2001:db8::5", http.StatusOK},
		{"[::ffff:10.0.0.5]:8088", "10.0.0.5", http.StatusForbidden},
		{"0.0.0.0:8088", "10.0.0.5", http.StatusForbidden},
		{"192.0.2.7", "10.0.0.5", http.StatusOK},
		{"lab.example:80", "10.0.0.5", http.StatusOK},
		{"127.0.0.1:8088", "10.0.0.5", http.StatusOK}, // through a tunnel
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		here := &net.TCPAddr{IP: net.ParseIP(c.arrived), Port: 8088}
		g.wrap(false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })(w, r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, here)))
		if w.Code != c.code {
			t.Errorf("%s at %s: %d, want %d", c.host, c.arrived, w.Code, c.code)
		}
	}
}

func TestAServerIsNamedByNothingThatLeadsToEveryMachine(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "::", "[::ffff:127.0.0.1]", "", "."} {
		if _, err := New(Options{Results: t.TempDir(), Hosts: []string{host}}); err == nil {
			t.Errorf("%q was taken", host)
		}
	}
	for text, want := range map[string]string{"LAB.example.": "lab.example", "[2001:DB8:0::1]": "2001:db8::1", "10.0.0.5": "10.0.0.5"} {
		if got, err := HostName(text); err != nil || got != want {
			t.Errorf("%s: %q %v, want %s", text, got, err, want)
		}
	}
}

func TestEveryAnswerButThePageNeedsTheToken(t *testing.T) {
	const token = "0123456789abcdef0123"
	web, s := start(t, func(o *Options) { o.Token = token })
	for _, path := range []string{
		"/fortio/rest/run?url=http://127.0.0.1:4/&n=1", "/fortio/rest/status", "/fortio/rest/stop", "/fortio/data/", "/fortio/data/x.json",
		"/api/active", "/api/runs", "/api/runs/x", "/api/runs/x/report", "/api/compare?id=a&id=b", "/api/lab", "/api/lab/x", "/api/lab-compare?a=a&b=b", "/lab/x", "/api/version", "/nowhere",
	} {
		for _, field := range []string{"X: y", "Authorization: Bearer ", "Authorization: Bearer " + token[1:], "Authorization: Bearer " + token + "0", "Authorization: " + token, "Cookie: lateen-lab=" + token} {
			if code, text := ask(t, "GET", web.URL+path, "", field); code != http.StatusUnauthorized || !decode[serverReply](t, text).Error {
				t.Errorf("%s with %q: %d %s", path, field, code, text)
			}
		}
		if code, _ := ask(t, "GET", web.URL+path, "", "Authorization: Bearer "+token); code == http.StatusUnauthorized || code == http.StatusForbidden {
			t.Errorf("%s with the token: %d", path, code)
		}
	}
	for _, path := range []string{"/", "/page/app.js", "/page/charts.js", "/page/page.css", "/page/report.css"} {
		if code, text := ask(t, "GET", web.URL+path, ""); code != http.StatusOK || len(text) < 500 {
			t.Errorf("%s: %d, %d bytes", path, code, len(text))
		}
	}
	if code, _ := ask(t, "POST", web.URL+"/api/login", "", "Authorization: Bearer wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token logs in: %d", code)
	}
	if code, _ := ask(t, "POST", web.URL+"/api/login", "", "Authorization: Bearer "+token); code != http.StatusNoContent {
		t.Errorf("the token does not log in: %d", code)
	}
	if s.guard.proof() == token || strings.Contains(s.guard.proof(), token) {
		t.Error("the cookie says the token")
	}
	if code, _ := ask(t, "GET", web.URL+"/api/runs", "", "Cookie: lateen-lab="+s.guard.proof()); code != http.StatusOK {
		t.Errorf("the cookie: %d", code)
	}
}

func TestOnlyTheLoopbackAddressIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.8.8.8:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		":8088": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "lab.example:1": false, "127.0.0.1": false, "": false,
	} {
		if Loopback(address) != want {
			t.Errorf("%q: %v", address, !want)
		}
	}
}

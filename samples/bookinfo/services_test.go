package bookinfo_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDetailsAnswersWithABookAndRefusesWhatIsNoNumber(t *testing.T) {
	s := start(t, details)
	status, body := get(t, s.url+"/details/0")
	expect(t, "details", status, body, 200, `"author":"William Shakespeare"`)
	if len(body) != 178 {
		t.Errorf("the body has %d bytes, want 178", len(body))
	}
	if id := decode(t, body)["id"]; id != 0.0 {
		t.Errorf("id = %v", id)
	}
	status, body = get(t, s.url+"/details/17")
	expect(t, "another book", status, body, 200, `"id":17`)
	for _, bad := range []string{"abc", "1x", "-1", "", "0/1"} {
		status, body = get(t, s.url+"/details/"+bad)
		expect(t, bad, status, body, 400, "must be a number")
	}
	status, _ = get(t, s.url+"/other")
	if status != 404 {
		t.Errorf("unknown path: %d", status)
	}
}

// The switches of details decide how a response leaves, which is what the mesh is measured against.
func TestDetailsWritesHeadAndBodyApart(t *testing.T) {
	shape := func(settings ...string) (split int, median time.Duration) {
		s := start(t, details, settings...)
		connection, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		var times []time.Duration
		for range 60 {
			reads, took, err := exchange(connection, "/details/0")
			if err != nil {
				t.Fatal(err)
			}
			head, body, _ := strings.Cut(string(joined(reads)), "\r\n\r\n")
			if length := len(head) + 4; length < 150 || length > 230 || len(body) != 178 {
				t.Fatalf("head of %d bytes and body of %d, want about 180 and 178", length, len(body))
			}
			if len(reads) == 2 && len(reads[1]) == 178 {
				split++
			} else if len(reads) != 1 {
				t.Fatalf("%d reads of a response in two writes", len(reads))
			}
			times = append(times, took)
		}
		slices.Sort(times)
		return split, times[len(times)/2]
	}
	split, quick := shape("WRITES=2", "NODELAY=1")
	if split == 0 {
		t.Error("WRITES=2: head and body never arrived apart")
	}
	_, stalled := shape("WRITES=2", "NODELAY=0")
	if stalled < 20*time.Millisecond || stalled < 2*quick {
		t.Errorf("WRITES=2 NODELAY=0 takes %v, with NODELAY=1 %v: the delayed ACK must show", stalled, quick)
	}
	split, quick = shape("WRITES=1", "NODELAY=0")
	if split != 0 {
		t.Errorf("WRITES=1: %d responses arrived in two pieces", split)
	}
	if quick > stalled/2 {
		t.Errorf("WRITES=1 takes %v, WRITES=2 %v: one write has nothing to wait for", quick, stalled)
	}
}

func TestRatingsAreReadAndPosted(t *testing.T) {
	s := start(t, ratings)
	status, body := get(t, s.url+"/ratings/0")
	expect(t, "ratings", status, body, 200, `"id":0`, `"Reviewer1":5`, `"Reviewer2":4`)
	status, body = post(t, s.url+"/ratings/7", `{"Reviewer1":1,"Reviewer2":2}`)
	expect(t, "post", status, body, 200, `"Reviewer1":1`)
	status, body = get(t, s.url+"/ratings/7")
	expect(t, "posted ratings", status, body, 200, `"Reviewer1":1`, `"Reviewer2":2`)
	status, body = get(t, s.url+"/ratings/0")
	expect(t, "another product", status, body, 200, `"Reviewer1":5`)
	for body, want := range map[string]int{`{"a":6}`: 400, `{"a":"x"}`: 400, `[1]`: 400, `null`: 400, `{`: 400, strings.Repeat(" ", 70000): 413} {
		status, answer := post(t, s.url+"/ratings/0", body)
		if status != want {
			t.Errorf("post %.20q: %d, want %d: %s", body, status, want, answer)
		}
	}
	status, body = get(t, s.url+"/ratings/abc")
	expect(t, "no number", status, body, 400, "must be a number")
	status, _ = get(t, s.url+"/other")
	if status != 404 {
		t.Errorf("unknown path: %d", status)
	}
}

func TestRatingsVariantsMisbehaveAsTheyPromise(t *testing.T) {
	// seen collects the statuses of many requests, until all wanted ones were among them.
	seen := func(s service, path string, want ...int) {
		t.Helper()
		statuses := map[int]int{}
		deadline := time.Now().Add(20 * time.Second)
		for time.Now().Before(deadline) {
			status, _ := get(t, s.url+path)
			statuses[status]++
			missing := slices.ContainsFunc(want, func(status int) bool { return statuses[status] == 0 })
			if !missing && len(statuses) == len(want) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("%s gave %v, want %v", path, statuses, want)
	}
	faulty := start(t, ratings, "SERVICE_VERSION=v-faulty")
	seen(faulty, "/ratings/0", 200, 503)
	seen(faulty, "/health", 200)
	seen(start(t, ratings, "SERVICE_VERSION=v-unavailable", "FAULT_PERIOD_MS=50"), "/ratings/0", 200, 503)
	unhealthy := start(t, ratings, "SERVICE_VERSION=v-unhealthy", "FAULT_PERIOD_MS=50")
	seen(unhealthy, "/ratings/0", 200, 500)
	seen(unhealthy, "/health", 200, 500)

	delayed := start(t, ratings, "SERVICE_VERSION=v-delayed", "FAULT_DELAY_MS=300")
	var quick, slow int
	for range 200 {
		begin := time.Now()
		get(t, delayed.url+"/ratings/0")
		if time.Since(begin) >= 300*time.Millisecond {
			slow++
		} else {
			quick++
		}
		if quick > 0 && slow > 0 {
			return
		}
	}
	t.Errorf("v-delayed: %d quick and %d slow answers, want both", quick, slow)
}

func TestReviewsHaveStarsFromTheSecondVersionOn(t *testing.T) {
	plain := start(t, reviews, "POD_NAME=reviews-v1-abc")
	status, body := get(t, plain.url+"/reviews/0")
	expect(t, "v1", status, body, 200, `"podname": "reviews-v1-abc"`, "Reviewer1", "Reviewer2")
	if decode(t, body); strings.Contains(body, "rating") {
		t.Errorf("v1 has ratings: %s", body)
	}
	for _, bad := range []string{"abc", "1x", ""} {
		status, body = get(t, plain.url+"/reviews/"+bad)
		expect(t, bad, status, body, 400, "must be a number")
	}
	status, _ = get(t, plain.url+"/other")
	if status != 404 {
		t.Errorf("unknown path: %d", status)
	}

	headers := make(chan http.Header, 8)
	answer := func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Clone()
		if r.URL.Path == "/ratings/9" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte(`{"id":0,"ratings":{"Reviewer1":3,"Reviewer2":1}}`))
	}
	fake := fake(t, answer)
	red := start(t, reviews, append(at("RATINGS", fake.port), "ENABLE_RATINGS=true", "STAR_COLOR=red")...)
	status, body = get(t, red.url+"/reviews/0", "x-request-id", "id-1", "end-user", "jason", "cookie", "secret=1")
	expect(t, "v3", status, body, 200, `"stars": 3, "color": "red"`, `"stars": 1, "color": "red"`)
	decode(t, body)
	if header := <-headers; header.Get("x-request-id") != "id-1" || header.Get("end-user") != "jason" || header.Get("cookie") != "" {
		t.Errorf("ratings was asked with %v", header)
	}
	status, body = get(t, red.url+"/reviews/9")
	expect(t, "ratings is down", status, body, 200, "ratings is not available")
	decode(t, body)
}

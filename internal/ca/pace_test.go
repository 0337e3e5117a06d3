package ca

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A pod that asks for its own certificate without end is held up; the node proxies and the log are not.
func TestOnePodsRequestsAreBounded(t *testing.T) {
	a := newAuthority(t)
	a.service.Authorizer.Own.Accounts = map[string]bool{"shop/web": true}
	own := a.token(func(c jwt.MapClaims, k map[string]any) {
		c["sub"] = "system:serviceaccount:shop:web"
		k["namespace"], k["serviceaccount"] = "shop", map[string]any{"name": "web"}
		k["pod"] = map[string]any{"name": "web-1", "uid": "w1"}
	})
	request := csr(t, newKey(t), nil)
	flood := func() (issued, refused int) {
		for range podBurst + 200 {
			_, err := a.ask(own, "", request, 0)
			switch status.Code(err) {
			case codes.OK:
				issued++
			case codes.ResourceExhausted:
				refused++
			default:
				t.Fatal(err)
			}
		}
		return issued, refused
	}
	if issued, refused := flood(); issued != podBurst || refused != 200 {
		t.Errorf("%d issued, %d refused", issued, refused)
	}
	if n := strings.Count(a.log.String(), "too_many"); n != 1 || a.counted.refused["too_many"] != 200 {
		t.Errorf("%d lines, counted %v", n, a.counted.refused)
	}
	for range podBurst * 5 {
		if _, err := a.ask(a.token(nil), web, request, 0); err != nil {
			t.Fatalf("a node proxy is held up: %v", err)
		}
	}
	a.now = a.now.Add(5 * time.Second)
	if issued, _ := flood(); issued != 5*perPod {
		t.Errorf("%d issued after 5 s", issued)
	}
	if !strings.Contains(a.log.String(), "others=199") {
		t.Errorf("those that were not told are not counted: %.300s", a.log.String())
	}
}

func TestQuietCallersAreForgotten(t *testing.T) {
	var p pace
	for i := range 100_000 {
		if !p.allow(Caller{PodUID: fmt.Sprint(i)}, false, start.Add(time.Duration(i)*time.Millisecond)) {
			t.Fatal("the first request is refused")
		}
	}
	if n := len(p.callers); n > 4*leastPaced {
		t.Errorf("%d are remembered", n)
	}
	// Who is not quiet is not forgotten.
	busy := Caller{PodUID: "busy"}
	at := start.Add(time.Hour)
	for range podBurst {
		p.allow(busy, false, at)
	}
	for i := range 10 * leastPaced {
		p.allow(Caller{PodUID: fmt.Sprint("x", i)}, false, at)
	}
	if p.allow(busy, false, at) {
		t.Error("a caller got more for others having asked meanwhile")
	}
}

package main

import (
	"errors"
	"slices"
	"testing"
)

func TestTallyOutput(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, tc := range []struct {
		name string
		kind kind
		out  string
		err  error
		want counts
	}{
		{"plain passes", kindPlain, "anything", nil, counts{passed: 1}},
		{"plain fails", kindPlain, "", failed, counts{failed: 1}},
		{"cargo adds binaries up", kindCargo, "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\nx\ntest result: FAILED. 1 passed; 2 failed; 0 ignored", failed, counts{4, 2, 1}},
		{"cargo build error", kindCargo, "error: could not compile", failed, counts{failed: 1}},
		{"no test at all is a failure", kindCargo, "", nil, counts{failed: 1}},
		{"script", kindScript, "  5 passed, 1 failed, 2 skipped", failed, counts{5, 1, 2}},
		{"script without skips", kindScript, "5 passed, 0 failed", nil, counts{passed: 5}},
		{"go", kindGo, `{"Action":"pass","Package":"p","Test":"A"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"fail","Package":"p","Test":"C"}
{"Action":"fail","Package":"p"}`, failed, counts{1, 1, 1}},
		{"go, plain text between the events", kindGo, "go: downloading example.org/x v1.0.0\n" + `{"Action":"pass","Package":"p","Test":"A"}
# p/broken
{"Action":"pass","Package":"p","Test":"B"}`, nil, counts{passed: 2}},
		{"go package that does not build", kindGo, `{"Action":"fail","Package":"p"}`, failed, counts{failed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tallyOutput(tc.kind, []byte(tc.out), tc.err); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestFailedNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind kind
		out  string
		want []string
	}{
		{"go, the package as well", kindGo, `{"Action":"fail","Package":"p","Test":"C"}
{"Action":"pass","Package":"p","Test":"D"}
{"Action":"fail","Package":"p"}`, []string{"s: p C", "s: p"}},
		{"cargo", kindCargo, "test a::b ... ok\ntest a::c ... FAILED\n", []string{"s: a::c"}},
		{"one script", kindScript, "ok - up\nnot ok - served\n  more of it\n1 passed, 1 failed\n", []string{"s: served"}},
		{"a runner names the script", kindScript, "not ok - served\n--- FAIL: 01-x.sh: served\n", []string{"s: 01-x.sh: served"}},
		{"nothing named", kindPlain, "error: exit 1", []string{"s: failed without naming a test"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := failedNames(step{name: "s", kind: tc.kind}, []byte(tc.out)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

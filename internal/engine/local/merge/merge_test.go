package merge

import (
	"encoding/json"
	"testing"
)

func object(t *testing.T, s string) Object {
	t.Helper()
	o, err := Parse([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return o
}

func text(t *testing.T, o Object) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestApply(t *testing.T) {
	for name, tc := range map[string]struct{ last, live, next, want string }{
		"sets":                            {`{}`, `{}`, `{"a":1}`, `{"a":1}`},
		"changes":                         {`{"a":1}`, `{"a":1}`, `{"a":2}`, `{"a":2}`},
		"removes what it set before":      {`{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"b":2}`, `{"b":2}`},
		"keeps what others set":           {`{"a":1}`, `{"a":1,"x":9}`, `{"a":1}`, `{"a":1,"x":9}`},
		"keeps a label set by hand":       {`{"m":{"l":{"a":"1"}}}`, `{"m":{"l":{"a":"1","hand":"2"}}}`, `{"m":{"l":{"a":"3"}}}`, `{"m":{"l":{"a":"3","hand":"2"}}}`},
		"removes a nested field":          {`{"m":{"a":1,"b":2}}`, `{"m":{"a":1,"b":2}}`, `{"m":{"a":1}}`, `{"m":{"a":1}}`},
		"lists are values":                {`{"a":[1,2]}`, `{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		"an object may become a value":    {`{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":2}`, `{"a":2}`},
		"a value may become an object":    {`{"a":2}`, `{"a":2}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"numbers stay as they are":        {`{}`, `{}`, `{"n":9007199254740993}`, `{"n":9007199254740993}`},
		"undoes a change made by hand":    {`{"a":1}`, `{"a":5}`, `{"a":1}`, `{"a":1}`},
		"does not resurrect what is gone": {`{"a":1,"b":1}`, `{"a":1}`, `{"a":1}`, `{"a":1}`},
	} {
		last, live, next := object(t, tc.last), object(t, tc.live), object(t, tc.next)
		if got := text(t, Apply(last, live, next)); got != text(t, object(t, tc.want)) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		for what, o := range map[string][2]string{"last": {text(t, last), text(t, object(t, tc.last))}, "live": {text(t, live), text(t, object(t, tc.live))}, "next": {text(t, next), text(t, object(t, tc.next))}} {
			if o[0] != o[1] {
				t.Errorf("%s: changed its input %s from %s to %s", name, what, o[1], o[0])
			}
		}
	}
}

// The examples of RFC 7386, appendix A, as far as they are about objects.
func TestPatchFollowsTheRFC(t *testing.T) {
	for _, tc := range []struct{ live, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		if got := text(t, Patch(object(t, tc.live), object(t, tc.patch))); got != text(t, object(t, tc.want)) {
			t.Errorf("%s patched by %s: got %s, want %s", tc.live, tc.patch, got, tc.want)
		}
	}
}

func TestSetAndGet(t *testing.T) {
	o := object(t, `{"a":{"b":1}}`)
	s := Set(o, "x", "a", "c", "d")
	if got := text(t, s); got != `{"a":{"b":1,"c":{"d":"x"}}}` {
		t.Errorf("got %s", got)
	}
	if v, ok := Get(s, "a", "c", "d"); !ok || v != "x" {
		t.Errorf("got %v, %v", v, ok)
	}
	for _, path := range [][]string{{"z"}, {"a", "b", "c"}, {"a", "c", "z"}} {
		if v, ok := Get(s, path...); ok {
			t.Errorf("%v is there: %v", path, v)
		}
	}
	if text(t, o) != `{"a":{"b":1}}` {
		t.Errorf("Set changed its input: %s", text(t, o))
	}
}

func FuzzApplyTwiceIsApplyOnce(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`{"a":{"b":[1]}}`), []byte(`{"c":null}`))
	f.Add([]byte(`{}`), []byte(`{"x":1}`), []byte(`{"x":{"y":2}}`))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		last, err1 := Parse(a)
		live, err2 := Parse(b)
		next, err3 := Parse(c)
		if err1 != nil || err2 != nil || err3 != nil {
			return
		}
		once := Apply(last, live, next)
		if twice := Apply(next, once, next); !Equal(once, twice) {
			t.Fatalf("once %v, twice %v", once, twice)
		}
	})
}

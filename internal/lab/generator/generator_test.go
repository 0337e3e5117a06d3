package generator

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

type answered struct {
	Counts struct {
		OK int `json:"ok"`
	} `json:"counts"`
}

func TestTheGeneratorsResultIsRead(t *testing.T) {
	for name, tt := range map[string]struct {
		stdout, stderr string
		code           int
		err            error
		want           string // of the error; empty: there is none
	}{
		"a result":            {`{"format":"lateen-load/2","counts":{"ok":7},"new":{}}`, "", 0, nil, ""},
		"failures":            {`{"format":"lateen-load/1","counts":{"ok":7}}`, "3 failed\n", 1, nil, ""},
		"no result":           {" \n", "first\nno such host: echo\n", 2, nil, "the load generator printed no result (exit code 2): no such host: echo"},
		"half a result":       {`{"format":`, "", 137, nil, "read the load generator's result: "},
		"a number of letters": {`{"format":"lateen-load/1","counts":{"ok":"many"}}`, "", 0, nil, "read the load generator's result: "},
		"another's result":    {`{"counts":{"ok":7}}`, "", 0, nil, `format "" is not one of lateen-load`},
		"no pod":              {"", "", 0, errors.New("there is no pod"), "run the load generator: there is no pod"},
	} {
		exec := func(_ context.Context, command []string, streams api.Streams) (int, error) {
			if !slices.Equal(command, []string{"lateen-load", "run"}) {
				t.Errorf("%s: runs %v", name, command)
			}
			io.WriteString(streams.Stdout, tt.stdout)
			io.WriteString(streams.Stderr, tt.stderr)
			return tt.code, tt.err
		}
		got, err := Run[answered](t.Context(), exec, []string{"lateen-load", "run"})
		switch {
		case tt.want == "" && (err != nil || got.Counts.OK != 7):
			t.Errorf("%s: got %+v, %v", name, got, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || got != answered{}):
			t.Errorf("%s: got %+v, %v; want %q", name, got, err, tt.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"format":"lateen-load/1","counts":{"ok":7}}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := Read[answered]([]byte(text)); err != nil && got != (answered{}) {
			t.Errorf("%q: %v, and yet %+v", text, err, got)
		}
	})
}

package scorecard

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func sample() *Card {
	return &Card{Version: "1.2", Kernel: "6.18", Cores: 2, Started: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Rows: []Row{
		{Area: AreaDeployment, Criterion: "commands to the first encrypted request", Value: 2, Unit: "commands", Commands: []string{"lateen up", "lateen label x"}},
		{Area: AreaDeployment, Criterion: "until the first encrypted request", Value: 0.5612, Unit: "s"},
		{Area: AreaJoining, Criterion: "requests failed", Value: 3, Of: 400, Unit: "requests", Note: "2 reset | 1 refused"},
	}}
}

func TestGoldens(t *testing.T) {
	c := sample()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"card.txt": func(b *bytes.Buffer) error { return c.Text(b) },
		"card.md":  func(b *bytes.Buffer) error { return c.Markdown(b) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\n%s", name, got.String())
		}
	}
}

type quiet struct{}

func (quiet) Start(string) {}
func (quiet) Done(string)  {}
func (quiet) Abandon()     {}

// What fails is on the card, what was started is taken down, and a mesh that never came up is no second trouble.
func TestAFailureIsOnTheCard(t *testing.T) {
	downs := 0
	card := sample()
	err := Run(context.Background(), Stage{
		Up:       func(context.Context, string, time.Duration) error { return errors.New("no room for a mesh") },
		Down:     func(context.Context, string) error { downs++; return api.ErrNotRunning },
		Client:   api.New,
		Mesh:     "card-test",
		Progress: quiet{},
		Load:     LeastLoad,
	}, card)
	if err == nil || card.Failed != "no room for a mesh" || downs != 1 || len(card.Rows) != 3 {
		t.Errorf("%v; %q after %d downs, %d rows", err, card.Failed, downs, len(card.Rows))
	}
	var text bytes.Buffer
	if err := card.Text(&text); err != nil || !strings.Contains(text.String(), "ended early: no room for a mesh") {
		t.Errorf("%v: %s", err, text.String())
	}
}

func TestRequestsThatWereNeverSentHaveFailedToo(t *testing.T) {
	var l tally
	l.Counts.OK, l.Counts.Failed, l.Counts.Unsent, l.Counts.Unanswered = 10, 1, 2, 3
	l.Errors = map[string]uint64{"reset": 1, "connect": 4}
	if l.failed() != 6 || l.all() != 16 || l.kinds() != "4 connect, 1 reset" {
		t.Errorf("%d of %d: %s", l.failed(), l.all(), l.kinds())
	}
}

package published

import (
	"strings"
	"testing"
)

func TestEveryTableIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range All() {
		if seen[table.ID] {
			t.Errorf("%s stands twice", table.ID)
		}
		seen[table.ID] = true
		for name, text := range map[string]string{"id": table.ID, "title": table.Title, "source": table.Source, "setting": table.Setting, "unit": table.Unit} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s has no %s", table.ID, name)
			}
		}
		if len(table.Rows) == 0 {
			t.Errorf("%s has no rows", table.ID)
		}
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: %q has %d of %d columns", table.ID, row, len(row), len(table.Columns))
			}
		}
	}
}

func TestFind(t *testing.T) {
	if got, err := Find("ambient-1"); err != nil || got.Rows[0][0] != "no mesh, run 1" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Find("x"); err == nil {
		t.Error("a table that nobody published was found")
	}
}

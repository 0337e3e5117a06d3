package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// memory is what an agent that comes back cannot learn from the kernel about captured pods, by their uid.
type memory map[string]remembered

// remembered is since when a pod is captured, and the connections (the kernel's cookies) that are older.
type remembered struct {
	Since time.Time `json:"since"`
	Older []uint64  `json:"older,omitempty"`
}

func (c remembered) equal(o remembered) bool {
	return c.Since.Equal(o.Since) && slices.Equal(c.Older, o.Older)
}

// readMemory reads the state file. Without a usable file the memory is empty, which only makes a status less exact.
func readMemory(path string) (memory, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m memory
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state file %s: %w", path, err)
	}
	return m, nil
}

// remember writes the state file if it says something else than what is now. A failure costs the next agent's status a
// detail, and nothing that is captured.
func (a *Agent) remember() {
	if a.opts.StateFile == "" {
		return
	}
	now := memory{}
	for uid, p := range a.pods {
		switch {
		case p.state == Captured:
			now[uid] = remembered{Since: p.capturedAt, Older: slices.Sorted(maps.Keys(p.unmeshed))}
		case !p.observed:
			if c, known := a.kept[uid]; known {
				now[uid] = c // not looked at yet
			}
		}
	}
	if maps.EqualFunc(now, a.kept, remembered.equal) {
		return
	}
	a.kept = now
	if err := now.save(a.opts.StateFile); err != nil {
		a.log.Warn("a restart of the agent will forget when pods were captured", "err", err)
	}
}

func (m memory) save(path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	// Renaming replaces the file as a whole: a reader sees the old one or the new one.
	temporary := path + ".new"
	err = os.WriteFile(temporary, b, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the state file: %w", err), os.Remove(temporary))
	}
	return nil
}

package ca

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	ledgerFile = "issued.jsonl"
	// maxLedger bounds the file that is read, in bytes; a certificate takes about 200.
	maxLedger = 64 << 20
	// spareLines is how many lines the file may have beyond two for each holder before it is written anew.
	spareLines = 1000
	// settle is how long a proxy whose answer got lost takes at most until it asks again: a timeout, and the longest backoff.
	settle = 30 * time.Second
	bootID = "/proc/sys/kernel/random/boot_id"
)

// ledger knows for every holder which certificate it got last. It is kept in a file, a line for each certificate, so that a
// restart in the middle of a rotation need not wait for certificates that it knows nothing of. The lines are not flushed to
// the disk one by one: after the machine itself has restarted the file is not taken for complete.
type ledger struct {
	path, boot string
	// since is from when on every certificate is known.
	since   time.Time
	holders map[Holder]issued
	lines   int
	// incomplete says that the file lacks a line or does not exist yet.
	incomplete bool
}

// issued is the certificate that a holder got last.
type issued struct {
	// Stage names the stage in which it was issued, and with it the roots that came along.
	Stage string    `json:"stage,omitempty"`
	Until time.Time `json:"until"`
	// Sure is from when on the holder has it for certain: till then it may ask again, because the answer got lost.
	Sure time.Time `json:"sure,omitzero"`
}

// line is one line of the file; the first one has Boot and Since, the others the rest.
type line struct {
	Boot   string    `json:"boot,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Holder *Holder   `json:"holder,omitempty"`
	Pod    bool      `json:"pod,omitempty"`
	issued
}

// openLedger reads what is known of the certificates issued from dir. What cannot be relied on costs time, never trust: then
// they are known from now on only.
func openLedger(dir string, now time.Time) *ledger {
	l := &ledger{path: filepath.Join(dir, ledgerFile), since: now, holders: map[Holder]issued{}, incomplete: true}
	if boot, err := os.ReadFile(bootID); err == nil {
		l.boot = strings.TrimSpace(string(boot))
	}
	info, err := os.Lstat(l.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxLedger {
		return l
	}
	data, err := os.ReadFile(l.path)
	if err != nil {
		return l
	}
	holders, since, boot, ok := parseLedger(data)
	l.holders = holders
	if ok && boot != "" && boot == l.boot && !since.After(now) {
		l.since = since
	}
	return l
}

// parseLedger reads a file; ok is false if it lacks something. Of the last line half may be there: that certificate was never
// handed out.
func parseLedger(data []byte) (holders map[Holder]issued, since time.Time, boot string, ok bool) {
	holders, ok = map[Holder]issued{}, true
	if end := bytes.LastIndexByte(data, '\n'); end >= 0 {
		data = data[:end+1]
	} else {
		return holders, since, "", false
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for first := true; lines.Scan(); first = false {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || first != (one.Holder == nil) {
			ok = false
			continue
		}
		if first {
			since, boot = one.Since, one.Boot
			continue
		}
		one.Holder.pod = one.Pod
		holders[*one.Holder] = one.issued
	}
	return holders, since, boot, ok && lines.Err() == nil
}

// add enters a certificate before it is handed out.
func (l *ledger) add(h Holder, stage string, now time.Time, life time.Duration) error {
	one := issued{Stage: stage, Until: now.Add(life)}
	if before, ok := l.holders[h]; ok && now.Before(before.Until) {
		one.Sure = before.Sure
		if before.Stage != stage || now.Before(before.Sure) {
			one.Sure = now.Add(min(settle, life/4))
		}
	}
	l.holders[h] = one
	if l.incomplete || l.lines > 2*len(l.holders)+spareLines {
		return l.write()
	}
	data, err := json.Marshal(line{Holder: &h, Pod: h.pod, issued: one})
	if err == nil {
		err = l.append(append(data, '\n'))
	}
	if err != nil {
		// Better no file than one that is taken for complete.
		l.incomplete = true
		return errors.Join(fmt.Errorf("write %s: %w", l.path, err), l.remove())
	}
	l.lines++
	return nil
}

func (l *ledger) append(data []byte) error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// write writes the whole file anew.
func (l *ledger) write() error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	err := e.Encode(line{Boot: l.boot, Since: l.since})
	for h, one := range l.holders {
		err = errors.Join(err, e.Encode(line{Holder: &h, Pod: h.pod, issued: one}))
	}
	if err == nil {
		err = WriteFile(l.path, out.Bytes(), 0o600)
	}
	if l.incomplete = err != nil; l.incomplete {
		return errors.Join(err, l.remove())
	}
	l.lines = len(l.holders) + 1
	return nil
}

func (l *ledger) remove() error {
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// behind lists the holders that may still use a certificate from before a stage, by name, and forgets those that are of no
// use any more.
func (l *ledger) behind(stage string, now time.Time, inUse func(Holder) bool) []Holder {
	var late []Holder
	for h, one := range l.holders {
		switch {
		case now.After(one.Until), inUse != nil && !inUse(h):
			delete(l.holders, h)
		case one.Stage != stage, now.Before(one.Sure):
			late = append(late, h)
		}
	}
	slices.SortFunc(late, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Identity, b.Identity))
	})
	return late
}

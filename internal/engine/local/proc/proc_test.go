package proc

import (
	"os"
	"testing"
)

func TestParseStatSurvivesOddNames(t *testing.T) {
	line := ") S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23"
	for _, name := range []string{"cat", "a b", "((", "))", ") S 9 9", "\n"} {
		s, err := parseStat([]byte("7 (" + name + line))
		want := Stat{State: 'S', PPID: 1, UserTicks: 11, SysTicks: 12, Threads: 17, StartTime: 19, RSSPages: 21}
		if err != nil || s != want {
			t.Errorf("%q: got %+v, %v; want %+v", name, s, err, want)
		}
	}
}

func TestOwnCounters(t *testing.T) {
	before, err := CPUNanos(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	x := 0
	for i := range 50_000_000 {
		x += i
	}
	after, err := CPUNanos(os.Getpid())
	if err != nil || after-before < 1_000_000 || x == 0 {
		t.Errorf("a busy loop took %d ns, %v", after-before, err)
	}
	s, err := ReadStat("/proc", os.Getpid())
	if err != nil || s.PPID != os.Getppid() || s.RSSPages == 0 || s.Threads == 0 || s.StartTime == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	pids, err := NSPIDs("/proc", os.Getpid())
	if err != nil || len(pids) == 0 || pids[len(pids)-1] != os.Getpid() {
		t.Errorf("got %v, %v", pids, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 2 3 4"))
	f.Add([]byte("1 (x"))
	f.Add([]byte(") S"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if s, err := parseStat(in); err == nil && s.State == 0 {
			t.Fatalf("no state in %q", in)
		}
	})
}

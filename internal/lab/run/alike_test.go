package run

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

const twoRequests = `
alike:
  - {name: hello, url: "http://echo:8080/?size=5", headers: {host: a.example}, flags: [--http2]}
  - {name: lost, url: "http://echo:8080/?status=404", status: 404}
`

// asked is a generator's report of one request.
func asked(counts, errs string) string {
	return `{"format":"lateen-load/1","counts":` + counts + `,"errors":` + errs + `}`
}

// tableBench answers the requests of a table, and all loads.
type tableBench struct {
	dataplanes.Bench
	name   string
	answer func(plane, url string) string
	asked  *[]string
}

func (b tableBench) Exec(ctx context.Context, target string, command []string, s api.Streams) (int, error) {
	if i := slices.Index(command, "-n"); i >= 0 {
		*b.asked = append(*b.asked, b.name+" "+strings.Join(command[2:], " "))
		_, err := s.Stdout.Write([]byte(b.answer(b.name, command[slices.Index(command, "--url")+1])))
		return 0, err
	}
	return b.Bench.Exec(ctx, target, command, s)
}

// tablePlane makes such a bench of a plane.
type tablePlane struct {
	dataplanes.Plane
	answer func(plane, url string) string
	asked  *[]string
}

func (p tablePlane) Start(ctx context.Context, t dataplanes.Topology, progress func(string)) (dataplanes.Bench, error) {
	b, err := p.Plane.Start(ctx, t, progress)
	return tableBench{b, p.Describe().Name, p.answer, p.asked}, err
}

// rightAnswer is what every plane of a table is to answer.
func rightAnswer(_, url string) string {
	if strings.Contains(url, "404") {
		return asked(`{"failed":1}`, `{"status_404":1}`)
	}
	return asked(`{"ok":1,"content_bytes":5}`, `{}`)
}

// compareTable runs a scenario with a table on lateen, a waypoint and an Envoy in its place.
func compareTable(t *testing.T, answer func(plane, url string) string) (results.Outcome, []string) {
	t.Helper()
	_, stage, o := newWorld(t, smallScenario+"planes: [waypoint]\nwitnesses: [lateen]\n"+twoRequests)
	o.Rounds = 1
	o.Planes = append(o.Planes, dataplanes.Spec{Name: "envoy-waypoint", Kind: results.KindEnvoyWaypoint})
	var questions []string
	plain := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := plain(s)
		return tablePlane{p, answer, &questions}, err
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	return doc.Scenarios[0], questions
}

func TestTheTableOfRequestsIsAskedOfEachWaypointOnce(t *testing.T) {
	out, questions := compareTable(t, rightAnswer)
	if out.Failed != "" || len(out.Cells) != 2 || len(out.Cells[0].Blocks) == 0 {
		t.Errorf("failed %q, %d cells", out.Failed, len(out.Cells))
	}
	hello := " --url http://echo:8080/?size=5 -n 1 --qps 0 --connections 1 --json - --header host:a.example --http2"
	lost := " --url http://echo:8080/?status=404 -n 1 --qps 0 --connections 1 --json -"
	if want := []string{"envoy-waypoint" + hello, "waypoint" + hello, "envoy-waypoint" + lost, "waypoint" + lost}; !slices.Equal(questions, want) {
		t.Errorf("asked %q", questions)
	}
}

func TestNothingIsMeasuredOfPlanesThatAnswerDifferently(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(plane, url string) string
		want   string
	}{
		"other content": {func(plane, url string) string {
			if plane == "waypoint" && strings.Contains(url, "size") {
				return asked(`{"ok":1,"content_bytes":4}`, `{}`)
			}
			return rightAnswer(plane, url)
		}, `request "hello": envoy-waypoint answers 1 ok with 5 bytes, and waypoint answers 1 ok with 4 bytes`},
		"another status of one": {func(plane, url string) string {
			if plane == "waypoint" && strings.Contains(url, "404") {
				return asked(`{"ok":1}`, `{}`)
			}
			return rightAnswer(plane, url)
		}, `request "lost" to waypoint: it was answered with "1 ok", and not with "1 status_404"`},
		"a wrong status of both": {func(plane, url string) string {
			return asked(`{"failed":1}`, `{"status_503":1}`)
		}, `request "hello" to envoy-waypoint: it was answered with "1 status_503", and not with "1 ok"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := compareTable(t, c.answer)
			if !strings.Contains(out.Failed, c.want) || len(out.Cells) != 0 {
				t.Errorf("failed %q with %d cells, want %q", out.Failed, len(out.Cells), c.want)
			}
		})
	}
}

// loggingBench counts and logs some of the requests that it answers.
type loggingBench struct {
	dataplanes.Bench
	counts, lines uint64
	carried       *uint64
	looks         *int
	late          int // looks at the log until its lines are there
}

func (b loggingBench) Carried(context.Context) (uint64, bool, error) {
	*b.carried += b.counts
	return *b.carried, true, nil
}

func (b loggingBench) Logged(context.Context, time.Time) (uint64, error) {
	if *b.looks++; *b.looks <= b.late {
		return 0, nil
	}
	return b.lines, nil
}

func TestABlockWithoutARecordOfEachRequestIsVoid(t *testing.T) {
	const all = 6000 // requests of a block of the fake world, warm-up included
	for name, c := range map[string]struct {
		counts, lines uint64
		late          int
		want          string
	}{
		"everything recorded": {all, all, 0, ""},
		"lines that are late": {all, all, 3, ""},
		"a line is missing":   {all, all - 1, 0, "the proxy logged 5999 of 6000 requests"},
		"a count is missing":  {all - 1, all, 0, "the proxy counted 5999 of 6000 requests"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stage, o := newWorld(t, oneCell(""))
			o.Rounds = 1
			plain := stage.Make
			stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
				p, err := plain(s)
				return wrapped{p, func(b dataplanes.Bench) dataplanes.Bench {
					if s.Name != "lateen" {
						return b
					}
					return loggingBench{b, c.counts, c.lines, new(uint64), new(int), c.late}
				}}, err
			}
			doc, err := Run(context.Background(), stage, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range doc.Scenarios[0].Cells[0].Blocks {
				void := len(b.Metrics) == 0 && b.Histogram == "" && slices.Contains(b.Failed, c.want)
				if void != (b.Plane == "lateen" && c.want != "") || !void && len(b.Failed) > 0 {
					t.Errorf("%s: failed %q, %d metrics", b.Plane, b.Failed, len(b.Metrics))
				}
			}
		})
	}
}

func TestALogThatCannotBeReadEndsTheBlock(t *testing.T) {
	s := &session{Stage: Stage{Sleep: func(context.Context, time.Duration) {}}}
	broken := errors.New("gone")
	if _, err := s.unrecorded(t.Context(), running{Bench: brokenLog{err: broken}}, time.Now(), 1, 1); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type brokenLog struct {
	dataplanes.Bench
	err error
}

func (b brokenLog) Logged(context.Context, time.Time) (uint64, error) { return 0, b.err }

// wrapped is a plane whose bench is another one.
type wrapped struct {
	dataplanes.Plane
	with func(dataplanes.Bench) dataplanes.Bench
}

func (p wrapped) Start(ctx context.Context, t dataplanes.Topology, progress func(string)) (dataplanes.Bench, error) {
	b, err := p.Plane.Start(ctx, t, progress)
	if err != nil {
		return nil, err
	}
	return p.with(b), nil
}

func TestATableIsRefusedWithWhatIsWrong(t *testing.T) {
	if _, err := scenario.Parse("small", []byte(oneCell(", requestPolicies: {allow: -1}"))); err == nil || !strings.Contains(err.Error(), "requestPolicies: 0 deny, -1 allow") {
		t.Errorf("a negative number of policies: %v", err)
	}
	for text, want := range map[string]string{
		`alike: [{url: "http://a"}]`:                                      `alike: name "" is empty`,
		`alike: [{name: a, url: "http://a"}, {name: a, url: "http://a"}]`: `alike: name "a" is empty or stands twice`,
		`alike: [{name: a}]`:                                              `alike: a: there is no url`,
		`alike: [{name: a, url: "http://a", status: 100}]`:                `alike: a: status: 100: use 200 to 599`,
	} {
		if _, err := scenario.Parse("small", []byte(smallScenario+text+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

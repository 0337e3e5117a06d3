package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/generator"
	"lateen.dev/lateen/internal/lab/scenario"
)

// askTime bounds one request of the table.
const askTime = 30 * time.Second

// alike sends each request of the scenario's table once to each plane with a waypoint. It fails if a plane answers with another status
// than the table has, or if two planes answer with different content: their numbers would be of different work.
func (s *session) alike(ctx context.Context, sc *scenario.Scenario) error {
	for _, request := range sc.Alike {
		first, answered := "", ""
		for _, on := range s.running {
			if !hasWaypoint(dataplanes.Spec{Kind: on.about.Kind}) {
				continue
			}
			s.Progress.Update(fmt.Sprintf("%s: ask %s: %s", sc.Name, on.about.Name, request.Name))
			answer, err := s.ask(ctx, on, request)
			if err != nil {
				return fmt.Errorf("request %q to %s: %w", request.Name, on.about.Name, err)
			}
			switch {
			case first == "":
				first, answered = on.about.Name, answer
			case answer != answered:
				return fmt.Errorf("request %q: %s answers %s, and %s answers %s: they do not do the same work", request.Name, first, answered, on.about.Name, answer)
			}
		}
	}
	return nil
}

// ask sends one request and describes the answer: its status and the length of its content.
func (s *session) ask(ctx context.Context, on running, request scenario.Request) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	command := []string{"lateen-load", "run", "--url", request.URL, "-n", "1", "--qps", "0", "--connections", "1", "--json", "-"}
	for _, name := range slices.Sorted(maps.Keys(request.Headers)) {
		command = append(command, "--header", name+":"+request.Headers[name])
	}
	r, err := generator.Run[report](ctx, func(ctx context.Context, command []string, streams api.Streams) (int, error) {
		return on.Exec(ctx, scenario.Generator, command, streams)
	}, append(command, request.Flags...))
	if err != nil {
		return "", err
	}
	status := kinds(r.Errors)
	if r.Counts.OK == 1 && r.Counts.Failed == 0 {
		status = "1 ok"
	}
	if want := request.Answer(); status != "1 "+want {
		return "", fmt.Errorf("it was answered with %q, and not with %q", status, "1 "+want)
	}
	return fmt.Sprintf("%s with %d bytes", status, r.Counts.Content), nil
}

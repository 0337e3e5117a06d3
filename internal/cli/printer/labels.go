package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// labelHeading names the columns that are about labels. They come after all others, as kubectl has them.
func (o Options) labelHeading() (heading []string) {
	for _, key := range o.LabelColumns {
		_, name, found := strings.Cut(key, "/")
		if !found {
			name = key
		}
		heading = append(heading, strings.ToUpper(name))
	}
	if o.ShowLabels {
		heading = append(heading, "LABELS")
	}
	return heading
}

// labelCells are the cells of those columns.
func (o Options) labelCells(object api.Object) (cells []string, err error) {
	if len(o.LabelColumns) == 0 && !o.ShowLabels {
		return nil, nil
	}
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object.Raw, &head); err != nil {
		return nil, fmt.Errorf("read %s: %w", object.Key, err)
	}
	for _, key := range o.LabelColumns {
		cells = append(cells, head.Metadata.Labels[key])
	}
	if o.ShowLabels {
		cells = append(cells, labels(head.Metadata.Labels))
	}
	return cells, nil
}

// shortenable are the columns whose cells lose their middle in a table that has too little room, and spare those that it goes without
// then, the first one first. The age and the restarts of pods go before columns that -o wide adds.
var (
	shortenable = []string{"NAME", "REASON", "SELECTOR", "LABELS", "PORT(S)", "SERVICE ACCOUNT"}
	spare       = []string{"POD-CIDR", "SELECTOR", "AGE", "RESTARTS", "SERVICE ACCOUNT", "IP", "NODE"}
)

// copied are the columns that are cut last, since readers copy names into other commands.
var copied = []string{"NAMESPACE", "NAME", "SERVICE ACCOUNT"}

// print writes a finished table.
func (o Options) print(w io.Writer, grid *Grid) error {
	if o.grid != nil {
		return o.grid(grid)
	}
	return grid.printWithin(w, o.Width)
}

// fit makes a table of objects no wider than a terminal.
func fit(grid *Grid, width int) {
	columns := func(names []string) (found []int) {
		for _, name := range names {
			if i := slices.Index(grid.heading, name); i >= 0 {
				found = append(found, i)
			}
		}
		return found
	}
	grid.Copied(columns(copied)...).Fit(width, columns(shortenable), columns(spare))
}

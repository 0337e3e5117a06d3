// Package scorecard measures by script what comparisons of service meshes tell in words: what it takes to get to the first encrypted
// request, and what an application notices when it joins, when parts of the mesh are upgraded or fail, and when certificates are
// replaced. It drives a mesh through its API and watches requests; how a mesh does all that is not its business.
package scorecard

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/lab/published"
)

// Card is what came out.
type Card struct {
	Version string    `json:"version"`
	Kernel  string    `json:"kernel"`
	Cores   int       `json:"cores"`
	Started time.Time `json:"started"`
	Rows    []Row     `json:"rows"`
	// Failed is why it ended early; the rows until then hold.
	Failed string `json:"failed,omitempty"`
}

// Row is one criterion.
type Row struct {
	Area      string  `json:"area"`
	Criterion string  `json:"criterion"`
	Value     float64 `json:"value"`
	// Of is how many there were in all, where Value is a part of them.
	Of   uint64 `json:"of,omitempty"`
	Unit string `json:"unit,omitempty"`
	// Commands are what somebody has to type.
	Commands []string `json:"commands,omitempty"`
	Note     string   `json:"note,omitempty"`
}

// Areas of criteria.
const (
	AreaDeployment  = "deployment"
	AreaJoining     = "joining"
	AreaMaintenance = "maintenance"
	AreaFailure     = "failure"
	AreaLeaving     = "leaving"
)

// areas is their order on a card.
var areas = []string{AreaDeployment, AreaJoining, AreaMaintenance, AreaFailure, AreaLeaving}

func (r Row) value() string {
	text := strconv.FormatFloat(r.Value, 'f', -1, 64)
	if r.Value != float64(int64(r.Value)) {
		text = strconv.FormatFloat(r.Value, 'f', 2, 64)
	}
	if r.Of > 0 {
		text += " of " + strconv.FormatUint(r.Of, 10)
	}
	return text
}

// remark is what there is to say beside the value.
func (r Row) remark() string {
	parts := r.Commands
	if r.Note != "" {
		parts = append(parts[:len(parts):len(parts)], r.Note)
	}
	return strings.Join(parts, "; ")
}

// Text writes the card for people.
func (c *Card) Text(w io.Writer) error {
	grid := printer.NewGrid("AREA", "CRITERION", "VALUE", "UNIT", "NOTE").Right(2)
	area := ""
	for _, r := range c.Rows {
		shown := r.Area
		if shown == area {
			shown = ""
		}
		area = r.Area
		grid.Row(shown, r.Criterion, r.value(), r.Unit, r.remark())
	}
	if err := grid.Print(w, ""); err != nil {
		return err
	}
	if c.Failed != "" {
		_, err := fmt.Fprintf(w, "ended early: %s\n", c.Failed)
		return err
	}
	return nil
}

// publishedTable is what others wrote about the same criteria.
const publishedTable = "scorecard"

// Markdown writes the card as a page, with what others wrote in a table of its own.
func (c *Card) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Scorecard\n\nLateen %s on kernel %s with %d processors, %s, by `lateen lab scorecard`.\n\n", cell(c.Version), cell(c.Kernel), c.Cores, c.Started.UTC().Format("2006-01-02 15:04 UTC"))
	b.WriteString("| area | criterion | value | unit | note |\n|---|---|---:|---|---|\n")
	for _, r := range c.Rows {
		var remarks []string
		for _, command := range r.Commands {
			remarks = append(remarks, "`"+cell(command)+"`")
		}
		if r.Note != "" {
			remarks = append(remarks, cell(r.Note))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(r.Area), cell(r.Criterion), r.value(), cell(r.Unit), strings.Join(remarks, "; "))
	}
	if c.Failed != "" {
		fmt.Fprintf(&b, "\nEnded early: %s\n", cell(c.Failed))
	}
	others, err := published.Find(publishedTable)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n## Published by others\n\nFrom %s, about other meshes: %s.\n\n| %s |\n|%s\n", cell(others.Source), cell(others.Setting), strings.Join(others.Columns, " | "), strings.Repeat("---|", len(others.Columns)))
	for _, row := range others.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// cell keeps text within its cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(s)
}

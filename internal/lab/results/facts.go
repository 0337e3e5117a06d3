package results

import "slices"

// FactRow is what the facts of one name say in each setting.
type FactRow struct {
	Plane, Name, Unit, Note string
	// Target is the most that the design allows; 0 where it says nothing.
	Target float64
	// Values are by setting; a setting without a value has none.
	Values map[string]float64
	// Missed are the settings that have a target, and a value above it.
	Missed map[string]bool
}

// FactTable puts facts that belong to settings side by side: the settings and the rows, both in the order in which they appear.
func FactTable(facts []Fact) (groups []string, rows []FactRow) {
	for _, f := range facts {
		if f.Group == "" {
			continue
		}
		if !slices.Contains(groups, f.Group) {
			groups = append(groups, f.Group)
		}
		i := slices.IndexFunc(rows, func(r FactRow) bool { return r.Plane == f.Plane && r.Name == f.Name && r.Unit == f.Unit })
		if i < 0 {
			i = len(rows)
			rows = append(rows, FactRow{Plane: f.Plane, Name: f.Name, Unit: f.Unit, Values: map[string]float64{}, Missed: map[string]bool{}})
		}
		r := &rows[i]
		r.Values[f.Group] = f.Value
		r.Missed[f.Group] = f.Target > 0 && f.Value > f.Target
		r.Target = max(r.Target, f.Target)
		if r.Note == "" {
			r.Note = f.Note
		}
	}
	return groups, rows
}

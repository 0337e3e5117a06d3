// Package published holds the tables that others have published, copied number by number: the anchors that the lab's own
// results stand beside. They were measured on other machines with other versions, so nothing here is ever computed with,
// averaged with or put into one table with what the lab measures.
package published

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

// Table is one published table.
type Table struct {
	// ID is what scenarios name, such as "ambient-1".
	ID    string `json:"id"`
	Title string `json:"title"`
	// Source says who published it, where and with which versions.
	Source string `json:"source"`
	// Setting is the load and the machines.
	Setting string `json:"setting"`
	// Unit of the numbers, unless a column names its own.
	Unit    string     `json:"unit"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	// Remark is what a reader must know before comparing.
	Remark string `json:"remark,omitempty"`
}

//go:embed published.json
var document []byte

var tables = func() []Table {
	var t []Table
	if err := json.Unmarshal(document, &t); err != nil {
		panic("published.json: " + err.Error())
	}
	return t
}()

// All returns every table in the order of the document. The caller must not change it.
func All() []Table { return tables }

// Find returns a table by its identifier.
func Find(id string) (Table, error) {
	i := slices.IndexFunc(tables, func(t Table) bool { return t.ID == id })
	if i < 0 {
		return Table{}, fmt.Errorf("no published table is called %q", id)
	}
	return tables[i], nil
}

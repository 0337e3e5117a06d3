package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// schema is the version of Grafana's format: that of 11.6. Later ones read it and write their own when somebody saves it.
const schema = 41

// columns is how wide a row is.
const columns = 24

// dashboard is one page. Its name is part of its address, so it does not change.
type dashboard struct {
	Name, Title, Help string
	// Choices are the variables beside that of the data source.
	Choices []choice
	Rows    []row
}

// choice is a variable that a reader sets: values of a label of a metric.
type choice struct{ Name, Title, Metric, Label string }

// row is a line of panels under a heading; those that do not fit go to a further line.
type row struct {
	Title  string
	Panels []panel
}

// panel is one picture. Help says what is normal and what to do if it is not.
type panel struct {
	Title, Unit, Help string
	Kind              kind
	Queries           []query
	// Most is where the scale ends, if it has an end.
	Most float64
	// Width in columns; the height follows from the kind.
	Width int
	// Columns rename what a table shows, in order.
	Columns []column
}

type kind string

const (
	lines kind = "timeseries"
	stat  kind = "stat"
	table kind = "table"
)

var heights = map[kind]int{lines: 8, stat: 4, table: 10}

// query is an expression with a legend.
type query struct{ Expr, Legend string }

// column is a label or a query's value ("Value #A") in a table.
type column struct{ From, Title, Unit string }

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

func (d dashboard) file() string { return d.Name + ".json" }

func (d dashboard) render() ([]byte, error) {
	variables := []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "hide": 0, "regex": "", "current": object{}}}
	for _, c := range d.Choices {
		q := fmt.Sprintf("label_values(%s, %s)", c.Metric, c.Label)
		variables = append(variables, object{"name": c.Name, "label": c.Title, "type": "query", "datasource": source, "definition": q,
			"query": object{"qryType": 1, "query": q, "refId": "variable"}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}})
	}
	page := object{
		"uid": "lateen-" + d.Name, "title": "Lateen / " + d.Title, "description": d.Help, "tags": []string{"lateen"}, "schemaVersion": schema, "version": 1,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser", "time": object{"from": "now-1h", "to": "now"},
		"templating": object{"list": variables}, "annotations": object{"list": []object{}}, "panels": d.panels(),
		"links": []object{{"type": "dashboards", "title": "Lateen", "tags": []string{"lateen"}, "asDropdown": true, "includeVars": false, "keepTime": true, "icon": "external link"}},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(page)
	return b.Bytes(), err
}

// panels places everything from the left to the right and from above to below.
func (d dashboard) panels() []object {
	var all []object
	id, y := 0, 0
	for _, r := range d.Rows {
		id++
		all = append(all, object{"id": id, "type": "row", "title": r.Title, "collapsed": false, "panels": []object{}, "gridPos": place(0, y, columns, 1)})
		y++
		x, height := 0, 0
		for _, p := range r.Panels {
			if x+p.Width > columns {
				x, y, height = 0, y+height, 0
			}
			id++
			o := p.render()
			o["id"], o["gridPos"] = id, place(x, y, p.Width, heights[p.Kind])
			all = append(all, o)
			x, height = x+p.Width, max(height, heights[p.Kind])
		}
		y += height
	}
	return all
}

func place(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (p panel) render() object {
	targets := []object{}
	for i, q := range p.Queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "expr": q.Expr, "legendFormat": q.Legend, "range": p.Kind != table, "instant": p.Kind == table}
		if p.Kind == table {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	defaults := object{"unit": p.Unit}
	if p.Most > 0 {
		defaults["min"], defaults["max"] = 0, p.Most
	}
	o := object{"type": string(p.Kind), "title": p.Title, "description": p.Help, "datasource": source, "targets": targets}
	field := object{"defaults": defaults, "overrides": []object{}}
	switch p.Kind {
	case lines:
		defaults["custom"] = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false, "stacking": object{"mode": "none"}}
		o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case stat:
		o["options"] = object{"colorMode": "none", "graphMode": "area", "justifyMode": "auto", "textMode": "auto", "reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	case table:
		names, order, overrides := object{}, object{}, []object{}
		for i, c := range p.Columns {
			names[c.From], order[c.From] = c.Title, i
			if c.Unit != "" {
				overrides = append(overrides, object{"matcher": object{"id": "byName", "options": c.Title}, "properties": []object{{"id": "unit", "value": c.Unit}}})
			}
		}
		field["overrides"] = overrides
		o["options"] = object{"showHeader": true, "cellHeight": "sm"}
		o["transformations"] = []object{{"id": "merge", "options": object{}},
			{"id": "organize", "options": object{"excludeByName": object{"Time": true}, "renameByName": names, "indexByName": order}}}
	}
	o["fieldConfig"] = field
	return o
}

// Package report turns a results.json of the lab into what people read: Markdown tables in the shape of the published ones,
// one HTML page that needs nothing beside it, two runs side by side, and words for what was counted. It measures nothing and
// judges nothing: verdicts come with the document, and nothing here computes with a published number.
//
// Three rules hold everywhere. A number without enough samples behind it is not printed. What others published stands in
// tables of its own. All text of a document is data: it is escaped, whatever it holds.
package report
